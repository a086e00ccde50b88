"""Trains a configuration once for each seed; records the mean and the spread of its metrics.

    python benches/quality.py --config CONFIG --store STORE --work FOLDER --record FILE

Runs one process on each of `--cores` at once. The scored parameters are those of the best step by
validation loss. A seed sets the initial parameters and the order of the batches.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import prepare


def train(config: Path, store: Path, out: Path, seed: int, core: int) -> dict[str, Any]:
    """Trains a run on one core; returns its `results.json` with its duration."""
    command = [Path(sys.executable).parent / "confluence", "train", "--config", config]
    for setting in (f"data.stores={store}", f"optimizer.seed={seed}", f"data.seed={42 + seed}"):
        command += ["--set", setting]
    started = time.perf_counter()
    with subprocess.Popen(
        [*command, "--out", out],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    ) as run:
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        raise SystemExit(f"the run of seed {seed} failed with exit status {run.returncode}")
    results = json.loads((out / "results.json").read_text())
    return {
        "seed": seed,
        "minutes": round((time.perf_counter() - started) / 60, 1),
        "cpu_minutes": round((used.ru_utime + used.ru_stime) / 60, 1),
        **results,
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns mean, least and most of each task's leading metric on val and test."""
    found: dict[str, Any] = {}
    for task, of_task in runs[0]["tasks"].items():
        metric = of_task["leading"]
        found[task] = {"metric": metric}
        for split in ("val", "test"):
            values = [run["tasks"][task][split][metric] for run in runs]
            found[task][split] = {
                "mean": statistics.mean(values),
                "least": min(values),
                "most": max(values),
                "baselines": {
                    name: scores[metric] for name, scores in of_task[split]["baselines"].items()
                },
            }
    return found


def main() -> None:
    """Trains all seeds and writes the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument(
        "--cores", type=int, nargs="+", default=[0], help="core numbers to run on; default: 0"
    )
    parser.add_argument("--record", type=Path, help="JSON file to write")
    args = parser.parse_args()
    free_cores: queue.Queue[int] = queue.Queue()
    for core in args.cores:
        free_cores.put(core)

    def train_on_free_core(seed: int) -> dict[str, Any]:
        core = free_cores.get()
        try:
            return train(args.config, args.store, args.work / f"seed-{seed}", seed, core)
        finally:
            free_cores.put(core)

    record = prepare.heading("quality")
    args.work.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(args.cores)) as pool:
        runs = list(pool.map(train_on_free_core, args.seeds))
    record |= {"config": args.config.read_text(), "summary": summary(runs), "runs": runs}
    print(json.dumps(record["summary"], indent=1))
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()
