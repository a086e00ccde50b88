"""What a query reads and calls, as `_sql_calls` finds it, without a store."""

import duckdb
import pytest

import headwater
from headwater._sql_calls import Calls


@pytest.fixture(scope="module")
def calls():
    with duckdb.connect() as connection:
        connection.execute("CREATE MACRO chance(x) AS x + random()")
        connection.execute("CREATE MACRO day_of() AS current_date")
        connection.execute("CREATE MACRO twice(x) AS 2 * x")
        yield Calls(connection)


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT 1", []),
        ("FROM b, a, b", [("main", "b"), ("main", "a")]),
        ("FROM main.a JOIN Prepared.a USING (k)", [("main", "a"), ("prepared", "a")]),
        ("SELECT (SELECT max(x) FROM a) FROM b WHERE EXISTS (FROM c)", "bac"),
        # The name of a WITH is its own, but only after its query and where no schema is given.
        ("WITH a AS (SELECT 1) FROM A", []),
        ("WITH a AS (FROM a) FROM a", "a"),
        ("WITH a AS (SELECT 1), b AS (FROM a) FROM b", []),
        ("WITH a AS (FROM b), b AS (SELECT 1) FROM a", "b"),
        ("WITH a AS (SELECT 1) FROM main.a", "a"),
        ("FROM (WITH a AS (SELECT 1) FROM a), a", "a"),
        ("WITH Ä AS (SELECT 1) FROM ä", "ä"),
        # That of a recursive one is its own in all but the first part.
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) FROM r",
            [],
        ),
        ("WITH RECURSIVE r AS (SELECT n FROM r UNION ALL SELECT n + 1 FROM r) FROM r", "r"),
        ("FROM a, range(2), generate_series(1, 3), unnest([1]), repeat_row(1, num_rows = 2)", "a"),
    ],
)
def test_the_tables_of_a_query_are_those_it_reads(calls, query, tables):
    wanted = [("main", name) for name in tables] if isinstance(tables, str) else tables
    assert sorted(calls.tables(query)) == sorted(wanted)
    assert calls.varying(query) == (None, {name for _, name in wanted})


@pytest.mark.parametrize(
    ("query", "call"),
    [
        ("SELECT random() FROM a", "random()"),
        ('SELECT "RANDOM"() FROM a', "random()"),
        ("SELECT x FROM a ORDER BY uuid()", "uuid()"),
        ("SELECT now() FROM a", "now()"),
        ("SELECT CURRENT_DATE FROM a", "current_date"),
        ("SELECT localtime FROM a", "localtime"),
        ("SELECT user() FROM a", "user()"),
        ("SELECT version() FROM a", "version()"),
        ("SELECT pg_my_temp_schema() FROM a", "pg_my_temp_schema()"),
        ("SELECT has_table_privilege('a', 'SELECT') FROM a", "has_table_privilege()"),
        ("SELECT current_schemas(true) FROM a", "current_schemas()"),
        ("SELECT age(x) FROM a", "age()"),
        ("SELECT chance(x) FROM a", "chance()"),
        ("SELECT day_of() FROM a", "day_of()"),
        ("FROM a TABLESAMPLE 10%", "USING SAMPLE or TABLESAMPLE without REPEATABLE"),
        ("FROM a USING SAMPLE 10 ROWS", "USING SAMPLE or TABLESAMPLE without REPEATABLE"),
        # The first of several.
        ("SELECT uuid() FROM a WHERE x > random()", "uuid()"),
    ],
)
def test_a_call_that_varies_is_named(calls, query, call):
    assert calls.varying(query) == (call, {"a"})
    with pytest.raises(headwater.SchemaError) as caught:
        calls.tables(query)
    assert f"the SQL of a task uses {call}, whose result can change" in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT twice(x), abs(x), date_part('year', x), x::DATE FROM a",
        "SELECT age(x, y) FROM a",
        'SELECT a.current_date, "user" FROM a',
        "SELECT 'random()' AS \"now()\" FROM a -- uuid()",
        "SELECT error(x) FROM a",
        "FROM a USING SAMPLE 10 ROWS (reservoir, 7)",
        "FROM a TABLESAMPLE bernoulli (10%) REPEATABLE (7)",
        "SELECT x AT TIME ZONE 'Europe/Berlin', make_timestamptz(2024, 1, 2, 3, 4, 5.6) FROM a",
        "SELECT date_trunc('day', x::TIMESTAMPTZ), strftime(x::TIMESTAMPTZ, '%d') FROM a",
    ],
)
def test_what_depends_on_the_rows_alone_does_not_vary(calls, query):
    assert calls.varying(query) == (None, {"a"})
    assert calls.tables(query) == [("main", "a")]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("FROM other.main.a", "other.main.a"),
        ("FROM other.a", "other.a"),
        ("FROM information_schema.tables", "information_schema.tables"),
        ("FROM read_csv('a.csv')", "read_csv()"),
        ("FROM \"Glob\"('*')", "glob()"),
        ("FROM query('SELECT 1')", "query()"),
        ("FROM (DESCRIBE a)", "DESCRIBE, SHOW or SUMMARIZE"),
    ],
)
def test_a_source_in_from_that_is_no_table_is_named(calls, query, found):
    with pytest.raises(headwater.SchemaError) as caught:
        calls.tables(query)
    message = str(caught.value)
    assert message.startswith(f"the SQL of a task reads {found}, expected tables of the source")
    assert "or one of generate_series, json_each, json_tree, range, repeat" in message
    # A view of a file may read what a query of a task may not.
    assert calls.varying(query)[0] is None


def test_a_query_that_cannot_be_parsed_is_an_error(calls):
    for judge in (calls.tables, calls.varying):
        with pytest.raises(ValueError, match=r"(?i)syntax error"):
            judge("SELECT FROM WHERE")
        with pytest.raises(
            ValueError, match="nested too deeply to be checked; divide it with WITH"
        ):
            judge("SELECT " + "abs(" * 900 + "1" + ")" * 900)
