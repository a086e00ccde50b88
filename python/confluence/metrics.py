"""How good predictions are, in the units of the data. Plain NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP

Numbers = npt.NDArray[np.float64]
_DAY_MICROSECONDS = 86_400_000_000

# The metric of each type that says how good a model is, and whether more of it is better.
LEADING = {
    BOOLEAN: ("auroc", True),
    NUMERICAL: ("mae", False),
    CATEGORICAL: ("accuracy", True),
    TIMESTAMP: ("mae_days", False),
}


def score(target_type: int, values: Numbers, labels: Numbers) -> dict[str, float]:
    """Returns the metrics of a target's type; there must be a label at least."""
    if target_type == BOOLEAN:
        return {
            "auroc": auroc(values, labels),
            "ap": average_precision(values, labels),
            "accuracy": float(np.mean((values >= 0.5) == (labels >= 0.5))),
        }
    if target_type == CATEGORICAL:
        return {
            "accuracy": float(np.mean(values == labels)),
            "macro_f1": macro_f1(values, labels),
        }
    errors = values - labels
    if target_type == TIMESTAMP:
        return {"mae_days": float(np.mean(np.abs(errors))) / _DAY_MICROSECONDS}
    spread = float(np.sum(np.square(labels - np.mean(labels))))
    return {
        "mae": float(np.mean(np.abs(errors))),
        "rmse": float(np.sqrt(np.mean(np.square(errors)))),
        "r2": 1 - float(np.sum(np.square(errors))) / spread if spread else float("nan"),
    }


def in_units(target_type: int, values: Numbers, stats: Mapping[str, Any]) -> Numbers:
    """Returns z-scores in the units of their column; all else as it is."""
    if target_type == NUMERICAL:
        return values * stats["std"] + stats["mean"]
    if target_type == TIMESTAMP:
        return values * stats["std_us"] + stats["mean_us"]
    return values


def auroc(values: Numbers, labels: Numbers) -> float:
    """Returns how likely a true one has a greater value than a false one; ties count half."""
    positive = labels >= 0.5
    count = int(np.count_nonzero(positive))
    if count in (0, len(labels)):
        return float("nan")
    _, place, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(sizes) - (sizes - 1) / 2
    above = float(np.sum(ranks[place[positive]])) - count * (count + 1) / 2
    return above / (count * (len(labels) - count))


def average_precision(values: Numbers, labels: Numbers) -> float:
    """Returns the mean precision at each true one, equal values taken together."""
    positive = labels >= 0.5
    if not positive.any():
        return float("nan")
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(positive[order])
    # Thresholds are between different values.
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    precision = hits[ends] / (ends + 1)
    recall = hits[ends] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0) * precision))


def macro_f1(values: Numbers, labels: Numbers) -> float:
    """Returns the mean F1 over the categories that are true or predicted anywhere."""
    found = []
    for category in np.union1d(values, labels):
        hits = np.count_nonzero((values == category) & (labels == category))
        both = np.count_nonzero(values == category) + np.count_nonzero(labels == category)
        found.append(2 * hits / both)
    return float(np.mean(found))


def baselines(
    target_type: int,
    train_rows: npt.NDArray[np.uint32],
    train_labels: Numbers,
    rows: npt.NDArray[np.uint32],
) -> dict[str, Numbers]:
    """Returns what those predict who look at the train labels alone.

    Of all seeds: the mean, or the category that is there most; and of each row its own, where it
    was a train seed.
    """
    if target_type == CATEGORICAL:
        overall = _most_frequent(train_labels)
    else:
        overall = float(np.mean(train_labels))
    own = {}
    for row in np.unique(train_rows):
        of_row = train_labels[train_rows == row]
        own[row] = _most_frequent(of_row) if target_type == CATEGORICAL else float(np.mean(of_row))
    name = "majority" if target_type == CATEGORICAL else "mean"
    return {
        name: np.full(len(rows), overall),
        f"{name} of the entity": np.array([own.get(row, overall) for row in rows]),
    }


def _most_frequent(labels: Numbers) -> float:
    values, counts = np.unique(labels, return_counts=True)
    return float(values[np.argmax(counts)])
