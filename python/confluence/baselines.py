"""Baselines: what one gets without the model, from labels alone or from boosting.

Those from labels are in the results of each run. Boosting (scikit-learn's HistGradientBoosting, in
fixed settings, with as many trees as are best on the validation split) takes longer and is a
command of its own.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import headwater
from confluence import config, metrics, seeds
from confluence.batch import BOOLEAN, CATEGORICAL
from confluence.evaluation import Task
from confluence.seeds import Numbers, Seeds
from headwater.sampler import Split

_YEAR = 365 * seeds.DAY_MICROSECONDS
# Boosting learns from this many train seeds at most, the first ones.
_MOST_SEEDS = 200_000
_ITERATIONS = 300
_RATE = 0.05
# HistGradientBoosting knows no category from this number on.
_MOST_CATEGORIES = 255

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


def of_labels(
    settings: config.Config,
    stores: Sequence[headwater.Store],
    task: Task,
    splits: Sequence[Split],
) -> dict[Split, Scores]:
    """Returns the metrics of the baselines from labels, for each split."""
    known_after = horizon(stores, task)
    needed = _SPLITS if known_after is not None else ("train", *splits)
    found = {
        split: seeds.read(settings, stores, task, split, with_cells=False)
        for split in _SPLITS
        if split in needed
    }
    return _of_labels(task, found, splits, known_after)


def compare(
    settings: config.Config, stores: Sequence[headwater.Store], task: Task
) -> list[Baseline]:
    """Returns all baselines with their metrics on val and test.

    Raises:
        ConfigError: scikit-learn is not installed, or a split has no label.
    """
    splits: tuple[Split, ...] = ("val", "test")
    start = time.process_time()
    found = {split: seeds.read(settings, stores, task, split, with_cells=True) for split in _SPLITS}
    for split, of_split in found.items():
        if not len(of_split.labels):
            raise config.ConfigError(
                f"expected labels in each split of {task.name}, found none in {split}; compare "
                "baselines on a task with seeds in all splits"
            )
    by_split = _of_labels(task, found, splits, horizon(stores, task))
    seconds = time.process_time() - start
    all_baselines = [
        Baseline(name, {split: by_split[split][name] for split in splits}, seconds)
        for name in by_split["val"]
    ]
    cells = seeds.describe(stores, task)
    own = np.flatnonzero(~cells.is_aggregate)
    chosen = [("boosting, the seed's row", own)]
    if cells.is_aggregate.any():
        chosen.append(("boosting, with its aggregates", np.arange(len(cells.names))))
    for name, places in chosen:
        start = time.process_time()
        if len(places):
            values = _boosted(task, found, places, cells.is_category[places])
            scores = {
                split: metrics.score(task.kind, values[split], found[split].labels)
                for split in splits
            }
            all_baselines.append(Baseline(name, scores, time.process_time() - start))
    return all_baselines


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
    """Returns the microseconds from an observation until its label is known; None if unknown."""
    _, _, name = task.name.partition("/")
    tasks = stores[task.store].metadata()["tasks"]
    target = next(found for found in tasks if found["name"] == name)["target"]
    found: int | None = target.get("derived", {}).get("horizon_us")
    return found


def from_history(
    kind: int, history: History, asked: Seeds, otherwise: Numbers
) -> dict[str, Numbers]:
    """Returns the predictions that repeat what was known of the seed's row at its time.

    The first is the last label, the second the mean of the last year's; a row without labels gets
    those of `otherwise`.
    """
    until = history.end_of_known(asked.rows, asked.times)
    begins = np.searchsorted(history.rows, asked.rows)
    last = np.where(until > begins, history.labels[np.maximum(until, 1) - 1], otherwise)
    predictions = {"last label": last}
    if kind != CATEGORICAL:
        begins = history.end_of_known(asked.rows, asked.times - _YEAR)
        sums = np.concatenate([[0.0], np.cumsum(history.labels)])
        count = until - begins
        mean = (sums[until] - sums[begins]) / np.maximum(count, 1)
        predictions["mean of the last year"] = np.where(count > 0, mean, otherwise)
    return predictions


def _of_labels(
    task: Task,
    found: Mapping[Split, Seeds],
    splits: Sequence[Split],
    horizon: int | None,
) -> dict[Split, Scores]:
    train = found["train"]
    history = None if horizon is None else History.of(list(found.values()), horizon)
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
        if history is not None and len(history.rows):
            otherwise = next(iter(predictions.values()))
            predictions |= from_history(task.kind, history, asked, otherwise)
        results[split] = {
            name: metrics.score(task.kind, values, asked.labels)
            for name, values in predictions.items()
        }
    return results


def _boosted(
    task: Task,
    found: Mapping[Split, Seeds],
    places: npt.NDArray[np.int64],
    is_category: npt.NDArray[np.bool_],
) -> dict[Split, Numbers]:
    """Returns the predictions for val and test, by as many trees as are best on val."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    except ImportError as error:
        raise config.ConfigError(
            "boosting needs scikit-learn, which is not installed; pip install headwater[baselines]"
        ) from error
    features, is_category = _features(found, places, is_category)
    train = found["train"]
    labels = train.labels[:_MOST_SEEDS]
    if not len(is_category) or len(np.unique(labels)) < 2:
        (typical,) = metrics.baselines(task.kind, train.rows, train.labels, 1, None).values()
        return {split: np.full(len(of.labels), typical[0]) for split, of in found.items()}
    options: dict[str, Any] = {
        "max_iter": _ITERATIONS, "learning_rate": _RATE, "early_stopping": False,
        "categorical_features": is_category, "random_state": 0,
    }  # fmt: skip
    if task.kind in (BOOLEAN, CATEGORICAL):
        boosting: Any = HistGradientBoostingClassifier(**options)
    else:
        boosting = HistGradientBoostingRegressor(loss="absolute_error", **options)
    boosting.fit(features["train"][:_MOST_SEEDS], labels)

    def staged(split: Split) -> Iterator[Numbers]:
        """Yields the predictions by one tree, by two, and so on."""
        if task.kind == BOOLEAN:
            return (part[:, 1] for part in boosting.staged_predict_proba(features[split]))
        return boosting.staged_predict(features[split])

    leading = metrics.LEADING[task.kind]
    sign = -1 if leading.startswith("mae") else 1
    scores = [
        sign * metrics.score(task.kind, values, found["val"].labels)[leading]
        for values in staged("val")
    ]
    # A split of one class has no AUROC.
    best = int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))
    return {split: next(itertools.islice(staged(split), best, None)) for split in found}


