"""The tables and tasks of a store, as frames and for notebooks."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from headwater import _html
from headwater._headwater import (
    InvalidArgument,
    RowStream,
    Store,
    describe_table,
    describe_task,
    seed_rows,
    table_rows,
)

_SPLITS = ("train", "val", "test")


class _Frame:
    """Rows that are read as an Arrow stream, in batches of 8,192."""

    def _stream(self) -> RowStream:
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the rows as an Arrow stream: pyarrow, Polars, pandas and DuckDB take it as is."""
        return self._stream().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> Any:
        """Returns the rows as a `pyarrow.Table`.

        Ctrl-C interrupts it between two batches.

        Raises:
            InvalidArgument: pyarrow is not installed.
            Corrupt: The store is damaged.
        """
        pyarrow, stream = _import("pyarrow"), self._stream()
        reader, batches = pyarrow.RecordBatchReader.from_stream(stream), []
        try:
            # A loop in Python, which Ctrl-C interrupts; one in C, as that of `list`, would go on.
            for batch in reader:
                batches.append(batch)
        except pyarrow.ArrowException as error:
            _raise_own(stream, error)
        return pyarrow.Table.from_batches(batches, reader.schema)

    def to_pandas(self) -> Any:
        """Returns the rows as a `pandas.DataFrame`; needs pandas and pyarrow.

        Ctrl-C interrupts it between two batches.

        Raises:
            InvalidArgument: pandas or pyarrow is not installed.
            Corrupt: The store is damaged.
        """
        _import("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Returns the rows as a `polars.DataFrame`; needs polars and pyarrow.

        Ctrl-C interrupts it between two batches.

        Raises:
            InvalidArgument: polars or pyarrow is not installed.
            Corrupt: The store is damaged.
        """
        return _import("polars").from_arrow(self.to_arrow())


class Table(_Frame):
    """A table of a store, with the values of its source, as precisely as the store has them.

    The columns are the key, then the references, then the others. The key and the references are
    text, except where they have numbers or times of their own. A reference has the key of the row
    that it leads to, and NULL if there is no such row. Numbers have the digits that a stored 32-bit
    z-score determines; times are microseconds in UTC. Columns that are `ignored` in the schema, and
    identifiers that are neither key nor reference, are not in a store.

    Attributes:
        name: The table's name.
        row_count: The number of rows, also `len(table)`.
        key: The names of the key's columns; empty if rows have no key.

    Example:
        >>> orders = headwater.Store("shop.db").tables["orders"]  # doctest: +SKIP
        >>> orders.to_pandas()  # doctest: +SKIP
        >>> polars.from_arrow(orders)  # doctest: +SKIP
    """

    def __init__(self, store: Store, metadata: Mapping[str, Any]) -> None:
        self._store = store
        self.name: str = metadata["name"]
        self.row_count: int = metadata["row_count"]
        self.key: tuple[str, ...] = tuple(metadata["key"])

    @cached_property
    def _shown(self) -> dict[str, Any]:
        return describe_table(self._store, self.name)

    @property
    def columns(self) -> dict[str, str]:
        """What each column is, by its name: "key", "-> table" for a reference, or its type."""
        return dict(self._shown["columns"])

    @property
    def time(self) -> str:
        """In words, the time from which contexts may have a row: "time placed_at"."""
        return str(self._shown["time"])

    def _stream(self) -> RowStream:
        return table_rows(self._store, self.name)

    def __len__(self) -> int:
        return self.row_count

    def __repr__(self) -> str:
        return f"<table {self.name}: {_rows(self.row_count)}, {self.time}>"

    def _repr_html_(self) -> str:
        return _frame_html(repr(self)[1:-1], self._shown, self.row_count)


class Task(_Frame):
    """A task of a store. Its rows are its seeds: `task.to_pandas()`, or `task.seeds()`.

    The columns of the seeds are the key of the anchor's row (the number `row` if it has no key),
    the observation time `obs_time` (NULL for a seed that sees everything), the label `target` and
    the `split`: the recorded one, or that of the sampler's default `split_ratios` and `split_seed`.

    Attributes:
        name: The task's name.
        anchor: The name of the table whose rows it asks about.
        type: The type of the target: "boolean", "numerical", "categorical" or "timestamp".
        seed_count: The number of seeds, also `len(task)`.

    Example:
        >>> churn = headwater.Store("shop.db").task("churn")  # doctest: +SKIP
        >>> churn.splits  # doctest: +SKIP
        {'train': 13004, 'val': 1630, 'test': 1661}
        >>> churn.seeds().to_pandas()  # doctest: +SKIP
    """

    def __init__(self, store: Store, metadata: Mapping[str, Any], anchor: str) -> None:
        self._store = store
        self.name: str = metadata["name"]
        self.anchor = anchor
        self.seed_count: int = metadata["seed_count"]

    @cached_property
    def _shown(self) -> dict[str, Any]:
        return describe_task(self._store, self.name)

    @property
    def type(self) -> str:
        """The type of the target."""
        return str(self._shown["task"]["semantic"])

    @property
    def splits(self) -> dict[str, int]:
        """The number of seeds of each split."""
        return {split: self._shown["task"][split] for split in _SPLITS}

    @property
    def labels(self) -> dict[str, Any]:
        """The distribution of the labels.

        Booleans and categories are counted, of numbers and times there are five quantiles; the last
        entry counts the seeds whose label is NULL.
        """
        return dict(self._shown["labels"])

    def seeds(self) -> Task:
        """Returns the task itself, whose rows are its seeds."""
        return self

    def _stream(self) -> RowStream:
        return seed_rows(self._store, self.name)

    def __len__(self) -> int:
        return self.seed_count

    def __repr__(self) -> str:
        return f"<task {self.name}: {self.type} of {self.anchor}, {_rows(self.seed_count, 'seed')}>"

    def _repr_html_(self) -> str:
        how = "recorded" if self._shown["task"]["recorded_split"] else "by hash"
        sizes = [f"{size:,}" for size in self.splits.values()]
        labels = {name: _number(value) for name, value in self.labels.items()}
        return (
            _html.table(f"{repr(self)[1:-1]}, split {how}", _SPLITS, [sizes])
            + _html.table("labels", list(labels), [list(labels.values())])
            + _frame_html("first seeds", self._shown, self.seed_count)
        )


_Named = TypeVar("_Named")


class _ByName(dict[str, _Named], Generic[_Named]):
    """Parts of a store by their names; an unknown name has a message with the nearest one."""

    def __init__(self, what: str, database: str, parts: Mapping[str, _Named]) -> None:
        super().__init__(parts)
        self._what, self._database = what, database

    def __missing__(self, name: str) -> _Named:
        # A task is also called "database/task".
        short = str(name).removeprefix(f"{self._database}/")
        if short in self:
            return self[short]
        near = difflib.get_close_matches(short, self, n=1)
        known = ", ".join(self) or "none"
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of: {known}"
        raise InvalidArgument(f"{self._database} has no {self._what} {name!r}; {hint}")


def tables(store: Store) -> dict[str, Table]:
    """Returns the tables of a store by name."""
    metadata = store.metadata()
    found = {of["name"]: Table(store, of) for of in metadata["tables"]}
    return _ByName("table", metadata["database"], found)


def tasks(store: Store) -> dict[str, Task]:
    """Returns the tasks of a store by name."""
    metadata = store.metadata()
    found = {
        of["name"]: Task(store, of, metadata["tables"][of["anchor"]]["name"])
        for of in metadata["tasks"]
    }
    return _ByName("task", metadata["database"], found)


def store_html(store: Store) -> str:
    """Returns what a notebook shows of a store: its tables, relations and tasks."""
    metadata = store.metadata()
    names = [table["name"] for table in metadata["tables"]]
    of_tables = [
        (of.name, f"{len(of):,}", str(len(of.columns)), ", ".join(of.key) or "-", of.time)
        for of in tables(store).values()
    ]
    relations = [
        (f"{names[of['child']]}.{of['name']}", names[of["parent"]],
         *(f"{of[count]:,}" for count in ("edge_count", "null_count", "unresolved_count")))
        for of in metadata["relations"]
    ]  # fmt: skip
    of_tasks = [
        (of.name, of.type, of.anchor, *(f"{size:,}" for size in of.splits.values()))
        for of in tasks(store).values()
    ]
    return (
        _html.table(repr(store), ("table", "rows", "columns", "key", "time"), of_tables)
        + _html.table("relations", ("relation", "to", "links", "NULL", "unresolved"), relations)
        + _html.table("tasks", ("task", "type", "anchor", *_SPLITS), of_tasks)
    )


def _frame_html(caption: str, shown: Mapping[str, Any], count: int) -> str:
    names, types = zip(*shown["columns"], strict=True) if shown["columns"] else ((), ())
    rows = [["NULL" if cell is None else cell for cell in row] for row in shown["rows"]]
    if count > len(rows) and rows:
        rows.append(["…"] * len(names))
    return _html.table(caption, names, rows, types=types)


def _rows(count: int, what: str = "row") -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _import(name: str) -> Any:
    """Returns a library that headwater can do without.

    Raises:
        InvalidArgument: It is not installed.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidArgument(
            f"this needs {name}, which cannot be imported ({error}); install it: pip install {name}"
        ) from None


def _raise_own(stream: RowStream, error: Exception) -> None:
    """Raises the store's own error, of which Arrow has the message alone, or else `error`."""
    stream.raise_error()
    raise error
