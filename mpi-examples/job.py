"""Functions that the examples share: make rows, fold them under mpirun, find its processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
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


def result(output: str) -> dict | None:
    """Returns the JSON object on the last line of a run's output; None without a result.

    This line decides, not the exit status of mpirun: it may report a failure after the result is
    written, and 0 when all ranks were killed.
    """
    lines = output.splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None


def done(command: list[str], seconds: int = 120) -> dict:
    """Runs a command to its end, which it must reach in time; returns its result."""
    with running(command) as run:
        output, _ = run.communicate(timeout=seconds)
    said = result(output)
    assert said is not None, f"the run has no result, and the exit status {run.returncode}"
    return said


@contextlib.contextmanager
def begun(command: list[str], has_begun: Callable[[], bool]) -> Iterator[subprocess.Popen]:
    """Starts a run, waits until `has_begun`, and ends it with the `with` block."""
    with running(command) as run:
        deadline = time.monotonic() + 60
        while not has_begun():
            assert run.poll() is None, "the run ended before it was killed"
            assert time.monotonic() < deadline, "the run did not begin within 60 s"
            time.sleep(0.005)
        yield run


def has_checkpoint(folder: Path) -> Callable[[], bool]:
    """Returns a function that tells whether a folder has a checkpoint."""
    return lambda: any(folder.glob("*.portion"))


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen]:
    """Starts a run, and ends it with the `with` block, also when mpirun hangs."""
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield run
    finally:
        if run.poll() is None:
            run.terminate()
            try:
                run.wait(30)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()


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
