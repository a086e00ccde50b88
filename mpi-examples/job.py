"""What the examples share: rows, a fold of them under mpirun, and its processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np


def gram_of_rows(folder: Path) -> list[str]:
    """Makes a matrix; returns the command that folds it for some seconds, by small chunks."""
    rows = np.random.default_rng(3).standard_normal((150_000, 200), np.float32)
    np.save(folder / "x.npy", rows)
    command = ["headwater-reduce", "gram", "--input", folder / "x.npy", "--out", folder / "g.npy"]
    return [*map(str, command), "--chunk-rows", "8", "--block-chunks", "64", "--threads", "1"]


def mpirun(ranks: int, command: list[str], *options: str) -> list[str]:
    """The command as so many ranks."""
    return ["mpirun", "--oversubscribe", "-n", str(ranks), *options, *command]


def last_line(output: str) -> dict:
    """What a run says of its result."""
    return json.loads(output.splitlines()[-1])


def done(command: list[str]) -> dict:
    """Runs to the end; returns what it says of its result."""
    return last_line(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


@contextlib.contextmanager
def begun(command: list[str], checkpoints: Path) -> Iterator[subprocess.Popen]:
    """A run that has written a checkpoint; it is ended in any case."""
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not list(checkpoints.glob("*.portion")):
            assert run.poll() is None, "it ended before its first checkpoint"
            assert time.monotonic() < deadline, "no checkpoint in a minute"
            time.sleep(0.005)
        yield run
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(60)


def ranks_of(run: subprocess.Popen) -> dict[int, int]:
    """The process of each rank that this mpirun has started here, by what Linux tells."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if parent == run.pid and name == b"OMPI_COMM_WORLD_RANK":
                processes[int(value)] = int(entry.name)
    return processes


def kill(process: int) -> None:
    """Ends a process so that it can do nothing about it."""
    # Where one rank dies, mpirun may have been quicker with the others.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
