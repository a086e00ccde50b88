"""What a command is doing: a line on a terminal, a bar in a notebook; no import of JAX."""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Between two lines that follow each other often.
_LEAST_SECONDS = 0.1


class StatusLine:
    """A line on the terminal of standard error that is overwritten; in a notebook a bar."""

    def __init__(self, *, is_leader: bool = True) -> None:
        """Only the leader, rank 0, shows a line."""
        self._shell = _notebook() if is_leader else None
        self._is_shown = is_leader and self._shell is None and sys.stderr.isatty()
        self._shown_at = 0.0

    def show(self, text: str, share: float | None = None) -> None:
        """Overwrites the line; a message that follows overwrites it, too.

        `share` is how much of the work is done, from 0 to 1, if that is known.
        """
        self._shown_at = time.monotonic()
        if self._shell is not None:
            _show_bar(self._shell, _bar(text, share))
        if not self._is_shown:
            return
        # A terminal whose size nobody set reports 0 columns.
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        sys.stderr.write(f"\r{text[: width - 1]:<{width - 1}}\r")
        sys.stderr.flush()

    def show_sometimes(self, text: str, share: float | None = None) -> None:
        """Overwrites the line, unless it was overwritten a moment ago."""
        if time.monotonic() - self._shown_at >= _LEAST_SECONDS:
            self.show(text, share)

    def end(self) -> None:
        """Empties the line."""
        if self._shell is not None:
            _show_bar(self._shell, {"text/html": "", "text/plain": ""})
        else:
            self.show("")


@contextmanager
def emptied_at_end() -> Iterator[None]:
    """Empties the line after the `with` block, also after an error in it."""
    try:
        yield
    finally:
        StatusLine().end()


# The bar of the cell that runs: the number of its execution, and IPython's handle of the bar.
_shown: tuple[int, Any] | None = None


def _notebook() -> Any | None:
    """Returns IPython's shell if this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


def _bar(text: str, share: float | None) -> dict[str, str]:
    value = "" if share is None else f' value="{share:.4f}"'
    bar = f'<progress max="1"{value} style="width: 16em"></progress>'
    return {"text/html": f"<div>{bar} {html.escape(text)}</div>", "text/plain": text}


def _show_bar(shell: Any, data: dict[str, str]) -> None:
    """Replaces the bar of the cell that runs; the first one of a cell is displayed."""
    global _shown
    if _shown is not None and _shown[0] == shell.execution_count:
        _shown[1].update(data, raw=True)
    elif data["text/plain"]:
        from IPython.display import display

        _shown = (shell.execution_count, display(data, raw=True, display_id=True))
