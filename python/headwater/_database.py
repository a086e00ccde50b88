"""What the compiled module asks of a database: the tables with their keys, and rows as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headwater._headwater import DataError

if TYPE_CHECKING:
    import pyarrow


@dataclass
class Declared:
    """A table or view as its database declares it.

    Args:
        name: The name: that of the table alone in the schema that everybody uses (`main` of DuckDB,
            `public` of Postgres), `schema.table` in any other.
        is_view: Whether the rows are those of a query.
        key: The columns of the primary key.
        references: For each foreign key the columns, the table referred to, and its columns.
    """

    name: str
    is_view: bool
    key: list[str] = field(default_factory=list)
    references: list[tuple[list[str], str, list[str]]] = field(default_factory=list)


class _Batches:
    """The batches of a stream; ends what they come from at their end, or when they are dropped.

    Args:
        reader: The stream.
        close: Ends what the stream reads from.
        fault: Returns the error to raise for one of the stream.
    """

    def __init__(
        self,
        reader: pyarrow.RecordBatchReader,
        close: Callable[[], object],
        fault: Callable[[Exception], BaseException],
    ) -> None:
        self._reader = reader
        self._close = close
        self._fault = fault
        self._is_open = True

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            self.close()
            raise
        except Exception as error:
            raise self._fault(error) from None

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._close()

    def __del__(self) -> None:
        self.close()


def stream(
    reader: pyarrow.RecordBatchReader,
    close: Callable[[], object],
    fault: Callable[[Exception], BaseException],
) -> pyarrow.RecordBatchReader:
    """Returns a stream that ends its connection by itself, whichever thread drops it."""
    import pyarrow

    batches = _Batches(reader, close, fault)
    return pyarrow.RecordBatchReader.from_batches(reader.schema, batches)


class Database(Protocol):
    """An open database. Methods may be called by several threads at a time."""

    description: str

    def tables(self) -> list[Declared]:
        """Returns the tables and views."""

    def empty(self, table: str) -> pyarrow.Table:
        """Returns all columns of a table with their types, and no row."""

    def rows(self, table: str, columns: list[str]) -> pyarrow.RecordBatchReader:
        """Returns columns of a table, with the rows in an order that does not depend on them."""

    def interrupt(self) -> None:
        """Ends the queries that run; called from another thread."""

    def close(self) -> None:
        """Ends the connection."""


def varying(description: str, table: str, call: str) -> DataError:
    """Returns the error about a view or a column whose values are not those of the data."""
    return DataError(
        f"{description}: table {table!r}: expected rows that depend on the data alone, "
        f"found {call}, whose result changes from read to read; leave it out, or write the rows "
        "to another table"
    )


def quoted(names: Iterable[str]) -> str:
    """Returns names quoted for SQL, with commas between them."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def table_name(schema: str, name: str, usual: str) -> str:
    """Returns the name of a table in a source."""
    return name if schema == usual else f"{schema}.{name}"
