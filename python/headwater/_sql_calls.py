"""Which tables a query reads, and what would make its rows differ from one run to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater._headwater import SchemaError

if TYPE_CHECKING:
    import duckdb

# Words that are calls without parentheses. A column of such a name cannot be told from them. `user`
# is not among them: it is always 'duckdb' here, and a likely name of a column.
_WORDS = {
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

# What tells of DuckDB, its version, the session or the machine.
_ABOUT = {"get_block_size", "user", "version"}
_ABOUT_PREFIXES = ("current_", "has_", "inet_", "pg_")

# The functions in FROM whose rows come from their arguments alone. Others read files or DuckDB's
# own state, or run SQL that stands in a string.
_ROW_FUNCTIONS = {
    "generate_series",
    "json_each",
    "json_tree",
    "range",
    "repeat",
    "repeat_row",
    "unnest",
}


class Calls:
    """The functions of a connection, and which of them vary.

    DuckDB says of each function whether its result depends on the arguments alone. Of a macro it
    says what it stands for.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        functions = connection.execute(
            "SELECT lower(function_name), stability, lower(coalesce(macro_definition, '')) "
            "FROM duckdb_functions()"
        ).fetchall()
        varying = {
            name
            for name, stability, _ in functions
            if stability in ("VOLATILE", "CONSISTENT_WITHIN_QUERY")
        }
        macros = {name for name, _, body in functions if _varies(body, varying)}
        self._varying = varying | macros | _WORDS | _ABOUT

    def tables(self, query: str) -> list[str]:
        """The tables that a SELECT reads, but for those of its own WITH.

        Raises:
            ValueError: The query cannot be read; the message says where.
            SchemaError: It reads something else than tables by their names, or its rows could
                differ from run to run.
        """
        row = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0]
        tree = json.loads(row[0])
        if tree["error"]:
            raise ValueError(tree["error_message"])
        found: dict[str, None] = {}
        for node, own in _nodes(tree, frozenset()):
            if varying := self._varying_node(node):
                raise SchemaError(
                    f"the SQL of a task uses {varying}, which can differ from one run to the next, "
                    "and so could the store; take the value from a column, or write it down"
                )
            if foreign := _foreign(node):
                raise SchemaError(
                    f"the SQL of a task reads {foreign}, expected tables of the source by their "
                    f"names, or one of {', '.join(sorted(_ROW_FUNCTIONS))}; make what it reads a "
                    "table of the source"
                )
            if node.get("type") == "BASE_TABLE" and not _is_own(node, own):
                found[node["table_name"]] = None
        return list(found)

    def _varying_node(self, node: dict[str, Any]) -> str | None:
        sample = node.get("sample")
        if sample and not sample["repeatable"]:
            return "USING SAMPLE or TABLESAMPLE without REPEATABLE"
        if node.get("class") == "COLUMN_REF":
            word = node["column_names"][0].lower()
            return word if len(node["column_names"]) == 1 and word in _WORDS else None
        name = node.get("function_name", "").lower()
        # With one argument it counts from today.
        is_age = name == "age" and len(node["arguments"]) == 1
        if name in self._varying or name.startswith(_ABOUT_PREFIXES) or is_age:
            return f"{name}()"
        return None


def folded(name: str) -> str:
    """A name as SQL compares it: `A` is `a`, and no other letter is another."""
    return name.encode().lower().decode()


def _is_own(table: dict[str, Any], own: frozenset[str]) -> bool:
    return not table["schema_name"] and folded(table["table_name"]) in own


def _foreign(node: dict[str, Any]) -> str | None:
    """What a part of a FROM reads that can be no table of the source."""
    match node.get("type"):
        case "BASE_TABLE":
            path = [node["catalog_name"], node["schema_name"], node["table_name"]]
            is_plain = not path[0] and folded(path[1]) in ("", "main")
            return None if is_plain else ".".join(filter(None, path))
        case "TABLE_FUNCTION":
            name: str = node["function"].get("function_name", "").lower()
            return None if name in _ROW_FUNCTIONS else f"{name}()"
        case "SHOW_REF":
            return "DESCRIBE, SHOW or SUMMARIZE"
    return None


def _varies(macro: str, varying: set[str]) -> bool:
    called = set(re.findall(r"(\w+)\s*\(", macro))
    return bool(called & varying or set(re.findall(r"\w+", macro)) & _WORDS)


def _nodes(tree: Any, own: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """The nodes of a tree, each with the names that WITH has given before it."""
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part, own)
    if not isinstance(tree, dict):
        return
    # What WITH names is known to what follows, not to its own query: there the name is a table's.
    for entry in (tree.get("cte_map") or {}).get("map", []):
        yield from _nodes(entry["value"], own)
        own |= {folded(entry["key"])}
    yield tree, own
    # But a recursive query knows itself, save in the part that it starts with.
    inner = own | {folded(tree["cte_name"])} if tree.get("type") == "RECURSIVE_CTE_NODE" else own
    for key, part in tree.items():
        if key != "cte_map":
            yield from _nodes(part, own if key == "left" else inner)
