"""Reads the tables and views of a Postgres database.

All reads see the database at one moment: the first connection exports the snapshot of its
transaction, and every other connection takes it over. The transactions are REPEATABLE READ, READ
ONLY. The rows are sorted by the primary key; without one, by all columns. Texts are compared by
their bytes, so that no collation of the server matters.

Booleans, integers, floats, texts, times, bytes, and arrays come with their Arrow type; every other
type (numeric, uuid, json, enum, ...) comes as the text that Postgres writes in a CSV file.
"""

from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from headwater._database import Declared, quoted, stream, table_name, varying
from headwater._headwater import DataError, InvalidArgument

if TYPE_CHECKING:
    import pyarrow

# The schema whose tables have their names alone.
_USUAL = "public"

# The types that keep their own Arrow type.
_NATIVE = {"bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "bytea"}
# The times; Postgres has values outside their range, such as infinity.
_TIMES = {"date", "timestamp", "timestamptz"}
# Of values of these types, none are equal and yet different.
_EXACT = {"bool", "int2", "int4", "int8", "date", "timestamp", "timestamptz"}

_TABLES = """
SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind IN ('v', 'm')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND NOT c.relispartition
AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""

_COLUMNS = """
SELECT a.attrelid::int8, a.attname::text,
    CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE '' END,
    CASE WHEN t.typcategory <> 'A' THEN NULL
        WHEN e.typnamespace = 'pg_catalog'::regnamespace THEN e.typname::text ELSE '' END
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
ORDER BY a.attrelid, a.attnum
"""

_KEYS = """
SELECT k.conrelid::int8, k.confrelid::int8,
    ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS p(number, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = p.number
        ORDER BY p.place),
    ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS p(number, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = p.number
        ORDER BY p.place)
FROM pg_catalog.pg_constraint k
WHERE k.contype IN ('p', 'f') AND k.conparentid = 0 ORDER BY k.oid
"""

# The queries of a view and of those that it reads. A materialized view has rows of its own.
_DEFINITIONS = """
WITH RECURSIVE views(oid) AS (
    SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = '{}'::regclass AND c.relkind = 'v'
    UNION SELECT c.oid FROM views JOIN pg_catalog.pg_rewrite r ON r.ev_class = views.oid
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass
        AND d.objid = r.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
    JOIN pg_catalog.pg_class c ON c.oid = d.refobjid AND c.relkind = 'v')
SELECT pg_catalog.pg_get_viewdef(oid) FROM views
"""

# Functions whose result is the time; Postgres says of them that they do not change within a query.
_CLOCKS = {
    "age", "localtime", "localtimestamp", "now", "statement_timestamp", "transaction_timestamp",
}  # fmt: skip
# These are written without parentheses.
_BARE_CLOCKS = r"\b(?:CURRENT_DATE|CURRENT_TIME|CURRENT_TIMESTAMP|LOCALTIME|LOCALTIMESTAMP)\b"

_SETTINGS = """
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO, YMD';
SET LOCAL IntervalStyle = 'postgres';
SET LOCAL bytea_output = 'hex';
SET LOCAL extra_float_digits = 1;
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0
"""


def open_source(address: str) -> Postgres:
    """Connects to a database, such as postgresql://ann@host/shop.

    Raises:
        ImportError: The ADBC driver or pyarrow is not installed.
        InvalidArgument: The address cannot be understood.
        DataError: Postgres does not answer, or refuses the connection.
    """
    try:
        import adbc_driver_postgresql.dbapi  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "reading Postgres needs the ADBC driver and pyarrow; install them: "
            "pip install 'headwater[postgres]'"
        ) from error
    return Postgres(Address(address))


class Address:
    """The address of a database, and its password apart from it.

    Args:
        text: An address as libpq reads it.
    """

    def __init__(self, text: str) -> None:
        scheme, rest = text.split("://", 1)
        head, _, settings = rest.partition("?")
        authority, slash, path = head.partition("/")
        # A password with an unescaped / or ? would be taken for a host, and shown.
        if "@" in path or "@" in settings or "#" in rest:
            raise InvalidArgument(
                "expected an address such as postgresql://USER@HOST/DATABASE, found an @ after the "
                "host, or a #; write the special characters of a password with %: %2F for /, "
                "%3F for ?, %23 for #, %40 for @"
            )
        user, at, host = authority.rpartition("@")
        user, _, password = user.partition(":")
        pairs = parse_qsl(settings, keep_blank_values=True)
        self._secrets = {value for name, value in pairs if "password" in name}
        if password:
            self._secrets |= {password, unquote(password)}
            user += ":" + quote(unquote(password), safe="")
        if all(name != "connect_timeout" for name, _ in pairs):
            pairs.append(("connect_timeout", "30"))
        settings = urlencode(pairs, quote_via=quote)
        self.full = f"{scheme}://{user}{at}{host}{slash}{path}?{settings}"
        self.shown = f"{scheme}://{user.partition(':')[0]}{at}{host}{slash}{path}"

    def without_secrets(self, message: object) -> str:
        """Returns a message of the driver on one line, without a password."""
        text = " ".join(str(message).split())
        for secret in sorted(self._secrets - {""}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


class Column:
    """A column of a table, and how it is read and compared.

    Args:
        name: The name.
        kind: The name of the type; empty if it is not one of Postgres' own.
        element: The same of the elements of an array; None if the column is no array.
    """

    def __init__(self, name: str, kind: str, element: str | None) -> None:
        self.name = name
        column = quoted([name])
        if kind in _TIMES and element is None:
            # Arrow has no infinity; the driver would wrap around. The cast fails with words.
            literal = f"column {column}: ".replace("'", "''")
            advice = " is not a time that a cell can hold; make a view in which it is NULL"
            fault = f"'{literal}' || {column}::text || '{advice}'"
            value = (
                f"CASE WHEN {column} BETWEEN {kind} '4713-01-01 BC' AND {kind} '200000-01-01' "
                f"THEN {column} ELSE CAST({fault} AS {kind}) END"
            )
        elif element is not None:
            value = column if element in _NATIVE else f"{column}::text[]"
        elif kind == "inet":
            # The cast to text would add the length of the network to a host.
            value = f"CASE WHEN {column} IS NOT NULL THEN format('%s', {column}) END"
        else:
            value = column if kind in _NATIVE else f"{column}::text"
        self.value = f"{value} AS {column}"
        is_exact = kind in _EXACT and element is None
        self.order = column if is_exact else f'{column}::text COLLATE "C"'


class Postgres:
    """A Postgres database; see `headwater._database.Database`.

    Args:
        address: Its address.
    """

    def __init__(self, address: Address) -> None:
        self.description = f"Postgres database {address.shown}"
        self._address = address
        self._lock = threading.Lock()
        self._open: set[Any] = set()
        self._places: dict[str, str] = {}
        self._columns: dict[str, dict[str, Column]] = {}
        # The views whose rows have not been found to be the same in each read.
        self._unchecked: set[str] = set()
        self._keys: dict[str, list[str]] = {}
        # Each is asked for again and again, and takes a connection.
        self._empty: dict[str, pyarrow.Table] = {}
        self._snapshot: str | None = None
        self._main = self._connect()
        try:
            self._snapshot = self._fetch("SELECT pg_export_snapshot()")[0][0]
        except DataError:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    def tables(self) -> list[Declared]:
        """Returns the tables and views that the user may read."""
        columns: dict[int, dict[str, Column]] = {}
        for oid, name, kind, element in self._fetch(_COLUMNS):
            columns.setdefault(oid, {})[name] = Column(name, kind, element)
        tables: dict[int, Declared] = {}
        for oid, schema, table, is_view in self._fetch(_TABLES):
            name = table_name(schema, table, _USUAL)
            place = f"{quoted([schema])}.{quoted([table])}"
            if name in self._places:
                raise DataError(
                    f"{self.description}: {self._places[name]} and {place} both have the name "
                    f"{name!r} as a table of a source; rename one of them"
                )
            self._places[name] = place
            self._columns[name] = columns.get(oid, {})
            tables[oid] = Declared(name, is_view)
            self._unchecked |= {name} if is_view else set()
        for oid, parent, key, parent_key in self._fetch(_KEYS):
            if oid not in tables:
                continue
            if not parent:
                tables[oid].key = key
                self._keys[tables[oid].name] = key
            elif parent in tables:
                tables[oid].references.append((key, tables[parent].name, parent_key))
        return list(tables.values())

    def empty(self, table: str) -> pyarrow.Table:
        """Returns all columns of a table with their types, and no row."""
        if table not in self._empty:
            rows = self._query(table, list(self._columns[table]), "LIMIT 0")
            self._empty[table] = rows.read_all()
        return self._empty[table]

    def rows(self, table: str, columns: list[str]) -> pyarrow.RecordBatchReader:
        """Returns columns of a table, with the rows in an order that does not depend on them."""
        if table in self._unchecked:
            self._check(table)
        own = self._columns[table]
        order = ", ".join(own[name].order for name in self._keys.get(table, own))
        return self._query(table, columns, f"ORDER BY {order}" if order else "")

    def interrupt(self) -> None:
        """Ends the queries that run; called from another thread."""
        with self._lock:
            running = list(self._open)
        for connection in running:
            # A query that has just ended needs no end.
            with contextlib.suppress(Exception):
                connection.adbc_cancel()

    def close(self) -> None:
        """Ends all connections."""
        with self._lock:
            connections, self._open = list(self._open), set()
        for connection in connections:
            connection.close()

    def _check(self, view: str) -> None:
        """Checks that the rows of a view are the same in each read, by its query and those below.

        Raises:
            DataError: A call in it varies.
        """
        place = self._places[view].replace("'", "''")
        definitions = [definition for (definition,) in self._fetch(_DEFINITIONS.format(place))]
        # Texts and quoted names hold no calls.
        text = re.sub(r"'[^']*'|\"[^\"]*\"", "", "\n".join(definitions))
        if re.search(r"TABLESAMPLE \w+ ?\([^)]*\)(?! REPEATABLE)", text):
            raise varying(self.description, view, "TABLESAMPLE without REPEATABLE")
        if bare := re.search(_BARE_CLOCKS, text):
            raise varying(self.description, view, bare[0])
        called = sorted(set(re.findall(r"(\w+)\(", text)))
        names = ", ".join(f"'{name}'" for name in called) or "''"
        volatile = self._fetch(
            "SELECT DISTINCT proname::text FROM pg_catalog.pg_proc "
            f"WHERE provolatile = 'v' AND proname IN ({names})"
        )
        found = {name for (name,) in volatile} | (_CLOCKS & set(called))
        # With two arguments, age() is the time between them.
        if not re.search(r"\bage\([^,()]*\)", text):
            found.discard("age")
        if found:
            raise varying(self.description, view, f"a call of {min(found)}()")
        self._unchecked.discard(view)

    def _query(self, table: str, columns: list[str], end: str) -> pyarrow.RecordBatchReader:
        connection = self._connect()

        def close() -> None:
            cursor.close()
            self._end(connection)

        def fault(error: Exception) -> DataError:
            return self._fault(error, f"table {table!r}: ")

        cursor = connection.cursor()
        # A row without columns still counts.
        what = ", ".join(self._columns[table][name].value for name in columns) or "1 AS one"
        try:
            # The table of the query has a name of its own, since a column may have the table's.
            cursor.execute(f"SELECT {what} FROM {self._places[table]} AS headwater_rows {end}")
            return stream(cursor.fetch_record_batch(), close, fault)
        except Exception as error:
            close()
            raise fault(error) from None

    def _connect(self) -> Any:
        """Opens a connection that sees the snapshot, if there is one yet."""
        from adbc_driver_postgresql import dbapi

        connection = None
        try:
            connection = dbapi.connect(self._address.full)
            with self._lock:
                self._open.add(connection)
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if self._snapshot:
                    cursor.execute(f"SET TRANSACTION SNAPSHOT '{self._snapshot}'")
                for setting in _SETTINGS.split(";"):
                    cursor.execute(setting)
        except Exception as error:
            if connection is not None:
                self._end(connection)
            raise self._fault(error) from None
        return connection

    def _end(self, connection: Any) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def _fetch(self, query: str) -> list[tuple[Any, ...]]:
        try:
            with self._main.cursor() as cursor:
                cursor.execute(query)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows
        except Exception as error:
            raise self._fault(error) from None

    def _fault(self, error: Exception, place: str = "") -> DataError:
        message = self._address.without_secrets(error)
        message = re.sub(r"^\w+: \[libpq\] ", "", message)
        return DataError(f"{self.description}: {place}{message}")
