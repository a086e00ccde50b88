"""Evaluation: one pass over a split, its metrics, and those of the baselines."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

import headwater
from confluence import config, metrics
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP, target_stats
from confluence.feed import DeviceTransfer, open_sampler
from confluence.parallel import Processes
from confluence.step import Program


class Task(NamedTuple):
    """A task of a run."""

    name: str
    store: int
    kind: int
    stats: Mapping[str, Any]
    # Whether seeds need no observation time; else no seed sees rows after its time.
    sees_everything: bool


class Scores(NamedTuple):
    """A task's metrics on a split, with the predictions and labels."""

    loss: float
    # The number of scored seeds. Those whose label is NULL count for the loss alone.
    seeds: int
    nulls: int
    metrics: dict[str, float]
    rows: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]
    labels: npt.NDArray[np.float64]

    def record(self) -> dict[str, Any]:
        """Returns the metrics, for a line of JSON."""
        return {"loss": self.loss, "seeds": self.seeds, "nulls": self.nulls, **self.metrics}


class TrainLabels(NamedTuple):
    """The labels of all train seeds; a row may have several."""

    rows: npt.NDArray[np.uint32]
    labels: npt.NDArray[np.float64]


_KINDS = {
    "numerical": NUMERICAL,
    "timestamp": TIMESTAMP,
    "boolean": BOOLEAN,
    "categorical": CATEGORICAL,
}


def find_tasks(names: Sequence[str], stores: Sequence[headwater.Store]) -> list[Task]:
    """Returns the tasks of a sampler, in the order of their numbers.

    Raises:
        ConfigError: No head predicts the type of a task's target.
    """
    found = []
    metadata = [store.metadata() for store in stores]
    databases = [store_metadata["database"] for store_metadata in metadata]
    for name in names:
        database, _, short = name.partition("/")
        store = databases.index(database)
        task = next(t for t in metadata[store]["tasks"] if t["name"] == short)
        stats = target_stats(metadata[store], task)
        if stats["type"] not in _KINDS:
            raise config.ConfigError(
                f"expected a target of the type {', '.join(_KINDS)}, found {stats['type']} for "
                f"task {name!r}; name other tasks in data.tasks"
            )
        found.append(Task(name, store, _KINDS[stats["type"]], stats, task["sees_everything"]))
    return found


def score_split(
    program: Program,
    params: Any,
    sampler: headwater.Sampler,
    transfer: DeviceTransfer,
    split: headwater.sampler.Split,
    task: Task,
    *,
    batch_limit: int,
    after_batch: Callable[[], None],
) -> Scores:
    """Scores each seed of a split once over all processes.

    `batch_limit` takes the first batches alone; 0 takes all. `after_batch` is called after each.
    """
    outputs = []
    for batch in itertools.islice(sampler.evaluate(split, [task.name]), batch_limit or None):
        outputs.append(jax.device_get(program.predict(params, transfer.to_device(batch))))
        after_batch()
    if not outputs:
        empty = np.zeros(0)
        return Scores(float("nan"), 0, 0, {}, empty.astype(np.uint32), empty, empty)
    whole = type(outputs[0])(*(np.concatenate(parts) for parts in zip(*outputs, strict=True)))
    counted = whole.weight > 0
    known = counted & ~whole.is_null
    values, labels = (
        metrics.in_units(task.kind, part[known].astype(np.float64), task.stats)
        for part in (whole.value, whole.label)
    )
    return Scores(
        loss=float(np.average(whole.loss, weights=whole.weight)),
        seeds=int(np.count_nonzero(counted)),
        nulls=int(np.count_nonzero(counted & whole.is_null)),
        metrics=metrics.score(task.kind, values, labels) if known.any() else {},
        rows=whole.row[known],
        values=values,
        labels=labels,
    )


def baseline_metrics(
    train: TrainLabels, split: headwater.sampler.Split, task: Task, scores: Scores
) -> dict[str, dict[str, float]]:
    """Returns the metrics of the baselines, which know the train labels alone, on those seeds."""
    if not len(scores.labels) or not len(train.labels):
        return {}
    # On the train split, a row's own train labels are the answer.
    rows = None if split == "train" else scores.rows
    count = len(scores.labels)
    predictions = metrics.baselines(task.kind, train.rows, train.labels, count, rows)
    return {
        name: metrics.score(task.kind, values, scores.labels)
        for name, values in predictions.items()
    }


def train_labels(
    settings: config.Config, stores: Sequence[headwater.Store], task: Task
) -> TrainLabels:
    """Returns the labels of all train seeds, read from contexts of the seed's row alone."""
    tables = stores[task.store].metadata()["tables"]
    widest = 1 + max(len(table["columns"]) for table in tables)
    rows, labels = [np.zeros(0, np.uint32)], [np.zeros(0)]
    with open_sampler(
        settings.data, dataclasses.replace(settings.run, prefetch=0), Processes(),
        tasks=[task.name], task_weights=None,
        default_batch_size=1024, default_sequence_length=max(widest, 2), max_rows=1,
        texts="global", text_buckets=None,
    ) as sampler:  # fmt: skip
        for batch in sampler.evaluate("train"):
            at = (np.arange(len(batch["target_pos"])), batch["target_pos"])
            known = (batch["seq_weight"] > 0) & (batch["is_null"][at] == 0)
            rows.append(batch["seed_row"][known])
            labels.append(_labels(batch, task, at)[known])
    return TrainLabels(np.concatenate(rows), np.concatenate(labels))


def _labels(batch: Any, task: Task, at: Any) -> npt.NDArray[np.float64]:
    if task.kind == TIMESTAMP:
        return batch["timestamp_us"][at].astype(np.float64)
    if task.kind == CATEGORICAL:
        return (batch["categorical_embed_ids"][at] - batch["cat_emb_start"][0]).astype(np.float64)
    name = "bool_values" if task.kind == BOOLEAN else "numeric_values"
    return metrics.in_units(task.kind, batch[name][at].astype(np.float64), task.stats)
