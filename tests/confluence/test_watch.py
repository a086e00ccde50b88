"""What a rank notices of the others, at a clock that the test sets."""

import json
import os
import socket
import types

import pytest

from confluence import peers, rollcall
from confluence.config import ConfigError
from confluence.peers import Peers
from confluence.training import TrainingError


class Watch:
    """The peers of a rank, whose thread does not run."""

    def __init__(self, monkeypatch, rank, timeout_seconds=1000):
        self.now, self.slept, self.lost = 1000.0, [], []
        clock = types.SimpleNamespace(monotonic=lambda: self.now, sleep=self.slept.append)
        monkeypatch.setattr(peers, "time", clock)
        monkeypatch.setattr(peers.threading.Thread, "start", lambda _: None)
        others = (0,) if rank else (1, 2)
        pairs = {other: socket.socketpair() for other in others}
        self.ends = {other: end for other, (_, end) in pairs.items()}
        connections = {other: end for other, (end, _) in pairs.items()}
        self.peers = Peers(rank, connections, timeout_seconds, self.lost.append)

    def says(self, other, now, **message):
        """Another rank sends a message at a time."""
        self.sends(other, rollcall.line(message), now)

    def sends(self, other, data, now):
        self.now = now
        self.ends[other].sendall(data)
        self.peers._receive(other)

    def checked(self, now):
        """Returns the reasons to end at a time."""
        self.now = now
        self.peers._check(now)
        return self.lost

    def told(self, other):
        """Returns the messages that were sent to another rank."""
        self.ends[other].setblocking(False)
        try:
            lines = self.ends[other].recv(1 << 16).splitlines()
        except BlockingIOError:
            return []
        return [json.loads(of) for of in lines]


@pytest.fixture
def watch(monkeypatch):
    made = []

    def start(*arguments):
        made.append(Watch(monkeypatch, *arguments))
        return made[-1]

    yield start
    for of in made:
        of.peers.close(has_ended=True)
        for end in of.ends.values():
            end.close()


def test_a_rank_is_silent_from_its_last_message_on(watch):
    rank_0 = watch(0)
    rank_0.says(2, 1050)
    # No rank is waited for as long as the timeout of a step, if that is longer.
    assert rank_0.checked(1100) == []
    [reason] = rank_0.checked(1100.5)
    assert "rank 0 stops: rank 1 has given no sign of life for 100 s; see" in reason
    assert rank_0.told(2) == [{"lost": reason.partition("stops: ")[2]}]
    assert rank_0.told(1) == []
    assert rank_0.slept == [peers._LAST_WORDS_SECONDS]
    # It is told once.
    assert rank_0.checked(2000) == [reason]


def test_another_rank_ends_without_a_message_when_rank_0_is_silent(watch):
    rank_1 = watch(1)
    [reason] = rank_1.checked(1101)
    assert "rank 1 stops: rank 0 has given no sign of life for 100 s" in reason
    assert (rank_1.told(0), rank_1.slept) == ([], [])


def test_a_rank_is_late_when_others_have_waited_for_its_step(watch):
    rank_0 = watch(0, 8)
    for now in (1004, 1009, 1014):
        for other in (1, 2):
            rank_0.says(other, now, steps_begun=0)
    # Before the first step there is none.
    assert rank_0.checked(1014) == []
    rank_0.peers.begin_step()
    rank_0.says(1, 1015, steps_begun=1)
    assert rank_0.checked(1015) == []
    for now in (1019, 1023):
        rank_0.says(1, now, steps_begun=1)
        rank_0.says(2, now, steps_begun="1")
        assert rank_0.checked(now) == []
    [reason] = rank_0.checked(1023.5)
    assert "stops: rank 2 has not begun a step within 8 s (run.timeout_seconds) for" in reason
    for other in (1, 2):
        assert rank_0.told(other) == [{"lost": reason.partition("stops: ")[2]}]


