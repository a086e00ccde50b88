"""Batches made ahead: sampled, in their form, and on the device before they are asked for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import headwater
from confluence import config
from confluence.batch import Batch, Vocabulary, to_travel
from confluence.parallel import Layout, Processes


class Fed(NamedTuple):
    """A batch on the device."""

    batch: Batch
    # Where the stream stands after it.
    cursor: bytes
    task: int
    # Of this process: the cells that mean something, and all.
    cells: int
    places: int
    # Seconds that making its form and handing it to the device took.
    travel_seconds: float


class Form:
    """How the batches of a sampler become those of a run."""

    def __init__(
        self, vocabulary: Vocabulary, stores: Sequence[int], layout: Layout, rank: int
    ) -> None:
        """Of each task, `stores` has the number of its store."""
        self._vocabulary, self._stores = vocabulary, tuple(stores)
        self._layout, self._rank = layout, rank

    def put(self, batch: headwater.sampler.Batch) -> Batch:
        """Returns a batch of the sampler on the device."""
        store = self._stores[batch["task_idx"][0]]
        return self._layout.put_batch(to_travel(batch, self._vocabulary, store, self._rank))


class Feed:
    """The train stream, a few batches ahead of whoever takes them."""

    def __init__(self, sampler: headwater.Sampler, form: Form, ahead: int) -> None:
        self._sampler, self._form = sampler, form
        self._made: queue.Queue[Fed | BaseException] = queue.Queue(ahead)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()
        self.waited_seconds = 0.0

    def take(self) -> Fed:
        """Returns the next batch, and waits for it where it must."""
        begun = time.perf_counter()
        made = self._made.get()
        self.waited_seconds += time.perf_counter() - begun
        if isinstance(made, BaseException):
            raise made
        return made

    def close(self) -> None:
        """Ends the thread; what was made ahead is not consumed."""
        self._is_closed.set()
        while self._thread.is_alive():
            try:
                self._made.get(timeout=0.05)
            except queue.Empty:
                continue

    def _run(self) -> None:
        try:
            while not self._is_closed.is_set():
                self._made.put(self._next())
        except BaseException as error:  # Whatever it is, it is raised where batches are taken.
            self._made.put(error)

    def _next(self) -> Fed:
        batch, cursor = self._sampler.next_batch("train")
        begun = time.perf_counter()
        on_device = self._form.put(batch)
        return Fed(
            batch=on_device,
            cursor=cursor.encode(),
            task=int(batch["task_idx"][0]),
            cells=int(np.count_nonzero(batch["is_padding"] == 0)),
            places=batch["is_padding"].size,
            travel_seconds=time.perf_counter() - begun,
        )


def sampler(
    data: config.Data, run: config.Run, processes: Processes, **changed: Any
) -> headwater.Sampler:
    """Returns this process's sampler of a run.

    Raises:
        ConfigError: The batch cannot be shared out among so many processes.
    """
    if data.batch_size % processes.count:
        raise config.ConfigError(
            f"expected a data.batch_size that the number of processes divides, found "
            f"{data.batch_size} and {processes.count}"
        )
    own = data.batch_size // processes.count
    arguments: dict[str, Any] = {
        "rank": processes.rank,
        "world_size": processes.count,
        "default_batch_size": own,
        "default_sequence_length": data.cells,
        "max_rows": data.rows,
        "bfs_child_width": data.child_width,
        "child_widths": data.child_widths,
        "children": data.children,
        "walk": data.walk,
        "max_hops": data.max_hops,
        "neighbor_budget": data.neighbor_budget,
        "seed": data.seed,
        "split_seed": data.split_seed,
        "split_ratios": data.split_ratios,
        "tasks": list(data.tasks) or None,
        "task_weights": list(data.task_weights) or None,
        "texts": data.texts,
        # One shape, so that the step is compiled once.
        "text_buckets": [own * data.cells] if data.texts == "batch" else None,
        "num_prefetch": run.prefetch,
        "num_threads": run.threads or None,
        "compact": True,
    }
    return headwater.Sampler(list(data.stores), **{**arguments, **changed})
