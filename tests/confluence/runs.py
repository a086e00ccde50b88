"""The command as a process, and what its runs leave."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

# What one process has compiled, the next need not.
ENVIRONMENT = {
    **os.environ,
    "JAX_COMPILATION_CACHE_DIR": tempfile.mkdtemp(prefix="confluence-"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}


def confluence(*arguments, **environment):
    """Runs the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "confluence.cli", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, env={**ENVIRONMENT, **environment},
    )  # fmt: skip


def sets(settings):
    return [part for setting in settings for part in ("--set", setting)]


def run(settings, out, *more, **environment):
    """Trains."""
    return confluence("train", *sets(settings), "--out", out, *more, **environment)


def begun(settings, out, *more):
    """Trains, and does not wait for the end."""
    arguments = ["train", *sets(settings), "--out", out, *more]
    return subprocess.Popen(
        [sys.executable, "-m", "confluence.cli", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def together(count):
    """What each of so many processes is told, but for its rank."""
    return ["--processes", count, "--coordinator", f"127.0.0.1:{free_port()}", "--rank"]


def wait_for_step(process, out, step):
    log, end = out / "metrics.jsonl", time.monotonic() + 200
    while process.poll() is None and time.monotonic() < end:
        if (out / "checkpoints" / str(step)).exists() and log.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"no step {step}: {process.communicate()}")


def records(out):
    """What the log says of steps and evaluations; not how long they took."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "speed" not in line]


def results(out):
    return json.loads((out / "results.json").read_text())
