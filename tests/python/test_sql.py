"""Tasks whose rows DuckDB computes."""

import sqlite3
import subprocess
import sys

import duckdb
import pyarrow
import pyarrow.parquet
import pytest

import headwater
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
    done = subprocess.run(
        [*command, "--out", tmp_path / "db"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"root {expected}" in done.stdout


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("FROM orders", "FROM ordres"), "DuckDB refuses the query: .*ordres"),
        (("sum(price) AS spent", "1 AS spend"), 'no column "spent"; did you mean "spend"'),
        (("GROUP BY", "GRUOP BY"), "DuckDB refuses the query: .*[Ss]yntax"),
    ],
)
def test_a_wrong_query_is_a_schema_error(change, message, schema, tmp_path, shop_folder):
    schema.write_text(schema.read_text().replace(*change))
    with pytest.raises(headwater.SchemaError, match=message):
        headwater.prepare(shop_folder, schema, tmp_path / "db")


def test_without_duckdb_the_extra_is_named(schema, tmp_path, shop_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"pip install 'headwater\[sql\]'") as caught:
        headwater.prepare(shop_folder, schema, tmp_path / "db")
    assert 'task "spending"' in caught.value.__notes__[0]


def test_a_long_query_is_interrupted(tmp_path, shop_folder):
    """Ctrl-C reaches DuckDB, which would go on for hours."""
    import signal
    import time

    schema = tmp_path / "schema.toml"
    slow = "FROM orders, range(1000000000) AS r(n) GROUP BY customer_id"
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
        pressed = time.monotonic()
        errors = process.communicate(timeout=30)[1]
        assert time.monotonic() - pressed < 2
    finally:
        process.kill()
        process.communicate()
    assert "KeyboardInterrupt" in errors
    assert not (tmp_path / "db.partial").exists()
