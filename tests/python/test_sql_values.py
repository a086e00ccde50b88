"""The values of a source that SQL reads."""

import contextlib
import shutil
import sqlite3

import pyarrow
import pyarrow.parquet
import pytest

import headwater
from shop import SCHEMA, SQL_TASK, shop, write_csv

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


def read(source, tmp_path, expression, columns='n = "numerical"', table="things"):
    """Returns the values of an SQL expression over a table: one text for each seed."""
    (tmp_path / "schema.toml").write_text(ODD.format(columns=columns, seen=expression, table=table))
    headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")
    store = headwater.Store(tmp_path / "db")
    task = store.metadata()["tasks"][0]
    stats = task["target"]["derived"]["column"]["stats"]
    first, count = stats["cat_emb_start"], stats["cat_emb_count"]
    assert task["seed_count"] == count
    return [store.category(first + index) for index in range(count)]


def database(tmp_path, script):
    """Makes a SQLite file."""
    path = tmp_path / "odd.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def csv_file(tmp_path, text):
    """Makes a source of one CSV file."""
    path = tmp_path / "things.csv"
    path.write_text(text)
    return path


def test_keys_of_csv_are_unchanged_texts(tmp_path):
    source = csv_file(tmp_path, "id,n\n1.10,2\n1.1,3\n1e2,4\n100,5\n")
    values = read(source, tmp_path, "typeof(id), id, n::INTEGER")
    assert sorted(values) == [
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
    assert read(source, tmp_path, types, columns, "things WHERE id = 'a'") == [
        "DOUBLE TIMESTAMP BOOLEAN VARCHAR VARCHAR"
    ]
    shutil.rmtree(tmp_path / "db")
    assert sorted(read(source, tmp_path, ", ".join(names), columns)) == [
        "1.0 2020-01-01 15:00:00.5 true 1 01/02/2020",
        "2.5 2019-12-31 22:00:00 false 02 2020-01-01",
    ]


def test_an_ambiguous_date_is_rejected_as_by_prepare(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    csv_file(source, "id,made\na,01/02/2020\n")
    (source / "dated.csv").write_text("id,made\na,01/02/2020\n")
    with pytest.raises(headwater.DataError) as prepared:
        read(source, tmp_path, "made", 'made = "timestamp"')
    assert 'column "made": 1 value cannot be read as timestamp: expected a time such as' in str(
        prepared.value
    )
    # DuckDB alone converts a table that has no types in the schema.
    with pytest.raises(headwater.SchemaError, match="DuckDB rejects the query: .*01/02/2020"):
        read(source, tmp_path, "made::TIMESTAMP", 'made = "text"', "dated")


def test_errors_of_readers_are_the_same_under_sql(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    csv_file(source, "id,n\na,1\n")
    (source / "broken.csv").write_text("id,n\n" + "a,1\n" * 100_000 + '"a"b,1\n')
    with pytest.raises(headwater.DataError) as caught:
        read(source, tmp_path, "n", table="broken")
    assert str(caught.value).startswith('task "seen": table "broken": ')
    assert "broken.csv" in str(caught.value)
    assert "DuckDB" not in str(caught.value)


def test_reals_and_integers_of_sqlite_stay_distinct(tmp_path):
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
    assert sorted(read(source, tmp_path, "id, n, made, big", columns)) == [
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
    values = read(source, tmp_path, "twice, more", table="things JOIN shown USING (id)")
    assert sorted(values) == ["3 2.5", "5 3.5"]


def test_a_column_of_blobs_is_left_out(tmp_path):
    source = database(tmp_path, VIEWS)
    (tmp_path / "schema.toml").write_text(
        ODD.format(columns='n = "numerical"', seen="picture", table="things")
    )
    with pytest.raises(headwater.SchemaError, match='"picture" not found'):
        headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")


def test_typed_columns_keep_their_types(tmp_path):
    source = {"things": pyarrow.table({"id": [1, 2], "n": [1, 2], "more": [0.5, 1.5]})}
    assert read(
        source, tmp_path, "typeof(id), typeof(n), typeof(more)", table="things LIMIT 1"
    ) == ["BIGINT BIGINT DOUBLE"]


def test_a_table_with_a_quote_in_its_name_is_read(tmp_path):
    table = pyarrow.table({"id": ["x"], "n": [1.0]})
    source = {"things": table, 'the "best"': table}
    assert read(source, tmp_path, "n", table='"the ""best"""') == ["1.0"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a", "A"], 'columns "a" and "A" SQL cannot tell apart'),
        (["a"], 'has tables "THINGS" and "things", which SQL cannot tell apart'),
    ],
)
def test_names_that_differ_only_in_case_are_rejected(source, message, tmp_path):
    table = pyarrow.table({"id": ["x"], "n": [1.0]} | {name: [1] for name in source})
    tables = {"things": table} | ({"THINGS": table} if len(source) == 1 else {})
    with pytest.raises(headwater.SchemaError, match=message):
        read(tables, tmp_path, "n", table="things")


def test_the_order_of_seeds_does_not_depend_on_the_type_of_keys(tmp_path):
    """By number 9 precedes 10, by text it does not; sums add floats in the same order."""
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
