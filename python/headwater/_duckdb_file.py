"""Reads the tables and views of a DuckDB file.

The file is opened read-only, and DuckDB locks it, so that no other process changes it meanwhile.
Tables come in the order in which DuckDB stores them: the order of insertion, until rows are deleted
or changed. One thread reads them, so that the order is the same on each machine. The rows of a view
are sorted by the texts of all columns.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from headwater._database import Declared, quoted, stream, table_name
from headwater._headwater import DataError

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
    except duckdb.Error as error:
        advice = ""
        if "different configuration" in str(error) or "lock" in str(error).lower():
            advice = (
                "; close the connections to the file, or pass tables of the open connection: "
                "{'orders': connection.table('orders')}"
            )
        raise DataError(f"DuckDB file {path}: {error}{advice}") from error
    return DuckDbFile(path, connection)


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

    def tables(self) -> list[Declared]:
        """Returns the tables and views."""
        found = self._connection.execute(
            "SELECT schema_name, table_name, false FROM duckdb_tables() "
            "WHERE NOT internal AND NOT temporary AND database_name = current_database() "
            "UNION ALL SELECT schema_name, view_name, true FROM duckdb_views() "
            "WHERE NOT internal AND NOT temporary AND database_name = current_database() "
            "ORDER BY ALL"
        ).fetchall()
        tables: dict[tuple[str, str], Declared] = {}
        for schema, table, is_view in found:
            name = table_name(schema, table, _USUAL)
            if name in self._places:
                raise DataError(
                    f"{self.description}: {'.'.join(self._places[name])} and {schema}.{table} both "
                    f"have the name {name!r} as a table of a source; rename one of them"
                )
            self._places[name] = (schema, table)
            self._views |= {name} if is_view else set()
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
        if table in self._views:
            names = self._types(self._connection.cursor(), table)
            texts = ", ".join(f"CAST({quoted([name])} AS VARCHAR)" for name in names)
            order = f"ORDER BY {texts}"
        return self._query(table, columns, order)

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

        def fault(error: Exception) -> DataError:
            return DataError(f"{self.description}: table {table!r}: {error}")

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
