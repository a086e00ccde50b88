"""The line on a terminal that says what a command is doing."""

import io
import os
import types

import pytest

from confluence import status
from confluence.status import StatusLine


@pytest.fixture
def terminal(monkeypatch):
    """Makes a terminal of 20 columns standard error; also returns what reads it at a time."""
    shown = io.StringIO()
    shown.isatty = lambda: True
    shown.fileno = lambda: 2
    shown.columns = 20
    clock = types.SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(status, "time", clock)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((shown.columns, 5)))

    def read(now=None):
        clock.now = now or clock.now
        text = shown.getvalue()
        shown.seek(0)
        shown.truncate()
        return text

    def start():
        # Between the set-up of a test and the test, pytest sets its own.
        monkeypatch.setattr("sys.stderr", shown)
        return shown, read

    return start


def test_a_line_overwrites_the_one_before(terminal):
    shown, read = terminal()
    line = StatusLine()
    line.show("step 1")
    # The cursor is at the start again, and never in the last column, which would begin a new line.
    assert read() == f"\r{'step 1':<19}\r"
    line.show("a long line that is cut", 0.5)
    assert read() == "\ra long line that is\r"
    line.end()
    assert read() == f"\r{'':<19}\r"
    shown.columns = 0
    line.show("no size")
    assert read() == f"\r{'no size':<79}\r"


def test_lines_that_follow_each_other_fast_are_left_out(terminal):
    _, read = terminal()
    line = StatusLine()
    line.show_sometimes("first", 0.1)
    assert "first" in read(1000.05)
    line.show_sometimes("second")
    assert read(1000.25) == ""
    line.show_sometimes("third")
    assert "third" in read()


def test_rank_0_alone_has_a_line_and_on_a_terminal_alone(terminal):
    shown, read = terminal()
    StatusLine(is_leader=False).show("hidden")
    shown.isatty = lambda: False
    StatusLine().show("hidden")
    assert read() == ""


def test_the_line_is_emptied_after_an_error(terminal):
    _, read = terminal()
    with pytest.raises(KeyError), status.emptied_at_end():
        raise KeyError
    assert read() == f"\r{'':<19}\r"
