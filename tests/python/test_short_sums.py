"""Sums of f32x128, in the command and in Python: chains of 32 bits over 128 rows each."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import headwater
from headwater import reduce
from headwater.reduce import CrossJob, GramJob, Reduction, fold, merge
from plain_tree import plain_sum

COMMAND = Path(sys.executable).parent / "headwater-reduce"
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SHORT = {"sums": "f32x128"}
RUN_ROWS = 128


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [COMMAND, *arguments]
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120)


def told(*arguments: object) -> dict:
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def numbers(rows, columns, dtype="float32", seed=1):
    """Multiples of 2^-10: a product and a sum of 32 bits add without rounding in 64 bits."""
    drawn = np.random.default_rng(seed).integers(-1024, 1025, (rows, columns)) / 1024
    return drawn.astype(DTYPES[dtype])


def raw(folder, name, rows):
    (folder / name).write_bytes(rows.tobytes())
    dtype = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[rows.dtype.name]
    return ["--input", folder / name, "--dtype", dtype, "--columns", rows.shape[1]]


def twin(x, y, chunk_rows):
    """The sums of products of the columns of both, as fold/FORMAT.md defines them."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    nodes = []
    for start in range(0, len(x), chunk_rows):
        chunk = range(start, min(len(x), start + chunk_rows))
        total = np.zeros((x.shape[1], y.shape[1]))
        for first in chunk[::RUN_ROWS]:
            run = np.zeros(total.shape, np.float32)
            for n in chunk[first - start : first - start + RUN_ROWS]:
                # Exact in 64 bits, and rounded once to 32.
                run = (np.multiply.outer(x[n], y[n]) + run.astype(np.float64)).astype(np.float32)
            total = total + run.astype(np.float64)
        nodes.append(total)
    return plain_sum(nodes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_p1_command_and_python_have_the_bits_of_the_twin(tmp_path, dtype):
    rows = numbers(1003, 9, dtype)
    expected = twin(rows, rows, 300)
    form = {"chunk_rows": 300, **SHORT}
    found = reduce.gram(rows, **form)
    assert found.value.tobytes() == expected.tobytes()
    assert found.value.tobytes() != reduce.gram(rows, chunk_rows=300).value.tobytes()
    options = ["--chunk-rows", 300, "--sums", "f32x128", "--out", tmp_path / "g.npy"]
    files = raw(tmp_path, "x.raw", rows)
    for threads in (1, 2, 3):
        said = told("gram", *files, *options, "--threads", threads)
        assert said["digest"] == found.digest == reduce.gram(rows, threads=threads, **form).digest
        assert np.load(tmp_path / "g.npy").tobytes() == expected.tobytes()
    matrix = reduce.Matrix(tmp_path / "x.raw", dtype=dtype, columns=9)
    assert reduce.gram(matrix, **form).digest == found.digest
    assert json.loads((tmp_path / "g.json").read_text())["job"]["sums"] == "f32x128"


def test_p1_cross_products_and_columns_side_by_side_have_the_bits_of_the_twin(tmp_path):
    x, y = numbers(700, 5), numbers(700, 7, "float16", seed=2)
    expected = twin(x, y, 300)
    form = {"chunk_rows": 300, **SHORT}
    found = reduce.cross(x, y, **form)
    assert found.value.tobytes() == expected.tobytes()
    files = raw(tmp_path, "x.raw", x)
    (tmp_path / "y.raw").write_bytes(y.tobytes())
    files += ["--with", tmp_path / "y.raw", "--with-dtype", "f16", "--with-columns", 7]
    options = ["--chunk-rows", 300, "--sums", "f32x128", "--out", tmp_path / "c.npy"]
    assert told("cross", *files, *options)["digest"] == found.digest
    forms = [{"dtype": "float32", "columns": 5}, {"dtype": "float16", "columns": 7}]
    matrices = [
        reduce.Matrix(tmp_path / name, **of)
        for name, of in zip(("x.raw", "y.raw"), forms, strict=True)
    ]
    assert reduce.cross(*matrices, **form).digest == found.digest
    together = reduce.gram(x, y=y, ones=True, **form).value
    assert together[:5, 6:].tobytes() == expected.tobytes()
    assert together[:5, :5].tobytes() == twin(x, x, 300).tobytes()
    assert together[5, 5] == 700


def test_p1_p4_any_split_and_order_of_portions_gives_the_same_bytes():
    rows = numbers(5003, 13)
    job = GramJob(5003, 13, "rows of a test", 200, **SHORT)
    alone = fold(job, 0, rows, threads=1)
    starts = list(range(0, 5003, 600))
    random.Random(1).shuffle(starts)
    portions = [fold(job, start, rows[start : start + 600]) for start in starts]
    assert merge(job, *portions, portions[0]) == alone


def test_p2_a_killed_fold_resumes_to_the_same_digest(tmp_path):
    rows = np.random.default_rng(3).standard_normal((120_000, 200)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    options = ["gram", "--input", tmp_path / "x.npy", "--chunk-rows", 256, "--threads", 1]
    options += ["--sums", "f32x128"]
    straight = told(*options, "--out", tmp_path / "straight.npy")
    kept = [*options, "--out", tmp_path / "g.npy", "--checkpoint-dir", tmp_path / "ck"]
    kept += ["--checkpoint-every", 0, "--resume"]
    child = subprocess.Popen([COMMAND, *map(str, kept)], stderr=subprocess.PIPE)
    while not list(tmp_path.glob("ck/*.portion")):
        assert child.poll() is None
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    resumed = told(*kept)
    assert resumed["resumed_nodes"] > 0
    assert resumed["digest"] == straight["digest"]


def test_p6_sums_of_another_order_are_refused_by_name(tmp_path):
    rows = numbers(600, 4)
    files = raw(tmp_path, "x.raw", rows)
    kept = ["gram", *files, "--chunk-rows", 64, "--out", tmp_path / "g.npy"]
    kept += ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0, "--resume"]
    told(*kept)
    refused = command(*kept, "--sums", "f32x128")
    assert refused.returncode == 1
    assert '"sums" was not there and is now "f32x128"' in refused.stderr
    # The default is what there was before.
    assert "sums" not in json.loads((tmp_path / "g.json").read_text())["job"]
    assert told(*kept, "--sums", "f64")["resumed_nodes"] > 0
    for make in (
        lambda **sums: GramJob(600, 4, "rows", 64, **sums),
        lambda **sums: CrossJob(600, 4, "rows", 64, y_columns=4, **sums),
    ):
        exact, short = make(), make(**SHORT)
        others = {"y": rows} if isinstance(exact, CrossJob) else {}
        portion = fold(short, 0, rows, **others)
        with pytest.raises(headwater.PlanMismatch, match='"sums" was "f32x128" and is no longer'):
            Reduction(exact).receive(portion)
        with pytest.raises(headwater.PlanMismatch, match='"sums" was not there'):
            Reduction(short).receive(fold(exact, 0, rows, **others))


def test_p6_a_spool_keeps_the_order_of_its_job(tmp_path):
    rows, spool = numbers(600, 4), tmp_path / "S"
    files = raw(tmp_path, "x.raw", rows)
    job = ["gram", *files, "--chunk-rows", 64, "--block-chunks", 2, "--sums", "f32x128"]
    assert command(*job, "--spool", spool).returncode == 0
    told("work", "--spool", spool)
    folded = told("fold", "--spool", spool, "--out", tmp_path / "g.npy")
    assert folded["digest"] == reduce.gram(rows, chunk_rows=64, **SHORT).digest
    other = tmp_path / "T"
    assert command(*job[:-2], "--spool", other).returncode == 0
    for portion in spool.glob("*.portion"):
        (other / portion.name).write_bytes(portion.read_bytes())
    refused = command("fold", "--spool", other, "--out", tmp_path / "h.npy")
    assert refused.returncode == 1
    assert '"sums" was "f32x128" and is no longer there' in refused.stderr


def test_rows_that_the_order_does_not_take_are_refused(tmp_path):
    rows = numbers(10, 3)
    words = (
        "expected rows of f32, f16 or bf16 for sums of f32x128, found f64; convert the rows, or "
        "choose sums of f64"
    )
    np.save(tmp_path / "x.npy", rows.astype(np.float64))
    np.save(tmp_path / "y.npy", rows)
    out = ["--sums", "f32x128", "--out", tmp_path / "g.npy"]
    refused = [
        command("gram", "--input", tmp_path / "x.npy", *out),
        command("cross", "--input", tmp_path / "y.npy", "--with", tmp_path / "x.npy", *out),
    ]
    for done in refused:
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
    with pytest.raises(headwater.InvalidArgument, match=words):
        reduce.gram(rows.astype(np.float64), **SHORT)
    with pytest.raises(headwater.InvalidArgument, match=words):
        reduce.gram(rows, y=rows.astype(np.float64), **SHORT)
    with pytest.raises(headwater.InvalidArgument, match="found weights; leave them out, or choose"):
        reduce.gram(rows, weights=np.ones(10), **SHORT)
    with pytest.raises(headwater.InvalidArgument, match='expected sums of "f64" or "f32x128", fou'):
        reduce.gram(rows, sums="f16")  # type: ignore[arg-type]
    assert command("gram", "--input", tmp_path / "y.npy", *out[:1], "f16", *out[2:]).returncode == 2


def test_nan_and_infinity_go_through_and_products_beyond_f32_overflow():
    rows = np.array([[1e20, 1, 1e-30], [1, np.nan, 2], [1, np.inf, 1e-30]], np.float32)
    gram = reduce.gram(rows, **SHORT).value
    assert gram[0, 0] == np.inf
    assert np.isnan(gram[1]).all()
    assert gram[2, 2] == 4
    assert reduce.gram(rows[:1], **SHORT).value[2, 2] == 0
    assert reduce.gram(rows[2:], **SHORT).value[1].tolist() == [np.inf, np.inf, np.inf]


def test_sums_of_ordinary_rows_are_near_those_of_64_bits():
    rows = np.random.default_rng(1).standard_normal((50_000, 20)).astype(np.float32)
    exact, short = reduce.gram(rows).value, reduce.gram(rows, **SHORT).value
    lengths = np.sqrt(np.diag(exact))
    error = np.abs(short - exact).max() / (lengths[:, None] * lengths).min()
    assert 0 < error < 1e-7


@pytest.mark.parametrize("statistic", ["gram", "cross"])
def test_help_says_what_the_orders_are(statistic):
    said = " ".join(command(statistic, "--help").stdout.split())
    for words in ("--sums", "f32x128", "possible values: f64, f32x128", "default: f64"):
        assert words in said, said
