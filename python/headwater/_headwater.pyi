"""The compiled module of the package."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, final, type_check_only

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from headwater.tables import Table, Task

__version__: str

@type_check_only
class ArrowTable(Protocol):
    """A table that can be read as an Arrow stream, such as pyarrow's, Polars' or DuckDB's."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@type_check_only
class Report(TypedDict):
    """The counts of a prepared store, its root, and remarks on its data."""

    root: str
    row_count: int
    link_count: int
    text_count: int
    store_bytes: int
    remarks: list[str]

@type_check_only
class PartReport(TypedDict):
    """A part of a preparation: its number and that of all parts, as "3/8", and what it has."""

    part: str
    row_count: int
    block_count: int
    part_bytes: int

@type_check_only
class StageReport(TypedDict):
    """A copy of a store: its root, length and number of files, and whether this call made it."""

    root: str
    bytes: int
    files: int
    copied: bool

@type_check_only
class Leak(TypedDict):
    """A possible leak of the future or of the label.

    The kind is "predicts-target", "totals-children", "order-of-time", "before-parent",
    "rounded-time" or "replay".
    The subject is a `table.column` or a table, by which it can be allowed.
    """

    kind: str
    task: str | None
    subject: str
    evidence: str
    remedy: str

@type_check_only
class AuditedTask(TypedDict):
    """What an audit saw of a task; `shares` counts visible and later rows by path."""

    task: str
    seeds: int
    looked_at: int
    too_few: bool
    replayed: int
    moments: int
    best: str | None
    shares: list[dict[str, Any]]

@type_check_only
class AuditReport(TypedDict):
    """What an audit found."""

    database: str
    root: str
    tasks: list[AuditedTask]
    findings: list[Leak]
    allowed: list[Leak]

@type_check_only
class RowView(TypedDict):
    """A row with its cells and neighbours.

    The time is None for a row that is always visible, and NaT for a row that is never visible
    because the parent that lends its time is missing.
    A cell is None, True for an identifier, a float, a bool, a str, or a `numpy.datetime64[us]`; a
    float has the digits that its stored 32-bit z-score determines. A parent is a row number, or
    None. The children are row numbers, uint32 [n], sorted by time and then by number.
    """

    table: str
    row: int
    key: str | None
    time: np.datetime64 | None
    cells: dict[str, Any]
    parents: dict[str, int | None]
    children: dict[str, npt.NDArray[np.uint32]]

@type_check_only
class PairsView(TypedDict):
    """The pairs of a task with what = "link"; pair i is row i of the task's table, and seed i.

    Each array has an entry for a pair: the row that the task asks about, uint32; the row to which
    it may be linked, uint32; the observation time in microseconds, int64; and what was known then:
    the number of links of the candidate, uint32, and the time of the last link of the two, int64,
    the least one if there was none.
    """

    anchor: npt.NDArray[np.uint32]
    candidate: npt.NDArray[np.uint32]
    observed: npt.NDArray[np.int64]
    popularity: npt.NDArray[np.uint32]
    last: npt.NDArray[np.int64]

class HeadwaterError(Exception):
    """The base class of all errors of headwater; KeyboardInterrupt is not one of them."""

class IoError(HeadwaterError, OSError):
    """The operating system reported an error; also an OSError."""

class NotOurs(HeadwaterError):
    """The bytes are not a headwater file of the expected kind."""

class VersionMismatch(HeadwaterError):
    """The file has a format version that this build cannot read."""

class Corrupt(HeadwaterError):
    """A headwater file is damaged."""

class LimitExceeded(HeadwaterError):
    """A limit of a format or a setting was exceeded."""

class InvalidArgument(HeadwaterError, ValueError):
    """An argument is not valid; also a ValueError."""

class SchemaError(HeadwaterError):
    """The schema does not describe the data, or contradicts itself."""

class DataError(HeadwaterError):
    """The source data break a promise that the schema makes."""

class PlanMismatch(HeadwaterError):
    """A cursor or checkpoint belongs to another plan, data or format."""

