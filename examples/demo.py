"""The program of `make demo`: prepare, sample, fold, train; kill and resume with the same digests.

    python examples/demo.py FOLDER

Each step prints one or two lines. The commands and their whole output go to FOLDER/logs. A command
that fails ends the demo with its output.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
SEED_INDEX = 40
CONTEXT_LINES = 6
TOKEN_LINES = 5
# Fewer than the example's own, for a result in a minute or two.
TRAINING_STEPS = 300
PROGRESS_LINES = 4


class CommandFailed(Exception):
    """A command ended with an error; the message has its output."""


class Demo:
    """The folder of the demo, and the commands that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        # Where the last command of each log file begins.
        self.begins: dict[str, int] = {}
        # The command that was started last.
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, log: str, *command: object) -> str:
        """Runs a command to its end; returns its output, which a log file keeps as well."""
        with self.start(log, *command) as process:
            process.wait()
        return self.output(log, process)

    def start(self, log: str, *command: object) -> subprocess.Popen[bytes]:
        """Starts a command whose output goes to a log file."""
        words = [str(word) for word in command]
        with (self.logs / f"{log}.txt").open("a") as file:
            self.begins[log] = file.tell()
            file.write(f"$ {' '.join(words)}\n")
            file.flush()
            process = subprocess.Popen(words, stdout=file, stderr=file, env=ENVIRONMENT)
        self.process = process
        return process

    def output(self, log: str, process: subprocess.Popen[bytes]) -> str:
        """Returns the output of the last command of a log file.

        Raises:
            CommandFailed: The command failed.
        """
        text = (self.logs / f"{log}.txt").read_bytes()[self.begins[log] :].decode()
        command, _, output = text.partition("\n")
        if process.returncode != 0:
            status = f"exit status {process.returncode}; see {self.logs}/{log}.txt"
            raise CommandFailed(f"{command}\n{output.rstrip()}\n{status}")
        return output.rstrip()