def test_rank_0_itself_may_be_late(watch):
    rank_0 = watch(0, 8)
    for _ in range(2):
        rank_0.peers.begin_step()
    for now in (1001, 1009):
        for other in (1, 2):
            rank_0.says(other, now, steps_begun=3)
        assert rank_0.checked(now) == []
    [reason] = rank_0.checked(1009.5)
    assert "stops: rank 0 has not begun a step within 8 s" in reason


def test_rank_0_alone_counts_steps(watch):
    rank_1 = watch(1, 8)
    rank_1.says(0, 1000, steps_begun=1)
    assert rank_1.checked(1001) == []
    rank_1.says(0, 1009, steps_begun=1)
    assert rank_1.checked(1010) == []


def test_a_rank_may_be_late_while_the_others_allow_it(watch):
    rank_0 = watch(0, 8)
    with rank_0.peers.allow_late_ranks():
        rank_0.peers.begin_step()
        for now in (1005, 1010, 1015):
            rank_0.says(1, now)
            rank_0.says(2, now)
            assert rank_0.checked(now) == []
    # From then on they have the whole time.
    assert rank_0.checked(1020) == []
    for other in (1, 2):
        rank_0.says(other, 1022)
    assert rank_0.checked(1023) == []
    [reason] = rank_0.checked(1029)
    assert "rank 1, 2 has not begun a step" in reason


def test_a_rank_that_has_ended_is_neither_silent_nor_late_nor_gone(watch):
    rank_0 = watch(0, 8)
    rank_0.says(1, 1000, ended=False)
    rank_0.says(2, 1000, ended=True)
    rank_0.says(2, 1000, steps_begun=0)
    rank_0.peers.begin_step()
    rank_0.says(1, 1001, steps_begun=1)
    rank_0.says(1, 1009, steps_begun=1)
    rank_0.ends[2].close()
    rank_0.peers._receive(2)
    assert rank_0.checked(1010) == []
    rank_0.ends[1].close()
    rank_0.peers._receive(1)
    assert "rank 1 is gone; its own messages say why" in rank_0.lost[0]


def test_a_message_may_come_in_parts_but_not_without_end(watch):
    rank_0 = watch(0)
    rank_0.sends(1, b'{"steps_begun": 1}\n{"steps_be', 1000)
    rank_0.sends(1, b'gun": 2}\n', 1000)
    rank_0.sends(2, b"no JSON\n[1]\n", 1000)
    # Nothing has come.
    rank_0.peers._receive(2)
    assert [of.steps_begun for of in rank_0.peers._peers.values()] == [2, 0]
    assert rank_0.lost == []
    for _ in range(3):
        rank_0.sends(1, b"x" * 30_000, 1000)
    assert "rank 1 is gone" in rank_0.lost[0]
    assert "rank 1 is gone" in rank_0.told(2)[0]["lost"]


def test_a_message_of_rank_0_ends_a_rank(watch):
    rank_1 = watch(1)
    rank_1.says(0, 1000, lost="rank 2 is gone")
    rank_1.says(0, 1000, lost="twice")
    assert rank_1.lost == ["confluence: rank 1 stops: rank 2 is gone"]
    assert rank_1.told(0) == []


def watched(rank_0, *steps):
    """Watches at a clock that goes on by these steps; returns how long each wait would be."""
    waits, left = [], list(steps)

    def select(seconds):
        waits.append(seconds)
        if left:
            rank_0.now += left.pop(0)
        else:
            rank_0.peers._is_closed.set()
        return []

    rank_0.peers._selector.select = select
    rank_0.peers._watch()
    return waits


def test_a_rank_says_once_a_second_how_far_it_is(watch):
    rank_0 = watch(0)
    rank_0.peers.begin_step()
    assert watched(rank_0, 0, 0.25, 0.75, 0.25) == [0, 1, 0.75, 1, 0.75]
    assert rank_0.told(1) == rank_0.told(2) == 2 * [{"steps_begun": 1}]


