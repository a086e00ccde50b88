"""Predictions for all rows that are visible at a time, the highest first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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


class Ranked(NamedTuple):
    """Rows of the anchor, with their predictions in the units of the data."""

    rows: npt.NDArray[np.int64]
    values: Numbers
    nulls: Numbers


def predict_visible(
    parts: Assembly, models: Sequence[Any], task: Task, at: str, top: int | None
) -> tuple[Anchor, Ranked]:
    """Predicts for each row of the anchor that is visible at a time, batch by batch.

    Returns:
        The anchor, and the `top` highest predictions, or all; of equal ones the first row comes
        first. Categories are in the order of the rows.

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
    visible = anchor.visible_rows(time)
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
    return anchor, _joined(kept) if task.kind == CATEGORICAL else highest(kept, top)


def highest(parts: Sequence[Ranked], top: int | None) -> Ranked:
    """Returns the `top` highest predictions, or all; of equal ones the first row comes first."""
    joined = _joined(parts)
    order = np.lexsort((joined.rows, -joined.values))[:top]
    return Ranked(joined.rows[order], joined.values[order], joined.nulls[order])


def _joined(parts: Sequence[Ranked]) -> Ranked:
    rows, values, nulls = zip(*parts, strict=True)
    return Ranked(np.concatenate(rows), np.concatenate(values), np.concatenate(nulls))