class SamplerShutdown(HeadwaterError):
    """A sampler was used after it was shut down."""

@final
class Claim:
    """Locks a folder against other processes, until it is released or the process ends.

    Waits some seconds for another process to release the folder.

    Raises:
        InvalidArgument: Another process holds the folder.
    """

    def __new__(cls, folder: str | os.PathLike[str]) -> Claim: ...
    def release(self) -> None:
        """Unlocks the folder."""

@final
class SqlRows:
    """The rows of one table, as an Arrow stream that can be read once."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class SqlTables:
    """The tables of a source, as the SQL of tasks sees them."""

    def open(self, name: str) -> SqlRows: ...
    def open_prepared(self, name: str) -> SqlRows: ...

@final
class RowStream:
    """The rows of a table, or the seeds of a task, as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def raise_error(self) -> None:
        """Raises the error that ended a read, whose reader has only the message."""

@final
class Matrix:
    """Files of rows as one matrix, in their order.

    Args:
        paths: The files: .npy, .safetensors, .parquet, or raw numbers with `dtype` and `columns`;
            or one manifest, which ends in .json.
        select: Columns of .parquet files, in this order; default: all columns.
        tensor: The tensor of .safetensors files that have several.
        dtype: The type of the numbers in files that do not name it: raw files, and bfloat16 in
            .npy.
        columns: The numbers in each row of raw files.

    Raises:
        InvalidArgument: The arguments do not fit the files, or each other.
        NotOurs: A file is of another kind.
        IoError: A file cannot be read.
    """

    def __new__(
        cls,
        *paths: str | os.PathLike[str],
        select: Sequence[str] | None = None,
        tensor: str | None = None,
        dtype: str | None = None,
        columns: int | None = None,
    ) -> Matrix: ...
    @property
    def rows(self) -> int:
        """The number of rows."""

    @property
    def columns(self) -> int:
        """The number of columns."""

    @property
    def dtype(self) -> str:
        """The type of the numbers, by its name in NumPy; float64 for .parquet."""

    @property
    def names(self) -> list[str] | None:
        """The names of the columns, if the files have them."""

    @property
    def data(self) -> str:
        """The identity of the rows, in hexadecimal digits, for the `data` of a job."""

    def column_of(self, name: str) -> int:
        """Returns the number of a column; raises InvalidArgument if there is none of this name."""

    def shifts(self) -> list[float]:
        """Returns the median of each column's finite numbers among the first 1,024 rows."""

    def read(self, start: int, stop: int) -> bytes:
        """Returns the bytes of the rows from `start` to `stop`, exclusive, row by row.

        Raises:
            DataError: A cell is NULL, or a file has changed.
        """

@final
class WorkerCore:
    """The compiled class behind `headwater.reduce.Worker`."""

    def __new__(cls, fields: dict[str, Any], options: dict[str, Any]) -> WorkerCore: ...
    @property
    def next_row(self) -> int: ...
    def push(self, arrays: Sequence[npt.NDArray[np.uint8]]) -> None: ...
    def portion(self) -> bytes: ...
    def cursor(self) -> bytes: ...
    def resume(self, cursor: bytes) -> None: ...
    def begun(self) -> tuple[bytes, int, int, list[bytes]]: ...
    def go_on(self, begun: tuple[bytes, int, int, list[bytes]]) -> None: ...

@final
class ReductionCore:
    """The compiled class behind `headwater.reduce.Reduction`."""

    def __new__(cls, fields: dict[str, Any]) -> ReductionCore: ...
    @property
    def is_complete(self) -> bool: ...
    @property
    def digest(self) -> str: ...
    def receive(self, portion: bytes) -> int: ...
    def portion(self) -> bytes: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    def missing(self) -> list[tuple[int, int]]: ...
    def whole(self) -> bytes: ...
    def next(self) -> bytes | None: ...
    def figures(self) -> npt.NDArray[np.float64]: ...

