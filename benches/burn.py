"""Measures a step of the example of `burn/` beside one of `confluence`, in turn on one core.

    cargo build --release --manifest-path burn/Cargo.toml --example relational_transformer
    python benches/burn.py STORE EXAMPLE --record FILE

Width, blocks, heads, batch and sequence are those of the example; so is the walk. Both read and
compute. A step of the example is the difference of a short and a longer run, so that neither counts
its start; `confluence` leaves out its first steps, which compile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import prepare

ROOT = Path(__file__).parents[1]
# Of the example: burn/examples/relational_transformer.
SIZES = {
    "model.width": 64,
    "model.layers": 2,
    "model.heads": 4,
    "model.hidden": 128,
    "data.batch_size": 32,
    "data.sequence_length": 48,
    "data.max_rows": 16,
}
SHORT, LONG = 20, 80


def run(command: list[str | Path], core: int) -> tuple[str, float]:
    """Returns the output and the CPU seconds of a command on one core."""
    one_thread = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "XLA_FLAGS": one_thread, "RAYON_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        text=True,
    ) as process:
        assert process.stdout
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed with exit status {process.returncode}")
    return output, used.ru_utime + used.ru_stime


def burn_step(example: Path, store: Path, core: int) -> tuple[float, float]:
    """Returns the CPU seconds of a step, and the share of the longer run that was for batches."""
    seconds, waits = [], 0.0
    for steps in (SHORT, LONG):
        with tempfile.TemporaryDirectory() as folder:
            command: list[str | Path] = [example, store, "--out", folder]
            command += ["--stop-after", str(steps)]
            output, used = run(command, core)
        seconds.append(used)
        found = re.search(r"steps in ([\d.]+) s, ([\d.]+) s of them for batches", output)
        assert found, output
        waits = float(found[2]) / float(found[1])
    return (seconds[1] - seconds[0]) / (LONG - SHORT), waits


def confluence_step(store: Path, core: int) -> float:
    """Returns the CPU seconds of a step."""
    config = ROOT / "examples/demo-shop/train.toml"
    command: list[str | Path] = [Path(sys.executable).parent / "confluence", "bench"]
    command += ["--config", config, "--steps", str(LONG), "--set", f"data.stores={store}"]
    for name, size in SIZES.items():
        command += ["--set", f"{name}={size}"]
    return float(json.loads(run(command, core)[0])["step_cpu_seconds"])


def main() -> None:
    """Measures in turn, and records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path, help="the demo shop's churn store")
    parser.add_argument("example", type=Path, help="the built program relational_transformer")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--core", type=int, default=0, help="core number to run on; default: 0")
    parser.add_argument("--record", type=Path, help="JSON file to write")
    args = parser.parse_args()
    record: dict[str, Any] = prepare.heading("a step of the example of burn/ and of confluence")
    burn, waits, jax = [], [], []
    for _ in range(args.rounds):
        seconds, waited = burn_step(args.example, args.store, args.core)
        burn.append(round(seconds, 4))
        waits.append(round(waited, 4))
        jax.append(round(confluence_step(args.store, args.core), 4))
    record |= {
        "sizes": SIZES,
        "burn_step_cpu_seconds": burn,
        "confluence_step_cpu_seconds": jax,
        "burn_share_of_time_for_batches": waits,
    }
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()
