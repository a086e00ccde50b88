"""Postgres as a source, on a server that the tests start."""

import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest

import headwater
from postgres import Server, programs

pytest.importorskip("adbc_driver_postgresql", reason="the ADBC driver of Postgres is not installed")

from headwater import _postgres

TABLES = """
CREATE TABLE customers (
    customer_id integer PRIMARY KEY, name varchar(40), city char(8), member boolean, note text
);
CREATE TABLE orders (
    order_id bigint PRIMARY KEY, customer_id integer REFERENCES customers,
    price numeric(12, 4), placed_at timestamp
);
"""


@pytest.fixture(scope="module")
def server():
    folder = programs()
    if folder is None:
        pytest.skip("the programs of a Postgres server (initdb, postgres, psql) are not installed")
    server = Server(folder)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shop_address(server, shop_folder):
    server.execute(TABLES)
    for table in ("customers", "orders"):
        # In an order of its own: the primary key is what counts.
        path = shop_folder / f"{table}.csv"
        server.execute(f"CREATE TABLE loaded AS SELECT * FROM {table} WHERE false")
        server.execute(f"\\copy loaded FROM '{path}' CSV HEADER")
        server.execute(f"INSERT INTO {table} SELECT * FROM loaded ORDER BY random()")
        server.execute("DROP TABLE loaded")
    return server.address()


@pytest.fixture
def database(server, request):
    """An empty database for one test; returns a function that runs SQL in it, and its address."""
    name = request.node.name[:40].lower()
    server.execute(f'CREATE DATABASE "{name}"', "postgres")
    yield lambda statements: server.execute(statements, name), server.address(database=name)
    server.execute(f'DROP DATABASE "{name}" WITH (FORCE)', "postgres")


def one_table(columns, name="t", key="k"):
    table = {"name": name, "columns": columns} | ({"key": key} if key else {})
    return {"database": "x", "table": [table]}


def prepared(address, columns, path, **options):
    headwater.prepare(address, one_table(columns, **options), path, dimension=8)
    return headwater.Store(path)


def test_postgres_makes_the_store_that_csv_makes(shop_address, tmp_path, schema_file, store_path):
    report = headwater.prepare(shop_address, schema_file, tmp_path / "db", dimension=32)
    assert report["root"] == headwater.Store(store_path).root


def test_declared_keys_and_references_are_drafted(shop_address):
    schema = tomllib.loads(headwater.draft_schema(shop_address, "shop"))
    tables = {table["name"]: table for table in schema["table"]}
    assert tables["customers"]["key"] == "customer_id"
    assert tables["orders"]["key"] == "order_id"
    assert tables["orders"]["references"] == [{"columns": "customer_id", "to": "customers"}]
    assert tables["orders"]["time"] == {"column": "placed_at"}
    text = headwater.draft_schema(shop_address, tables=["orders"])
    assert [table["name"] for table in tomllib.loads(text)["table"]] == ["orders"]
    with pytest.raises(headwater.SchemaError, match='no table "ordres"; did you mean "orders"'):
        headwater.draft_schema(shop_address, tables=["ordres"])


