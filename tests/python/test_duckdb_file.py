"""A DuckDB file as a source."""

import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import duckdb
import pyarrow
import pytest

import headwater
from headwater import _database, _duckdb_file
from shop import SCHEMA, SQL_TASK

TABLES = """
CREATE TABLE customers (
    customer_id INTEGER PRIMARY KEY, name VARCHAR, city VARCHAR, member BOOLEAN, note VARCHAR
);
CREATE TABLE orders (
    order_id BIGINT PRIMARY KEY, customer_id INTEGER REFERENCES customers (customer_id),
    price DECIMAL(12, 4), placed_at TIMESTAMP
);
CREATE VIEW dear AS SELECT order_id, price FROM orders WHERE price > 100;
"""


@pytest.fixture(scope="module")
def shop_file(tmp_path_factory, shop_folder):
    # The bytes tell the format, not the name.
    path = tmp_path_factory.mktemp("duckdb") / "shop.data"
    with duckdb.connect(path) as connection:
        connection.execute(TABLES)
        for table in ("customers", "orders"):
            connection.execute(f"INSERT INTO {table} FROM read_csv('{shop_folder}/{table}.csv')")
    return path


@pytest.fixture
def make(tmp_path):
    """Returns a function that makes a DuckDB file by SQL."""

    def made(statements):
        path = tmp_path / "made.duckdb"
        path.unlink(missing_ok=True)
        with duckdb.connect(path) as connection:
            connection.execute(statements)
        return path

    return made


def prepared(path, columns, out, table="t"):
    key = {"key": "k"} if "k" in columns else {}
    schema = {"database": "x", "table": [{"name": table, "columns": columns} | key]}
    headwater.prepare(path, schema, out, dimension=8)
    return headwater.Store(out)


