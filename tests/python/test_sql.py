"""Tasks with SQL, which DuckDB runs."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import pytest

import headwater
from headwater import _sql
from shop import SCHEMA, SQL_TASK, shop


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA + SQL_TASK)
    return path


def in_memory(tmp_path):
    return {name: pyarrow.table(columns) for name, columns in shop().items()}


def as_parquet(tmp_path):
    folder = tmp_path / "parquet"
    folder.mkdir()
    for name, columns in shop().items():
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
    return folder


def as_sqlite(tmp_path):
    path = tmp_path / "shop.db"
    database = sqlite3.connect(path)
    tables = shop()
    tables["orders"]["placed_at"] = [str(at) for at in tables["orders"]["placed_at"]]
    database.execute(
        "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT, city TEXT, "
        "member BOOLEAN, note VARCHAR(20))"
    )
    database.execute(
        "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_id INTEGER "
        "REFERENCES customers, price REAL, placed_at DATETIME)"
    )
    for name, columns in tables.items():
        marks = ", ".join("?" * len(columns))
        rows = zip(*columns.values(), strict=True)
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    database.commit()
    database.close()
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory, shop_folder):
    folder = tmp_path_factory.mktemp("expected")
    (folder / "schema.toml").write_text(SCHEMA + SQL_TASK)
    return headwater.prepare(shop_folder, folder / "schema.toml", folder / "db")["root"]


@pytest.mark.parametrize("source", [in_memory, as_parquet, as_sqlite])
def test_every_source_makes_the_same_task(source, schema, tmp_path, expected):
    report = headwater.prepare(source(tmp_path), schema, tmp_path / "db")
    assert report["root"] == expected


def test_the_command_runs_sql(schema, tmp_path, shop_folder, expected):
    command = [sys.executable, "-m", "headwater", "prepare", shop_folder, "--schema", schema]
    run = subprocess.run(
        [*command, "--out", tmp_path / "db"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert f"root {expected}" in run.stdout


def test_the_targets_are_those_of_the_query(schema, tmp_path, shop_folder):
    headwater.prepare(shop_folder, schema, tmp_path / "db")
    store = headwater.Store(tmp_path / "db")
    task = store.metadata()["tasks"][1]
    assert (task["name"], task["seed_count"]) == ("spending", 40)
    orders = pyarrow.table(shop()["orders"])
    spent = duckdb.sql("SELECT sum(price) AS s FROM orders GROUP BY customer_id").fetchall()
    stats = task["target"]["derived"]["column"]["stats"]
    assert stats["min"] == min(value for (value,) in spent)
    assert stats["max"] == max(value for (value,) in spent)
    assert orders.num_rows == 20_000


def test_the_labels_of_a_query_are_a_table(tmp_path, shop_folder):
    schema = SCHEMA + SQL_TASK.replace("[task.derived]", '[task.derived]\nhorizon = "30 days"')
    (tmp_path / "schema.toml").write_text(schema)
    headwater.prepare(shop_folder, tmp_path / "schema.toml", tmp_path / "store")
    metadata = headwater.Store(tmp_path / "store").metadata()
    task = metadata["tasks"][1]
    labels = metadata["tables"][-1]
    assert labels["name"] == f"{task['name']} labels"
    assert labels["row_count"] == task["seed_count"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("FROM orders", "FROM ordres"),
            'task "spending": the SQL of a task reads "ordres", which is not a table of folder .*; '
            'did you mean "orders"',
        ),
        (("sum(price) AS spent", "1 AS spend"), 'no column "spent"; did you mean "spend"'),
        (("GROUP BY", "GRUOP BY"), "DuckDB rejects the query: .*[Ss]yntax"),
    ],
)
def test_a_wrong_query_is_a_schema_error(change, message, schema, tmp_path, shop_folder):
    schema.write_text(schema.read_text().replace(*change))
    with pytest.raises(headwater.SchemaError, match=message):
        headwater.prepare(shop_folder, schema, tmp_path / "db")


START, END = SQL_TASK.split("SELECT")[0], SQL_TASK[SQL_TASK.rindex("'''") :]
SEEDS = "SELECT customer_id, TIMESTAMP '2024-01-01' AS at, {} AS spent FROM {}\n"


def with_query(target, table):
    """Returns the schema with a task whose seeds have this target, from this table."""
    return SCHEMA + START + SEEDS.format(target, table) + END


def refusal(target, table, tmp_path, source):
    """Returns the message about such a task."""
    (tmp_path / "schema.toml").write_text(with_query(target, table))
    with pytest.raises(headwater.SchemaError) as caught:
        headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")
    assert not (tmp_path / "db").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("target", "table", "named"),
    [
        ("random()", "orders", "random()"),
        ('"RANDOM"()', "orders", "random()"),
        ("list_sum([length(uuid()::VARCHAR) FOR x IN [1]])", "orders", "uuid()"),
        ("price", "orders WHERE placed_at < now()", "now()"),
        ("year(current_date)", "orders", "current_date"),
        ("year(Current_Timestamp)", "orders", "current_timestamp"),
        ("year(today())", "(SELECT * FROM orders)", "today()"),
        ("year(ago(INTERVAL 1 DAY))", "orders", "ago()"),
        ("year(age(placed_at))", "orders", "age()"),
        ("price", "orders TABLESAMPLE 10%", "USING SAMPLE or TABLESAMPLE without REPEATABLE"),
        ("second(current_localtime())", "orders", "current_localtime()"),
        ("year(current_localtimestamp())", "orders", "current_localtimestamp()"),
        ("length(version())", "orders", "version()"),
        ("length(current_user)", "orders", "current_user"),
        ("length(current_setting('temp_directory'))", "orders", "current_setting()"),
        ("year(pg_postmaster_start_time())", "orders", "pg_postmaster_start_time()"),
    ],
)
def test_calls_with_varying_results_are_rejected(target, table, named, tmp_path, shop_folder):
    message = refusal(target, table, tmp_path, shop_folder)
    start = f'task "spending": the SQL of a task uses {named}, whose result can change'
    assert message.startswith(start)


@pytest.mark.parametrize(
    ("target", "table"),
    [
        ("count(*)", "orders WHERE 'now()' <> '' GROUP BY customer_id -- random()"),
        ("price", "orders USING SAMPLE 50 (reservoir, 7)"),
        ("year(age(placed_at, TIMESTAMP '2020-01-01'))", "orders"),
        ("day(placed_at AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo')", "orders"),
        ("row_number() OVER ()", "orders"),
        ("price + n", "main.Orders, range(2) AS r(n)"),
        ("price", "(WITH a AS (FROM orders), b AS MATERIALIZED (FROM A) FROM b)"),
        (
            "n",
            "orders, (WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r "
            "WHERE n < 3) FROM r)",
        ),
    ],
)
def test_calls_with_fixed_results_are_accepted(target, table, schema, tmp_path):
    schema.write_text(with_query(target, table))
    tables = in_memory(tmp_path)
    outs = [tmp_path / "first", tmp_path / "second"]
    first, second = (headwater.prepare(tables, schema, out)["root"] for out in outs)
    assert first == second


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("query('SELECT random() AS r')", "query()"),
        ("query_table('orders')", "query_table()"),
        ("duckdb_settings()", "duckdb_settings()"),
        ("(FROM read_csv('other.csv'))", "read_csv()"),
        ("read_text('other.csv')", "read_text()"),
        ("glob('*')", "glob()"),
        ("(SUMMARIZE orders)", "DESCRIBE, SHOW or SUMMARIZE"),
        ("system.main.duckdb_tables", "system.main.duckdb_tables"),
        ("information_schema.tables", "information_schema.tables"),
    ],
)
def test_other_relations_than_tables_are_rejected(table, found, tmp_path, shop_folder):
    message = refusal("price", f"orders, {table} AS t", tmp_path, shop_folder)
    start = f'task "spending": the SQL of a task reads {found}, expected tables of the source'
    assert message.startswith(start)


@pytest.mark.parametrize(
    ("query", "table"),
    [
        ("FROM pg_settings", "pg_settings"),
        ("FROM main.duckdb_databases", "duckdb_databases"),
        ("FROM duckdb_tables", "duckdb_tables"),
        ("FROM 'other.csv'", "other.csv"),
        ("FROM '.tmp/z.csv'", ".tmp/z.csv"),
        ("SELECT (SELECT max(name) FROM pg_settings)", "pg_settings"),
        ("WITH pg_settings AS (FROM pg_settings) FROM pg_settings", "pg_settings"),
        ("FROM (WITH pg_settings AS (SELECT 1) FROM pg_settings), pg_settings", "pg_settings"),
        ("WITH duckdb_tables AS (SELECT 1) FROM main.duckdb_tables", "duckdb_tables"),
    ],
)
def test_only_tables_of_the_source_are_read(query, table, tmp_path, shop_folder, monkeypatch):
    """Neither DuckDB's views nor files are read, not even files in the folder for spilling."""
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / ".tmp"):
        folder.mkdir(exist_ok=True)
        for name in ("other.csv", "z.csv"):
            (folder / name).write_text("a\n1\n")
    message = refusal("price", f"orders, ({query}) AS t", tmp_path, shop_folder)
    start = f'task "spending": the SQL of a task reads "{table}", which is not a table of folder '
    assert message.startswith(start)


