"""Measures batches of an event store that is four times as large as memory.

    python benches/larger_events.py --record benches/record/NAME.json
    python benches/larger_events.py --package FOLDER    # FOLDER/headwater is another build

Makes a store of many probes with few pings each, and takes batches of it in a control group with a
quarter of its size. The files leave memory before each run. Linux; where no group may be made it
says so and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import larger_than_memory
import numpy as np
import prepare

import headwater

BATCH_SIZE = 32

# Takes batches, and prints the wall time and the CPU time of one in milliseconds.
CHILD = """
import hashlib, json, sys, time
import headwater
store, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
digest = hashlib.sha256()
with headwater.Events(store, num_threads=1, batch_size=size, seed=1) as events:
    for _ in range(5):
        next(events)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        digest.update(next(events)["inputs"].tobytes())
    print(json.dumps({
        "wall_ms_per_batch": round((time.perf_counter() - wall) * 1e3 / count, 1),
        "cpu_ms_per_batch": round((time.process_time() - cpu) * 1e3 / count, 1),
        "digest": digest.hexdigest(),
    }))
"""

SCHEMA = """
database = "pings"

[events]
source = "pings"
codec = "latency-v1"
entity = "src"
time = { column = "time", unit = "us" }
columns = { dst = "dst", rtt = "rtt", family = "family" }
split = { train = 0.98, val = 0.01, test = 0.01 }
"""


def made_store(work: Path, probes: int, pings: int) -> Path:
    """Returns a store of so many pings of so many probes, made once."""
    import pyarrow
    import pyarrow.parquet

    store = work / f"pings-{probes}-{pings}.db"
    if store.exists():
        return store
    work.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    source = random.integers(0, probes, pings)
    target = random.integers(0, 1000, pings)
    table = pyarrow.table(
        {
            "src": [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in source.tolist()],
            "dst": [f"172.16.{n >> 8}.{n & 255}" for n in target.tolist()],
            "family": np.full(pings, 4),
            "time": 1_751_000_000_000_000 + random.integers(0, 10**13, pings),
            "rtt": random.exponential(50, pings),
        }
    )
    folder = work / "pings"
    folder.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(table, folder / "pings.parquet")
    (work / "pings.toml").write_text(SCHEMA)
    headwater.prepare(folder, work / "pings.toml", store)
    return store


def main() -> None:
    """Runs the measurement and records it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--probes", type=int, default=1_000_000)
    parser.add_argument("--pings", type=int, default=12_000_000)
    parser.add_argument("--package", type=Path, help="a folder with another build of the package")
    parser.add_argument("--batches", type=int, default=40, help="batches of a run (default 40)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each build (default 3)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds of a run (default 120)")
    parser.add_argument("--work", type=Path, default=prepare.HERE.parent / "target" / "bench")
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    heading = prepare.heading(
        f"Batches of {BATCH_SIZE} token rows of an event store four times as large as memory, "
        "one thread asked for, no page in memory at the beginning."
    )
    store = made_store(args.work, args.probes, args.pings)
    whole = prepare.folder_bytes(store)
    packages = {"this build": Path(headwater.__file__).parents[1]}
    if args.package:
        packages["the other build"] = args.package
    measured: dict[str, list[dict[str, object]]] = {name: [] for name in packages}
    for _ in range(args.rounds):
        for name, package in packages.items():
            os.environ["PYTHONPATH"] = str(package)
            larger_than_memory.evict(store)
            command = [sys.executable, "-c", CHILD, str(store), str(args.batches), str(BATCH_SIZE)]
            # The interpreter and its libraries need memory, too.
            output, read = larger_than_memory.limited(
                command, whole // 4 + 80_000_000, args.timeout
            )
            one = {"batches_not_made_in_s": args.timeout} if output is None else json.loads(output)
            measured[name].append(one | {"read_mb": round(read / 1e6)})
            print(name, measured[name][-1], flush=True)
    record = {**heading, "store_mb": round(whole / 1e6), "runs": measured}
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()
