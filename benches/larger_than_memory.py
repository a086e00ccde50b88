"""Measures batches of a store that is four times as large as memory.

    python benches/larger_than_memory.py --record benches/record/NAME.json

Needs what `benches/sampler.py` needs, and Linux: it makes control groups of its own, in which
`headwater bench` runs with little memory, and beside it a program that reads as many blocks of 16
KiB at random places, 32 at a time. Where no group may be made it says so and measures nothing.
The files of the store leave memory before each run. `--headwater` names the command, so that two
builds can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import prepare
import sampler

BLOCK_BYTES = 16 * 1024
IN_FLIGHT = 32
WARM_UP = 20
COMPACT = ["--compact", "--texts", "global"]


@contextlib.contextmanager
def group(limit_bytes: int) -> Iterator[Path]:
    """Makes a control group with so much memory."""
    roots = {"memory": "/sys/fs/cgroup/memory", "": "/sys/fs/cgroup"}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        made = None
        try:
            made = Path(tempfile.mkdtemp(prefix="headwater-", dir=roots[controllers] + path))
            names = [made / name for name in ("memory.max", "memory.limit_in_bytes")]
            limit = next(name for name in names if name.exists())
            limit.write_text(str(limit_bytes))
        except (KeyError, OSError, StopIteration):
            if made is not None:
                made.rmdir()
            continue
        try:
            yield made
        finally:
            time.sleep(0.2)  # A process that has just ended still counts.
            made.rmdir()
        return
    sys.exit("skipped: this process may make no control group with a limit of memory below its own")


def evict(store: Path) -> None:
    """Has the system forget the pages of a store."""
    for path in store.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def limited(command: list[str], limit_bytes: int, timeout_s: float) -> tuple[str | None, int]:
    """Runs a command with so much memory; returns its output, and the bytes it had read.

    The output is None when it took too long.
    """
    print("$", " ".join(command), f"# {limit_bytes / 1e6:.0f} MB", flush=True)
    with group(limit_bytes) as own, tempfile.TemporaryFile("w+") as output:

        def join() -> None:
            (own / "cgroup.procs").write_text(str(os.getpid()))

        child = subprocess.Popen(command, stdout=output, preexec_fn=join)
        killer = threading.Timer(timeout_s, child.kill)
        killer.start()
        _, status, usage = os.wait4(child.pid, 0)
        killer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, -9):
            sys.exit(f"{command[0]} ended with status {child.returncode}")
        output.seek(0)
        return (output.read() if child.returncode == 0 else None), usage.ru_inblock * 512


def batches(
    headwater: str, store: Path, options: list[str], limit_bytes: int, count: int, timeout_s: float
) -> dict[str, object]:
    """Measures a batch, and as many reads by themselves as one takes."""
    evict(store)
    command = [headwater, "bench", str(store), "--threads", "1", "--batches", str(count), *options]
    output, read = limited(command, limit_bytes, timeout_s)
    if output is None:
        return {"memory_mb": limit_bytes / 1e6, "batches_not_made_in_s": timeout_s}
    found = json.loads(output.splitlines()[-1])
    blocks = read // (count + WARM_UP) // BLOCK_BYTES
    evict(store)
    reads = [sys.executable, __file__, "--only-read", str(store), str(blocks * count)]
    alone, _ = limited(reads, limit_bytes, timeout_s)
    assert alone is not None
    reads_ms = float(alone) * 1e3 / count
    batch_ms = 1e3 / found["batches_per_s"]
    return {
        "memory_mb": round(limit_bytes / 1e6),
        "wall_ms_per_batch": round(batch_ms, 1),
        "cpu_ms_per_batch": round(found["cpu_ms_per_batch"], 1),
        "blocks_read_per_batch": blocks,
        "as_many_preads_ms": round(reads_ms, 1),
        "batch_over_preads": round(batch_ms / reads_ms, 2) if reads_ms else None,
        "digest": found["digest"],
    }


def only_read(store: Path, count: int) -> float:
    """Reads so many blocks of the store's largest file, 32 at a time; returns the seconds."""
    largest = max(store.rglob("*.bin"), key=lambda path: path.stat().st_size)
    descriptor = os.open(largest, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    draw = random.Random(1)
    blocks = [draw.randrange(largest.stat().st_size // BLOCK_BYTES) for _ in range(count)]

    def read(part: list[int]) -> None:
        for block in part:
            os.pread(descriptor, BLOCK_BYTES, block * BLOCK_BYTES)

    parts = [blocks[place::IN_FLIGHT] for place in range(IN_FLIGHT)]
    threads = [threading.Thread(target=read, args=(part,)) for part in parts]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - started


def main() -> None:
    """Runs the measurements and records them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.5, help="TPC-H scale factor (default .5)")
    parser.add_argument("--store", type=Path, help="an existing store in place of TPC-H")
    parser.add_argument("--headwater", default=sampler.HEADWATER, help="the command to measure")
    parser.add_argument("--batches", type=int, default=100, help="batches of a run (default 100)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument("--timeout", type=float, default=100, help="seconds of a run (default 100)")
    parser.add_argument("--work", type=Path, default=prepare.HERE.parent / "target" / "bench")
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    parser.add_argument("--only-read", nargs=2, metavar=("STORE", "COUNT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only_read:
        print(only_read(Path(args.only_read[0]), int(args.only_read[1])))
        return
    heading = prepare.heading(
        "Batches of a store larger than memory, B=32 S=1024 width 16, one thread asked for. "
        "The limit is a quarter of the whole store, or of its files without vectors of texts."
    )
    store = args.store or sampler.made_store(args.work, args.scale)
    whole = prepare.folder_bytes(store)
    without = whole - (store / "text_embeddings.bin").stat().st_size
    kinds = {
        "full, a quarter of the store": ([], whole // 4),
        "compact and global texts, a quarter of the store": (COMPACT, whole // 4),
        "compact and global texts, a quarter of what they read": (COMPACT, without // 4),
    }
    measured: dict[str, list[dict[str, object]]] = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind, (options, limit) in kinds.items():
            one = batches(args.headwater, store, options, limit, args.batches, args.timeout)
            measured[kind].append(one)
            print(kind, one, flush=True)
    record = {**heading, "store_mb": round(whole / 1e6), "runs": measured}
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()
