"""The score of a model at masked cells: its loss by the type of the cell."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import headwater
from confluence import config, times
from confluence.batch import TYPE_NAMES, lacks_text_vectors
from confluence.feed import DeviceTransfer, Samplers, open_sampler
from confluence.parallel import Processes
from confluence.step import Program
from confluence.tables import aligned
from headwater.sampler import Split, micros

_POOL = "pool:"
# A task or pool without a masked cell in so many batches would teach nothing.
_TRIED_BATCHES = 8


class Pool(NamedTuple):
    """A table whose rows are seeds without a target."""

    name: str
    store: int


def is_pool(name: str) -> bool:
    """Returns whether a name of the sampler is that of a pool, not of a task."""
    return name.partition("/")[2].startswith(_POOL)


def find_pools(names: Sequence[str], stores: Sequence[headwater.Store]) -> list[Pool]:
    """Returns the pools of a sampler, which follow its tasks."""
    databases = [store.metadata()["database"] for store in stores]
    return [Pool(name, databases.index(name.partition("/")[0])) for name in names if is_pool(name)]


def check_texts(data: config.Data, stores: Sequence[headwater.Store]) -> None:
    """Checks that the texts that may be masked have vectors, which a model could predict.

    Raises:
        ConfigError: A store has texts without vectors.
    """
    if not data.mask_share or not data.mask_texts:
        return
    for path, store in zip(data.stores, stores, strict=True):
        if lacks_text_vectors(store):
            raise config.ConfigError(
                f"expected vectors of the texts to predict masked ones, found none in {path}; set "
                "data.mask_texts=false, or prepare the store with text vectors"
            )


def check_cells(settings: config.Config) -> None:
    """Checks that the contexts of each task and pool have cells that can be masked.

    Each is drawn alone, in the order of training, until a cell is masked: a stream of all may take
    long to come to one of little weight.

    Raises:
        ConfigError: The first batches of some have none.
    """
    data = settings.data
    if not data.mask_share:
        return
    run = dataclasses.replace(settings.run, prefetch=0)
    with open_sampler(data, run, Processes()) as sampler:
        # The train stream skips those without a seed.
        streams = [name for name, count in sampler.seed_counts("train").items() if count]
    unmasked = []
    for name in streams:
        with open_sampler(data, run, Processes(), **_alone(name, data.pools)) as sampler:
            batches = (sampler.next_train_batch() for _ in range(_TRIED_BATCHES))
            if not any(batch["is_masked"].any() for batch in batches):
                unmasked.append(name)
    if unmasked:
        names = ", ".join(unmasked)
        raise config.ConfigError(
            f"expected cells to mask in the contexts of each task and pool, found none in the "
            f"first {_TRIED_BATCHES * data.batch_size} contexts of {names}: with data.mask_share = "
            f"{data.mask_share} there is nothing to learn from their masked cells; set a greater "
            f"data.mask_share, leave out {names}, or let contexts have rows with cells that may be "
            "masked: no identifiers, keys, references, labels, aggregates, summaries nor times of "
            "rows, and no texts with data.mask_texts = false"
        )


def _alone(name: str, pools: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments of a sampler that serves this task or pool alone."""
    tasks, alone = [name], {}
    if is_pool(name):
        tasks, full_name = [], name.replace(_POOL, "", 1)
        table = full_name.partition("/")[2]
        time = pools[full_name] if full_name in pools else pools[table]
        alone = {full_name: time or None}
    return {"tasks": tasks or None, "pools": alone, "task_weights": None}


def advice(data: config.Data, stores: Sequence[headwater.Store]) -> list[str]:
    """Returns a line for each pool or task whose masked cells are of rows that are later scored.

    A run that starts from these parameters would know of the rows that its scores are of.
    """
    if not data.mask_share:
        return []
    found = []
    for metadata in (store.metadata() for store in stores):
        until, names = metadata.get("statistics_until"), {of["name"] for of in metadata["tables"]}
        if until is None:
            continue
        streams = [
            (f"the pool {pool}", [data.visible_until, time])
            for pool, time in data.pools.items()
            for database, _, table in [pool.rpartition("/")]
            if table in names and database in ("", metadata["database"])
        ]
        # A split by time has its train seeds in the training period, one by hash in all periods.
        streams += [
            (f"the task {task['name']}, which is split by hash,", [data.visible_until])
            for task in _served(data, metadata)
            if not task["target"].get("derived", {}).get("recorded_split")
        ]
        end = times.short_text(until["time_us"])
        found += [
            f"{stream} masks cells of rows after {end}, when the training period of "
            f"{metadata['database']} ends: scores of its tasks by a model that starts from this "
            f'run may be too good; set data.visible_until="{end}"'
            for stream, limits in streams
            if all(not limit or micros(limit) > until["time_us"] for limit in limits)
        ]
    return found


