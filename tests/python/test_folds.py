"""`headwater.reduce`: every statistic of the command, in one call, by workers and as functions."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import doctest
import inspect
import itertools
import json
import math
import multiprocessing
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import ml_dtypes
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater
from headwater import _reduce_jobs, _reduce_workers, reduce
from headwater.reduce import Reduction, Worker, fold, merge

COMMAND = Path(sys.executable).parent / "headwater-reduce"
CHUNK_ROWS, ROWS, COLUMNS = 64, 1003, 3
DTYPES = {
    "float64": ("f64", np.float64),
    "float32": ("f32", np.float32),
    "float16": ("f16", np.float16),
    "bfloat16": ("bf16", ml_dtypes.bfloat16),
}
# By statistic: the options of its job, the arguments of the one call, and those of the command.
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], list[object]]] = {
    "gram": ({}, {}, []),
    "cross": ({"y_columns": 2, "y_dtype": "float32"}, {}, []),
    "moments": ({"shifts": [0.5, 0.0, -1.0]}, {"shifts": [0.5, 0, -1]}, ["--shift", 0.5, 0, -1]),
    "histogram": ({"edges": [-1, 0, 0.5]}, {"edges": [-1, 0, 0.5]}, ["--edges", -1, 0, 0.5]),
    "exact": ({}, {}, []),
    "exponents": ({}, {}, []),
    "distinct": ({"precision": 8}, {"precision": 8}, ["--precision", 8]),
    "top": (
        {"column": 2, "count": 5, "smallest": True},
        {"column": 2, "count": 5, "smallest": True},
        ["--column", 2, "--count", 5, "--smallest"],
    ),
}
JOBS = {
    "gram": reduce.GramJob,
    "cross": reduce.CrossJob,
    "moments": reduce.MomentsJob,
    "histogram": reduce.HistogramJob,
    "exact": reduce.ExactJob,
    "exponents": reduce.ExponentsJob,
    "distinct": reduce.DistinctJob,
    "top": reduce.TopJob,
}


def numbers(dtype="float64", rows=ROWS, seed=5):
    """Rows with NaN and infinities, which every statistic takes."""
    drawn = np.random.default_rng(seed).standard_normal((rows, COLUMNS))
    for place, odd in enumerate((np.nan, np.inf, -np.inf, -0.0)):
        drawn[7 + 101 * place :: 500, place % COLUMNS] = odd
    return drawn.astype(DTYPES[dtype][1])


def second(rows=ROWS):
    return np.random.default_rng(6).standard_normal((rows, 2)).astype(np.float32)


def job(statistic, dtype="float64", rows=ROWS, **changes):
    fields = {"rows": rows, "columns": COLUMNS, "data": "rows of a test", "dtype": dtype}
    return JOBS[statistic](**fields | {"chunk_rows": CHUNK_ROWS} | OPTIONS[statistic][0] | changes)


def others(statistic, y, first_row=0, end=None):
    return {"y": y[first_row:end]} if statistic == "cross" else {}


def one_call(statistic, rows, y, **options):
    call = getattr(reduce, statistic)
    arguments = OPTIONS[statistic][1] | {"chunk_rows": CHUNK_ROWS} | options
    return call(rows, y, **arguments) if statistic == "cross" else call(rows, **arguments)


def folded(of, *portions):
    reduction = Reduction(of)
    for portion in portions:
        reduction.receive(portion)
    return reduction


def told(statistic, folder, dtype, rows, y):
    """What the command says of raw files of these rows."""
    (folder / "x.raw").write_bytes(rows.tobytes())
    (folder / "y.raw").write_bytes(y.tobytes())
    command = [COMMAND, statistic, "--input", folder / "x.raw", "--dtype", DTYPES[dtype][0]]
    command += ["--columns", COLUMNS, "--chunk-rows", CHUNK_ROWS, *OPTIONS[statistic][2]]
    if statistic == "cross":
        command += ["--with", folder / "y.raw", "--with-dtype", "f32", "--with-columns", 2]
    command += ["--out", folder / "o"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("statistic", JOBS)
def test_p1_every_way_to_fold_has_the_digest_of_the_command(tmp_path, statistic, dtype):
    rows, y = numbers(dtype), second()
    expected = told(statistic, tmp_path, dtype, rows, y)["digest"]
    assert one_call(statistic, rows, y).digest == expected
    assert one_call(statistic, rows, y, threads=1).digest == expected
    x_file = reduce.Matrix(tmp_path / "x.raw", dtype=dtype, columns=COLUMNS)
    y_file = reduce.Matrix(tmp_path / "y.raw", dtype="float32", columns=2)
    of_files = one_call(statistic, x_file, y_file)
    assert of_files.digest == expected
    assert of_files.value.tobytes() == one_call(statistic, rows, y).value.tobytes()
    of = job(statistic, dtype)
    worker = Worker(of, threads=2)
    for start in range(0, ROWS, 100):
        worker.push(rows[start : start + 100], **others(statistic, y, start, start + 100))
    assert folded(of, worker.portion()).digest == expected
    parts = [(0, 256), (256, 320), (320, ROWS)]
    portions = [fold(of, a, rows[a:b], **others(statistic, y, a, b)) for a, b in parts]
    assert folded(of, merge(of, *portions[::-1])).digest == expected


def same(found, expected):
    """Whether a field is that of the command's JSON, which has words for what is not finite."""
    if isinstance(expected, list):
        pairs = zip(np.atleast_1d(found).tolist(), expected, strict=True)
        return all(same(*pair) for pair in pairs)
    if expected is None or isinstance(expected, str):
        return math.isnan(found) if expected in (None, "NaN") else found == float(expected)
    return found == expected