def test_a_short_timeout_has_quicker_beats(watch):
    assert watched(watch(0, 2), 0)[-1] <= 0.5


@pytest.mark.parametrize(("seconds", "starts_anew"), [(3.5, False), (4.5, True)])
def test_a_rank_that_stood_still_counts_anew(seconds, starts_anew, watch):
    rank_0 = watch(0, 8)
    watched(rank_0, 0, seconds)
    since = 1000 + seconds if starts_anew else 1000
    assert [of.heard_at for of in rank_0.peers._peers.values()] == [since, since]
    assert rank_0.peers._most_since == since


def test_a_watch_that_fails_ends_the_rank(watch):
    rank_1 = watch(1)

    def fail(_):
        raise KeyError("what")

    rank_1.peers._selector.select = fail
    rank_1.peers._run()
    assert rank_1.lost == [
        "confluence: rank 1 stops: KeyError('what'); continue with --resume, also with another "
        "number of processes"
    ]


@pytest.mark.parametrize(
    ("error", "said", "waits"),
    [
        (ConfigError("no such task"), "no such task", False),
        (TrainingError("no finite gradients"), "no finite gradients", True),
        (OSError("no such file"), "no such file", True),
        (ValueError("of JAX"), "ValueError: of JAX", True),
    ],
)
def test_an_error_of_a_rank_is_sent_with_its_remedy(error, said, waits, watch, capsys):
    rank_1 = watch(1)
    with pytest.raises(type(error)), rank_1.peers.exit_on_error(KeyError):
        raise error
    assert rank_1.told(0) == [{"lost": f"rank 1: {said}"}]
    assert rank_1.lost == [f"confluence: rank 1: {said}"]
    # An error that comes of the loss of a rank leaves it to the watch to say so.
    noticed = [peers._NOTICED_SECONDS] if waits else []
    assert rank_1.slept == [*noticed, peers._LAST_WORDS_SECONDS]
    assert ("Traceback" in capsys.readouterr().err) == (type(error) is ValueError)


def test_an_expected_error_and_one_of_a_single_process_are_sent_to_no_rank(watch, capsys):
    rank_1 = watch(1)
    with pytest.raises(KeyError), rank_1.peers.exit_on_error(KeyError):
        raise KeyError
    alone = Peers(0, {}, 10, rank_1.lost.append)
    with pytest.raises(ValueError, match="mine"), alone.exit_on_error(KeyError):
        raise ValueError("mine")
    alone.close(has_ended=False)
    assert (rank_1.told(0), rank_1.lost, rank_1.slept) == ([], [], [])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("has_ended", [True, False])
def test_the_end_of_a_run_is_sent_and_an_early_end_is_not(has_ended, watch):
    rank_1 = watch(1)
    rank_1.peers.close(has_ended=has_ended)
    assert rank_1.ends[0].recv(99) == (b'{"ended": true}\n' if has_ended else b"")


def test_a_last_message_ends_the_process(monkeypatch, capfd):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    peers.exit_with("rank 1 is gone")
    assert (ended, capfd.readouterr().err) == ([1], "rank 1 is gone\n")


def test_no_connection_waits(monkeypatch):
    monkeypatch.setattr(peers, "_BEAT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        with listener.accept()[0]:
            found = Peers(0, {1: connection}, 100, print)
            assert not connection.getblocking()
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            # A program may end without closing it.
            assert found._thread.daemon
            found.close(has_ended=False)


def test_the_watch_runs_until_it_is_closed(monkeypatch):
    monkeypatch.setattr(peers, "_BEAT_SECONDS", 0.05)
    here, there = socket.socketpair()
    lost = []
    found = Peers(1, {0: here}, 100, lost.append)
    there.settimeout(10)
    with there, there.makefile() as lines:
        assert json.loads(lines.readline()) == {"steps_begun": 0}
        found.close(has_ended=True)
        assert json.loads(lines.readlines()[-1]) == {"ended": True}
    assert not found._thread.is_alive()
    assert lost == []