def _served(data: config.Data, metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the tasks of a store that a run trains."""
    wanted, serves_all = {*data.tasks}, not data.tasks and not data.pools
    return [
        task
        for task in metadata["tasks"]
        if serves_all or {task["name"], f"{metadata['database']}/{task['name']}"} & wanted
    ]


def advice_of_labels(data: config.Data, stores: Sequence[headwater.Store]) -> list[str]:
    """Returns a line if contexts with masked cells may show labels of test rows as other cells.

    A split by hash is another one for each task and pool, and no time parts its rows.
    """
    if not data.mask_share:
        return []
    found = [name for store in stores for name in _shown_labels(data, store.metadata())]
    if not found:
        return []
    return [
        f"contexts may show labels of test rows of {', '.join(found)}, because these tasks are "
        "split by hash: a model that starts from this run has then learnt from them, and its "
        "scores on these tasks may be too good; for pretraining, prepare a store by a schema "
        "without these tasks and the columns of their labels, or compare by a task that records a "
        "split by time, with data.visible_until at the end of its training period"
    ]


def _shown_labels(data: config.Data, metadata: Mapping[str, Any]) -> list[str]:
    """Returns the tasks of a store that are split by hash, and whose labels contexts may show."""
    database, tables = metadata["database"], [of["name"] for of in metadata["tables"]]
    seeds = [(task["name"], task["anchor"]) for task in _served(data, metadata)]
    seeds += [
        (None, tables.index(table))
        for owner, _, table in (pool.rpartition("/") for pool in data.pools)
        if owner in ("", database) and table in tables
    ]
    found = []
    for task in metadata["tasks"]:
        labels = _label_table(task, tables)
        # Its own target is hidden in a seed's row, but not in the others.
        if labels is not None and any(
            labels in _linked(table, metadata["relations"])
            or (labels == table and name != task["name"])
            for name, table in seeds
        ):
            found.append(f"{database}/{task['name']}")
    return found


def _label_table(task: Mapping[str, Any], tables: Sequence[str]) -> int | None:
    """Returns the table whose cells are labels of a task that is split by hash, if there is one."""
    derived = task["target"].get("derived")
    if derived is None:
        return int(task["anchor"])
    if derived["recorded_split"] or derived.get("horizon_us") is None:
        return None
    return tables.index(f"{task['name']} labels")


def _linked(table: int, relations: Sequence[Mapping[str, Any]]) -> set[int]:
    """Returns the tables that references lead to from a row, in either direction and over others.

    The table itself is one of them if it has a reference: that leads to other rows of it.
    """
    found: set[int] = set()
    reached = {table}
    while reached:
        ends = [(of["child"], of["parent"]) for of in relations]
        reached = {b for pair in ends for a, b in (pair, pair[::-1]) if a in reached} - found
        found |= reached
    return found


def by_name(sums: Any, counts: Any) -> dict[str, float]:
    """Returns the mean loss of each type that has masked cells, by the name of the type."""
    return {
        name: float(total / count)
        for name, total, count in zip(TYPE_NAMES, sums, counts, strict=True)
        if count
    }


def score(
    program: Program,
    models: Sequence[Any],
    samplers: Samplers,
    transfer: DeviceTransfer,
    split: Split,
    name: str,
    *,
    batch_limit: int,
    after_batch: Callable[[], None],
) -> dict[str, Any]:
    """Returns the losses at the masked cells of a split, of a task or a pool, for a line of JSON.

    The masks are those of the first epoch, the same on each call. Several models have the mean of
    their losses. `batch_limit` takes the first batches alone; 0 takes all.
    """
    sums, counts = np.zeros((2, len(TYPE_NAMES)))
    for parts in itertools.islice(samplers.evaluate(split, [name]), batch_limit or None):
        on_device = transfer.to_device(parts, with_masks=True)
        for params in models:
            of_batch = jax.device_get(program.score_masked(params, on_device))
            sums, counts = sums + of_batch.sums, counts + of_batch.counts
        after_batch()
    cells = int(counts.sum())
    loss = float(sums.sum() / cells) if cells else float("nan")
    return {"loss": loss, "cells": cells // len(models), **by_name(sums, counts)}


def table(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Returns the losses by stream and split, as lines of text; none without masked cells."""
    if not scores:
        return []
    columns = ["loss", *TYPE_NAMES[1:]]
    rows = [("masked cells of", "split", *columns)]
    for name, splits in scores.items():
        for split, found in splits.items():
            cells = [f"{found[of]:.4f}" if of in found else "-" for of in columns]
            rows.append((name, split, *cells))
    return aligned(rows)
