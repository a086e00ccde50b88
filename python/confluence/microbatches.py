"""Microbatches: the parts of a batch that are computed each by itself, by the same program.

A run has a fixed number of them, of which each process has some in a row. Whatever is added up over
a batch is added up along a tree over their numbers, and whatever is listed is listed in the order
of its items. So no bit depends on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from confluence.batch import OF_TEXTS, REPLICATED, Batch
from confluence.parallel import Layout
from headwater.jax import TreeSum, tree_sum


class Microbatches(list[Batch]):
    """The microbatches of this process, each on its device."""


def split(batch: Batch, count: int, layout: Layout) -> Microbatches:
    """Returns the microbatches of a batch on the host, all of them on this process's device."""
    parts = [
        batch._replace(
            **{
                name: array[number::count]
                for name, array in batch._asdict().items()
                if name not in REPLICATED | OF_TEXTS
            }
        )
        for number in range(count)
    ]
    return Microbatches(jax.device_put(of, layout.device) for of in parts)


class Exchange:
    """What the processes of a run tell each other of their microbatches, `count` in all."""

    def __init__(self, layout: Layout, count: int) -> None:
        self._layout, self._count = layout, count

        def add(nodes: Any, flag: jax.Array) -> tuple[Any, jax.Array]:
            total = tree_sum(nodes, "data", leaves=count, folded=True)
            return total, jax.lax.pmax(flag, "data")

        # Nothing but additions and copies: what comes before and after is compiled for one device,
        # and so in one way for any number of processes.
        self._add = jax.jit(
            jax.shard_map(
                add,
                mesh=layout.mesh,
                in_specs=PartitionSpec("data"),
                out_specs=PartitionSpec(),
                check_vma=False,
            )
        )
        self._copy_to_all = jax.jit(lambda tree: tree, out_shardings=layout.replicated)

    def sum(self, trees: Iterable[Any], flag: jax.Array) -> tuple[Any, jax.Array]:
        """Returns the sum of a tree of each microbatch, and the greatest of the processes' flags.

        The trees of this process come in order, and are taken over.
        """
        total = TreeSum(self._count, self._layout.rank, self._layout.world)
        for tree in trees:
            total.push(tree)
        if self._layout.world == 1:
            return total.whole(), self._layout.local(flag)
        nodes = jax.tree.map(self._layout.joined, total.nodes())
        found: tuple[Any, jax.Array] = self._layout.local(self._add(nodes, flag))
        return found

    def gather(self, trees: Sequence[Any]) -> list[Any]:
        """Returns the tree of every microbatch, in their order, as arrays of NumPy."""
        own = jax.device_get(list(trees))
        if self._layout.world == 1:
            return own
        shares = [
            TreeSum(self._count, rank, self._layout.world).numbers
            for rank in range(self._layout.world)
        ]
        most = max(map(len, shares))
        padded = own + own[:1] * (most - len(own))
        stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *padded)
        to_devices = partial(jax.make_array_from_process_local_data, self._layout.sharded)
        rows = jax.device_get(self._copy_to_all(jax.tree.map(to_devices, stacked)))
        places = [rank * most + at for rank, of in enumerate(shares) for at in range(len(of))]
        return [jax.tree.map(lambda array, at=at: array[at], rows) for at in places]


def in_order(trees: Sequence[Any]) -> Any:
    """Returns arrays of all contexts, given those of each microbatch, in the order of the items.

    Context b of microbatch m of M is item b M + m of the batch.
    """

    def joined(*arrays: Any) -> Any:
        return np.stack(arrays, axis=1).reshape(-1, *arrays[0].shape[1:])

    return jax.tree.map(joined, *trees)
