"""Measures what masked cells cost, and what the orders of its cells do.

    python benches/masks.py STORE

Samplers of the same batches take turns in one process, on one thread and without prefetching. The
figures are CPU seconds beside those of a plain sampler in the same round: medians of the rounds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import prepare

import headwater

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "masks": {"mask_share": 0.15},
    "permutations": {"permutations": True},
    "compact": {"compact": True},
    "compact_masks": {"compact": True, "mask_share": 0.15},
}
BATCHES, ROUNDS = 40, 25


def cpu_seconds(sampler: headwater.Sampler) -> float:
    """Returns the CPU time of some batches."""
    started = time.process_time()
    for _ in range(BATCHES):
        sampler.next_train_batch()
    return time.process_time() - started


def main() -> None:
    """Prints the figures as one JSON object."""
    store = sys.argv[1]
    samplers = {
        kind: headwater.Sampler(store, num_prefetch=0, num_threads=1, **settings)
        for kind, settings in KINDS.items()
    }
    for sampler in samplers.values():
        cpu_seconds(sampler)
    rounds = [
        {kind: cpu_seconds(sampler) for kind, sampler in samplers.items()} for _ in range(ROUNDS)
    ]

    def ratio(kind: str, to: str) -> float:
        return round(statistics.median(one[kind] / one[to] for one in rounds), 3)

    figures = {
        "machine": prepare.machine(),
        "ms_a_batch": round(1e3 * statistics.median(one["plain"] for one in rounds) / BATCHES, 3),
        "masks_to_plain": ratio("masks", "plain"),
        "compact_masks_to_compact": ratio("compact_masks", "compact"),
        "permutations_to_plain": ratio("permutations", "plain"),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
