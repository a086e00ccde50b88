"""Finds the tables that a query reads, and rejects calls whose results vary."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater._headwater import SchemaError

if TYPE_CHECKING:
    import duckdb

# Functions without parentheses. A column of such a name cannot be distinguished from the call.
# `user` is not included: here it is always 'duckdb', and it is a likely name of a column.
_BARE_FUNCTIONS = {
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "localtime",
    "localtimestamp",
    "session_user",
}

# Functions about DuckDB, its version, the session or the machine.
_ENVIRONMENT = {"get_block_size", "user", "version"}
_ENVIRONMENT_PREFIXES = ("current_", "has_", "inet_", "pg_")

# DuckDB says of them that they vary, for it may take the zone from the session, which is UTC here.
_OF_A_ZONE = {"make_timestamptz", "timezone"}

# The functions in FROM whose rows depend only on their arguments. Others read files or DuckDB's
# own state, or run the SQL in a string.
_ROW_FUNCTIONS = {
    "generate_series",
    "json_each",
    "json_tree",
    "range",
    "repeat",
    "repeat_row",
    "unnest",
}


# The tables of the schema, as `prepare` reads them; all others are those of the source.
PREPARED = "prepared"


class Calls:
    """The functions of a connection whose results vary.

    DuckDB lists for each form of a function whether its result depends only on the arguments, and
    for each macro its definition. A form that takes a time with a zone also depends on the
    time zone of the session, which is always UTC here, so it counts as one that does not vary.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        functions = connection.execute(
            "SELECT lower(function_name), stability, lower(coalesce(macro_definition, '')) "
            "FROM duckdb_functions() WHERE NOT regexp_matches(CAST(parameter_types AS VARCHAR), "
            "'TIME ZONE|TIMESTAMPTZ') OR parameter_types IS NULL"
        ).fetchall()
        varying = {
            name
            for name, stability, _ in functions
            if stability in ("VOLATILE", "CONSISTENT_WITHIN_QUERY")
        } - _OF_A_ZONE
        macros = {name for name, _, body in functions if _varies(body, varying)}
        # A query that calls error() has no rows that could vary.
        self._varying = (varying - {"error"}) | macros | _BARE_FUNCTIONS | _ENVIRONMENT

    def tables(self, query: str) -> list[tuple[str, str]]:
        """Returns the tables that a SELECT reads, except those of its own WITH.

        Each has its DuckDB schema, `main` or `prepared`, and its name.

        Raises:
            ValueError: The query cannot be parsed; the message names the place.
            SchemaError: The query reads something other than tables by name, or its rows could
                change from run to run.
        """
        found: dict[tuple[str, str], None] = {}
        for node, own in self._nodes(query):
            if varying := self._varying_node(node):
                raise SchemaError(
                    f"the SQL of a task uses {varying}, whose result can change from run to run; "
                    "use a column or a constant instead"
                )
            if foreign := _foreign(node):
                raise SchemaError(
                    f"the SQL of a task reads {foreign}, expected tables of the source by name, or "
                    f"one of {', '.join(sorted(_ROW_FUNCTIONS))}; add the rows to the source as a "
                    "table"
                )
            if node.get("type") == "BASE_TABLE" and not _is_own(node, own):
                found[folded(node["schema_name"]) or "main", node["table_name"]] = None
        return list(found)

    def varying(self, query: str) -> tuple[str | None, set[str]]:
        """Returns the first call of a SELECT that varies, and the names of the tables it reads.

        Raises:
            ValueError: The query cannot be parsed.
        """
        varying, tables = None, set()
        for node, own in self._nodes(query):
            varying = varying or self._varying_node(node)
            if node.get("type") == "BASE_TABLE" and not _is_own(node, own):
                tables.add(node["table_name"])
        return varying, tables

    def _nodes(self, query: str) -> list[tuple[dict[str, Any], frozenset[str]]]:
        row = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0]
        try:
            tree = json.loads(row[0])
            if tree["error"]:
                raise ValueError(tree["error_message"])
            return list(_nodes(tree, frozenset()))
        except RecursionError:
            raise ValueError(
                "its parts are nested too deeply to be checked; divide it with WITH"
            ) from None

    def _varying_node(self, node: dict[str, Any]) -> str | None:
        sample = node.get("sample")
        if sample and not sample["repeatable"]:
            return "USING SAMPLE or TABLESAMPLE without REPEATABLE"
        if node.get("class") == "COLUMN_REF":
            name = node["column_names"][0].lower()
            return name if len(node["column_names"]) == 1 and name in _BARE_FUNCTIONS else None
        name = node.get("function_name", "").lower()
        # With one argument, age() counts from today.
        is_age = name == "age" and len(node["arguments"]) == 1
        if name in self._varying or name.startswith(_ENVIRONMENT_PREFIXES) or is_age:
            return f"{name}()"
        return None


def folded(name: str) -> str:
    """Returns a name as SQL compares it: in lower case, but only the letters A to Z."""
    return name.encode().lower().decode()


def _is_own(table: dict[str, Any], own: frozenset[str]) -> bool:
    return not table["schema_name"] and folded(table["table_name"]) in own


def _foreign(node: dict[str, Any]) -> str | None:
    """Returns what a node of a FROM reads, if it cannot be a table of the source."""
    match node.get("type"):
        case "BASE_TABLE":
            path = [node["catalog_name"], node["schema_name"], node["table_name"]]
            is_plain = not path[0] and folded(path[1]) in ("", "main", PREPARED)
            return None if is_plain else ".".join(filter(None, path))
        case "TABLE_FUNCTION":
            name: str = node["function"].get("function_name", "").lower()
            return None if name in _ROW_FUNCTIONS else f"{name}()"
        case "SHOW_REF":
            return "DESCRIBE, SHOW or SUMMARIZE"
    return None


def _varies(macro: str, varying: set[str]) -> bool:
    called = set(re.findall(r"(\w+)\s*\(", macro))
    return bool(called & varying or set(re.findall(r"\w+", macro)) & _BARE_FUNCTIONS)


def _nodes(tree: Any, own: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yields the nodes of a tree, each with the names of the WITH entries in scope."""
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part, own)
    if not isinstance(tree, dict):
        return
    # A name of a WITH is in scope after its own query; in that query the name is a table's.
    for entry in (tree.get("cte_map") or {}).get("map", []):
        yield from _nodes(entry["value"], own)
        own |= {folded(entry["key"])}
    yield tree, own
    # The name of a recursive query is in scope in the query, except in its first part.
    inner = own | {folded(tree["cte_name"])} if tree.get("type") == "RECURSIVE_CTE_NODE" else own
    for key, part in tree.items():
        if key != "cte_map":
            yield from _nodes(part, own if key == "left" else inner)
