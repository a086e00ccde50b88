"""Batches made ahead: sampled, converted, and on the device before the training loop needs them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import headwater
from confluence import choices, config
from confluence.batch import Batch, HostBatch, Vocabulary, from_sampler
from confluence.parallel import Layout, Processes


class FedBatch(NamedTuple):
    """A batch on the device."""

    batch: Batch
    # The position of the stream after this batch.
    cursor: bytes
    task: int
    # In this process: the cells without padding, and with it.
    cells: int
    capacity: int
    # The seconds that converting it and handing it to the device took.
    transfer_seconds: float


class DeviceTransfer:
    """Converts the sampler's batches to batches on the device."""

    def __init__(
        self, vocabulary: Vocabulary, stores: Sequence[int], layout: Layout, rank: int
    ) -> None:
        """`stores` has the number of the store of each task and pool."""
        self._vocabulary, self._stores = vocabulary, tuple(stores)
        self._layout, self._rank = layout, rank

    def to_device(self, batch: HostBatch, *, with_masks: bool = False) -> Batch:
        """Returns a batch of the sampler on the device, with masks or with all cells to be seen."""
        store = self._stores[batch["task_idx"][0]]
        compact = from_sampler(batch, self._vocabulary, store, self._rank, with_masks=with_masks)
        return self._layout.to_devices(compact)


class Feed:
    """The train stream; a thread makes a few batches ahead."""

    def __init__(self, sampler: headwater.Sampler, transfer: DeviceTransfer, ahead: int) -> None:
        self._sampler, self._transfer = sampler, transfer
        self._ready: queue.Queue[FedBatch | BaseException] = queue.Queue(ahead)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()
        self.waited_seconds = 0.0

    def next_batch(self) -> FedBatch:
        """Returns the next batch; waits until it is ready."""
        start = time.perf_counter()
        ready = self._ready.get()
        self.waited_seconds += time.perf_counter() - start
        if isinstance(ready, BaseException):
            raise ready
        return ready

    def close(self) -> None:
        """Ends the thread; batches made ahead do not count as consumed."""
        self._is_closed.set()
        while self._thread.is_alive():
            try:
                self._ready.get(timeout=0.05)
            except queue.Empty:
                continue

    def _run(self) -> None:
        try:
            while not self._is_closed.is_set():
                self._ready.put(self._make())
        except BaseException as error:  # Any error is raised in `next_batch`.
            self._ready.put(error)

    def _make(self) -> FedBatch:
        batch, cursor = self._sampler.next_batch("train")
        start = time.perf_counter()
        on_device = self._transfer.to_device(batch, with_masks=True)
        return FedBatch(
            batch=on_device,
            cursor=cursor.encode(),
            task=int(batch["task_idx"][0]),
            cells=int(np.count_nonzero(batch["is_padding"] == 0)),
            capacity=batch["is_padding"].size,
            transfer_seconds=time.perf_counter() - start,
        )


# The settings of [data] that `headwater.Sampler` knows by the same name, and by another one.
_SAME_NAME = (
    "max_rows", "child_widths", "aggregates", "walk", "seed", "split_seed", "split_ratios",
    "staleness_days", "texts", "mask_share",
)  # fmt: skip
_OTHER_NAME = {"sequence_length": "default_sequence_length"}
# Those that only one walk uses: the sampler refuses others, even with their defaults.
_OF_WALK = {
    "priority": {"child_width": "bfs_child_width", "children": "children"},
    "breadth": {"max_hops": "max_hops", "budget": "neighbor_budget"},
}


def open_sampler(
    data: config.Data, run: config.Run, processes: Processes, **overrides: Any
) -> headwater.Sampler:
    """Returns this process's sampler of a run; `overrides` are arguments of `headwater.Sampler`.

    Raises:
        ConfigError: The number of processes does not divide the batch size, no task has a name, or
            a setting is of the other walk.
    """
    config.check_walk(data)
    if data.batch_size % processes.count:
        raise config.ConfigError(
            f"expected a data.batch_size that the number of processes divides, found "
            f"{data.batch_size} and {processes.count}"
        )
    batch_size = data.batch_size // processes.count
    arguments: dict[str, Any] = {
        **{name: getattr(data, name) for name in _SAME_NAME},
        **{
            theirs: getattr(data, ours)
            for ours, theirs in (_OTHER_NAME | _OF_WALK[data.walk]).items()
        },
        "visible_until": data.visible_until or None,
        "rank": processes.rank,
        "world_size": processes.count,
        "default_batch_size": batch_size,
        "tasks": list(data.tasks) or None,
        "task_weights": list(data.task_weights) or None,
        "pools": {table: time or None for table, time in data.pools.items()},
        # Without masks, the sampler takes no other setting of them.
        "mask_most": data.mask_most or None,
        "mask_texts": data.mask_texts if data.mask_share else None,
        # A single shape, so that the step is compiled once.
        "text_buckets": [batch_size * data.sequence_length] if data.texts == "batch" else None,
        "num_prefetch": run.prefetch,
        "num_threads": run.threads or None,
        "compact": True,
        "permutations": False,
    }
    arguments |= overrides
    try:
        return headwater.Sampler(list(data.stores), **arguments)
    except headwater.InvalidArgument:
        # A name that is no task's is by far the likeliest reason, and deserves the nearest one.
        choices.check_tasks_of_stores(arguments["tasks"] or (), data.stores)
        raise
