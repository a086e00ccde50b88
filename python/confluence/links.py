"""Tasks that ask which rows will be linked: their pairs, metrics and baselines.

The seeds of such a task are pairs of an anchor row and a candidate at an observation time. Those of
one anchor row and one time are a group: the candidates to which the row is linked afterwards, and
some that were drawn. A model ranks the candidates of each group.

Candidates with the same value have the same chance of each of their places, and a metric is its
mean over these orders. So no order of rows helps, and one value for all is what chance gives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import headwater
from confluence import metrics
from confluence.metrics import Numbers

# The leading metric: the mean average precision.
LEADING = "map"
# Whether a candidate that is linked is among so many of the highest.
_HITS = (1, 5, 10)


class Pairs(NamedTuple):
    """The pairs of a task, by the row of the task's table."""

    anchors: npt.NDArray[np.uint32]
    # The number of each pair's group.
    groups: npt.NDArray[np.int64]
    # How many candidates were drawn for each group beside those that are linked.
    drawn: int


class Ranked(NamedTuple):
    """For each group with a linked candidate, the metrics."""

    anchors: npt.NDArray[np.uint32]
    average_precision: Numbers
    # By the number of the highest.
    hits: dict[int, Numbers]


def read(store: headwater.Store, name: str, drawn: int) -> Pairs:
    """Returns the pairs of a task of a store."""
    found = store.pairs(name)
    anchors, observed = found["anchor"], found["observed"]
    order = np.lexsort((observed, anchors))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(anchors[order]) != 0) | (np.diff(observed[order]) != 0)
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(is_first) - 1
    return Pairs(anchors, groups, drawn)


def score(
    pairs: Pairs, rows: npt.NDArray[np.uint32], values: Numbers, labels: Numbers
) -> dict[str, float]:
    """Returns the metrics of the pairs in these rows; NaN where no candidate is linked.

    Groups without a linked candidate, of which a limited evaluation has seen only a part, do not
    count.
    """
    ranked = rank(pairs, rows, values, labels)
    return {
        LEADING: _mean(ranked.average_precision),
        **{f"hit@{top}": _mean(hits) for top, hits in ranked.hits.items()},
        "auroc": metrics.auroc(values, labels),
    }


def interval(
    pairs: Pairs, rows: npt.NDArray[np.uint32], values: Numbers, labels: Numbers
) -> tuple[float, float]:
    """Returns the interval that has 95 % of the leading metric over resampled anchor rows.

    Each comes with all its groups.
    """
    ranked = rank(pairs, rows, values, labels)
    return metrics.resampled(ranked.anchors, lambda at: _mean(ranked.average_precision[at]))


def rank(pairs: Pairs, rows: npt.NDArray[np.uint32], values: Numbers, labels: Numbers) -> Ranked:
    """Ranks the candidates of each group by their values, the highest first."""
    groups = pairs.groups[rows]
    order = np.lexsort((-values, groups))
    groups, values, is_linked = groups[order], values[order], labels[order] >= 0.5
    place = np.arange(len(order))
    # Candidates of one group with one value share their places.
    firsts, shared = _starts(groups), _starts(groups, values)
    of_group, of_value = _runs(firsts, len(order)), _runs(shared, len(order))
    before, turn = place - firsts[of_group], place - shared[of_value]
    size = np.bincount(of_value)[of_value]
    linked = np.bincount(of_value, is_linked)[of_value]
    earlier = np.concatenate([[0], np.cumsum(is_linked)])
    linked_before = earlier[shared][of_value] - earlier[firsts][of_group]
    # The mean precision at a place with a linked candidate, times the chance that it has one.
    others = turn * (linked - 1) / np.maximum(size - 1, 1)
    precision = linked / size * (linked_before + 1 + others) / (before + 1)
    # The chance that a place has none, if no earlier place of the same value has one.
    miss = np.maximum(size - linked - turn, 0) / (size - turn)
    totals = np.bincount(of_group, is_linked)
    counted = totals > 0
    average = np.bincount(of_group, precision)[counted] / totals[counted]
    none = {
        top: np.multiply.reduceat(np.where(before < top, miss, 1.0), firsts)[counted]
        for top in _HITS
    }
    hits = {top: 1 - of_top for top, of_top in none.items()}
    return Ranked(pairs.anchors[rows][order][firsts][counted], average, hits)


def baselines(
    store: headwater.Store, name: str, rows: npt.NDArray[np.uint32], until: int | None
) -> dict[str, Numbers]:
    """Returns the values of the baselines for the pairs in these rows.

    They know the links until the observation, and until a time in microseconds if one is given:
    how many a candidate has, and when the anchor row was last linked to it; of those with which it
    never was, the one with the most links comes first.
    """
    found = store.pairs(name, until)
    popularity, last = found["popularity"][rows], found["last"][rows]
    both = np.stack([last, popularity.astype(np.int64)], axis=1)
    _, by_last = np.unique(both, axis=0, return_inverse=True)
    return {
        "random": np.zeros(len(rows)),
        "popularity": popularity.astype(np.float64),
        "last linked": by_last.reshape(-1).astype(np.float64),
    }


def _mean(values: Numbers) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _starts(*keys: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Returns the places at which one of the keys differs from the one before."""
    is_start = np.ones(len(keys[0]), bool)
    is_start[1:] = np.any([of[1:] != of[:-1] for of in keys], axis=0)
    return np.flatnonzero(is_start)


def _runs(starts: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Returns for each of `count` places the number of the run that it is in."""
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
