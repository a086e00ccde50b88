"""Tables of Python objects: lazy frames, and columns of objects of several types."""

from __future__ import annotations

from typing import Any


def as_table(table: Any) -> Any:
    """Returns a table that gives an Arrow stream: a lazy frame of Polars is computed, once."""
    if _is_of(table, "polars") and type(table).__name__ == "LazyFrame":
        return table.collect(engine="streaming")
    return table


def mixed_types(table: Any) -> str | None:
    """Says which column of a pandas frame has objects of several types; None if none has."""
    if not _is_of(table, "pandas"):
        return None
    for name in table.columns:
        column = table[name]
        if getattr(column, "ndim", 1) != 1 or column.dtype != object:
            continue
        kinds: dict[str, int] = {}
        for row, value in enumerate(column):
            if value is not None and value == value:
                kinds.setdefault(type(value).__name__, row)
        if len(kinds) > 1:
            found = ", ".join(f"{kind} (row {row + 1})" for kind, row in kinds.items())
            return (
                f"column {name!r}: expected values of one type, found {found}; convert it, as in "
                f"frame[{name!r}] = frame[{name!r}].astype(str)"
            )
    return None


def _is_of(table: Any, package: str) -> bool:
    return type(table).__module__.partition(".")[0] == package
