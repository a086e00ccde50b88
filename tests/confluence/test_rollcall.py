"""The roll call: all processes of a run join, or all get the reason why not."""

import fcntl
import json
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from child_processes import free_port
from confluence import rollcall
from confluence.meeting_place import AddressFile, KnownAddress
from runs import ENDLESS, process_options, start_run

TIMEOUT_SECONDS = 240
# No roll call of threads takes longer.
SOON_SECONDS = 15


def differences(ours, theirs):
    return [f"x is {theirs['x']}, expected {ours['x']}"] if ours != theirs else []


def meeting(value=7, key="runs/1"):
    return rollcall.Meeting(key, {"x": value}, differences)


def called(values, *, count=None, timeout=5, port=None, before=lambda port: None):
    """Runs a roll call; returns the error of each rank, or None. `values` has one per rank.

    `before` is called with the port when rank 0 listens, before the other ranks start.
    """
    found = {}
    port = port or free_port()

    def one(rank):
        try:
            place = KnownAddress(f"127.0.0.1:{port}")
            joined = rollcall.call(
                rank, count or len(values), place, meeting(values[rank]), timeout
            )
            for connection in joined.connections.values():
                connection.close()
            found[rank] = None
        except rollcall.JoinError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=one, args=[rank], daemon=True) for rank in values]
    if 0 in values:
        threads[0].start()
        connected(port).close()
        before(port)
    for thread in threads[1 if 0 in values else 0 :]:
        thread.start()
    end = time.monotonic() + SOON_SECONDS
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    return found


def test_equal_ranks_join():
    assert called({0: 7, 1: 7, 2: 7}) == {0: None, 1: None, 2: None}


def test_all_ranks_are_refused_if_one_differs():
    found = called({0: 7, 1: 7, 2: 8})
    assert found[0] == found[2] == "rank 2 would run something else than rank 0: x is 8, expected 7"
    # Rank 1 connected before and gets the same reason, or connects after rank 0 has ended.
    assert found[1] is not None


def test_rank_0_says_for_whom_it_waits(monkeypatch, capsys):
    monkeypatch.setattr(rollcall, "_QUIET_SECONDS", 0.2)
    port = free_port()
    called({0: 7, 2: 7}, count=4, timeout=1, port=port)
    assert capsys.readouterr().err == (
        f"confluence: rank 0 waits at 127.0.0.1:{port} for ranks 1, 3; it gives up 1 s after its "
        "start\n"
    )
    # Ranks that are there in time need no word.
    monkeypatch.undo()
    called({0: 7, 1: 7})
    assert capsys.readouterr().err == ""


def test_missing_ranks_are_named():
    port = free_port()
    found = called({0: 7, 2: 7}, count=4, timeout=1, port=port)
    expected = f"ranks 1, 3 did not connect to 127.0.0.1:{port} within 1 s"
    assert found == dict.fromkeys((0, 2), expected)


def test_a_missing_rank_0_is_an_error():
    found = called({1: 7}, count=2, timeout=0.3)
    assert "rank 1 of 2 could not connect to rank 0 at 127.0.0.1:" in found[1]


def connected(port, host="127.0.0.1"):
    end = time.monotonic() + SOON_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), 5)
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.01)


def report(of=None, **changes):
    """Returns the line that rank 1 of a run sends, with changes."""
    of = of or meeting()
    message = {"proof": of.proof("a rank"), "rank": 1, "processes": 3, "identity": of.identity}
    return json.dumps(message | changes).encode() + b"\n"


