"""Baselines: what one gets without the model, from labels alone or from boosting."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import headwater
from confluence import boosting, config, links, metrics, seeds
from confluence.batch import CATEGORICAL
from confluence.evaluation import Task
from confluence.seeds import Numbers, Seeds
from headwater.sampler import Split, micros

_YEAR = 365 * seeds.DAY_MICROSECONDS
NOT_INSTALLED = "not installed"

_SPLITS: tuple[Split, ...] = ("train", "val", "test")

# The metrics of each baseline on a split, by its name.
Scores = dict[str, dict[str, float]]


class Baseline(NamedTuple):
    """A baseline with its metrics, for a table."""

    name: str
    # For each split its metrics.
    metrics: Mapping[Split, Mapping[str, float]]
    seconds: float


class History(NamedTuple):
    """The labels of a task in the order of row and time, with the time at which each was known."""

    rows: npt.NDArray[np.uint32]
    known: npt.NDArray[np.int64]
    labels: Numbers

    @classmethod
    def of(cls, all_seeds: Sequence[Seeds], horizon: int) -> History:
        """Returns the labels of all splits, each known `horizon` after its observation time."""
        rows, times, labels = (
            np.concatenate([getattr(part, name) for part in all_seeds])
            for name in ("rows", "times", "labels")
        )
        known = times + horizon
        order = np.lexsort((known, rows))
        return cls(rows[order], known[order], labels[order])

    def end_of_known(
        self, rows: npt.NDArray[np.uint32], times: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Returns the place after the last label that was known of each row at its time."""
        all_rows = np.concatenate([self.rows, rows])
        all_times = np.concatenate([self.known, times])
        is_asked = np.arange(len(all_rows)) >= len(self.rows)
        order = np.lexsort((is_asked, all_times, all_rows))
        counts = np.empty(len(all_rows), np.int64)
        counts[order] = np.cumsum(~is_asked[order])
        return counts[len(self.rows) :]


class Compared(NamedTuple):
    """All baselines of a task on some splits."""

    metrics: dict[Split, Scores]
    # The CPU seconds of each boosting.
    seconds: dict[str, float]
    # "done", or why there is no boosting, in a word or two.
    boosting: str


def of_task(
    settings: config.Config,
    stores: Sequence[headwater.Store],
    task: Task,
    splits: Sequence[Split],
    *,
    with_boosting: bool,
) -> Compared:
    """Returns the baselines of a task; reads its seeds once.

    Boosting is left out where scikit-learn is not installed, or a split has no label.
    """
    if task.pairs is not None:
        return Compared(_of_links(settings, stores, task, splits), {}, "off")
    known_after = horizon(stores, task)
    reason = "off" if not with_boosting else "" if boosting.is_installed() else NOT_INSTALLED
    needed = _SPLITS if known_after is not None or not reason else ("train", *splits)
    found = {
        split: seeds.read(settings, stores, task, split, with_cells=not reason)
        for split in _SPLITS
        if split in needed
    }
    history = None if known_after is None else History.of(list(found.values()), known_after)
    of_labels = _of_labels(task, found, splits, history)
    empty = [split for split, of_split in found.items() if not len(of_split.labels)]
    if not reason and empty:
        reason = f"no labels in {empty[0]}"
    if reason:
        return Compared(of_labels, {}, reason)
    labels = None if history is None else _earlier_labels(task.kind, history, found)
    boosted = boosting.compare(task, found, seeds.describe(stores, task), labels)
    for name, of_name in boosted.items():
        for split, scores in of_name.metrics.items():
            if split in splits:
                of_labels[split][name] = scores
    return Compared(of_labels, {name: of.seconds for name, of in boosted.items()}, "done")


def compare(
    settings: config.Config, stores: Sequence[headwater.Store], task: Task
) -> list[Baseline]:
    """Returns all baselines with their metrics on val and test.

    Raises:
        ConfigError: scikit-learn is not installed, or a split has no label.
    """
    splits: tuple[Split, ...] = ("val", "test")
    start = time.process_time()
    found = of_task(settings, stores, task, splits, with_boosting=True)
    if found.boosting == NOT_INSTALLED:
        raise config.ConfigError(
            "boosting needs scikit-learn, which is not installed; pip install headwater[baselines]"
        )
    empty = next((split for split in splits if not found.metrics[split]), None)
    # Pairs are not boosted.
    missing = found.boosting if task.pairs is None else f"no labels in {empty}" if empty else "done"
    if missing != "done":
        raise config.ConfigError(
            f"expected labels in each split of {task.name}, found {missing}; compare "
            "baselines on a task with seeds in all splits"
        )
    others = time.process_time() - start - sum(found.seconds.values())
    return [
        Baseline(
            name,
            {split: found.metrics[split][name] for split in splits},
            found.seconds.get(name, others),
        )
        for name in found.metrics["val"]
    ]


