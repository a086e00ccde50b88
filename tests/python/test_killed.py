"""P2 and P4: a killed run resumes from its last cursor, on other ranks too."""

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
    """Starts a run; returns after its first line."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, PROGRAM, store, folder, world, prefetch, steps]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    return process


def exit_status(process):
    """Waits for a run and returns its exit status."""
    process.stdout.close()
    return process.wait(120)


def steps_of(folder):
    """Returns each finished step with its digest, in order of execution."""
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
        assert exit_status(process) == -signal.SIGKILL
        # The kill may cut the last line short.
        with (killed / "log").open("r+b") as log:
            log.truncate(log.read().rfind(b"\n") + 1)
    last = max(step for step, _ in steps_of(killed)) + 10
    assert exit_status(train(store_path, killed, 2, 3, last)) == 0
    assert exit_status(train(store_path, tmp_path / "whole", 1, 3, last)) == 0
    # Of twenty killed writers of the cursor nothing is left.
    assert {path.name for path in killed.iterdir()} == {"cursor", "log"}
    whole = dict(steps_of(tmp_path / "whole"))
    assert whole.keys() == set(range(last))
    killed_steps = steps_of(killed)
    assert {step for step, _ in killed_steps} == whole.keys()
    # Steps after the last cursor are done again, with the same digests.
    assert len(killed_steps) > last
    assert all(whole[step] == digest for step, digest in killed_steps)
