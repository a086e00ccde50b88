"""Batches made ahead: sampled, converted, and on the device before the training loop needs them."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax
import numpy as np

import headwater
from confluence import choices, config
from confluence.batch import Batch, HostBatch, Vocabulary, from_sampler
from confluence.microbatches import Microbatches
from confluence.parallel import Layout, Processes
from confluence.processor import cores
from headwater.jax import TreeSum
from headwater.sampler import Split


class FedBatch(NamedTuple):
    """A batch on the device."""

    batch: Batch | Microbatches
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
        self,
        vocabulary: Vocabulary,
        stores: Sequence[int],
        layout: Layout,
        rank: int,
        *,
        in_microbatches: bool,
    ) -> None:
        """`stores` has the number of the store of each task and pool."""
        self._vocabulary, self._stores = vocabulary, tuple(stores)
        self._layout, self._in_microbatches = layout, in_microbatches
        # Each microbatch has its own texts.
        self._rank = 0 if in_microbatches else rank

    def to_device(
        self, batches: Sequence[HostBatch], *, with_masks: bool = False
    ) -> Batch | Microbatches:
        """Returns the batches of `Samplers` on the device, with masks or all cells to be seen."""
        compact = [
            from_sampler(
                batch,
                self._vocabulary,
                self._stores[batch["task_idx"][0]],
                self._rank,
                with_masks=with_masks,
            )
            for batch in batches
        ]
        if self._in_microbatches:
            return Microbatches(jax.device_put(of, self._layout.device) for of in compact)
        (whole,) = compact
        return self._layout.to_devices(whole)


class Samplers:
    """The samplers of a process: one for its share of a batch, or one for each microbatch of it."""

    def __init__(self, each: Sequence[headwater.Sampler]) -> None:
        self._each = list(each)

    @property
    def first(self) -> headwater.Sampler:
        """One of them, for what is the same for all."""
        return self._each[0]

    def next_batch(self, split: Split) -> tuple[list[HostBatch], bytes]:
        """Returns the next batch of each, and the cursor after it."""
        batches, cursors = zip(*(of.next_batch(split) for of in self._each), strict=True)
        # It is that of all ranks.
        return list(batches), cursors[0].encode()

    def evaluate(self, split: Split, tasks: Sequence[str]) -> Iterator[list[HostBatch]]:
        """Yields the batches of each that have each seed of a split once over all processes."""
        with warnings.catch_warnings():
            # A microbatch without a seed is no rank that does nothing.
            if len(self._each) > 1:
                warnings.filterwarnings("ignore", message=r"task .* on this rank")
            passes = [self.first.evaluate(split, tasks)]
            warnings.simplefilter("ignore")
            passes += [of.evaluate(split, tasks) for of in self._each[1:]]
        for batches in zip(*passes, strict=True):
            yield list(batches)

    def sample(self, task: str, keys: Sequence[Any], times: Sequence[Any]) -> list[HostBatch]:
        """Returns the contexts of chosen rows: of every M-th row for each of M microbatches."""
        count = len(self._each)
        return [
            of.sample(task, keys[at::count], times[at::count]) for at, of in enumerate(self._each)
        ]

    def resume(self, cursor: bytes) -> None:
        """Goes to the position of a cursor."""
        for of in self._each:
            of.resume(cursor)


class Feed:
    """The train stream; a thread makes a few batches ahead."""

    def __init__(self, samplers: Samplers, transfer: DeviceTransfer, ahead: int) -> None:
        self._samplers, self._transfer = samplers, transfer
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
        batches, cursor = self._samplers.next_batch("train")
        start = time.perf_counter()
        on_device = self._transfer.to_device(batches, with_masks=True)
        return FedBatch(
            batch=on_device,
            cursor=cursor,
            task=int(batches[0]["task_idx"][0]),
            cells=sum(int(np.count_nonzero(of["is_padding"] == 0)) for of in batches),
            capacity=sum(of["is_padding"].size for of in batches),
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


def check_processes(settings: config.Config, count: int) -> None:
    """Raises ConfigError if the processes cannot share a batch as the settings want it."""
    microbatches = config.microbatches(settings)
    if count > 1 and settings.data.sequence_buckets and not microbatches:
        raise config.ConfigError(
            "expected no data.sequence_buckets with optimizer.microbatches = 0 and "
            f"{count} processes, whose parts of a batch must have one length, found "
            f"{list(settings.data.sequence_buckets)}; leave them out, or set optimizer.microbatches"
        )
    if 0 < microbatches < count:
        raise config.ConfigError(
            f"expected at most {microbatches} processes, one for each of optimizer.microbatches, "
            f"found {count}; start a run with more microbatches, a number that divides "
            f"data.batch_size = {settings.data.batch_size}"
        )


def open_samplers(
    settings: config.Config, processes: Processes, open_resources: ExitStack
) -> Samplers:
    """Returns the samplers of a process, which are shut down with the other resources.

    Raises:
        ConfigError: As `open_sampler`.
    """
    data, run, count = settings.data, settings.run, config.microbatches(settings)
    if not count:
        each = [processes]
    else:
        # A microbatch is what a rank would have of as many.
        numbers = TreeSum(count, processes.rank, processes.count).numbers
        each = [Processes(count, number) for number in numbers]
        threads = run.threads or cores()
        run = dataclasses.replace(run, threads=max(1, threads // len(each)))
    return Samplers([open_resources.enter_context(open_sampler(data, run, of)) for of in each])


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
    lengths = {*data.sequence_buckets, data.sequence_length}
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
        "sequence_buckets": list(data.sequence_buckets) or None,
        "tasks": list(data.tasks) or None,
        "task_weights": list(data.task_weights) or None,
        "pools": {table: time or None for table, time in data.pools.items()},
        # Without masks, the sampler takes no other setting of them.
        "mask_most": data.mask_most or None,
        "mask_texts": data.mask_texts if data.mask_share else None,
        # Few shapes, because the step is compiled for each.
        "text_buckets": (
            [batch_size * length for length in lengths] if data.texts == "batch" else None
        ),
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
