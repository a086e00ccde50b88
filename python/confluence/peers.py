"""The other ranks of a run while it trains: which one is gone, gives no sign of life, or is late.

Each rank keeps its connection to rank 0 from the roll call. It says once a second how many steps it
has begun, and rank 0 tells the others when one is lost. Then each rank ends at once: it would wait
for the lost one, and the run goes on from its newest checkpoint, with any number of ranks.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluence.config import ConfigError
from confluence.rollcall import line, parsed

# A rank whose threads run says something this often.
_BEAT_SECONDS = 1.0
# The longest that a rank may be silent, whatever else it may take its time for.
_MOST_SILENT_SECONDS = 100.0
_MAX_LINE_BYTES = 1 << 16
# As long as a rank that is gone may take to be noticed.
_NOTICED_SECONDS = 2.0
# As long as the last words of a rank may take to arrive.
_LAST_WORDS_SECONDS = 0.2
_CONTINUE = "continue with --resume, also with another number of processes"


def exit_with(message: str) -> None:
    """Prints a message and ends the process, whatever its other threads wait for."""
    try:
        os.write(2, f"{message}\n".encode())
    finally:
        os._exit(1)


class _Peer:
    """What is known of another rank."""

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.connection = connection
        self.heard_at = now
        self.steps_begun = 0
        self.has_ended = False
        self._received = b""

    def messages(self) -> list[dict[str, Any]] | None:
        """Returns the messages that have arrived; None if the connection is at its end."""
        try:
            part = self.connection.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self._received = (self._received + part).split(b"\n")
        if not part or len(self._received) > _MAX_LINE_BYTES:
            return None
        return [parsed(of) for of in lines]


class Peers:
    """The connections of a rank: of rank 0 with all others, of each other one with rank 0.

    A thread looks after them until `close`. It calls `lost` with the reason when a rank is lost.
    """

    def __init__(
        self,
        rank: int,
        connections: Mapping[int, socket.socket],
        timeout_seconds: float,
        lost: Callable[[str], None] = exit_with,
    ) -> None:
        self._rank, self._timeout, self._lost = rank, timeout_seconds, lost
        self._silence = min(timeout_seconds, _MOST_SILENT_SECONDS)
        self._beat = min(_BEAT_SECONDS, self._silence / 4)
        # The steps that this rank has begun.
        self._steps_begun = 0
        # The most steps that a rank has begun, and since when.
        self._most, self._most_since = 0, time.monotonic()
        # Whether a rank may be late.
        self._allows_late = False
        self._peers: dict[int, _Peer] = {}
        self._is_closed = threading.Event()
        self._selector = selectors.DefaultSelector()
        for other, connection in connections.items():
            connection.setblocking(False)
            with suppress(OSError):
                # A lost rank is told without delay; a pair of sockets of one machine has none.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[other] = _Peer(connection, time.monotonic())
            self._selector.register(connection, selectors.EVENT_READ, other)
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
        if self._peers:
            self._thread.start()

    def begin_step(self) -> None:
        """Says that this rank begins a step, for which the ranks wait for each other."""
        self._steps_begun += 1

    @contextmanager
    def allow_late_ranks(self) -> Iterator[None]:
        """Counts no rank as late while rank 0 writes results, and the others go on or wait."""
        self._allows_late = True
        try:
            yield
        finally:
            self._most_since = time.monotonic()
            self._allows_late = False

    @contextmanager
    def exit_on_error(self, expected: type[Exception]) -> Iterator[None]:
        """Ends a failing rank of several at once, and tells the others why.

        An orderly end would wait for them: to write their part of a checkpoint, and to shut down.
        An `expected` error, which all ranks raise, passes.
        """
        try:
            yield
        except expected:
            raise
        except Exception as error:
            if not self._peers:
                raise
            if not isinstance(error, ConfigError):
                # Whatever waits for a rank fails when that is gone: then the thread says so.
                time.sleep(_NOTICED_SECONDS)
            reason = str(error)
            if not (isinstance(error, OSError) or _has_remedy(error)):
                reason = f"{type(error).__name__}: {reason}"
                with suppress(OSError):
                    traceback.print_exc()
            self._is_closed.set()
            for peer in self._peers.values():
                self._send(peer, {"lost": f"rank {self._rank}: {reason}"})
            time.sleep(_LAST_WORDS_SECONDS)
            self._lost(f"confluence: rank {self._rank}: {reason}")
            raise

    def close(self, *, has_ended: bool) -> None:
        """Ends the connections. Unless the run `has_ended` for this rank, it is lost to others."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join()
        for peer in self._peers.values():
            if has_ended:
                self._send(peer, {"ended": True})
            peer.connection.close()
        self._selector.close()

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            # Without the watch, this rank would wait for a lost one for ever.
            self._lost(f"confluence: rank {self._rank} stops: {error!r}; {_CONTINUE}")

    def _watch(self) -> None:
        next_beat = last_beat = time.monotonic()
        while not self._is_closed.is_set():
            for key, _ in self._selector.select(max(next_beat - time.monotonic(), 0)):
                self._receive(key.data)
            now = time.monotonic()
            if now >= next_beat:
                if now - last_beat > self._silence / 2:
                    self._restart_clocks(now)
                next_beat, last_beat = now + self._beat, now
                for peer in self._peers.values():
                    self._send(peer, {"steps_begun": self._steps_begun})
                self._check(now)

    def _restart_clocks(self, now: float) -> None:
        """Counts silence and lateness from now: this rank stood still, maybe the whole job did."""
        self._most_since = now
        for peer in self._peers.values():
            peer.heard_at = now

    def _receive(self, other: int) -> None:
        peer = self._peers[other]
        messages = peer.messages()
        for message in messages or ():
            peer.heard_at = time.monotonic()
            steps = message.get("steps_begun")
            if isinstance(steps, int):
                peer.steps_begun = steps
            peer.has_ended |= message.get("ended") is True
            if isinstance(message.get("lost"), str):
                self._end(message["lost"], None)
        if messages is None:
            self._selector.unregister(peer.connection)
            if not peer.has_ended:
                self._end(f"rank {other} is gone; its own messages say why; {_CONTINUE}", other)

    def _check(self, now: float) -> None:
        running = {other: peer for other, peer in self._peers.items() if not peer.has_ended}
        for other, peer in running.items():
            if now - peer.heard_at > self._silence:
                since = f"{self._silence:.0f} s"
                self._end(
                    f"rank {other} has given no sign of life for {since}; see whether its process "
                    f"is stopped, or its machine; {_CONTINUE}",
                    other,
                )
        if self._rank or self._allows_late:
            # Rank 0 alone knows how far all others are.
            return
        begun = {0: self._steps_begun}
        begun |= {other: peer.steps_begun for other, peer in running.items()}
        most = max(begun.values())
        if most > self._most:
            self._most, self._most_since = most, now
        late = [str(other) for other, steps in begun.items() if steps < most]
        if late and now - self._most_since > self._timeout:
            self._end(
                f"rank {', '.join(late)} has not begun a step within {self._timeout:.0f} s "
                f"(run.timeout_seconds) for which the others wait; see what keeps it; {_CONTINUE}",
                None,
            )

    def _end(self, reason: str, gone: int | None) -> None:
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        for other, peer in self._peers.items():
            if other != gone and self._rank == 0:
                self._send(peer, {"lost": reason})
        if self._rank == 0:
            time.sleep(_LAST_WORDS_SECONDS)
        self._lost(f"confluence: rank {self._rank} stops: {reason}")

    def _send(self, peer: _Peer, message: Mapping[str, Any]) -> None:
        try:
            peer.connection.sendall(line(message))
        except OSError:
            # It is gone or too slow, which is noticed when it is listened to.
            return


def _has_remedy(error: Exception) -> bool:
    """Returns whether the error is of headwater or confluence: its message says what to do."""
    return type(error).__module__.partition(".")[0] in ("confluence", "headwater")
