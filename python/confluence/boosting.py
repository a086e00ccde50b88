"""Boosting: scikit-learn's HistGradientBoosting over what is known of a seed, in fixed settings.

It has as many trees as are best on the validation split, and runs in one thread, so that its
predictions are the same on every machine with the same scikit-learn.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from confluence import metrics
from confluence.batch import BOOLEAN, CATEGORICAL
from confluence.evaluation import Task
from confluence.seeds import Columns, Numbers, Seeds
from headwater.sampler import Split

ROW = "boosting, the seed's row"
AGGREGATES = "boosting, with its aggregates"
LABELS = "boosting, with the last labels"

# Boosting learns from this many train seeds at most, evenly taken.
_MOST_SEEDS = 200_000
_ITERATIONS = 300
# A tree for each category in each iteration: many categories get fewer iterations.
_MOST_TREES = 3_000
_RATE = 0.05
# HistGradientBoosting knows no category from this number on.
_MOST_CATEGORIES = 255
_SCORED: tuple[Split, ...] = ("val", "test")


class Features(NamedTuple):
    """What boosting knows of each seed, a column for each feature; NaN for NULL."""

    cells: Mapping[Split, Numbers]
    is_category: npt.NDArray[np.bool_]

    def plus(self, other: Features) -> Features:
        """Returns the columns of both."""
        cells = {
            split: np.concatenate([own, other.cells[split]], axis=1)
            for split, own in self.cells.items()
        }
        return Features(cells, np.concatenate([self.is_category, other.is_category]))


class Boosted(NamedTuple):
    """The metrics of a boosting on val and test, and the CPU seconds that it took."""

    metrics: dict[Split, dict[str, float]]
    seconds: float


def is_installed() -> bool:
    """Returns whether there is a scikit-learn."""
    return importlib.util.find_spec("sklearn") is not None


def compare(
    task: Task, found: Mapping[Split, Seeds], columns: Columns, labels: Features | None
) -> dict[str, Boosted]:
    """Boosts over the seed's row, over its aggregates too, and over earlier `labels` too.

    `found` has seeds with cells, at least one in each split.
    """
    cells = {split: of_split.cells for split, of_split in found.items()}
    every = Features(cells, columns.is_category)
    own = ~columns.is_aggregate
    row = Features({split: of[:, own] for split, of in cells.items()}, columns.is_category[own])
    chosen = {ROW: row}
    if columns.is_aggregate.any():
        chosen[AGGREGATES] = every
    if labels is not None:
        chosen[LABELS] = every.plus(labels)
    answers = {split: of_split.labels for split, of_split in found.items()}
    return {
        name: _boosted(task.kind, features, answers)
        for name, features in chosen.items()
        if len(features.is_category)
    }


def _boosted(kind: int, features: Features, labels: Mapping[Split, Numbers]) -> Boosted:
    start = time.process_time()
    values = _predictions(kind, features, labels)
    scores = {split: metrics.score(kind, values[split], labels[split]) for split in _SCORED}
    return Boosted(scores, time.process_time() - start)


def _predictions(
    kind: int, features: Features, labels: Mapping[Split, Numbers]
) -> dict[Split, Numbers]:
    """Returns the predictions for val and test, by as many trees as are best on val."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    count = len(labels["train"])
    chosen = np.arange(min(count, _MOST_SEEDS)) * count // min(count, _MOST_SEEDS)
    train = labels["train"][chosen]
    features = _prepared(features, chosen)
    classes = len(np.unique(train))
    if not len(features.is_category) or classes < 2:
        rows = np.zeros(count, np.uint32)
        # Of a number the last is the median, which has the least absolute error.
        *_, typical = metrics.baselines(kind, rows, labels["train"], 1, None).values()
        return {split: np.full(len(labels[split]), typical[0]) for split in _SCORED}
    options: dict[str, Any] = {
        "learning_rate": _RATE, "early_stopping": False, "random_state": 0,
        "categorical_features": features.is_category,
        "max_iter": min(_ITERATIONS, -(-_MOST_TREES // classes)) if kind == CATEGORICAL
        else _ITERATIONS,
    }  # fmt: skip
    if kind in (BOOLEAN, CATEGORICAL):
        boosting: Any = HistGradientBoostingClassifier(**options)
    else:
        boosting = HistGradientBoostingRegressor(loss="absolute_error", **options)

    def staged(split: Split) -> Iterator[Numbers]:
        """Yields the predictions by one tree, by two, and so on."""
        if kind == BOOLEAN:
            return (part[:, 1] for part in boosting.staged_predict_proba(features.cells[split]))
        return boosting.staged_predict(features.cells[split])

    # Several threads would add up gradients in any order.
    with threadpool_limits(1, user_api="openmp"):
        boosting.fit(features.cells["train"][chosen], train)
        leading = metrics.LEADING[kind]
        scores = [
            metrics.worth(leading, metrics.score(kind, values, labels["val"])[leading])
            for values in staged("val")
        ]
        # A split of one class has no AUROC: all scores are NaN, and the first is taken.
        best = int(np.argmax(scores))
        return {split: next(itertools.islice(staged(split), best, None)) for split in _SCORED}


def _prepared(features: Features, chosen: npt.NDArray[np.int64]) -> Features:
    """Returns the features as HistGradientBoosting takes them."""
    cells = {split: of_split.copy() for split, of_split in features.cells.items()}
    for column in np.flatnonzero(features.is_category):
        _number_categories(cells, column)
    # It refuses a column without a value.
    has_values = ~np.isnan(cells["train"][chosen]).all(axis=0)
    kept = {split: of_split[:, has_values] for split, of_split in cells.items()}
    return Features(kept, features.is_category[has_values])


def _number_categories(cells: Mapping[Split, Numbers], column: np.intp) -> None:
    """Numbers the most frequent categories of the train split; the others are as if NULL."""
    train = cells["train"][:, column]
    names, counts = np.unique(train[~np.isnan(train)], return_counts=True)
    names = np.sort(names[np.argsort(-counts, kind="stable")][:_MOST_CATEGORIES])
    for of_split in cells.values():
        values = of_split[:, column]
        at = np.searchsorted(names, values)
        is_known = names[np.minimum(at, len(names) - 1)] == values if len(names) else False
        of_split[:, column] = np.where(is_known, at, np.nan)