def main() -> int:
    """Runs all steps; returns the exit status."""
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} FOLDER", file=sys.stderr)
        return 2
    demo = Demo(Path(sys.argv[1]))

    def end(*_: object) -> NoReturn:
        if demo.process:
            demo.process.terminate()
        sys.exit(143)

    signal.signal(signal.SIGTERM, end)
    try:
        for step in (prepare, look, sample, fold, events, train):
            step(demo)
    except CommandFailed as failed:
        print(f"FAILED: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    say(f"Logs of all commands: {demo.logs}. Next: docs/guide.md")
    return 0


def prepare(demo: Demo) -> None:
    """Makes a shop as CSV files, and a store from them."""
    data, store = demo.folder / "data", demo.folder / "store"
    made = demo.run("1-prepare", "headwater", "demo-data", data).partition(";")[0]
    say(f"1. Prepare: a shop as CSV files becomes a store.\n   {made}")
    schema = data / "schema.toml"
    say_all(demo.run("1-prepare", "headwater", "prepare", data, "--schema", schema, "--out", store))
    say("   Verify: every byte matches its digest.")
    say_all(demo.run("1-prepare", "headwater", "verify", store))


def look(demo: Demo) -> None:
    """Shows the context of one seed."""
    store, page = demo.folder / "store", demo.folder / "context.html"
    inspect = ["headwater", "inspect", store]
    demo.run("2-look", *inspect)
    for more in ([], ["--row", "#0"]):
        for table in ("orders", "customers"):
            demo.run("2-look", *inspect, "--table", table, *more)
    context = demo.run("2-look", *inspect, "--task", "churn", "--seed-index", SEED_INDEX)
    demo.run("2-look", *inspect, "--task", "churn", "--seed-index", SEED_INDEX, "--html", page)
    lines = [line for line in context.splitlines() if line]
    say(f"\n2. Look: the context of seed {SEED_INDEX}; no row is later than the observation time.")
    say_all("\n".join(lines[:CONTEXT_LINES]))
    say(f"   ... {len(lines) - CONTEXT_LINES} more lines in {demo.logs}/2-look.txt")
    say(f"   The whole context as a page for a browser: {page}")


def sample(demo: Demo) -> None:
    """Compares the streams of several ranks and threads, and of a killed and resumed run."""
    program = ROOT / "tests/python/digests.py"
    output = demo.run("3-sample", sys.executable, program, demo.folder / "store")
    say("\n3. Sample: 200 steps on 1, 2 and 4 ranks, 1 and 2 threads; one run killed and resumed.")
    found = re.findall(r"^  (.*\S)\s+([0-9a-f]{32})$", output, re.MULTILINE)
    if len(found) != 7 or len({digest for _, digest in found}) != 1:
        raise CommandFailed(f"expected 7 runs with one digest, found\n{output}")
    say(f"   {len(found)} runs, one digest: {found[0][1]}")
    say(f"   The last of them: {found[-1][0]}. Details: {demo.logs}/3-sample.txt")


def fold(demo: Demo) -> None:
    """Compares the digests of a Gram matrix by one process and by three ranks."""
    rows, folder = demo.folder / "x.npy", demo.folder
    np.save(rows, np.random.default_rng(1).standard_normal((200_000, 64), "float32"))
    gram = ["headwater-reduce", "gram", "--input", rows, "--out"]
    demo.run("4-fold", *gram, folder / "gram.npy", "--threads", 1)
    mpirun = ["mpirun", "--oversubscribe", "-n", 3]
    demo.run("4-fold", *mpirun, *gram, folder / "gram-3.npy")
    one, three = (json.loads((folder / f"{g}.json").read_text()) for g in ("gram", "gram-3"))
    if (one["ranks"], three["ranks"]) != (1, 3) or one["digest"] != three["digest"]:
        raise CommandFailed(f"expected one digest from 1 and 3 ranks, found {one} and {three}")
    say("\n4. Fold: the Gram matrix of 200,000 rows, by 1 process and by 3 MPI ranks.")
    say(f"   2 runs, one digest: {one['digest']}")
    say("   The sums are added in one fixed order, so the number of ranks changes no bit.")


def events(demo: Demo) -> None:
    """Makes an event store of a log of pings, and shows one token row."""
    log, store, page = demo.folder / "pings.csv", demo.folder / "pings.db", demo.folder / "row.html"
    example = ROOT / "examples/pings"
    made = demo.run("5-events", sys.executable, example / "pings.py", log)
    say("\n5. Events: a log of pings becomes token rows for a decoder.")
    say(f"   {made}")
    schema = example / "events.toml"
    prepare = demo.run("5-events", "headwater", "prepare", log, "--schema", schema, "--out", store)
    say_all(prepare)
    inspect = ["headwater", "inspect", store, "--token-row", 0]
    lines = demo.run("5-events", *inspect).splitlines()
    demo.run("5-events", *inspect, "--html", page)
    say_all("\n".join(lines[:TOKEN_LINES]))
    say(f"   ... {len(lines) - TOKEN_LINES} more lines in {demo.logs}/5-events.txt")
    say(f"   The row as a page for a browser: {page}")


def train(demo: Demo) -> None:
    """Trains twice, once in two processes that are killed; both runs have the same losses."""
    store, runs = demo.folder / "churn", demo.folder / "runs"
    schema = ROOT / "examples/demo-shop/schema.toml"
    demo.run(
        "6-train", "headwater", "prepare", demo.folder / "data", "--schema", schema, "--out", store
    )
    say("\n6. Train twice at once: one run in one process; one in two that are killed half-way,")
    say("   and then in one that goes on (2 to 5 minutes).")
    program = ROOT / "examples/train_and_kill.py"
    steps = f"optimizer.steps={TRAINING_STEPS}"
    command = [sys.executable, program, store, runs, "--set", steps]
    with demo.start("6-train", *command) as process:
        show_progress(process, runs)
    lines = demo.output("6-train", process).splitlines()
    table = next(at for at, line in enumerate(lines) if line.split()[:1] == ["step"])
    say_all("\n".join(lines[table:]))


def show_progress(process: subprocess.Popen[bytes], runs: Path) -> None:
    """Shows the steps of both runs: on one line of a terminal, elsewhere at each quarter."""
    is_terminal = sys.stdout.isatty()
    shown = 0
    while process.poll() is None:
        whole, killed = (last_step(runs / name / "metrics.jsonl") for name in ("whole", "killed"))
        line = f"   of {TRAINING_STEPS} steps: whole run {whole}, killed run {killed}"
        done = (whole + killed) * PROGRESS_LINES // (2 * TRAINING_STEPS)
        if is_terminal:
            print(f"\r{line}", end=" ", flush=True)
        elif done > shown:
            shown = done
            print(line, flush=True)
        time.sleep(0.5)
    if is_terminal:
        print("\r\033[K", end="")


def last_step(log: Path) -> int:
    """Returns the newest step in the log of a run."""
    if not log.exists():
        return 0
    steps = re.findall(r'"step": (\d+), "task".*"gradient_norm"', log.read_text())
    return int(steps[-1]) if steps else 0


def say(line: str) -> None:
    """Prints a line and flushes it."""
    print(line, flush=True)


def say_all(lines: str) -> None:
    """Prints the output of a command, indented."""
    for line in lines.splitlines():
        say(f"   {line}")


if __name__ == "__main__":
    sys.exit(main())
