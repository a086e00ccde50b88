"""The inputs that `headwater-reduce` reads, and its messages about inputs that do not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from test_reduce import done, reduce

ROWS = 300


def refused(words, *arguments, status=1):
    """Asserts that a command fails with these words."""
    told = reduce(*arguments)
    assert told.returncode == status, (arguments, told.stdout, told.stderr)
    for word in [words] if isinstance(words, str) else words:
        assert word in told.stderr, (word, told.stderr)
    assert "panicked" not in told.stderr


@pytest.fixture
def rows(tmp_path):
    rows = np.random.default_rng(3).standard_normal((ROWS, 8))
    np.save(tmp_path / "x.npy", rows)
    (tmp_path / "x.raw").write_bytes(rows.tobytes())
    return rows


@pytest.fixture
def table(tmp_path, rows):
    """The first columns as a table, with a text beside them."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: rows[:, at] for at, name in enumerate(["price", "tax"])}
    parquet.write_table(pyarrow.table(columns), tmp_path / "n.parquet")
    columns["city"] = ["Oslo"] * ROWS
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_files_with_a_header_are_not_read_as_raw_numbers(tmp_path, rows, table):
    np.savez(tmp_path / "x.npz", rows)
    header = b'{"x": {"dtype": "F64", "shape": [300, 8], "data_offsets": [0, 19200]}}'
    header += b" " * (-len(header) % 8)
    tensor = len(header).to_bytes(8, "little") + header + rows.tobytes()
    (tmp_path / "x.safetensors").write_bytes(tensor)
    listed = reduce("manifest", "--input", tmp_path / "x.npy", "--out", tmp_path / "x.json")
    assert listed.returncode == 0
    out = ["--out", tmp_path / "g.npy"]
    for name, words in [
        (
            "x.npy",
            "x.npy: expected binary numbers without a header, because --columns is given, found",
        ),
        (
            "t.parquet",
            "found a .parquet file; leave out --columns and --dtype, because the file has a header",
        ),
        ("x.safetensors", "found a .safetensors file; leave out --columns and --dtype"),
        ("x.npz", "found an archive (.npz or .zip); save its array as .npy"),
        ("x.json", "found a matrix manifest; give the manifest alone"),
    ]:
        # Numbers of 16 bits, because any even length is then a whole number of them.
        raw = ["--dtype", "f16", "--columns", 1]
        refused(words, "gram", "--input", tmp_path / name, *raw, *out, status=3)
    said = done("gram", "--input", tmp_path / "x.raw", "--dtype", "f64", "--columns", 8, *out)
    assert said["rows"] == ROWS


def test_options_that_do_not_apply_to_a_file_are_refused(tmp_path, rows, table):
    manifest = tmp_path / "all.json"
    assert reduce("manifest", "--input", tmp_path / "x.npy", "--out", manifest).returncode == 0
    out = ["--out", tmp_path / "g.npy"]
    for name, option, words in [
        (
            "x.npy",
            ["--tensor", "x"],
            "because --tensor is given, found a .npy file; leave out --tensor",
        ),
        (
            "x.npy",
            ["--select", "x"],
            "because --select is given, found a .npy file; leave out --select, because the columns",
        ),
        (
            "t.parquet",
            ["--tensor", "x"],
            "found a .parquet file; leave out --tensor, because the file has no tensors",
        ),
        ("t.parquet", ["--dtype", "bf16"], "found a .parquet file; leave out --dtype, because"),
        ("all.json", ["--select", "x"], "found a matrix manifest; give the manifest alone"),
    ]:
        refused(words, "gram", "--input", tmp_path / name, *option, *out, status=3)
    (tmp_path / "y.npy").write_bytes(table.read_bytes())
    renamed = ["gram", "--input", tmp_path / "y.npy", *out]
    refused(
        "expected a .npy file, by its name, found a .parquet file; rename it", *renamed, status=3
    )
    words = ["a file name that ends in .npy, .safetensors or .parquet", "(f64, f32, f16 or bf16)"]
    refused(words, "gram", "--input", tmp_path / "x.raw", *out)


def test_y_of_a_cross_product_may_be_raw_and_is_sorted_like_x(tmp_path, rows):
    out = ["--out", tmp_path / "c.npy"]
    cross = ["cross", "--input", tmp_path / "x.npy"]
    plain = done(*cross, "--with", tmp_path / "x.npy", *out)
    raw = ["--with", tmp_path / "x.raw", "--with-dtype", "f64", "--with-columns", 8]
    assert done(*cross, *raw, *out)["digest"] == plain["digest"]
    for name, part in (("a", rows[:99]), ("b", rows[99:])):
        np.save(tmp_path / f"{name}.npy", part)
    parts = [tmp_path / "b.npy", tmp_path / "a.npy"]
    both = ["cross", "--input", *parts, "--with", *parts, "--sorted"]
    assert done(*both, *out)["digest"] == plain["digest"]
    refused(
        "--with-dtype", *cross, "--with", tmp_path / "x.raw", "--with-columns", 8, *out, status=2
    )


