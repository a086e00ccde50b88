"""A run of several processes: each has a share of the batch and a copy of the parameters."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from confluence import rollcall
from confluence.batch import REPLICATED, Batch
from confluence.meeting_place import Noted, Told
from confluence.peers import Peers
from confluence.rollcall import JoinError
from headwater._headwater import launched

_MOST_KIND_BYTES = 128
# A rank that is gone is noticed sooner; then the process has ended.
_NOTICED_AFTER_SECONDS = 2.0
_NOTICED_BY_JAX_SECONDS = 60


@dataclass(frozen=True)
class Processes:
    """The processes of a run: this one alone, or `count` that meet at rank 0."""

    count: int = 1
    rank: int = 0
    # Where rank 0 listens; None: at a free port, which it writes into the folder of the run.
    coordinator: str | None = None
    # Without a coordinator: whether rank 0 needs no address that other machines reach.
    is_on_one_machine: bool = False

    @classmethod
    def launched(cls) -> Processes:
        """Returns the processes that mpirun, srun, torchrun or another launcher started, if any.

        Raises:
            JoinError: The launcher does not tell the number of processes.
        """
        found = launched()
        if found is None:
            return cls()
        launcher, rank, count, is_on_one_machine = found
        if count is None and rank:
            raise JoinError(
                f"expected {launcher} to tell the number of ranks, found rank {rank} alone; add "
                "--processes N --rank R --coordinator HOST:PORT"
            )
        return cls(count or 1, rank, None, is_on_one_machine)

    def join(self, timeout_seconds: int, meeting: rollcall.Meeting, folder: Path) -> Peers:
        """Waits for the other processes, whose identities must be equal; returns what watches them.

        Raises:
            JoinError: A process did not connect, or would run something else.
        """
        place = (
            Noted(folder, is_on_one_machine=self.is_on_one_machine)
            if self.coordinator is None
            else Told(self.coordinator)
        )
        met = rollcall.call(self.rank, self.count, place, meeting, timeout_seconds)
        try:
            self._initialize(met.coordinator, timeout_seconds)
        except BaseException:
            for connection in met.connections.values():
                connection.close()
            raise
        return Peers(self.rank, met.connections, timeout_seconds)

    def _initialize(self, coordinator: str, timeout_seconds: int) -> None:
        # JAX's preemption service would catch SIGTERM.
        jax.config.update("jax_enable_preemption_service", False)
        # The only collectives between processes on CPUs; no effect on accelerators.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                coordinator,
                num_processes=self.count,
                process_id=self.rank,
                # Otherwise it listens at all addresses of the machine.
                coordinator_bind_address=coordinator,
                initialization_timeout=timeout_seconds,
                # Later than `Peers`, which says who is silent.
                heartbeat_timeout_seconds=timeout_seconds + _NOTICED_BY_JAX_SECONDS,
                shutdown_timeout_seconds=timeout_seconds,
            )
        except (RuntimeError, ValueError) as error:
            raise JoinError(
                f"rank {self.rank} of {self.count} could not join the coordinator at "
                f"{coordinator}: {error}; start rank 0 there, and check that its port "
                "is reachable"
            ) from None

    @contextmanager
    def exit_on_error(self, expected: type[Exception]) -> Iterator[None]:
        """Ends a failing process of several at once, without waiting for the others.

        They notice that it is gone. An orderly end would wait for them: to write their part of a
        checkpoint, and to shut down. An `expected` error, which all processes raise, passes.
        """
        try:
            yield
        except expected:
            raise
        except Exception as error:
            if self.count == 1:
                raise
            # Whatever waits for another rank fails when that is gone. `Peers` says so, and ends the
            # process.
            time.sleep(_NOTICED_AFTER_SECONDS)
            if isinstance(error, OSError) or _has_remedy(error):
                print(f"confluence: rank {self.rank}: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def _has_remedy(error: Exception) -> bool:
    """Returns whether the error is of headwater or confluence: its message says what to do."""
    return type(error).__module__.partition(".")[0] in ("confluence", "headwater")


def warn_of_unlike_processes() -> None:
    """Prints which processes have other bits than rank 0, if any; all processes call it together.

    A CPU adds up in an order that depends on its kind and on the number of its cores.
    """
    kind = jax.local_devices()[0].device_kind
    if jax.default_backend() == "cpu":
        kind += f" of {len(os.sched_getaffinity(0))} cores"
    own = np.frombuffer(kind.encode()[:_MOST_KIND_BYTES].ljust(_MOST_KIND_BYTES), np.uint8)
    first, *others = (
        row.tobytes().decode(errors="replace").strip()
        for row in multihost_utils.process_allgather(own, tiled=False)
    )
    if jax.process_index() == 0:
        for rank, other in enumerate(others, start=1):
            if other != first:
                print(
                    f"confluence: rank {rank} has {other}, rank 0 has {first}: the last digits "
                    "depend on which rank computes what; give all ranks the same processor and the "
                    "same number of cores",
                    file=sys.stderr,
                )


class Layout:
    """Where arrays lie: on a mesh of one device per process, with one axis named `data`."""

    def __init__(self, devices: Sequence[jax.Device] | None = None) -> None:
        devices = _one_device_per_process() if devices is None else devices
        self.mesh = Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.sharded = NamedSharding(self.mesh, PartitionSpec("data"))

    @property
    def world(self) -> int:
        """The number of devices."""
        return int(self.mesh.size)

    @property
    def device(self) -> jax.Device:
        """The device of this process."""
        device: jax.Device = self.mesh.local_devices[0]
        return device

    @property
    def rank(self) -> int:
        """The place of this process's device among all."""
        return list(self.mesh.devices.flat).index(self.device)

    @property
    def batch(self) -> Batch:
        """The sharding of each array of a batch."""
        return Batch(
            **{
                name: self.replicated if name in REPLICATED else self.sharded
                for name in Batch._fields
            }
        )

    def to_devices(self, batch: Batch) -> Batch:
        """Returns the global batch; `batch` is the share of this process."""
        return jax.tree.map(jax.make_array_from_process_local_data, self.batch, batch)

    def flag_to_devices(self, flag: bool) -> jax.Array:
        """Returns an array of one flag per device; `flag` is that of this process."""
        own = np.full(len(self.mesh.local_devices), flag, np.int32)
        return jax.make_array_from_process_local_data(self.sharded, own)

    def local(self, tree: Any) -> Any:
        """Returns the parts of arrays that lie on this process's device, without a copy."""
        return jax.tree.map(lambda array: array.addressable_data(0), tree)

    def everywhere(self, tree: Any) -> Any:
        """Returns arrays on every device, of which each process gives its equal copy."""

        def of_all(array: jax.Array) -> jax.Array:
            return jax.make_array_from_single_device_arrays(array.shape, self.replicated, [array])

        return jax.tree.map(of_all, tree)

    def joined(self, array: jax.Array) -> jax.Array:
        """Returns the processes' arrays, of one shape, one after the other along the first axis."""
        shape = (self.world * array.shape[0], *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, self.sharded, [array])

    def copy_to_all(self, tree: Any) -> Any:
        """Returns the arrays, which must be equal in all processes, on every device."""
        return jax.device_put(tree, self.replicated)


def _one_device_per_process() -> list[jax.Device]:
    """Returns the first device of each process, in the order of the processes."""
    firsts: dict[int, jax.Device] = {}
    for device in jax.devices():
        firsts.setdefault(device.process_index, device)
    if len(firsts) < jax.device_count() and jax.process_index() == 0:
        print(
            f"confluence: using {len(firsts)} of {jax.device_count()} devices, one per process; to "
            "use all, start one process per device (--processes) and show it that device alone "
            "(CUDA_VISIBLE_DEVICES)",
            file=sys.stderr,
        )
    return [firsts[process] for process in sorted(firsts)]