def test_a_source_with_a_quote_in_its_path_is_read(schema, tmp_path, expected):
    folder = tmp_path / "Ada's"
    folder.mkdir()
    report = headwater.prepare(as_parquet(folder), schema, tmp_path / "db")
    assert report["root"] == expected


def test_the_command_names_the_task_and_no_class(tmp_path, schema, shop_folder):
    schema.write_text(schema.read_text().replace("FROM orders", "FROM ordres"))
    command = [sys.executable, "-m", "headwater", "prepare", shop_folder, "--schema", schema]
    run = subprocess.run(
        [*command, "--out", tmp_path / "db"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    start = 'headwater: task "spending": the SQL of a task reads "ordres", which is not a table'
    assert run.stderr.startswith(start), run.stderr


def test_without_duckdb_the_message_names_the_packages(schema, tmp_path, shop_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match="pip install duckdb pyarrow") as caught:
        headwater.prepare(shop_folder, schema, tmp_path / "db")
    assert 'task "spending"' in caught.value.__notes__[0]


@pytest.mark.parametrize("slow", [
    # DuckDB would run it for hours.
    "FROM orders, range(1000000000) AS r(n) GROUP BY customer_id",
    # Some ten seconds, most of them spent in checking what the query calls.
    f"FROM orders WHERE customer_id NOT IN ({', '.join(map(str, range(200_000)))}) "
    "GROUP BY customer_id",
], ids=["many rows", "many constants"])  # fmt: skip
def test_a_long_query_is_interrupted(slow, tmp_path, shop_folder):
    schema = tmp_path / "schema.toml"
    schema.write_text((SCHEMA + SQL_TASK).replace("FROM orders GROUP BY customer_id", slow))
    code = "import sys, headwater; headwater.prepare(*sys.argv[1:])"
    arguments = [shop_folder, schema, tmp_path / "db"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        time.sleep(3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        errors = process.communicate(timeout=30)[1]
        assert time.monotonic() - sent < 5
    finally:
        process.kill()
        process.communicate()
    assert "KeyboardInterrupt" in errors
    assert not (tmp_path / "db.partial").exists()


def test_ctrl_c_in_the_sql_of_a_task_ends_the_command_with_130(tmp_path, shop_folder):
    schema = tmp_path / "schema.toml"
    slow = "FROM orders, range(1000000000) AS r(n) GROUP BY customer_id"
    schema.write_text((SCHEMA + SQL_TASK).replace("FROM orders GROUP BY customer_id", slow))
    command = [Path(sys.executable).parent / "headwater", "prepare", shop_folder]
    process = subprocess.Popen(
        [*command, "--schema", schema, "--out", tmp_path / "db"], stderr=subprocess.PIPE, text=True
    )
    try:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=30)[1]
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, errors
    assert "rejects the query" not in errors


def test_an_interrupted_engine_begins_no_query(tmp_path):
    engine = _sql.Engine(None, tmp_path)
    engine.interrupt()
    with pytest.raises(KeyboardInterrupt):
        engine.query("SELECT 1")


def test_a_running_query_of_an_engine_is_interrupted(tmp_path):
    engine = _sql.Engine(None, tmp_path)
    threading.Timer(0.5, engine.interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        engine.query("SELECT count(*) AS n FROM range(100000000000)").read_all()


def test_an_engine_has_one_thread_and_loads_no_extension(tmp_path):
    connection = _sql.Engine(None, tmp_path)._connection
    names = (
        "threads", "python_enable_replacements", "autoinstall_known_extensions",
        "autoload_known_extensions", "enable_external_access",
    )  # fmt: skip
    settings = ", ".join(f"current_setting('{name}')" for name in names)
    found = connection.execute(f"SELECT {settings}").fetchone()
    assert found == (1, False, False, False, False)


def test_a_query_that_is_nested_too_deeply_is_a_schema_error(tmp_path, shop_folder):
    target = "abs(" * 900 + "1" + ")" * 900
    message = refusal(target, "customers", tmp_path, shop_folder)
    assert "nested too deeply to be checked; divide it with WITH" in message


def test_arithmetic_and_the_calendar_do_not_vary(tmp_path, shop_folder):
    target = "sum(date_part('year', placed_at - INTERVAL 1 DAY) - 2000)"
    (tmp_path / "schema.toml").write_text(with_query(target, "orders GROUP BY customer_id"))
    report = headwater.prepare(shop_folder, tmp_path / "schema.toml", tmp_path / "db")
    assert report["row_count"] == 20_040
