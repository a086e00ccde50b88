"""The flags of XLA that a run needs; no import of JAX, which reads them when it starts."""

from __future__ import annotations

import os


def set_deterministic_flags() -> None:
    """Makes XLA choose GPU kernels that add in a fixed order, unless XLA_FLAGS decides already.

    It has an effect only before the first use of a device.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_deterministic_ops" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