@pytest.mark.parametrize(
    "statistic", ["moments", "exact", "histogram", "exponents", "distinct", "top"]
)
def test_results_have_the_fields_of_the_command(tmp_path, statistic):
    rows, y = numbers(), second()
    rows[:, 1] = np.nan
    told(statistic, tmp_path, "float64", rows, y)
    expected = json.loads((tmp_path / "o.json").read_text())["result"]
    value = one_call(statistic, rows, y).value
    assert len(value) == len(expected)
    for found, column in zip(value, expected, strict=True):
        for name, field in column.items():
            if name == "distinct":
                assert same(found, field)
            elif name in ("positive", "negative"):
                counts = dict(zip(range(-1022, 1024), found[name]["exponents"], strict=True))
                assert {str(e): int(n) for e, n in counts.items() if n} == field["exponents"]
                for part in ("zeros", "subnormals", "infinities"):
                    assert found[name][part] == field[part]
            elif name != "edges":
                assert same(found[name], field), (name, found[name], field)


@pytest.mark.parametrize("statistic", JOBS)
def test_one_call_has_the_defaults_of_its_job(statistic):
    """Another size of chunks, or another precision, gives other bits."""
    fields = {field.name: field.default for field in dataclasses.fields(JOBS[statistic])}
    found = inspect.signature(getattr(reduce, statistic)).parameters
    shared = {name for name, of in found.items() if of.default not in (of.empty, None)}
    assert {name: found[name].default for name in shared} == {name: fields[name] for name in shared}
    assert "chunk_rows" in shared


@pytest.mark.parametrize("statistic", JOBS)
def test_what_a_statistic_adds_to_a_job_is_given_by_name(statistic):
    options = OPTIONS[statistic][0]
    assert JOBS[statistic](5, 3, "rows", 2, "float64", **options).dtype == "float64"
    with pytest.raises(TypeError, match="positional argument"):
        JOBS[statistic](5, 3, "rows", 2, "float64", 1, **options)


@pytest.mark.parametrize("statistic", ["distinct", "top"])
def test_the_defaults_are_those_of_the_command(tmp_path, statistic):
    rows = numbers(rows=3000)
    (tmp_path / "x.raw").write_bytes(rows.tobytes())
    command = [COMMAND, statistic, "--input", tmp_path / "x.raw", "--out", tmp_path / "o.json"]
    command += ["--dtype", "f64", "--columns", str(COLUMNS)]
    own = {"column": 1} if statistic == "top" else {}
    command += ["--column", "1"] if own else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = getattr(reduce, statistic)(rows, **own)
    assert json.loads(done.stdout.splitlines()[-1])["digest"] == found.digest


