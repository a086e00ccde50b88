"""The keys of compiled programs in JAX's cache folder, equal on all ranks of a run on CPUs.

Only rank 0 writes what it compiles to the folder, and JAX's key of a program holds the number of
the device, which differs from rank to rank: the other ranks would compile all their programs at
each start. For GPUs JAX leaves the number out itself. A program that was compiled for one device
gives the same bits on another of the same kind.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# Private, so pyproject.toml bounds the version of JAX.
from jax._src import cache_key


@cache
def leave_out_device_numbers() -> None:
    """Leaves the number of the device out of the keys of programs that run on one device."""
    hash_options = cache_key._hash_serialized_compile_options
    hash_devices = cache_key._hash_accelerator_config

    def options_without_number(
        hash_obj: Any, compile_options_obj: Any, strip_device_assignment: bool = False
    ) -> None:
        devices = compile_options_obj.device_assignment
        is_one = devices and devices.replica_count() * devices.computation_count() == 1
        hash_options(hash_obj, compile_options_obj, strip_device_assignment or bool(is_one))

    def devices_without_number(hash_obj: Any, accelerators: Any) -> None:
        is_one_cpu = accelerators.size == 1 and accelerators.item().platform == "cpu"
        (cache_key._hash_devices if is_one_cpu else hash_devices)(hash_obj, accelerators)

    cache_key._hash_serialized_compile_options = options_without_number
    cache_key._hash_accelerator_config = devices_without_number
