"""`headwater.reduce`: rows in Python, folded by any number of workers."""

from __future__ import annotations

import dataclasses
import doctest
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import headwater
from headwater.reduce import GramJob, Reduction, Worker

COLUMNS = 13
COMMAND = Path(sys.executable).parent / "headwater-reduce"
DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def numbers(count, dtype="float32", seed=5):
    drawn = np.random.default_rng(seed).standard_normal((count, COLUMNS))
    return drawn.astype(DTYPES[dtype])


def job(count, dtype="float32", chunk_rows=64, data="rows of a test"):
    return GramJob(count, COLUMNS, data, chunk_rows, dtype)


def portions(of, rows, first_row=0, end=None, pieces=(1, 700, 63, 64, 65, 0, 300), **options):
    """Returns the portions of a worker that pushes rows in pieces."""
    end = len(rows) if end is None else end
    worker = Worker(of, first_row, **options)
    shipped, turn = [], 0
    while worker.next_row < end:
        start = worker.next_row
        worker.push(rows[start : min(end, start + pieces[turn % len(pieces)])])
        turn += 1
        if turn % 3 == 0:
            shipped.append(worker.portion())
    assert worker.next_row == end
    return [*shipped, worker.portion()]


def folded(of, shipped):
    reduction = Reduction(of)
    for portion in shipped:
        reduction.receive(portion)
    return reduction


