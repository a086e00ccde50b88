"""Measures `headwater-reduce gram` on two ranks, beside its kernel and the reading of its file.

    python benches/reduce.py --record benches/record/NAME.json

Needs numpy, cargo, the build of `make setup`, and 4 GB in target/bench for each file. With many
columns the kernel limits a fold: both are measured in operations per second of CPU time. With few
columns the reading of the file limits it: both are measured in bytes per second of CPU time, with
the file in the page cache and `read` into one buffer. Two ranks are also compared with two kernels
that run at once, because cores that are hyperthreads of one core slow each other down.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import gram
import numpy
import prepare

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
CASES = ((16, "f32", "read", 0.70), (1024, "f64", "kernel", 0.85))
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def matrix(columns: int, dtype: str, size: int) -> Path:
    """Returns the path of a file of random rows; writes it if it is missing."""
    path = ROOT / "target" / "bench" / f"rows-{columns}-{dtype}-{size}.npy"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = numpy.dtype(dtype.replace("f", "float"))
    rows = size // (columns * kind.itemsize)
    some = numpy.random.default_rng(1).standard_normal((1 << 24) // columns * columns)
    some = some.astype(kind).reshape(-1, columns)
    partial = path.with_suffix(".partial")
    target = numpy.lib.format.open_memmap(partial, "w+", kind, (rows, columns))
    for first in range(0, rows, len(some)):
        target[first : first + len(some)] = some[: rows - first]
    del target
    partial.rename(path)
    return path


def command(path: Path) -> dict[str, float]:
    """Runs the command on two ranks of one thread; its CPU time is that of both ranks."""
    run = [BIN / "mpirun", "--oversubscribe", "-n", "2", BIN / "headwater-reduce", "gram"]
    run += ["--input", path, "--out", path.with_suffix(".gram.npy"), "--threads", "1"]
    environment = {**os.environ, **MPI_AS_ROOT}
    # The last line decides, not the exit status of mpirun.
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def read(path: Path) -> float:
    """Returns the seconds of CPU time to read the file."""
    buffer = memoryview(bytearray(1 << 20))
    start = time.process_time()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.process_time() - start


def measure(case: tuple[int, str, str, float], size: int, rounds: int) -> dict[str, object]:
    """Measures a case in turns; returns its record."""
    columns, dtype, floor, target = case
    path, bench = matrix(columns, dtype, size), gram.build()
    speeds, floors, pairs = [], [], []
    read(path)
    for _ in range(rounds):
        done = command(path)
        operations = columns * (columns + 1) * done["rows"]
        if floor == "read":
            speeds.append(size / done["cpu_seconds"] / 1e9)
            floors.append(size / read(path) / 1e9)
        else:
            speeds.append(operations / done["cpu_seconds"] / 1e9)
            floors.append(gram.kernel_turn(bench, "avx512", dtype, columns, 1.0)["gflops"])
            pairs.append(gram.two_kernels_at_once(bench, "avx512", dtype, columns, 1.0))
    beside = {"two_kernels_at_once": pairs} if pairs else {}
    return {
        "columns": columns,
        "dtype": dtype,
        "bytes": size,
        "unit": "GB per CPU second" if floor == "read" else "GFLOP per CPU second",
        "command": round(statistics.median(speeds), 2),
        floor: round(statistics.median(floors), 2),
        "ratio": round(gram.paired(speeds, floors), 3),
        "target": target,
        **{name: round(statistics.median(of), 2) for name, of in beside.items()},
        **{f"ratio_to_{name}": round(gram.paired(speeds, of), 3) for name, of in beside.items()},
        "seconds": done["seconds"],
    }


def main() -> None:
    """Measures, prints and records all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=4 << 30, help="bytes of each file")
    parser.add_argument("--record", type=Path, help="write the figures here")
    options = parser.parse_args()
    heading = prepare.heading("The whole of headwater-reduce gram on two ranks")
    cases = [measure(case, options.size, options.rounds) for case in CASES]
    prepare.publish({**heading, "cases": cases}, options.record)


if __name__ == "__main__":
    main()
