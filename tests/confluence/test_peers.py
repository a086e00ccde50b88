"""Ranks notice that another one is gone, gives no sign of life, or keeps them waiting."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from child_processes import listening
from confluence import config, peers, rollcall, training
from confluence.config import ConfigError
from confluence.meeting_place import AddressFile, KnownAddress
from confluence.peers import Peers
from runs import ENDLESS, errors_of, process_options, start_run, wait_for_step

SOON_SECONDS = 60


class Lost:
    """What the ranks of a run are told, and when."""

    def __init__(self):
        self.reasons = {}
        self.all_know = threading.Event()

    def of(self, rank, count):
        def lost(message):
            self.reasons[rank] = message
            if len(self.reasons) == count:
                self.all_know.set()

        return lost


@pytest.fixture
def run_of_three(monkeypatch):
    """The peers of ranks 0 to 2, and what they are told when one is lost.

    Needs `monkeypatch`, so that the peers are closed before a changed clock is set back: a thread
    that waits for its next beat would wait for as long as the clock was ahead.
    """
    made, lost = [], Lost()

    def start(timeout_seconds, count=3):
        pairs = {rank: socket.socketpair() for rank in (1, 2)}
        connections = {0: {rank: pair[0] for rank, pair in pairs.items()}}
        connections |= {rank: {0: pair[1]} for rank, pair in pairs.items()}
        for rank, of_rank in connections.items():
            made.append(Peers(rank, of_rank, timeout_seconds, lost.of(rank, count)))
        return made, lost

    yield start
    for of in made:
        of.close(has_ended=True)


def test_a_rank_that_is_gone_is_named_to_all(run_of_three):
    ranks, lost = run_of_three(100, count=2)
    start = time.monotonic()
    ranks[2].close(has_ended=False)
    assert lost.all_know.wait(SOON_SECONDS)
    assert time.monotonic() - start < 5
    for rank in (0, 1):
        assert lost.reasons[rank] == (
            f"confluence: rank {rank} stops: rank 2 is gone; its own messages say why; continue "
            "with --resume, also with another number of processes"
        )


def test_the_others_name_rank_0_when_it_is_gone(run_of_three):
    ranks, lost = run_of_three(100, count=2)
    ranks[0].close(has_ended=False)
    assert lost.all_know.wait(SOON_SECONDS)
    assert all("rank 0 is gone" in lost.reasons[rank] for rank in (1, 2))


def test_a_rank_that_says_nothing_is_named(run_of_three):
    ranks, lost = run_of_three(1, count=3)
    # Its thread stands still, and its connection is open, as that of a stopped process.
    ranks[1]._is_closed.set()
    ranks[1]._thread.join()
    assert lost.all_know.wait(2) is False
    assert all(
        "rank 1 has given no sign of life for 1 s; see whether its process is stopped" in of
        for of in lost.reasons.values()
    )
    assert sorted(lost.reasons) == [0, 2]


def test_a_rank_that_does_not_begin_a_step_is_named_to_all(run_of_three):
    ranks, lost = run_of_three(1)
    for _ in range(2):
        for of in ranks:
            of.begin_step()
    time.sleep(2)
    assert lost.reasons == {}
    ranks[0].begin_step()
    ranks[1].begin_step()
    assert lost.all_know.wait(SOON_SECONDS)
    assert all(
        "rank 2 has not begun a step within 1 s (run.timeout_seconds) for which the" in of
        for of in lost.reasons.values()
    )


def test_no_rank_is_late_while_rank_0_writes_results(run_of_three):
    ranks, lost = run_of_three(1)
    with ranks[0].allow_late_ranks():
        ranks[1].begin_step()
        time.sleep(2.5)
        assert lost.reasons == {}
    assert lost.all_know.wait(SOON_SECONDS)
    assert "rank 0, 2 has not begun a step" in lost.reasons[0]


def test_a_job_that_is_suspended_as_a_whole_loses_no_rank(run_of_three, monkeypatch):
    gone = [0.0]
    clock = time.monotonic
    monkeypatch.setattr(peers.time, "monotonic", lambda: clock() + gone[0])
    _, lost = run_of_three(4)
    time.sleep(1)
    gone[0] = 1000.0
    time.sleep(2)
    assert lost.reasons == {}


def test_an_error_of_one_rank_is_told_to_all(run_of_three):
    ranks, lost = run_of_three(100)
    # Where the process would end, the test goes on.
    with pytest.raises(ConfigError), ranks[1].exit_on_error(KeyError):
        raise ConfigError("no task is called 'nope'")
    assert lost.all_know.wait(SOON_SECONDS)
    assert lost.reasons[1] == "confluence: rank 1: no task is called 'nope'"
    for rank in (0, 2):
        assert lost.reasons[rank].startswith(f"confluence: rank {rank} stops: rank 1: no task is")


ALONE = """
import os, socket, time
from confluence.peers import Peers

