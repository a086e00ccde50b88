"""The roll call: before a run of several processes starts, rank 0 checks that all run the same.

Rank 0 refuses every process if a rank is missing or would run something else. Later it would be
too late: ranks that compute different things wait for each other, or add up unrelated numbers.

Anyone can connect to a port. So a rank proves that it belongs to the run, and rank 0 proves it to
the rank. Rank 0 turns away whatever else connects: that neither joins nor delays the ranks. It
answers a rank twice: at once, so that the rank does not wait for another program that listens at an
old address, and when all ranks are there.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from confluence.meeting_place import MeetingPlace

# What must be equal in all processes of a run, as JSON can hold it.
RunIdentity = Mapping[str, Any]

# A rank sends its report at once, and rank 0 its answer; so a connection has this long for it.
_READ_TIMEOUT_SECONDS = 10.0
# Ranks that were started together meet within this time, and nobody needs to hear of it.
_QUIET_SECONDS = 5.0
# Rank 0 acknowledges a report at once; what does not within this time is another program.
_ACKNOWLEDGE_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05
_MAX_MESSAGE_BYTES = 1 << 20
# Beyond one for each rank; the connection that has been silent for longest makes room for others.
_MOST_STRANGERS = 64
_RANK, _RANK_0, _ACKNOWLEDGEMENT = "a rank", "rank 0", "rank 0, which has heard a rank"


class JoinError(RuntimeError):
    """The processes of a run could not join."""


class Meeting(NamedTuple):
    """What the processes of a run have in common."""

    # A text that no other run has: the folder of the run. Ranks of two runs that use one port by
    # mistake so keep apart; it is no secret from somebody who reads the network.
    key: str
    identity: RunIdentity
    # Returns what differs between rank 0 and another rank.
    differences: Callable[[RunIdentity, RunIdentity], list[str]]

    def proof(self, of: str) -> str:
        """Returns the proof of a rank, or of rank 0, that it belongs to the run."""
        return hashlib.blake2b(f"{of} of {self.key}".encode(), digest_size=16).hexdigest()

    def has_proof(self, message: Mapping[str, Any], of: str) -> bool:
        """Returns whether a message has the proof."""
        proof = message.get("proof")
        return isinstance(proof, str) and hmac.compare_digest(
            proof.encode(errors="replace"), self.proof(of).encode()
        )


class Joined(NamedTuple):
    """The result of a roll call: the address of rank 0, and open connections by rank.

    Rank 0 has one with each other rank; every other rank has one, with rank 0.
    """

    coordinator: str
    connections: dict[int, socket.socket]


def call(
    rank: int, count: int, place: MeetingPlace, meeting: Meeting, timeout_seconds: float
) -> Joined:
    """Returns when all ranks have connected, and `meeting.differences` finds none to rank 0.

    Raises:
        JoinError: In every rank, with the reason.
    """
    end = time.monotonic() + timeout_seconds
    if rank:
        return _report(rank, count, place, meeting, end)
    with ExitStack() as open_resources:
        try:
            coordinator = open_resources.enter_context(place.announce())
        except OSError as error:
            raise JoinError(
                f"rank 0 cannot find or write its own address: {error}; name an address that all "
                "ranks reach: --processes N --rank R --coordinator HOST:PORT"
            ) from None
        host, port = address(coordinator)
        listeners = [open_resources.enter_context(of) for of in _listen(host, port, end)]
        gathering = open_resources.enter_context(_Gathering(listeners, count, meeting))
        refusal = gathering.run(min(end, time.monotonic() + _QUIET_SECONDS))
        if refusal is None:
            print(
                f"confluence: rank 0 waits at {coordinator} for {gathering.absent()}; it gives up "
                f"{timeout_seconds} s after its start",
                file=sys.stderr,
            )
            refusal = gathering.run(end)
        if refusal is None:
            hint = _loopback_hint(host, listeners)
            refusal = gathering.missing(f"{coordinator} within {timeout_seconds} s{hint}")
        if refusal:
            gathering.refuse(refusal)
            raise JoinError(refusal)
        return Joined(coordinator, gathering.accept_all())


def address(coordinator: str) -> tuple[str, int]:
    """Returns the host and the port of HOST:PORT."""
    host, _, port = coordinator.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not host or not is_number or not 0 < int(port) < 1 << 16:
        raise JoinError(f"expected --coordinator HOST:PORT, found {coordinator!r}")
    return host.strip("[]"), int(port)


class _Caller:
    """A connection whose message has not arrived whole yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.end = time.monotonic() + _READ_TIMEOUT_SECONDS
        self._received = bytearray()

    def receive(self) -> dict[str, Any] | None:
        """Returns the message, empty if it is none; None if a part is still to come."""
        try:
            # What follows the message belongs to the next reader.
            part = self.connection.recv(1 << 16, socket.MSG_PEEK)
            part = self.connection.recv(part.find(b"\n") + 1 or len(part))
        except BlockingIOError:
            return None
        except OSError:
            return {}
        self._received += part
        if part.endswith(b"\n"):
            return parsed(self._received)
        return None if part and len(self._received) < _MAX_MESSAGE_BYTES else {}


