"""Trains a model whole, and once more killed half way and resumed: the numbers are the same.

  python examples/train_and_kill.py STORE OUT [--config FILE] [--set section.key=value]...

The runs lie in OUT/whole and OUT/killed, each with its report.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [sys.executable, "-m", "confluence.cli", "train"]
# A run that gets no further for so long is broken.
PATIENCE_SECONDS = 600


def main() -> int:
    """Returns 0 where both runs have the same numbers."""
    args = arguments()
    # What the first run compiles, the others need not.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(args.out.absolute() / "compiled"))
    settings = [f"data.stores={args.store}", *args.settings]
    start = ["--config", args.config, *(part for s in settings for part in ("--set", s))]
    whole, killed = args.out / "whole", args.out / "killed"

    print(f"training to the end: {whole}", flush=True)
    subprocess.run([*COMMAND, *start, "--out", whole], check=True)
    steps = max(losses(whole))
    kept = kill_half_way([*COMMAND, *start, "--out", killed], killed, steps)
    print(f"killed with -9 after step {kept} of {steps}; resuming: {killed}", flush=True)
    subprocess.run([*COMMAND, "--out", killed, "--resume"], check=True, stdout=subprocess.DEVNULL)
    return compare(whole, killed, kept)


def kill_half_way(command: list[str | Path], out: Path, steps: int) -> int:
    """Kills a run when it has written the checkpoint of its half, and returns that step."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE_SECONDS
    kept = 0
    while kept < steps // 2 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
        kept = max(checkpoints(out), default=0)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL or kept < steps // 2:
        raise SystemExit(f"the run that was to be killed half way ended at step {kept}")
    return kept


def checkpoints(out: Path) -> list[int]:
    """The steps of the checkpoints that are written whole."""
    return [int(path.name) for path in out.glob("checkpoints/*") if path.name.isdigit()]


def compare(whole: Path, killed: Path, kept: int) -> int:
    """Prints the losses of both runs and the metrics beside the baselines; 1 where they differ."""
    ours, theirs = losses(whole), losses(killed)
    print(f"{'step':>6}  {'loss, uninterrupted':<22}  loss, killed and resumed from {kept}")
    shown = [step for step in sorted(ours) if step in (1, kept, kept + 1) or step == max(ours)]
    for step in shown:
        print(f"{step:>6}  {ours[step]!r:<22}  {theirs.get(step)!r}")
    results, again = ((out / "results.json").read_text() for out in (whole, killed))
    if ours != theirs or results != again:
        differing = [step for step in ours if ours[step] != theirs.get(step)]
        print(f"NOT THE SAME: steps {differing[:10]}, results equal: {results == again}")
        return 1
    print(f"identical: all {len(ours)} losses, and the metrics, to the last bit")
    for name, of_task in json.loads(results)["tasks"].items():
        metric, test = of_task["leading"], of_task["test"]
        others = {who: found[metric] for who, found in test["baselines"].items()}
        beside = ", ".join(f"{who} {value:.3f}" for who, value in others.items())
        print(f"{name}, test: {metric} {test[metric]:.3f} ({beside})")
    print(f"{whole / 'report.html'} shows the curves and a context")
    return 0


def losses(out: Path) -> dict[int, float]:
    """The loss of each step, as the log has it."""
    records = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {record["step"]: record["loss"] for record in records if "gradient_norm" in record}


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path, help="a store that `headwater prepare` made")
    parser.add_argument("out", type=Path, help="the folder of both runs")
    parser.add_argument(
        "--config", type=Path, default=Path(__file__).with_name("demo-shop") / "train.toml",
        metavar="FILE",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE",
        help="change a setting of the configuration; may be said again",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