here, there = socket.socketpair()
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 2)
Peers(1, {0: there}, 100)
here.close()
time.sleep(60)
"""


def test_a_lost_rank_ends_a_process_whose_output_is_closed():
    found = subprocess.run([sys.executable, "-c", ALONE], timeout=SOON_SECONDS)
    assert found.returncode == 1


def test_a_file_without_an_address_is_read_again(tmp_path):
    place = AddressFile(tmp_path, is_on_one_machine=True)
    assert place.read() is None
    for text in (b"", b"127", b"\xff:\xff"):
        (tmp_path / "rank-0.address").write_bytes(text)
        assert place.read() is None
    with place.announce() as first:
        assert place.read() == first
        with AddressFile(tmp_path, is_on_one_machine=True).announce() as second:
            assert place.read() == second != first
        assert place.read() is None
        (tmp_path / "rank-0.address").write_text("127.0.0.1:7")
    # It is that of another start of the run.
    assert place.read() == "127.0.0.1:7"


def test_ranks_whose_configuration_is_refused_all_say_why_and_end(tiny, tmp_path):
    options = process_options(2)
    settings = [*tiny, "data.tasks=['nope']"]
    start = time.monotonic()
    ranks = [start_run(settings, tmp_path / "run", *options, rank) for rank in range(2)]
    try:
        for rank in ranks:
            error = errors_of(rank)
            assert "no task is called 'nope'" in error
            assert "--resume" not in error
            assert rank.returncode == 1
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert time.monotonic() - start < 100


def test_a_rank_that_dies_right_after_the_roll_call_is_named(tiny, tmp_path):
    out, options = tmp_path / "run", process_options(2)
    identity = training._run_identity(config.load(None, tiny), out, resume=False)
    meeting = rollcall.Meeting(os.path.abspath(out), identity, training._identity_differences)
    rank_0 = start_run(tiny, out, *options, 0)
    try:
        joined = rollcall.call(1, 2, KnownAddress(options[3]), meeting, 200)
        joined.connections[0].close()
        # JAX waits for the rank for run.timeout_seconds, 600.
        _, error = rank_0.communicate(timeout=30)
    finally:
        rank_0.kill()
        rank_0.communicate()
    assert rank_0.returncode == 1
    assert "confluence: rank 0 stops: rank 1 is gone; its own messages say why" in error


def test_ranks_that_have_ended_are_not_lost(run_of_three):
    ranks, lost = run_of_three(1)
    for rank in (0, 2, 1):
        ranks[rank].begin_step()
        time.sleep(0.5)
        ranks[rank].close(has_ended=True)
    time.sleep(1.5)
    assert lost.reasons == {}


@pytest.mark.parametrize(
    ("sign", "reason"),
    [
        (signal.SIGKILL, "rank 1 is gone; its own messages say why"),
        (signal.SIGSTOP, "rank 1 has given no sign of life for 20 s"),
    ],
)
def test_a_rank_that_is_killed_or_stopped_is_named_and_ends_the_run(sign, reason, tiny, tmp_path):
    options = process_options(2)
    settings = [*tiny, *ENDLESS, "run.timeout_seconds=20", "run.checkpoint_every=2"]
    out = tmp_path / "run"
    ranks = [start_run(settings, out, *options, rank) for rank in range(2)]
    try:
        wait_for_step(ranks[0], out, 2)
        # At 127.0.0.1 alone, neither the roll call nor JAX nor gloo at all addresses.
        assert {address for rank in ranks for address in listening(rank.pid)} == {"0100007F"}
        start = time.monotonic()
        ranks[1].send_signal(sign)
        _, error = ranks[0].communicate(timeout=SOON_SECONDS)
        assert time.monotonic() - start < (20 if sign == signal.SIGKILL else 40)
        assert ranks[0].returncode == 1
        assert f"confluence: rank 0 stops: {reason}" in error
        assert "Traceback" not in error
        assert "continue with --resume" in error
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
