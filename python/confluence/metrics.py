"""Metrics of predictions, in the units of the data, in plain NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP

Numbers = npt.NDArray[np.float64]
_DAY_MICROSECONDS = 86_400_000_000
_LARGEST_LOG = 700.0

# The leading metric of each type of target: the one to compare models by.
LEADING = {
    BOOLEAN: "auroc",
    NUMERICAL: "mae",
    CATEGORICAL: "accuracy",
    TIMESTAMP: "mae_days",
}


def score(target_type: int, values: Numbers, labels: Numbers) -> dict[str, float]:
    """Returns the metrics of a target's type; there must be at least one label.

    The bias is the mean prediction minus the mean label: the mean probability minus the share of
    positives.
    """
    if target_type == BOOLEAN:
        return {
            "auroc": auroc(values, labels),
            "ap": average_precision(values, labels),
            "accuracy": float(np.mean((values >= 0.5) == (labels >= 0.5))),
            "bias": float(np.mean(values) - np.mean(labels)),
        }
    if target_type == CATEGORICAL:
        return {
            "accuracy": float(np.mean(values == labels)),
            "macro_f1": macro_f1(values, labels),
        }
    errors = values - labels
    if target_type == TIMESTAMP:
        return {
            "mae_days": float(np.mean(np.abs(errors))) / _DAY_MICROSECONDS,
            "bias_days": float(np.mean(errors)) / _DAY_MICROSECONDS,
        }
    spread = float(np.sum(np.square(labels - np.mean(labels))))
    return {
        "mae": float(np.mean(np.abs(errors))),
        "rmse": float(np.sqrt(np.mean(np.square(errors)))),
        "r2": 1 - float(np.sum(np.square(errors))) / spread if spread else float("nan"),
        "bias": float(np.mean(errors)),
    }


def worth(metric: str, value: float) -> float:
    """Returns the value of a leading metric such that more is better: an error with a minus."""
    return -value if metric.startswith("mae") else value


def interval(
    target_type: int, rows: npt.NDArray[np.uint32], values: Numbers, labels: Numbers
) -> tuple[float, float]:
    """Returns the interval that has 95 % of the leading metric over resampled entities.

    The entities (rows) are drawn with replacement, each with all its seeds, since the seeds of one
    are not independent. The draws are the same on each call. NaN if no draw has a metric.
    """
    leading = LEADING[target_type]
    return resampled(rows, lambda at: score(target_type, values[at], labels[at])[leading])


def resampled(
    rows: npt.NDArray[np.uint32], metric: Callable[[npt.NDArray[np.int64]], float]
) -> tuple[float, float]:
    """Returns the interval that has 95 % of a metric of some places, over resampled entities."""
    order = np.argsort(rows, kind="stable")
    _, starts, sizes = np.unique(rows[order], return_index=True, return_counts=True)
    found = []
    draws = np.random.default_rng(0)
    # A large split needs fewer draws.
    for _ in range(int(np.clip(2e7 / max(len(rows), 1), 40, 400))):
        chosen = draws.integers(len(starts), size=len(starts))
        ends = np.cumsum(sizes[chosen])
        within = np.arange(ends[-1]) - np.repeat(ends - sizes[chosen], sizes[chosen])
        found.append(metric(order[np.repeat(starts[chosen], sizes[chosen]) + within]))
    known = np.array(found)[~np.isnan(found)]
    if not len(known):
        return (float("nan"), float("nan"))
    low, high = np.quantile(known, [0.025, 0.975])
    return (float(low), float(high))


def in_units(target_type: int, values: Numbers, stats: Mapping[str, Any]) -> Numbers:
    """Returns z-scores in the units of their column, and other values unchanged."""
    if target_type == NUMERICAL:
        return from_scale(values * stats["std"] + stats["mean"], stats.get("scale", "linear"))
    if target_type == TIMESTAMP:
        return values * stats["std_us"] + stats["mean_us"]
    return values


def as_stored(scores: npt.NDArray[np.float32], stats: Mapping[str, Any]) -> Numbers:
    """Returns the numbers of z-scores as a store shows them: to the digits that 32 bits determine.

    These are the numbers of `Store.task` and `Store.row`, as `Scale::certain_value` has them in
    Rust: a stored 0 is 0, while `in_units` is off by the rounding of its z-score.
    """
    mean, std, scale = stats["mean"], stats["std"], stats.get("scale", "linear")
    places = scores.astype(np.float64) * std + mean
    half_steps = np.abs(scores) * np.float32(np.finfo(np.float32).eps / 2)
    errors = half_steps.astype(np.float64) * std
    errors += (np.abs(places) + abs(mean)) * np.finfo(np.float64).eps
    values = from_scale(places, scale)
    widths = from_scale(places + errors, scale) - from_scale(places - errors, scale)
    if scale == "linear":
        widths = 2 * errors
    return np.array([_rounded(*of) for of in zip(values, widths, strict=True)], np.float64)


def _rounded(value: float, width: float) -> float:
    """Returns a value rounded to the smallest power of ten that is at least its width."""
    if not width:
        return value + 0.0
    exponent = math.ceil(math.log10(width))
    if exponent <= 0:
        return float(f"{value:.{min(-exponent, 400)}f}") + 0.0
    step = 10.0**exponent
    # Halves are rounded away from 0.
    return math.copysign(math.floor(abs(value / step) + 0.5) * step, value) + 0.0


def from_scale(places: Numbers, scale: Any) -> Numbers:
    """Returns the numbers at these places on a column's scale, as `store::Scale` does in Rust."""
    if scale == "linear":
        return places
    if scale == "log":
        # The exponential of a greater place is no finite number.
        return np.copysign(np.expm1(np.minimum(np.abs(places), _LARGEST_LOG)), places)
    quantiles = np.asarray(scale["rank"]["quantiles"])
    return np.interp(places, np.linspace(0, 1, len(quantiles)), quantiles)


