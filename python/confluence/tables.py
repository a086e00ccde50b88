"""Tables, as text and as HTML."""

from __future__ import annotations

import html
import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest

Rows = Sequence[Sequence[str]]

# A column that is broken into lines has at least so many characters.
_LEAST_ROOM = 30


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


def wrapped(rows: Rows, column: int, width: int | None) -> list[Sequence[str]]:
    """Returns rows that fit into a width: one column of lists goes on in the rows below.

    A list is broken after its commas. The column keeps so many characters in any case that it can
    be read; without a width nothing is broken.
    """
    if width is None:
        return list(rows)
    columns = [max(map(len, of)) for of in zip_longest(*rows, fillvalue="")]
    others = sum(columns) - columns[column] + 2 * (len(columns) - 1)
    room = max(width - others, _LEAST_ROOM)
    found: list[Sequence[str]] = []
    for row in rows:
        if len(row) <= column:
            found.append(row)
            continue
        first, *more = _broken(row[column], room)
        found.append([*row[:column], first, *row[column + 1 :]])
        found += [[*([""] * column), line] for line in more]
    return found


def _broken(text: str, room: int) -> list[str]:
    lines = [""]
    for part in text.split(", "):
        if not lines[-1]:
            lines[-1] = part
        elif len(lines[-1]) + len(part) + 3 <= room:
            lines[-1] += f", {part}"
        else:
            lines[-1] += ","
            lines.append(part)
    return lines


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
