"""Tables, as text and as HTML."""

from __future__ import annotations

import html
import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest

Rows = Sequence[Sequence[str]]


def aligned(rows: Rows) -> list[str]:
    """Returns a line of text for each row, with columns of one width; rows may be shorter."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]


def terminal_width() -> int | None:
    """Returns the columns of the terminal that standard output is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(rows: Rows, width: int) -> list[str]:
    """Returns lines that fit into a width: columns without room follow below, beside the first one.

    A row may be shorter. A column that has no room at all is wider than the width.
    """
    first, *others = zip_longest(*rows, fillvalue="")
    room = width - max(map(len, first))
    groups: list[list[Sequence[str]]] = [[]]
    for column in others:
        if groups[-1] and sum(2 + max(map(len, of)) for of in [*groups[-1], column]) > room:
            groups.append([])
        groups[-1].append(column)
    return [line for group in groups for line in aligned(list(zip(first, *group, strict=True)))]


def titled(title: str, rows: Rows) -> str:
    """Returns a title and the rows below it, as lines of text."""
    return "\n".join([title, *aligned(rows)])


def titled_html(title: str, rows: Rows) -> str:
    """Returns a title and the rows below it, the first one as the header of a table."""
    header, *others = rows
    head = "".join(f"<th>{html.escape(name)}" for name in header)
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in others]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<p>{html.escape(title)}</p>\n<table><tr>{head}</tr>\n{body}\n</table>"
