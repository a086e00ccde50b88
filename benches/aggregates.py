"""Measures what aggregates cost: batches with and without them, in turn, on one core.

    python benches/aggregates.py --record benches/record/NAME.json

Prepares the demo shop as `headwater schema` drafts it, or `--source` and `--schema` of one's own.
Each figure is CPU milliseconds a batch, the median of several rounds; a ratio is one of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import prepare

import headwater

HEADWATER = str(Path(sys.executable).parent / "headwater")
LENGTHS = (128, 1024)


def made_store(work: Path, source: Path | None, schema: Path | None) -> Path:
    """Prepares the store in `work`; returns its path."""
    if source is None:
        source = work / "aggregates-data"
        if not source.exists():
            subprocess.run([HEADWATER, "demo-data", source], check=True)
    if schema is None:
        schema = work / "aggregates.toml"
        drafted = subprocess.run(
            [HEADWATER, "schema", source, "--cell-tasks"], check=True, stdout=subprocess.PIPE
        )
        schema.write_bytes(drafted.stdout)
    store = work / "aggregates.db"
    prepare.prepare(source, store, schema=schema)
    return store


def cost(sampler: headwater.Sampler, batches: int) -> float:
    """Returns the CPU milliseconds of a batch."""
    started = time.process_time()
    for _ in range(batches):
        sampler.next_train_batch()
    return (time.process_time() - started) * 1e3 / batches


def main() -> None:
    """Runs the measurements and records them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path, help="another database than the demo shop")
    parser.add_argument("--schema", type=Path, help="its schema (default: as drafted)")
    parser.add_argument("--task", help="the task (default: all in turn)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    parser.add_argument("--batches", type=int, default=200, help="batches of a round (default 200)")
    parser.add_argument("--work", type=Path, default=prepare.HERE.parent / "target" / "bench")
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    heading = prepare.heading("aggregates: CPU ms a batch of 32 contexts, by who has them")
    args.work.mkdir(parents=True, exist_ok=True)
    store = made_store(args.work, args.source, args.schema)
    found: dict[str, dict[str, float]] = {}
    for length in LENGTHS:
        samplers = {
            kind: headwater.Sampler(
                store, seed=1, default_sequence_length=length, compact=True, num_threads=1,
                num_prefetch=0, aggregates=kind, tasks=args.task and [args.task],
            )
            for kind in ("none", "near", "all")
        }  # fmt: skip
        rounds: dict[str, list[float]] = {kind: [] for kind in samplers}
        for sampler in samplers.values():
            cost(sampler, args.batches)  # the first batches check the blocks that they read
        for _ in range(args.rounds):
            for kind, sampler in samplers.items():
                rounds[kind].append(cost(sampler, args.batches))
        medians = {kind: statistics.median(of_kind) for kind, of_kind in rounds.items()}
        found[f"S={length}"] = {
            **{f"{kind}_cpu_ms": round(median, 3) for kind, median in medians.items()},
            **{f"{k}_ratio": round(medians[k] / medians["none"], 3) for k in ("near", "all")},
        }
        print(f"S={length}: {found[f'S={length}']}", flush=True)
    if args.record:
        args.record.write_text(json.dumps({**heading, "results": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