def test_duckdb_makes_the_store_that_csv_makes(shop_file, tmp_path, schema_file, store_path):
    report = headwater.prepare(shop_file, schema_file, tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


def test_sql_of_tasks_reads_duckdb(shop_file, shop_folder, tmp_path):
    schema = tomllib.loads(SCHEMA + SQL_TASK)
    roots = {
        headwater.prepare(source, schema, tmp_path / name, dimension=8)["root"]
        for name, source in [("csv", shop_folder), ("duckdb", shop_file)]
    }
    assert len(roots) == 1


def test_declared_keys_and_references_are_drafted(shop_file):
    text = headwater.draft_schema(shop_file, "shop")
    tables = {table["name"]: table for table in tomllib.loads(text)["table"]}
    assert set(tables) == {"customers", "orders"}
    assert tables["customers"]["key"] == "customer_id"
    assert tables["orders"]["key"] == "order_id"
    assert tables["orders"]["references"] == [{"columns": "customer_id", "to": "customers"}]
    assert "dear" in text
    view = tomllib.loads(headwater.draft_schema(shop_file, tables=["dear"]))
    assert [table["name"] for table in view["table"]] == ["dear"]


def test_the_command_reads_duckdb(shop_file, tmp_path, schema_file, store_path):
    command = [Path(sys.executable).with_name("headwater")]
    done = subprocess.run(
        [*command, "schema", shop_file, "--tables", "customers,orders", "--out", tmp_path / "s"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 tables, 1 reference" in done.stdout
    options = ["--schema", schema_file, "--out", tmp_path / "db", "--dimension", "32"]
    done = subprocess.run(
        [*command, "prepare", shop_file, *options], capture_output=True, text=True, check=True
    )
    assert headwater.Store(store_path).root in done.stdout


def test_rows_of_a_table_keep_their_order_and_those_of_a_view_are_sorted(make, tmp_path):
    path = make("""
        CREATE TABLE t AS SELECT (range * 7919) % 300007 AS n FROM range(300000);
        CREATE VIEW v AS SELECT DISTINCT n % 500 AS n, 'x' AS x FROM t;
    """)
    store = prepared(path, {"n": "numerical"}, tmp_path / "t")
    for row in (0, 1, 2, 150_000, 299_999):
        assert store.row("t", index=row)["cells"]["n"] == pytest.approx(
            row * 7919 % 300007, rel=1e-5
        )
    store = prepared(path, {"n": "categorical"}, tmp_path / "v", table="v")
    found = [store.row("v", index=row)["cells"]["n"] for row in range(500)]
    assert found == sorted(str(n) for n in range(500))


def test_each_type_has_the_value_of_its_text(make, tmp_path):
    path = make("""
        CREATE TABLE t (
            k UUID PRIMARY KEY, price DECIMAL(10, 2), big HUGEINT, day DATE, naive TIMESTAMP,
            zoned TIMESTAMPTZ, mood ENUM ('sad', 'glad'), document JSON, span INTERVAL, clock TIME,
            raw BLOB, bits BIT
        );
        INSERT INTO t VALUES (
            '123e4567-e89b-12d3-a456-426614174000', 12.50, 7, '2024-01-31', '2024-01-31 12:30',
            '2024-01-31 12:30+02', 'glad', '{"a": [1, 2]}', INTERVAL 1 DAY, '12:30', '\\x01\\xFF',
            '101'
        )
    """)
    texts = ("mood", "document", "span", "clock", "raw", "bits")
    columns = {"k": "identifier"} | dict.fromkeys(texts, "categorical")
    columns |= dict.fromkeys(("price", "big"), "numerical")
    columns |= dict.fromkeys(("day", "naive", "zoned"), "timestamp")
    row = prepared(path, columns, tmp_path / "db").row("t", index=0)
    cells = row["cells"]
    assert row["key"] == "123e4567-e89b-12d3-a456-426614174000"
    assert [cells[name] for name in ("price", "big")] == [12.5, 7]
    times = [str(cells[name])[:16] for name in ("day", "naive", "zoned")]
    assert times == ["2024-01-31T00:00", "2024-01-31T12:30", "2024-01-31T10:30"]
    expected = ["glad", '{"a": [1, 2]}', "1 day", "12:30:00", "0x01ff", "101"]
    assert [cells[name] for name in texts] == expected


def test_what_no_cell_holds_is_named(make, tmp_path):
    path = make("""
        CREATE TABLE t (k INTEGER PRIMARY KEY, tags VARCHAR[], pair STRUCT(a INTEGER),
            until TIMESTAMP, day DATE);
        INSERT INTO t VALUES (1, ['a'], {'a': 1}, 'infinity', '-infinity')
    """)
    for column in ("tags", "pair"):
        with pytest.raises(
            headwater.SchemaError,
            match=f'table "t": column "{column}": expected values that can be text, found .*'
            "leave the column out of the schema",
        ):
            prepared(path, {"k": "identifier", column: "categorical"}, tmp_path / "db")
    for column in ("until", "day"):
        with pytest.raises(headwater.DataError, match=f'column "{column}": .*cannot be read'):
            prepared(path, {"k": "identifier", column: "timestamp"}, tmp_path / "db")
    assert tomllib.loads(headwater.draft_schema(path))["table"][0]["columns"]["tags"] == "ignored"


def test_tables_of_other_schemas_have_the_schema_in_their_name(make, tmp_path):
    statements = """
        CREATE SCHEMA "Sales";
        CREATE TABLE "Sales".customers (k INTEGER PRIMARY KEY);
        CREATE TABLE "Sales".orders (
            k INTEGER PRIMARY KEY, c INTEGER REFERENCES "Sales".customers (k), "a ""b" VARCHAR
        );
        INSERT INTO "Sales".customers FROM range(1, 51);
        INSERT INTO "Sales".orders SELECT n, 51 - n, 'x' || n % 3 FROM range(1, 51) r (n);
        CREATE TABLE orders (k INTEGER);
    """
    path = make(statements)
    schema = tomllib.loads(headwater.draft_schema(path))
    sources = {table.get("source", table["name"]): table for table in schema["table"]}
    assert set(sources) == {"Sales.customers", "Sales.orders"}
    assert sources["Sales.orders"]["references"][0]["to"] == sources["Sales.customers"]["name"]
    assert headwater.prepare(path, schema, tmp_path / "db")["row_count"] == 100
    path = make(statements + 'CREATE TABLE "Sales.orders" (k INTEGER)')
    with pytest.raises(headwater.DataError, match="both have the name 'Sales.orders'"):
        headwater.draft_schema(path)


def test_a_view_that_fails_is_named_and_spoils_no_draft(make):
    path = make("""
        CREATE TABLE t AS SELECT range AS k FROM range(9);
        CREATE TABLE gone (k INTEGER);
        CREATE VIEW wrong AS SELECT k FROM gone;
        DROP TABLE gone;
    """)
    assert 'name = "t"' in headwater.draft_schema(path)
    with pytest.raises(headwater.DataError, match="table 'wrong': .*gone"):
        headwater.draft_schema(path, tables=["wrong"])


def test_a_file_that_cannot_be_opened_is_named(make, tmp_path):
    path = make("CREATE TABLE t AS SELECT range AS k FROM range(9)")
    with (
        duckdb.connect(path),
        pytest.raises(headwater.DataError, match="made.duckdb: .*; close the connections"),
    ):
        headwater.draft_schema(path)
    program = f"import duckdb; c = duckdb.connect({str(path)!r}); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(headwater.DataError, match="made.duckdb: .*; close the connections"):
            headwater.draft_schema(path)
        other.communicate(b"\n")
    damaged = tmp_path / "damaged.duckdb"
    damaged.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(headwater.DataError, match="DuckDB file .*damaged.duckdb: ") as caught:
        headwater.draft_schema(damaged)
    assert "close the connections" not in str(caught.value)
    with pytest.raises(headwater.DataError, match="DuckDB file .*made.duckdb holds no table"):
        headwater.draft_schema(make("SELECT 1"))


def test_a_running_query_can_be_interrupted(make):
    path = make("CREATE VIEW v AS SELECT count(*) AS n FROM range(100000000000) r (a)")
    source = _duckdb_file.open_source(str(path))
    source.tables()
    threading.Timer(1, source.interrupt).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        source.rows("v", ["n"]).read_all()
    assert time.monotonic() - started < 30
    source.close()


def test_a_missing_library_is_named(monkeypatch, shop_file):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"pip install 'headwater\[sql\]'"):
        headwater.draft_schema(shop_file)


@pytest.mark.parametrize(
    ("definition", "found"),
    [
        ("VIEW v AS SELECT n, random() AS r FROM t", r"random\(\)"),
        ("VIEW v AS SELECT n, r FROM inner_view", r"uuid\(\)"),
        ("VIEW v AS SELECT n, now() AS r FROM t", r"now\(\)"),
        ("VIEW v AS SELECT n, current_date AS r FROM t", "current_date"),
        ("VIEW v AS SELECT n, chance() AS r FROM t", r"chance\(\)"),
        ("VIEW v (n, r) AS SELECT n, 1 FROM t USING SAMPLE 5 ROWS", "USING SAMPLE"),
        ("TABLE v (n INT, r DOUBLE GENERATED ALWAYS AS ((1 + random())))", r"random\(\)"),
        ("TABLE v (n INT, r TEXT GENERATED ALWAYS AS (concat(')', random())))", r"random\(\)"),
        (
            "VIEW v AS SELECT n, 'CREATE VIEW ' AS a, random() AS r, ' AS FROM' AS b FROM t",
            r"random\(\)",
        ),
    ],
)
def test_a_view_whose_rows_change_from_read_to_read_is_refused(make, tmp_path, definition, found):
    path = make(f"""
        CREATE TABLE t AS SELECT range AS n FROM range(9);
        CREATE MACRO chance() AS random();
        CREATE VIEW inner_view AS SELECT n, uuid() AS r FROM t;
        CREATE {definition}
    """)
    words = f"table 'v': expected rows that depend on the data alone, found {found}"
    with pytest.raises(headwater.DataError, match=words):
        prepared(path, {"n": "numerical", "r": "text"}, tmp_path / "v", table="v")
    assert prepared(path, {"n": "numerical"}, tmp_path / "t").root


def test_a_view_may_call_what_depends_on_the_data_alone(make, tmp_path):
    path = make("""
        CREATE TABLE t (n INT, day TIMESTAMP DEFAULT now(), m INT GENERATED ALWAYS AS (abs(n)));
        INSERT INTO t (n, day) SELECT range, TIMESTAMP '2024-01-01' FROM range(9);
        CREATE VIEW v AS WITH w AS (SELECT * FROM t)
            SELECT n, m, 'random()' AS "now()", date_trunc('day', day) AS day,
                row_number() OVER (ORDER BY n) AS place FROM w
    """)
    columns = {"n": "numerical", "m": "numerical", "now()": "text", "place": "numerical"}
    assert prepared(path, columns | {"day": "timestamp"}, tmp_path / "v", table="v").root
    assert prepared(path, {"n": "numerical", "m": "numerical"}, tmp_path / "t").root


@pytest.mark.parametrize("rows", ["read_csv('{}')", "'{}'", "read_text('{}')", "glob('{}')"])
def test_p6_a_view_that_reads_files_is_refused(make, tmp_path, rows):
    """DuckDB locks its own file alone: another program may change the others between two reads."""
    other = tmp_path / "other.csv"
    other.write_text("n\n1\n2\n")
    path = make(f"""
        CREATE TABLE t AS SELECT range AS n FROM range(9);
        CREATE VIEW v AS SELECT * FROM {rows.format(other)}
    """)
    with pytest.raises(headwater.DataError, match="table 'v': .*a view may read no files"):
        prepared(path, {"n": "numerical"}, tmp_path / "v", table="v")
    assert prepared(path, {"n": "numerical"}, tmp_path / "t").root


def test_a_file_is_read_by_one_thread_and_never_written(shop_file):
    source = _duckdb_file.open_source(str(shop_file))
    with pytest.raises(duckdb.Error, match="read-only"):
        source._connection.execute("CREATE TABLE more (k INTEGER)")
    names = ("threads", "autoinstall_known_extensions", "enable_external_access")
    settings = ", ".join(f"current_setting('{name}')" for name in names)
    assert source._connection.execute(f"SELECT {settings}").fetchone() == (1, False, False)
    source.close()


def test_a_stream_ends_its_connection_once_at_its_end_or_when_it_is_dropped():
    rows = pyarrow.table({"n": [1, 2]}).to_batches(max_chunksize=1)
    schema, ended = rows[0].schema, []

    def stream(batches):
        reader = pyarrow.RecordBatchReader.from_batches(schema, batches)
        return _database.stream(reader, lambda: ended.append(1), lambda error: KeyError(str(error)))

    read = stream(rows)
    assert read.schema == schema
    assert read.read_all().to_pydict() == {"n": [1, 2]}
    assert ended == [1]
    del read
    assert ended == [1]
    dropped = stream(rows)
    dropped.read_next_batch()
    assert ended == [1]
    del dropped
    assert ended == [1, 1]

    def failing():
        yield rows[0]
        raise RuntimeError("no more")

    with pytest.raises(KeyError, match="no more"):
        stream(failing()).read_all()
