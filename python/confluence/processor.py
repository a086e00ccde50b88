"""The kind of this machine's processor; no import of JAX, which calls each one "cpu"."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path

_KINDS = ("model name", "flags", "Features", "CPU part")


@functools.cache
def processor() -> str:
    """Returns the name of the processor, with a digest of what tells its kind from others.

    Two processors of one name may have other instructions, above all in virtual machines.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        lines = []
    found = [line for line in lines if line.startswith(_KINDS)]
    text = "\n".join([platform.machine(), platform.processor(), *found])
    names = [line.partition(":")[2].strip() for line in found if line.startswith("model name")]
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{(names or [platform.machine()])[0]} ({digest})"


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
