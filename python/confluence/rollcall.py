"""Before anything waits for anybody, all processes tell the first what they are about to run.

It refuses them all where one is missing or would run something else. What they do then has no
answer for either: ranks that compute different things wait for each other, or add up what does not
belong together.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

Told = Mapping[str, Any]

# Whoever connects and says nothing holds up the others for so long at most.
_PATIENCE_SECONDS = 10.0
_LONGEST = 1 << 20


class JoinError(RuntimeError):
    """The processes did not come together."""


def call(
    rank: int,
    count: int,
    coordinator: str,
    told: Told,
    differences: Callable[[Told, Told], list[str]],
    timeout_seconds: int,
) -> None:
    """Returns when all have come, and `differences` finds none between rank 0 and any other.

    Raises:
        JoinError: At all of them, with the reason.
    """
    host, port = address(coordinator)
    end = time.monotonic() + timeout_seconds
    if rank == 0:
        _gather(count, port, told, differences, end, timeout_seconds)
    else:
        _report(rank, count, (host, port), told, end, timeout_seconds)


def address(coordinator: str) -> tuple[str, int]:
    """Returns the host and the port of HOST:PORT."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise JoinError(f"expected --coordinator HOST:PORT, found {coordinator!r}")
    return host.strip("[]"), int(port)


def _gather(
    count: int,
    port: int,
    told: Told,
    differences: Callable[[Told, Told], list[str]],
    end: float,
    timeout_seconds: int,
) -> None:
    here: dict[int, socket.socket] = {}
    refused = ""
    with ExitStack() as open_things:
        listening = open_things.enter_context(_listening(port))
        while len(here) < count - 1 and not refused:
            listening.settimeout(max(end - time.monotonic(), 0.01))
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                missing = [str(rank) for rank in range(1, count) if rank not in here]
                refused = f"rank {', '.join(missing)} did not come in {timeout_seconds} s"
                break
            open_things.enter_context(connection)
            said = _read(connection, min(end, time.monotonic() + _PATIENCE_SECONDS))
            if said is None:
                continue
            rank = said["rank"]
            if rank in here:
                refused = f"two processes say that they are rank {rank}"
            elif said["count"] != count:
                refused = f"rank {rank} is one of {said['count']} processes, and rank 0 of {count}"
            elif found := differences(told, said["told"]):
                refused = f"rank {rank} would run something else than rank 0: {'; '.join(found)}"
            here[rank] = connection
        for connection in here.values():
            _answer(connection, refused)
    if refused:
        raise JoinError(refused)


def _report(
    rank: int, count: int, where: tuple[str, int], told: Told, end: float, timeout_seconds: int
) -> None:
    name = f"{where[0]}:{where[1]}"
    while True:
        try:
            connection = socket.create_connection(where, max(end - time.monotonic(), 0.01))
            break
        except OSError as error:
            if time.monotonic() > end:
                raise JoinError(
                    f"rank {rank} of {count} found nobody at {name} in {timeout_seconds} s "
                    f"({error}); is rank 0 there, and may its port be reached?"
                ) from None
            time.sleep(0.05)
    with connection:
        try:
            line = json.dumps({"rank": rank, "count": count, "told": told}) + "\n"
            connection.sendall(line.encode())
        except OSError:
            answer = None
        else:
            answer = _read(connection, end + _PATIENCE_SECONDS)
    if answer is None:
        raise JoinError(f"rank {rank} of {count} had no answer from {name}; did rank 0 end?")
    if answer["refused"]:
        raise JoinError(answer["refused"])


def _listening(port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise JoinError(f"rank 0 cannot listen on port {port}: {error.strerror}") from None


def _read(connection: socket.socket, end: float) -> dict[str, Any] | None:
    """One line of JSON; None from somebody who is none of us."""
    said = b""
    while not said.endswith(b"\n") and len(said) < _LONGEST:
        connection.settimeout(max(end - time.monotonic(), 0.01))
        try:
            part = connection.recv(1 << 16)
        except OSError:
            return None
        if not part:
            return None
        said += part
    try:
        found = json.loads(said)
    except ValueError:
        return None
    said_by_a_rank = {"rank", "count", "told"}
    is_ours = isinstance(found, dict) and ("refused" in found or said_by_a_rank <= found.keys())
    return found if is_ours else None


def _answer(connection: socket.socket, refused: str) -> None:
    try:
        connection.sendall((json.dumps({"refused": refused}) + "\n").encode())
        # The other side closes first, so that the port is free for what listens there next.
        connection.settimeout(_PATIENCE_SECONDS)
        connection.recv(1)
    except OSError:
        # Who is gone is missed by those who wait for it next.
        return
