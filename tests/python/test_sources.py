"""The same rows make the same store, from every type of source."""

import contextlib
import datetime
import gzip
import os
import sqlite3
import time
import tomllib

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import headwater
from headwater._frames import mixed_types
from shop import SCHEMA, shop, write_csv


def as_pyarrow():
    return {name: pyarrow.table(columns) for name, columns in shop().items()}


def as_chunks_of(rows):
    """Returns tables with batches of `rows` rows."""
    tables = as_pyarrow()
    return {
        name: pyarrow.Table.from_batches(table.to_batches(max_chunksize=rows))
        for name, table in tables.items()
    }


def as_readers():
    return {name: table.to_reader() for name, table in as_pyarrow().items()}


def as_polars():
    return {name: polars.DataFrame(columns) for name, columns in shop().items()}


def as_lazy():
    return {name: polars.LazyFrame(columns) for name, columns in shop().items()}


def as_pandas():
    return {name: pandas.DataFrame(columns) for name, columns in shop().items()}


def as_duckdb():
    connection = duckdb.connect()
    for name, table in as_pyarrow().items():
        connection.register(f"{name}_arrow", table)
    return {name: connection.sql(f"SELECT * FROM {name}_arrow") for name in shop()}


@pytest.mark.parametrize(
    "tables",
    [as_pyarrow, as_readers, as_polars, as_lazy, as_pandas, as_duckdb],
    ids=["pyarrow", "readers", "polars", "lazy", "pandas", "duckdb"],
)
def test_tables_in_memory_make_the_store_that_csv_makes(tables, tmp_path, schema_file, store_path):
    report = headwater.prepare(tables(), schema_file, tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


@pytest.mark.parametrize("rows", [1_000, 8_192, 9_999])
def test_the_store_does_not_depend_on_batches(rows, tmp_path, schema_file, store_path):
    report = headwater.prepare(as_chunks_of(rows), schema_file, tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


def test_the_store_does_not_depend_on_small_batches_of_two_texts(tmp_path, schema_file, store_path):
    report = headwater.prepare(as_chunks_of(3), schema_file, tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


def test_parquet_makes_the_store_that_csv_makes(tmp_path, schema_file, store_path):
    folder = tmp_path / "parquet"
    folder.mkdir()
    for name, table in as_pyarrow().items():
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
    report = headwater.prepare(folder, schema_file, tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


def pack_gzip(path):
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(path.read_bytes()))


def pack_zstandard(path):
    with pyarrow.output_stream(path.with_suffix(".csv.zst"), compression="zstd") as file:
        file.write(path.read_bytes())


def split_in_parts(path):
    header, *lines = path.read_text().splitlines(keepends=True)
    folder = path.with_suffix("")
    folder.mkdir()
    for part, start in enumerate(range(0, len(lines), 7_000)):
        rows = "".join(lines[start : start + 7_000])
        (folder / f"part-{part:03}.csv").write_text(header + rows)
    (folder / "_SUCCESS").touch()


@pytest.mark.parametrize("change", [pack_gzip, pack_zstandard, split_in_parts])
def test_packed_files_and_parts_make_the_store_of_the_plain_file(
    change, tmp_path, schema_file, store_path
):
    folder = write_csv(tmp_path / "shop", shop())
    for path in list(folder.iterdir()):
        change(path)
        path.unlink()
    report = headwater.prepare(folder, schema_file, tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


def test_a_pattern_is_the_one_table_of_its_files(tmp_path, shop_folder):
    folder = write_csv(tmp_path / "shop", shop())
    split_in_parts(folder / "orders.csv")
    schema = {
        "database": "x",
        "table": [{"name": "orders", "key": "order_id", "columns": {"order_id": "identifier"}}],
    }
    roots = [
        headwater.prepare(source, schema, tmp_path / f"db{number}", dimension=8)["root"]
        for number, source in enumerate([shop_folder, folder / "orders" / "part-*.csv"])
    ]
    assert roots[0] == roots[1]


def test_a_column_of_several_types_is_named_with_what_to_do(tmp_path, schema_file):
    frame = pandas.DataFrame({"good": [1, 2, 3, 4], "odd": [1, None, "x", 2.5]}, dtype=object)
    tables = {"orders": frame}
    with pytest.raises(headwater.DataError) as raised:
        headwater.draft_schema(tables)
    assert str(raised.value) == (
        "table \"orders\": column 'odd': expected values of one type, found int (row 1), str (row "
        "3), float (row 4); convert it, as in frame['odd'] = frame['odd'].astype(str)"
    )
    columns = {"good": "numerical", "odd": "categorical"}
    schema = {"database": "x", "table": [{"name": "orders", "columns": columns}]}
    place = r'table "orders": source\["orders"\]: column \'odd\': expected'
    with pytest.raises(headwater.DataError, match=place):
        headwater.prepare(tables, schema, tmp_path / "db", dimension=8)
    frame["odd"] = frame["odd"].astype(str)
    headwater.prepare(tables, schema, tmp_path / "db", dimension=8)


def test_a_column_of_two_types_is_named_behind_columns_with_missing_values():
    frame = pandas.DataFrame({"good": ["x", pandas.NA], "odd": ["x", 2]}, dtype=object)
    frame.insert(0, "whole", pandas.array([1, None], dtype="Int64"))
    with pytest.raises(headwater.DataError, match=r"'odd': .* found str \(row 1\), int \(row 2\)"):
        headwater.draft_schema({"orders": frame})


def test_columns_of_one_name_have_no_types_of_their_own():
    assert mixed_types(pandas.DataFrame([[1, "x"]], columns=["a", "a"])) is None


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pandas.Series([1, 2], name="a"), "found a pandas Series"),
        (polars.Series("a", [1, 2]), "found a polars Series"),
        (pyarrow.chunked_array([[1, 2]]), "found a pyarrow ChunkedArray"),
    ],
)
def test_one_column_is_no_table_and_structs_are(column, found, tmp_path):
    schema = {"database": "x", "table": [{"name": "a", "columns": {"a": "numerical"}}]}
    message = f"expected a table .*, {found}, which is one column; make a frame of it"
    with pytest.raises(headwater.InvalidArgument, match=message):
        headwater.draft_schema({"a": column})
    with pytest.raises(headwater.InvalidArgument, match=message):
        headwater.prepare({"a": column}, schema, tmp_path / "db", dimension=8)
    structs = polars.DataFrame({"a": [1, 2]}).to_struct()
    headwater.prepare({"a": structs}, schema, tmp_path / "db", dimension=8)


def test_a_frame_without_a_name_is_rejected():
    for frame in (polars.LazyFrame({"a": [1]}), polars.DataFrame({"a": [1]})):
        with pytest.raises(headwater.InvalidArgument, match="name the table, as in"):
            headwater.draft_schema(frame)


def test_the_store_does_not_depend_on_threads(tmp_path, schema_file, shop_folder, store_path):
    for threads in (1, 2, 7):
        out = tmp_path / f"db{threads}"
        report = headwater.prepare(shop_folder, schema_file, out, dimension=32, threads=threads)
        assert report["root"] == headwater.Store(store_path).root


def test_a_schema_can_be_a_dictionary(tmp_path, shop_folder, store_path):
    report = headwater.prepare(shop_folder, tomllib.loads(SCHEMA), tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


def test_a_time_with_a_zone_is_an_instant(tmp_path):
    zone = datetime.timezone(datetime.timedelta(hours=2))
    at = [datetime.datetime(2024, 1, 1, 2, tzinfo=zone)]
    schema = {
        "database": "x",
        "table": [
            {"name": "t", "key": "k", "columns": {"k": "identifier", "at": "timestamp"}},
        ],
    }
    table = pyarrow.table({"k": [1], "at": pyarrow.array(at, pyarrow.timestamp("ms", "+02:00"))})
    headwater.prepare({"t": table}, schema, tmp_path / "db")
    row = headwater.Store(tmp_path / "db").row("t", 1)
    assert str(row["cells"]["at"]) == "2024-01-01T00:00:00.000000"


def test_a_second_read_of_a_reader_is_rejected(tmp_path):
    tables = as_readers()
    columns = {"customer_id": "identifier"}
    schema = {
        "database": "x",
        "table": [
            {"name": "a", "source": "customers", "columns": columns},
            {"name": "b", "source": "customers", "columns": columns},
        ],
    }
    with pytest.raises(headwater.InvalidArgument, match='"b": .*expected 40 rows .*, found 0'):
        headwater.prepare(tables, schema, tmp_path / "db")
    report = headwater.prepare(as_pyarrow(), schema, tmp_path / "db")
    assert report["row_count"] == 80


def test_a_pipe_is_no_source(tmp_path, schema_file):
    os.mkfifo(tmp_path / "races.csv")
    for path in (tmp_path / "races.csv", "/dev/null"):
        with pytest.raises(headwater.DataError, match="expected a file or a folder, .* pipe"):
            headwater.prepare(path, schema_file, tmp_path / "shop.db")


def test_a_missing_column_or_table_is_named(tmp_path):
    columns = {"customer_id": "identifier", "nmae": "text"}
    schema = {
        "database": "x",
        "table": [{"name": "customers", "key": "customer_id", "columns": columns}],
    }
    with pytest.raises(headwater.SchemaError, match='no column "nmae"; did you mean "name"'):
        headwater.prepare(as_pyarrow(), schema, tmp_path / "db")
    schema["table"][0]["name"] = "costumers"
    with pytest.raises(headwater.SchemaError, match='did you mean "customers"'):
        headwater.prepare(as_pyarrow(), schema, tmp_path / "db")


def test_an_object_that_is_not_a_table_is_rejected(tmp_path, schema_file):
    with pytest.raises(headwater.InvalidArgument, match=r'source\["orders"\].*found list'):
        headwater.prepare({"orders": [1, 2]}, schema_file, tmp_path / "db")


def test_an_error_in_the_middle_of_a_stream_leaves_nothing(tmp_path, schema_file):
    table = as_pyarrow()["orders"]

    def batches():
        yield from table.to_batches(max_chunksize=5_000)[:2]
        raise RuntimeError("the line went dead")

    tables = as_pyarrow() | {
        "orders": pyarrow.RecordBatchReader.from_batches(table.schema, batches())
    }
    with pytest.raises(headwater.DataError, match="the line went dead"):
        headwater.prepare(tables, schema_file, tmp_path / "db")
    assert not any(tmp_path.iterdir())


def test_a_draft_is_a_valid_schema(tmp_path):
    text = headwater.draft_schema(as_pyarrow(), "shop")
    schema = tomllib.loads(text)
    assert schema["database"] == "shop"
    tables = {table["name"]: table for table in schema["table"]}
    assert tables["orders"]["key"] == "order_id"
    assert tables["orders"]["references"] == [{"columns": "customer_id", "to": "customers"}]
    report = headwater.prepare(as_pyarrow(), schema, tmp_path / "db")
    assert (report["row_count"], report["link_count"]) == (20_040, 20_000)


def test_a_database_of_a_thousand_tables_is_drafted_and_prepared_in_seconds(tmp_path):
    """What is done for each pair of tables is little: some seconds in all, also when busy."""
    path = tmp_path / "many.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for number in range(1000):
            parent = f", p INTEGER REFERENCES t{number // 2}" if number else ""
            connection.execute(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, a REAL{parent})")
            connection.execute(f"INSERT INTO t{number} VALUES (1, 2.5{', 1' if number else ''})")
        connection.commit()
    begun = time.process_time()
    (tmp_path / "schema.toml").write_text(headwater.draft_schema(path))
    headwater.prepare(path, tmp_path / "schema.toml", tmp_path / "store", dimension=8)
    assert time.process_time() - begun < 20
    assert len(headwater.Store(tmp_path / "store").metadata()["tables"]) == 1000
