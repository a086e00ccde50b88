"""Tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    types: Sequence[str] = (),
) -> str:
    """Returns an HTML table with a caption, and with a line of types below the heads if given."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", cells) for cells in rows)
    below = f"<tr>{''.join(f'<td><em>{html.escape(of)}</em></td>' for of in types)}</tr>"
    return (
        f"<table><caption>{html.escape(caption)}</caption>{line('th', heads)}"
        f"{below if types else ''}{body}</table>"
    )
