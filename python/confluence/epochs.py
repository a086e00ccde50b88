"""Whether a model should know the absolute time of timestamps, from the train labels alone.

A model that is scored after its training period meets times that it never learnt from, and is
better off without them; unless the target's level moves steadily, as prices do, which only the
absolute time tells.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import headwater
from confluence import config, evaluation, seeds
from confluence.batch import CATEGORICAL, TIMESTAMP
from confluence.feed import open_sampler
from confluence.parallel import Processes
from confluence.seeds import Numbers, Seeds

# A level moves steadily if all of these hold: the periods, the rank correlation of their order and
# their means, and how far the last third of them lies from the first third, in standard errors and
# in standard deviations of a label. Of many labels even a move that nobody needs is significant.
_LEAST_PERIODS = 4
_LEAST_CORRELATION = 0.8
_LEAST_ERRORS = 4.0
_LEAST_DEVIATIONS = 0.25
# The mean of fewer labels is no level.
_LEAST_LABELS = 10
# The training period ends after this share of the train seeds.
_TRAINED = 0.99
_YEAR = np.timedelta64(365, "D")


class Advice(NamedTuple):
    """What `model.epochs` should be for a task; None if the task does not mind."""

    task: str
    epochs: bool | None
    reason: str


class Level(NamedTuple):
    """The means of a target over the periods of its train labels."""

    unit: str
    means: Numbers
    # Of the order of the periods and their means.
    correlation: float
    # The difference between the last third of the periods and the first.
    errors: float
    deviations: float

    @property
    def moves(self) -> bool:
        """Whether it moves steadily, and far enough to matter; never over too few periods."""
        return (
            abs(self.correlation) >= _LEAST_CORRELATION
            and abs(self.errors) >= _LEAST_ERRORS
            and abs(self.deviations) >= _LEAST_DEVIATIONS
        )

    def __str__(self) -> str:
        if len(self.means) < _LEAST_PERIODS:
            return f"{len(self.means)} {self.unit}s of labels, fewer than {_LEAST_PERIODS}"
        return (
            f"{len(self.means)} {self.unit}s, mean {self.means[0]:.3g} to {self.means[-1]:.3g}, "
            f"rank correlation {self.correlation:.2f}"
        )


def resolve(
    settings: config.Config, stores: Sequence[headwater.Store], *, is_new: bool, is_leader: bool
) -> config.Config:
    """Returns the settings with true or false in place of "auto"; the leader prints why.

    If the value of a new run is the user's own, the leader prints advice to change it, if any. No
    run gets any that starts from another one, which fixes the value, or that has no task.
    """
    own, start = settings.model.epochs, settings.optimizer.start_from
    may_advise = is_new and is_leader and not start and config.has_tasks(settings.data)
    if own != "auto" and not may_advise:
        return settings
    advice = advise(settings, stores)
    wanted = decide(advice)
    if is_leader and own == "auto":
        print(f"confluence: {_state(wanted)}, {_because(advice)}", file=sys.stderr)
    elif is_leader and own != wanted:
        print(
            f"confluence: {_state(own is True)}; advice: set model.epochs = {_toml(wanted)}, "
            f"{_because(advice)}",
            file=sys.stderr,
        )
    chosen = wanted if own == "auto" else own
    return dataclasses.replace(settings, model=dataclasses.replace(settings.model, epochs=chosen))


def decision(advice: Sequence[Advice]) -> str:
    """Returns what is decided, and why, as a sentence."""
    text = f"{_state(decide(advice))}, {_because(advice)}."
    return f"{text[0].upper()}{text[1:]}"


def _state(epochs: bool) -> str:
    """Returns what the setting means: a new user takes `epochs` for passes over the data."""
    verb = "shown" if epochs else "hidden"
    return f"absolute times are {verb} (model.epochs = {_toml(epochs)})"


def _because(advice: Sequence[Advice]) -> str:
    reasons = "; ".join(f"{of.task}: {of.reason}" for of in advice)
    return f"because of {reasons}" if reasons else "because there is no task"


def decide(advice: Sequence[Advice]) -> bool:
    """Returns true if any task needs it, false if it only harms, true if no task minds."""
    wanted = {of.epochs for of in advice}
    return True in wanted or False not in wanted


def advise(settings: config.Config, stores: Sequence[headwater.Store]) -> list[Advice]:
    """Returns the advice for each task; reads its train labels, and the times of its seeds."""
    with open_sampler(
        settings.data, dataclasses.replace(settings.run, prefetch=0), Processes(),
        default_batch_size=1, text_buckets=None,
    ) as sampler:  # fmt: skip
        names = sampler.tasks
    found = []
    for task in evaluation.find_tasks(names, stores):
        train, val, test = (
            seeds.read(settings, stores, task, split, with_cells=False)
            for split in ("train", "val", "test")
        )
        times = {"val": val.times, "test": test.times}
        found.append(Advice(task.name, *_of_task(task.kind, train, times)))
    return found


def _of_task(
    kind: int, train: Seeds, scored: Mapping[str, npt.NDArray[np.int64]]
) -> tuple[bool | None, str]:
    has_time = train.times != seeds.NO_TIME
    if len(train.times) and not has_time.any():
        return None, "its seeds have no observation time"
    times, labels = train.times[has_time], train.labels[has_time]
    if not len(times):
        return None, "it has no train labels"
    # A few late train seeds make no training period longer.
    end = np.quantile(times, _TRAINED, method="lower")
    later = [split for split, of in scored.items() if len(of) and np.mean(of > end) >= 0.5]
    if not later:
        return None, "val and test do not lie after training"
    after = f"{' and '.join(later)} {'lie' if len(later) > 1 else 'lies'} after training, and"
    if kind == TIMESTAMP:
        return True, f"{after} its target is a time"
    if kind == CATEGORICAL:
        return False, f"{after} a category has no level"
    level = measure_level(times, labels)
    verb = "moves" if level.moves else "does not move"
    return level.moves, f"{after} its level {verb} steadily ({level})"


def measure_level(times: npt.NDArray[np.int64], labels: Numbers) -> Level:
    """Returns the level over years, or over quarters if the labels span fewer than 4 years."""
    dates = times.astype("datetime64[us]")
    if dates.max() - dates.min() >= _LEAST_PERIODS * _YEAR:
        unit, periods = "year", dates.astype("datetime64[Y]").astype(np.int64)
    else:
        unit, periods = "quarter", dates.astype("datetime64[M]").astype(np.int64) // 3
    _, places, counts = np.unique(periods, return_inverse=True, return_counts=True)
    means = np.bincount(places, labels) / counts
    kept = np.flatnonzero(counts >= _LEAST_LABELS)
    if len(kept) < _LEAST_PERIODS:
        return Level(unit, means[kept], 0.0, 0.0, 0.0)
    third = len(kept) // 3
    first, last = (labels[np.isin(places, part)] for part in (kept[:third], kept[-third:]))
    move = float(np.mean(last) - np.mean(first))
    error = float(np.sqrt(np.var(first) / len(first) + np.var(last) / len(last)))
    deviation = float(np.std(labels))
    return Level(
        unit, means[kept], _rank_correlation(means[kept]),
        # Without any spread, a move is beyond chance.
        *(move / size if size else np.inf * move if move else 0.0 for size in (error, deviation)),
    )  # fmt: skip


def _rank_correlation(means: Numbers) -> float:
    """Returns Spearman's correlation of values and their order; equal values share a rank."""
    _, places, counts = np.unique(means, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    if len(counts) < 2:
        return 0.0
    return float(np.corrcoef(np.arange(len(ranks)), ranks)[0, 1])


def _toml(value: bool) -> str:
    return "true" if value else "false"