def to_scale(values: Numbers, scale: Any) -> Numbers:
    """Returns places that `from_scale` has these numbers at; a greater number has no lesser one."""
    if scale == "linear":
        return values
    if scale == "log":
        return np.copysign(np.log1p(np.abs(values)), values)
    quantiles = np.asarray(scale["rank"]["quantiles"])
    return np.interp(values, quantiles, np.linspace(0, 1, len(quantiles)))


def auroc(values: Numbers, labels: Numbers) -> float:
    """Returns the probability that a positive has a greater value than a negative.

    A tie counts half. NaN if there are only positives or only negatives.
    """
    positive = labels >= 0.5
    count = int(np.count_nonzero(positive))
    if count in (0, len(labels)):
        return float("nan")
    _, place, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(sizes) - (sizes - 1) / 2
    above = float(np.sum(ranks[place[positive]])) - count * (count + 1) / 2
    return above / (count * (len(labels) - count))


def average_precision(values: Numbers, labels: Numbers) -> float:
    """Returns the mean precision over the positives; equal values share one threshold."""
    positive = labels >= 0.5
    if not positive.any():
        return float("nan")
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(positive[order])
    # A threshold lies between two different values.
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    precision = hits[ends] / (ends + 1)
    recall = hits[ends] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0) * precision))


def macro_f1(values: Numbers, labels: Numbers) -> float:
    """Returns the mean F1 over all categories among the labels and the predictions."""
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
    count: int,
    rows: npt.NDArray[np.uint32] | None,
) -> dict[str, Numbers]:
    """Returns the predictions of the baselines for `count` seeds, from the train labels alone.

    The first baseline predicts the mean, or the most frequent category, of all train labels; of
    numbers and times the next one predicts the median, which has the least absolute error. The
    last, if `rows` are given, predicts that of the seed's own row, where it has train labels.
    """
    name, typical = ("majority", _majorities) if target_type == CATEGORICAL else ("mean", _means)
    (overall,) = typical(np.zeros(len(train_labels), np.int64), train_labels)
    predictions = {name: np.full(count, overall)}
    if target_type in (NUMERICAL, TIMESTAMP):
        predictions["median"] = np.full(count, np.median(train_labels))
    if rows is not None:
        known, groups = np.unique(train_rows, return_inverse=True)
        own = typical(groups, train_labels)
        at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
        predictions[f"{name} of the entity"] = np.where(known[at] == rows, own[at], overall)
    return predictions


def _means(groups: npt.NDArray[np.int64], labels: Numbers) -> Numbers:
    return np.bincount(groups, labels) / np.bincount(groups)


def _majorities(groups: npt.NDArray[np.int64], labels: Numbers) -> Numbers:
    """Returns the most frequent label of each group; of equally frequent ones, the least."""
    pairs, counts = np.unique(np.stack([groups, labels]), axis=1, return_counts=True)
    order = np.lexsort((pairs[1], -counts, pairs[0]))
    _, first = np.unique(pairs[0][order], return_index=True)
    return pairs[1][order][first]
