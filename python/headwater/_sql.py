"""The SQL of tasks, run by DuckDB over the tables of a source.

A query sees the tables of the source by their names, views of SQLite among them, as the readers of
`prepare` read them. A column that arrives as text (each one of CSV and SQLite) has the type that
the schema gives it: a timestamp is a TIMESTAMP in UTC, a number a DOUBLE, a boolean a BOOLEAN;
identifiers, categories and texts, and columns that the schema does not type, are the VARCHAR that
they came as. A column that has a type already (Parquet, tables in memory) keeps it. A column that
SQLite declares a BLOB is left out unless the schema gives it a type other than ignored: its reader
takes no blobs.

DuckDB works on one thread here, in UTC, and the rows are sorted by the texts of all columns, even
those of a query that has an order of its own: neither their order nor the last bit of a sum depends
on the machine, nor the order on the type in which a format keeps a key.

DuckDB opens no file: what a query reads comes from here, and what does not fit into memory lies in
a folder of the preparation. A query that names anything but the source's tables, its own WITH and a
few functions that make rows of their arguments is refused, and so is a call that varies
(`random()`, `now()`, a sample without a seed), so that the same data make the same store. What
DuckDB leaves open, such as which of two equal rows comes first under a LIMIT, may change with its
version.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from headwater._headwater import SchemaError
from headwater._sql_calls import Calls, folded

if TYPE_CHECKING:
    import pyarrow

    from headwater._headwater import SqlTables


class Engine:
    """Runs queries over one source.

    Args:
        tables: The source's tables.
        scratch: A folder for what does not fit into memory; DuckDB makes it when it needs it.
    """

    def __init__(self, tables: SqlTables, scratch: str | os.PathLike[str]) -> None:
        try:
            import duckdb
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "a task of the schema is SQL, which needs DuckDB and pyarrow: "
                "pip install duckdb pyarrow"
            ) from error
        self._tables = tables
        self._error = duckdb.Error
        self._read: set[str] = set()
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "temp_directory": os.fspath(scratch),
            },
        )
        self._connection.execute("SET enable_progress_bar = false")
        # The setting belongs to an extension that a build of DuckDB may lack; times with a zone,
        # which alone need it, are then refused by DuckDB.
        with contextlib.suppress(duckdb.Error):
            self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self._calls = Calls(self._connection)

    def interrupt(self) -> None:
        """Ends the query that runs now, from another thread."""
        self._connection.interrupt()

    def query(self, query: str) -> pyarrow.RecordBatchReader:
        """Runs a query.

        Args:
            query: A SELECT statement in DuckDB's SQL.

        Returns:
            The rows, sorted by the texts of all columns.

        Raises:
            SchemaError: DuckDB refuses the query, it reads what is not the source's, or its rows
                could differ from run to run.
        """
        try:
            if [str(part.type) for part in self._connection.extract_statements(query)] != [
                "StatementType.SELECT"
            ]:
                raise SchemaError(f"the SQL of a task is one SELECT, found {query.strip()!r}")
            for name in self._calls.tables(query):
                self._copy(name)
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW headwater_query AS\n{query}")
            # As text a key has the same place whether it is an integer or not.
            rows = self._connection.sql("FROM headwater_query ORDER BY CAST(COLUMNS(*) AS VARCHAR)")
            return rows.to_arrow_reader(8192)
        except (self._error, ValueError) as error:
            raise SchemaError(f"DuckDB refuses the query: {error}") from error

    def _copy(self, name: str) -> None:
        """Makes a table of the source one of DuckDB's, unless it is already."""
        import pyarrow

        if folded(name) in self._read:
            return
        rows = pyarrow.RecordBatchReader.from_stream(self._tables.open(name))
        self._connection.register("headwater_rows", rows)
        self._connection.execute(f"CREATE TABLE {_quoted(name)} AS FROM headwater_rows")
        self._connection.unregister("headwater_rows")
        self._read.add(folded(name))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
