"""Prediction intervals of numbers and times, from the errors on the validation split.

Split conformal: the seeds of the validation split stand in bins by their prediction, as in
`calibration`. Of the errors of a bin, one in twenty lies below the interval's lower end and one in
twenty above its upper end. An error is a difference on the scale of the target's column, so that
the interval of a target on a logarithmic scale grows with the prediction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from confluence import metrics
from confluence.batch import NUMERICAL, TIMESTAMP
from confluence.evaluation import Scores, Task
from confluence.metrics import Numbers
from headwater._headwater import read_file

# The types of target that have intervals: the others are predicted by a probability.
KINDS = (NUMERICAL, TIMESTAMP)
# The share of the labels that an interval holds: one in `_BEYOND` lies beyond each of its ends.
LEVEL = 0.9
_BEYOND = 20
# With fewer errors no end leaves out one in twenty of the errors and a further one.
_LEAST_LABELS = _BEYOND - 1
_MOST_BINS = 10
# Ends from fewer errors differ much from bin to bin by chance.
_SEEDS_OF_BIN = 50
# A label at an end is inside, however the arithmetic of the scale rounds.
_ROUNDING = 1e-9


class Intervals(NamedTuple):
    """The intervals of a task's predictions."""

    task: Task
    # Without bins there are no intervals.
    bins: Sequence[Mapping[str, float]] = ()
    # Why there are none; empty for a target that has none by its type.
    missing: str = ""

    def ends(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the lower and the upper ends, in the units of the data; NaN if there are none."""
        if not self.bins:
            return np.full(len(values), np.nan), np.full(len(values), np.nan)
        at = np.searchsorted([of["to"] for of in self.bins[:-1]], values)
        low, high = (np.array([of[end] for of in self.bins])[at] for end in ("low", "high"))
        places = metrics.to_scale(values, self._scale)
        low -= _ROUNDING * (np.abs(places) + np.abs(low))
        high += _ROUNDING * (np.abs(places) + np.abs(high))
        lower, upper = (metrics.from_scale(places + end, self._scale) for end in (low, high))
        # The prediction itself is always inside, however biased the model is.
        return np.minimum(lower, values), np.maximum(upper, values)

    def coverage(self, values: Numbers, labels: Numbers) -> dict[str, Any]:
        """Returns the share of the labels that lie in their intervals, for the results."""
        if not self.bins:
            return {}
        low, high = self.ends(values)
        share = float(np.mean((low <= labels) & (labels <= high)))
        return {"coverage": {"level": LEVEL, "share": share}}

    def record(self) -> dict[str, Any]:
        """Returns the intervals for the results; nothing for a target that has none by its type."""
        if self.task.kind not in KINDS:
            return {}
        return {"prediction_intervals": {"bins": list(self.bins), "missing": self.missing}}

    @property
    def warning(self) -> str | None:
        """A line that says why there are no intervals; None if nobody expects some."""
        return f"{self.task.name}: no intervals: {self.missing}" if self.missing else None

    @property
    def _scale(self) -> Any:
        return self.task.stats.get("scale", "linear")


def of_scores(task: Task, val: Scores) -> Intervals:
    """Returns the intervals that the predictions and labels of the validation split give."""
    if task.kind not in KINDS:
        return Intervals(task)
    if len(val.labels) < _LEAST_LABELS:
        return Intervals(
            task,
            missing=f"expected at least {_LEAST_LABELS} labels in the validation split, found "
            f"{len(val.labels)}",
        )
    scale = task.stats.get("scale", "linear")
    errors = metrics.to_scale(val.labels, scale) - metrics.to_scale(val.values, scale)
    ends = _last_predictions(val.values)
    numbers = np.searchsorted(ends, val.values)
    bins = [_bin(val.values[numbers == at], errors[numbers == at]) for at in range(len(ends) + 1)]
    return Intervals(task, bins)


def _last_predictions(values: Numbers) -> list[float]:
    """Returns the greatest prediction of each bin but the last.

    At most ten bins have about as many seeds each. Seeds with the same prediction share a bin.
    """
    ordered, found = np.sort(values), []
    size = max(_SEEDS_OF_BIN, -(-len(values) // _MOST_BINS))
    end = 0
    while end + size <= len(ordered):
        end = int(np.searchsorted(ordered, ordered[end + size - 1], side="right"))
        if len(ordered) - end < size:
            # Too few for another bin: the last one has them, too.
            break
        found.append(float(ordered[end - 1]))
    return found


def _bin(values: Numbers, errors: Numbers) -> dict[str, float]:
    """Returns a bin, with what its ends add to a prediction on the scale of the column.

    Among n errors and that of a new seed each order is equally likely: so with probability
    k / (n + 1) the new one is less than the k-th of the n.
    """
    rank = (len(errors) + 1) // _BEYOND
    ordered = np.sort(errors)
    return {
        "from": float(values.min()),
        "to": float(values.max()),
        "seeds": len(values),
        "low": float(ordered[rank - 1]),
        "high": float(ordered[-rank]),
    }


def of_run(run: Path, steps: Sequence[int], task: Task) -> Intervals:
    """Returns the intervals in the results of a run, if they are of the checkpoints `steps`."""
    if task.kind not in KINDS:
        return Intervals(task)
    path = run / "results.json"
    if not path.exists():
        return Intervals(task, missing="the training has not ended; they come with its results")
    content = json.loads(read_file(path))
    scored = content["members"] or [content["step"]]
    if scored != list(steps):
        of_steps = [", ".join(map(str, of)) for of in (scored, steps)]
        return Intervals(
            task, missing=f"the results are of step {of_steps[0]}, the checkpoint of {of_steps[1]}"
        )
    of_val = content["tasks"].get(task.name, {}).get("val", {})
    if "prediction_intervals" not in of_val:
        return Intervals(
            task,
            missing="the results are of an earlier version; add them with confluence evaluate "
            f"{run} --split val",
        )
    return Intervals(task, **of_val["prediction_intervals"])
