"""What the command sets before JAX starts: memory, and the folder of compiled programs."""

import contextlib
import hashlib
import io
import logging
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

import runs
from confluence import compile_cache, memory, orbax_noise, processor, xla_flags


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


@pytest.fixture
def glibc(monkeypatch):
    """A process of glibc on Linux without tunables of its own; returns what it sets and runs."""
    done = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("glibc", "2.36"))
    # So that what is set is taken back.
    monkeypatch.setenv("GLIBC_TUNABLES", "")
    monkeypatch.delenv("GLIBC_TUNABLES")
    monkeypatch.setattr(os, "execv", lambda *of: done.append(of))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *of: done.append(of))
    return done


@contextlib.contextmanager
def errors_to(is_terminal):
    """Standard error, which may be a terminal."""
    shown, before = io.StringIO(), sys.stderr
    shown.isatty = lambda: is_terminal
    sys.stderr = shown
    try:
        yield shown
    finally:
        sys.stderr = before


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_restart_has_the_same_arguments_and_prints_nothing(is_terminal, glibc, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "confluence.cli", "smoke"])
    with errors_to(is_terminal) as shown:
        memory.restart_with_tunables()
    assert glibc == [
        # A Ctrl-C meanwhile must not end Python's start with a page.
        (signal.SIG_BLOCK, {signal.SIGINT}),
        (sys.executable, [sys.executable, "-m", "confluence.cli", "smoke"]),
    ]
    assert os.environ["GLIBC_TUNABLES"] == memory.TUNABLES
    assert shown.getvalue() == ""


@pytest.mark.parametrize("other", ["tunables of its own", "another system", "another library"])
def test_where_tunables_are_of_no_use_nothing_is_restarted_or_printed(other, glibc, monkeypatch):
    if other == "tunables of its own":
        monkeypatch.setenv("GLIBC_TUNABLES", "")
    elif other == "another system":
        monkeypatch.setattr(sys, "platform", "darwin")
    else:
        monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    with errors_to(True) as shown:
        memory.restart_with_tunables()
        memory.report_missing_tunables()
    assert (glibc, shown.getvalue()) == ([], "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_program_of_the_user_prints_advice_on_tunables_on_a_terminal(is_terminal, glibc):
    with errors_to(is_terminal) as shown:
        memory.report_missing_tunables()
    assert ("take less time with GLIBC_TUNABLES=" in shown.getvalue()) == is_terminal
    assert glibc == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "--xla_gpu_deterministic_ops=true"),
        ("--xla_a=1", "--xla_a=1 --xla_gpu_deterministic_ops=true"),
        ("--xla_gpu_deterministic_ops=false", "--xla_gpu_deterministic_ops=false"),
    ],
)
def test_kernels_are_deterministic_unless_the_user_decides(before, after, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", before or "")
    if before is None:
        monkeypatch.delenv("XLA_FLAGS")
    xla_flags.set_deterministic_flags()
    assert os.environ["XLA_FLAGS"] == after


def test_what_a_failed_read_of_a_checkpoint_leaves_behind_is_silenced(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    log = logging.getLogger("asyncio")
    monkeypatch.setattr(log, "filters", [])
    orbax_noise.silence.__wrapped__()
    for error in (
        RuntimeError("Event loop is closed"),
        RuntimeError("mine"),
        ValueError("Event loop is closed"),
    ):
        sys.unraisablehook(types.SimpleNamespace(exc_value=error))
    assert [str(of.exc_value) for of in shown] == ["mine", "Event loop is closed"]
    never = "Task exception was never retrieved"
    for message, is_kept in (
        (f"{never}\nfuture: <Task coro=<async_deserialize()>>", False),
        (f"{never}\nfuture: <Task coro=<mine()>>", True),
        ("async_deserialize is slow", True),
    ):
        record = log.makeRecord("asyncio", logging.ERROR, "f", 1, message, (), None)
        assert bool(log.filter(record)) == is_kept


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
    # By the last time when it was read or written.
    for name, read, written in (
        ("new", 1, 1), ("of the month", 29, 29), ("old", 31, 31), ("read", 1, 40), ("kept", 40, 1)
    ):  # fmt: skip
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (now - read * 86_400, now - written * 86_400))
    del os.environ["JAX_COMPILATION_CACHE_DIR"]
    compile_cache.use_compile_cache()
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "kept", "new", "of the month", "read"
    ]  # fmt: skip


