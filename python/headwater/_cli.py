"""The console scripts: the commands of the Rust binaries; `headwater` also runs SQL of tasks."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from headwater import _headwater

# After this time the user is told what the command waits for, in seconds.
_PATIENCE = 2.0


def main() -> int:
    """Runs `headwater` with this process's arguments.

    Returns:
        The exit status.
    """
    with _a_second_interrupt_ends("headwater"):
        return _headwater.main(["headwater", *sys.argv[1:]])


def reduce() -> int:
    """Runs `headwater-reduce` with this process's arguments.

    Returns:
        The exit status.
    """
    with _a_second_interrupt_ends("headwater-reduce"):
        return _headwater.reduce_main(["headwater-reduce", *sys.argv[1:]])


@contextlib.contextmanager
def _a_second_interrupt_ends(command: str) -> Iterator[None]:
    """Lets a second Ctrl-C end the process at once.

    The first one ends the work between two steps, and a step may be long: DuckDB finishes the
    call of a function, such as `repeat('a', 2000000000)`, before it looks.
    """

    def told() -> None:
        print(
            f"{command}: stopping after the step that runs; Ctrl-C again ends it at once",
            file=sys.stderr,
            flush=True,
        )

    waiting = threading.Timer(_PATIENCE, told)
    waiting.daemon = True

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        waiting.start()
        raise KeyboardInterrupt

    # Where Ctrl-C is ignored (nohup), it stays so.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        waiting.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)
