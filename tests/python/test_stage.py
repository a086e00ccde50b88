"""`headwater.stage`: a store's copy on a node's own disk."""

import fcntl
import filecmp
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import headwater
from samplers import same, sampler


def assert_same_files(one, two):
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(one, two, names, shallow=False)[0] == names


def test_batches_of_a_copy_are_those_of_the_store(store_path, tmp_path):
    copy = tmp_path / "copy"
    calls = []
    report = headwater.stage(store_path, copy, progress=lambda *call: calls.append(call))
    files = [path for path in store_path.rglob("*") if path.is_file()]
    length = sum(path.stat().st_size for path in files)
    root = headwater.Store(store_path).root
    assert report == {"root": root, "bytes": length, "files": len(files), "copied": True}
    assert calls[-1] == ("copying", length, length)
    assert_same_files(store_path, copy)
    assert headwater.stage(str(store_path), str(copy)) == report | {"copied": False}
    with sampler(store_path) as original, sampler(copy) as staged:
        for _ in range(4):
            assert same(original.next_train_batch(), staged.next_train_batch())


def test_one_of_several_calls_copies(store_path, tmp_path):
    copy = tmp_path / "copy"
    start = threading.Barrier(4)

    def call(_):
        start.wait()
        return headwater.stage(store_path, copy)["copied"]

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(call, range(4))) == [False, False, False, True]
    assert_same_files(store_path, copy)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_another_store_is_refused_and_damage_is_not_copied(store_path, listed_store, tmp_path):
    copy = tmp_path / "copy"
    headwater.stage(store_path, copy)
    with pytest.raises(headwater.InvalidArgument, match="expected nothing, or a copy of the store"):
        headwater.stage(listed_store, copy)
    graph = copy / "graph.bin"
    data = bytearray(graph.read_bytes())
    data[64] ^= 1
    graph.write_bytes(data)
    with pytest.raises(headwater.Corrupt, match=r"graph.bin: .* do not match their digest"):
        headwater.stage(copy, tmp_path / "second")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    with pytest.raises(headwater.NotOurs, match="not a store"):
        headwater.stage(tmp_path, tmp_path / "second")


def test_an_exception_of_progress_ends_the_copy(store_path, tmp_path):
    def fail(_stage, done, _total):
        if done:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        headwater.stage(store_path, tmp_path / "copy", progress=fail)
    assert not list(tmp_path.iterdir())


WAITS = """
import sys
import headwater
def show(stage, done, total):
    print(stage, flush=True)
headwater.stage(sys.argv[1], sys.argv[2], progress=show)
"""


def test_ctrl_c_ends_the_waiting(store_path, tmp_path):
    partial = tmp_path / "copy.partial"
    partial.mkdir()
    folder = os.open(partial, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    command = [sys.executable, "-c", WAITS, store_path, tmp_path / "copy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"waiting for another process\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=20)
    os.close(folder)
    assert child.returncode != 0
    assert errors.decode().rstrip().endswith("KeyboardInterrupt")
    assert [path.name for path in tmp_path.iterdir()] == ["copy.partial"]
