"""Several processes come together, or are all told why not."""

import fcntl
import signal
import socket
import threading
import time

import pytest

from confluence import rollcall
from runs import begun, free_port, together

PATIENCE = 240


def differences(ours, theirs):
    return [f"x is {theirs['x']} and not {ours['x']}"] if ours != theirs else []


def called(told, *, count=None, timeout=5):
    """What each of these ranks is told: None, or why not."""
    found = {}
    coordinator = f"127.0.0.1:{free_port()}"

    def one(rank):
        try:
            rollcall.call(
                rank, count or len(told), coordinator, {"x": told[rank]}, differences, timeout
            )
            found[rank] = None
        except rollcall.JoinError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=one, args=[rank]) for rank in told]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return found


def test_all_go_where_all_are_alike():
    assert called({0: 7, 1: 7, 2: 7}) == {0: None, 1: None, 2: None}


def test_none_goes_where_one_would_run_something_else():
    found = called({0: 7, 1: 7, 2: 8})
    assert found[0] == found[2] == "rank 2 would run something else than rank 0: x is 8 and not 7"
    # Rank 1 came before, and is told the same, or was still on its way, and finds nobody.
    assert found[1] is not None


def test_who_is_missing_is_named():
    found = called({0: 7, 2: 7}, count=4, timeout=1)
    assert found == dict.fromkeys((0, 2), "rank 1, 3 did not come in 1 s")


def test_without_rank_0_there_is_nobody():
    found = called({1: 7}, count=2, timeout=1)
    assert "rank 1 of 2 found nobody at 127.0.0.1:" in found[1]


def test_a_stranger_is_passed_over():
    found = {}
    port = free_port()

    def one(rank):
        found[rank] = rollcall.call(rank, 2, f"127.0.0.1:{port}", {}, differences, 20)

    first = threading.Thread(target=one, args=[0])
    first.start()
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"\xff\n"):
        with connected(port) as connection:
            connection.sendall(said)
    one(1)
    first.join(PATIENCE)
    assert found == {0: None, 1: None}


def connected(port):
    end = time.monotonic() + PATIENCE
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


def ended(ranks, seconds=PATIENCE):
    """The status and the errors of each rank, which must end soon."""
    try:
        errors = [rank.communicate(timeout=seconds)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, error) for rank, error in zip(ranks, errors, strict=True)]


def test_ranks_of_other_settings_are_refused_and_nothing_is_written(tiny, tmp_path):
    several = together(2)
    others = [[], ["data.seed=5", "run.threads=2"]]
    out = tmp_path / "run"
    ranks = [begun([*tiny, *others[rank]], out, *several, rank) for rank in range(2)]
    words = "rank 1 would run something else than rank 0: data.seed is 5 and not 42\n"
    assert ended(ranks) == [(1, f"confluence: {words}")] * 2
    assert list(out.iterdir()) == []


def test_an_error_of_one_rank_ends_the_others_in_bounded_time(tiny, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    with (out / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        several = together(2)
        settings = [*tiny, "run.timeout_seconds=10"]
        begun_at = time.monotonic()
        ranks = [begun(settings, out, *several, rank) for rank in range(2)]
        (status, error), (other, _) = ended(ranks)
    assert status == 1
    assert f"confluence: rank 0: another process trains in {out}" in error
    assert other != 0
    assert time.monotonic() - begun_at < PATIENCE


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_is_asked_to_end_before_its_first_step_does(count, tiny, tmp_path):
    out = tmp_path / "run"
    several = together(count)
    ranks = [begun(tiny, out, *several, rank) for rank in range(count)]
    end = time.monotonic() + PATIENCE
    while not (out / "versions.json").exists() and time.monotonic() < end:
        time.sleep(0.01)
    ranks[-1].send_signal(signal.SIGTERM)
    for status, error in ended(ranks):
        assert status == 130, error
        assert "go on with --resume" in error
        assert "Traceback" not in error
