"""Runs the SQL of tasks with DuckDB over the tables of a source.

A query reads the tables of the source by name, including views of SQLite, with the values that
`prepare` reads. A text column (every column of CSV and SQLite) has the type of the schema:
TIMESTAMP in UTC for timestamps, DOUBLE for numbers, BOOLEAN for booleans; identifiers, categories,
texts and columns that are not in the schema stay VARCHAR. A column with a type of its own (Parquet,
tables in memory) keeps it. A BLOB column of SQLite is left out, unless the schema gives it a type
other than ignored, because the reader rejects blobs.

`prepared.orders` is the table of the schema as `prepare` reads it: every column has the type that
the schema says, times with a unit are times, the columns of keys and references also have the text
by which keys are compared, as "customer_id as a key", and "row of the table" numbers the rows. The
query of a declared task reads these.

DuckDB runs on one thread and in UTC, and the rows are sorted by the texts of all columns, also for
a query with its own ORDER BY. So neither the order of rows nor the last bit of a sum depends on the
machine, and the order does not depend on the type of a key in the source.

DuckDB opens no files: tables come from the source, and DuckDB spills to a folder of the
preparation. A query may read only tables of the source, its own WITH and a few functions that make
rows of their arguments. A call whose result varies (`random()`, `now()`, a sample without a seed)
is rejected, so the same data make the same store. Where DuckDB defines no order, for example
between equal rows under a LIMIT, its version may matter.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from headwater._duckdb_errors import memory_or_interrupt
from headwater._headwater import DataError, IoError, SchemaError
from headwater._sql_calls import PREPARED, Calls, folded

if TYPE_CHECKING:
    import duckdb
    import pyarrow

    from headwater._headwater import SqlTables


class Engine:
    """Runs queries over one source.

    Args:
        tables: The source's tables.
        scratch: The folder to which DuckDB spills; DuckDB creates it when needed.
    """

    def __init__(self, tables: SqlTables, scratch: str | os.PathLike[str]) -> None:
        try:
            import duckdb
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "a task of the schema has sql, which needs DuckDB and pyarrow; install them: "
                "pip install duckdb pyarrow"
            ) from error
        self._tables = tables
        self._copied: set[tuple[str, str]] = set()
        self._is_stopped = False
        try:
            self._connection = self._connect(scratch)
            self._calls = Calls(self._connection)
        except duckdb.Error as error:
            raise memory_or_interrupt(error, "DuckDB cannot start") or error from error

    def _connect(self, scratch: str | os.PathLike[str]) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "temp_directory": os.fspath(scratch),
            },
        )
        connection.execute("SET enable_progress_bar = false")
        # The setting belongs to an extension that a build of DuckDB may lack; without it DuckDB
        # rejects times with a zone, which alone need the setting.
        with contextlib.suppress(duckdb.Error):
            connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def interrupt(self) -> None:
        """Ends the running query; called from another thread."""
        self._is_stopped = True
        self._connection.interrupt()

    def _go_on(self) -> None:
        """Stops between the steps of a query, which DuckDB does not interrupt before it runs."""
        if self._is_stopped:
            raise KeyboardInterrupt

    def query(self, query: str) -> pyarrow.RecordBatchReader:
        """Runs a query.

        Args:
            query: A SELECT statement in DuckDB's SQL.

        Returns:
            The rows, sorted by the texts of all columns.

        Raises:
            DataError: The query of a declared task refuses the data.
            SchemaError: DuckDB rejects the query, the query reads other tables than the source's,
                or its rows could change from run to run.
            MemoryError: DuckDB has too little memory for the query.
            IoError: DuckDB cannot write what does not fit into memory.
        """
        import duckdb

        try:
            if [str(part.type) for part in self._connection.extract_statements(query)] != [
                "StatementType.SELECT"
            ]:
                raise SchemaError(
                    f"expected one SELECT as the SQL of a task, found {query.strip()!r}"
                )
            self._go_on()
            for schema, name in self._calls.tables(query):
                self._go_on()
                self._copy(schema, name)
            self._go_on()
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW headwater_query AS\n{query}")
            self._go_on()
            # By text, so that keys sort alike as integers and as texts.
            rows = self._connection.sql("FROM headwater_query ORDER BY CAST(COLUMNS(*) AS VARCHAR)")
            self._go_on()
            return rows.to_arrow_reader(8192)
        except duckdb.IOException as error:
            # A query reads no file: it is one of those that DuckDB spills to.
            raise IoError(f"DuckDB cannot go on with the query: {error}") from error
        except (duckdb.Error, ValueError) as error:
            if found := memory_or_interrupt(error, "DuckDB cannot go on with the query"):
                raise found from error
            # The query of a declared task fails with a message of its own.
            _, is_own, message = str(error).partition("headwater: ")
            if is_own:
                raise DataError(message) from error
            raise SchemaError(f"DuckDB rejects the query: {error}") from error

    def _copy(self, schema: str, name: str) -> None:
        """Copies a table of the source, or of the schema, to DuckDB, if it is not copied yet."""
        import pyarrow

        if (schema, folded(name)) in self._copied:
            return
        is_prepared = schema == PREPARED
        open_rows = self._tables.open_prepared if is_prepared else self._tables.open
        rows = pyarrow.RecordBatchReader.from_stream(open_rows(name))
        self._connection.register("headwater_rows", rows)
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self._connection.execute(f"CREATE TABLE {schema}.{_quoted(name)} AS FROM headwater_rows")
        self._connection.unregister("headwater_rows")
        self._copied.add((schema, folded(name)))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
