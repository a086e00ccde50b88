"""Measures the start of a sampler over many seeds: from the process to the first batch.

    python benches/start.py --work FOLDER [--seeds 100000000] [--record FILE]
    python benches/start.py --checks STORE [--record FILE]

Prepares a store of one table with a time and a number, which its only task predicts, unless the
folder has it already. Each turn starts one process with the split seed of the store, whose buckets
are recorded, and two with another: for the first every seed is hashed, the second reads the splits
that the first has kept. All files are read before, so that no process waits for the disk. Figures
are CPU and wall seconds of opening the store and making the sampler, of the first batch, and the
memory of the process that is not a mapped file. Needs Linux.

With `--checks` it measures what the checks of blocks cost the ranks of a node, in a store with
vectors of texts: each turn starts rank 0 of 2 alone, then rank 1 while rank 0 has the store open.
Figures are the CPU seconds of a rank for opening the store and making the sampler, for its first
100 batches, for the next 100, and for checking all vectors, whose blocks the batches read in part.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import prepare
import pyarrow as pa
from tables import anonymous_bytes

PIECE = 1_000_000
SCHEMA = """
database = "seeds"

[[table]]
name = "t"
time = { column = "at" }
columns = { at = "timestamp", size = "numerical" }

[[task]]
name = "size"
cell = { table = "t", column = "size" }
"""


def rows(count: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the table; no two are equal."""
    for first in range(0, count, PIECE):
        at = np.arange(first, min(first + PIECE, count), dtype=np.int64)
        sizes = pa.array((at % 1009).astype(np.float64))
        yield pa.record_batch({"at": pa.array(at * 1_000_000).cast("timestamp[us]"), "size": sizes})


def store_of(work: Path, seeds: int) -> Path:
    """Returns the store with so many seeds, and prepares it first if it is not there."""
    import headwater

    store = work / f"seeds-{seeds}"
    if not store.exists():
        work.mkdir(parents=True, exist_ok=True)
        schema = work / "seeds.toml"
        schema.write_text(SCHEMA)
        fields = next(rows(1)).schema
        stream = pa.RecordBatchReader.from_batches(fields, rows(seeds))
        headwater.prepare({"t": stream}, schema, store, text_vectors=False)
    return store


def turn(store: str, split_seed: int) -> dict[str, float]:
    """Makes a sampler and its first batch in this process."""
    import headwater

    before = anonymous_bytes()
    cpu, wall = time.process_time(), time.perf_counter()
    sampler = headwater.Sampler(store, split_seed=split_seed, num_prefetch=0, num_threads=1)
    made = time.process_time() - cpu, time.perf_counter() - wall
    cpu, wall = time.process_time(), time.perf_counter()
    sampler.next_batch("train")
    first = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "sampler_cpu_s": round(made[0], 4),
        "sampler_wall_s": round(made[1], 4),
        "first_batch_cpu_s": round(first[0], 4),
        "first_batch_wall_s": round(first[1], 4),
        "anonymous_mb": round((anonymous_bytes() - before) / 1e6, 1),
    }


def rank_turn(path: str, rank: int) -> None:
    """Makes batches and reads all vectors as a rank of two, and keeps the store open."""
    import headwater

    figures = {}
    cpu = time.process_time()

    def end(figure: str) -> None:
        nonlocal cpu
        figures[figure] = round(time.process_time() - cpu, 4)
        cpu = time.process_time()

    store = headwater.Store(path)
    sampler = headwater.Sampler(store, rank=rank, world_size=2, num_prefetch=0, num_threads=1)
    end("start_cpu_s")
    for figure in "first_100_batches_cpu_s", "next_100_batches_cpu_s":
        for _ in range(100):
            sampler.next_batch("train")
        end(figure)
    store.text_embeddings()
    end("all_vectors_cpu_s")
    print(json.dumps(figures), flush=True)
    sys.stdin.readline()


def of_ranks(path: str) -> dict[str, dict[str, float]]:
    """Measures rank 0 alone, then rank 1 beside it."""
    figures, ranks = {}, []
    for rank, name in enumerate(["alone", "beside"]):
        command = [sys.executable, __file__, "--rank", path, str(rank)]
        started = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        ranks.append(started)
        assert started.stdout
        figures[name] = json.loads(started.stdout.readline())
    for started in ranks:
        started.communicate("\n")
    return figures


def read_files(store: Path) -> None:
    """Reads the files of a store into memory."""
    for file in store.rglob("*.bin"):
        with file.open("rb") as opened:
            while opened.read(1 << 24):
                pass


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--work", type=Path)
    what.add_argument("--checks", type=Path)
    what.add_argument("--turn", nargs=2, help=argparse.SUPPRESS)
    what.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options.turn[0], int(options.turn[1]))))
        return
    if options.rank:
        rank_turn(options.rank[0], int(options.rank[1]))
        return
    if options.checks:
        read_files(options.checks)
        record = prepare.heading("checks of blocks by two ranks of a node, one thread each")
        record["store_mb"] = round(prepare.folder_bytes(options.checks) / 1e6, 1)
        record["turns"] = [of_ranks(str(options.checks)) for _ in range(options.rounds)]
        prepare.publish(record, options.record)
        return
    store = store_of(options.work, options.seeds)
    read_files(store)
    record = prepare.heading(f"start of a sampler over {options.seeds:,} seeds, one thread")

    def started(split_seed: int) -> dict[str, float]:
        command = [sys.executable, __file__, "--turn", str(store), str(split_seed)]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    kept = store.with_name(f"{store.name}.splits")
    record["turns"] = []
    for _ in range(options.rounds):
        shutil.rmtree(kept, ignore_errors=True)
        record["turns"].append({"recorded": started(123), "hashed": started(4), "kept": started(4)})
    record["kept_mb"] = round(prepare.folder_bytes(kept) / 1e6, 1)
    prepare.publish(record, options.record)


if __name__ == "__main__":
    main()
