"""Which calls in a query would make its rows differ from one run to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

# Words that are calls without parentheses. A column of such a name cannot be told from them.
_WORDS = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}

# What runs SQL that stands in a string, or tells of the machine.
_HIDDEN = {"query", "json_execute_serialized_sql"}
_HIDDEN_PREFIXES = ("duckdb_", "pragma_")


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
        self._varying = varying | macros | _WORDS | _HIDDEN

    def varying(self, query: str) -> str | None:
        """The first call in a SELECT whose result can differ between runs, as a person writes it.

        Raises:
            ValueError: The query cannot be read; the message says where.
        """
        row = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0]
        tree = json.loads(row[0])
        if tree["error"]:
            raise ValueError(tree["error_message"])
        return next(filter(None, map(self._varying_node, _nodes(tree))), None)

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
        if name in self._varying or name.startswith(_HIDDEN_PREFIXES) or is_age:
            return f"{name}()"
        return None


def _varies(macro: str, varying: set[str]) -> bool:
    called = set(re.findall(r"(\w+)\s*\(", macro))
    return bool(called & varying or set(re.findall(r"\w+", macro)) & _WORDS)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part)