@final
class SamplerCore:
    """The compiled class behind `headwater.Sampler`."""

    def __new__(
        cls,
        paths: Sequence[str | os.PathLike[str]],
        *,
        rank: int,
        world_size: int,
        split_ratios: tuple[float, float, float],
        split_seed: int,
        seed: int,
        num_prefetch: int,
        default_batch_size: int,
        default_sequence_length: int,
        sequence_buckets: Sequence[int] | None,
        bfs_child_width: int | None,
        max_rows: int,
        tasks: Sequence[str] | None,
        pools: Sequence[tuple[str, int | None]],
        task_weights: Sequence[float] | None,
        require_label: bool,
        num_threads: int | None,
        compact: bool,
        walk: str,
        child_widths: dict[str, int],
        children: str | None,
        max_hops: int | None,
        neighbor_budget: int | None,
        row_order: str,
        aggregates: str,
        visible_until: int | None,
        staleness_days: int,
        keep_future_cells: bool,
        texts: str,
        text_buckets: Sequence[int] | None,
        permutations: bool,
        mask_share: float,
        mask_most: int | None,
        mask_texts: bool | None,
        aliases: list[str] | None,
    ) -> SamplerCore: ...
    def next(self, split: str) -> dict[str, npt.NDArray[Any]]: ...
    def next_with_cursor(self, split: str) -> tuple[dict[str, npt.NDArray[Any]], Cursor]: ...
    def evaluate(
        self, split: str, tasks: list[str] | None = None, cursor: Cursor | None = None
    ) -> Evaluation: ...
    def batches_per_epoch(self, split: str, tasks: list[str] | None = None) -> int: ...
    def seek(self, split: str, step: int) -> None: ...
    def sample(
        self, task: str, keys: list[str], obs_times: list[int]
    ) -> dict[str, npt.NDArray[Any]]: ...
    def draw(self, task: str, seed_index: int) -> tuple[str, str]: ...
    def cursor(self) -> Cursor: ...
    def resume(self, cursor: Cursor) -> None: ...
    def save_cursor(self, path: str | os.PathLike[str]) -> None: ...
    def shutdown(self) -> None: ...
    def tasks(self) -> list[str]: ...
    def task_number(self, name: str) -> int: ...
    def seed_counts(self, split: str) -> list[int]: ...
    def own_seed_counts(self, split: str) -> list[int]: ...
    def stores(self) -> list[Store]: ...

@final
class Evaluation:
    """The batches of a finite pass over a split, from `Sampler.evaluate`."""

    @property
    def remaining(self) -> int:
        """The number of batches that are left."""
    def cursor(self) -> bytes:
        """Returns the caller's place, for `Sampler.evaluate`; it is the same on every rank."""
    def save_cursor(self, path: str | os.PathLike[str]) -> None:
        """Writes the cursor to a file, whole or not at all."""
    def __iter__(self) -> Evaluation: ...
    def __next__(self) -> dict[str, npt.NDArray[Any]]: ...