def _features(
    found: Mapping[Split, Seeds],
    places: npt.NDArray[np.int64],
    is_category: npt.NDArray[np.bool_],
) -> tuple[dict[Split, Numbers], npt.NDArray[np.bool_]]:
    """Returns the cells as HistGradientBoosting takes them, and which columns are categories."""
    features = {split: of_split.cells[:, places] for split, of_split in found.items()}
    for column in np.flatnonzero(is_category):
        _number_categories(features, column)
    # It refuses a column without a value.
    has_values = ~np.isnan(features["train"][:_MOST_SEEDS]).all(axis=0)
    kept = {split: of_split[:, has_values] for split, of_split in features.items()}
    return kept, is_category[has_values]


def _number_categories(features: Mapping[Split, Numbers], column: np.intp) -> None:
    """Numbers the most frequent categories of the train split; the others are as if NULL."""
    train = features["train"][:, column]
    names, counts = np.unique(train[~np.isnan(train)], return_counts=True)
    names = np.sort(names[np.argsort(-counts, kind="stable")][:_MOST_CATEGORIES])
    for of_split in features.values():
        values = of_split[:, column]
        at = np.searchsorted(names, values)
        is_known = names[np.minimum(at, len(names) - 1)] == values if len(names) else False
        of_split[:, column] = np.where(is_known, at, np.nan)
