"""Tables of Python objects: lazy frames, and columns of objects of several types."""

from __future__ import annotations

import importlib
from typing import Any

from headwater._headwater import InvalidArgument

# Classes that are one column.
_COLUMNS = ("Series", "Index", "Array", "ChunkedArray")
_PACKAGES = ("pandas", "polars", "pyarrow")


def as_table(table: Any) -> Any:
    """Returns a table that gives an Arrow stream: a lazy frame of Polars is computed, once.

    Columns of Polars that are NULL alone or have integers of 128 bits, which the Arrow libraries do
    not read as it writes them, become text.

    Raises:
        InvalidArgument: It is one column, whose stream is not that of a table.
    """
    if hasattr(table, "__arrow_c_stream__") and is_one_column(table):
        raise InvalidArgument(
            f"expected a table (pyarrow, Polars, pandas >= 2.2, DuckDB), found a "
            f"{type(table).__module__.partition('.')[0]} {type(table).__qualname__}, which is one "
            "column; make a frame of it"
        )
    if not _is_of(table, "polars"):
        return table
    if type(table).__name__ == "LazyFrame":
        table = table.collect(engine="streaming")
    return _without_null_and_wide_types(table) if type(table).__name__ == "DataFrame" else table


def _without_null_and_wide_types(frame: Any) -> Any:
    polars = importlib.import_module("polars")
    # Earlier versions have not all of them.
    dtypes = [getattr(polars, name, None) for name in ("Null", "Int128", "UInt128")]
    columns = polars.col([dtype for dtype in dtypes if dtype is not None])
    return frame.with_columns(columns.cast(polars.String))


def mixed_types(table: Any) -> str | None:
    """Says which column of a pandas frame has objects of several types; None if none has."""
    if not _is_of(table, "pandas"):
        return None
    for name in table.columns:
        column = table[name]
        if getattr(column, "ndim", 1) != 1 or column.dtype != object:
            continue
        kinds: dict[str, int] = {}
        # Not by comparing values: what pandas calls NA is neither equal to itself nor unequal.
        for row, (value, is_missing) in enumerate(zip(column, column.isna(), strict=True)):
            if not is_missing:
                kinds.setdefault(type(value).__name__, row)
        if len(kinds) > 1:
            found = ", ".join(f"{kind} (row {row + 1})" for kind, row in kinds.items())
            return (
                f"column {name!r}: expected values of one type, found {found}; convert it, as in "
                f"frame[{name!r}] = frame[{name!r}].astype(str)"
            )
    return None


def is_one_column(table: Any) -> bool:
    """Returns whether this is a column of a library of frames, but not one of structs.

    A column gives an Arrow stream, too; that of structs is the stream of a table.
    """
    if not any(_is_of(table, package) for package in _PACKAGES):
        return False
    kind = str(getattr(table, "dtype", getattr(table, "type", ""))).lower()
    is_column = any(of.__name__ in _COLUMNS for of in type(table).__mro__)
    return is_column and not kind.startswith("struct")


def _is_of(table: Any, package: str) -> bool:
    return type(table).__module__.partition(".")[0] == package
