"""P2 and P4: killed at any moment, a run goes on from its last cursor, also with other ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "training.py"
KILLS = 20
RANKS = [1, 2, 3, 4, 6, 12]
ENDLESS = 10**9


def train(store, folder, world, prefetch, steps):
    """Starts a run; returns once it has begun."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, PROGRAM, store, folder, world, prefetch, steps]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    return process


def ended(process):
    """The exit status of a run that is over or about to be."""
    process.stdout.close()
    return process.wait(120)


def steps_of(folder):
    """Each step that was done with its digest, in the order in which they were done."""
    lines = (folder / "log").read_text().splitlines()
    return [(int(step), digest) for step, digest in map(str.split, lines)]


def test_p2_p4_killed_twenty_times_and_resumed_with_other_ranks(store_path, tmp_path):
    random = np.random.default_rng(20)
    killed = tmp_path / "killed"
    worlds = set()
    for _ in range(KILLS):
        world = random.choice([ranks for ranks in RANKS if ranks not in worlds] or RANKS)
        worlds.add(world)
        process = train(store_path, killed, world, random.integers(4), ENDLESS)
        time.sleep(random.uniform(0, 0.25))
        os.kill(process.pid, signal.SIGKILL)
        assert ended(process) == -signal.SIGKILL
        # The line that it was about to write has no end.
        with (killed / "log").open("r+b") as log:
            log.truncate(log.read().rfind(b"\n") + 1)
    last = max(step for step, _ in steps_of(killed)) + 10
    assert ended(train(store_path, killed, 2, 3, last)) == 0
    assert ended(train(store_path, tmp_path / "whole", 1, 3, last)) == 0
    whole = dict(steps_of(tmp_path / "whole"))
    assert whole.keys() == set(range(last))
    killed_steps = steps_of(killed)
    assert {step for step, _ in killed_steps} == whole.keys()
    # What was not saved yet is done again; it is the same then.
    assert len(killed_steps) > last
    assert all(whole[step] == digest for step, digest in killed_steps)
