"""Runs the `confluence` command as a process, and reads what its runs leave."""

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import time

from child_processes import free_port
from confluence import cli
from confluence.compile_cache import use_compile_cache
from confluence.xla_flags import set_deterministic_flags

# As the command does, and before JAX is imported: the flags are part of the keys of what JAX keeps.
# The tests use few settings that change the compiled step, since compiling takes seconds: the sizes
# and rates do, the steps, the tasks and the checkpoints do not.
set_deterministic_flags()
use_compile_cache()

# A run of seconds that takes longer is broken; a busy machine is only slow.
TIMEOUT_SECONDS = 900
# Settings of a run that a test ends before its last step.
ENDLESS = ["optimizer.steps=100000"]


def confluence(*arguments, **environment):
    """Runs the command to its end, and returns the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "confluence.cli", *map(str, arguments)],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env={**os.environ, **environment},
    )  # fmt: skip


def confluence_here(*arguments):
    """Runs the command in this process, and returns what `confluence` returns.

    It takes less than half of the time, since JAX is imported already. A test of signals, variables
    of the environment or several ranks needs a process.
    """
    stdout, stderr = io.StringIO(), io.StringIO()
    hook, loggers = sys.unraisablehook, [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [of.level for of in loggers]
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            status = cli.main([*map(str, arguments)])
    except SystemExit as end:
        status = end.code
    finally:
        sys.unraisablehook = hook
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    return subprocess.CompletedProcess(arguments, status, stdout.getvalue(), stderr.getvalue())


def sets(settings):
    """Returns the options that change these settings."""
    return [part for setting in settings for part in ("--set", setting)]


def run(settings, out, *more, **environment):
    """Trains a run to its end."""
    return confluence("train", *sets(settings), "--out", out, *more, **environment)


def start_run(settings, out, *more):
    """Starts to train, and returns the running process."""
    arguments = ["train", *sets(settings), "--out", out, *more]
    return subprocess.Popen(
        [sys.executable, "-m", "confluence.cli", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def errors_of(process):
    """Waits until a process has ended, and returns what it wrote to standard error."""
    return process.communicate(timeout=TIMEOUT_SECONDS)[1]


def process_options(count):
    """Returns the options that `count` processes of a run share; the rank of each follows."""
    return ["--processes", count, "--coordinator", f"127.0.0.1:{free_port()}", "--rank"]


def train_on(count, settings, out, *more):
    """Trains on so many processes to the end."""
    if count == 1:
        finished = run(settings, out, *more)
        assert finished.returncode == 0, finished.stderr
        return
    options = process_options(count)
    ranks = [start_run(settings, out, *more, *options, rank) for rank in range(count)]
    try:
        for rank in ranks:
            error = errors_of(rank)
            assert rank.returncode == 0, error
    finally:
        for rank in ranks:
            rank.kill()


def wait_for_step(process, out, step):
    """Waits until the run has the checkpoint of a step."""
    log, end = out / "metrics.jsonl", time.monotonic() + TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < end:
        if (out / "checkpoints" / str(step)).exists() and log.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"no checkpoint of step {step}: {process.communicate()}")


def records(out):
    """Returns the records of steps and evaluations in the log, without the speed."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "speed" not in line]


def results(out):
    """Returns the results of a run, without the seconds that they took."""
    return without_seconds(json.loads((out / "results.json").read_text()))


def without_seconds(found):
    if not isinstance(found, dict):
        return found
    return {key: without_seconds(of) for key, of in found.items() if key != "cpu_seconds"}
