"""The SQL of tasks, run by DuckDB over the tables of a source.

A query sees each table of the source by its name. The columns of Parquet files and of tables in
memory have their types, those of CSV files the types that DuckDB finds by looking at every row,
those of SQLite tables the types that they are declared with.

DuckDB works on one thread here, in UTC, and the rows are sorted by all columns, even those of a
query that has an order of its own: neither their order nor the last bit of a sum depends on the
machine. It reads no file but those of the source, and a query with a call that varies (`random()`,
`now()`, a sample without a seed) is refused, so that the same data make the same store. What DuckDB
leaves open, such as which of two equal rows comes first under a LIMIT, may change with its version.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater._headwater import SchemaError, table_files
from headwater._sql_calls import Calls

if TYPE_CHECKING:
    import pyarrow

# Where the declared type of a SQLite column holds one of these, its values are cast to that type;
# the first that fits wins. All else stays text.
_SQLITE_TYPES = [
    ("INT", "BIGINT"),
    ("CHAR", "VARCHAR"),
    ("TEXT", "VARCHAR"),
    ("CLOB", "VARCHAR"),
    ("BOOL", "BOOLEAN"),
    ("TIMESTAMP", "TIMESTAMP"),
    ("DATETIME", "TIMESTAMP"),
    ("DATE", "DATE"),
    ("REAL", "DOUBLE"),
    ("FLOA", "DOUBLE"),
    ("DOUB", "DOUBLE"),
    ("NUM", "DOUBLE"),
    ("DEC", "DOUBLE"),
]


class Engine:
    """Runs queries over one source.

    Args:
        source: The path of a folder, a file or a SQLite file; or tables by name.
    """

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        try:
            import duckdb
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "a task of the schema is SQL, which needs DuckDB and pyarrow: "
                "pip install duckdb pyarrow"
            ) from error
        self._source = source
        self._files = None if isinstance(source, Mapping) else table_files(source)
        self._error = duckdb.Error
        self._registered: set[str] = set()
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        self._connection.execute("SET enable_progress_bar = false")
        # The setting belongs to an extension that a build of DuckDB may lack; times with a zone,
        # which alone need it, are then refused by DuckDB.
        with contextlib.suppress(duckdb.Error):
            self._connection.execute("SET TimeZone = 'UTC'")
        self._allow_only(path for paths in (self._files or {}).values() for path in paths)
        self._calls = Calls(self._connection)

    def _allow_only(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        """Lets queries read these files and no others, and change no setting."""
        listed = ", ".join(_quoted(os.fspath(path), "'") for path in paths)
        self._connection.execute(f"SET allowed_paths = [{listed}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def interrupt(self) -> None:
        """Ends the query that runs now, from another thread."""
        self._connection.interrupt()

    def query(self, query: str) -> pyarrow.RecordBatchReader:
        """Runs a query.

        Args:
            query: A SELECT statement in DuckDB's SQL.

        Returns:
            The rows, sorted by all columns.

        Raises:
            SchemaError: DuckDB refuses the query, or its rows could differ from run to run.
        """
        try:
            self._register(query)
            if [str(part.type) for part in self._connection.extract_statements(query)] != [
                "StatementType.SELECT"
            ]:
                raise SchemaError(f"the SQL of a task is one SELECT, found {query.strip()!r}")
            if varying := self._calls.varying(query):
                raise SchemaError(
                    f"the SQL of a task uses {varying}, which can differ from one run to the next, "
                    "and so could the store; take the value from a column, or write it down"
                )
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW headwater_query AS\n{query}")
            rows = self._connection.sql("FROM headwater_query ORDER BY ALL")
            return rows.to_arrow_reader(8192)
        except (self._error, ValueError) as error:
            raise SchemaError(f"DuckDB refuses the query: {error}") from error

    def _register(self, query: str) -> None:
        """Makes the tables that the query may name known to DuckDB."""
        import pyarrow

        words = query.lower()
        if isinstance(self._source, Mapping):
            for name, table in self._source.items():
                if self._is_new(name, words):
                    self._connection.register(name, pyarrow.table(table))
            return
        if self._files is None:
            self._register_sqlite(words)
            return
        for name, paths in self._files.items():
            if self._is_new(name, words):
                parts = [os.fspath(path) for path in paths]
                if parts[0].lower().endswith(".csv"):
                    rows = self._connection.read_csv(
                        parts[0], header=True, delimiter=",", sample_size=-1
                    )
                else:
                    rows = self._connection.read_parquet(parts)
                rows.create_view(name)

    def _register_sqlite(self, words: str) -> None:
        path = os.fspath(self._source)  # type: ignore[arg-type]
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            names = database.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
            for (name,) in names.fetchall():
                if self._is_new(name, words):
                    self._copy_sqlite(database, name)

    def _copy_sqlite(self, database: sqlite3.Connection, table: str) -> None:
        import pyarrow

        columns = database.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
        names = [column[1] for column in columns]
        as_text = ", ".join(f"CAST({_quoted(name)} AS TEXT)" for name in names)
        schema = pyarrow.schema([(name, pyarrow.string()) for name in names])
        rows = database.execute(f"SELECT {as_text} FROM {_quoted(table)}")
        batches = []
        while some := rows.fetchmany(65536):
            arrays = [pyarrow.array(values, pyarrow.string()) for values in zip(*some, strict=True)]
            batches.append(pyarrow.record_batch(arrays, schema=schema))
        self._connection.register("headwater_sqlite", pyarrow.Table.from_batches(batches, schema))
        casts = ", ".join(
            f"CAST({_quoted(name)} AS {_duckdb_type(column[2])}) AS {_quoted(name)}"
            for name, column in zip(names, columns, strict=True)
        )
        self._connection.execute(
            f"CREATE TABLE {_quoted(table)} AS SELECT {casts} FROM headwater_sqlite"
        )
        self._connection.unregister("headwater_sqlite")

    def _is_new(self, name: str, words: str) -> bool:
        """Whether a table is named in the query and not known yet."""
        if name in self._registered or name.lower() not in words:
            return False
        self._registered.add(name)
        return True


def _duckdb_type(declared: str) -> str:
    upper = declared.upper()
    return next((kind for part, kind in _SQLITE_TYPES if part in upper), "VARCHAR")


def _quoted(text: str, quote: str = '"') -> str:
    return quote + text.replace(quote, quote * 2) + quote
