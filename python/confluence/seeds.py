"""The seeds of a task as arrays: rows, times, labels, and the cells of the seed's own row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import headwater
from confluence import config, metrics
from confluence.batch import BOOLEAN, CATEGORICAL, IDENTIFIER, NUMERICAL, TEXT, TIMESTAMP
from confluence.evaluation import Task
from confluence.feed import open_sampler
from confluence.parallel import Processes
from headwater.sampler import Split

Numbers = npt.NDArray[np.float64]

DAY_MICROSECONDS = 86_400_000_000
# The observation time of a seed without one.
NO_TIME = np.iinfo(np.int64).max


class Seeds(NamedTuple):
    """The seeds of a split with a known label; a row may have several."""

    rows: npt.NDArray[np.uint32]
    # The observation times in microseconds.
    times: npt.NDArray[np.int64]
    # In the units of the data; a category is its number within the column.
    labels: Numbers
    # If asked for, the cells of the seed's row, and its aggregates; NaN for NULL. Times are days
    # before the observation. Identifiers and texts are left out.
    cells: Numbers


class Columns(NamedTuple):
    """What the columns of `Seeds.cells` are."""

    names: tuple[str, ...]
    is_category: npt.NDArray[np.bool_]
    is_aggregate: npt.NDArray[np.bool_]


def read(
    settings: config.Config,
    stores: Sequence[headwater.Store],
    task: Task,
    split: Split,
    *,
    with_cells: bool,
    as_stored: bool = False,
) -> Seeds:
    """Returns the seeds of a split, read from contexts of the seed's row alone.

    Labels `as_stored` have the digits that the store determines, no more.
    """
    metadata = stores[task.store].metadata()
    columns = dict(_columns(metadata, task)) if with_cells else {}
    places = np.full(metadata["embedding"]["column_count"], -1)
    places[list(columns)] = np.arange(len(columns))
    longest = 1 + max(len(table["columns"]) for table in metadata["tables"])
    longest += len(metadata["aggregates"])
    empty = Seeds(
        np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0), np.zeros((0, len(columns)))
    )
    parts = [empty]
    with open_sampler(
        config.without_masks(settings.data), dataclasses.replace(settings.run, prefetch=0),
        Processes(), tasks=[task.name], task_weights=None,
        aggregates="near" if with_cells else "none",
        default_batch_size=1024, default_sequence_length=longest, sequence_buckets=None, max_rows=1,
        texts="global", text_buckets=None,
    ) as sampler:  # fmt: skip
        for batch in sampler.evaluate(split):
            at = (np.arange(len(batch["target_pos"])), batch["target_pos"])
            known = (batch["seq_weight"] > 0) & (batch["is_null"][at] == 0)
            cells = _cells(batch, places, len(columns)) if with_cells else np.zeros((len(known), 0))
            labels = _labels(batch, task, at, as_stored=as_stored)
            parts.append(
                Seeds(*(x[known] for x in (batch["seed_row"], batch["obs_time"], labels, cells)))
            )
    return Seeds(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def describe(stores: Sequence[headwater.Store], task: Task) -> Columns:
    """Returns what the columns of `Seeds.cells` are."""
    metadata = stores[task.store].metadata()
    aggregates = {aggregate["index"] for aggregate in metadata["aggregates"]}
    columns = dict(_columns(metadata, task))
    return Columns(
        tuple(column["name"] for column in columns.values()),
        np.array(["cat_emb_count" in column.get("stats", {}) for column in columns.values()], bool),
        np.array([index in aggregates for index in columns], bool),
    )


def _columns(metadata: Mapping[str, Any], task: Task) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the columns and aggregates of the task's anchor, but for the target."""
    _, _, name = task.name.partition("/")
    of_task = next(found for found in metadata["tasks"] if found["name"] == name)
    anchor = of_task["anchor"]
    target = of_task["target"].get("cell", {}).get("column")
    for place, column in enumerate(metadata["tables"][anchor]["columns"]):
        if place != target and column["stats"]["type"] not in ("identifier", "text"):
            yield column["index"], column
    for aggregate in metadata["aggregates"]:
        if metadata["relations"][aggregate["relation"]]["parent"] == anchor:
            yield aggregate["index"], aggregate


def _cells(batch: Any, places: npt.NDArray[np.int64], count: int) -> Numbers:
    types, observed = batch["semantic_types"], batch["obs_time"][:, None]
    observed = np.where(observed == NO_TIME, 0, observed)
    values: Numbers = np.full(types.shape, np.nan)
    for kind, of_kind in (
        (NUMERICAL, batch["numeric_values"]),
        (BOOLEAN, batch["bool_values"]),
        (CATEGORICAL, batch["categorical_embed_ids"]),
        (TIMESTAMP, (observed - batch["timestamp_us"]) / DAY_MICROSECONDS),
    ):
        values = np.where(types == kind, of_kind, values)
    values[batch["is_null"] > 0] = np.nan
    is_cell = (batch["is_padding"] == 0) & (types != IDENTIFIER) & (types != TEXT)
    is_cell[np.arange(len(types)), batch["target_pos"]] = False
    found: Numbers = np.full((len(types), count), np.nan)
    seed, cell = np.nonzero(is_cell)
    found[seed, places[batch["column_ids"][seed, cell]]] = values[seed, cell]
    return found


def _labels(batch: Any, task: Task, at: Any, *, as_stored: bool) -> Numbers:
    if task.kind == TIMESTAMP:
        return batch["timestamp_us"][at].astype(np.float64)
    if task.kind == CATEGORICAL:
        return (batch["categorical_embed_ids"][at] - batch["cat_emb_start"][0]).astype(np.float64)
    if as_stored and task.kind == NUMERICAL:
        return metrics.as_stored(batch["numeric_values"][at], task.stats)
    name = "bool_values" if task.kind == BOOLEAN else "numeric_values"
    return metrics.in_units(task.kind, batch[name][at].astype(np.float64), task.stats)
