"""Messages of `headwater-reduce` about invalid input, alone and under mpirun: one error each."""

from __future__ import annotations

import json
import os
import subprocess
import time

import numpy as np
import pytest

from test_mpi import ENVIRONMENT, REDUCE, done, in_own_folders, mpirun, reduced

pytestmark = pytest.mark.slow

RANKS = [pytest.param(None, id="alone"), pytest.param(3, id="3 ranks")]


def as_ranks(ranks, arguments):
    return [REDUCE, *map(str, arguments)] if ranks is None else mpirun(ranks, *arguments)


def refused(command, status, *words):
    """Asserts that a run ends soon, with one error that contains `words`; returns the error."""
    begin = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    # Ranks that do not receive the message of the end would wait for at least ten seconds.
    assert time.monotonic() - begin < 9
    assert run.returncode == status, (run.returncode, run.stdout, run.stderr)
    errors = [line for line in run.stderr.splitlines() if line.startswith("headwater-reduce: ")]
    assert len(errors) == 1, run.stderr
    for word in words:
        assert word in errors[0], (word, errors[0])
    assert "panicked" not in run.stderr
    return errors[0]


@pytest.fixture
def rows(tmp_path):
    rows = np.random.default_rng(8).standard_normal((1001, 7))
    np.save(tmp_path / "x.npy", rows)
    return rows