def shares(count, workers, chunk_rows=64):
    """Returns the first row and the end of each worker: whole chunks, except the last."""
    chunks = -(-count // chunk_rows)
    cuts = [min(count, chunks * worker // workers * chunk_rows) for worker in range(workers + 1)]
    return list(itertools.pairwise(cuts))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gram_matches_numpy(dtype):
    rows = numbers(2003, dtype)
    gram = folded(job(2003, dtype), portions(job(2003, dtype), rows)).result()
    wide = rows.astype(np.float64)
    assert gram.dtype == np.float64
    assert np.array_equal(gram, gram.T)
    assert np.all(np.abs(gram - wide.T @ wide) <= 1e-12 * (np.abs(wide).T @ np.abs(wide)))


def test_p1_workers_order_and_repeats_of_portions_change_no_bit():
    of, rows = job(5003), numbers(5003)
    alone = folded(of, portions(of, rows, pieces=(5003,), threads=1))
    assert alone.is_complete
    assert alone.missing() == []
    shuffle = random.Random(1)
    for workers, threads in [(1, 2), (2, 1), (3, 7), (7, None)]:
        shipped = []
        for first_row, end in shares(5003, workers):
            shipped += portions(of, rows, first_row, end, threads=threads)
        shipped += shipped[::2]
        shuffle.shuffle(shipped)
        reduction = folded(of, shipped)
        assert reduction.digest == alone.digest
        assert reduction.result().tobytes() == alone.result().tobytes()
        assert reduction.receive(alone.portion()) == 0
    other = dataclasses.replace(of, chunk_rows=65)
    assert folded(other, portions(other, rows)).digest != alone.digest


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_digest_equals_that_of_the_command(tmp_path, dtype):
    of, rows = job(3001, dtype), numbers(3001, dtype)
    element = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]
    (tmp_path / "x.raw").write_bytes(rows.tobytes())
    command = [COMMAND, "gram", "--input", tmp_path / "x.raw", "--out", tmp_path / "g.npy"]
    command += ["--dtype", element, "--columns", str(COLUMNS), "--chunk-rows", "64"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    reduction = folded(of, portions(of, rows))
    assert json.loads(done.stdout.splitlines()[-1])["digest"] == reduction.digest
    assert np.load(tmp_path / "g.npy").tobytes() == reduction.result().tobytes()


def test_the_chunks_have_the_size_of_the_command_unless_a_job_says(tmp_path):
    """Another size gives other bits, so a new default would be another result."""
    rows = numbers(9001, "float32")
    (tmp_path / "x.raw").write_bytes(rows.tobytes())
    command = [COMMAND, "gram", "--input", tmp_path / "x.raw", "--out", tmp_path / "g.npy"]
    command += ["--dtype", "f32", "--columns", str(COLUMNS)]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    of = GramJob(9001, COLUMNS, "rows")
    assert (
        np.load(tmp_path / "g.npy").tobytes() == folded(of, portions(of, rows)).result().tobytes()
    )


def test_the_memory_layout_of_rows_changes_no_bit():
    of, rows = job(500), numbers(500)
    digest = folded(of, portions(of, rows)).digest
    odd = np.frombuffer(b"x" + rows.tobytes(), np.uint8)[1:].view(np.float32).reshape(rows.shape)
    assert not odd.flags.aligned
    frozen = rows.copy()
    frozen.flags.writeable = False
    twice = np.repeat(rows, 2, axis=0)[::2]
    for same in (np.asfortranarray(rows), odd, frozen, twice):
        assert folded(of, portions(of, same)).digest == digest


CRASHING = """
import sys, time
import numpy as np
from headwater.reduce import GramJob, Reduction, Worker

rows = np.load(sys.argv[1])
job = GramJob(len(rows), rows.shape[1], "rows of a test", 64)
reduction = Reduction(job)
worker = Worker(job, threads=1)
for start in range(0, len(rows), 100):
    worker.push(rows[start : start + 100])
    reduction.receive(worker.portion())
    reduction.save(sys.argv[2])
"""


def test_p2_p4_a_killed_fold_resumes_with_other_workers(tmp_path):
    of, rows = job(40_003), numbers(40_003)
    np.save(tmp_path / "x.npy", rows)
    kept = tmp_path / "kept.portion"
    child = subprocess.Popen([sys.executable, "-c", CRASHING, tmp_path / "x.npy", kept])
    deadline = time.monotonic() + 60
    while not kept.exists():
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.001)
    time.sleep(0.03)
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    assert child.returncode == -signal.SIGKILL
    reduction = Reduction(of)
    assert reduction.receive(kept.read_bytes()) > 0
    ((first_row, end),) = reduction.missing()
    assert 0 < first_row < end == 40_003
    assert not reduction.is_complete
    middle = first_row + (end - first_row) // 128 * 64
    for start, stop in [(middle, end), (first_row, middle)]:
        for portion in portions(of, rows, start, stop):
            reduction.receive(portion)
    assert reduction.digest == folded(of, portions(of, rows)).digest


@pytest.mark.parametrize("block_chunks", [1, 4])
@pytest.mark.parametrize("world", [1, 3])
def test_p1_p5_ranks_that_own_blocks_in_turn_give_the_same_digest(world, block_chunks):
    of, rows = job(5003), numbers(5003)
    alone = folded(of, portions(of, rows))
    reduction = Reduction(of)
    pushed = np.zeros(5003, int)
    for rank in range(world):
        worker = Worker(of, threads=2, rank=rank, world=world, block_chunks=block_chunks)
        own = [row for row in range(5003) if row // 64 // block_chunks % world == rank]
        assert worker.next_row == own[0]
        # Pieces end amid chunks and blocks.
        for piece in np.array_split(own, 11):
            assert worker.next_row == piece[0]
            worker.push(rows[piece])
            pushed[piece] += 1
        assert worker.next_row == 5003
        with pytest.raises(headwater.InvalidArgument, match="expected at most 0 more of the"):
            worker.push(rows[:1])
        reduction.receive(worker.portion())
    assert (pushed == 1).all()
    assert reduction.digest == alone.digest


def test_p2_a_worker_goes_on_at_its_cursor():
    of, rows = job(5003), numbers(5003)
    options = {"rank": 1, "world": 3, "block_chunks": 2, "threads": 1}
    own = np.array([row for row in range(5003) if row // 128 % 3 == 1])
    first = Worker(of, **options)
    first.push(rows[own[:1000]])
    shipped = [first.portion()]
    cursor = first.cursor()
    # Rows that were pushed and not shipped are lost with the worker.
    first.push(rows[own[1000:1100]])
    assert first.cursor() == cursor
    again = Worker(of, **options)
    again.resume(cursor)
    assert again.next_row == own[128 * (1000 // 128)]
    again.push(rows[own[own >= again.next_row]])
    shipped.append(again.portion())
    for rank in (0, 2):
        other = Worker(of, **{**options, "rank": rank})
        other.push(rows[[row for row in range(5003) if row // 128 % 3 == rank]])
        shipped.append(other.portion())
    assert folded(of, shipped).digest == folded(of, portions(of, rows)).digest
    # Consecutive rows have a cursor, too.
    half = Worker(of)
    half.push(rows[:640])
    half.portion()
    rest = Worker(of)
    rest.resume(half.cursor())
    assert rest.next_row == 640


def test_p6_a_cursor_of_another_worker_is_refused_by_field():
    of = job(5003)
    options = {"rank": 1, "world": 3, "block_chunks": 2}
    cursor = Worker(of, **options).cursor()
    for change, words in [
        ({"rank": 2}, '"rank" was 1 and is now 2'),
        ({"world": 4}, '"world" was 3 and is now 4'),
        ({"block_chunks": 4}, '"block_chunks" was 2 and is now 4'),
    ]:
        other = Worker(of, **{**options, **change})
        before = other.next_row
        with pytest.raises(headwater.PlanMismatch, match=words):
            other.resume(cursor)
        assert other.next_row == before
    with pytest.raises(headwater.PlanMismatch, match='"data" was "rows of a test" and is now "x"'):
        Worker(job(5003, data="x"), **options).resume(cursor)
    for damaged in (cursor[:-1], cursor[:40] + b"x" + cursor[41:]):
        with pytest.raises(headwater.Corrupt):
            Worker(of, **options).resume(damaged)
    with pytest.raises(headwater.NotOurs):
        Worker(of, **options).resume(b"not a cursor at all")
    worker = Worker(of, **options)
    worker.push(numbers(1))
    with pytest.raises(headwater.InvalidArgument, match="continue in a new worker"):
        worker.resume(cursor)


def test_a_thread_that_writes_to_the_rows_tears_no_sum():
    # A number that is read twice, once before and once after a write, gives products that are not
    # those of one matrix.
    of = GramJob(64 * 40, 256, "rows that change", 64, "float64")
    rows, ended = np.ones((64 * 40, 256)), threading.Event()

    def write():
        while not ended.is_set():
            rows[:] = 2.0
            rows[:] = 1.0

    writer = threading.Thread(target=write)
    writer.start()
    mixed = 0
    try:
        for _ in range(60):
            worker, reduction = Worker(of, threads=1), Reduction(of)
            worker.push(rows)
            reduction.receive(worker.portion())
            gram = reduction.result()
            # By Cauchy-Schwarz no product of columns exceeds the mean of their squares.
            squares = np.diag(gram)
            mixed += bool(((squares > len(rows)) & (squares < 4 * len(rows))).any())
            assert (gram <= (squares[:, None] + squares[None, :]) / 2).all()
    finally:
        ended.set()
        writer.join()
    assert mixed > 0, "no fold saw two versions"


def test_save_writes_a_whole_file_or_none(tmp_path):
    reduction = folded(job(500), portions(job(500), numbers(500)))
    with pytest.raises(headwater.IoError, match="nowhere"):
        reduction.save(tmp_path / "nowhere" / "kept")
    reduction.save(tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == reduction.portion()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_p6_a_portion_of_another_job_is_refused_by_setting():
    of, rows = job(500), numbers(500)
    (portion,) = portions(of, rows, pieces=(500,))
    for change, words in [
        ({"data": "other rows"}, '"data" was "rows of a test" and is now "other rows"'),
        ({"chunk_rows": 65}, '"chunk_rows" was 64 and is now 65'),
        ({"rows": 501}, '"rows" was 500 and is now 501'),
        ({"columns": 12}, '"columns" was 13 and is now 12'),
        ({"dtype": "float64"}, '"element" was "f32" and is now "f64"'),
    ]:
        other = Reduction(dataclasses.replace(of, **change))
        with pytest.raises(headwater.PlanMismatch) as caught:
            other.receive(portion)
        assert words in str(caught.value)
        assert other.missing() == [(0, 501 if "rows" in change else 500)]


def test_p6_damaged_and_conflicting_portions_are_refused():
    of, rows = job(500), numbers(500)
    (portion,) = portions(of, rows, end=192, pieces=(192,))
    reduction = Reduction(of)
    for place in range(8, len(portion), 97):
        damaged = bytearray(portion)
        damaged[place] ^= 1
        with pytest.raises((headwater.Corrupt, headwater.VersionMismatch)):
            reduction.receive(bytes(damaged))
    for cut in (0, 7, 30, len(portion) - 1):
        with pytest.raises((headwater.Corrupt, headwater.NotOurs)):
            reduction.receive(portion[:cut])
    assert reduction.missing() == [(0, 500)]
    reduction.receive(portion)
    (other,) = portions(of, rows + 1, end=192, pieces=(192,))
    with pytest.raises(headwater.Corrupt, match="arrived twice, and the two differ"):
        reduction.receive(other)


def test_p6_a_refused_portion_changes_nothing():
    of, rows = job(64 * 8), numbers(64 * 8)
    wrong = rows.copy()
    wrong[64 * 4] += 1
    reduction = folded(of, portions(of, rows, 0, 64) + portions(of, rows, 64 * 4, 64 * 5))
    before = reduction.portion()
    # Chunks 0 to 3 are one node, which replaces chunk 0; chunk 4 was received before.
    shipped = portions(of, wrong, 0, 64 * 5, pieces=(64 * 5,))
    for portion in shipped:
        with pytest.raises(headwater.Corrupt, match="chunk 4.* arrived twice, and the two differ"):
            reduction.receive(portion)
    assert reduction.portion() == before
    for portion in portions(of, rows):
        reduction.receive(portion)
    assert reduction.digest == folded(of, portions(of, rows)).digest


def test_a_fold_with_missing_or_no_rows_has_no_result():
    reduction = Reduction(job(500))
    with pytest.raises(headwater.InvalidArgument, match="chunks 0 to 7 are missing"):
        reduction.result()
    with pytest.raises(headwater.InvalidArgument, match="not complete"):
        _ = reduction.digest
    with pytest.raises(headwater.InvalidArgument, match="expected at least one row, found none"):
        Reduction(job(0)).result()


def test_invalid_arguments_are_named():
    good = {"rows": 500, "columns": COLUMNS, "data": "rows"}
    for change, kind, words in [
        ({"rows": -1}, headwater.InvalidArgument, "rows: expected a number from 0 to .*, found -1"),
        (
            {"rows": 2**70},
            headwater.InvalidArgument,
            "rows: expected .*, found 1180591620717411303424",
        ),
        ({"rows": "many"}, headwater.InvalidArgument, "rows: "),
        ({"columns": 0}, headwater.InvalidArgument, "at least 1 column"),
        ({"columns": 1 << 20}, headwater.LimitExceeded, "found 1048576"),
        ({"chunk_rows": 0}, headwater.InvalidArgument, "at least 1 row"),
        ({"dtype": "int32"}, headwater.InvalidArgument, 'expected dtype to be "float64" or'),
        ({"data": 3}, headwater.InvalidArgument, "data: .* found int"),
    ]:
        with pytest.raises(kind, match=words):
            GramJob(**good | change)
    for options, words in [
        ({"rank": 3, "world": 3}, "found rank 3 of 3"),
        ({"world": 0}, "found rank 0 of 0"),
        ({"block_chunks": 3}, "block_chunks: expected a power of two, such as 64, found 3"),
        ({"block_chunks": 0}, "block_chunks: expected a power of two, such as 64, found 0"),
        ({"first_row": 64, "world": 2}, "a first row that rank 0 of 2 owns, such as 128, found 64"),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            Worker(job(500), **options)
    with pytest.raises(headwater.InvalidArgument, match="a multiple of 64 below 500, found 65"):
        Worker(job(500), 65)
    for threads in (0, -1, 1025):
        words = f"threads: expected 1 to 1024, found {threads}; None uses all cores"
        with pytest.raises(headwater.InvalidArgument, match=words):
            Worker(job(500), threads=threads)


def test_jobs_beyond_the_limits_are_refused_at_once():
    good = {"rows": 500, "columns": COLUMNS, "data": "rows"}
    for rows in (2**62 + 1, 2**64 - 1):
        with pytest.raises(headwater.LimitExceeded, match=f"at most 2\\^62 rows, found {rows}"):
            GramJob(**good | {"rows": rows, "chunk_rows": 1})
    with pytest.raises(headwater.LimitExceeded, match="give the data a shorter name"):
        GramJob(**good | {"data": "x" * (1 << 20)})
    most = GramJob(**good | {"rows": 2**62, "chunk_rows": 1})
    worker = Worker(most, 2**62 - 2, threads=1)
    worker.push(numbers(2))
    assert folded(most, [worker.portion()]).missing() == [(0, 2**62 - 2)]
    for chunk_rows in (2**62, 2**64 - 1):
        one = GramJob(**good | {"rows": 2**62, "chunk_rows": chunk_rows})
        Worker(one, threads=1).push(numbers(100))


SHORT_OF_MEMORY = """
import resource, sys
import numpy as np
import headwater
from headwater.reduce import GramJob, Reduction, Worker

columns, what = 4096, sys.argv[1]
job = GramJob(20_000, columns, "ones", 20_000)
small = GramJob(2, columns, "ones", 1)
rows = np.ones((2000, columns), np.float32)
worker, reduction, shipped = Worker(job, threads=1), Reduction(small), Worker(small, threads=1)
shipped.push(rows[:1])
first = shipped.portion()
shipped.push(rows[1:2])
reduction.receive(first)
if what != "receive":
    reduction.receive(shipped.portion())
calls = {
    "push": lambda: [worker.push(rows) for _ in range(10)],
    "portion": lambda: [reduction.portion(), reduction.portion()],
    "result": reduction.result,
    "digest": lambda: reduction.digest,
    "receive": lambda: Reduction(small).receive(first),
}
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + (40 << 20)
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (limit, most))
try:
    calls[what]()
except (headwater.LimitExceeded, MemoryError) as error:
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print("told", type(error).__name__, error)
"""


@pytest.mark.parametrize("what", ["push", "portion", "result", "digest", "receive"])
def test_lack_of_memory_raises_an_exception(what):
    child = [sys.executable, "-c", SHORT_OF_MEMORY, what]
    done = subprocess.run(child, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("told "), (done.returncode, done.stdout, done.stderr)
    assert "panicked" not in done.stderr


def test_rows_that_do_not_fit_the_job_are_refused_and_change_nothing():
    of, rows = job(500), numbers(500)
    worker = Worker(of)
    worker.push(rows[:10])
    for wrong, words in [
        (rows.astype(np.float64), "expected rows of float32 as in the job, found float64"),
        (rows.astype(">f4"), "found >f4"),
        (rows.astype(np.int32), "found int32"),
        (rows[0], r"as a matrix \[n, 13\], found the shape \(13,\)"),
        (rows[:, :12], "13 columns of f32 as in the job, found 12"),
        (rows[:, :0], "found 0 of f32"),
        (rows, "at most 490 more of the 500 rows of the job, found 500"),
        ("rows", "found str"),
        (np.ma.masked_less(rows[:10], 0), "found a masked array; fill it in"),
        (np.ma.array(rows[:10]), "found a masked array"),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            worker.push(wrong)
    assert worker.next_row == 10
    worker.push(rows[10:])
    assert folded(of, [worker.portion()]).digest == folded(of, portions(of, rows)).digest


INTERRUPTED = """
import os, signal, threading
import numpy as np
from headwater.reduce import GramJob, Worker

job = GramJob(4_000_000, 128, "zeros", 64)
rows = np.broadcast_to(np.zeros((1, 128), np.float32), (400_000, 128)).copy()
worker = Worker(job, threads=1)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        worker.push(rows)
except KeyboardInterrupt:
    print(worker.next_row)
"""


def test_ctrl_c_ends_a_push_and_other_threads_run_meanwhile():
    child = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(child, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 4_000_000

    counted, ended = 0, threading.Event()
    of = GramJob(200_000, 128, "ones", 64)
    rows = np.ones((200_000, 128), np.float32)

    def fold():
        Worker(of, threads=1).push(rows)
        ended.set()

    thread = threading.Thread(target=fold)
    thread.start()
    while not ended.wait(0.001):
        counted += 1
    thread.join()
    assert counted > 5


# JAX warns of every fork, if a test in this process has loaded it.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_push_in_a_forked_child_is_an_error():
    worker = Worker(job(500))
    worker.push(numbers(500)[:100])
    child = os.fork()
    if child == 0:
        try:
            worker.push(numbers(500)[100:])
        except headwater.InvalidArgument as error:
            os._exit(0 if "a forked child" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_docstring_examples_run():
    assert doctest.testmod(headwater.reduce).failed == 0
    assert doctest.testmod(headwater.reduce).attempted > 0