@final
class EventsCore:
    """The compiled class behind `headwater.Events`."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        rank: int,
        world_size: int,
        seed: int,
        batch_size: int,
        sequence_length: int | None,
        packing: bool,
        dtype: str,
        num_prefetch: int,
        num_threads: int | None,
    ) -> EventsCore: ...
    def next(self, split: str) -> dict[str, npt.NDArray[Any]]: ...
    def next_with_cursor(self, split: str) -> tuple[dict[str, npt.NDArray[Any]], Cursor]: ...
    def rows(self, split: str, indices: list[int]) -> dict[str, npt.NDArray[Any]]: ...
    def evaluate(self, split: str) -> EventPass: ...
    def draw(self, split: str, index: int) -> tuple[str, str]: ...
    def seek(self, split: str, row: int) -> None: ...
    def cursor(self) -> Cursor: ...
    def resume(self, cursor: Cursor) -> None: ...
    def save_cursor(self, path: str | os.PathLike[str]) -> None: ...
    def shutdown(self) -> None: ...
    def row_count(self, split: str) -> int: ...
    def vocabulary(self) -> int: ...
    def room(self) -> int: ...
    def sequence_length(self) -> int: ...
    def decode(self, tokens: list[int]) -> Any: ...
    def latest(
        self, entity: str, *, before_us: int | None, length: int | None
    ) -> npt.NDArray[np.uint16]: ...
    def entity(self, number: int) -> str: ...
    def metadata(self) -> dict[str, Any]: ...

@final
class EventPass:
    """The batches of a finite pass over a split, from `Events.evaluate`."""

    def __iter__(self) -> EventPass: ...
    def __next__(self) -> dict[str, npt.NDArray[Any]]: ...

@final
class Store:
    """A database on disk, memory-mapped and read-only.

    Processes that open the same store share its pages. Opening checks the metadata and
    the section tables of the files. A block of a file is checked when it is first read; `verify`
    checks all blocks.

    A store is also a path: what takes its folder takes the store itself.

    A store may be larger than memory: then only the blocks that are needed are read.

    Args:
        path: The folder that `prepare` made.
        populate: Read the whole store into memory first, as `warm` does.

    Raises:
        IoError: A file cannot be read.
        NotOurs: The folder is not a store.
        VersionMismatch: The store is of another format version.
        Corrupt: The store is damaged.
        LimitExceeded: With `populate`: the store is larger than memory.

    Example:
        >>> store = headwater.Store("shop.db")  # doctest: +SKIP
        >>> store.tables["orders"].to_pandas()  # doctest: +SKIP
        >>> store.task("churn").splits  # doctest: +SKIP
    """

    def __new__(cls, path: str | os.PathLike[str], *, populate: bool = False) -> Store: ...
    @property
    def path(self) -> os.PathLike[str]:
        """The folder that the store was opened from."""

    def __fspath__(self) -> str: ...
    @property
    def root(self) -> str:
        """The identity of the data, in hexadecimal digits."""

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by name."""

    @property
    def tasks(self) -> dict[str, Task]:
        """The tasks by name."""

    def table(self, name: str) -> Table:
        """Returns a table.

        Raises:
            InvalidArgument: There is no such table; the message has the nearest name.
        """

    def task(self, name: str) -> Task:
        """Returns a task, by "task" or "database/task".

        Raises:
            InvalidArgument: There is no such task; the message has the nearest name.
        """

    def metadata(self) -> dict[str, Any]:
        """Returns the contents of metadata.json."""

    def database_metadata(self) -> dict[str, Any]:
        """Returns the contents of metadata.json, as `metadata` does."""

    def column_embeddings(self) -> npt.NDArray[np.float16]:
        """Returns the vectors of the column names.

        Returns:
            A new array, float16 [C, D_t], of the tables' columns by their `index`, then the targets
            of the derived tasks.
        """

    def relation_embeddings(self) -> npt.NDArray[np.float16]:
        """Returns the vectors of the relations' names.

        Returns:
            A new array, float16 [relations, D_t], in the order of `metadata()["relations"]`; then
            the vectors of the summaries without parents, in that of `metadata()["summaries"]`.
        """

    def categorical_embeddings(self) -> npt.NDArray[np.float16]:
        """Returns the vectors of the categories.

        Returns:
            A new array, float16 [Vc, D_t]. A column's categories are together, from its
            `cat_emb_start`.
        """

    def text_embeddings(self) -> npt.NDArray[np.float16] | npt.NDArray[np.int8] | None:
        """Returns the vectors of all texts, float16 [V, D_t]; None if texts have no vectors.

        They are int8 in a store that was prepared with `text_vectors="int8"`: vector i is
        `text_embeddings()[i] * text_scales()[i]`.

        Like those of columns, relations and categories, it is read-only, and a part of the mapped
        store: it takes no memory of its own.
        """

    def text_scales(self) -> npt.NDArray[np.float32] | None:
        """Returns the scale of each text's int8 vector, float32 [V]; None if no text has one.

        It is read-only, and a part of the mapped store.
        """

    def text_embedding(self, index: int) -> npt.NDArray[np.float16] | npt.NDArray[np.int8] | None:
        """Returns the vector of a text, as `text_embeddings` has it.

        Returns:
            A new array, float16 or int8 [D_t]; None if the store has no text vectors.
        """

    def text(self, index: int) -> str:
        """Returns the characters of a text."""

    def category(self, index: int) -> str:
        """Returns the name of a category."""

    def pairs(self, task: str, until: int | None = None) -> PairsView:
        """Returns the pairs of a task with what = "link", in the order of its seeds.

        Args:
            task: The task's name.
            until: Links after this time, in microseconds since 1970, do not count.

        Raises:
            InvalidArgument: There is no such task, or its seeds are no pairs.
        """

    def verify(self) -> None:
        """Reads every byte of the store and checks it against its digest.

        Raises:
            Corrupt: A file is damaged; the message names the file and the place.
        """

    def warm(self) -> int:
        """Reads the whole store into memory, in sequence, so that batches wait for no disk.

        The system keeps it for every process of the machine until it needs the memory.

        Returns:
            The number of bytes that were read.

        Raises:
            LimitExceeded: The store is larger than the memory that this process can have.
            IoError: A file cannot be read.
        """

    def row(self, table: str, key: str | int | None = None, *, index: int | None = None) -> RowView:
        """Returns a row with its cells and neighbours.

        Args:
            table: The table's name.
            key: The row's key; a composite key with `|` between its parts.
            index: The row's number, in place of a key.

        Raises:
            InvalidArgument: The store has no such table or row.
        """

