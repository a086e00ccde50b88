"""Silence about what Orbax leaves behind when it cannot read a part of a checkpoint.

It closes its event loop while the other parts are still being read. Each of them then prints a page
about the closed loop or its own error, before or after the one message that tells what to do.
"""

from __future__ import annotations

import logging
import sys
from functools import cache


@cache
def silence() -> None:
    """Silences these pages, and nothing else, until the process ends."""
    logging.getLogger("asyncio").addFilter(_is_wanted)
    before = sys.unraisablehook

    def hook(raised: sys.UnraisableHookArgs) -> None:
        if not (
            isinstance(raised.exc_value, RuntimeError)
            and str(raised.exc_value) == "Event loop is closed"
        ):
            before(raised)

    sys.unraisablehook = hook


def _is_wanted(record: logging.LogRecord) -> bool:
    is_unread = record.getMessage().startswith("Task exception was never retrieved")
    return not (is_unread and "async_deserialize" in record.getMessage())