@pytest.fixture
def table(tmp_path):
    """A Parquet file with a NULL in its second column."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    holes = [None if row == 700 else float(row) for row in range(1001)]
    columns = {"whole": np.arange(1001.0), "holes": holes, "text": ["x"] * 1001}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


@pytest.mark.parametrize("ranks", RANKS)
def test_a_file_that_is_not_a_matrix_is_rejected_with_its_name(tmp_path, rows, ranks):
    x = tmp_path / "x.npy"
    files = {
        "empty": rows[:0],
        "narrow": rows[:, :6],
        "single": rows.astype(np.float32),
        "flat": rows[0],
        "whole": rows.astype(np.int64),
        "turned": np.asfortranarray(rows),
    }
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    cut = tmp_path / "cut.npy"
    cut.write_bytes(x.read_bytes()[:-8])
    (tmp_path / "head.npy").write_bytes(x.read_bytes()[:70])
    (tmp_path / "text.npy").write_text("1,2,3\n")
    for inputs, status, words in [
        (["empty"], 1, ["expected at least one row, found none"]),
        (["x", "narrow"], 1, ["narrow.npy: expected 7 columns of f64", "found 6"]),
        (["x", "single"], 1, ["single.npy: expected 7 columns of f64", "of f32"]),
        (["flat"], 1, ["flat.npy", "expected a matrix", "1 axis; reshape it"]),
        (["whole"], 1, ["whole.npy", "'<f8', '<f4' or '<f2'", "convert the array"]),
        (
            ["turned"],
            1,
            ["turned.npy", "found Fortran order (column by column)", "ascontiguousarray"],
        ),
        (["x", "cut"], 3, ["cut.npy", "expected 1001 rows", "cut off"]),
        (["head"], 3, ["head.npy", "the file ends inside its header"]),
        (["text"], 3, ["text.npy", "this is not a .npy file"]),
        (["x", "none"], 1, ["none.npy", "No such file"]),
    ]:
        fold = ["gram", "--input", *(tmp_path / f"{name}.npy" for name in inputs)]
        fold += ["--out", tmp_path / "g.npy"]
        refused(as_ranks(ranks, fold), status, *words)
    assert not (tmp_path / "g.npy").exists()


@pytest.mark.parametrize("ranks", RANKS)
def test_rejected_numbers_are_reported_with_file_row_and_chunk(tmp_path, rows, table, ranks):
    rows[700, 3] = -np.inf
    np.save(tmp_path / "a.npy", rows[:600])
    np.save(tmp_path / "b.npy", rows[600:])
    out = ["--out", tmp_path / "g.npy", "--chunk-rows", 10, "--threads", 1]
    parts = ["--input", tmp_path / "a.npy", tmp_path / "b.npy"]
    message = refused(
        as_ranks(ranks, ["gram", *parts, *out, "--reject-nonfinite"]),
        1,
        "b.npy: row 100, column 3: expected a finite number, found -inf",
    )
    assert in_chunks(message, 70)
    for columns, place in [(["holes"], 0), (["whole", "holes"], 1)]:
        fold = ["gram", "--input", table, "--select", *columns, *out]
        message = refused(
            as_ranks(ranks, fold),
            1,
            f"t.parquet: row 700, column {place}: expected a number, found NULL",
            "fill it in, or leave out the column",
        )
        assert in_chunks(message, 70)
    cross = ["cross", "--input", tmp_path / "x.npy", "--with", table, "--with-select", "holes"]
    refused(as_ranks(ranks, [*cross, *out]), 1, "t.parquet: row 700, column 0", "found NULL")
    text = ["gram", "--input", table, *out]
    refused(as_ranks(ranks, text), 1, "t.parquet", 'column "text": expected floats')
    # Without --reject-nonfinite, such values propagate and are counted.
    summary = done(as_ranks(ranks, ["gram", *parts, *out]))
    assert summary["nonfinite_columns"] == 1
    moments = ["moments", "--input", table, "--select", "holes", "--out", tmp_path / "m.json"]
    done(as_ranks(ranks, moments))
    assert json.loads((tmp_path / "m.json").read_text())["result"][0]["nulls"] == 1


def in_chunks(message: str, chunk: int) -> bool:
    """Whether a message `... rank R: chunks A to B: ...` names a rank and includes `chunk`."""
    rank, chunks = message.split(": ")[1:3]
    _, first, _, last = chunks.split(" ")
    return rank.startswith("rank ") and int(first) <= chunk <= int(last)


def test_a_file_truncated_for_one_rank_is_reported_with_the_rank(tmp_path, rows):
    for rank in range(3):
        (tmp_path / str(rank)).mkdir()
        np.save(tmp_path / str(rank) / "x.npy", rows)
    damaged = tmp_path / "1" / "x.npy"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    fold = ["gram", "--input", "x.npy", "--out", tmp_path / "g.npy"]
    command = in_own_folders(mpirun(3, *fold), tmp_path)
    refused(command, 3, "rank 1: ", "x.npy: expected 1001 rows", "cut off")


@pytest.fixture
def begun(tmp_path, rows):
    """The arguments of a fold with a checkpoint of a part of it, and the digest of its result."""
    fold = ["--input", tmp_path / "x.npy", "--out", tmp_path / "o", "--chunk-rows", 10]
    fold += ["--threads", 1, "--block-chunks", 4]
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", "1b"]
    digest = reduced("gram", *fold, *kept)["digest"]
    newest, older = sorted((tmp_path / "ck").glob("*.portion"), reverse=True)
    newest.unlink()
    assert older.stat().st_size > 300
    return [*fold, "--checkpoint-dir", tmp_path / "ck", "--resume"], digest


@pytest.mark.parametrize("ranks", RANKS)
def test_p6_a_checkpoint_of_another_job_is_rejected_and_kept(tmp_path, rows, begun, ranks):
    fold, digest = begun
    (path,) = (tmp_path / "ck").glob("*.portion")
    good = path.read_bytes()

    # Moments must not replace the .json of a Gram.
    elsewhere = [tmp_path / "m.json" if part == tmp_path / "o" else part for part in fold]

    def is_refused(statistic, status, *words):
        before = path.read_bytes()
        rest = elsewhere if statistic == ["moments"] else fold
        refused(as_ranks(ranks, [*statistic, *rest]), status, *words)
        assert [path.read_bytes() for path in (tmp_path / "ck").glob("*.portion")] == [before]

    is_refused(["moments"], 1, path.name, '"statistic" was "gram" and is now "moments"')
    is_refused(["cross", "--with", tmp_path / "x.npy"], 1, '"statistic" was "gram"')
    np.save(tmp_path / "x.npy", rows + 1)
    is_refused(["gram"], 1, path.name, '"data" was ')
    np.save(tmp_path / "x.npy", rows)
    # The same rows in a file with a later date.
    fold = [*fold, "--same-data"]
    elsewhere = [*elsewhere, "--same-data"]
    for bytes_, status, words in [
        (good[:8] + b"\4" + good[9:], 3, "every checkpoint is damaged"),
        (good[: len(good) // 2], 3, "every checkpoint is damaged"),
        (b"\x89PNG" + good[4:], 3, "every checkpoint is damaged"),
    ]:
        path.write_bytes(bytes_)
        is_refused(["gram"], status, path.name, words)
    path.write_bytes(good)
    summary = done(as_ranks(ranks, ["gram", *fold]))
    assert (summary["digest"], summary["resumed_nodes"] > 0) == (digest, True)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("shape", [(1001, 1), (1, 5), (1, 1), (11, 8192)])
def test_grams_of_any_shape_equal_the_products_of_numpy(tmp_path, shape, ranks):
    # Whole numbers, so that the sums are exact.
    rows = np.random.default_rng(9).integers(-9, 10, shape).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    fold = ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    summary = done(as_ranks(ranks, [*fold, "--chunk-rows", 8, "--threads", 1]))
    assert (summary["rows"], summary["columns"]) == shape
    gram = np.load(tmp_path / "g.npy", mmap_mode="r")
    assert gram.shape == (shape[1], shape[1])
    some = np.unique(np.linspace(0, shape[1] - 1, 40, dtype=int))
    wide = rows.astype(np.float64)
    assert (gram[some] == wide[:, some].T @ wide).all()
    assert (gram[:, some] == gram[some].T).all()


@pytest.mark.parametrize("columns", [1 << 62, 10**15, (1 << 24) + 1])
@pytest.mark.parametrize("statistic", ["gram", "moments"])
def test_more_columns_than_the_limit_are_rejected(tmp_path, columns, statistic):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': (0, {columns}), }}"
    text = header.ljust(117).encode() + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    out = tmp_path / ("g.npy" if statistic == "gram" else "m.json")
    run = [REDUCE, statistic, "--input", tmp_path / "x.npy", "--out", out]
    refused(list(map(str, run)), 1, "x.npy", "expected at most 16777216 columns", str(columns))


def test_the_speed_counts_only_the_rows_of_the_matrix(tmp_path, rows):
    speeds = [
        reduced(
            "gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy", "--chunk-rows", n
        )["gflops"]
        for n in (1001, 4_000_000_000)
    ]
    assert speeds[1] < 1000 * max(speeds[0], 0.01)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_result_never_replaces_its_input(tmp_path, rows, ranks):
    x = tmp_path / "x.npy"
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.npy").symlink_to(x)
    listing = tmp_path / "all.json"
    subprocess.run([REDUCE, "manifest", "--input", x, "--out", listing], check=True)
    before = x.read_bytes(), listing.read_bytes()
    for matrix, out, words in [
        (x, x, "would overwrite its input"),
        (listing, tmp_path / "all.npy", "would overwrite its input"),
        (x, tmp_path / "folder" / ".." / "x.npy", "would overwrite its input"),
        (x, tmp_path / "folder", "found something else"),
        (x, tmp_path / "link.npy", "found something else"),
        (x, tmp_path / "nowhere" / "g.npy", "expected the folder"),
    ]:
        refused(as_ranks(ranks, ["gram", "--input", matrix, "--out", out]), 1, words)
    refused([REDUCE, "manifest", "--input", x, "--out", x], 1, "would overwrite its input")
    assert (x.read_bytes(), listing.read_bytes()) == before


def test_results_of_different_names_do_not_replace_each_other(tmp_path, rows):
    x = ["--input", tmp_path / "x.npy"]
    for statistic, out in [
        ("moments", "run.1"),
        ("gram", "run.2"),
        ("exponents", "run"),
        ("gram", "g.npy"),
        ("distinct", "d.json"),
    ]:
        reduced(statistic, *x, "--out", tmp_path / out)
    names = {path.name for path in tmp_path.iterdir()} - {"x.npy"}
    assert names == {"run.1.json", "run.2", "run.2.json", "run.json", "g.npy", "g.json", "d.json"}
    results = {name: json.loads((tmp_path / name).read_text()) for name in names if "json" in name}
    expected = {
        "run.1.json": "moments",
        "run.2.json": "gram",
        "run.json": "exponents",
        "g.json": "gram",
        "d.json": "distinct",
    }
    assert {name: result["job"]["statistic"] for name, result in results.items()} == expected
    (tmp_path / "notes.json").write_text("{}")
    for statistic, out, words in [
        (
            "gram",
            "d.npy",
            "d.json, which is not an earlier summary of this kind; choose another name",
        ),
        ("gram", "notes.npy", "notes.json, which is not an earlier summary"),
        ("moments", "g", "g.json, which is not an earlier summary"),
        ("gram", "h.json", "expected a name for a matrix, such as"),
    ]:
        refused(as_ranks(None, [statistic, *x, "--out", tmp_path / out]), 1, words)
    wrong = [REDUCE, "manifest", *x, "--out", tmp_path / "all.list"]
    refused(wrong, 1, "expected a name that ends in .json")
    for statistic, out in [("gram", "g.npy"), ("cross", "g.npy"), ("moments", "d.json")]:
        other = ["--with", tmp_path / "x.npy"] if statistic == "cross" else []
        reduced(statistic, *x, *other, "--out", tmp_path / out)


def test_a_file_in_place_of_the_folder_of_checkpoints_is_named(tmp_path, rows):
    (tmp_path / "mine").write_text("mine")
    arguments = ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    command = as_ranks(None, [*arguments, "--checkpoint-dir", tmp_path / "mine"])
    refused(command, 1, f"expected a folder for checkpoints, found a file: {tmp_path / 'mine'}")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_pipe_in_place_of_rows_is_named(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    command = as_ranks(None, ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"])
    refused(command, 1, "expected a file, found a pipe; write its content to a file")
