"""Measures `headwater prepare` on TPC-H, and the store that it makes.

    python benches/prepare.py --scale 1 --record benches/record/NAME.json
    python benches/prepare.py --scale 1 --parts 4 --record benches/record/NAME.json

Needs the `headwater` package and `tpchgen-cli` (`make bench` installs both). Times are CPU seconds
of the whole process as the operating system accounts them, the median of several runs with one and
two threads, each on as many cores, in turn; on a shared machine wall time says little. With
`--parts N`, the reading is divided among N processes, one after another, each on one core.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
READERS = 8
CACHE = ("level", "type", "size")
INSTRUCTIONS = ["avx512f", "avx2", "avx", "sse4_2"]
READER = """
import sys, headwater
store = headwater.Store(sys.argv[1])
store.verify()
print("ready", flush=True)
sys.stdin.readline()
"""


def run(command: list[str], cores: int | None = None) -> dict[str, float]:
    """Runs a command to its end, on some of the cores; returns its times and its memory."""
    print("$", " ".join(command), flush=True)
    if cores:
        command = ["taskset", "--cpu-list", f"0-{cores - 1}", *command]
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command[0]} ended with status {child.returncode}")
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "wall_s": time.monotonic() - started,
        "peak_rss_mb": usage.ru_maxrss / 1000,
    }


def median(runs: list[dict[str, float]]) -> dict[str, object]:
    """Returns the median of each figure, and the seconds of every run."""
    medians: dict[str, object] = {
        name: round(statistics.median(r[name] for r in runs), 2) for name in runs[0]
    }
    each = {
        f"{name}_of_each_run": [round(r[name], 2) for r in runs] for name in ("cpu_s", "wall_s")
    }
    return medians | each


def folder_bytes(folder: Path) -> int:
    """Returns the total size of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def prepare(
    source: Path,
    out: Path,
    *options: str,
    schema: Path = HERE / "tpch.toml",
    cores: int | None = None,
) -> dict[str, float]:
    """Prepares a store, on some of the cores; replaces an existing one."""
    shutil.rmtree(out, ignore_errors=True)
    command = [str(BIN / "headwater"), "prepare", str(source), "--schema", str(schema)]
    return run([*command, "--out", str(out), *options], cores)


def root_of(store: Path) -> str:
    """Returns the root digest of a store."""
    return str(json.loads((store / "metadata.json").read_text())["root"])


def in_parts(source: Path, work: Path, count: int, runs: int) -> dict[str, object]:
    """Measures a preparation in parts beside one of a single process, in turn, on one core."""
    parts, store, whole = work / "parts", work / "merged.db", work / "whole.db"
    of_whole, of_merge = [], []
    of_parts: list[list[dict[str, float]]] = [[] for _ in range(count)]
    same_root = True
    threads = ["--threads", "1"]
    for _ in range(runs):
        of_whole.append(prepare(source, whole, "--no-text-vectors", *threads, cores=1))
        shutil.rmtree(parts, ignore_errors=True)
        command = [str(BIN / "headwater"), "prepare", str(source)]
        command += ["--schema", str(HERE / "tpch.toml"), "--out", str(parts), *threads]
        for number, figures in enumerate(of_parts, 1):
            figures.append(run([*command, "--part", f"{number}/{count}"], 1))
        merge = ["--merge", str(parts), "--no-text-vectors", *threads]
        of_merge.append(prepare(source, store, *merge, cores=1))
        same_root &= root_of(store) == root_of(whole)
    figures = {
        "parts": count,
        "parts_mb": round(folder_bytes(parts) / 1e6, 1),
        "whole": median(of_whole),
        "each_part": [median(figures) for figures in of_parts],
        "merge": median(of_merge),
        "same_root": same_root,
    }
    for folder in (parts, store, whole):
        shutil.rmtree(folder)
    return figures


def tpch(work: Path, scale: float) -> Path:
    """Returns the folder of TPC-H's tables as Parquet files; generates missing ones."""
    work.mkdir(parents=True, exist_ok=True)
    source = work / f"tpch-sf{scale:g}"
    if not source.exists():
        partial = source.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        generate = [str(BIN / "tpchgen-cli"), "parquet", "-s", str(scale)]
        run([*generate, "--output-dir", str(partial)])
        partial.rename(source)
    return source


