"""Programs that use JAX, each in several processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def saved_by(program, processes, devices_each, out, *arguments, seconds):
    """Runs a program in several processes of JAX; returns the arrays that each saves.

    Its arguments are its number, that of all processes, a port, `out` and `arguments`; process N
    saves its arrays as `out`-N.npz.
    """
    flags = f"--xla_force_host_platform_device_count={devices_each}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    shared = [str(processes), str(free_port()), str(out), *map(str, arguments)]
    files = [Path(f"{out}-{process}.errors") for process in range(processes)]
    children = []
    for process, file in enumerate(files):
        with file.open("w") as errors:
            command = [sys.executable, "-c", program, str(process), *shared]
            children.append(subprocess.Popen(command, env=environment, stderr=errors))
    end = time.monotonic() + seconds

    def told():
        return "\n".join(file.read_text() for file in files)

    try:
        # One that fails would leave the others waiting for it.
        while None in (codes := [child.poll() for child in children]) and not any(codes):
            assert time.monotonic() < end, told()
            time.sleep(0.05)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert not any(codes), told()
    return [dict(np.load(f"{out}-{process}.npz")) for process in range(processes)]
