"""Tasks whose rows DuckDB computes."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys

import duckdb
import pyarrow
import pyarrow.parquet
import pytest

import headwater
from shop import SCHEMA, SQL_TASK, shop, write_csv


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
        (
            ("FROM orders", "FROM ordres"),
            'task "spending": the SQL of a task reads "ordres", which is no table of folder .*; '
            'did you mean "orders"',
        ),
        (("sum(price) AS spent", "1 AS spend"), 'no column "spent"; did you mean "spend"'),
        (("GROUP BY", "GRUOP BY"), "DuckDB refuses the query: .*[Ss]yntax"),
    ],
)
def test_a_wrong_query_is_a_schema_error(change, message, schema, tmp_path, shop_folder):
    schema.write_text(schema.read_text().replace(*change))
    with pytest.raises(headwater.SchemaError, match=message):
        headwater.prepare(shop_folder, schema, tmp_path / "db")


START, END = SQL_TASK.split("SELECT")[0], SQL_TASK[SQL_TASK.rindex("'''") :]
SEEDS = "SELECT customer_id, TIMESTAMP '2024-01-01' AS at, {} AS spent FROM {}\n"


def with_query(target, table):
    """The schema with a task whose seeds have this target, of this table."""
    return SCHEMA + START + SEEDS.format(target, table) + END


def refusal(target, table, tmp_path, source):
    """What is said of such a task."""
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
def test_what_differs_between_runs_is_refused(target, table, named, tmp_path, shop_folder):
    message = refusal(target, table, tmp_path, shop_folder)
    assert message.startswith(f'task "spending": the SQL of a task uses {named}, which can differ')


@pytest.mark.parametrize(
    ("target", "table"),
    [
        ("count(*)", "orders WHERE 'now()' <> '' GROUP BY customer_id -- random()"),
        ("price", "orders USING SAMPLE 50 (reservoir, 7)"),
        ("year(age(placed_at, TIMESTAMP '2020-01-01'))", "orders"),
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
def test_what_is_the_same_in_every_run_is_taken(target, table, schema, tmp_path):
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
def test_a_query_reads_tables_by_their_names(table, found, tmp_path, shop_folder):
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
    """Neither DuckDB's own views nor files, not even those in its folder for what spills."""
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / ".tmp"):
        folder.mkdir(exist_ok=True)
        for name in ("other.csv", "z.csv"):
            (folder / name).write_text("a\n1\n")
    message = refusal("price", f"orders, ({query}) AS t", tmp_path, shop_folder)
    start = f'task "spending": the SQL of a task reads "{table}", which is no table of folder '
    assert message.startswith(start)


def test_a_source_with_a_quote_in_its_path_is_read(schema, tmp_path, expected):
    folder = tmp_path / "Ada's"
    folder.mkdir()
    report = headwater.prepare(as_parquet(folder), schema, tmp_path / "db")
    assert report["root"] == expected