def test_columns_of_text_are_refused_by_name(tmp_path, table):
    words = (
        'column "city": expected floats, or integers of up to 32 bits, found text (Utf8); cast it, '
    )
    words += 'or choose columns with --select: "price", "tax"'
    refused(words, "gram", "--input", table, "--out", tmp_path / "g.npy")


def test_missing_files_of_a_manifest_are_named(tmp_path, rows):
    for name, part in (("a", rows[:99]), ("b", rows[99:])):
        np.save(tmp_path / f"{name}.npy", part)
    manifest = tmp_path / "all.json"
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    assert reduce("manifest", "--input", *files, "--out", manifest).returncode == 0
    fold = ["gram", "--input", manifest, "--out", tmp_path / "g.npy", "--chunk-rows", 50]
    files[1].unlink()
    words = [
        "no rank can read rows 50 to 99",
        "a.npy, ",
        "b.npy (not on this machine); copy these files",
    ]
    refused(words, *fold)
    files[0].unlink()
    refused(["rows 0 to 49", "a.npy (not on this machine);"], *fold)


def test_columns_have_the_names_that_the_file_gives(tmp_path, rows, table):
    out = tmp_path / "t.json"
    named = ["--input", tmp_path / "n.parquet", "--out", out]
    by_number = done("top", *named, "--column", 1)
    said = done("top", *named, "--column", "tax")
    assert said["digest"] == by_number["digest"]
    assert (said["column"], said["column_name"]) == (1, "tax")
    refused(
        'no column is named "taxes"; the columns are "price", "tax"',
        *("top", *named, "--column", "taxes"),
    )
    plain = ["--input", tmp_path / "x.npy", "--out", out]
    words = 'expected a column number from 0 to 7, found "tax"; these files do not name'
    refused(words, "top", *plain, "--column", "tax")
    assert "column_name" not in done("top", *plain, "--column", 1)
    for statistic in (["moments"], ["histogram", "--edges", 0], ["exponents"], ["distinct"]):
        done(*statistic, *named)
        found = json.loads(out.read_text())["result"]
        assert [column["name"] for column in found] == ["price", "tax"]
        done(*statistic, *plain)
        assert all("name" not in column for column in json.loads(out.read_text())["result"])


def test_a_column_whose_name_is_the_number_of_another_is_ambiguous(tmp_path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({name: rows[:, at] for at, name in enumerate(["2", "1", "tax", "03"])})
    parquet.write_table(table, tmp_path / "t.parquet")
    top = ["top", "--input", tmp_path / "t.parquet", "--out", tmp_path / "o.json"]
    words = 'found two: column 2 is named "tax", and column 0 is named "2"; choose columns'
    refused(words, *top, "--column", 2)
    for said, column in ((0, 0), (1, 1), ("tax", 2), (3, 3), ("03", 3)):
        assert done(*top, "--column", said)["column"] == column
    assert done(*top, "--select", "tax", "2", "--column", 2)["column_name"] == "2"


def test_tables_with_different_column_names_are_not_one_matrix(tmp_path, rows, table):
    parquet = pytest.importorskip("pyarrow.parquet")
    swapped = tmp_path / "s.parquet"
    parquet.write_table(parquet.read_table(table).select(["tax", "price"]), swapped)
    both = ["--input", tmp_path / "n.parquet", swapped, "--out", tmp_path / "m.json"]
    words = 's.parquet: expected the columns "price", "tax", as in the files before, '
    words += 'found "tax", "price"'
    refused([words, "--select"], "moments", *both)
    assert done("moments", *both, "--select", "price", "tax")["rows"] == 2 * ROWS


def test_shards_with_different_column_names_are_not_one_manifest(tmp_path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    shards, listed = [], []
    for at, names in enumerate(["ab", "ba", "ab"]):
        table = pyarrow.table({name: rows[:, at] for at, name in enumerate(names)})
        shards.append(tmp_path / f"x{at}.parquet")
        parquet.write_table(table, shards[-1])
        listed.append(shards[-1].with_suffix(".json"))
        assert reduce("manifest", "--input", shards[-1], "--out", listed[-1]).returncode == 0
    whole = tmp_path / "all.json"
    words = 'x1.json: expected the columns "a", "b", as in the files before, '
    words += 'found "b", "a"; choose columns'
    refused(words, "manifest", "--input", *listed[:2], "--out", whole)
    assert not whole.exists()
    # Shards with one order of columns join; without any of the files the columns are known.
    joined = reduce("manifest", "--input", listed[0], listed[2], "--out", whole)
    assert joined.returncode == 0, joined.stderr
    fold = ["top", "--input", whole, "--out", tmp_path / "o.json", "--column"]
    assert done(*fold, "b")["column"] == 1
    for shard in shards:
        shard.unlink()
    refused('no column is named "c"; the columns are "a", "b"', *fold, "c")


def test_moments_state_their_ddof_and_kurtosis(tmp_path, rows):
    out = tmp_path / "m.json"
    done("moments", "--input", tmp_path / "x.npy", "--out", out)
    told = json.loads(out.read_text())
    assert (told["ddof"], told["excess_kurtosis"]) == (0, True)
    told = " ".join(reduce("moments", "--help").stdout.split())
    for words in ("ddof 0", "excess kurtosis", "null"):
        assert words in told
