"""The roll call: before a run of several processes starts, rank 0 checks that all run the same.

Rank 0 refuses every process if a rank is missing or would run something else. Later it would be
too late: ranks that compute different things wait for each other, or add up unrelated numbers.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

# What must be equal in all processes of a run, as JSON can hold it.
RunIdentity = Mapping[str, Any]

# A connection that sends nothing holds up the others for at most this long.
_READ_TIMEOUT_SECONDS = 10.0
_MAX_MESSAGE_BYTES = 1 << 20


class JoinError(RuntimeError):
    """The processes of a run could not join."""


def call(
    rank: int,
    count: int,
    coordinator: str,
    identity: RunIdentity,
    differences: Callable[[RunIdentity, RunIdentity], list[str]],
    timeout_seconds: int,
) -> None:
    """Returns when all ranks have connected, and `differences` finds none to rank 0.

    Raises:
        JoinError: In every rank, with the reason.
    """
    host, port = address(coordinator)
    end = time.monotonic() + timeout_seconds
    if rank == 0:
        _gather(count, port, identity, differences, end, timeout_seconds)
    else:
        _report(rank, count, (host, port), identity, end, timeout_seconds)


def address(coordinator: str) -> tuple[str, int]:
    """Returns the host and the port of HOST:PORT."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise JoinError(f"expected --coordinator HOST:PORT, found {coordinator!r}")
    return host.strip("[]"), int(port)


def _gather(
    count: int,
    port: int,
    identity: RunIdentity,
    differences: Callable[[RunIdentity, RunIdentity], list[str]],
    end: float,
    timeout_seconds: int,
) -> None:
    connections: dict[int, socket.socket] = {}
    refusal = ""
    with ExitStack() as open_resources:
        listener = open_resources.enter_context(_listen(port))
        while len(connections) < count - 1 and not refusal:
            listener.settimeout(max(end - time.monotonic(), 0.01))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                missing = [str(rank) for rank in range(1, count) if rank not in connections]
                refusal = f"rank {', '.join(missing)} did not connect within {timeout_seconds} s"
                break
            open_resources.enter_context(connection)
            message = _read(connection, min(end, time.monotonic() + _READ_TIMEOUT_SECONDS))
            if message is None:
                continue
            rank = message["rank"]
            if rank in connections:
                refusal = f"two processes have rank {rank}; give each process its own --rank"
            elif message["count"] != count:
                refusal = (
                    f"rank {rank} has --processes {message['count']}, rank 0 has --processes "
                    f"{count}; start all with the same number"
                )
            elif found := differences(identity, message["identity"]):
                refusal = f"rank {rank} would run something else than rank 0: {'; '.join(found)}"
            connections[rank] = connection
        for connection in connections.values():
            _answer(connection, refusal)
    if refusal:
        raise JoinError(refusal)


def _report(
    rank: int,
    count: int,
    rank_0: tuple[str, int],
    identity: RunIdentity,
    end: float,
    timeout_seconds: int,
) -> None:
    name = f"{rank_0[0]}:{rank_0[1]}"
    while True:
        try:
            connection = socket.create_connection(rank_0, max(end - time.monotonic(), 0.01))
            break
        except OSError as error:
            if time.monotonic() > end:
                raise JoinError(
                    f"rank {rank} of {count} could not connect to rank 0 at {name} within "
                    f"{timeout_seconds} s ({error}); check that rank 0 runs and its port is open"
                ) from None
            time.sleep(0.05)
    with connection:
        try:
            line = json.dumps({"rank": rank, "count": count, "identity": identity}) + "\n"
            connection.sendall(line.encode())
        except OSError:
            answer = None
        else:
            answer = _read(connection, end + _READ_TIMEOUT_SECONDS)
    if answer is None:
        raise JoinError(
            f"rank {rank} of {count} got no answer from rank 0 at {name}; see the error of rank 0"
        )
    if answer["refusal"]:
        raise JoinError(answer["refusal"])


def _listen(port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise JoinError(f"rank 0 cannot listen on port {port}: {error.strerror}") from None


def _read(connection: socket.socket, end: float) -> dict[str, Any] | None:
    """Reads one line of JSON; None if it is not a message of a roll call."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _MAX_MESSAGE_BYTES:
        connection.settimeout(max(end - time.monotonic(), 0.01))
        try:
            part = connection.recv(1 << 16)
        except OSError:
            return None
        if not part:
            return None
        line += part
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    is_report = {"rank", "count", "identity"} <= message.keys()
    return message if is_report or "refusal" in message else None


def _answer(connection: socket.socket, refusal: str) -> None:
    try:
        connection.sendall((json.dumps({"refusal": refusal}) + "\n").encode())
        # The other side closes first, so that the port is free for the next listener.
        connection.settimeout(_READ_TIMEOUT_SECONDS)
        connection.recv(1)
    except OSError:
        # Ranks that wait for this one later will notice that it is gone.
        return
