"""One key for a program of one CPU, whichever rank of a run it is compiled for.

JAX keeps what rank 0 alone compiles, and its key holds the number of the device: each other rank
would compile all its programs anew at each start. For GPUs JAX leaves the number out itself. What
is kept for one device runs on another of the same kind with the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# Private, so pyproject.toml bounds the version of JAX.
from jax._src import cache_key


@cache
def leave_out_device_numbers() -> None:
    """Makes JAX key programs of one device by the kind of the device, until the process ends."""
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