@final
class Cursor:
    """A position in the sequence of a plan, and this plan."""

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Cursor:
        """Reads a cursor from a file.

        Raises:
            IoError: The file cannot be read.
            NotOurs: The file is not a cursor.
            VersionMismatch: The cursor is of another format version.
            Corrupt: The cursor is damaged.
            LimitExceeded: The file is longer than any cursor.
        """

    @staticmethod
    def decode(data: bytes) -> Cursor:
        """Reads a cursor from its bytes; raises as `read` does."""

    def encode(self) -> bytes:
        """Returns the bytes of the cursor; equal cursors have equal bytes."""

    @property
    def kind(self) -> str:
        """The kind of sequence, such as "sampler"."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the plan, in hexadecimal digits."""

    @property
    def position(self) -> dict[str, int]:
        """The position: counters by name."""

    @property
    def settings(self) -> dict[str, int | bool | str]:
        """The settings of the plan by name."""

@final
class Endpoint:
    """A server that speaks OpenAI's embeddings protocol, as an embedder of `prepare`.

    The file `cache` keeps the server's vectors, so that no text is requested twice, not even after
    a crash. A cache serves one model and one dimension.

    Args:
        url: The URL of the server, such as "http://localhost:8000/v1".
        model: The name of the model, as the server knows it.
        cache: The file of cached vectors; created if it does not exist.
        key: The API key, sent as a bearer token.
    """

    def __new__(
        cls, url: str, model: str, cache: str | os.PathLike[str], *, key: str | None = None
    ) -> Endpoint: ...

def launched() -> tuple[str, int, int | None, bool] | None:
    """Returns how mpirun, srun, torchrun or another launcher started this process.

    Returns:
        The launcher, the rank, the number of ranks if the launcher tells it, and whether all ranks
        are known to run on this machine; None if no launcher started it.
    """

def key_text(key: object) -> str:
    """Returns the text of a key, by which a store finds the row; a composite key is a tuple.

    Raises:
        InvalidArgument: The key, or a part of it, has a type that keys cannot have.
    """

