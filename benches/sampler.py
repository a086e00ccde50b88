"""Measures the sampler on TPC-H: what a batch costs, the hand-over to Python, and resuming.

    python benches/sampler.py --scale 1 --record benches/record/NAME.json

Needs the `headwater` package and `tpchgen-cli` (`make bench` installs both). Runs on one core, but
for what is said to be on two. A process checks each block of the store when it first reads it, so
that the first batches cost more: `warm` is what batches 1,000 to 3,000 cost.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import prepare

import headwater

HEADWATER = str(Path(sys.executable).parent / "headwater")
ONE_CORE = {min(os.sched_getaffinity(0))}
WARM_FROM, WARM_TO = 1000, 3000


def bench(store: Path, batches: int, *options: str, cores: set[int] = ONE_CORE) -> dict[str, float]:
    """Runs `headwater bench`; returns its last line."""
    command = [HEADWATER, "bench", str(store), "--batches", str(batches), *options]
    print("$", " ".join(command), flush=True)
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(done.stdout.splitlines()[-1])


def cost(store: Path, *options: str, cores: set[int] = ONE_CORE) -> dict[str, float]:
    """What batches cost at first, and when the store has been read before."""
    first = bench(store, 200, *options, cores=cores)
    some, more = (bench(store, batches, *options, cores=cores) for batches in (WARM_FROM, WARM_TO))

    def warm(total: Callable[[dict[str, float]], float]) -> float:
        return (total(more) - total(some)) / (WARM_TO - WARM_FROM)

    return {
        "first_200_cpu_ms_per_batch": round(first["cpu_ms_per_batch"], 2),
        "warm_cpu_ms_per_batch": round(warm(lambda m: m["cpu_ms_per_batch"] * m["batches"]), 2),
        "warm_wall_ms_per_batch": round(warm(lambda m: 1e3 / m["batches_per_s"] * m["batches"]), 2),
        "bytes_per_batch": more["bytes_per_batch"],
        "rows_per_sequence": round(more["rows_per_sequence"], 1),
        "padding_share": round(more["padding_share"], 3),
        "open_ms": round(first["open_ms"], 1),
    }


def hand_over(store: Path) -> dict[str, float]:
    """What Python adds to a batch: the time of a call while made batches wait."""
    sampler = headwater.Sampler(store, num_prefetch=64, num_threads=1, default_batch_size=4)
    for _ in range(100):
        sampler.next_train_batch()
    times = []
    for _ in range(4):
        time.sleep(2)
        for _ in range(40):
            started = time.perf_counter()
            sampler.next_train_batch()
            times.append((time.perf_counter() - started) * 1e6)
    sampler.shutdown()
    return {"python_call_us_median": round(statistics.median(times), 1)}


def resume(store: Path) -> dict[str, float]:
    """How long resuming takes near the beginning and far from it, on a sampler that is there."""
    sampler = headwater.Sampler(store, num_prefetch=0, num_threads=1)
    near = sampler.cursor()
    started = time.perf_counter()
    sampler.resume(near)
    result = {"resume_at_0_ms": round((time.perf_counter() - started) * 1e3, 3)}
    for _ in range(1000):
        sampler.next_train_batch()
    far = sampler.cursor()
    started = time.perf_counter()
    sampler.resume(far)
    result["resume_at_1000_ms"] = round((time.perf_counter() - started) * 1e3, 3)
    return result


def page_faults(store: Path) -> dict[str, float]:
    """Page faults of a batch once the store and the buffers have been touched."""
    sampler = headwater.Sampler(store, num_prefetch=0, num_threads=1, tasks=["customer.c_acctbal"])
    cursor = sampler.cursor()
    for _ in range(200):
        sampler.next_train_batch()
    # The same batches again: all that they read was read before.
    sampler.resume(cursor)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        sampler.next_train_batch()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return {"page_faults_per_batch": (after - before) / 200}


def main() -> None:
    """Runs the measurements and writes them down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=int, default=1, help="TPC-H scale factor (default 1)")
    parser.add_argument("--work", type=Path, default=prepare.HERE.parent / "target" / "bench")
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    source = prepare.tpch(args.work, args.scale)
    store = args.work / f"tpch-sf{args.scale}-with-texts.db"
    prepare.prepare(source, store)
    two = set(sorted(os.sched_getaffinity(0))[:2])
    record = {
        "what": f"headwater sampler, TPC-H scale factor {args.scale}, 4 cell tasks, B=32 S=1024",
        "date": datetime.date.today().isoformat(),
        "commit": prepare.commit(),
        "command": " ".join(["python", "benches/sampler.py", *sys.argv[1:]]),
        "machine": prepare.machine(),
        "full": cost(store, "--threads", "1"),
        "compact": cost(store, "--threads", "1", "--compact"),
        "texts_global": cost(store, "--threads", "1", "--texts", "global"),
        "compact_texts_global": cost(store, "--threads", "1", "--compact", "--texts", "global"),
        "full_2_threads": cost(store, "--threads", "2", cores=two),
        "cuthill_mckee": cost(store, "--threads", "1", "--row-order", "cuthill-mckee"),
        **hand_over(store),
        **resume(store),
        **page_faults(store),
    }
    text = json.dumps(record, indent=2)
    print(text)
    if args.record:
        args.record.write_text(text + "\n")


if __name__ == "__main__":
    main()
