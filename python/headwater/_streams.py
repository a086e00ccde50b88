"""What `Sampler` and `Events` share: the caller's position in their streams, and their end."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Protocol, Self

from headwater._headwater import Cursor

Path = str | os.PathLike[str]


def read_cursor(cursor: Path | bytes | Cursor) -> Cursor:
    """Returns a cursor from the path of its file or from its bytes."""
    if isinstance(cursor, bytes):
        return Cursor.decode(cursor)
    return cursor if isinstance(cursor, Cursor) else Cursor.read(cursor)


class Core(Protocol):
    """The compiled class of a sampler."""

    def cursor(self) -> Cursor: ...
    def save_cursor(self, path: Path) -> None: ...
    def resume(self, cursor: Cursor) -> None: ...
    def shutdown(self) -> None: ...


class Streams:
    """Streams of batches with a position that can be saved; a `with` block ends them."""

    _core: Core

    def cursor(self) -> bytes:
        """Returns the caller's position in all streams, to resume from.

        It counts the batches that the caller took, not those made ahead. It is the same on every
        rank.
        """
        return self._core.cursor().encode()

    def save_cursor(self, path: Path) -> None:
        """Writes the cursor to a file, whole or not at all."""
        self._core.save_cursor(path)

    def resume(self, cursor: Path | bytes | Cursor) -> None:
        """Resumes all streams from a cursor: the path of its file, its bytes, or a `Cursor`.

        Raises:
            PlanMismatch: The cursor is of another plan; the message names every setting that
                differs.
            Corrupt: The cursor is damaged.
        """
        self._core.resume(read_cursor(cursor))

    def shutdown(self) -> None:
        """Stops the threads; later requests for batches raise SamplerShutdown."""
        self._core.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()
