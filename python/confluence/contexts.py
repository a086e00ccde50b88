"""What the contexts of some train seeds hold: cells, and rows by relation, table and hop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from confluence import config
from confluence.feed import open_sampler
from confluence.parallel import Processes

# The seeds whose contexts are counted, and the batches that they come in, at least.
SEEDS = 1000
_BATCHES = 20
# Rows further from the seed count as if they were this far.
MOST_HOPS = 6
# How a row was reached, as in a batch.
SEED, PARENT, CHILD = 0, 1, 2

Counts = npt.NDArray[np.int64]


class Relation(NamedTuple):
    """A reference of a store, with its name in `data.child_widths`."""

    name: str
    # The numbers of the referring table and of the table it refers to.
    child: int
    parent: int


def relations_of(metadata: Mapping[str, Any]) -> list[Relation]:
    """Returns the relations of a store, in the order of their numbers."""
    return [
        Relation(
            f"{metadata['tables'][relation['child']]['name']}.{relation['name']}",
            relation["child"],
            relation["parent"],
        )
        for relation in metadata["relations"]
    ]


@dataclasses.dataclass(frozen=True)
class Contexts:
    """Counts over N contexts."""

    # The rows, cells and padding of each context: [N].
    rows: Counts
    cells: Counts
    # The cells before the first child that is further from the seed than the horizon: [N].
    near_cells: Counts
    # The rows that each relation brings in as children, by hop: [N, relations, MOST_HOPS + 1].
    children: Counts
    # The rows of each table by how they were reached, by hop: [N, tables, 3, MOST_HOPS + 1].
    reached: Counts

    def quantile(self, share: float) -> int:
        """Returns the number of near cells that this share of the contexts does not exceed."""
        return int(np.quantile(self.near_cells, share, method="inverted_cdf"))


def count(data: config.Data, metadata: Mapping[str, Any], horizon: int, **shape: Any) -> Contexts:
    """Counts the contexts of the first `SEEDS` seeds of the train stream.

    `shape` replaces settings of `data`; equally many seeds are of each task.
    """
    tasks = max(1, len(data.tasks))
    batches = -(-_BATCHES // tasks) * tasks
    data = dataclasses.replace(data, batch_size=-(-SEEDS // batches), texts="global", **shape)
    relations = relations_of(metadata)
    anchors = {task["name"]: task["anchor"] for task in metadata["tasks"]}
    parts = []
    with open_sampler(data, config.Run(prefetch=0), Processes()) as sampler:
        anchor_of_task = [anchors[name.partition("/")[2]] for name in sampler.tasks]
        for _ in range(batches):
            batch = sampler.next_train_batch()
            anchor = anchor_of_task[batch["task_idx"][0]]
            parts.append(_count(batch, anchor, relations, len(metadata["tables"]), horizon))
    return Contexts(*(np.concatenate(of) for of in zip(*parts, strict=True)))


def _count(
    batch: Mapping[str, npt.NDArray[Any]],
    anchor: int,
    relations: Sequence[Relation],
    tables: int,
    horizon: int,
) -> tuple[Counts, ...]:
    row_count = batch["num_rows"].astype(np.int64)
    hops = batch["row_hop"].astype(np.int64)
    places = np.arange(hops.shape[1])
    is_row = places < row_count[:, None]
    directions = batch["row_direction"].astype(np.int64)
    is_far = is_row & (directions == CHILD) & (hops > horizon)
    first_far = np.where(is_far.any(1), is_far.argmax(1), hops.shape[1])
    is_cell = batch["is_padding"] == 0
    cells = np.count_nonzero(is_cell, axis=1)
    near = np.count_nonzero(is_cell & (batch["seq_row_ids"] < first_far[:, None]), axis=1)
    hops = np.minimum(hops, MOST_HOPS)
    # The latest row of a summary without parents has a relation after all others.
    numbers = batch["row_relation"].astype(np.int64)
    is_row &= (directions == SEED) | (numbers < len(relations))
    context, place = np.nonzero(is_row)
    number, direction, hop = (of[context, place] for of in (numbers, directions, hops))
    children = np.zeros((len(hops), len(relations), MOST_HOPS + 1), np.int64)
    is_child = direction == CHILD
    np.add.at(children, (context[is_child], number[is_child], hop[is_child]), 1)
    # By direction: the seed's own table, the table that a relation refers to, the one it is of.
    table_of = np.array([[anchor, r.parent, r.child] for r in relations] or [[anchor] * 3])
    reached = np.zeros((len(hops), tables, 3, MOST_HOPS + 1), np.int64)
    table = np.where(direction == SEED, anchor, table_of[number, direction])
    np.add.at(reached, (context, table, direction, hop), 1)
    return row_count, cells, near, children, reached
