"""The anchor of a task: which keys it has, and which of its rows are visible at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import headwater
from confluence import times
from confluence.evaluation import Task
from headwater._headwater import key_text
from headwater.sampler import micros

if TYPE_CHECKING:
    from headwater._headwater import RowView

# More keys are only counted.
_MOST_LISTED = 10


class Absent(NamedTuple):
    """What a message says of a question whose row did not exist at its observation time."""

    # The number of the question.
    number: int
    key: str
    time: str
    # When the row came to exist; None if it never does.
    since: str | None


class Found(NamedTuple):
    """Questions, each a key and a time, by what the store has for them."""

    # The numbers of the questions that have an answer.
    known: list[int]
    # Of those whose key is in no row.
    unknown: list[int]
    absent: list[Absent]


class Anchor(NamedTuple):
    """The table whose rows a task asks about."""

    store: headwater.Store
    table: str
    # Empty if the table has no key.
    key_columns: tuple[str, ...]
    row_count: int

    def find(self, key: str | tuple[str, ...]) -> RowView | None:
        """Returns the row that a key names, the first one that has it; None if there is none."""
        try:
            return self.store.row(self.table, key_text(key))
        except headwater.InvalidArgument:
            return None

    def look_up(
        self, keys: Sequence[tuple[str, ...] | None], observed: Sequence[str | None]
    ) -> Found:
        """Returns which questions have an answer; None as a key is in no row."""
        found = Found([], [], [])
        for number, (key, time) in enumerate(zip(keys, observed, strict=True)):
            row = None if key is None else self.find(key)
            if key is None or row is None:
                found.unknown.append(number)
            elif time is None or _is_visible(row["time"], micros(time)):
                found.known.append(number)
            else:
                found.absent.append(Absent(number, "|".join(key), time, _since(row["time"])))
        return found

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


def absent_text(absent: Sequence[Absent], of: int, table: str, place: str, first: int) -> str:
    """Returns a message about rows that did not exist yet, of so many questions.

    `place` is what numbers a question, such as "line", and `first` the number of the first one.
    """
    listed = [
        f'"{row.key}" did not exist at {row.time}; '
        + ("its row is never visible" if row.since is None else f"first seen at {row.since}")
        + f" ({place} {row.number + first})"
        for row in absent[:_MOST_LISTED]
    ]
    if len(absent) > _MOST_LISTED:
        listed.append(f"and {len(absent) - _MOST_LISTED:,} more")
    return (
        f'{len(absent):,} of {of:,} observation times are before their row of table "{table}": '
        f"{', '.join(listed)}; choose later times"
    )


def _since(time: np.datetime64 | None) -> str | None:
    if time is None or np.isnat(time):
        return None
    return times.short_text(int(time.astype(np.int64)))


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