STRANGERS = {
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "random bytes": np.random.default_rng(5).bytes(3000) + b"\n",
    "a list": b"[1]\n",
    "a number of many digits": b"1" * 100_000 + b"\n",
    "deep JSON": b"[" * 500_000 + b"\n",
    "half a surrogate": b'{"proof": "\\ud800"}\n',
    "nothing": b"",
    "half a message": report()[:30],
    "no line end": report()[:-1],
    "100 megabytes": b"x" * 10**8,
    "a report longer than a mebibyte": report()[:-1] + b" " * 1_300_000 + b"\n",
    "no proof": b'{"rank": 1, "processes": 3, "identity": {"x": 7}}\n',
    "a foreign proof": report(meeting(key="runs/2")),
    "a proof that is a number": report(proof=1),
    "rank 0": report(rank=0),
    "rank 7 of 3": report(rank=7),
    "rank 3 of 3": report(rank=3),
    "rank -1": report(rank=-1),
    "a rank of text": report(rank="1"),
    "a rank that is true": report(rank=True),
    "a fraction of a rank": report(rank=1.0),
    "a rank that is a list": report(rank=[1]),
    "processes of text": report(processes="3"),
    "no identity": report(identity=None),
    "an identity of another form": report(identity=[7]),
    "an identity without x": report(identity={"y": 7}),
}


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("stays", [False, True])
def test_a_stranger_neither_joins_nor_stops_the_ranks(name, stays, capfd):
    with ExitStack() as open_resources:

        def before(port):
            connection = open_resources.enter_context(connected(port))
            # Rank 0 may close the connection before it has read everything.
            with suppress(OSError):
                connection.sendall(STRANGERS[name])
            if not stays:
                connection.close()

        start = time.monotonic()
        assert called({0: 7, 1: 7, 2: 7}, before=before) == {0: None, 1: None, 2: None}
        assert time.monotonic() - start < 4
    assert capfd.readouterr().err == ""


def test_a_report_may_come_in_parts():
    with ExitStack() as open_resources:
        answers = []

        def before(port):
            connection = open_resources.enter_context(connected(port))
            connection.sendall(report(processes=2)[:30])
            time.sleep(0.1)
            connection.sendall(report(processes=2)[30:])
            answers.append(connection.makefile())

        assert called({0: 7}, count=2, before=before) == {0: None}
        assert json.loads(answers[0].readlines()[-1])["refusal"] == ""


def test_rank_0_waits_for_those_that_it_refuses_but_not_for_ever(monkeypatch):
    """Whoever closes a connection first keeps its port for a while."""
    for closes in (True, False):
        ends = set()
        if not closes:
            monkeypatch.setattr(rollcall, "_READ_TIMEOUT_SECONDS", 0.7)

        def one(port, closes=closes, ends=ends):
            with connected(port) as connection, connection.makefile() as lines:
                connection.sendall(report(processes=2, identity={"x": 8}))
                lines.readline()
                assert "would run something else" in lines.readline()
                time.sleep(0.2 if closes else 3)
                ends.add("closed")

        def before(port, one=one):
            threading.Thread(target=one, args=[port], daemon=True).start()

        called({0: 7}, count=2, before=before)
        assert ("closed" in ends) == closes


def test_many_silent_connections_keep_no_rank_waiting():
    with ExitStack() as open_resources:

        def before(port):
            for _ in range(300):
                open_resources.enter_context(connected(port))

        assert called({0: 7, 1: 7, 2: 7}, before=before) == {0: None, 1: None, 2: None}


def test_a_connection_that_stays_silent_is_closed(monkeypatch):
    monkeypatch.setattr(rollcall, "_READ_TIMEOUT_SECONDS", 0.2)

    def before(port):
        with connected(port) as connection:
            connection.sendall(b"{")
            assert connection.recv(1) == b""

    assert called({0: 7, 1: 7}, before=before) == {0: None, 1: None}


def test_a_connection_that_is_gone_before_it_is_accepted_delays_no_rank():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        rollcall._Gathering([listener], 2, meeting()) as gathering,
    ):
        accepting = threading.Thread(target=gathering._accept, args=[listener], daemon=True)
        accepting.start()
        accepting.join(SOON_SECONDS)
        assert not accepting.is_alive()


def test_a_second_process_with_a_rank_is_turned_away_and_the_first_stays():
    refusals = []

    def before(port):
        with connected(port) as first, connected(port) as second:
            first.sendall(report())
            time.sleep(0.2)
            second.sendall(report())
            refusals.append(json.loads(second.makefile().readline())["refusal"])

    # The first one ended without an answer: its rank is missing again.
    assert called({0: 7, 1: 7, 2: 7}, before=before) == {0: None, 1: None, 2: None}
    assert refusals == ["two processes have rank 1; give each process its own --rank"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (report(rank=7), "a process was turned away: expected a --rank from 1 to 2, found 7"),
        (report(identity={}), "run the same version of headwater in all processes"),
        (report(meeting(key="x")), "a process of another run, with another --out, was turned away"),
    ],
)
def test_rank_0_tells_whom_it_turned_away(line, reason):
    def before(port):
        with connected(port) as connection:
            connection.sendall(line)
            connection.makefile().readline()

    found = called({0: 7, 1: 7}, count=3, timeout=1, before=before)
    assert found[0] == found[1]
    assert found[0].startswith("rank 2 did not connect to 127.0.0.1:")
    assert found[0].endswith(reason)


