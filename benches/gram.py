"""Compares the Gram kernels with other libraries' dsyrk, in turns, on one core.

    python benches/gram.py [--library NAME=FILE ...] [--record FILE]
    python benches/gram.py --sums f32x128 [--record FILE]

Needs numpy, cargo and scipy, which brings OpenBLAS. `--library` adds a shared library with the
functions of CBLAS, such as mkl=libmkl_rt.so.2 or blis=libblis.so.4; MKL is measured in three of its
reproducible modes as well. Each round measures headwater and the others for every number of columns
k. Figures are medians over the rounds, in operations per second of CPU time, with k (k + 1)
operations per row. Ratios are medians of the ratios of each round. OpenBLAS runs with the kernel of
its own choice and with given kernels that this processor has; `ratio` is to the fastest of them.
Rows of 32 bits are widened for the others, because they have no kernel that sums them in 64 bits.

`--sums` measures that order of sums on rows of 32 bits beside headwater's sums of 64 bits, and no
other library.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import prepare

ROOT = Path(__file__).resolve().parent.parent
CHUNK_ROWS = 4096
COLUMNS = (64, 256, 1024, 2048)
TARGETS = {
    "f64": {64: 1.5, 256: 1.4, 1024: 1.25, 2048: 1.2},
    "f32": dict.fromkeys(COLUMNS, 1.5),
}
CPU_FLAGS = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
HAS_AVX512 = "avx512f" in CPU_FLAGS
# Of CBLAS: rows one after the other, the upper triangle, no transposition.
COLUMN_MAJOR, UPPER, AS_IT_IS = 102, 121, 111


@dataclasses.dataclass(frozen=True)
class Rival:
    """A library beside headwater, in a process of its own: it chooses its kernel once."""

    name: str
    environment: dict[str, str]
    # A library with the functions of CBLAS; none: the OpenBLAS of SciPy.
    library: str = ""

    def turn(self, dtype: str, columns: int, seconds: float) -> float:
        """Measures it once."""
        command = [sys.executable, __file__, "--turn", dtype, str(columns), str(seconds)]
        done = subprocess.run(
            [*command, self.library], check=True, stdout=subprocess.PIPE, text=True,
            env=os.environ | self.environment,
        )  # fmt: skip
        return float(done.stdout)


def rivals(libraries: dict[str, str]) -> list[Rival]:
    """Returns those that this processor can run, OpenBLAS with its own choice first."""
    core_types = ["", "Haswell", *(["SkylakeX", "SapphireRapids"] if HAS_AVX512 else [])]
    found = [
        Rival(
            f"openblas {core}",
            {"OPENBLAS_NUM_THREADS": "1"} | ({"OPENBLAS_CORETYPE": core} if core else {}),
        )
        for core in core_types
    ]
    for name, file in libraries.items():
        modes = [""]
        if name == "mkl":
            modes += ["COMPATIBLE", "AVX2,STRICT", *(["AVX512,STRICT"] if HAS_AVX512 else [])]
        for mode in modes:
            one_thread = {"MKL_NUM_THREADS": "1", "BLIS_NUM_THREADS": "1"}
            reproducible = {"MKL_CBWR": mode} if mode else {}
            found.append(Rival(f"{name} {mode}".rstrip(), one_thread | reproducible, file))
    return found


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
    bench: str, kernel: str, dtype: str, columns: int, seconds: float, sums: str = "f64"
) -> dict[str, float]:
    """Measures a kernel of headwater once."""
    command = [bench, "--kernel", kernel, "--dtype", dtype, "--columns", str(columns)]
    command += ["--seconds", str(seconds), "--sums", sums]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def two_kernels_at_once(bench: str, kernel: str, dtype: str, columns: int, seconds: float) -> float:
    """Returns the mean speed of two processes of a kernel that run at the same time."""
    with ThreadPoolExecutor(2) as both:
        turns = [both.submit(kernel_turn, bench, kernel, dtype, columns, seconds) for _ in range(2)]
    return statistics.mean(turn.result()["gflops"] for turn in turns)


Product = Callable[[npt.NDArray[np.float64], npt.NDArray[np.float64]], None]


def product_of(library: str) -> Product:
    """Returns the function that adds x^T x to sums: that of a library, or of SciPy's OpenBLAS."""
    if not library:
        from scipy.linalg.blas import dsyrk

        def by_scipy(x: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]) -> None:
            dsyrk(1.0, x.T, beta=1.0, c=sums, overwrite_c=1)

        return by_scipy
    # In view of all that it loads itself.
    loaded = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    one = ctypes.c_double(1)

    def by_cblas(x: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]) -> None:
        rows, k = x.shape
        # The rows are the columns of a matrix [k, rows].
        order = [COLUMN_MAJOR, UPPER, AS_IT_IS, k, rows]
        pointers: list[Any] = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, sums)]
        loaded.cblas_dsyrk(*order, one, pointers[0], k, one, pointers[1], k)

    return by_cblas


