"""The anchor of a task: which keys it has, and which of its rows are visible at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import headwater
from confluence.evaluation import Task
from headwater._headwater import key_text


class Anchor(NamedTuple):
    """The table whose rows a task asks about."""

    store: headwater.Store
    table: str
    # Empty if the table has no key.
    key_columns: tuple[str, ...]
    row_count: int

    def has(self, key: tuple[str, ...]) -> bool:
        """Returns whether a row has the key."""
        try:
            self.store.row(self.table, key_text(key if len(key) > 1 else key[0]))
        except headwater.InvalidArgument:
            return False
        return True

    def key(self, row: int) -> str | None:
        """Returns the key of a row, with `|` between its parts; None if the row has none."""
        return self.store.row(self.table, index=int(row))["key"]

    def visible_rows(self, time: int) -> Iterator[tuple[int, str]]:
        """Yields the rows with a key that are visible at a time in microseconds, with their keys.

        Visible are the rows that came to exist until then, and those without a time of their own.
        """
        for row in range(self.row_count):
            found = self.store.row(self.table, index=row)
            if found["key"] is not None and _is_visible(found["time"], time):
                yield row, found["key"]


def _is_visible(since: np.datetime64 | None, time: int) -> bool:
    # A row that is never visible has NaT.
    return since is None or (not np.isnat(since) and int(since.astype(np.int64)) <= time)


def of_task(store: headwater.Store, task: Task) -> Anchor:
    """Returns the anchor of a task, which is one of this store."""
    metadata: dict[str, Any] = store.metadata()
    name = task.name.partition("/")[2]
    number = next(found["anchor"] for found in metadata["tasks"] if found["name"] == name)
    table = metadata["tables"][number]
    return Anchor(store, table["name"], tuple(table["key"] or ()), table["row_count"])
