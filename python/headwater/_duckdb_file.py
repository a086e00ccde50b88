"""Reads the tables and views of a DuckDB file.

The file is opened read-only, and DuckDB locks it, so that no other process changes it meanwhile.
Tables come in the order in which DuckDB stores them: the order of insertion, until rows are deleted
or changed. One thread reads them, so that the order is the same on each machine. The rows of a view
are sorted by the texts of all columns.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater._database import Declared, quoted, stream, table_name, varying
from headwater._duckdb_errors import memory_or_interrupt
from headwater._headwater import DataError
from headwater._sql_calls import Calls

if TYPE_CHECKING:
    import duckdb
    import pyarrow

# The schema whose tables have their names alone.
_USUAL = "main"

# Types that Arrow, or a cell, has no form of; they are read as DuckDB writes them.
_AS_TEXT = ("BIGNUM", "BIT", "INTERVAL", "TIME", "TIME WITH TIME ZONE", "VARINT")


def open_source(path: str) -> DuckDbFile:
    """Opens a DuckDB file.

    Raises:
        ImportError: DuckDB or pyarrow is not installed.
        DataError: DuckDB cannot read the file.
    """
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{path} is a DuckDB file, which DuckDB and pyarrow read; install them: "
            "pip install 'headwater[sql]'"
        ) from error
    try:
        connection = duckdb.connect(
            path, read_only=True, config={"threads": 1, "autoinstall_known_extensions": False}
        )
        # A view may read files, which DuckDB does not lock.
        connection.execute("SET enable_external_access = false")
    except duckdb.Error as error:
        advice = ""
        if "different configuration" in str(error) or "lock" in str(error).lower():
            advice = (
                "; close the connections to the file, or pass tables of the open connection: "
                "{'orders': connection.table('orders')}"
            )
        raise _fault(error, f"DuckDB file {path}", advice) from error
    return DuckDbFile(path, connection)


def _fault(error: Exception, what: str, advice: str = "") -> BaseException:
    """Returns the error of this package for one of DuckDB's."""
    return memory_or_interrupt(error, what) or DataError(f"{what}: {error}{advice}")