def test_the_command_reads_postgres(shop_address, tmp_path, schema_file, store_path):
    command = [Path(sys.executable).with_name("headwater")]
    drafted = tmp_path / "draft.toml"
    done = subprocess.run(
        [*command, "schema", shop_address, "--out", drafted],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 tables, 1 reference" in done.stdout
    assert 'database = "shop"' in drafted.read_text()
    options = ["--schema", schema_file, "--out", tmp_path / "db", "--dimension", "32"]
    done = subprocess.run(
        [*command, "prepare", shop_address, *options], capture_output=True, text=True, check=True
    )
    assert headwater.Store(store_path).root in done.stdout


def test_all_reads_see_one_snapshot(server, shop_address, tmp_path, schema_file, store_path):
    changed = []

    def change(*_):
        if not changed:
            changed.append(server.execute("INSERT INTO orders VALUES (-1, 100, 1, now())"))

    try:
        report = headwater.prepare(
            shop_address, schema_file, tmp_path / "db", dimension=32, progress=change
        )
    finally:
        server.execute("DELETE FROM orders WHERE order_id = -1")
    assert changed
    assert report["root"] == headwater.Store(store_path).root


def test_rows_without_a_key_are_sorted_by_all_columns(database, tmp_path):
    execute, address = database
    # An order of words, in which `a` comes before `B`.
    collation = execute("SELECT collname FROM pg_collation WHERE collname = 'en-x-icu'").strip()
    roots = set()
    for order in ("column1, column2", "column3::text DESC, column1 DESC"):
        execute(f"""
            DROP TABLE IF EXISTS t;
            CREATE TABLE t (a text COLLATE "{collation or "C"}", n numeric, j json);
            INSERT INTO t SELECT * FROM (VALUES
                ('b', 1.0, NULL::json), ('a', 2, '1'), ('B', 1.00, '[]'), ('a', NULL, '0'),
                ('ä', 1, NULL), ('b', 1, NULL)) AS v ORDER BY {order}
        """)
        columns = {"a": "categorical", "n": "numerical"}
        path = tmp_path / f"db{len(order)}"
        store = prepared(address, columns, path, key=None)
        roots.add(store.root)
        assert [store.row("t", index=row)["cells"]["a"] for row in range(6)] == [*"Baabbä"]
    assert len(roots) == 1


def test_each_type_has_the_value_of_its_text(database, tmp_path):
    execute, address = database
    execute("""
        CREATE TYPE mood AS ENUM ('sad', 'glad');
        CREATE DOMAIN code AS text;
        CREATE TABLE t (
            k uuid PRIMARY KEY, small int2, price numeric, weight float8, day date, naive timestamp,
            zoned timestamptz, mood mood, code code, fixed char(5), document jsonb, address inet,
            span interval, clock time, raw bytea
        );
        INSERT INTO t VALUES (
            '123e4567-e89b-12d3-a456-426614174000', 7, 12.50, 0.5, '2024-01-31',
            '2024-01-31 12:30', '2024-01-31 12:30+02', 'glad', 'x7', 'ab', '{"a": [1, 2]}',
            '10.0.0.1', '1 day 02:00', '12:30', '\\x01ff'
        )
    """)
    texts = ("mood", "code", "fixed", "document", "address", "span", "clock", "raw")
    columns = dict.fromkeys(texts, "categorical")
    columns |= dict.fromkeys(("small", "price", "weight"), "numerical")
    columns |= dict.fromkeys(("day", "naive", "zoned"), "timestamp")
    row = prepared(address, {"k": "identifier"} | columns, tmp_path / "db").row("t", index=0)
    cells = row["cells"]
    assert row["key"] == "123e4567-e89b-12d3-a456-426614174000"
    assert [cells[name] for name in ("small", "price", "weight")] == [7, 12.5, 0.5]
    times = [str(cells[name])[:16] for name in ("day", "naive", "zoned")]
    assert times == ["2024-01-31T00:00", "2024-01-31T12:30", "2024-01-31T10:30"]
    assert [cells[name] for name in texts] == [
        *("glad", "x7", "ab", '{"a": [1, 2]}', "10.0.0.1", "1 day 02:00:00", "12:30:00", "0x01ff")
    ]


def test_an_array_keeps_the_type_of_its_elements_or_has_their_texts(database):
    execute, address = database
    execute("""
        CREATE TABLE t (k int PRIMARY KEY, counts int[], prices numeric[]);
        INSERT INTO t VALUES (1, '{1, 2}', '{1.50}')
    """)
    source = _postgres.open_source(address)
    source.tables()
    rows = source.rows("t", ["counts", "prices"]).read_all()
    assert rows.to_pydict() == {"counts": [[1, 2]], "prices": [["1.50"]]}
    source.close()


def test_what_no_cell_holds_is_named(database, tmp_path):
    execute, address = database
    execute("""
        CREATE TABLE t (k int PRIMARY KEY, tags text[], numbers numeric[], until timestamp);
        INSERT INTO t VALUES (1, '{a,b}', '{1.5}', 'infinity')
    """)
    for column, kind in [("tags", "categorical"), ("numbers", "text")]:
        with pytest.raises(
            headwater.SchemaError,
            match=f'table "t": column "{column}": expected values that can be text, found List.*'
            "leave the column out of the schema",
        ):
            prepared(address, {"k": "identifier", column: kind}, tmp_path / "db")
    with pytest.raises(
        headwater.DataError, match='column "until": infinity is not a time .* make a view'
    ):
        prepared(address, {"k": "identifier", "until": "timestamp"}, tmp_path / "db")
    # An array that is ignored does not matter, and SQL can unpack it.
    task = {"anchor": "t", "key": "k", "time": "at", "target": "tag", "type": "categorical"}
    sql = "SELECT k, TIMESTAMP '2024-01-01' AS at, tags[1] AS tag FROM t"
    schema = one_table({"k": "identifier", "tags": "ignored", "until": "ignored"})
    execute("UPDATE t SET until = NULL")
    schema["task"] = [{"name": "tag", "derived": task | {"sql": sql}}]
    headwater.prepare(address, schema, tmp_path / "db", dimension=8)
    text = headwater.draft_schema(address)
    assert tomllib.loads(text)["table"][0]["columns"]["tags"] == "ignored"


def test_tables_of_other_schemas_have_the_schema_in_their_name(database, tmp_path):
    execute, address = database
    execute("""
        CREATE SCHEMA "Sales";
        CREATE TABLE "Sales".orders (k int PRIMARY KEY, "a ""b" text);
        CREATE TABLE orders (k int PRIMARY KEY, o int REFERENCES "Sales".orders) ;
        CREATE TABLE parts (k int, at date) PARTITION BY RANGE (at);
        CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
        CREATE VIEW dear AS SELECT k AS dear FROM orders;
        CREATE TABLE secret (k int);
        CREATE ROLE reader LOGIN;
        GRANT USAGE ON SCHEMA "Sales" TO reader;
        GRANT SELECT ON orders, "Sales".orders, parts, parts_1, dear TO reader;
        INSERT INTO "Sales".orders SELECT n, 'x' || n % 3 FROM generate_series(1, 50) n;
        INSERT INTO orders SELECT n, 51 - n FROM generate_series(1, 50) n;
        INSERT INTO parts SELECT 1 + n % 5, date '2024-01-01' + n FROM generate_series(1, 50) n;
    """)
    try:
        as_reader = address.replace("ann@", "reader@")
        schema = tomllib.loads(headwater.draft_schema(as_reader))
        sources = {table.get("source", table["name"]): table for table in schema["table"]}
        assert set(sources) == {"Sales.orders", "orders", "parts"}
        assert sources["orders"]["references"][0]["to"] == sources["Sales.orders"]["name"]
        assert headwater.prepare(as_reader, schema, tmp_path / "db")["row_count"] == 150
        view = tomllib.loads(headwater.draft_schema(as_reader, tables=["dear"]))
        assert view["table"][0]["name"] == "dear"
        with pytest.raises(headwater.SchemaError, match='no table "secret"'):
            headwater.draft_schema(as_reader, tables=["secret"])
        execute('CREATE TABLE "Sales.orders" (k int)')
        with pytest.raises(headwater.DataError, match="both have the name 'Sales.orders'"):
            headwater.draft_schema(address)
    finally:
        execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_view_that_fails_is_named_and_spoils_no_draft(database):
    execute, address = database
    execute("""
        CREATE TABLE t (k int PRIMARY KEY, v int);
        INSERT INTO t SELECT n, n % 3 FROM generate_series(1, 9) n;
        CREATE VIEW wrong AS SELECT 1 / (k - k) AS quotient FROM t
    """)
    assert 'name = "t"' in headwater.draft_schema(address)
    with pytest.raises(headwater.DataError, match="table 'wrong': .*division by zero"):
        headwater.draft_schema(address, tables=["wrong"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT k, random() AS x FROM t", r"a call of random\(\)"),
        ("SELECT k, x FROM (SELECT k, gen_random_uuid() AS x FROM t) AS inner_query", "gen_random"),
        ("SELECT k, now() AS x FROM t", r"now\(\)"),
        ("SELECT k, current_date AS x FROM t", "CURRENT_DATE"),
        ("SELECT k, age(at) AS x FROM t", r"age\(\)|CURRENT_DATE"),
        ("SELECT k, mine(k) AS x FROM t", r"a call of mine\(\)"),
        ("SELECT k, 1 AS x FROM t TABLESAMPLE bernoulli (50)", "TABLESAMPLE without REPEATABLE"),
        (
            "SELECT k, 1 AS x FROM t WHERE k > clock_timestamp()::text::date - at::date",
            "clock_time",
        ),
    ],
)
def test_a_view_whose_rows_change_from_read_to_read_is_refused(database, query, found):
    execute, address = database
    execute(f"""
        CREATE FUNCTION mine(k int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN k; END';
        CREATE TABLE t (k int PRIMARY KEY, at timestamp DEFAULT now());
        INSERT INTO t SELECT n, '2024-01-01' FROM generate_series(1, 9) n;
        CREATE VIEW below AS {query};
        CREATE VIEW v AS SELECT * FROM below
    """)
    words = f"table 'v': expected rows that depend on the data alone, found .*{found}"
    with pytest.raises(headwater.DataError, match=words):
        headwater.draft_schema(address, tables=["v"])
    assert headwater.draft_schema(address)


def test_a_view_may_call_what_depends_on_the_data_alone(database, tmp_path):
    execute, address = database
    execute("""
        CREATE FUNCTION mine(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN k; END';
        CREATE TABLE t (k int PRIMARY KEY, at timestamp);
        INSERT INTO t SELECT n, '2024-01-01' FROM generate_series(1, 9) n;
        CREATE VIEW v AS SELECT k, 'random()' AS "now()", date_trunc('day', at) AS at,
            age(at, '2023-01-01')::text AS since, mine(k) AS m, (k / 3.0)::numeric(10, 2) AS part,
            row_number() OVER (ORDER BY k) AS place FROM t TABLESAMPLE bernoulli (90) REPEATABLE (7)
    """)
    columns = {"k": "identifier", "now()": "text", "m": "numerical", "since": "text"}
    schema = {"database": "x", "table": [{"name": "v", "key": "k", "columns": columns}]}
    assert headwater.prepare(address, schema, tmp_path / "v", dimension=8)["row_count"] > 0


def test_names_with_quotes_are_read(database, tmp_path):
    execute, address = database
    execute("""
        CREATE VIEW "it's" AS
            SELECT n AS k, date '2024-01-01' + n AS "day's" FROM generate_series(1, 9) n
    """)
    columns = {"k": "identifier", "day's": "timestamp"}
    row = prepared(address, columns, tmp_path / "db", name="it's").row("it's", index=0)
    assert str(row["cells"]["day's"])[:10] == "2024-01-02"


def test_an_empty_database_is_told(database):
    _, address = database
    with pytest.raises(headwater.DataError, match="Postgres database .* holds no table"):
        headwater.draft_schema(address)


PASSWORD = "pa/s:w?r@d%é"
QUOTED = "pa%2Fs%3Aw%3Fr%40d%25%C3%A9"


def test_a_password_works_and_is_never_shown(server, database, tmp_path):
    execute, address = database
    execute(f"""
        CREATE ROLE bob LOGIN PASSWORD '{PASSWORD}';
        CREATE TABLE t (k int PRIMARY KEY);
        GRANT SELECT ON t TO bob;
        INSERT INTO t SELECT generate_series(1, 9)
    """)
    try:
        good = address.replace("ann@", f"bob:{QUOTED}@")
        text = headwater.draft_schema(good)
        headwater.prepare(good, tomllib.loads(text), tmp_path / "db", dimension=8)
        written = [text.encode()] + [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
        assert not any(secret.encode() in b for b in written for secret in (PASSWORD, QUOTED))
        assert "bob@" in text

        wrong = address.replace("ann@", "bob:secret%zz@")
        for bad in (
            wrong,
            address.replace("ann@", "bob:sec@ret/secret@"),
            address.replace("ann@", "bob:secret?secret@"),
            address.replace("ann@", "bob@") + "&password=secret",
            address.replace("ann@", "bob@") + "&password=secret&sslmode=secret",
            "postgresql://bob:secret@127.0.0.1:1/shop",
            "postgresql://bob:secret@[::1/shop",
        ):
            with pytest.raises(headwater.HeadwaterError) as raised:
                headwater.draft_schema(bad)
            assert "secret" not in str(raised.value)
            assert raised.value.__cause__ is None or "secret" not in str(raised.value.__cause__)
            done = subprocess.run(
                [Path(sys.executable).with_name("headwater"), "schema", bad],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 1
            assert "secret" not in done.stderr + done.stdout
        with pytest.raises(headwater.DataError, match="password authentication failed.*bob"):
            headwater.draft_schema(wrong)
    finally:
        execute("DROP OWNED BY bob; DROP ROLE bob")


@pytest.mark.parametrize(
    ("text", "full", "shown"),
    [
        ("postgresql:///shop", "postgresql:///shop?connect_timeout=30", "postgresql:///shop"),
        (
            "postgres://ann@h/shop",
            "postgres://ann@h/shop?connect_timeout=30",
            "postgres://ann@h/shop",
        ),
        (
            "postgresql://ann:a%2Fb%@h:5/shop?sslmode=require",
            "postgresql://ann:a%2Fb%25@h:5/shop?sslmode=require&connect_timeout=30",
            "postgresql://ann@h:5/shop",
        ),
        (
            "postgresql://ann:a@b:c@h/shop?connect_timeout=7&application_name=",
            "postgresql://ann:a%40b%3Ac@h/shop?connect_timeout=7&application_name=",
            "postgresql://ann@h/shop",
        ),
        (
            "postgresql://h/shop?password=a%20b",
            "postgresql://h/shop?password=a%20b&connect_timeout=30",
            "postgresql://h/shop",
        ),
        (
            "postgresql://h/shop?application_name=a://b",
            "postgresql://h/shop?application_name=a%3A%2F%2Fb&connect_timeout=30",
            "postgresql://h/shop",
        ),
    ],
)
def test_an_address_is_shown_without_its_password_and_waits_30_seconds(text, full, shown):
    address = _postgres.Address(text)
    assert address.full == full
    assert address.shown == shown


@pytest.mark.parametrize(
    "tail", ["h/sh@p", "h/shop?password=a@b", "h/shop#1", "ann:a/b@h", "a?b@h"]
)
def test_an_address_with_characters_that_could_be_of_a_password_is_refused(tail):
    with pytest.raises(headwater.InvalidArgument, match="special characters of a password with %"):
        _postgres.Address(f"postgresql://{tail}")


def test_an_address_without_a_server_is_named_in_plain_words():
    with pytest.raises(headwater.DataError, match="postgresql://ann@127.0.0.1:1/shop: ") as caught:
        _postgres.open_source("postgresql://ann@127.0.0.1:1/shop")
    assert "refused" in str(caught.value)
    assert "[libpq]" not in str(caught.value)


def test_a_message_has_no_form_of_a_password():
    address = _postgres.Address("postgresql://ann:pa%2Fss@h/shop?sslpassword=pa&passfile=")
    message = "cannot  take pa%2Fss\nor pa/ss or pa for shop"
    assert address.without_secrets(message) == "cannot take *** or *** or *** for shop"
    assert _postgres.Address("postgresql://h/shop?password=").without_secrets("a b") == "a b"


def test_a_running_query_can_be_interrupted(database):
    execute, address = database
    execute(
        "CREATE VIEW slow AS SELECT count(*) AS one, 'x' AS pause "
        "FROM generate_series(1, 100000000000)"
    )
    source = _postgres.open_source(address)
    source.tables()
    threading.Timer(1, source.interrupt).start()
    started = time.monotonic()
    # The rows come when they are read.
    with pytest.raises(Exception, match="cancel"):
        source.rows("slow", ["one", "pause"]).read_all()
    assert time.monotonic() - started < 30
    source.close()


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    with pytest.raises(ImportError, match=r"pip install 'headwater\[postgres\]'"):
        headwater.draft_schema("postgresql://nobody@/nowhere")


def test_connections_end_with_the_reading(server, shop_address, tmp_path, schema_file):
    headwater.prepare(shop_address, schema_file, tmp_path / "db", dimension=8)
    count = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND pid <> pg_backend_pid()"
    )
    end = time.monotonic() + 10
    while (found := server.execute(count).strip()) != "0" and time.monotonic() < end:
        time.sleep(0.1)
    assert found == "0"
