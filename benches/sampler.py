"""Measures the sampler on TPC-H: the cost of a batch, beside that of what it reads and writes.

    python benches/sampler.py --record benches/record/NAME.json

Needs the `headwater` package, cargo and `tpchgen-cli` (`make bench` installs them). Runs on one
core; the kinds `.._on_2_cores` and `.._in_two_processes` run on two. Each block of the
store is checked when it is first read, so the first batches cost more; `warm` is the cost of
batches 1,000 to 3,000. Each figure is the median of several rounds, in which all kinds of batches
take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import prepare
import resuming
import sampling

HEADWATER = str(Path(sys.executable).parent / "headwater")
WARM_FROM, WARM_TO = 1000, 3000
TWO_CORES = set(sorted(os.sched_getaffinity(0))[:2])
ONE_CORE = {min(TWO_CORES)}

KINDS: dict[str, list[str]] = {
    "full": ["--threads", "1"],
    "compact": ["--threads", "1", "--compact"],
    "texts_global": ["--threads", "1", "--texts", "global"],
    "compact_texts_global": ["--threads", "1", "--compact", "--texts", "global"],
    "cuthill_mckee": ["--threads", "1", "--row-order", "cuthill-mckee"],
    "full_on_2_cores": ["--threads", "1"],
    "full_2_threads_on_2_cores": ["--threads", "2"],
}


def last_line(command: list[str], cores: set[int]) -> dict[str, float]:
    """Runs a command on some cores; returns the JSON object of its last line."""
    print("$", " ".join(command), flush=True)
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(done.stdout.splitlines()[-1])


def cost(store: Path, kind: str) -> dict[str, float]:
    """Measures the cost of a batch when warm, and over the first 1,000 and 3,000 batches."""
    cores = TWO_CORES if kind.endswith("on_2_cores") else ONE_CORE
    command = [HEADWATER, "bench", str(store), *KINDS[kind], "--batches"]
    some, more = (last_line([*command, str(n)], cores) for n in (WARM_FROM, WARM_TO))

    def warm(total_some: float, total_more: float) -> float:
        return (total_more - total_some) / (WARM_TO - WARM_FROM)

    return {
        "warm_cpu_ms_per_batch": warm(
            some["cpu_ms_per_batch"] * WARM_FROM, more["cpu_ms_per_batch"] * WARM_TO
        ),
        "warm_wall_ms_per_batch": warm(
            1e3 / some["batches_per_s"] * WARM_FROM, 1e3 / more["batches_per_s"] * WARM_TO
        ),
        "first_1000_cpu_ms_per_batch": some["cpu_ms_per_batch"],
        "first_3000_cpu_ms_per_batch": more["cpu_ms_per_batch"],
        "bytes_per_batch": more["bytes_per_batch"],
        "rows_per_sequence": more["rows_per_sequence"],
        "padding_share": more["padding_share"],
        "open_ms": some["open_ms"],
    }


def side_by_side(store: Path) -> dict[str, float]:
    """Measures the cost of a batch while another process makes batches on the other core."""
    command = [HEADWATER, "bench", str(store), *KINDS["full"], "--batches", str(WARM_TO)]
    pipes = {"stdout": subprocess.PIPE, "text": True}
    both = [
        subprocess.Popen(["taskset", "--cpu-list", str(core), *command], **pipes)
        for core in sorted(TWO_CORES)
    ]
    costs = [json.loads(one.communicate()[0].splitlines()[-1])["cpu_ms_per_batch"] for one in both]
    return {"first_3000_cpu_ms_per_batch": statistics.mean(costs)}


def floor(store: Path, *options: str) -> dict[str, float]:
    """Measures what a batch reads and writes alone: the least that it can cost."""
    # The features of the Makefile's other builds, whose crates it shares.
    command = ["cargo", "bench", "--locked", "--quiet", "--features", "arrayrecord,same-features"]
    command += ["--bench", "floor", "--"]
    measured = last_line([*command, str(store.resolve()), *options], ONE_CORE)
    return {name: value for name, value in measured.items() if isinstance(value, float | int)}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Returns the median of each figure."""
    return {name: round(statistics.median(r[name] for r in rounds), 3) for name in rounds[0]}


def made_store(work: Path, scale: float) -> Path:
    """Prepares a store of TPC-H with cell tasks and derived tasks; returns its path."""
    here = prepare.HERE
    source = prepare.tpch(work, scale)
    schema = work / "tpch-8-tasks.toml"
    schema.write_text((here / "tpch.toml").read_text() + (here / "tpch-tasks.toml").read_text())
    store = work / f"tpch-sf{scale:g}-8-tasks.db"
    prepare.prepare(source, store, schema=schema)
    return store


def main() -> None:
    """Runs the measurements and records them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind (default 3)")
    parser.add_argument("--work", type=Path, default=prepare.HERE.parent / "target" / "bench")
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    heading = prepare.heading(
        f"headwater sampler, TPC-H scale factor {args.scale:g}, 4 cell and 4 derived tasks "
        "in turn, B=32 S=1024 width 16"
    )
    store, small = (made_store(args.work, scale) for scale in (args.scale, args.scale / 10))
    kinds = [*KINDS, "full_tenth", "full_in_two_processes"]
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    floors: dict[str, list[dict[str, float]]] = {"floor_full": [], "floor_compact": []}
    for _ in range(args.rounds):
        for kind in KINDS:
            rounds[kind].append(cost(store, kind))
        rounds["full_tenth"].append(cost(small, "full"))
        rounds["full_in_two_processes"].append(side_by_side(store))
        floors["floor_full"].append(floor(store))
        floors["floor_compact"].append(floor(store, "--compact"))
    measured = {kind: medians(of_kind) for kind, of_kind in (rounds | floors).items()}
    cpu = {kind: measured[kind].get("warm_cpu_ms_per_batch", 0.0) for kind in measured}
    wall = {kind: measured[kind].get("warm_wall_ms_per_batch", 0.0) for kind in measured}
    record = {
        **heading,
        "ratios": {
            "full_over_floor": round(cpu["full"] / measured["floor_full"]["floor_ms"], 2),
            "compact_over_floor": round(cpu["compact"] / measured["floor_compact"]["floor_ms"], 2),
            "compact_texts_global_over_floor": round(
                cpu["compact_texts_global"] / measured["floor_compact"]["floor_without_texts_ms"], 2
            ),
            "full_over_full_of_a_tenth": round(cpu["full"] / cpu["full_tenth"], 2),
            "one_thread_over_two_in_wall": round(
                wall["full_on_2_cores"] / wall["full_2_threads_on_2_cores"], 2
            ),
        },
        **measured,
        "python": sampling.measure(store),
        "resume": resuming.measure(store),
    }
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()