class DuckDbFile:
    """A DuckDB file; see `headwater._database.Database`.

    Args:
        path: The path, for messages.
        connection: The connection, which this object closes.
    """

    def __init__(self, path: str, connection: duckdb.DuckDBPyConnection) -> None:
        self.description = f"DuckDB file {path}"
        self._connection = connection
        self._running: set[duckdb.DuckDBPyConnection] = set()
        self._places: dict[str, tuple[str, str]] = {}
        self._views: set[str] = set()
        # The queries of the views, by their names alone, and the expressions of computed columns.
        self._definitions: dict[str, list[str]] = {}
        self._computed: dict[str, list[str]] = {}
        self._calls: Calls | None = None
        self._checked: set[str] = set()

    def tables(self) -> list[Declared]:
        """Returns the tables and views."""
        with self._own_errors():
            return self._tables()

    def _tables(self) -> list[Declared]:
        found = self._connection.execute(
            "SELECT schema_name, table_name, false, sql FROM duckdb_tables() "
            "WHERE NOT internal AND NOT temporary AND database_name = current_database() "
            "UNION ALL SELECT schema_name, view_name, true, sql FROM duckdb_views() "
            "WHERE NOT internal AND NOT temporary AND database_name = current_database() "
            "ORDER BY ALL"
        ).fetchall()
        tables: dict[tuple[str, str], Declared] = {}
        for schema, table, is_view, definition in found:
            name = table_name(schema, table, _USUAL)
            if name in self._places:
                raise DataError(
                    f"{self.description}: {'.'.join(self._places[name])} and {schema}.{table} both "
                    f"have the name {name!r} as a table of a source; rename one of them"
                )
            self._places[name] = (schema, table)
            if is_view:
                self._views.add(name)
                begin = re.compile(r"CREATE VIEW .*? AS (?=SELECT|WITH|FROM|\(|VALUES)", re.DOTALL)
                query = begin.sub("", definition, count=1)
                self._definitions.setdefault(table, []).append(query.rstrip("; \n"))
            else:
                self._computed[name] = list(_computed(definition or ""))
            tables[schema, table] = Declared(name, is_view)
        constraints = self._connection.execute(
            "SELECT schema_name, table_name, constraint_column_names, referenced_table, "
            "referenced_column_names FROM duckdb_constraints() "
            "WHERE constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY') "
            "AND database_name = current_database() ORDER BY table_oid, constraint_index"
        ).fetchall()
        for schema, table, columns, parent, parent_columns in constraints:
            declared = tables[schema, table]
            if parent is None:
                declared.key = columns
            else:
                # DuckDB has no foreign keys between schemas.
                to = table_name(schema, parent, _USUAL)
                declared.references.append((columns, to, parent_columns))
        return list(tables.values())

    def empty(self, table: str) -> pyarrow.Table:
        """Returns all columns of a table with their types, and no row."""
        return self._query(table, None, "LIMIT 0").read_all()

    def rows(self, table: str, columns: list[str]) -> pyarrow.RecordBatchReader:
        """Returns columns of a table, with the rows in an order that does not depend on them."""
        order = ""
        with self._own_errors():
            self._check(table)
            names = self._types(self._connection.cursor(), table) if table in self._views else {}
        if names:
            texts = ", ".join(f"CAST({quoted([name])} AS VARCHAR)" for name in names)
            order = f"ORDER BY {texts}"
        return self._query(table, columns, order)

    def _check(self, table: str) -> None:
        """Checks that the rows of a table are the same in each read.

        Raises:
            DataError: A view, or a computed column, calls what varies.
        """
        if table in self._checked:
            return
        if self._calls is None:
            self._calls = Calls(self._connection.cursor())
        queries = list(self._computed.get(table, []))
        names = [self._places[table][1]] if table in self._views else []
        # Views of the same name in other schemas are checked, too: a name may mean either.
        for name in names:
            queries += self._definitions[name]
            for query in self._definitions[name]:
                _, read = self._varying(query)
                names += [view for view in read if view in self._definitions and view not in names]
        for query in queries:
            if call := self._varying(query)[0]:
                raise varying(self.description, table, call)
        self._checked.add(table)

    def _varying(self, query: str) -> tuple[str | None, set[str]]:
        assert self._calls is not None
        try:
            return self._calls.varying(query)
        except ValueError:
            # What DuckDB cannot write as JSON cannot be judged.
            return None, set()

    @contextlib.contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Raises errors of this package for those of DuckDB."""
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            raise _fault(error, self.description) from error

    def interrupt(self) -> None:
        """Ends the queries that run; called from another thread."""
        for connection in list(self._running):
            connection.interrupt()

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def _query(self, table: str, columns: list[str] | None, end: str) -> pyarrow.RecordBatchReader:
        import duckdb

        connection = self._connection.cursor()

        def close() -> None:
            self._running.discard(connection)
            connection.close()

        def fault(error: Exception) -> BaseException:
            advice = ""
            if isinstance(error, duckdb.PermissionException):
                advice = (
                    "; a view may read no files, because other programs may change them meanwhile: "
                    "write its rows to a table"
                )
            return _fault(error, f"{self.description}: table {table!r}", advice)

        self._running.add(connection)
        try:
            # A build may lack the extension of the setting; times with a zone are instants.
            with contextlib.suppress(duckdb.Error):
                connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_progress_bar = false")
            types = self._types(connection, table)
            selected = [
                f"CAST({quoted([name])} AS VARCHAR) AS {quoted([name])}"
                if types[name] in _AS_TEXT
                else quoted([name])
                for name in (types if columns is None else columns)
            ]
            # A row without columns still counts.
            what = ", ".join(selected) or "1"
            query = f"SELECT {what} FROM {self._place(table)} {end}"
            return stream(connection.sql(query).to_arrow_reader(8192), close, fault)
        except duckdb.Error as error:
            close()
            raise fault(error) from error

    def _types(self, connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
        """Returns the names and types of the columns."""
        relation = connection.sql(f"FROM {self._place(table)}")
        return dict(zip(relation.columns, map(str, relation.types), strict=True))

    def _place(self, table: str) -> str:
        return ".".join(quoted([part]) for part in self._places[table])


def _computed(definition: str) -> Iterator[str]:
    """Yields a query for the expression of each computed column of a CREATE TABLE."""
    # Quotes hide parentheses; a text as long keeps the places.
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", lambda quote: "_" * len(quote[0]), definition)
    for found in re.finditer(r"GENERATED ALWAYS AS\s*\(", plain):
        depth = 1
        for at in range(found.end(), len(plain)):
            depth += {"(": 1, ")": -1}.get(plain[at], 0)
            if depth == 0:
                yield f"SELECT {definition[found.end() : at]}"
                break