def test_a_rank_of_another_run_is_told_so_and_this_run_joins():
    told = []

    def before(port):
        with pytest.raises(rollcall.JoinError) as refused:
            rollcall.call(1, 2, KnownAddress(f"127.0.0.1:{port}"), meeting(key="runs/2"), 5)
        told.append(str(refused.value))

    assert called({0: 7, 1: 7, 2: 7}, before=before) == {0: None, 1: None, 2: None}
    assert "got no answer from rank 0 of this run at 127.0.0.1:" in told[0]
    assert "each run its own port" in told[0]


def test_other_numbers_of_processes_are_refused():
    def before(port):
        with connected(port) as connection:
            connection.sendall(report(processes=2))
            connection.makefile().readline()

    found = called({0: 7}, count=3, before=before)
    assert found[0].startswith("rank 1 has --processes 2, rank 0 has --processes 3; start all")


def test_rank_0_listens_at_the_address_of_the_coordinator_alone():
    def before(port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 5)

    assert called({0: 7, 1: 7}, before=before) == {0: None, 1: None}


@pytest.mark.parametrize(
    ("theirs", "is_like"),
    [
        ({"config": {"data": {"seed": 2}, "run": 3}, "step": 1}, True),
        # Another version may have other sections and keys, which are compared later.
        ({"config": {"data": {}, "x": 3}, "step": [1]}, True),
        ({"config": {}, "step": 1}, True),
        ({"config": {"data": [2], "run": 3}, "step": 1}, False),
        ({"config": {"data": None, "run": 3}, "step": 1}, False),
        ({"config": [1], "step": 1}, False),
        ({"config": {"data": {"seed": 2}, "run": 3}}, False),
        ({"config": {"data": {"seed": 2}, "run": 3}, "step": 1, "x": 1}, False),
        ({"step": 1}, False),
    ],
)
def test_an_identity_is_laid_out_as_that_of_rank_0(theirs, is_like):
    ours = {"config": {"data": {"seed": 1}, "run": 2}, "step": 0}
    assert rollcall._has_form(theirs, ours) == is_like


def test_a_report_whose_identity_is_laid_out_otherwise_is_none():
    ours = {"config": {"seed": 1}}
    message = {"rank": 1, "processes": 3, "identity": ours}
    assert rollcall._report_in(message, ours) == (1, 3, ours)
    assert rollcall._report_in(message | {"identity": {"config": 7}}, ours) is None


def test_rank_0_listens_at_all_addresses_of_its_name_or_at_none(monkeypatch):
    def places(*of):
        found = [(socket.AF_INET, place) for place in of]
        monkeypatch.setattr(rollcall, "_addresses", lambda *_: found)

    free = free_port()
    with socket.create_server(("127.0.0.2", 0)) as other:
        # Other ranks might take the address that another program has.
        places(("127.0.0.1", free), other.getsockname())
        with pytest.raises(rollcall.JoinError, match="in use"):
            rollcall._listen("name", free, 0)
    # An address that this machine does not have is left out.
    places(("192.0.2.1", free), ("127.0.0.1", free), ("127.0.0.2", free))
    listeners = rollcall._listen("name", free, 0)
    assert [of.getsockname()[0] for of in listeners] == ["127.0.0.1", "127.0.0.2"]
    assert rollcall._loopback_hint("localhost", listeners) == ""
    assert rollcall._loopback_hint("127.0.0.1", listeners) == ""
    assert "which on this machine is 127.0.0.1" in rollcall._loopback_hint("name", listeners)
    for listener in listeners:
        listener.close()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
        assert "on this machine is ::1" in rollcall._loopback_hint("name", [six])


def test_a_rank_waits_for_rank_0_no_longer_than_it_may(monkeypatch):
    waits = []

    def connect(_, timeout):
        waits.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(rollcall.JoinError, match=r"could not connect .* within 1 s \(timed out\)"):
        rollcall.call(1, 2, KnownAddress("192.0.2.1:9000"), meeting(), 1)
    assert 0 < min(waits) < max(waits) <= 1


