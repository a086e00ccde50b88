"""Compares the Gram kernels with OpenBLAS's dsyrk, in turns, on one core.

    python benches/gram.py --record benches/record/NAME.json

Needs numpy, cargo and scipy, which brings OpenBLAS. Each round measures headwater and OpenBLAS for
every number of columns k. Figures are medians over the rounds, in operations per second of CPU
time, with k (k + 1) operations per row. Ratios are medians of the ratios of each round. OpenBLAS
runs with the kernel of its own choice and with two given kernels; `ratio` is to the fastest.
Rows of 32 bits are widened for OpenBLAS, because it has no kernel that sums them in 64 bits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import prepare

ROOT = Path(__file__).resolve().parent.parent
CHUNK_ROWS = 4096
COLUMNS = (64, 256, 1024, 2048)
TARGETS = {
    "f64": {64: 1.5, 256: 1.4, 1024: 1.25, 2048: 1.2},
    "f32": dict.fromkeys(COLUMNS, 1.5),
}
# The kernels of OpenBLAS that are measured; "" is its own choice.
CORE_TYPES = ("", "SkylakeX", "SapphireRapids")


def build() -> str:
    """Builds the benchmark in Rust; returns the path of its executable."""
    command = ["cargo", "bench", "--bench", "gram", "--no-default-features"]
    command += ["--no-run", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(
        m["executable"]
        for m in messages
        if m.get("target", {}).get("name") == "gram" and m.get("executable")
    )


def kernel_turn(
    bench: str, kernel: str, dtype: str, columns: int, seconds: float
) -> dict[str, float]:
    """Measures a kernel of headwater once."""
    command = [bench, "--kernel", kernel, "--dtype", dtype, "--columns", str(columns)]
    command += ["--seconds", str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def two_kernels_at_once(bench: str, kernel: str, dtype: str, columns: int, seconds: float) -> float:
    """Returns the mean speed of two processes of a kernel that run at the same time."""
    with ThreadPoolExecutor(2) as both:
        turns = [both.submit(kernel_turn, bench, kernel, dtype, columns, seconds) for _ in range(2)]
    return statistics.mean(turn.result()["gflops"] for turn in turns)


def openblas_turn(core_type: str, dtype: str, columns: int, seconds: float) -> float:
    """Measures OpenBLAS in a new process, because a process chooses its kernel once."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    command = [sys.executable, __file__, "--turn", dtype, str(columns), str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return float(done.stdout)


def dsyrk_speed(dtype: str, columns: int, seconds: float) -> float:
    """Returns 10^9 operations per second of CPU time of dsyrk on a chunk."""
    import numpy
    from scipy.linalg.blas import dsyrk

    rows = numpy.random.default_rng(1).uniform(-1, 1, (CHUNK_ROWS, columns))
    rows = rows.astype(dtype.replace("f", "float"))
    wide = numpy.empty((CHUNK_ROWS, columns))
    sums = numpy.zeros((columns, columns), order="F")

    def one_chunk() -> None:
        if rows.dtype == wide.dtype:
            dsyrk(1.0, rows.T, c=sums, overwrite_c=1)
        else:
            numpy.copyto(wide, rows)
            dsyrk(1.0, wide.T, c=sums, overwrite_c=1)

    one_chunk()
    chunks, took, start = 0, 0.0, time.thread_time()
    while took < seconds:
        one_chunk()
        chunks += 1
        took = time.thread_time() - start
    return columns * (columns + 1) * CHUNK_ROWS * chunks / took / 1e9


def measure(bench: str, rounds: int, seconds: float, kernels: list[str]) -> list[dict[str, object]]:
    """Measures all cases in turns; returns their medians."""
    cases = [(dtype, columns) for dtype in TARGETS for columns in COLUMNS]
    found: dict[tuple[str, int, str], list[float]] = {}
    for _ in range(rounds):
        for dtype, columns in cases:
            for core_type in CORE_TYPES:
                speed = openblas_turn(core_type, dtype, columns, seconds)
                found.setdefault((dtype, columns, f"openblas {core_type}"), []).append(speed)
            for kernel in kernels:
                case = kernel_turn(bench, kernel, dtype, columns, seconds)
                for name in ("gflops", "peak_gflops", "share_of_peak"):
                    found.setdefault((dtype, columns, f"{kernel} {name}"), []).append(case[name])
    lines = []
    for dtype, columns in cases:
        of_case = {name: v for (d, k, name), v in found.items() if (d, k) == (dtype, columns)}
        medians = {name: statistics.median(values) for name, values in of_case.items()}
        best = max((n for n in medians if n.startswith("openblas")), key=medians.__getitem__)
        own = of_case[f"{kernels[0]} gflops"]
        line: dict[str, object] = {"dtype": dtype, "columns": columns, **medians}
        line["ratio"] = paired(own, of_case[best])
        line["ratio_to_its_own_choice"] = paired(own, of_case["openblas "])
        line["target"] = TARGETS[dtype][columns]
        lines.append({k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()})
    return lines


def paired(numerators: list[float], denominators: list[float]) -> float:
    """Returns the median ratio of two series, round by round: both have the same disturbances."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def main() -> None:
    """Measures, prints and records all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="CPU time of a turn")
    parser.add_argument("--kernels", nargs="+", default=["avx512", "avx2"])
    parser.add_argument("--record", type=Path, help="write the figures here")
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.turn:
        dtype, columns, seconds = options.turn
        print(dsyrk_speed(dtype, int(columns), float(seconds)))
        return
    import scipy

    heading = prepare.heading("Gram kernels beside OpenBLAS")
    cases = measure(build(), options.rounds, options.seconds, options.kernels)
    record = {
        **heading,
        "scipy": scipy.__version__,
        "cases": cases,
    }
    prepare.publish(record, options.record)


if __name__ == "__main__":
    main()