@pytest.mark.usefixtures("unset")
def test_programs_are_kept_in_the_home_folder_however_quick_they_compile(monkeypatch, tmp_path):
    for name in ("XDG_CACHE_HOME", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    compile_cache.use_compile_cache()
    (folder,) = (tmp_path / ".cache/confluence").iterdir()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    assert os.environ.pop("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS") == "0"


@pytest.mark.parametrize("variable", [None, "false", "0", "true"])
def test_whether_compiled_programs_are_kept_is_known(variable, monkeypatch):
    monkeypatch.delenv("JAX_ENABLE_COMPILATION_CACHE", raising=False)
    if variable:
        monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", variable)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    assert compile_cache.is_used() == (variable not in ("false", "0"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    assert not compile_cache.is_used()


@pytest.mark.skipif(sys.platform != "linux", reason="cores are given to a thread on Linux")
def test_each_number_of_cores_has_programs_of_its_own():
    cores = os.sched_getaffinity(0)
    if len(cores) == 1:
        pytest.skip("there is one core")
    before = compile_cache._machine()
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert compile_cache._machine() != before
    finally:
        os.sched_setaffinity(0, cores)
    assert compile_cache._machine() == before


def test_processors_of_one_kind_share_programs(monkeypatch):
    def machine(*kinds, flags="avx2"):
        text = "\n\n".join(
            f"processor : {n}\nmodel name : {of}\nflags : {flags}" for n, of in enumerate(kinds)
        )
        monkeypatch.setattr(processor.Path, "read_text", lambda _: text)
        processor.processor.cache_clear()
        return compile_cache._machine()

    try:
        assert machine("a", "a") == machine("a", "b")
        assert processor.processor().startswith("a (")
        assert machine("a", "a") != machine("b", "b")
        assert machine("a", "a") != machine("a", "a", flags="avx512f")
    finally:
        processor.processor.cache_clear()


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


ON_TWO_DEVICES = """
import jax
from confluence.compile_keys import leave_out_device_numbers
for _ in range({calls}):
    leave_out_device_numbers()
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None
)
for device in jax.devices():
    product = jax.jit(lambda x: x * 3 + 1)(jax.device_put(2.0, device))
    print(float(product), product.device.id, len(hits))
"""


@pytest.mark.parametrize(("calls", "hits"), [(0, 0), (1, 1), (2, 1)])
def test_a_rank_finds_what_another_compiled_for_a_device_of_its_own(calls, hits, tmp_path):
    shown = printed(
        ON_TWO_DEVICES.format(calls=calls),
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
        JAX_COMPILATION_CACHE_DIR=str(tmp_path),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    )
    assert shown.splitlines()[:2] == ["7.0 0 0", f"7.0 1 {hits}"]


def hashed(function, *of):
    """Returns what a function of JAX adds to the key of a program."""
    found = hashlib.sha256()
    function(found, *of)
    return found.hexdigest()


@pytest.fixture
def without_numbers(monkeypatch):
    """JAX's hashes without device numbers, in the place of its own."""
    from jax._src import cache_key

    from confluence import compile_keys

    def numbers(found, devices):
        found.update(bytes(of.id for of in devices.flat))

    own = cache_key._hash_serialized_compile_options
    monkeypatch.setattr(cache_key, "_hash_serialized_compile_options", own)
    monkeypatch.setattr(cache_key, "_hash_accelerator_config", numbers)
    compile_keys.leave_out_device_numbers.__wrapped__()
    return cache_key


@pytest.mark.parametrize(
    ("devices", "others", "is_shared"),
    [
        ([[0]], [[1]], True),
        ([[0, 1]], [[2, 3]], False),
        ([[0], [1]], [[2], [3]], False),
        ([[0, 1], [2, 3]], [[4, 5], [6, 7]], False),
    ],
)
def test_only_a_program_of_one_device_has_a_key_without_its_number(
    devices, others, is_shared, without_numbers
):
    from jax._src.compiler import get_compile_options

    one, other = (
        get_compile_options(len(of), len(of[0]), np.array(of)) for of in (devices, others)
    )
    options = without_numbers._hash_serialized_compile_options
    for more in ((), (False,)):
        assert (hashed(options, one, *more) == hashed(options, other, *more)) == is_shared
    # As JAX does for GPUs.
    assert hashed(options, one, True) == hashed(options, other, True)


@pytest.mark.parametrize(
    ("platform", "count", "is_shared"), [("cpu", 1, True), ("cpu", 2, False), ("gpu", 1, False)]
)
def test_only_the_topology_of_one_cpu_is_left_out_of_a_key(
    platform, count, is_shared, without_numbers
):
    def devices(first, kind):
        return np.array(
            [
                types.SimpleNamespace(id=first + n, platform=platform, device_kind=kind)
                for n in range(count)
            ]
        )

    topology = without_numbers._hash_accelerator_config
    one = hashed(topology, devices(0, "a"))
    assert (one == hashed(topology, devices(2, "a"))) == is_shared
    assert one != hashed(topology, devices(2, "b"))