def table(all_baselines: Sequence[Baseline]) -> str:
    """Returns the baselines as lines of text."""
    names = list(all_baselines[0].metrics["test"])
    header = ("baseline", *(f"{split} {name}" for split in ("val", "test") for name in names))
    rows = [(*header, "CPU seconds")]
    for baseline in all_baselines:
        found = [
            f"{of_split[name]:.4f}" for of_split in baseline.metrics.values() for name in names
        ]
        rows.append((baseline.name, *found, f"{baseline.seconds:.1f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def horizon(stores: Sequence[headwater.Store], task: Task) -> int | None:
    """Returns the microseconds from an observation until its label is known; None if unknown.

    To a strict task it is known a microsecond later: not at the very time of another observation.
    """
    _, _, name = task.name.partition("/")
    tasks = stores[task.store].metadata()["tasks"]
    of_store = next(found for found in tasks if found["name"] == name)
    found: int | None = of_store["target"].get("derived", {}).get("horizon_us")
    return None if found is None else found + bool(of_store.get("strict"))


def from_history(
    kind: int, history: History, asked: Seeds, otherwise: Numbers
) -> dict[str, Numbers]:
    """Returns the predictions that repeat what was known of the seed's row at its time.

    The first is the last label, the second the mean of the last year's; a row without labels gets
    those of `otherwise`.
    """
    known = known_labels(kind, history, asked)
    return {
        name: np.where(np.isnan(known[name]), otherwise, known[name])
        for name in ("last label", "mean of the last year")
        if name in known
    }


def known_labels(kind: int, history: History, asked: Seeds) -> dict[str, Numbers]:
    """Returns what was known of the labels of the seed's row at its time; NaN for nothing.

    The last label, the days since it was known, and the means of the last year and of all.
    Categories have no mean.
    """
    until = history.end_of_known(asked.rows, asked.times)
    first = np.searchsorted(history.rows, asked.rows)
    sums = np.concatenate([[0.0], np.cumsum(history.labels)])

    def mean_since(begins: npt.NDArray[np.int64]) -> Numbers:
        count = until - begins
        mean = (sums[until] - sums[begins]) / np.maximum(count, 1)
        return np.where(count > 0, mean, np.nan)

    last, has_label = np.maximum(until, 1) - 1, until > first
    age = (asked.times - history.known[last]) / seeds.DAY_MICROSECONDS
    known = {
        "last label": np.where(has_label, history.labels[last], np.nan),
        "days since the last label": np.where(has_label, age, np.nan),
    }
    if kind != CATEGORICAL:
        year_ago = history.end_of_known(asked.rows, asked.times - _YEAR)
        known["mean of the last year"] = mean_since(year_ago)
        known["mean of all earlier labels"] = mean_since(first)
    return known


def _of_links(
    settings: config.Config,
    stores: Sequence[headwater.Store],
    task: Task,
    splits: Sequence[Split],
) -> dict[Split, Scores]:
    """Returns the baselines of a task whose seeds are pairs, which need no train labels."""
    until = settings.data.visible_until
    results: dict[Split, Scores] = {}
    for split in splits:
        asked = seeds.read(settings, stores, task, split, with_cells=False)
        values = links.baselines(
            stores[task.store], task.name.partition("/")[2], asked.rows,
            micros(until) if until else None,
        )  # fmt: skip
        results[split] = {
            name: task.score(asked.rows, of_name, asked.labels)
            for name, of_name in values.items()
            if len(asked.labels)
        }
    return results


def _earlier_labels(kind: int, history: History, found: Mapping[Split, Seeds]) -> boosting.Features:
    known = {split: known_labels(kind, history, asked) for split, asked in found.items()}
    cells = {split: np.stack(list(of.values()), axis=1) for split, of in known.items()}
    names = list(known["train"])
    return boosting.Features(
        cells, np.array([kind == CATEGORICAL and name == "last label" for name in names])
    )


def _of_labels(
    task: Task, found: Mapping[Split, Seeds], splits: Sequence[Split], history: History | None
) -> dict[Split, Scores]:
    train = found["train"]
    results: dict[Split, Scores] = {}
    for split in splits:
        asked, results[split] = found[split], {}
        if not len(asked.labels) or not len(train.labels):
            continue
        # On the train split, a row's own train labels are the answer.
        rows = None if split == "train" else asked.rows
        predictions = metrics.baselines(
            task.kind, train.rows, train.labels, len(asked.labels), rows
        )
        if history is not None:
            otherwise = next(iter(predictions.values()))
            predictions |= from_history(task.kind, history, asked, otherwise)
        results[split] = {
            name: metrics.score(task.kind, values, asked.labels)
            for name, values in predictions.items()
        }
    return results