def dsyrk_speed(dtype: str, columns: int, seconds: float, library: str) -> float:
    """Returns 10^9 operations per second of CPU time of dsyrk on a chunk."""
    product = product_of(library)
    rows = np.random.default_rng(1).uniform(-1, 1, (CHUNK_ROWS, columns))
    rows = rows.astype(dtype.replace("f", "float"))
    wide = rows if rows.dtype == np.float64 else np.empty((CHUNK_ROWS, columns))
    sums = np.zeros((columns, columns), order="F")

    def one_chunk() -> None:
        if wide is not rows:
            np.copyto(wide, rows)
        product(wide, sums)

    one_chunk()
    expected = rows.astype(np.float64).T @ rows.astype(np.float64)
    np.testing.assert_allclose(np.triu(sums), np.triu(expected), rtol=1e-9, atol=1e-6)
    chunks, took, start = 0, 0.0, time.thread_time()
    while took < seconds:
        one_chunk()
        chunks += 1
        took = time.thread_time() - start
    return columns * (columns + 1) * CHUNK_ROWS * chunks / took / 1e9


def measure(
    bench: str, rounds: int, seconds: float, kernels: list[str], others: list[Rival]
) -> list[dict[str, object]]:
    """Measures all cases in turns; returns their medians."""
    cases = [(dtype, columns) for dtype in TARGETS for columns in COLUMNS]
    found: dict[tuple[str, int, str], list[float]] = {}
    for _ in range(rounds):
        for dtype, columns in cases:
            for other in others:
                speed = other.turn(dtype, columns, seconds)
                found.setdefault((dtype, columns, other.name), []).append(speed)
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


def measure_sums(
    bench: str, rounds: int, seconds: float, kernels: list[str], sums: str
) -> list[dict[str, object]]:
    """Measures an order of sums beside that of 64 bits, in turns; returns their medians."""
    lines = []
    for kernel in kernels:
        found: dict[tuple[int, str], list[float]] = {}
        for _ in range(rounds):
            for columns in COLUMNS:
                for order in ("f64", sums):
                    case = kernel_turn(bench, kernel, "f32", columns, seconds, order)
                    found.setdefault((columns, order), []).append(case["gflops"])
        for columns in COLUMNS:
            exact, other = found[columns, "f64"], found[columns, sums]
            line: dict[str, object] = {"kernel": kernel, "dtype": "f32", "columns": columns}
            line |= {"f64": statistics.median(exact), sums: statistics.median(other)}
            line |= {"ratio": paired(other, exact)}
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
    kernels = ["avx512", "avx2"] if HAS_AVX512 else ["avx2"]
    parser.add_argument("--kernels", nargs="+", default=kernels)
    parser.add_argument("--library", nargs="+", default=[], metavar="NAME=FILE")
    parser.add_argument("--sums", choices=["f32x128"], help="this order beside sums of 64 bits")
    parser.add_argument("--record", type=Path, help="write the figures here")
    parser.add_argument("--turn", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.turn:
        dtype, columns, seconds, library = options.turn
        print(dsyrk_speed(dtype, int(columns), float(seconds), library))
        return
    if options.sums:
        heading = prepare.heading(f"Gram kernels: sums of {options.sums} beside those of 64 bits")
        given = (options.rounds, options.seconds, options.kernels, options.sums)
        prepare.publish({**heading, "cases": measure_sums(build(), *given)}, options.record)
        return
    import scipy

    heading = prepare.heading("Gram kernels beside OpenBLAS and other libraries")
    others = rivals(dict(library.split("=", 1) for library in options.library))
    cases = measure(build(), options.rounds, options.seconds, options.kernels, others)
    record = {
        **heading,
        "scipy": scipy.__version__,
        "cases": cases,
    }
    prepare.publish(record, options.record)


if __name__ == "__main__":
    main()
