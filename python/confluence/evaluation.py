"""Evaluation: one pass over a split, and its metrics."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

import headwater
from confluence import config, links, members, metrics
from confluence.batch import (
    BOOLEAN,
    CATEGORICAL,
    NUMERICAL,
    TIMESTAMP,
    Batch,
    HostBatch,
    target_stats,
)
from confluence.feed import DeviceTransfer, Samplers
from confluence.masked import is_pool
from confluence.microbatches import Microbatches
from confluence.step import Program


class Task(NamedTuple):
    """A task of a run."""

    name: str
    store: int
    kind: int
    stats: Mapping[str, Any]
    # Whether seeds need no observation time; else no seed sees rows after its time.
    sees_everything: bool
    # If the task asks which rows will be linked: its seeds.
    pairs: links.Pairs | None = None

    @property
    def leading(self) -> str:
        """The name of the leading metric."""
        return metrics.LEADING[self.kind] if self.pairs is None else links.LEADING

    def score(
        self, rows: npt.NDArray[np.uint32], values: metrics.Numbers, labels: metrics.Numbers
    ) -> dict[str, float]:
        """Returns the metrics of the seeds in these rows; there must be at least one."""
        if self.pairs is None:
            return metrics.score(self.kind, values, labels)
        return links.score(self.pairs, rows, values, labels)

    def interval(
        self, rows: npt.NDArray[np.uint32], values: metrics.Numbers, labels: metrics.Numbers
    ) -> tuple[float, float]:
        """Returns the interval that has 95 % of the leading metric over resampled entities."""
        if self.pairs is None:
            return metrics.interval(self.kind, rows, values, labels)
        return links.interval(self.pairs, rows, values, labels)


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


_KINDS = {
    "numerical": NUMERICAL,
    "timestamp": TIMESTAMP,
    "boolean": BOOLEAN,
    "categorical": CATEGORICAL,
}


def find_tasks(names: Sequence[str], stores: Sequence[headwater.Store]) -> list[Task]:
    """Returns the tasks of a sampler, in the order of their numbers; pools, which follow, are none.

    Raises:
        ConfigError: No head predicts the type of a task's target, or training knows none of its
            categories.
    """
    found = []
    metadata = [store.metadata() for store in stores]
    databases = [store_metadata["database"] for store_metadata in metadata]
    for name in names:
        if is_pool(name):
            continue
        database, _, short = name.partition("/")
        store = databases.index(database)
        task = next(t for t in metadata[store]["tasks"] if t["name"] == short)
        stats = target_stats(metadata[store], task)
        if stats["type"] not in _KINDS:
            raise config.ConfigError(
                f"expected a target of the type {', '.join(_KINDS)}, found {stats['type']} for "
                f"task {name!r}; name other tasks in data.tasks"
            )
        if stats.get("known_count") == 0:
            raise config.ConfigError(
                "expected a target with categories known by the end of the training period, found "
                f"none for task {name!r}; name other tasks in data.tasks, or prepare the store "
                "with a later statistics_until"
            )
        link = task["target"].get("derived", {}).get("link")
        pairs = None if link is None else links.read(stores[store], short, link["negatives"])
        kind = _KINDS[stats["type"]]
        found.append(Task(name, store, kind, stats, task["sees_everything"], pairs))
    return found


def predict_batch(
    program: Program, models: Sequence[Any], batch: Batch | Microbatches, kind: int
) -> list[Any]:
    """Returns the `Outputs` of each model, given by its parameters, as arrays of NumPy.

    The first of several outputs is their mean.
    """
    outputs = [jax.device_get(program.predict(params, batch)) for params in models]
    if len(outputs) > 1:
        outputs.insert(0, members.mean(outputs, kind))
    # Only the mean needs them, and a split of them may be large.
    return [of._replace(categories=of.categories[:, :0]) for of in outputs]


def score_split(
    program: Program,
    models: Sequence[Any],
    samplers: Samplers,
    transfer: DeviceTransfer,
    split: headwater.sampler.Split,
    task: Task,
    *,
    batch_limit: int,
    after_batch: Callable[[], None],
    hide: Callable[[HostBatch], Sequence[HostBatch]],
) -> list[Scores]:
    """Scores each seed of a split once over all processes, with each model's parameters.

    The first of several scores is that of the models' mean. After those of the models come the
    scores of their mean on each batch that `hide` makes of a batch.

    `batch_limit` takes the first batches alone; 0 takes all. `after_batch` is called after each.
    """
    batches = []
    for parts in itertools.islice(samplers.evaluate(split, [task.name]), batch_limit or None):
        outputs = predict_batch(program, models, transfer.to_device(parts), task.kind)
        for hidden in zip(*map(hide, parts), strict=True):
            if all(of is part for of, part in zip(hidden, parts, strict=True)):
                outputs.append(outputs[0])
                continue
            on_device = transfer.to_device(hidden)
            outputs.append(predict_batch(program, models, on_device, task.kind)[0])
        batches.append(outputs)
        after_batch()
    if not batches:
        empty = np.zeros(0)
        nothing = Scores(float("nan"), 0, 0, {}, empty.astype(np.uint32), empty, empty)
        return [nothing] * (len(models) + (len(models) > 1))
    return [_score(task, outputs) for outputs in zip(*batches, strict=True)]


def _score(task: Task, outputs: Sequence[Any]) -> Scores:
    whole = type(outputs[0])(*(np.concatenate(parts) for parts in zip(*outputs, strict=True)))
    counted = whole.weight > 0
    known = counted & ~whole.is_null
    values, labels = (
        metrics.in_units(task.kind, part[known].astype(np.float64), task.stats)
        for part in (whole.value, whole.label)
    )
    rows = whole.row[known]
    return Scores(
        loss=float(np.average(whole.loss, weights=whole.weight)),
        seeds=int(np.count_nonzero(counted)),
        nulls=int(np.count_nonzero(counted & whole.is_null)),
        metrics=task.score(rows, values, labels) if known.any() else {},
        rows=rows,
        values=values,
        labels=labels,
    )