def split_times(
    times_us: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns times in microseconds as days since 1970, and the milliseconds of each day."""

def fold_files(fields: dict[str, Any], files: Sequence[Matrix], threads: int | None) -> bytes:
    """Returns the portion of all rows of files: X, and Y where the job has it."""

def sum_leaf(fields: dict[str, Any], leaf: int, arrays: Sequence[npt.NDArray[np.uint8]]) -> bytes:
    """Returns the portion of one leaf of a job of sums, from the bytes of each array."""

def first_shifts(dtype: str, rows: npt.NDArray[np.uint8]) -> list[float]:
    """Returns the shifts that moments have by default, from rows as bytes."""

def sampler_defaults() -> dict[str, Any]:
    """Returns the default settings of `Sampler`, by the names of its arguments."""

def audit(
    store: str | os.PathLike[str],
    tasks: Sequence[str] | None = None,
    *,
    allowed: Sequence[str] = (),
    seeds: int = 5000,
) -> AuditReport:
    """Looks for leaks of the future and of the label into contexts.

    Each column within two links of the seeds is scored alone against the target. Seeds are replayed
    on copies of the store in memory, in each of which everything later than one time is different.
    The same store gives the same report.

    Args:
        store: The folder that `prepare` made.
        tasks: The tasks to audit; default: all.
        allowed: Subjects of findings that are right as they are.
        seeds: The most seeds of a task that are looked at, and about the rows of a table; at least
            100.

    Returns:
        What was found; that there is no finding is no proof.

    Raises:
        InvalidArgument: A task or an allowed name is not of the store.
        Corrupt: The store is damaged.
        LimitExceeded: There is not enough memory for the copy.

    Example:
        >>> report = headwater.audit("shop.store", ["churn"])  # doctest: +SKIP
        >>> [leak["subject"] for leak in report["findings"]]  # doctest: +SKIP
        []
    """

def table_rows(store: Store, table: str) -> RowStream:
    """Returns the rows of a table."""

def seed_rows(store: Store, task: str) -> RowStream:
    """Returns the seeds of a task."""

def describe_table(store: Store, table: str) -> dict[str, Any]:
    """Returns the columns, the first rows and the time of a table."""

def describe_task(store: Store, task: str) -> dict[str, Any]:
    """Returns the splits, the labels, the columns and the first seeds of a task."""

def write_page(path: str | os.PathLike[str], page: str) -> None:
    """Writes a page that `draw` returned; replaces an earlier page, but no other file."""

def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file completely or not at all, even if the process is killed or the power fails."""

def read_file(path: str | os.PathLike[str]) -> bytes:
    """Reads a file; refuses a pipe, a device and a folder at once."""

def draft_schema(
    source: str | os.PathLike[str] | dict[str, ArrowTable],
    name: str | None = None,
    *,
    tables: Sequence[str] | None = None,
    cell_tasks: bool = False,
) -> str:
    """Drafts a schema file from the names, types and values of a source, for a person to correct.

    Args:
        source: As for `prepare`; each table is read once.
        name: The database's name; default: that of the file, folder or database, and "database" for
            tables in memory.
        tables: The tables to draft, views among them; default: all tables, no view.
        cell_tasks: Draft a task for each cell that is worth predicting, too.

    Returns:
        The schema file's text, in TOML.

    Raises:
        DataError: The source cannot be read.
        SchemaError: There is no table of a name in `tables`.
        IoError: The operating system reported an error.
    """

def prepare(
    source: str | os.PathLike[str] | dict[str, ArrowTable],
    schema: str | os.PathLike[str] | dict[str, Any],
    out: str | os.PathLike[str],
    *,
    embedder: str | Endpoint | Callable[[list[str]], npt.ArrayLike] = "hashing",
    dimension: int = 256,
    text_vectors: bool | Literal["f16", "int8"] = True,
    threads: int | None = None,
    memory: str | None = None,
    progress: Callable[[str, int, int | None], object] | None = None,
    force: bool = False,
    merge: str | os.PathLike[str] | None = None,
) -> Report:
    """Writes a store from a source and its schema.

    The same rows in the same order, schema and embedder make the same bytes, whatever the kind of
    source, the number of threads, the memory or the machine. Ctrl-C interrupts it and leaves no
    files behind.

    Args:
        source: The path of a folder of table files (.csv, .csv.gz, .csv.zst, .parquet,
            .arrayrecord; a sub-folder holds the parts of one table), of one such file, or of a
            SQLite or DuckDB file; a pattern such as `orders/*.parquet`; the address of a Postgres
            database; or tables by name, each with `__arrow_c_stream__` (pyarrow, Polars, pandas >=
            2.2, DuckDB) or a LazyFrame of Polars. Each table is read once; a table that a task
            reads too must be readable twice.
        schema: The path of a schema file, or its contents as `tomllib` reads them.
        out: The folder to write, which must not exist yet, unless `force` is set.
        embedder: "hashing", which is built in; an `Endpoint`; or a function from texts to an array
            [n, dimension] that converts to float16; None is refused. The store records the
            function's `name`, or else its `__qualname__`. The vector of a text must depend on the
            text alone.
        dimension: The length of a vector.
        text_vectors: How to store the vectors of texts: "f16", as True, or "int8", integers with a
            scale for each text, which take half the bytes on disk, in batches and on devices; with
            False, texts have none. Columns and categories always have float16 vectors.
        threads: The number of threads; default: all cores.
        memory: The memory to aim at, such as "2GB"; default: half of what this process can have.
            Keys, links and texts that do not fit go to temporary files beside `out`. DuckDB, which
            runs the SQL of tasks, has memory of its own.
        progress: Called with the stage, the amount done, and the total if it is known.
        force: Whether to replace the store at `out`, and nothing but a store; the old one stays
            there until the new one is complete.
        merge: The folder of all parts that `prepare_part` made of this source and schema, from
            which to take the rows of tables. The store is the same.

    Returns:
        The store's root and counts, and remarks on suspicious data.

    Raises:
        SchemaError: The schema does not fit the source.
        DataError: The data are not as the schema says.
        LimitExceeded: A limit of the schema or of the format is exceeded.
        InvalidArgument: An argument is not valid, or `out` exists already.
        IoError: The operating system reported an error.
    """

def prepare_part(
    source: str | os.PathLike[str],
    schema: str | os.PathLike[str] | dict[str, Any],
    parts: str | os.PathLike[str],
    number: int,
    count: int,
    *,
    threads: int | None = None,
    progress: Callable[[str, int, int | None], object] | None = None,
) -> PartReport:
    """Reads one part of the tables of a source; `prepare` with `merge` makes the store of all.

    The parts can be made in any order, by any processes, on machines that see the same files, or
    copies that keep the times of the last writes. A part that is there is replaced.

    Args:
        source: As for `prepare`, but of files: a database server, a DuckDB file and tables in
            memory have no parts.
        schema: As for `prepare`; not of events.
        parts: The folder of the parts.
        number: The number of this part, from 1 to `count`.
        count: The number of parts.
        threads: The number of threads; default: all cores.
        progress: As for `prepare`.

    Returns:
        The part, the number of its rows and blocks of rows, and its size.

    Raises:
        SchemaError: The schema does not fit the source.
        DataError: The data are not as the schema says, or a file changed meanwhile.
        InvalidArgument: An argument is not valid, the source has no parts, or another process makes
            the same part.
        IoError: The operating system reported an error.
    """

def stage(
    store: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    progress: Callable[[str, int, int | None], object] | None = None,
) -> StageReport:
    """Copies a store to the folder `out`, such as one on the node's own disk, unless it is there.

    Of processes that call it at one time with the same arguments one copies, and the others wait
    for it. Every block of the copy is checked against its digest. Ctrl-C interrupts it,
    and a killed process leaves nothing at `out`; the next call removes what it has written.

    Args:
        store: The store's folder, of tables or events.
        out: The folder of the copy. If it is there, its root must be that of the store, and each
            file must have its length, header and section table; blocks are checked when they are
            first read.
        progress: Called with the stage, the number of bytes done, and the total if it is known.

    Returns:
        The root, the length and the number of files, and whether this call made the copy.

    Raises:
        InvalidArgument: Something else is at `out`, or another process failed to make the copy.
        NotOurs: `store` is no store.
        Corrupt: The store, or the copy that is there, is damaged.
        IoError: The operating system reported an error, such as a full disk.
    """

def main(arguments: Sequence[str]) -> int:
    """Runs `headwater` and returns its exit status."""

def reduce_main(arguments: Sequence[str]) -> int:
    """Runs `headwater-reduce` and returns its exit status."""