def test_a_rank_tries_one_address_for_some_seconds_alone(monkeypatch):
    waits = []

    def connect(_, timeout):
        waits.append(timeout)
        raise LookupError("the end of the test")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(LookupError):
        rollcall.call(1, 2, KnownAddress("192.0.2.1:9000"), meeting(), 600)
    assert waits == [5]


def test_a_silent_program_at_an_old_address_keeps_no_rank_waiting(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(rollcall, "_ACKNOWLEDGE_SECONDS", 1.0)
    found, connections = {}, ExitStack()

    def one(rank):
        place = AddressFile(tmp_path, is_on_one_machine=True)
        found[rank] = rollcall.call(rank, 2, place, meeting(), 60)

    with connections, socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        # As a killed run leaves it, and another program has the port now.
        (tmp_path / "rank-0.address").write_text(address)
        ranks = [threading.Thread(target=one, args=[rank]) for rank in (1, 0)]
        start = time.monotonic()
        ranks[0].start()
        connections.enter_context(other.accept()[0])
        ranks[1].start()
        for rank in ranks:
            rank.join(30)
        assert sorted(found) == [0, 1]
        assert time.monotonic() - start < 15
        for joined in found.values():
            for connection in joined.connections.values():
                connection.close()
    assert capfd.readouterr().err == (
        f"confluence: rank 1 got no answer from rank 0 of this run at {address} within 1 s; it "
        "reads the address again\n"
    )


def test_reading_a_message_leaves_the_next_one():
    heard, rank_0 = (
        json.dumps({"proof": meeting().proof(rollcall._ACKNOWLEDGEMENT)}),
        meeting().proof("rank 0"),
    )
    answer = json.dumps({"proof": rank_0, "refusal": ""})
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_all():
            connection, _ = listener.accept()
            connection.recv(1 << 16)
            connection.sendall(f'{heard}\n{answer}\n{{"steps_begun": 7}}\n'.encode())
            connection.close()

        other = threading.Thread(target=answer_all)
        other.start()
        place = KnownAddress(f"127.0.0.1:{listener.getsockname()[1]}")
        joined = rollcall.call(1, 2, place, meeting(), 5)
        other.join(TIMEOUT_SECONDS)
    with joined.connections[0] as connection:
        assert connection.makefile().readline() == '{"steps_begun": 7}\n'


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a" * 300])
def test_rank_0_elsewhere_is_refused(host):
    with pytest.raises(rollcall.JoinError, match="rank 0 cannot (listen on|find the address of) "):
        rollcall.call(0, 2, KnownAddress(f"{host}:{free_port()}"), meeting(), 0.3)


def test_a_port_in_use_is_refused():
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(rollcall.JoinError, match=r"in use; give --coordinator a free port"),
    ):
        rollcall.call(0, 2, KnownAddress(f"localhost:{other.getsockname()[1]}"), meeting(), 1)


ANSWERS = {
    "nothing": b"",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a list": b"[1]\n",
    "its own report": report(),
    "a refusal without a proof": b'{"refusal": ""}\n',
    "another run": json.dumps({"proof": meeting(key="x").proof("rank 0"), "refusal": ""}).encode(),
    "deep JSON": b"[" * 500_000 + b"\n",
    "100 megabytes": b"x" * 10**8,
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("stays", [False, True])
def test_a_rank_takes_no_answer_but_that_of_its_rank_0(name, stays, monkeypatch):
    monkeypatch.setattr(rollcall, "_ACKNOWLEDGE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(ANSWERS[name])
                if stays:
                    connection.recv(1 << 16)

        other = threading.Thread(target=answer)
        other.start()
        with pytest.raises(rollcall.JoinError, match="rank 1 of 2 got no answer from rank 0 of th"):
            rollcall.call(
                1, 2, KnownAddress(f"127.0.0.1:{listener.getsockname()[1]}"), meeting(), 1
            )
        other.join(TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    "name",
    [
        "localhost", "localhost:", ":1", "localhost:0", "localhost:65536", "a:b", "a:\u00b2",
        "a:" + "9" * 5000,
    ],
)  # fmt: skip
def test_a_coordinator_is_a_host_and_a_port(name):
    assert rollcall.address("localhost:1") == ("localhost", 1)
    assert rollcall.address("[::1]:65535") == ("::1", 65535)
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
