"""Sources that are damaged, endless, or no files: an exception of the package, each time."""

import datetime
import decimal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import headwater


def of_all_types(rows):
    """Returns a table of the types that pyarrow writes, also nested ones."""
    some = [None if n % 7 == 3 else n for n in range(rows)]

    def column(make, kind):
        return pyarrow.array([None if n is None else make(n) for n in some], kind)

    words = column(lambda n: f"word {n % 9}", pyarrow.string())
    day = datetime.date(2024, 1, 1)
    columns = {
        "k": pyarrow.array(range(rows)),
        "i8": column(lambda n: n % 100, pyarrow.int8()),
        "u64": column(int, pyarrow.uint64()),
        "f16": column(float, pyarrow.float16()),
        "f64": column(float, pyarrow.float64()),
        "truth": column(bool, pyarrow.bool_()),
        "text": words,
        "large": words.cast(pyarrow.large_string()),
        "view": words.cast(pyarrow.string_view()),
        "dictionary": words.dictionary_encode(),
        "bytes": words.cast(pyarrow.binary()),
        "fixed": column(lambda n: bytes([n % 5] * 4), pyarrow.binary(4)),
        "decimal": column(decimal.Decimal, pyarrow.decimal128(38, 3)),
        "day": column(lambda n: day + datetime.timedelta(n), pyarrow.date32()),
        "time": column(lambda n: n * 1_000_000, pyarrow.timestamp("us", "UTC")),
        "list": column(lambda n: [n, None], pyarrow.list_(pyarrow.int64())),
        "struct": column(lambda n: {"a": n}, pyarrow.struct([("a", pyarrow.int64())])),
    }
    return pyarrow.table(columns)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_damaged_parquet_files_raise_an_error_that_names_them(tmp_path, codec):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(of_all_types(40), path, compression=codec, row_group_size=25)
    whole = path.read_bytes()
    read = [
        "k", "i8", "u64", "f64", "truth", "text", "large", "view", "dictionary", "decimal", "day",
        "time",
    ]  # fmt: skip
    columns = dict.fromkeys(read, "categorical") | {"k": "identifier", "i8": "numerical"}
    schema = {"database": "x", "table": [{"name": "t", "key": "k", "columns": columns}]}
    headwater.prepare(path, schema, tmp_path / "db", dimension=8)
    told = []
    for at in range(0, len(whole), 1 + len(whole) // 150):
        damaged = bytearray(whole)
        damaged[at : at + 1 + at % 7] = b"\xff\x00\x7f\x80"[at % 4 : at % 4 + 1] * (1 + at % 7)
        path.write_bytes(damaged)
        try:
            headwater.prepare(path, schema, tmp_path / "db", dimension=8, force=True)
            headwater.draft_schema(path)
        except headwater.HeadwaterError as error:
            told.append(str(error))
    assert len(told) > 40
    # A value that fits no column is named by its table.
    assert [words for words in told if "t.parquet" not in words and 'table "t"' not in words] == []


def test_a_file_without_an_end_raises_an_error_in_little_memory(tmp_path):
    path = tmp_path / "t.csv"
    with path.open("w") as file:
        file.write('a,b\n1,"x')
        file.truncate(4_000_000_000)
    program = (
        "import headwater\n"
        "try: headwater.draft_schema('t.csv')\n"
        "except headwater.LimitExceeded as error: print(error)"
    )
    limit = ["sh", "-c", 'ulimit -v 3000000 && exec "$@"', "sh"]
    told = subprocess.run(
        [*limit, sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert 'line 2: column "b": expected a closing quote' in told.stdout, told


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (ValueError("wrong\nin two lines"), headwater.DataError, "Invalid: wrong\nin two lines"),
        (MemoryError("none left"), headwater.LimitExceeded, "Out of memory: none left"),
    ],
)
def test_an_error_of_a_stream_has_no_stack_of_its_producer(error, raised, words, tmp_path):
    def batches():
        yield pyarrow.record_batch({"id": [1, 2]})
        raise error

    class Rows:
        def __arrow_c_stream__(self, requested_schema=None):
            schema = pyarrow.schema([("id", pyarrow.int64())])
            return pyarrow.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__()

    table = {"name": "t", "key": "id", "columns": {"id": "identifier"}}
    with pytest.raises(raised) as told:
        headwater.prepare({"t": Rows()}, {"database": "d", "table": [table]}, tmp_path / "db")
    assert str(told.value) == f'table "t": source["t"]: {words}'


def test_a_pipe_is_no_file(tmp_path):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    with pytest.raises(headwater.HeadwaterError, match=r"pipe\.csv"):
        headwater.draft_schema(path)
    with pytest.raises(OSError, match=r"pipe\.csv: expected a file, found a pipe"):
        headwater.Cursor.read(path)


def test_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 100_000)
    schema = {"database": "x", "table": [{"name": "t", "columns": {"a": "numerical"}}]}

    def append(stage, done, total):
        with path.open("a") as file:
            file.write("3,4\n")

    with pytest.raises(headwater.DataError, match=r"t\.csv: expected a file that nobody changes"):
        headwater.prepare(path, schema, tmp_path / "db", dimension=8, progress=append)
    assert not (tmp_path / "db").exists()


