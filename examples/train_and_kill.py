"""Trains a model twice, once killed half way and taken up again; both come to the same numbers.

    python examples/train_and_kill.py demo/store demo/runs
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

CONFLUENCE = [str(Path(sys.executable).parent / "confluence"), "train"]
SETTINGS = ["--config", "demo"]


def steps_of(run: Path) -> dict[int, float]:
    """The loss of each step that a run has written down."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return {line["step"]: line["loss"] for line in records if "gradient_norm" in line}


def checkpoints_of(run: Path) -> list[int]:
    """The steps after which a run was kept."""
    folder = run / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return sorted(int(name) for name in names if name.isdigit())


def main(store: str, out: str) -> None:
    """Trains, trains and kills, goes on, and compares."""
    whole, killed = Path(out) / "whole", Path(out) / "killed"
    stores = ["--set", f"data.stores={store}"]
    print("training without a break", flush=True)
    subprocess.run([*CONFLUENCE, *SETTINGS, *stores, "--out", whole], check=True)
    last = max(steps_of(whole))

    print("training again, to be killed half way", flush=True)
    again = [*CONFLUENCE, *SETTINGS, *stores, "--out", str(killed)]
    process = subprocess.Popen(again)
    while process.poll() is None and max(checkpoints_of(killed), default=0) < last // 2:
        time.sleep(0.05)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        raise SystemExit("it ended before it was killed")
    print(f"killed after the checkpoint of step {checkpoints_of(killed)[-1]}; going on", flush=True)
    quiet = subprocess.run(
        [*CONFLUENCE, "--out", killed, "--resume"], check=True, capture_output=True, text=True
    )

    ours, theirs = steps_of(killed), steps_of(whole)
    print(f"loss of step {last}: {ours[last]!r} when killed, {theirs[last]!r} when not")
    same = ours == theirs and (killed / "results.json").read_bytes() == (
        whole / "results.json"
    ).read_bytes()
    print(quiet.stdout, end="")
    if not same:
        raise SystemExit("the two runs differ")
    print(f"every loss of {last} steps and every metric is the same to the last bit")


if __name__ == "__main__":
    main(*sys.argv[1:])
