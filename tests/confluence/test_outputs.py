"""Files that a command writes for its user: whole, or not at all."""

import os
import threading

import pytest

from confluence import outputs
from confluence.config import ConfigError


def test_a_full_disk_leaves_nothing_of_a_file_and_is_named(full_disk):
    out = full_disk / "p.csv"
    with pytest.raises(ConfigError) as error:
        outputs.write(out, b"key,obs_time\n")
    assert str(error.value) == (
        f"writing {out}: no space left on the device; nothing was written; free some space there"
    )
    assert os.listdir(full_disk) == ["others"]


def test_a_file_that_came_to_be_meanwhile_is_not_replaced(tmp_path):
    (tmp_path / "p.csv").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        outputs.write(tmp_path / "p.csv", b"ours")
    assert (tmp_path / "p.csv").read_text() == "mine"


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    outputs.write(pipe, b"ours")
    reader.join(10)
    assert (found, pipe.is_fifo()) == ([b"ours"], True)


def test_another_error_of_the_system_stays_what_it_is(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        outputs.write(tmp_path / "no" / "p.csv", b"ours")