def test_the_command_names_the_task_and_no_class(tmp_path, schema, shop_folder):
    schema.write_text(schema.read_text().replace("FROM orders", "FROM ordres"))
    command = [sys.executable, "-m", "headwater", "prepare", shop_folder, "--schema", schema]
    done = subprocess.run(
        [*command, "--out", tmp_path / "db"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    start = 'headwater: task "spending": the SQL of a task reads "ordres", which is no table'
    assert done.stderr.startswith(start), done.stderr


def test_without_duckdb_it_is_said_what_to_install(schema, tmp_path, shop_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match="pip install duckdb pyarrow") as caught:
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


ODD = """
database = "odd"

[[table]]
name = "things"
key = "id"
columns = {{ id = "identifier", {columns} }}

[[task]]
name = "seen"
[task.derived]
anchor = "things"
sql = '''
SELECT id, TIMESTAMP '2024-01-01' AS time, concat_ws(' ', {seen}) AS seen FROM {table}
'''
key = "id"
time = "time"
target = "seen"
type = "categorical"
"""


def seen(source, tmp_path, words, columns='n = "numerical"', table="things"):
    """What SQL sees in the rows of a table: one word for each seed."""
    (tmp_path / "schema.toml").write_text(ODD.format(columns=columns, seen=words, table=table))
    headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")
    store = headwater.Store(tmp_path / "db")
    task = store.metadata()["tasks"][0]
    stats = task["target"]["derived"]["column"]["stats"]
    first, count = stats["cat_emb_start"], stats["cat_emb_count"]
    assert task["seed_count"] == count
    return [store.category(first + index) for index in range(count)]


def database(tmp_path, script):
    """A SQLite file."""
    path = tmp_path / "odd.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def csv_file(tmp_path, text):
    """A source of one CSV file."""
    path = tmp_path / "things.csv"
    path.write_text(text)
    return path


def test_the_keys_of_csv_are_the_texts_that_stand_there(tmp_path):
    source = csv_file(tmp_path, "id,n\n007,1\n1.10,2\n1.1,3\n1e2,4\n100,5\n")
    words = seen(source, tmp_path, "typeof(id), id, n::INTEGER")
    assert sorted(words) == [
        "VARCHAR 007 1",
        "VARCHAR 1.1 3",
        "VARCHAR 1.10 2",
        "VARCHAR 100 5",
        "VARCHAR 1e2 4",
    ]


def test_columns_of_csv_have_the_types_of_the_schema(tmp_path):
    source = csv_file(
        tmp_path,
        "id,n,made,ok,kind,more\na,1,2020-01-01 15:00:00.5,t,1,01/02/2020\n"
        "b,2.5,2020-01-01T00:00:00+02:00,no,02,2020-01-01\n",
    )
    columns = 'n = "numerical", made = "timestamp", ok = "boolean", kind = "categorical"'
    names = ["n", "made", "ok", "kind", "more"]
    types = ", ".join(f"typeof({name})" for name in names)
    assert seen(source, tmp_path, types, columns, "things WHERE id = 'a'") == [
        "DOUBLE TIMESTAMP BOOLEAN VARCHAR VARCHAR"
    ]
    shutil.rmtree(tmp_path / "db")
    assert sorted(seen(source, tmp_path, ", ".join(names), columns)) == [
        "1.0 2020-01-01 15:00:00.5 true 1 01/02/2020",
        "2.5 2019-12-31 22:00:00 false 02 2020-01-01",
    ]


def test_an_unclear_date_is_refused_as_prepare_refuses_it(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    csv_file(source, "id,made\na,01/02/2020\n")
    (source / "dated.csv").write_text("id,made\na,01/02/2020\n")
    with pytest.raises(headwater.DataError) as prepared:
        seen(source, tmp_path, "made", 'made = "timestamp"')
    assert 'column "made": 1 value cannot be read as timestamp: expected a time such as' in str(
        prepared.value
    )
    # SQL alone reads it where the schema's table is another one, which it does not type.
    with pytest.raises(headwater.SchemaError, match="DuckDB refuses the query: .*01/02/2020"):
        seen(source, tmp_path, "made::TIMESTAMP", 'made = "text"', "dated")


def test_a_reader_that_fails_under_sql_says_what_it_says_elsewhere(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    csv_file(source, "id,n\na,1\n")
    (source / "broken.csv").write_text("id,n\n" + "a,1\n" * 100_000 + '"a"b,1\n')
    with pytest.raises(headwater.DataError) as caught:
        seen(source, tmp_path, "n", table="broken")
    assert str(caught.value).startswith('task "seen": table "broken": ')
    assert "broken.csv" in str(caught.value)
    assert "DuckDB" not in str(caught.value)


def test_reals_and_integers_of_sqlite_stay_apart(tmp_path):
    source = database(
        tmp_path,
        """
        CREATE TABLE things (id, n INTEGER, made DATE, big INTEGER);
        INSERT INTO things VALUES (0.1 + 0.2, 3.7, '2020-01-01 15:00:00', 9007199254740993);
        INSERT INTO things VALUES (0.3, 4, '2020-01-01', 9007199254740992);
        INSERT INTO things VALUES (1000000000000001.0, 1, NULL, NULL);
        INSERT INTO things VALUES (1000000000000002.0, 0.1 + 0.2, NULL, NULL);
        """,
    )
    columns = 'n = "numerical", made = "timestamp", big = "identifier"'
    assert sorted(seen(source, tmp_path, "id, n, made, big", columns)) == [
        "0.3 4.0 2020-01-01 00:00:00 9007199254740992",
        "0.30000000000000004 3.7 2020-01-01 15:00:00 9007199254740993",
        "1000000000000001 1.0",
        "1000000000000002 0.30000000000000004",
    ]


VIEWS = """
CREATE TABLE things (id INTEGER PRIMARY KEY, n REAL, twice REAL AS (n * 2), picture BLOB);
INSERT INTO things (n, picture) VALUES (1.5, x'ff'), (2.5, x'00');
CREATE VIEW shown AS SELECT id, n + 1 AS more FROM things;
"""


def test_sql_sees_views_and_generated_columns_of_sqlite(tmp_path):
    source = database(tmp_path, VIEWS)
    words = seen(source, tmp_path, "twice, more", table="things JOIN shown USING (id)")
    assert sorted(words) == ["3 2.5", "5 3.5"]


def test_a_column_of_blobs_is_in_nobodys_way(tmp_path):
    source = database(tmp_path, VIEWS)
    (tmp_path / "schema.toml").write_text(
        ODD.format(columns='n = "numerical"', seen="picture", table="things")
    )
    with pytest.raises(headwater.SchemaError, match='"picture" not found'):
        headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")


def test_typed_columns_keep_their_types(tmp_path):
    source = {"things": pyarrow.table({"id": [1, 2], "n": [1, 2], "more": [0.5, 1.5]})}
    assert seen(
        source, tmp_path, "typeof(id), typeof(n), typeof(more)", table="things LIMIT 1"
    ) == ["BIGINT BIGINT DOUBLE"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a", "A"], 'columns "a" and "A" SQL cannot tell apart'),
        (["a"], 'has tables "THINGS" and "things", which SQL cannot tell apart'),
    ],
)
def test_names_that_sql_cannot_tell_apart_are_refused(source, message, tmp_path):
    table = pyarrow.table({"id": ["x"], "n": [1.0]} | {name: [1] for name in source})
    tables = {"things": table} | ({"THINGS": table} if len(source) == 1 else {})
    with pytest.raises(headwater.SchemaError, match=message):
        seen(tables, tmp_path, "n", table="things")


def test_the_order_of_seeds_does_not_depend_on_how_a_format_keeps_keys(tmp_path):
    """As numbers 9 comes before 10, as texts it does not; sums are of floats in the same order."""
    schema = SCHEMA + SQL_TASK
    (tmp_path / "schema.toml").write_text(schema)
    tables = shop()
    for name in tables:
        column = tables[name]["customer_id"]
        tables[name]["customer_id"] = [number - 95 for number in column]
    prices = tables["orders"]["price"]
    tables["orders"]["price"] = [None if price is None else price / 3 + 0.1 for price in prices]
    frames = {name: pyarrow.table(columns) for name, columns in tables.items()}
    parquet, file = tmp_path / "parquet", tmp_path / "shop.db"
    parquet.mkdir()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for name, columns in tables.items():
            pyarrow.parquet.write_table(frames[name], parquet / f"{name}.parquet")
            marks = ", ".join("?" * len(columns))
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            values = [
                [str(v) if name_ == "placed_at" else v for v in column]
                for name_, column in columns.items()
            ]
            connection.executemany(
                f"INSERT INTO {name} VALUES ({marks})", zip(*values, strict=True)
            )
        connection.commit()
    sources = [write_csv(tmp_path / "csv", tables), parquet, file, frames]
    roots = {
        headwater.prepare(source, tmp_path / "schema.toml", tmp_path / f"db{number}")["root"]
        for number, source in enumerate(sources)
    }
    assert len(roots) == 1
