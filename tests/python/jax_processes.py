"""Programs that use JAX, each in several processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

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
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(process), *shared],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    try:
        errors = [child.communicate(timeout=seconds)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    for child, error in zip(children, errors, strict=True):
        assert child.returncode == 0, error
    return [dict(np.load(f"{out}-{process}.npz")) for process in range(processes)]
