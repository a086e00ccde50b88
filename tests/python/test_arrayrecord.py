"""ArrayRecord files, with Google's own reader and writer on the other side."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

import headwater
from features import has_arrayrecord
from pings import SCHEMA, pings, write_csv

pytestmark = pytest.mark.skipif(
    not has_arrayrecord(), reason="headwater is built without the feature arrayrecord"
)

INNER = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("src_addr", pa.string()),
        ("dst_addr", pa.string()),
        ("ip_version", pa.int8()),
        ("rtt", pa.float32()),
    ]
)
OUTER = pa.schema(
    [
        ("src_id", pa.int64()),
        ("measurements", pa.binary()),
        ("n_measurements", pa.int32()),
        ("time_span_seconds", pa.float64()),
        ("first_timestamp", pa.timestamp("us")),
        ("last_timestamp", pa.timestamp("us")),
    ]
)
# What the other pipeline's writer is opened with.
PEER = "group_size:1"


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def inner(rows):
    """The measurements of a record."""
    columns = {
        "event_time": [row[3] for row in rows],
        "src_addr": [row[0] for row in rows],
        "dst_addr": [row[1] for row in rows],
        "ip_version": [row[2] for row in rows],
        "rtt": [row[4] for row in rows],
    }
    return pa.table(columns).cast(INNER)


def source_id(address):
    return int(hashlib.md5(address.encode()).hexdigest()[:15], 16)


def record(rows):
    """A record as the other pipeline writes it."""
    times = [row[3] for row in rows]
    columns = {
        "src_id": [source_id(rows[0][0])],
        "measurements": [stream(inner(rows))],
        "n_measurements": [len(rows)],
        "time_span_seconds": [(times[-1] - times[0]) / 1e6],
        "first_timestamp": [times[0]],
        "last_timestamp": [times[-1]],
    }
    return stream(pa.table(columns).cast(OUTER))


def write(path, records, options=PEER):
    writer = ArrayRecordWriter(str(path), options)
    for one in records:
        writer.write(one)
    writer.close()
    return path


def by_source(rows):
    """The histories of the sources."""
    rows = sorted(rows, key=lambda row: (row[0], row[3]))
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row[0])]


def prepared(source, out, schema=SCHEMA):
    return headwater.prepare(source, tomllib.loads(schema), out)


def command(*words, status=0):
    done = subprocess.run(["headwater", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module", params=["", "row_bytes = 1024", "row_bytes = 60_000"])
def export(request, tmp_path_factory):
    """Measurements, the report of their store, and the folder of its files."""
    folder = tmp_path_factory.mktemp("export")
    # Long histories come in chunks of one record, short ones do not.
    rows = pings(30, mean=3000 if "60" in request.param else 30)
    schema = SCHEMA + request.param
    report = prepared(write_csv(folder, rows), folder / "pings.db", schema)
    command("export", folder / "pings.db", "--out", folder / "pings")
    again = prepared(f"{folder}/pings/*.arrayrecord", folder / "again.db", schema)
    assert again["root"] == report["root"]
    return rows, report, folder / "pings"


def test_googles_reader_reads_what_is_exported(export):
    rows, report, folder = export
    found, records = [], 0
    for path in sorted(folder.iterdir()):
        reader = ArrayRecordReader(str(path))
        assert "transpose:false,pad_to_block_boundary:false" in reader.writer_options_string()
        count = reader.num_records()
        records += count
        everything = reader.read_all()
        assert len(everything) == count
        # Random access finds a record by the number of its chunk.
        order = np.random.default_rng(5).permutation(count).tolist()
        assert reader.read(order) == [everything[index] for index in order]
        assert all(reader.read([index]) == [everything[index]] for index in order[:20])
        for one in everything:
            # As the other pipeline reads it.
            with pa.ipc.open_stream(one) as opened:
                batch = opened.read_next_batch()
            assert batch.schema == OUTER
            assert batch.num_rows == 1
            row = batch.to_pylist()[0]
            table = pa.ipc.open_stream(row["measurements"]).read_all()
            assert table.schema == INNER
            times = table["event_time"].cast(pa.int64()).to_pylist()
            assert times == sorted(times)
            assert row["n_measurements"] == table.num_rows
            assert row["time_span_seconds"] == (times[-1] - times[0]) / 1e6
            assert batch["first_timestamp"].cast(pa.int64()).to_pylist() == [times[0]]
            assert batch["last_timestamp"].cast(pa.int64()).to_pylist() == [times[-1]]
            assert row["src_id"] == source_id(table["src_addr"][0].as_py())
            names = ["src_addr", "dst_addr", "ip_version"]
            columns = [table[name].to_pylist() for name in names]
            found += zip(*columns, times, table["rtt"].to_pylist(), strict=True)
    assert records == report["row_count"]
    found, expected = sorted(found), sorted(rows)
    assert [row[:4] for row in found] == [row[:4] for row in expected]
    for (*_, rtt), (*_, exact) in zip(found, expected, strict=True):
        # A code has 11 bits, or whole microseconds from 1 on.
        error = abs(rtt - max(exact, 0.001))
        assert rtt == exact == -1 or error <= max(exact / 2048, 0.0005) * 1.001


def test_grain_reads_what_is_exported(export):
    import grain

    _, report, folder = export
    files = sorted(map(str, folder.iterdir()))
    source = grain.sources.ArrayRecordDataSource(files)
    assert len(source) == report["row_count"]
    first = ArrayRecordReader(files[0]).read([0])[0]
    assert source[0] == first


@pytest.mark.parametrize(
    "options",
    [
        PEER,
        "group_size:7",
        "group_size:3,pad_to_block_boundary:true",
        "group_size:1,uncompressed",
        "group_size:1000,zstd:19",
    ],
)
def test_a_file_of_googles_writer_gives_the_store_of_the_parquet_file(tmp_path, options):
    rows = pings(40)
    histories = by_source(rows)
    # A history may be in several records, and its events in several batches.
    records = [record(history[:20]) for history in histories]
    records += [record(history[20:]) for history in histories if len(history) > 20]
    (tmp_path / "pings").mkdir()
    for name, part in (("train", records[::2]), ("test", records[1::2])):
        write(tmp_path / "pings" / f"{name}.arrayrecord", part, options)
    pa.parquet.write_table(inner(rows), tmp_path / "pings.parquet")
    expected = prepared(tmp_path / "pings.parquet", tmp_path / "parquet.db")
    report = prepared(f"{tmp_path}/pings/*.arrayrecord", tmp_path / "arrayrecord.db")
    assert report["root"] == expected["root"]
    assert report["event_count"] == len(rows)


def test_columns_may_be_others_and_records_may_have_several_rows(tmp_path):
    rows = pings(10)
    table = inner(rows).append_column("msm_id", pa.array(range(len(rows)), pa.int64()))
    table = table.set_column(0, "event_time", table["event_time"].cast(pa.timestamp("ns", "UTC")))
    column = pa.array([stream(table[:100]), stream(table[100:])], pa.large_binary())
    write(tmp_path / "pings.arrayrecord", [stream(pa.table({"measurements": column}))])
    expected = prepared(write_csv(tmp_path, rows), tmp_path / "csv.db")
    report = prepared(tmp_path / "pings.arrayrecord", tmp_path / "arrayrecord.db")
    assert report["root"] == expected["root"]


def refusal(path, schema=SCHEMA):
    with pytest.raises(headwater.DataError) as error:
        prepared(path, path.parent / "refused.db", schema)
    assert not list(path.parent.glob("refused*"))
    return str(error.value)


ROWS = pings(3)
GOOD = record(ROWS[:50])
OTHER = inner(ROWS[:5]).set_column(4, "rtt", pa.array([1.0] * 5, pa.float64()))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"no stream of Arrow", "expected a record that is an IPC stream of Arrow, found other"),
        (b"", "expected a record that is an IPC stream of Arrow, found other bytes ("),
        (GOOD[:-900], "expected a record that is an IPC stream of Arrow, found other bytes ("),
        (stream(pa.table({"rows": [b""]})), 'expected a column "measurements", found "rows"'),
        (stream(pa.table({"measurements": ["x"]})), 'column "measurements": expected bytes, found'),
        (
            stream(pa.table({"measurements": pa.array([None], pa.binary())})),
            'column "measurements": expected bytes, found NULL',
        ),
        (
            stream(pa.table({"measurements": [b"12345678"]})),
            'column "measurements": expected an IPC stream of Arrow, found other bytes (',
        ),
        (
            stream(pa.table({"measurements": pa.array([], pa.binary())})),
            "expected one row, found none",
        ),
        (
            stream(pa.table({"measurements": [stream(OTHER)]})),
            "expected the columns of the first record, event_time Timestamp(µs), src_addr Utf8, "
            "dst_addr Utf8, ip_version Int8, rtt Float32; found event_time Timestamp(µs), src_addr "
            "Utf8, dst_addr Utf8, ip_version Int8, rtt Float64",
        ),
    ],
)
def test_a_bad_record_is_named_with_its_number_and_a_remedy(tmp_path, bad, message):
    path = write(tmp_path / "pings.arrayrecord", [GOOD, GOOD, bad], "group_size:2")
    found = refusal(path)
    assert "pings.arrayrecord: record 2: " + message in found
    assert found.endswith("write the file again, with a row of events in each record")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "transpose:true",
            "found records in columns; write the file again without the option tran",
        ),
        ("brotli:1", "found brotli; write the file again with the option zstd"),
        ("snappy", "found snappy; write the file again with the option zstd"),
    ],
)
def test_options_that_are_not_read_are_refused_with_another(tmp_path, options, message):
    assert message in refusal(write(tmp_path / "pings.arrayrecord", [GOOD], options))


def test_a_file_without_records_or_end_is_refused(tmp_path):
    path = write(tmp_path / "pings.arrayrecord", [])
    assert "expected records, whose rows have columns, found none; leave the file out" in refusal(
        path
    )
    # What a writer has on disk that was not closed, say.
    whole = write(tmp_path / "whole.arrayrecord", [GOOD] * 100, "group_size:1,uncompressed")
    path.write_bytes(whole.read_bytes()[:-70_000])
    assert "its writer was not closed: copy or write it again" in refusal(path)


def test_a_chunk_with_more_records_than_bytes_has_the_end_that_google_gives_it(tmp_path):
    # From the offset 64 on, one byte for each record would end within the header of a block.
    for count in (65_473, 65_480, 65_496, 65_497):
        path = write(tmp_path / "pings.arrayrecord", [b""] * count, f"group_size:{count}")
        assert "record 0: expected a record that is an IPC stream of Arrow" in refusal(path)


def test_no_flipped_bit_of_googles_writer_is_read_over(tmp_path):
    path = write(tmp_path / "pings.arrayrecord", [GOOD, GOOD, GOOD], "group_size:2")
    whole = path.read_bytes()
    zeros = np.frombuffer(whole, np.uint8) == 0
    # All that is no long padding, as far as zeros tell, and a part of the padding.
    places = [at for at in range(len(whole)) if at % 997 == 0 or not zeros[at - 40 : at + 40].all()]
    assert len(places) > 500
    for at in places[::3]:
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        assert "pings.arrayrecord: " in refusal(path), at


def test_the_command_exports_and_refuses_other_stores(tmp_path, store_path):
    report = prepared(write_csv(tmp_path, pings()), tmp_path / "pings.db")
    said = command("export", tmp_path / "pings.db", "--out", tmp_path / "pings")
    assert [line.split(": ")[0].rsplit("/", 1)[1] for line in said.splitlines()] == [
        "train.arrayrecord",
        "val.arrayrecord",
        "test.arrayrecord",
    ]
    counts = re.findall(r": ([\d,]+) events in ([\d,]+) records?; ", said)
    events, records = (
        sum(int(n.replace(",", "")) for n in part) for part in zip(*counts, strict=True)
    )
    assert (events, records) == (report["event_count"], report["row_count"])
    refused = command("export", tmp_path / "pings.db", "--out", tmp_path / "pings", status=1)
    assert "pings is there already; choose another folder, or move it away" in refused
    refused = command("export", store_path, "--out", tmp_path / "shop", status=3)
    assert "found a store of tables" in refused
    assert not (tmp_path / "shop").exists()
    helped = command("export", "--help")
    for word in ("measurements", "train.arrayrecord", "headwater prepare 'pings/*.arrayrecord'"):
        assert word in helped


def test_a_store_of_another_codec_is_not_exported(tmp_path):
    store = Path(__file__).parents[2] / "checkpoints/events-v1-fields"
    done = subprocess.run(
        ["headwater", "export", store, "--out", tmp_path / "out"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert 'expected a store of the codec "latency-v1"' in done.stderr
    assert 'found "fields-v1"' in done.stderr
    assert not (tmp_path / "out").exists()