def open_times(store: Path) -> dict[str, float]:
    """Measures the time to open a store, in milliseconds."""
    import headwater

    times = []
    for _ in range(20):
        started = time.process_time()
        headwater.Store(store)
        times.append((time.process_time() - started) * 1000)
    return {"open_cpu_ms_median": round(statistics.median(times), 2)}


def proportional_mb(pid: int, below: Path) -> float:
    """Returns the process's share of the pages that are mapped from files below a folder."""
    total, is_below = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            is_below = str(below) in line
        elif is_below and line.startswith("Pss:"):
            total += int(line.split()[1])
    return total * 1024 / 1e6


def shared_pages(store: Path) -> dict[str, float]:
    """Measures the memory of a store's pages in eight processes that each read all of the store."""
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(READERS)
    ]
    try:
        for reader in readers:
            assert reader.stdout
            assert reader.stdout.readline().strip() == "ready"
        total = sum(proportional_mb(reader.pid, store.resolve()) for reader in readers)
    finally:
        for reader in readers:
            reader.communicate("\n")
    size = folder_bytes(store) / 1e6
    return {
        "readers": READERS,
        "store_mb": round(size, 1),
        "pss_mb": round(total, 1),
        "pss_over_store": round(total / size, 3),
    }


def machine() -> dict[str, object]:
    """Describes the machine with its caches and vector instructions."""
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in CACHE)
        caches[f"L{level} {kind.lower()}"] = size
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":")[1].strip() for line in info.splitlines() if "model name" in line]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "instructions": next((name for name in INSTRUCTIONS if name in info.split()), "unknown"),
        "caches": caches,
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def commit() -> str:
    """Returns the commit that is checked out, marked if the tree differs from it."""
    git = ["git", "-C", str(HERE)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    state = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"],
        capture_output=True,
        text=True,
        check=True,
    )
    return head.stdout.strip() + (" and changes" if state.stdout.strip() else "")


def heading(what: str) -> dict[str, object]:
    """Returns the head of a record; made before the measurements, because it records the load."""
    return {
        "what": what,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "command": " ".join(["python", f"benches/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "machine": machine(),
    }


def publish(record: dict[str, object], path: Path | None) -> None:
    """Prints a record, and writes it to a file if a path is given."""
    text = json.dumps(record, indent=2)
    print(text)
    if path:
        path.write_text(text + "\n")


def main() -> None:
    """Runs the measurements and records them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=int, default=1, help="TPC-H scale factor (default 1)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument(
        "--work",
        type=Path,
        default=HERE.parent / "target" / "bench",
        help="where data and stores go (default target/bench)",
    )
    parser.add_argument(
        "--no-embedding", action="store_true", help="leave out the run that embeds the texts"
    )
    parser.add_argument("--parts", type=int, help="measure a preparation in so many parts instead")
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    record = heading(f"headwater prepare, TPC-H scale factor {args.scale}")
    source = tpch(args.work, args.scale)
    record["source_mb"] = round(folder_bytes(source) / 1e6, 1)
    if args.parts:
        record |= in_parts(source, args.work, args.parts, args.runs)
        publish(record, args.record)
        if not record["same_root"]:
            sys.exit("the parts make another store")
        return

    out = args.work / f"tpch-sf{args.scale}.db"
    by_threads: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    roots = set()
    for _ in range(args.runs):
        for threads, runs in by_threads.items():
            options = ["--no-text-vectors", "--threads", str(threads)]
            runs.append(prepare(source, out, *options, cores=threads))
            roots.add(root_of(out))
    for threads, runs in by_threads.items():
        record[f"without_text_vectors_{threads}_threads"] = median(runs)
    record["same_root_whatever_the_threads"] = len(roots) == 1
    record["store_without_text_vectors_mb"] = round(folder_bytes(out) / 1e6, 1)
    record["open"] = open_times(out)
    record["shared_pages"] = shared_pages(out)
    record["verify"] = median([run([str(BIN / "headwater"), "verify", str(out)])])
    if not args.no_embedding:
        record["with_text_vectors_2_threads"] = median([prepare(source, out, "--threads", "2")])
        record["store_with_text_vectors_mb"] = round(folder_bytes(out) / 1e6, 1)
        metadata = json.loads((out / "metadata.json").read_text())
        record["texts"] = metadata["embedding"]["text_count"]
        record["open_with_text_vectors"] = open_times(out)
    shutil.rmtree(out)
    publish(record, args.record)
    if not record["same_root_whatever_the_threads"]:
        sys.exit("the number of threads changed the store")


if __name__ == "__main__":
    main()