def test_p6_the_checksums_of_parquet_pages_are_verified(tmp_path):
    """A bit of a value that decodes as well as any other."""
    path = tmp_path / "t.parquet"
    numbers = np.arange(1000.0)
    pyarrow.parquet.write_table(
        pyarrow.table({"n": numbers}),
        path,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    schema = {"database": "d", "table": [{"name": "t", "columns": {"n": "numerical"}}]}
    headwater.prepare(path, schema, tmp_path / "whole.db")
    whole = bytearray(path.read_bytes())
    at = whole.find(numbers[500].tobytes())
    assert at > 0
    whole[at + 6] ^= 1
    path.write_bytes(whole)
    with pytest.raises(headwater.DataError, match="t.parquet"):
        headwater.prepare(path, schema, tmp_path / "damaged.db")
    reduce = [sys.executable, "-c", "from headwater._cli import reduce; exit(reduce())", "moments"]
    done = subprocess.run(
        [*reduce, "--input", path, "--out", tmp_path / "m.json"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "t.parquet" in done.stderr
    assert not (tmp_path / "m.json").exists()


def test_the_parquet_projects_own_files_are_read_or_refused(tmp_path):
    """Good, bad and encrypted ones, from a checkout of apache/parquet-testing."""
    name = "HEADWATER_PARQUET_TESTING"
    if name not in os.environ:
        pytest.skip(f"{name} does not name a checkout of apache/parquet-testing")
    files = sorted(Path(os.environ[name]).glob("*data/*.parquet*"))
    assert len(files) >= 60
    headwater_command = Path(sys.executable).parent / "headwater"
    limit = ["sh", "-c", 'ulimit -v 3000000 && exec timeout 60 "$@"', "sh", headwater_command]
    for file in files:
        # By a name that ends in .parquet: some are encrypted, and named so.
        given = tmp_path / "t.parquet"
        given.write_bytes(file.read_bytes())
        schema, out = tmp_path / "schema.toml", tmp_path / "db"
        for words in (
            ["schema", given, "--out", schema],
            ["prepare", given, "--schema", schema, "--out", out, "--dimension", 8],
        ):
            run = subprocess.run([*limit, *map(str, words)], capture_output=True, text=True)
            assert run.returncode in (0, 1), f"{file}: {run.returncode}: {run.stderr}"
            for word in ("panicked", "Traceback", "internal error"):
                assert word not in run.stderr, f"{file}: {run.stderr}"
            if run.returncode == 1:
                assert run.stderr.startswith("headwater"), f"{file}: {run.stderr}"
                break
        schema.unlink(missing_ok=True)
        shutil.rmtree(out, ignore_errors=True)
