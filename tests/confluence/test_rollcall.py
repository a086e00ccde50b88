"""The roll call: all processes of a run join, or all get the reason why not."""

import fcntl
import signal
import socket
import threading
import time

import pytest

from confluence import rollcall
from runs import ENDLESS, free_port, process_options, start_run

TIMEOUT_SECONDS = 240


def differences(ours, theirs):
    return [f"x is {theirs['x']}, expected {ours['x']}"] if ours != theirs else []


def called(values, *, count=None, timeout=5):
    """Runs a roll call; returns the error of each rank, or None. `values` has one per rank."""
    found = {}
    coordinator = f"127.0.0.1:{free_port()}"

    def one(rank):
        try:
            rollcall.call(
                rank, count or len(values), coordinator, {"x": values[rank]}, differences, timeout
            )
            found[rank] = None
        except rollcall.JoinError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=one, args=[rank]) for rank in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    return found


def test_equal_ranks_join():
    assert called({0: 7, 1: 7, 2: 7}) == {0: None, 1: None, 2: None}


def test_all_ranks_are_refused_if_one_differs():
    found = called({0: 7, 1: 7, 2: 8})
    assert found[0] == found[2] == "rank 2 would run something else than rank 0: x is 8, expected 7"
    # Rank 1 connected before and gets the same reason, or connects after rank 0 has ended.
    assert found[1] is not None


def test_missing_ranks_are_named():
    found = called({0: 7, 2: 7}, count=4, timeout=1)
    assert found == dict.fromkeys((0, 2), "rank 1, 3 did not connect within 1 s")


def test_a_missing_rank_0_is_an_error():
    found = called({1: 7}, count=2, timeout=1)
    assert "rank 1 of 2 could not connect to rank 0 at 127.0.0.1:" in found[1]


def test_a_foreign_connection_is_ignored():
    found = {}
    port = free_port()

    def one(rank):
        found[rank] = rollcall.call(rank, 2, f"127.0.0.1:{port}", {}, differences, 20)

    first = threading.Thread(target=one, args=[0])
    first.start()
    for message in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"\xff\n"):
        with connected(port) as connection:
            connection.sendall(message)
    one(1)
    first.join(TIMEOUT_SECONDS)
    assert found == {0: None, 1: None}


def connected(port):
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 5)
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize("name", ["localhost", "localhost:", ":1", "localhost:70000", "a:b"])
def test_a_coordinator_is_a_host_and_a_port(name):
    with pytest.raises(rollcall.JoinError, match="expected --coordinator HOST:PORT, found"):
        rollcall.address(name)


def outcomes(ranks, seconds=TIMEOUT_SECONDS):
    """Returns the exit status and the errors of each rank; fails if one does not end."""
    try:
        errors = [rank.communicate(timeout=seconds)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, error) for rank, error in zip(ranks, errors, strict=True)]


def test_ranks_with_other_settings_are_refused_before_writing(tiny, tmp_path):
    options = process_options(2)
    others = [[], ["data.seed=5", "run.threads=2"]]
    out = tmp_path / "run"
    ranks = [start_run([*tiny, *others[rank]], out, *options, rank) for rank in range(2)]
    message = "rank 1 would run something else than rank 0: data.seed is 5, expected 42\n"
    assert outcomes(ranks) == [(1, f"confluence: {message}")] * 2
    assert list(out.iterdir()) == []


def test_an_error_of_one_rank_ends_the_others_in_bounded_time(tiny, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    with (out / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        options = process_options(2)
        settings = [*tiny, "run.timeout_seconds=20"]
        start = time.monotonic()
        ranks = [start_run(settings, out, *options, rank) for rank in range(2)]
        (status, error), (other, _) = outcomes(ranks)
    assert status == 1
    assert f"confluence: rank 0: another process is at work in {out}" in error
    assert other != 0
    assert time.monotonic() - start < TIMEOUT_SECONDS


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_stops_on_a_signal_before_its_first_step(count, tiny, tmp_path):
    out = tmp_path / "run"
    options = process_options(count)
    ranks = [start_run([*tiny, *ENDLESS], out, *options, rank) for rank in range(count)]
    end = time.monotonic() + TIMEOUT_SECONDS
    while not (out / "versions.json").exists() and time.monotonic() < end:
        time.sleep(0.01)
    ranks[-1].send_signal(signal.SIGTERM)
    for status, error in outcomes(ranks):
        assert status == 130, error
        assert "continue with --resume" in error
        assert "Traceback" not in error