def test_the_columns_of_x_ones_and_y_are_side_by_side():
    # Small whole numbers: every sum is exact.
    random = np.random.default_rng(1)
    x = random.integers(-9, 9, (ROWS, 3)).astype(np.float32)
    y = random.integers(-9, 9, (ROWS, 2)).astype(np.float16)
    weights = random.integers(0, 5, ROWS).astype(np.float64)
    wide = np.hstack([x, np.ones((ROWS, 1)), y]).astype(np.float64)
    options = {"chunk_rows": CHUNK_ROWS}
    assert (reduce.gram(x, y=y, ones=True, **options).value == wide.T @ wide).all()
    assert (reduce.cross(x, y, **options).value == x.T @ y).all()
    weighted = reduce.gram(x, y=y, ones=True, weights=weights, **options)
    assert (weighted.value == (wide * weights[:, None]).T @ wide).all()
    alone = reduce.gram(x, weights=weights[:, None], **options)
    assert (alone.value == weighted.value[:3, :3]).all()


def test_p1_products_side_by_side_have_the_bits_of_those_apart(tmp_path):
    x, y = numbers("float32"), second()
    together = reduce.gram(x, y=y, ones=True, chunk_rows=CHUNK_ROWS).value
    gram = reduce.gram(x, chunk_rows=CHUNK_ROWS).value
    cross = reduce.cross(x, y, chunk_rows=CHUNK_ROWS).value
    assert together[:3, :3].tobytes() == gram.tobytes()
    assert together[:3, 4:].tobytes() == cross.tobytes()
    np.save(tmp_path / "x.npy", x)
    of_files = reduce.gram(tmp_path / "x.npy", ones=True, chunk_rows=CHUNK_ROWS)
    assert of_files.digest == reduce.gram(x, ones=True, chunk_rows=CHUNK_ROWS).digest
    heavy = np.ones(ROWS)
    assert reduce.gram(x, weights=heavy, chunk_rows=CHUNK_ROWS).value.tobytes() == gram.tobytes()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_p1_files_beside_arrays_have_the_digests_of_arrays(dtype, tmp_path, monkeypatch):
    # Parts that end within chunks.
    monkeypatch.setattr(reduce, "_PART_NUMBERS", 100)
    draws = np.random.default_rng(5)
    x = draws.standard_normal((130, 3)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    y, weights = draws.standard_normal((130, 2)), draws.random(130)
    x[:70].tofile(tmp_path / "1.raw")
    x[70:].tofile(tmp_path / "2.raw")
    np.save(tmp_path / "y.npy", y)
    files = reduce.Matrix(tmp_path / "1.raw", tmp_path / "2.raw", dtype=dtype, columns=3)
    of_y, forms = reduce.Matrix(tmp_path / "y.npy"), {"chunk_rows": 8, "threads": 1}
    expected = reduce.gram(x, y=y, weights=weights, ones=True, **forms)
    assert reduce.gram(files, y=y, weights=weights, ones=True, **forms).digest == expected.digest
    expected = reduce.cross(x, y, **forms)
    for pair in [(files, y), (x, of_y), (files, of_y)]:
        assert reduce.cross(*pair, **forms).digest == expected.digest


def test_files_with_names_and_nulls(tmp_path):
    table = {"a": [1.0, None, 3.0, 5.0], "b": [4.0, 2.0, 9.0, 9.0]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    moments = reduce.moments(path).value
    assert moments["nulls"].tolist() == [1, 0]
    assert moments["mean"].tolist() == [3.0, 6.0]
    assert moments["shift"].tolist() == reduce.shifts(path) == [3.0, 4.0]
    matrix = reduce.Matrix(path, select=["b", "a"])
    assert (matrix.rows, matrix.columns, matrix.names) == (4, 2, ["b", "a"])
    assert matrix.dtype == "float64"
    assert reduce.top(matrix, "b", count=2).value.tolist() == [(9.0, 2), (9.0, 3)]
    assert reduce.distinct([path, path]).value.round().tolist() == [3, 3]
    with pytest.raises(headwater.DataError, match="row 1, column 0: expected a number, found NULL"):
        reduce.gram(path)
    with pytest.raises(headwater.InvalidArgument, match='no column is named "c"'):
        reduce.top(matrix, "c")
    with pytest.raises(headwater.DataError, match="row 1, column 0: expected a number, found NULL"):
        reduce.gram(path, weights=np.ones(4))
    with pytest.raises(headwater.InvalidArgument, match="found 4 of x, 3 of weights"):
        reduce.gram(path, weights=np.ones(3))
    with pytest.raises(headwater.InvalidArgument, match="as an array of numbers, found 2.0"):
        reduce.gram(path, weights=2.0)
    with pytest.raises(headwater.IoError):
        reduce.gram(tmp_path / "none.npy")
    with pytest.raises(headwater.InvalidArgument, match="leave out those of other formats"):
        reduce.Matrix(path, select=["a"], dtype="float32")


def test_a_column_of_one_number_has_a_range_and_one_without_numbers_no_top():
    found = reduce.moments(np.full((3, 1), 2.0)).value
    assert (found["min"], found["max"]) == (2.0, 2.0)
    assert len(reduce.top(np.full((3, 1), np.nan), 0).value) == 0


def test_moments_without_a_shift_are_of_the_numbers_themselves():
    of = reduce.MomentsJob(3, 1, "rows", dtype="float64")
    assert of.shifts == (0.0,)
    found = folded(of, fold(of, 0, np.array([[1.0], [2.0], [6.0]]))).result()
    assert found["power_sums"].tolist() == [[9.0, 41.0, 225.0, 1313.0]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_default_shifts_are_those_of_the_command(tmp_path, dtype):
    rows = numbers(dtype, 3000)
    rows[:1024, 1] = -0.0
    (tmp_path / "x.raw").write_bytes(rows.tobytes())
    command = [COMMAND, "moments", "--input", tmp_path / "x.raw", "--out", tmp_path / "m.json"]
    command += ["--dtype", DTYPES[dtype][0], "--columns", str(COLUMNS)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    said = json.loads((tmp_path / "m.json").read_text())
    moments = reduce.moments(rows)
    assert moments.digest == said["digest"]
    assert reduce.shifts(rows) == [column["shift"] for column in said["result"]]
    assert np.signbit(moments.value["shift"][1])


@st.composite
def splits(draw):
    """A statistic, its rows in shares of whole chunks, and the order and grouping of the merges."""
    statistic = draw(st.sampled_from(sorted(JOBS)))
    rows = draw(st.integers(1, 400))
    chunks = -(-rows // CHUNK_ROWS)
    cuts = sorted(draw(st.sets(st.integers(1, chunks))) | {0, chunks})
    shares = [(a * CHUNK_ROWS, min(rows, b * CHUNK_ROWS)) for a, b in itertools.pairwise(cuts)]
    order = draw(st.permutations(range(len(shares))))
    pieces = draw(st.lists(st.integers(1, 150), min_size=1, max_size=5))
    return statistic, rows, shares, order, pieces, draw(st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(splits())
def test_p1_p4_any_split_and_any_order_of_merges_gives_the_same_bytes(split):
    statistic, count, shares, order, pieces, group = split
    of, rows, y = job(statistic, rows=count), numbers(rows=count), second(count)
    whole = folded(of, fold(of, 0, rows, **others(statistic, y)))
    portions = []
    for first_row, end in shares:
        worker, turn = Worker(of, first_row, threads=1), 0
        while worker.next_row < end:
            start = worker.next_row
            stop = min(end, start + pieces[turn % len(pieces)])
            worker.push(rows[start:stop], **others(statistic, y, start, stop))
            turn += 1
            # A pickle anywhere, also amid a chunk, changes nothing.
            worker = pickle.loads(pickle.dumps(worker))
            assert worker.next_row == stop
        portions.append(worker.portion())
    merged = b""
    for place in range(0, len(order), group):
        some = [portions[share] for share in order[place : place + group]]
        merged = merge(of, *some, *([merged] if merged else []), some[0])
    assert merged == whole.portion()
    assert folded(of, merged).digest == whole.digest


@pytest.mark.parametrize("statistic", JOBS)
def test_jobs_workers_and_reductions_can_be_pickled(statistic):
    of, rows, y = job(statistic), numbers(), second()
    whole = folded(of, fold(of, 0, rows, **others(statistic, y)))
    for module in (pickle, cloudpickle):
        assert pickle.loads(module.dumps(of)) == of
        worker = Worker(of, 128, threads=1, rank=1, world=2, block_chunks=2)
        worker.push(rows[128:200], **others(statistic, y, 128, 200))
        copy = pickle.loads(module.dumps(worker))
        assert copy.job == of
        assert copy.next_row == worker.next_row == 200
        assert copy.cursor() == worker.cursor()
        for one in (worker, copy):
            one.push(rows[200:256], **others(statistic, y, 200, 256))
            assert one.next_row == 384
        assert copy.portion() == worker.portion()
        assert copy.cursor() == worker.cursor()
        again = pickle.loads(module.dumps(whole))
        assert again.portion() == whole.portion()
        assert again.digest == whole.digest


def test_a_damaged_pickle_of_a_worker_is_refused():
    worker = Worker(job("gram"), threads=1)
    worker.push(numbers()[:70])
    state = worker.__getstate__()
    portion, next_row, shipped_row, begun = state["begun"]
    for wrong in [
        (portion, next_row + 1, shipped_row, begun),
        (portion, next_row, shipped_row, [begun[0][:-1]]),
        (portion, next_row, shipped_row, []),
        (portion, 2**64 - 1, shipped_row, begun),
        (portion[:-1], next_row, shipped_row, begun),
    ]:
        with pytest.raises(headwater.Corrupt):
            Worker.__new__(Worker).__setstate__(state | {"begun": wrong})


def task(of, first_row, rows):
    return fold(of, first_row, rows)


def half_done(worker, rows):
    worker.push(rows)
    return worker


def test_p1_processes_of_a_pool_fold_and_go_on():
    of, rows = job("moments"), numbers()
    whole = folded(of, fold(of, 0, rows))
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as processes:
        starts = range(0, ROWS, 256)
        shares = [rows[start : start + 256] for start in starts]
        portions = list(processes.map(task, [of] * len(shares), starts, shares))
        worker = Worker(of, threads=1)
        for start in range(0, ROWS, 100):
            worker = processes.submit(half_done, worker, rows[start : start + 100]).result()
    assert folded(of, *portions).digest == whole.digest
    assert folded(of, worker.portion()).digest == whole.digest


def test_p1_threads_may_share_a_reduction():
    of, rows = job("moments", rows=64 * 64), numbers(rows=64 * 64)
    reduction = Reduction(of)

    def work(share):
        for chunk in range(share, 64, 4):
            reduction.receive(fold(of, chunk * 64, rows[chunk * 64 : chunk * 64 + 64]))

    threads = [threading.Thread(target=work, args=[share]) for share in (0, 1, 2, 3, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reduction.digest == folded(of, fold(of, 0, rows)).digest


# A thread needs memory for its stack, of which there is none.
WITHOUT_THREADS = """
import resource
import numpy as np
import numpy.ma  # which a push would load
from headwater.reduce import GramJob, Worker

worker = Worker(GramJob(1000, 3, "rows", 64), threads=1)
rows = np.ones((63, 3), np.float32)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
worker.push(rows)
print("kept", worker.next_row)
try:
    worker.push(rows)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_push_of_few_rows_starts_no_thread():
    child = [sys.executable, "-c", WITHOUT_THREADS]
    done = subprocess.run(child, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    kept, told = done.stdout.splitlines()
    assert kept == "kept 63"
    # The chunk that a later push completes needs one.
    assert told.startswith("LimitExceeded cannot start threads"), told


def test_rows_that_do_not_fill_whole_chunks_are_refused():
    of, rows = job("moments"), numbers()
    words = "whole chunks of 64 rows, found 36 rows after the last one; end at row 192"
    with pytest.raises(headwater.InvalidArgument, match=words):
        fold(of, 128, rows[128:228])
    with pytest.raises(headwater.InvalidArgument, match="a multiple of 64 below 1003, found 100"):
        fold(of, 100, rows[100:128])
    with pytest.raises(headwater.InvalidArgument, match="at most 43 more of the 1003 rows"):
        fold(of, 960, rows[900:])


@pytest.mark.parametrize("statistic", JOBS)
def test_rows_that_do_not_fit_a_job_are_refused_and_change_nothing(statistic):
    of, rows, y = job(statistic), numbers(), second()
    worker = Worker(of, threads=1)
    beside = others(statistic, y, 0, 10)
    worker.push(rows[:10], **beside)
    for wrong, words in [
        (rows[:10].astype(np.float32), "expected rows of float64 as in the job, found float32"),
        (rows[:10].astype(">f8"), "found >f8"),
        (rows[0], r"as a matrix \[n, 3\], found the shape \(3,\)"),
        (rows[:10, :2], "3 columns of f64 as in the job, found 2"),
        (np.ma.masked_invalid(rows[:10]), "found a masked array; fill it in"),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            worker.push(wrong, **beside)
    with pytest.raises(headwater.InvalidArgument, match="at most 993 more of the 1003 rows"):
        worker.push(rows, **others(statistic, y))
    assert worker.next_row == 10
    worker.push(rows[10:], **others(statistic, y, 10))
    whole = folded(of, fold(of, 0, rows, **others(statistic, y)))
    assert folded(of, worker.portion()).digest == whole.digest


def test_arrays_beside_the_rows_must_be_those_of_the_job():
    rows, y, weights = numbers(), second(), np.ones(ROWS)
    both = job("gram", y_columns=2, weighted=True)
    for of, beside, words in [
        (job("gram"), {"y": y}, "expected no y, because the job has none, found ndarray"),
        (job("moments"), {"weights": weights}, "expected no weights, because the job has none"),
        (both, {"y": y}, "expected weights beside the rows, as in the job, found none"),
        (job("cross"), {}, "expected y beside the rows, as in the job, found none"),
        (both, {"y": y, "weights": weights[:-1]}, r"the 1003 of the first, found \[1003, 1002\]"),
        (both, {"y": y, "weights": y[:, 0]}, "expected weights of float64 as in the job"),
        (both, {"y": y.astype(float), "weights": weights}, "expected y of float32 as in the job"),
        (both, {"y": y[:, :1], "weights": weights}, "expected Y of 2 columns of f32"),
        (both, {"y": np.ma.array(y), "weights": weights}, "found a masked array"),
    ]:
        worker = Worker(of, threads=1)
        with pytest.raises(headwater.InvalidArgument, match=words):
            worker.push(rows, **beside)
        assert worker.next_row == 0


@pytest.mark.parametrize("odd", [np.nan, -np.inf])
def test_a_number_that_is_not_finite_is_refused_with_its_place(odd, tmp_path):
    rows, y, weights = np.ones((90, 3), np.float32), np.ones((90, 2)), np.ones(90)
    strict = {"reject_nonfinite": True, "chunk_rows": 20}
    ones = reduce.gram(rows, y=y, weights=weights, **strict)
    assert (ones.value == 90).all()
    for name, array, place in [("rows", rows, (71, 2)), ("Y", y, (5, 1)), ("weights", weights, 89)]:
        before, array[place] = array[place], odd
        row, column = place if array.ndim == 2 else (place, 0)
        words = f"{name}: row {row}, column {column}: expected a finite number, found {odd}"
        with pytest.raises(headwater.DataError, match=f"(?i){words}.*reject_nonfinite"):
            reduce.gram(rows, y=y, weights=weights, **strict)
        array[place] = before
    rows[71, 2] = odd
    of = reduce.GramJob(90, 3, "rows", reject_nonfinite=True)
    worker = Worker(of, threads=1)
    worker.push(rows[:60])
    with pytest.raises(headwater.DataError, match="row 71, column 2"):
        worker.push(rows[60:])
    assert worker.next_row == 60
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", y)
    for x in (rows, tmp_path / "x.npy"):
        assert np.isnan(reduce.gram(x).value[2, 2]) == np.isnan(odd)
        with pytest.raises(headwater.DataError, match="row 71, column 2"):
            reduce.gram(x, **strict)
        for two in (y, tmp_path / "y.npy"):
            with pytest.raises(headwater.DataError, match="row 71, column 2"):
                reduce.cross(x, two, **strict)


def test_p6_a_portion_of_another_job_is_refused_by_every_setting():
    rows, y = numbers(), second()
    for statistic, change, words in [
        ("gram", {"ones": True}, '"ones"'),
        ("gram", {"weighted": True}, '"weighted"'),
        ("gram", {"reject_nonfinite": True}, '"reject_nonfinite" was not there and is now true'),
        ("cross", {"reject_nonfinite": True}, '"reject_nonfinite" was not there and is now true'),
        ("gram", {"y_columns": 2}, '"with_columns"'),
        ("cross", {"y_columns": 3}, '"with_columns" was 2 and is now 3'),
        ("cross", {"y_dtype": "float16"}, '"with_element" was "f32" and is now "f16"'),
        ("moments", {"shifts": [0.5, 0, -2]}, '"shifts" was'),
        ("histogram", {"edges": [-1, 0]}, '"edges" was'),
        ("distinct", {"precision": 9}, '"precision" was 8 and is now 9'),
        ("top", {"count": 6}, '"kept" was 5 and is now 6'),
        ("top", {"column": 1}, '"column" was 2 and is now 1'),
        ("top", {"smallest": False}, '"smallest" was true and is now false'),
        ("exponents", {"chunk_rows": 65, "data": "other"}, '"chunk_rows" was 64'),
        ("exponents", {"chunk_rows": 65, "data": "other"}, '"data" was "rows of a test"'),
    ]:
        of = job(statistic)
        portion = fold(of, 0, rows, **others(statistic, y))
        other = dataclasses.replace(of, **change)
        with pytest.raises(headwater.PlanMismatch) as caught:
            merge(other, portion)
        assert words in str(caught.value)
    with pytest.raises(headwater.PlanMismatch, match='"statistic" was "moments"'):
        merge(job("exponents"), fold(job("moments"), 0, rows))


def damage_is_refused(of, portion, every):
    """Flips a bit in every so many bytes of a portion, one at a time."""
    for place in range(8, len(portion), every):
        damaged = bytearray(portion)
        damaged[place] ^= 1
        with pytest.raises((headwater.Corrupt, headwater.VersionMismatch)):
            merge(of, bytes(damaged))


@pytest.mark.parametrize("statistic", JOBS)
def test_p6_damaged_and_conflicting_portions_are_refused(statistic):
    of, rows, y = job(statistic), numbers(), second()
    portion = fold(of, 0, rows[:64], **others(statistic, y, 0, 64))
    damage_is_refused(of, portion, max(1, len(portion) // 50))
    with pytest.raises(headwater.NotOurs):
        merge(of, b"not a portion at all")
    wrong = rows[:64].copy()
    wrong[3] = 0.25
    with pytest.raises(headwater.Corrupt, match="arrived twice, and the two differ"):
        merge(of, portion, fold(of, 0, wrong, **others(statistic, y, 0, 64)))


def test_p6_other_rows_with_the_same_sums_are_refused():
    rows, y, weights = np.zeros((64, 3)), second(64), np.ones(64)
    of = job("gram", rows=64, y_columns=2, weighted=True)
    portion = fold(of, 0, rows, y=0 * y, weights=weights)
    for beside in ({"y": 0 * y, "weights": 2 * weights}, {"y": -0.0 * y, "weights": weights}):
        with pytest.raises(headwater.Corrupt, match="arrived twice"):
            merge(of, portion, fold(of, 0, rows, **beside))
    of = job("cross", rows=64)
    with pytest.raises(headwater.Corrupt, match="arrived twice"):
        merge(of, fold(of, 0, rows, y=y), fold(of, 0, rows, y=-y))


def test_invalid_jobs_are_named():
    good = {"rows": 5, "columns": 3, "data": "rows"}
    for make, options, kind, words in [
        (reduce.MomentsJob, {"shifts": [1, 2]}, headwater.InvalidArgument, "one for each of 3"),
        (reduce.MomentsJob, {"shifts": math.nan}, headwater.InvalidArgument, "a finite shift"),
        (reduce.HistogramJob, {"edges": []}, headwater.InvalidArgument, "at least one edge"),
        (
            reduce.HistogramJob,
            {"edges": 3},
            headwater.InvalidArgument,
            "found 3, .* give each edge",
        ),
        (reduce.HistogramJob, {"edges": [1, 0]}, headwater.InvalidArgument, "increasing edges"),
        (reduce.HistogramJob, {"edges": [[1]]}, headwater.InvalidArgument, "a list of numbers"),
        (reduce.MomentsJob, {"shifts": "wide"}, headwater.InvalidArgument, "shifts as numbers"),
        (reduce.MomentsJob, {"columns": -1}, headwater.InvalidArgument, "columns: expected"),
        (reduce.MomentsJob, {"columns": "many"}, headwater.InvalidArgument, "columns: "),
        (reduce.HistogramJob, {"edges": {0, 1}}, headwater.InvalidArgument, "edges as numbers"),
        (reduce.DistinctJob, {"precision": 3}, headwater.InvalidArgument, "from 4 to 18, found 3"),
        (reduce.TopJob, {"column": 3}, headwater.InvalidArgument, "a column number below 3"),
        (reduce.TopJob, {"column": 0, "count": 0}, headwater.InvalidArgument, "at least one row"),
        (reduce.TopJob, {"column": 0, "count": 1 << 30}, headwater.LimitExceeded, "at most"),
        (reduce.CrossJob, {"y_columns": 0}, headwater.InvalidArgument, "at least 1 column"),
        (reduce.CrossJob, {"y_columns": None}, headwater.InvalidArgument, "y_columns: "),
        (reduce.GramJob, {"y_columns": 1 << 20}, headwater.LimitExceeded, "at most"),
        (reduce.GramJob, {"ones": 1}, headwater.InvalidArgument, "ones: "),
        (reduce.Job, {}, headwater.InvalidArgument, "such as GramJob"),
    ]:
        with pytest.raises(kind, match=words):
            make(**good | options)
    for statistic in JOBS:
        with pytest.raises(headwater.LimitExceeded, match="at most"):
            job(statistic, columns=1 << 50, **{"shifts": 0} if statistic == "moments" else {})
    with pytest.raises(headwater.LimitExceeded, match="at most 67108864 counts"):
        job("histogram", columns=1 << 23, edges=list(range(100)))
    for call in (reduce.gram, reduce.moments, reduce.exponents):
        for rows, words in [
            (np.ones(3), r"found the shape \(3,\)"),
            (np.ones((3, 2), int), 'found "int64"'),
            (np.ma.masked_less(np.ones((3, 2)), 0), "found a masked array"),
            (np.ones((0, 2)), "at least one row"),
            (np.ones((2, 0)), "at least 1 column"),
        ]:
            with pytest.raises(headwater.InvalidArgument, match=words):
                call(rows)


# JAX warns of every fork, if a test in this process has loaded it.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_worker_cannot_be_pickled_in_a_forked_child():
    worker = Worker(job("moments"))
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)

    def child():
        try:
            pickle.dumps(worker)
        except headwater.InvalidArgument as error:
            send.send(str(error))

    process = fork.Process(target=child)
    process.start()
    assert receive.poll(30)
    assert "a forked child" in receive.recv()
    process.join()


@pytest.mark.parametrize("module", [reduce, _reduce_jobs, _reduce_workers])
def test_the_docstring_examples_run(module):
    ran = doctest.testmod(module)
    assert ran.failed == 0
    assert ran.attempted > 0
