"""Functions that the examples share: make rows, fold them under mpirun, find its processes."""

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
    """Writes a matrix; returns a command that folds it in small chunks for some seconds."""
    rows = np.random.default_rng(3).standard_normal((150_000, 200), np.float32)
    np.save(folder / "x.npy", rows)
    command = ["headwater-reduce", "gram", "--input", folder / "x.npy", "--out", folder / "g.npy"]
    return [*map(str, command), "--chunk-rows", "8", "--block-chunks", "64", "--threads", "1"]


def mpirun(ranks: int, command: list[str], *options: str) -> list[str]:
    """Returns the command that runs `command` on some ranks."""
    return ["mpirun", "--oversubscribe", "-n", str(ranks), *options, *command]


def last_line(output: str) -> dict:
    """Returns the JSON object on the last line of a run's output."""
    return json.loads(output.splitlines()[-1])


def done(command: list[str]) -> dict:
    """Runs a command to its end; returns the JSON object on its last line."""
    return last_line(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


@contextlib.contextmanager
def begun(command: list[str], checkpoints: Path) -> Iterator[subprocess.Popen]:
    """Starts a run, waits for its first checkpoint, and ends it with the `with` block."""
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not list(checkpoints.glob("*.portion")):
            assert run.poll() is None, "the run ended before its first checkpoint"
            assert time.monotonic() < deadline, "the run wrote no checkpoint within 60 s"
            time.sleep(0.005)
        yield run
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(60)


def ranks_of(run: subprocess.Popen) -> dict[int, int]:
    """Returns the process id of each rank that mpirun has started on this machine, from /proc."""
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
    """Kills a process with SIGKILL."""
    # After the death of one rank, mpirun may have ended the others already.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
