"""A finite pass over a split, and what came of it."""

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
from confluence.feed import Form, sampler
from confluence.parallel import Processes
from confluence.step import Program


class Task(NamedTuple):
    """A task of a run."""

    name: str
    store: int
    kind: int
    stats: Mapping[str, Any]
    # Else each of its seeds has a time, after which it sees nothing.
    sees_everything: bool


class Scored(NamedTuple):
    """A task's metrics on a split, and the predictions that they are of."""

    loss: float
    # Seeds that were scored; those whose label is NULL have no other metric than the loss.
    seeds: int
    nulls: int
    metrics: dict[str, float]
    rows: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]
    labels: npt.NDArray[np.float64]

    def record(self) -> dict[str, Any]:
        """Returns the numbers, for a line of JSON."""
        return {"loss": self.loss, "seeds": self.seeds, "nulls": self.nulls, **self.metrics}


class TrainLabels(NamedTuple):
    """What is known of a task: the labels of rows, several of some."""

    rows: npt.NDArray[np.uint32]
    labels: npt.NDArray[np.float64]


_KINDS = {
    "numerical": NUMERICAL,
    "timestamp": TIMESTAMP,
    "boolean": BOOLEAN,
    "categorical": CATEGORICAL,
}


def tasks_of(names: Sequence[str], stores: Sequence[headwater.Store]) -> list[Task]:
    """Returns the tasks of a sampler by their numbers.

    Raises:
        ConfigError: A task is of a type that no head predicts.
    """
    found = []
    metadata = [store.metadata() for store in stores]
    databases = [of_store["database"] for of_store in metadata]
    for name in names:
        database, _, short = name.partition("/")
        store = databases.index(database)
        task = next(t for t in metadata[store]["tasks"] if t["name"] == short)
        stats = target_stats(metadata[store], task)
        if stats["type"] not in _KINDS:
            raise config.ConfigError(
                f"task {name!r} has a target of the type {stats['type']}, which cannot be "
                f"predicted; name others in data.tasks"
            )
        found.append(Task(name, store, _KINDS[stats["type"]], stats, task["sees_everything"]))
    return found


def evaluate(
    program: Program,
    params: Any,
    batches: headwater.Sampler,
    form: Form,
    split: headwater.sampler.Split,
    task: Task,
    batch_limit: int,
    between: Callable[[], None],
) -> Scored:
    """Scores the seeds of a split, each once over all processes; or those of the first batches.

    Calls `between` after each batch.
    """
    said = []
    for batch in itertools.islice(batches.evaluate(split, [task.name]), batch_limit or None):
        said.append(jax.device_get(program.say(params, form.put(batch))))
        between()
    if not said:
        empty = np.zeros(0)
        return Scored(float("nan"), 0, 0, {}, empty.astype(np.uint32), empty, empty)
    whole = type(said[0])(*(np.concatenate(parts) for parts in zip(*said, strict=True)))
    counted = whole.weight > 0
    known = counted & ~whole.is_null
    values, labels = (
        metrics.in_units(task.kind, part[known].astype(np.float64), task.stats)
        for part in (whole.value, whole.label)
    )
    return Scored(
        loss=float(np.average(whole.loss, weights=whole.weight)),
        seeds=int(np.count_nonzero(counted)),
        nulls=int(np.count_nonzero(counted & whole.is_null)),
        metrics=metrics.score(task.kind, values, labels) if known.any() else {},
        rows=whole.row[known],
        values=values,
        labels=labels,
    )


def baselines(
    train: TrainLabels, split: headwater.sampler.Split, task: Task, scored: Scored
) -> dict[str, dict[str, float]]:
    """Returns the metrics of those who know the train labels alone, on the seeds of `scored`."""
    if not len(scored.labels) or not len(train.labels):
        return {}
    # Of the train split, a row's own labels are those that are asked for.
    rows = None if split == "train" else scored.rows
    count = len(scored.labels)
    said = metrics.baselines(task.kind, train.rows, train.labels, count, rows)
    return {name: metrics.score(task.kind, values, scored.labels) for name, values in said.items()}


def train_labels(
    settings: config.Config, stores: Sequence[headwater.Store], task: Task
) -> TrainLabels:
    """Returns the labels of all train seeds, of which there may be none.

    They come from contexts of the seed's row alone.
    """
    tables = stores[task.store].metadata()["tables"]
    widest = 1 + max(len(table["columns"]) for table in tables)
    rows, labels = [np.zeros(0, np.uint32)], [np.zeros(0)]
    with sampler(
        settings.data, dataclasses.replace(settings.run, prefetch=0), Processes(),
        tasks=[task.name], task_weights=None,
        default_batch_size=1024, default_sequence_length=max(widest, 2), max_rows=1,
        texts="global", text_buckets=None,
    ) as small:  # fmt: skip
        for batch in small.evaluate("train"):
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
