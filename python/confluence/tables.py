"""Tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a line of text for each row, with columns of one width; rows may be shorter."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
