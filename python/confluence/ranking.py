"""Predictions for all rows that are visible at a time, the highest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from confluence import anchors, prediction
from confluence.anchors import Anchor
from confluence.assembly import Assembly
from confluence.batch import CATEGORICAL
from confluence.config import ConfigError
from confluence.evaluation import Task
from confluence.metrics import Numbers
from headwater.sampler import micros

# Fewer rows are not worth sorting in between.
_LEAST_KEPT = 10_000
# More repeated keys are only counted.
_MOST_LISTED = 10


class Ranked(NamedTuple):
    """Rows of the anchor, with their predictions in the units of the data."""

    rows: npt.NDArray[np.int64]
    values: Numbers
    nulls: Numbers


class Visible(NamedTuple):
    """The predictions of the rows that are visible at a time."""

    anchor: Anchor
    ranked: Ranked
    # The numbers and keys of the rows without a prediction: their key names an earlier row.
    repeated: list[tuple[int, str]]

    @property
    def warning(self) -> str | None:
        """A line that names the rows without a prediction; None if there are none."""
        if not self.repeated:
            return None
        count = len(self.repeated)
        listed = [f'"{key}" (row {row})' for row, key in self.repeated[:_MOST_LISTED]]
        if count > _MOST_LISTED:
            listed.append(f"and {count - _MOST_LISTED:,} more")
        return (
            f'{count:,} rows of table "{self.anchor.table}" have the key of an earlier row and '
            f"have no prediction, since a key names the first row that has it: "
            f"{', '.join(listed)}; give each row a key of its own, and prepare the store again"
        )


def predict_visible(
    parts: Assembly, models: Sequence[Any], task: Task, at: str, top: int | None
) -> Visible:
    """Predicts for each row of the anchor that is visible at a time, batch by batch.

    Rows are predicted by their keys, so a row whose key names an earlier row has no prediction.

    Returns:
        The `top` highest predictions, or all; of equal ones the first row comes first. Categories
        are in the order of the rows.

    Raises:
        ConfigError: The anchor has no key, no row is visible then, or categories have no highest.
    """
    if task.pairs is not None:
        raise ConfigError(
            f"expected a task about single rows for --at, found {task.name}, whose rows are pairs "
            "of its own observation times; name such pairs with --seeds"
        )
    anchor = anchors.of_task(parts.stores[task.store], task)
    if not anchor.key_columns:
        raise ConfigError(
            f'expected a key of table "{anchor.table}", to name the rows of {task.name} by, found '
            "none; declare one in the schema, and prepare the store again"
        )
    if task.kind == CATEGORICAL and top is not None:
        raise ConfigError(
            f"expected a task with a number, a time or a probability for --top; {task.name} "
            "predicts a category; leave --top out"
        )
    until = parts.settings.data.visible_until
    time = min(micros(at), micros(until)) if until else micros(at)
    kept: list[Ranked] = []
    repeated: list[tuple[int, str]] = []
    visible = _first_of_keys(anchor, anchor.visible_rows(time), repeated)
    while chunk := list(itertools.islice(visible, parts.settings.data.batch_size)):
        parts.status.show_sometimes(
            f"predicting {task.name} at {at}: row {chunk[0][0] + 1:,} of {anchor.row_count:,}"
        )
        keys = [key for _, key in chunk]
        found = prediction.predict_batch(parts, models, task, keys, [at] * len(keys))
        kept.append(Ranked(np.array([row for row, _ in chunk]), *found))
        if top is not None and sum(len(of.rows) for of in kept) >= 2 * top + _LEAST_KEPT:
            kept = [highest(kept, top)]
    if not kept:
        raise ConfigError(
            f'expected rows of table "{anchor.table}" that are visible at {at}, found none; choose '
            "a later time"
        )
    ranked = _joined(kept) if task.kind == CATEGORICAL else highest(kept, top)
    return Visible(anchor, ranked, repeated)


def _first_of_keys(
    anchor: Anchor, rows: Iterable[tuple[int, str]], repeated: list[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    """Yields the rows that their keys name; adds the others to `repeated`."""
    for row, key in rows:
        found = anchor.find(key)
        if found is not None and found["row"] == row:
            yield row, key
        else:
            repeated.append((row, key))


def highest(parts: Sequence[Ranked], top: int | None) -> Ranked:
    """Returns the `top` highest predictions, or all; of equal ones the first row comes first."""
    joined = _joined(parts)
    order = np.lexsort((joined.rows, -joined.values))[:top]
    return Ranked(joined.rows[order], joined.values[order], joined.nulls[order])


def _joined(parts: Sequence[Ranked]) -> Ranked:
    rows, values, nulls = zip(*parts, strict=True)
    return Ranked(np.concatenate(rows), np.concatenate(values), np.concatenate(nulls))
