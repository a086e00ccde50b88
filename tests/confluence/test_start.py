"""What the command sets before JAX starts: memory, and the folder of compiled programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import runs
from confluence import compile_cache, memory


def printed(code, **changes):
    """Runs a program in a process of its own with a changed environment; returns what it prints."""
    environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment | changes, capture_output=True, text=True,
        check=True, timeout=60,
    ).stdout  # fmt: skip


RESTARTED = """
import os
from confluence.memory import restart_with_tunables
print("started", os.getpid(), flush=True)
restart_with_tunables()
print("ran", os.getpid(), os.environ["GLIBC_TUNABLES"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's tunables are of Linux")
def test_the_command_starts_anew_once_with_huge_pages():
    first, again, ran = printed(RESTARTED).splitlines()
    assert first == again
    assert ran == f"ran {first.split()[1]} {memory.TUNABLES}"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's tunables are of Linux")
def test_tunables_of_the_user_are_kept():
    for own in ("", "glibc.malloc.perturb=7"):
        lines = printed(RESTARTED, GLIBC_TUNABLES=own).splitlines()
        assert len(lines) == 2
        assert lines[1].split(" ", 2)[2] == own


def test_p1_huge_pages_change_no_bit_of_a_run(whole, tiny, tmp_path):
    finished = runs.run(tiny, tmp_path / "run", GLIBC_TUNABLES="")
    assert finished.returncode == 0, finished.stderr
    assert runs.records(tmp_path / "run") == runs.records(whole)
    assert runs.results(tmp_path / "run") == runs.results(whole)


@pytest.fixture
def unset(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # `use_compile_cache` sets it; monkeypatch restores what was there.
    yield
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)


@pytest.mark.usefixtures("unset")
def test_compiled_programs_are_kept_for_a_month(tmp_path):
    compile_cache.use_compile_cache()
    (folder,) = (tmp_path / "confluence").iterdir()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    now = time.time()
    for name, days in (("new", 1), ("old", 40)):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (now - days * 86_400, now - days * 86_400))
    del os.environ["JAX_COMPILATION_CACHE_DIR"]
    compile_cache.use_compile_cache()
    assert [entry.name for entry in folder.iterdir()] == ["new"]


@pytest.mark.usefixtures("unset")
def test_another_folder_of_compiled_programs_is_kept(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    compile_cache.use_compile_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "mine"


@pytest.mark.usefixtures("unset")
def test_without_a_folder_that_can_be_written_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compile_cache.use_compile_cache()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("delay", [0, 0.7, 4])
def test_ctrl_c_ends_the_command_at_once(delay):
    environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    running = subprocess.Popen(
        [sys.executable, "-m", "confluence.cli", "smoke"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    # From before the restart on, no SIGINT meets Python's own handler.
    while b"GLIBC_TUNABLES" not in Path(f"/proc/{running.pid}/environ").read_bytes():
        assert running.poll() is None
        time.sleep(0.005)
    time.sleep(delay)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert errors == "confluence: interrupted\n"
