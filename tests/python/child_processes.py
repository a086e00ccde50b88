"""Programs that run in processes of their own: of JAX, of PyTorch."""

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


# How a program of several processes of JAX begins.
_JOINING = """
import sys
import jax
import numpy as np

process, processes, port, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
"""


def run_each(programs, out, *, seconds, **environment):
    """Runs programs of Python at once, each with its arguments; fails if one of them does.

    What they say of errors goes to files that begin with `out`.
    """
    files = [Path(f"{out}-{number}.errors") for number in range(len(programs))]
    children = []
    for (program, *arguments), file in zip(programs, files, strict=True):
        with file.open("w") as errors:
            command = [sys.executable, "-c", program, *map(str, arguments)]
            children.append(subprocess.Popen(command, env=os.environ | environment, stderr=errors))
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


def saved_by(program, processes, devices_each, out, *arguments, seconds):
    """Runs a program in several processes of JAX; returns the arrays that each saves.

    It has its number as `process`, that of all as `processes`, and `out`; process N saves its
    arrays as `out`-N.npz. The other arguments begin with `sys.argv[5]`.
    """
    flags = f"--xla_force_host_platform_device_count={devices_each}"
    shared = [processes, free_port(), out, *arguments]
    programs = [[_JOINING + program, process, *shared] for process in range(processes)]
    run_each(programs, out, seconds=seconds, JAX_PLATFORMS="cpu", XLA_FLAGS=flags)
    return [dict(np.load(f"{out}-{process}.npz")) for process in range(processes)]


def listening(process):
    """Returns the addresses of IPv4 at which a process listens, as Linux writes them."""
    folder = Path("/proc") / str(process)
    opened = {os.readlink(link) for link in (folder / "fd").iterdir()}
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in (folder / "net" / name).read_text().splitlines()[1:]
    ]
    # Of a line: the address and port, the state (0A: it listens), the socket.
    found = [of[1] for of in lines if of[3] == "0A" and f"socket:[{of[9]}]" in opened]
    # An address of IPv6 ends with that of IPv4 for which it stands.
    return {address.split(":")[0][-8:] for address in found}
