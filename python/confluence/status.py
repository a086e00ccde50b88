"""The line on a terminal that says what a command is doing; no import of JAX."""

from __future__ import annotations

import os
import sys
import time

# Between two lines that follow each other often.
_LEAST_SECONDS = 0.1


class StatusLine:
    """A line on the terminal of standard error that is overwritten; nothing elsewhere."""

    def __init__(self, *, is_leader: bool = True) -> None:
        """Only the leader, rank 0, shows a line."""
        self._is_shown = is_leader and sys.stderr.isatty()
        self._shown_at = 0.0

    def show(self, text: str) -> None:
        """Overwrites the line; a message that follows overwrites it, too."""
        if not self._is_shown:
            return
        # A terminal whose size nobody set reports 0 columns.
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        sys.stderr.write(f"\r{text[: width - 1]:<{width - 1}}\r")
        sys.stderr.flush()
        self._shown_at = time.monotonic()

    def show_sometimes(self, text: str) -> None:
        """Overwrites the line, unless it was overwritten a moment ago."""
        if time.monotonic() - self._shown_at >= _LEAST_SECONDS:
            self.show(text)

    def end(self) -> None:
        """Empties the line."""
        self.show("")
