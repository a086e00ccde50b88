"""Measures the sampler from Python: a call, page faults, memory, and the tiles of row orders."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import prepare

import headwater

SAMPLERS = 8
# The width of a tile, which a kernel of block-sparse attention skips or computes whole.
TILE = 128
READER = """
import sys, headwater
sampler = headwater.Sampler(sys.argv[1], num_prefetch=0, num_threads=1)
for _ in range(200):
    sampler.next_train_batch()
print("ready", flush=True)
sys.stdin.readline()
"""


def call_time(store: Path) -> dict[str, float]:
    """Measures the time of a call from Python when the next batch is ready."""
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
    return {"call_us_median": round(statistics.median(times), 1)}


def page_faults(store: Path) -> dict[str, float]:
    """Counts the page faults of a batch after the store and the buffers have been read."""
    sampler = headwater.Sampler(store, num_prefetch=0, num_threads=1, tasks=["customer.c_acctbal"])
    cursor = sampler.cursor()
    for _ in range(200):
        sampler.next_train_batch()
    # The same batches again: they read only pages that were read before.
    sampler.resume(cursor)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        sampler.next_train_batch()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return {"page_faults_per_batch": (after - before) / 200}


def shared_pages(store: Path) -> dict[str, float]:
    """Measures the memory of the mapped pages of a store, for one and for eight samplers."""

    def proportional_mb(count: int) -> float:
        command = [sys.executable, "-c", READER, str(store)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        samplers = [subprocess.Popen(command, **pipes) for _ in range(count)]
        try:
            for sampler in samplers:
                assert sampler.stdout
                assert sampler.stdout.readline().strip() == "ready"
            return sum(prepare.proportional_mb(s.pid, store.resolve()) for s in samplers)
        finally:
            for sampler in samplers:
                sampler.communicate("\n")

    one, eight = proportional_mb(1), proportional_mb(SAMPLERS)
    return {
        "mapped_mb_of_one": round(one, 1),
        "mapped_mb_of_eight": round(eight, 1),
        "eight_over_one": round(eight / one, 2),
    }


def tiles(store: Path, row_order: str) -> dict[str, float]:
    """Returns the share of the attention masks' tiles that are not empty, for an order of rows."""
    shares: dict[str, list[float]] = {"out": [], "in": []}
    orders = {"permutations": True, "row_order": row_order}
    with headwater.Sampler(store, num_prefetch=0, **orders) as sampler:
        for _ in range(16):
            batch = sampler.next_train_batch()
            for sequence in range(0, 32, 4):
                rows = batch["seq_row_ids"][sequence].astype(np.int64)
                links = batch["fk_adj"][sequence].astype(bool)
                used = batch["is_padding"][sequence] == 0
                refers = links[np.ix_(rows, rows)]
                same = rows[:, None] == rows[None, :]
                masks = {"out": (refers | same, "out_perm"), "in": (refers.T, "in_perm")}
                for name, (mask, order) in masks.items():
                    cells = batch[order][sequence].astype(np.int64)
                    in_order = (mask & used & used[:, None])[np.ix_(cells, cells)]
                    shares[name].append(_filled_share(in_order))
    return {f"{name}_tiles": round(float(np.mean(share)), 4) for name, share in shares.items()}


def _filled_share(mask: npt.NDArray[np.bool_]) -> float:
    """Returns the share of tiles that have at least one pair of cells."""
    count = mask.shape[0] // TILE
    by_tile = mask[: count * TILE, : count * TILE].reshape(count, TILE, count, TILE)
    return float(by_tile.any(axis=(1, 3)).mean())


def measure(store: Path) -> dict[str, object]:
    """Runs all measurements of this file."""
    return {
        **call_time(store),
        **page_faults(store),
        **shared_pages(store),
        "filled_tiles_walk": tiles(store, "walk"),
        "filled_tiles_cuthill_mckee": tiles(store, "cuthill-mckee"),
    }
