"""Where rank 0 of a run listens: at an address that all ranks know, or at the one in a file."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from headwater._headwater import read_file, write_file


class MeetingPlace(Protocol):
    """The address of rank 0, as HOST:PORT."""

    # Whether another read may return another address.
    may_change: bool

    def read(self) -> str | None:
        """Returns the address, or None while rank 0 has not announced it."""

    def announce(self) -> AbstractContextManager[str]:
        """Returns the address; rank 0 calls this, and ends it when all ranks have met."""


class KnownAddress:
    """An address that all ranks know from the command line."""

    may_change = False

    def __init__(self, address: str) -> None:
        self._address = address

    def read(self) -> str:
        """Returns the address."""
        return self._address

    @contextmanager
    def announce(self) -> Iterator[str]:
        """Returns the address."""
        yield self._address


class AddressFile:
    """An address that rank 0 chooses, and writes into the folder of the run, which all ranks share.

    A run that was killed may have left an address where nobody listens any more. So the other ranks
    read the file again until they have met rank 0.
    """

    may_change = True

    def __init__(self, folder: Path, *, is_on_one_machine: bool) -> None:
        self._file = folder / "rank-0.address"
        self._is_on_one_machine = is_on_one_machine

    def read(self) -> str | None:
        """Returns the address that is in the file."""
        try:
            found = read_file(self._file).decode()
        except (OSError, UnicodeError):
            return None
        return found if ":" in found else None

    @contextmanager
    def announce(self) -> Iterator[str]:
        """Writes the address into the file; removes it at the end.

        Raises:
            OSError: No address of this machine is known, or the file cannot be written.
        """
        host = "127.0.0.1" if self._is_on_one_machine else _own_address()
        with socket.create_server((host, 0)) as found:
            address = f"{host}:{found.getsockname()[1]}"
        write_file(self._file, address.encode())
        try:
            yield address
        finally:
            # Another start of the run may have written its own.
            if self.read() == address:
                self._file.unlink(missing_ok=True)


def _own_address() -> str:
    """Returns an address of this machine at which other machines reach it."""
    name = socket.gethostname()
    with suppress(OSError):
        for *_, place in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM):
            if not ip_address(place[0]).is_loopback:
                return str(place[0])
    # The name means this machine itself, as on Debian: the address from which it would send.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        # An address of documentation, to which nothing is sent.
        unsent.connect(("192.0.2.1", 9))
        return str(unsent.getsockname()[0])
