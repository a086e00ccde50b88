"""Trains a model twice, once uninterrupted, once killed half way and resumed, and compares them.

Both runs train at the same time: the whole one in one process, the other one in two processes,
which are killed, and then in one that goes on.

  python examples/train_and_kill.py STORE OUT [--config FILE] [--set section.key=value]...

The runs are in OUT/whole and OUT/killed, each with its report. Their losses and metrics must be
equal.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import confluence

COMMAND = [sys.executable, "-m", "confluence.cli", "train"]
# The processes that are killed.
PROCESSES = 2
# A run that has not reached its half after this time is broken.
TIMEOUT_SECONDS = 600


class Termination:
    """SIGTERM ends this program and its runs; while a run is being started, it waits for that."""

    def __init__(self) -> None:
        self.is_starting = False
        self.is_asked = False

    def ask(self, *_: object) -> None:
        """Handles the signal."""
        self.is_asked = True
        self.check()

    def check(self) -> None:
        """Ends the program if it was asked to."""
        if self.is_asked and not self.is_starting:
            sys.exit(143)


TERMINATION = Termination()


def main() -> int:
    """Returns 0 if both runs have the same numbers, else 1."""
    args = arguments()
    signal.signal(signal.SIGTERM, TERMINATION.ask)
    # Two runs at once do not fit into an accelerator's memory.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # A compilation cache that the processes share.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(args.out.absolute() / "compiled"))
    settings = [f"data.stores={args.store}", *args.settings]
    start = ["--config", args.config, *(part for s in settings for part in ("--set", s))]
    whole, killed = args.out / "whole", args.out / "killed"

    steps = confluence.load(args.config, settings).optimizer.steps
    print(f"training without interruption: {whole}", flush=True)
    with running([*COMMAND, *start, "--out", whole]) as uninterrupted:
        with ExitStack() as both:
            doomed = [
                both.enter_context(running(command, stdout=subprocess.DEVNULL))
                for command in commands_of_ranks([*COMMAND, *start, "--out", killed])
            ]
            kept = kill_half_way(doomed, killed, steps, uninterrupted)
        print(
            f"killed {PROCESSES} processes with SIGKILL after step {kept} of {steps}; resuming in "
            f"one: {killed}",
            flush=True,
        )
        resume = [*COMMAND, "--out", killed, "--resume"]
        with running(resume, stdout=subprocess.DEVNULL) as resumed:
            check_success(resumed, "the resumed run")
        check_success(uninterrupted, "the uninterrupted run")
    return compare(whole, killed, kept)


def commands_of_ranks(command: list[str | Path]) -> list[list[str | Path]]:
    """Returns the command of each process of a run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = ["--processes", str(PROCESSES), "--coordinator", f"127.0.0.1:{port}", "--rank"]
    return [[*command, *shared, str(rank)] for rank in range(PROCESSES)]


@contextmanager
def running(command: list[str | Path], **options: Any) -> Iterator[subprocess.Popen]:
    """Starts a process, which ends with the `with` block at the latest."""
    TERMINATION.is_starting = True
    try:
        process = subprocess.Popen(command, **options)
    finally:
        TERMINATION.is_starting = False
    try:
        TERMINATION.check()
        yield process
    finally:
        process.kill()
        process.wait()


def check_success(process: subprocess.Popen, name: str) -> None:
    """Waits for a process; ends this program if it failed."""
    if process.wait() != 0:
        raise SystemExit(
            f"{name} ended with status {process.returncode}; its message is above. If it names a "
            "run that exists already, remove the folder OUT, or name another one"
        )


def kill_half_way(
    ranks: Sequence[subprocess.Popen], out: Path, steps: int, uninterrupted: subprocess.Popen
) -> int:
    """Kills a run that has a checkpoint of half its steps; returns the step of its newest."""
    end = time.monotonic() + TIMEOUT_SECONDS
    kept = 0
    while kept < steps // 2 and ranks[0].poll() is None and time.monotonic() < end:
        if uninterrupted.poll():
            check_success(uninterrupted, "the uninterrupted run")
        time.sleep(0.05)
        kept = max(checkpoints(out), default=0)
    for rank in ranks:
        rank.send_signal(signal.SIGKILL)
    if ranks[0].wait() != -signal.SIGKILL or kept < steps // 2:
        raise SystemExit(
            f"expected to kill the run after step {steps // 2}, but it ended with its newest "
            f"checkpoint at step {kept}"
        )
    return kept


def checkpoints(out: Path) -> list[int]:
    """Returns the steps of the finished checkpoints."""
    return [int(path.name) for path in out.glob("checkpoints/*") if path.name.isdigit()]


def compare(whole: Path, killed: Path, kept: int) -> int:
    """Prints the losses of both runs and their metrics; returns 1 if they differ, else 0."""
    ours, theirs = losses(whole), losses(killed)
    print(
        f"{'step':>6}  {'loss, uninterrupted':<22}  loss, 2 processes killed, resumed from {kept}"
    )
    shown = [step for step in sorted(ours) if step in (1, kept, kept + 1) or step == max(ours)]
    for step in shown:
        print(f"{step:>6}  {ours[step]!r:<22}  {theirs.get(step)!r}")
    results, again = (metrics(out) for out in (whole, killed))
    if ours != theirs or results != again:
        differing = [step for step in ours if ours[step] != theirs.get(step)]
        print(f"DIFFERENT: losses of the steps {differing[:10]}; same metrics: {results == again}")
        return 1
    print(f"identical to the last bit: {len(ours)} losses, and all metrics")
    for name, of_task in results.items():
        metric, test = of_task["leading"], of_task["test"]
        baselines = {baseline: found[metric] for baseline, found in test["baselines"].items()}
        listed = "; ".join(f"{baseline} {value:.3f}" for baseline, value in baselines.items())
        print(f"{name}, test: {metric} {test[metric]:.3f} (baselines: {listed})")
    print(f"curves and contexts: {whole / 'report.html'}")
    return 0


def metrics(out: Path) -> dict[str, dict]:
    """Returns the results of each task, without the seconds that they took."""
    tasks = json.loads((out / "results.json").read_text())["tasks"]
    return {
        name: {key: value for key, value in of_task.items() if key != "cpu_seconds"}
        for name, of_task in tasks.items()
    }


def losses(out: Path) -> dict[int, float]:
    """Returns the loss of each step in the log of a run."""
    records = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {record["step"]: record["loss"] for record in records if "gradient_norm" in record}


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path, help="store made by `headwater prepare`")
    parser.add_argument("out", type=Path, help="folder for both runs")
    parser.add_argument(
        "--config", type=Path, default=Path(__file__).with_name("demo-shop") / "train.toml",
        metavar="FILE", help="configuration; default: examples/demo-shop/train.toml",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE",
        help="change a setting of the configuration; repeatable",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
