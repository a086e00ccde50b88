"""The times of a task's seeds and of its database: predictions at others may be typing errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from confluence import seeds
from confluence.assembly import Assembly
from confluence.evaluation import Task
from confluence.times import short_text
from headwater.sampler import Split, micros

_SPLITS: tuple[Split, ...] = ("train", "val", "test")
# More times are only counted.
_MOST_LISTED = 5


class TimeRange(NamedTuple):
    """In microseconds, the first and the last time of a task's seeds, and the last of the rows."""

    first_seed: int
    last_seed: int
    # At least that of the seeds.
    last_row: int

    def has(self, time: int) -> bool:
        """Returns whether the time is no earlier than the seeds, and no later than all data."""
        return self.first_seed <= time <= self.last_row


def of_task(parts: Assembly, task: Task) -> TimeRange | None:
    """Returns the range of times of a task; None if no seed has a time."""
    found = [
        seeds.read(parts.settings, parts.stores, task, split, with_cells=False).times
        for split in _SPLITS
        # The sampler warns of a split without seeds.
        if parts.sampler.seed_counts(split)[task.name]
    ]
    times = np.concatenate(found) if found else np.zeros(0, np.int64)
    times = times[times != seeds.NO_TIME]
    if not len(times):
        return None
    last_seed = int(times.max())
    return TimeRange(int(times.min()), last_seed, max(last_seed, *_last_of_tables(parts, task)))


def _last_of_tables(parts: Assembly, task: Task) -> list[int]:
    """Returns the greatest time of each table whose time is a column."""
    found = [np.iinfo(np.int64).min]
    for table in parts.stores[task.store].metadata()["tables"]:
        of_rows = (table["time"] or {}).get("column")
        if of_rows is not None:
            stats = table["columns"][of_rows["column"]]["stats"]
            found.append(stats["max_us"] + of_rows["delay_us"])
    return found


def warning(parts: Assembly, task: Task, times: Sequence[str | None]) -> str | None:
    """Returns a warning of the observation times outside the range of the task, if there are any.

    The model learnt nothing about other times, and answers all the same.
    """
    span = of_task(parts, task)
    if span is None:
        return None
    outside = [time for time in times if time is not None and not span.has(micros(time))]
    if not outside:
        return None
    names = list(dict.fromkeys(outside))
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return (
        f"{len(outside):,} of {len(times):,} observation times are outside the times of the data: "
        f"{', '.join(names[:_MOST_LISTED])}{more}; the seeds of {task.name} are from "
        f"{short_text(span.first_seed)} to {short_text(span.last_seed)}, the rows until "
        f"{short_text(span.last_row)}; correct a time that is a typing error"
    )