class _Gathering:
    """The connections of rank 0: those of ranks that joined, and those that said nothing yet.

    No read blocks, so that a silent connection delays no other one.
    """

    def __init__(self, listeners: list[socket.socket], count: int, meeting: Meeting) -> None:
        self._count, self._meeting, self._listeners = count, meeting, listeners
        self._joined: dict[socket.socket, int] = {}
        # The oldest first.
        self._callers: dict[socket.socket, _Caller] = {}
        self._turned_away = ""
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> _Gathering:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in [*self._callers, *self._joined]:
            self._close(connection)
        self._selector.close()

    def run(self, end: float) -> str | None:
        """Returns the reason to refuse all ranks, "" if all are there, None if some are not."""
        while len(self._joined) < self._count - 1:
            now = time.monotonic()
            if now >= end:
                return None
            next_end = min([end, *(of.end for of in self._callers.values())])
            for key, _ in self._selector.select(next_end - now):
                connection: Any = key.fileobj
                if connection in self._listeners:
                    self._accept(connection)
                elif refusal := self._hear(connection):
                    return refusal
            now = time.monotonic()
            for connection in [of for of, caller in self._callers.items() if caller.end <= now]:
                self._close(connection)
        return ""

    def absent(self) -> str:
        """Returns the ranks that have not joined."""
        joined = self._joined.values()
        ranks = [str(rank) for rank in range(1, self._count) if rank not in joined]
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}"

    def missing(self, what: str) -> str:
        """Returns the reason to refuse all ranks when the time is over."""
        refusal = f"{self.absent()} did not connect to {what}"
        return f"{refusal}; {self._turned_away}" if self._turned_away else refusal

    def accept_all(self) -> dict[int, socket.socket]:
        """Tells the ranks that all are there; returns their connections."""
        kept = {}
        for connection, rank in self._joined.items():
            self._selector.unregister(connection)
            connection.settimeout(_READ_TIMEOUT_SECONDS)
            self._answer(connection, "")
            kept[rank] = connection
        self._joined = {}
        return kept

    def refuse(self, refusal: str) -> None:
        """Tells the ranks that joined that they are refused, and waits until they close.

        They close first, so that the port is free for the next listener.
        """
        for connection in self._joined:
            connection.settimeout(_READ_TIMEOUT_SECONDS)
            self._answer(connection, refusal)
        end = time.monotonic() + _READ_TIMEOUT_SECONDS
        for connection in self._joined:
            connection.settimeout(max(end - time.monotonic(), 0.01))
            try:
                connection.recv(1)
            except OSError:
                # Ranks that wait for this one later will notice that it is gone.
                continue

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            # The connection is gone already.
            return
        connection.setblocking(False)
        if len(self._callers) >= self._count + _MOST_STRANGERS:
            self._close(next(iter(self._callers)))
        self._callers[connection] = _Caller(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> str:
        """Reads from a connection; returns a reason to refuse all ranks, or "" for none."""
        if connection in self._joined:
            # A rank that joined waits for the answer; if it is heard of again, it is gone.
            self._close(connection)
            return ""
        caller = self._callers.get(connection)
        message = caller.receive() if caller else None
        if message is None:
            return ""
        if not self._meeting.has_proof(message, _RANK):
            if "proof" in message:
                self._turned_away = "a process of another run, with another --out, was turned away"
            self._close(connection)
            return ""
        report = _report_in(message, self._meeting.identity)
        reason = self._turn_away_reason(report)
        if reason:
            self._turned_away = f"a process was turned away: {reason}"
            self._answer(connection, reason)
            self._close(connection)
            return ""
        assert report is not None, "otherwise there is a reason"
        self._send(connection, {"proof": self._meeting.proof(_ACKNOWLEDGEMENT)})
        del self._callers[connection]
        self._joined[connection] = report.rank
        return self._refusal(report)

    def _turn_away_reason(self, report: _Report | None) -> str:
        """Returns why a process of this run cannot join, although the others still can."""
        if report is None:
            return "its report cannot be read; run the same version of headwater in all processes"
        if report.rank in self._joined.values():
            return f"two processes have rank {report.rank}; give each process its own --rank"
        if report.processes == self._count and not 0 < report.rank < self._count:
            return f"expected a --rank from 1 to {self._count - 1}, found {report.rank}"
        return ""

    def _refusal(self, report: _Report) -> str:
        """Returns why all ranks are refused because of one that would run something else."""
        if report.processes != self._count:
            return (
                f"rank {report.rank} has --processes {report.processes}, rank 0 has --processes "
                f"{self._count}; start all with the same number"
            )
        found = self._meeting.differences(self._meeting.identity, report.identity)
        if not found:
            return ""
        return f"rank {report.rank} would run something else than rank 0: {'; '.join(found)}"

    def _answer(self, connection: socket.socket, refusal: str) -> None:
        """Tells a rank whether it has joined, which it has without a refusal."""
        self._send(connection, {"proof": self._meeting.proof(_RANK_0), "refusal": refusal})

    def _send(self, connection: socket.socket, message: Mapping[str, Any]) -> None:
        try:
            connection.sendall(line(message))
        except OSError:
            return

    def _close(self, connection: socket.socket) -> None:
        self._callers.pop(connection, None)
        self._joined.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()


class _Report(NamedTuple):
    """What a rank tells rank 0."""

    rank: int
    processes: int
    identity: RunIdentity


def _report_in(message: Mapping[str, Any], identity: RunIdentity) -> _Report | None:
    """Returns the report in a message; None if it is not like that of rank 0."""
    rank, processes, theirs = (message.get(name) for name in _Report._fields)
    if type(rank) is not int or type(processes) is not int or not isinstance(theirs, dict):
        return None
    return _Report(rank, processes, theirs) if _has_form(theirs, identity) else None


def _has_form(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Returns whether a JSON object has the names of ours, and objects where ours has them."""
    return theirs.keys() == ours.keys() and all(
        isinstance(theirs[name], dict)
        and all(
            isinstance(theirs[name].get(inner, {}), dict)
            for inner, value in of.items()
            if isinstance(value, Mapping)
        )
        for name, of in ours.items()
        if isinstance(of, Mapping)
    )


def _report(rank: int, count: int, place: MeetingPlace, meeting: Meeting, end: float) -> Joined:
    report = _Report(rank, count, meeting.identity)._asdict()
    message = line({"proof": meeting.proof(_RANK), **report})
    silent = set()
    while True:
        connection, coordinator = _connect(rank, count, place, end)
        start = time.monotonic()
        refusal = _refusal_of_rank_0(connection, message, meeting, end)
        if refusal == "":
            return Joined(coordinator, {0: connection})
        connection.close()
        if refusal is not None:
            raise JoinError(refusal)
        if not place.may_change or time.monotonic() > end:
            raise JoinError(
                f"rank {rank} of {count} got no answer from rank 0 of this run at {coordinator}; "
                "see the error of rank 0; give all processes of a run one --out, and each run its "
                "own port"
            )
        if coordinator not in silent:
            silent.add(coordinator)
            print(
                f"confluence: rank {rank} got no answer from rank 0 of this run at {coordinator} "
                f"within {time.monotonic() - start:.0f} s; it reads the address again",
                file=sys.stderr,
            )
        time.sleep(_LOOK_AGAIN_SECONDS)


def _refusal_of_rank_0(
    connection: socket.socket, message: bytes, meeting: Meeting, end: float
) -> str | None:
    """Returns what rank 0 answers to a report, "" for no refusal.

    None is the answer of a program that is not rank 0 of this run, or of a rank 0 that ended.
    """
    try:
        connection.sendall(message)
    except OSError:
        return None
    answer = _read(connection, time.monotonic() + _ACKNOWLEDGE_SECONDS)
    if meeting.has_proof(answer, _ACKNOWLEDGEMENT):
        answer = _read(connection, end + _READ_TIMEOUT_SECONDS)
    return str(answer.get("refusal", "")) if meeting.has_proof(answer, _RANK_0) else None


def _connect(rank: int, count: int, place: MeetingPlace, end: float) -> tuple[socket.socket, str]:
    """Connects to rank 0, which may start later; returns its address, too."""
    start = time.monotonic()
    while True:
        coordinator, reason = place.read(), "nothing listens there"
        try:
            if coordinator is not None:
                found = address(coordinator)
                left = max(end - time.monotonic(), 0.01)
                connection = socket.create_connection(found, min(left, _ACKNOWLEDGE_SECONDS))
                # Without a listener, a connection on one machine may meet itself.
                if connection.getsockname() != connection.getpeername():
                    return connection, coordinator
                connection.close()
        except OSError as error:
            reason = str(error)
        if time.monotonic() > end:
            where = f"at {coordinator} within" if coordinator else "in the run's folder within"
            raise JoinError(
                f"rank {rank} of {count} could not connect to rank 0 {where} {end - start:.0f} s "
                f"({reason}); check that rank 0 runs and its port is open"
            )
        time.sleep(_LOOK_AGAIN_SECONDS)


def _listen(host: str, port: int, end: float) -> list[socket.socket]:
    """Listens at the addresses of the host alone, not at all of this machine."""
    listeners: list[socket.socket] = []
    problem = "it has no address"
    for family, place in _addresses(host, port, end):
        try:
            listeners.append(socket.create_server(place, family=family))
        except OSError as error:
            problem = os.strerror(error.errno) if error.errno else str(error)
            if error.errno != errno.EADDRINUSE:
                continue
            # Of two addresses, the other ranks may take the one that another program has.
            for listener in listeners:
                listener.close()
            listeners = []
            break
    if not listeners:
        raise JoinError(
            f"rank 0 cannot listen on {host}:{port}: {problem}; give --coordinator a free port at "
            "an address of the machine of rank 0"
        )
    return listeners


def _addresses(host: str, port: int, end: float) -> list[tuple[Any, Any]]:
    """Returns the families and addresses of a host; a name may become known later."""
    while True:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if time.monotonic() > end or isinstance(error, UnicodeError):
                raise JoinError(f"rank 0 cannot find the address of {host!r}: {error}") from None
            time.sleep(_LOOK_AGAIN_SECONDS)
        else:
            return list(dict.fromkeys((family, place) for family, *_, place in found))


def _loopback_hint(host: str, listeners: list[socket.socket]) -> str:
    """Returns a hint if a name of this machine means an address that no other machine reaches."""
    places = [listener.getsockname()[0] for listener in listeners]
    is_loopback = all(place == "::1" or place.startswith("127.") for place in places)
    if not is_loopback or host in ("localhost", *places):
        return ""
    return f", which on this machine is {places[0]}: name an address that other machines reach"


def _read(connection: socket.socket, end: float) -> dict[str, Any]:
    """Reads one message; returns an empty one if there is none until `end`."""
    caller = _Caller(connection)
    while (left := end - time.monotonic()) > 0:
        connection.settimeout(left)
        message = caller.receive()
        if message is not None:
            return message
    return {}


def line(message: Mapping[str, Any]) -> bytes:
    """Returns a message as a line of JSON."""
    return json.dumps(message).encode() + b"\n"


def parsed(text: bytes | bytearray) -> dict[str, Any]:
    """Returns the object in a line of JSON; an empty one if there is none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
