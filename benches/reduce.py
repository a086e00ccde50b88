"""Measures `headwater-reduce gram` as a whole, on two ranks, beside what it is made of.

    python benches/reduce.py --record benches/record/NAME.json

Needs numpy, cargo, what `make setup` builds, and 4 GB in target/bench for each file. Where a row
has many columns, a fold is as fast as its kernel: both in operations per second of CPU time. Where
it has few, it is as fast as the file can be read: both in bytes per second of CPU time, with the
file in the page cache, read through `read` into one buffer. Two ranks are also held against two
kernels at once, as cores that are halves of one are slower together.
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
    """A file of random rows, made once."""
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
    """One run on two ranks of one thread; the CPU time is that of both."""
    run = [BIN / "mpirun", "--oversubscribe", "-n", "2", BIN / "headwater-reduce", "gram"]
    run += ["--input", path, "--out", path.with_suffix(".gram.npy"), "--threads", "1"]
    environment = {**os.environ, **MPI_AS_ROOT}
    done = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def read(path: Path) -> float:
    """Seconds of CPU time that reading the file takes."""
    buffer = memoryview(bytearray(1 << 20))
    start = time.process_time()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.process_time() - start


def measure(case: tuple[int, str, str, float], size: int, rounds: int) -> dict[str, object]:
    """One case, turn by turn."""
    columns, dtype, floor, target = case
    path, bench = matrix(columns, dtype, size), gram.build()
    ours, floors, shared = [], [], []
    read(path)
    for _ in range(rounds):
        done = command(path)
        operations = columns * (columns + 1) * done["rows"]
        if floor == "read":
            ours.append(size / done["cpu_seconds"] / 1e9)
            floors.append(size / read(path) / 1e9)
        else:
            ours.append(operations / done["cpu_seconds"] / 1e9)
            floors.append(gram.ours(bench, "avx512", dtype, columns, 1.0)["gflops"])
            shared.append(gram.two_at_once(bench, "avx512", dtype, columns, 1.0))
    beside = {"two_kernels_at_once": shared} if shared else {}
    return {
        "columns": columns,
        "dtype": dtype,
        "bytes": size,
        "unit": "GB per CPU second" if floor == "read" else "GFLOP per CPU second",
        "command": round(statistics.median(ours), 2),
        floor: round(statistics.median(floors), 2),
        "ratio": round(gram.paired(ours, floors), 3),
        "target": target,
        **{name: round(statistics.median(of), 2) for name, of in beside.items()},
        **{f"ratio_to_{name}": round(gram.paired(ours, of), 3) for name, of in beside.items()},
        "seconds": done["seconds"],
    }


def main() -> None:
    """Measures, prints, records."""
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
