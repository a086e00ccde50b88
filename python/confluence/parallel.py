"""One step on many devices: batches are shares, parameters are copies."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from confluence import rollcall
from confluence.batch import REPLICATED, Batch
from confluence.rollcall import JoinError


@dataclass(frozen=True)
class Processes:
    """Who takes part: this one alone, or all that `coordinator` brings together."""

    count: int = 1
    rank: int = 0
    coordinator: str | None = None

    def join(
        self,
        timeout_seconds: int,
        told: rollcall.Told,
        differences: Callable[[rollcall.Told, rollcall.Told], list[str]],
    ) -> None:
        """Waits for the others, who must be `told` the same; if one is lost later, all end.

        Raises:
            JoinError: They do not come, or would run something else.
        """
        assert self.coordinator is not None
        rollcall.call(self.rank, self.count, self.coordinator, told, differences, timeout_seconds)
        # It would take SIGTERM for itself.
        jax.config.update("jax_enable_preemption_service", False)
        # Between processes on CPUs there is no other way, and where there are accelerators this
        # changes nothing.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                self.coordinator,
                num_processes=self.count,
                process_id=self.rank,
                initialization_timeout=timeout_seconds,
                heartbeat_timeout_seconds=min(timeout_seconds, 100),
                shutdown_timeout_seconds=timeout_seconds,
            )
        except (RuntimeError, ValueError) as error:
            raise JoinError(
                f"rank {self.rank} of {self.count} found no company at {self.coordinator}: {error}"
            ) from None

    @contextmanager
    def ending_at_once(self, but: type[Exception]) -> Iterator[None]:
        """Where one of several fails, it ends at once, without waiting for the others.

        They are told by its silence. To end as one process does would be to wait: for others to
        write their part of a checkpoint, and to leave. What is raised by all alike is `but`.
        """
        try:
            yield
        except but:
            raise
        except Exception as error:
            if self.count == 1:
                raise
            if isinstance(error, jax.errors.JaxRuntimeError):
                reason = str(error).splitlines()[0][:300]
                print(
                    f"confluence: rank {self.rank} lost the others ({reason}); go on with --resume",
                    file=sys.stderr,
                )
            elif isinstance(error, OSError) or _is_ours(error):
                print(f"confluence: rank {self.rank}: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def _is_ours(error: Exception) -> bool:
    """Whether the message says what to do."""
    return type(error).__module__.partition(".")[0] in ("confluence", "headwater")


class Layout:
    """Where arrays lie: on a mesh of one device of each process with the one axis `data`."""

    def __init__(self, devices: Sequence[jax.Device] | None = None) -> None:
        devices = _one_of_each() if devices is None else devices
        self.mesh = Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.shared_out = NamedSharding(self.mesh, PartitionSpec("data"))

    @property
    def batch(self) -> Batch:
        """How each array of a batch lies."""
        return Batch(
            **{
                name: self.replicated if name in REPLICATED else self.shared_out
                for name in Batch._fields
            }
        )

    def put_batch(self, batch: Batch) -> Batch:
        """Returns the global batch of which this process has its share."""
        return jax.tree.map(jax.make_array_from_process_local_data, self.batch, batch)

    def put_flag(self, flag: bool) -> jax.Array:
        """Returns one flag of each device."""
        own = np.full(len(self.mesh.local_devices), flag, np.int32)
        return jax.make_array_from_process_local_data(self.shared_out, own)

    def copy_to_all(self, tree: Any) -> Any:
        """Returns the arrays, which all processes have alike, on every device."""
        return jax.device_put(tree, self.replicated)


def _one_of_each() -> list[jax.Device]:
    """The first device of each process, in their order."""
    firsts: dict[int, jax.Device] = {}
    for device in jax.devices():
        firsts.setdefault(device.process_index, device)
    if len(firsts) < jax.device_count() and jax.process_index() == 0:
        print(
            f"confluence: of {jax.device_count()} devices {len(firsts)} are used, one of each "
            "process; begin a process for each device (--processes), and let it see that one alone "
            "(CUDA_VISIBLE_DEVICES)",
            file=sys.stderr,
        )
    return [firsts[process] for process in sorted(firsts)]
