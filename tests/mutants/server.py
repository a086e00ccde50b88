"""Runs pytest again and again, each time in a process forked from this one.

To import JAX and the other libraries takes longer than most tests, so it happens once. Reads a
line of JSON for each run, `{"tests": [...], "seconds": N}`, and answers with its exit status, or
-1 if it took too long.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import signal
import sys
import time

#: What the tests import, and what no mutant changes.
LIBRARIES = [
    "_pytest.junitxml", "_pytest.unittest", "duckdb", "hypothesis.strategies",
    "jax.experimental", "jax.numpy", "matplotlib.pyplot", "numpy.testing", "optax",
    "orbax.checkpoint", "pandas", "pdb", "polars", "pyarrow.parquet", "pytest", "scipy.linalg",
    "sklearn.ensemble", "sklearn.metrics", "torch.distributed", "torch.utils.data", "xdist.plugin",
]  # fmt: skip


def _run(tests: list[str]) -> int:
    import pytest

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    # A file that changes twice within a second would be read from what Python found before.
    importlib.invalidate_caches()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain"]
    return int(pytest.main([*options, *tests]))


def _wait(child: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    pause = 0.005
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return abs(os.waitstatus_to_exitcode(status))
        time.sleep(pause)
        pause = min(pause * 1.2, 0.1)
    return -1


def _end_group(child: int) -> None:
    """Ends what the tests started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name in LIBRARIES:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    # pytest collects garbage, which takes longer than most tests: not among the libraries, whose
    # memory it would copy.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = _run(asked["tests"])
            finally:
                os._exit(status)
        try:
            status = _wait(child, asked["seconds"])
        finally:
            _end_group(child)
        print(status, flush=True)


if __name__ == "__main__":
    main()
