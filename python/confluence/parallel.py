"""A run of several processes: each has a share of the batch and a copy of the parameters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from confluence import compile_keys, rollcall
from confluence.batch import REPLICATED, Batch
from confluence.meeting_place import AddressFile, KnownAddress
from confluence.peers import Peers
from confluence.processor import cores, processor
from confluence.rollcall import JoinError
from headwater._headwater import launched

_MOST_DESCRIPTION_BYTES = 256
# JAX ends all processes without a word that helps; `Peers` notices sooner who is silent, and
# whether the processes that have ended have to wait for one that writes results.
_LATER_SECONDS, _MUCH_LATER_SECONDS = 60, 7 * 86_400


@dataclass(frozen=True)
class Processes:
    """The processes of a run: this one alone, or `count` that meet at rank 0."""

    count: int = 1
    rank: int = 0
    # Where rank 0 listens; None: at a free port, which it writes into the folder of the run.
    coordinator: str | None = None
    # Without a coordinator: whether rank 0 needs no address that other machines reach.
    is_on_one_machine: bool = False
    # What started the processes, if that is known.
    launcher: str = ""

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
        if count is None:
            raise JoinError(
                f"expected {launcher} to tell the number of ranks, found rank {rank} alone; add "
                "--processes N --rank R --coordinator HOST:PORT, or --processes 1 to train alone"
            )
        return cls(count, rank, None, is_on_one_machine, launcher)

    def join(self, timeout_seconds: int, meeting: rollcall.Meeting, folder: Path) -> Peers:
        """Waits for the other processes, whose identities must be equal; returns what watches them.

        Raises:
            JoinError: A process did not connect, or would run something else.
        """
        if jax.distributed.is_initialized():
            raise JoinError(
                "expected one training for each of several processes, found a second one in this "
                "process; start other processes for it"
            )
        place = (
            AddressFile(folder, is_on_one_machine=self.is_on_one_machine)
            if self.coordinator is None
            else KnownAddress(self.coordinator)
        )
        try:
            joined = rollcall.call(self.rank, self.count, place, meeting, timeout_seconds)
        except JoinError as error:
            if not self.launcher:
                raise
            raise JoinError(
                f"{error}; this process is rank {self.rank} of {self.count} that {self.launcher} "
                "started: to train alone in it, say --processes 1"
            ) from None
        # Before JAX is started: it waits for a rank that is gone until the time is over.
        peers = Peers(self.rank, joined.connections, timeout_seconds)
        try:
            self._initialize(joined.coordinator, timeout_seconds)
        except BaseException:
            peers.close(has_ended=False)
            raise
        return peers

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
                # It would take a device by the number of the process on its machine, also where
                # the launcher shows each process its own alone.
                cluster_detection_method="deactivate",
                heartbeat_timeout_seconds=timeout_seconds + _LATER_SECONDS,
                shutdown_timeout_seconds=_MUCH_LATER_SECONDS,
            )
        except (RuntimeError, ValueError) as error:
            raise JoinError(
                f"rank {self.rank} of {self.count} could not join the coordinator at "
                f"{coordinator}: {error}; start rank 0 there, and check that its port "
                "is reachable"
            ) from None


def device_kind() -> str:
    """Returns the kind of this process's devices, of a CPU by its name and instructions."""
    if jax.default_backend() == "cpu":
        return processor()
    return jax.local_devices()[0].device_kind


def warn_of_unlike_processes() -> None:
    """Prints which processes have other bits than rank 0, if any; all processes call it together.

    A CPU adds up in an order that depends on its kind and on the number of its cores, and each
    version of JAX may compile another.
    """
    described = device_kind()
    if jax.default_backend() == "cpu":
        described += f" of {cores()} cores"
    described += f" with jax {jax.__version__}, jaxlib {version('jaxlib')}"
    text = described.encode()[:_MOST_DESCRIPTION_BYTES].ljust(_MOST_DESCRIPTION_BYTES)
    own = np.frombuffer(text, np.uint8)
    first, *others = (
        row.tobytes().decode(errors="replace").strip()
        for row in multihost_utils.process_allgather(own, tiled=False)
    )
    if jax.process_index() == 0:
        for rank, other in enumerate(others, start=1):
            if other != first:
                print(
                    f"confluence: rank {rank} has {other}, rank 0 has {first}: the last digits "
                    "depend on which rank computes what; give all ranks the same processor, the "
                    "same number of cores and the same versions",
                    file=sys.stderr,
                )


class Layout:
    """Where arrays lie: on a mesh of one device per process, with one axis named `data`."""

    def __init__(self, devices: Sequence[jax.Device] | None = None) -> None:
        # Before the first program is compiled.
        compile_keys.leave_out_device_numbers()
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
        return Batch(*(
            None if array is None else jax.make_array_from_process_local_data(sharding, array)
            for sharding, array in zip(self.batch, batch, strict=True)
        ))  # fmt: skip

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
        # Given the sharding of all processes, JAX would compare the arrays over the network.
        return self.everywhere(jax.device_put(tree, self.device))


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
