"""Statistics of rows in Python, with the same bits for any workers.

One call folds an array or files: `gram`, `cross`, `moments`, `histogram`, `exponents`, `distinct`
and `top`. To share the rows among processes, make a job, such as `GramJob`: it describes rows that
are folded in chunks of one size. Workers each fold consecutive rows and return portions, which are
bytes. A reduction receives the portions, in any order and also more than once, until no row is
missing. A `PartitionedJob` has parts of any length in place of rows, and a `SumJob` arrays that
the caller has computed.

`fold` and `merge` do this as pure functions, for engines such as Dask, Ray, Spark and Beam.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater._headwater import (
    InvalidArgument,
    Matrix,
    ReductionCore,
    WorkerCore,
    first_shifts,
    fold_files,
    sum_leaf,
)
from headwater._reduce_jobs import (
    CrossJob,
    DistinctJob,
    ExponentsJob,
    GramJob,
    HistogramJob,
    Job,
    MomentsJob,
    PartitionedJob,
    SumJob,
    TopJob,
)

__all__ = [
    "CrossJob",
    "DistinctJob",
    "ExponentsJob",
    "GramJob",
    "HistogramJob",
    "Job",
    "Matrix",
    "MomentsJob",
    "PartWorker",
    "PartitionedJob",
    "Reduction",
    "Result",
    "SumJob",
    "TopJob",
    "Worker",
    "cross",
    "distinct",
    "exponents",
    "fold",
    "gram",
    "histogram",
    "merge",
    "moments",
    "shifts",
    "top",
]


class _Pushing:
    """What workers of rows and of parts have in common."""

    _job: Job | PartitionedJob
    _options: dict[str, Any]
    _core: WorkerCore

    def _start(self, job: Job | PartitionedJob, options: dict[str, Any]) -> None:
        self._job, self._options = job, {"part": None} | options
        self._core = WorkerCore(job._fields(), self._options)

    def __getstate__(self) -> dict[str, Any]:
        return {"job": self._job, "options": self._options, "begun": self._core.begun()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._start(state["job"], state["options"])
        self._core.go_on(state["begun"])

    def push(
        self,
        rows: npt.ArrayLike,
        *,
        y: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        """Accepts the next rows, and folds the chunks that they complete.

        Other Python threads run meanwhile. If one of them writes to the array, it is undefined
        which version of a number is folded; but the Gram of one array without weights reads each
        number once, so that all sums are of the same rows. Ctrl-C interrupts the call; then the
        rows before `next_row` are accepted.

        Args:
            rows: Rows [n, k] of the job's dtype, with any n.
            y: The same rows of Y, if the job has it.
            weights: The weights of the rows, float64 [n], if the job has them.

        Raises:
            InvalidArgument: The rows have another dtype or shape than the job, or fewer rows are
                left. No row is accepted.
        """
        of = self._job.job if isinstance(self._job, PartitionedJob) else self._job
        self._core.push(of._arrays(rows, {"y": y, "weights": weights}))


class Worker(_Pushing):
    """Folds rows of a job, which are pushed in order: consecutive ones, or those of one rank.

    With `world` ranks, the blocks of `block_chunks` chunks go to the ranks in turn: rank r owns the
    blocks b with b % world == r. After the last row of a block, `next_row` is the first row of the
    next own block.

    A worker keeps the rows of one unfinished chunk, and a few partial results until `portion`
    returns them. It can be pickled, with both; a copy goes on where the worker was, and its portion
    has what the worker's would have. Threads start when the first chunk is complete.

    Args:
        job: The job whose rows are folded.
        first_row: The first row that is pushed: the first of a chunk, thus a multiple of the job's
            `chunk_rows`, in an own block. Default: the first own row.
        threads: The number of threads; default: all cores. It changes no bit.
        rank: The rank of this worker.
        world: The number of ranks; default: one, which owns all rows.
        block_chunks: The number of chunks of a block, a power of two. Of larger blocks fewer sums
            are shipped, because those of a block are added first. It changes no bit.

    Raises:
        InvalidArgument: An argument is not valid.

    Example:
        >>> job = GramJob(rows=5, columns=2, data="five rows", chunk_rows=2)
        >>> worker, reduction = Worker(job), Reduction(job)
        >>> worker.push(np.ones((5, 2), np.float32))
        >>> reduction.receive(worker.portion())
        2
        >>> reduction.result()
        array([[5., 5.],
               [5., 5.]])
    """

    def __init__(
        self,
        job: Job,
        first_row: int | None = None,
        threads: int | None = None,
        *,
        rank: int = 0,
        world: int = 1,
        block_chunks: int = 1,
    ) -> None:
        options = {
            "first_row": first_row,
            "threads": threads,
            "rank": rank,
            "world": world,
            "block_chunks": block_chunks,
        }
        if not isinstance(job, Job):
            raise InvalidArgument(
                f"expected a job of rows, such as a GramJob, found {type(job).__name__}; make a "
                "PartWorker for a part, and call `fold` for arrays"
            )
        self._start(job, options)

    @property
    def job(self) -> Job:
        """The job whose rows are folded."""
        return self._job  # type: ignore[return-value]

    def portion(self) -> bytes:
        """Returns the sums of the chunks completed since the last call, for `Reduction.receive`.

        A chunk is complete when its last row is pushed. Without such chunks the portion is empty,
        and can be received as well.
        """
        return self._core.portion()

    def cursor(self) -> bytes:
        """Returns the position in the own blocks, to save beside the last portion.

        It covers the blocks whose sums were all returned by `portion`, not rows that were pushed
        since. It names the job, `rank`, `world` and `block_chunks`. It is advice for `resume`: a
        fold that has lost its cursors goes on from the `missing` rows of its `Reduction`.
        """
        return self._core.cursor()

    def resume(self, cursor: bytes) -> None:
        """Continues a new worker at the first block after a cursor.

        Raises:
            PlanMismatch: The cursor is of another job, rank, number of ranks or size of blocks; the
                message names every difference. The worker is unchanged.
            Corrupt: The cursor is damaged.
            NotOurs: The bytes are not a cursor.
            InvalidArgument: The worker has accepted rows after the cursor.
        """
        self._core.resume(cursor)

    @property
    def next_row(self) -> int:
        """The number of the row to push next; the number of rows when no own row is left."""
        return self._core.next_row


class PartWorker(_Pushing):
    """Folds the rows of one part of a `PartitionedJob`, which are pushed in order.

    It keeps the rows of one unfinished chunk, and a few partial results. It can be pickled, with
    both.

    Args:
        job: The job.
        part: The number of the part.
        threads: The number of threads; default: all cores. It changes no bit.

    Raises:
        InvalidArgument: An argument is not valid.
    """

    def __init__(self, job: PartitionedJob, part: int, threads: int | None = None) -> None:
        if not isinstance(job, PartitionedJob):
            raise InvalidArgument(f"expected a PartitionedJob, found {type(job).__name__}")
        self._start(job, {"part": part, "threads": threads})

    def portion(self) -> bytes:
        """Returns the portion of the part, for `Reduction.receive`, when all its rows are pushed.

        Of a part that goes on, this is another part: a reduction that has both refuses the second.
        """
        return self._core.portion()

    @property
    def rows(self) -> int:
        """The number of rows that were pushed."""
        return self._core.next_row


class Reduction:
    """The sums, or other partial results, of a job that have been received so far.

    The result depends on the job and its rows only: not on the number of workers, the rows of each
    worker, or the order in which portions arrive. A reduction can be pickled: as its job and its
    portion.

    Args:
        job: The job whose portions are received.
    """

    def __init__(self, job: Job | PartitionedJob | SumJob) -> None:
        self._job = job
        self._core = ReductionCore(job._fields())

    def __getstate__(self) -> dict[str, Any]:
        return {"job": self._job, "portion": self.portion()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["job"])  # type: ignore[misc]
        self.receive(state["portion"])

    @property
    def job(self) -> Job | PartitionedJob | SumJob:
        """The job whose portions are received."""
        return self._job

    def receive(self, portion: bytes) -> int:
        """Receives a portion: from a worker, from another reduction, or from a saved file.

        It keeps the whole portion, or, if the portion is refused, nothing of it. The sum of several
        chunks replaces the sums of these chunks.

        Returns:
            The number of partial results that are new. Sums that were received before change
            nothing.

        Raises:
            PlanMismatch: The portion is of another job; the message names every setting that
                differs.
            Corrupt: The portion is damaged, or it has another sum for exactly the rows of a sum
                that is kept. Sums that have been added to others are not compared.
            NotOurs: The bytes are not a portion.
            VersionMismatch: The portion is of another format version.
        """
        return self._core.receive(portion)

    def portion(self) -> bytes:
        """Returns all received sums as one portion."""
        return self._core.portion()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the portion to a file, whole or not at all, to resume from after a crash.

        To resume, a new reduction receives the bytes of the file, and any number of workers fold
        the rows of `missing`.
        """
        self._core.save(path)

    def missing(self) -> list[tuple[int, int]]:
        """Returns the rows that are not folded yet, as ranges: the first row, and the end.

        Each range begins with a chunk, so its first row is a valid `first_row` of a worker. Of a
        `PartitionedJob` they are ranges of parts, of a `SumJob` ranges of leaves.
        """
        return self._core.missing()

    @property
    def is_complete(self) -> bool:
        """Whether no row is missing."""
        return self._core.is_complete

    def result(self) -> npt.NDArray[Any]:
        """Returns the statistic of all rows, in the form that its job describes.

        For a `GramJob` this is the Gram matrix, float64 [k, k], with both triangles.

        Raises:
            InvalidArgument: Rows are missing, or the job has none; or it is a `SumJob`, whose
                result `sums` returns.
        """
        if isinstance(self._job, SumJob):
            raise InvalidArgument(
                "expected a job whose result is an array, found a SumJob; call `sums`"
            )
        return self._job._result(self._core)

    def sums(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the sums of a `SumJob`, by the names of its arrays.

        Raises:
            InvalidArgument: Leaves are missing; or the job is another.
        """
        if not isinstance(self._job, SumJob):
            raise InvalidArgument(
                f"expected a SumJob, found a {type(self._job).__name__}; call `result`"
            )
        return self._job._sums(self._core)

    @property
    def digest(self) -> str:
        """The digest of the result, in hexadecimal digits.

        `headwater-reduce` prints it for the same rows in chunks of the same size.
        """
        return self._core.digest


def fold(
    job: Job | PartitionedJob | SumJob,
    number: int,
    rows: Any,
    /,
    *,
    y: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    threads: int = 1,
) -> bytes:
    """Returns the portion of some rows of a job: a pure function, for a task of any engine.

    Args:
        job: The job.
        number: The number of the first of the rows: the first of a chunk. Of a `PartitionedJob` it
            is the number of the part, of a `SumJob` that of the leaf.
        rows: The rows, to the end of a chunk or of the job; or all rows of the part; or the arrays
            of the leaf, by name.
        y: The same rows of Y, if the job has it.
        weights: The weights of the rows, float64 [n], if the job has them.
        threads: The number of threads; an engine runs a task on each core. It changes no bit.

    Raises:
        InvalidArgument: The rows do not fit the job, or do not fill whole chunks.

    Example:
        >>> job = GramJob(rows=5, columns=2, data="five rows", chunk_rows=2)
        >>> rows = np.arange(10, dtype=np.float32).reshape(5, 2)
        >>> left, right = fold(job, 0, rows[:2]), fold(job, 2, rows[2:])
        >>> reduction = Reduction(job)
        >>> reduction.receive(merge(job, right, left))
        2
        >>> bool((reduction.result() == rows.T @ rows).all())
        True
    """
    if isinstance(job, SumJob):
        return sum_leaf(job._fields(), number, job._leaf(rows))
    if isinstance(job, PartitionedJob):
        part = PartWorker(job, number, threads)
        part.push(rows, y=y, weights=weights)
        return part.portion()
    worker = Worker(job, number, threads)
    worker.push(rows, y=y, weights=weights)
    over = worker.next_row % job.chunk_rows
    if over and worker.next_row != job.rows:
        raise InvalidArgument(
            f"expected rows that fill whole chunks of {job.chunk_rows} rows, found {over} rows "
            f"after the last one; end at row {worker.next_row - over}, or push them to a Worker"
        )
    return worker.portion()


def merge(job: Job | PartitionedJob | SumJob, /, *portions: bytes) -> bytes:
    """Returns one portion of all that some portions have: a pure function.

    The order of the portions, and how they are grouped, changes no bit; one may come twice.

    Raises:
        PlanMismatch: A portion is of another job; the message names every setting that differs.
        Corrupt: A portion is damaged, or two have other sums for the same rows.
        NotOurs: The bytes are not a portion.
    """
    reduction = Reduction(job)
    for portion in portions:
        reduction.receive(portion)
    return reduction.portion()


Rows = npt.ArrayLike | Matrix | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""An array [n, k], files of rows, or the path of a file or the paths of several."""


class Result(NamedTuple):
    """A statistic of rows, and the digest that `headwater-reduce` prints for them."""

    value: npt.NDArray[Any]
    digest: str


def gram(
    x: Rows,
    *,
    y: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    ones: bool = False,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> Result:
    """Returns the Gram matrix of rows: the sums of the products of each two columns.

    Args:
        x: The rows: an array [n, k] of float64, float32, float16 or bfloat16; the path of a file,
            or the paths of several, as `headwater-reduce --input` takes them; or a `Matrix`.
        y: A second array with the same rows, whose columns follow those of `x`.
        weights: A weight for each row, float64 [n], by which its products are multiplied.
        ones: Whether a column of ones follows `x`.
        chunk_rows: The number of rows in a chunk. Another number gives other bits.
        threads: The number of threads; default: all cores. It changes no bit.

    Returns:
        float64 [k, k], and the digest.

    Raises:
        InvalidArgument: An argument is not valid.
        DataError: The files have NULL, or have changed meanwhile.

    Example:
        >>> gram(np.ones((5, 2))).value
        array([[5., 5.],
               [5., 5.]])
    """
    x = _opened(x)
    y = None if y is None else np.asanyarray(y)
    job = GramJob(
        **_form(x, chunk_rows),
        **_form_of_y(y),
        weighted=weights is not None,
        ones=ones,
    )
    return _folded(job, x, threads, y=y, weights=weights)


def cross(x: Rows, y: Rows, *, chunk_rows: int = 4096, threads: int | None = None) -> Result:
    """Returns the cross products X^T Y: row n of one belongs to row n of the other.

    Args:
        x: The rows of X, as for `gram`.
        y: The rows of Y: an array if X is one, files if X is in files.
        chunk_rows: As for `gram`.
        threads: As for `gram`.

    Returns:
        float64 [columns of x, columns of y], and the digest.
    """
    x, y = _opened(x), _opened(y)
    job = CrossJob(**_form(x, chunk_rows), **_form_of_y(y))
    return _folded(job, x, threads, y=y)


def moments(
    x: Rows,
    *,
    shifts: float | Sequence[float] | None = None,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> Result:
    """Returns count, range, mean, deviation, skewness and kurtosis of each column.

    Args:
        x: The rows, as for `gram`.
        shifts: A number near the mean, for all columns or for each; default: those of `shifts(x)`.
        chunk_rows: As for `gram`.
        threads: As for `gram`.

    Returns:
        An array with an element for each column, whose fields `MomentsJob` describes; and the
        digest.

    Example:
        >>> moments([[1.0], [2.0], [6.0]]).value["mean"]
        array([3.])
    """
    x = _opened(x)
    near = _shifts(x) if shifts is None else shifts
    return _folded(MomentsJob(**_form(x, chunk_rows), shifts=near), x, threads)


def histogram(
    x: Rows,
    edges: Sequence[float] | npt.NDArray[Any],
    *,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> Result:
    """Returns how many numbers of each column lie between given edges.

    Args:
        x: The rows, as for `gram`.
        edges: The edges of the bins of every column, in increasing order.
        chunk_rows: As for `gram`.
        threads: As for `gram`.

    Returns:
        An array with an element for each column, whose fields `HistogramJob` describes; and the
        digest.

    Example:
        >>> histogram([[1.0], [2.0], [6.0]], [0, 2, 4]).value["between"]
        array([[1, 1]], dtype=uint64)
    """
    x = _opened(x)
    job = HistogramJob(**_form(x, chunk_rows), edges=edges)  # type: ignore[arg-type]
    return _folded(job, x, threads)


def exponents(x: Rows, *, chunk_rows: int = 4096, threads: int | None = None) -> Result:
    """Returns how many numbers of each column have each sign and binary exponent.

    Args:
        x: The rows, as for `gram`.
        chunk_rows: As for `gram`.
        threads: As for `gram`.

    Returns:
        An array with an element for each column, whose fields `ExponentsJob` describes; and the
        digest.
    """
    x = _opened(x)
    return _folded(ExponentsJob(**_form(x, chunk_rows)), x, threads)


def distinct(
    x: Rows, *, precision: int = 14, chunk_rows: int = 4096, threads: int | None = None
) -> Result:
    """Returns about how many different numbers each column has (HyperLogLog).

    Args:
        x: The rows, as for `gram`.
        precision: p, from 4 to 18: the error is some 104 % / sqrt(2^p), 0.8 % for 14.
        chunk_rows: As for `gram`.
        threads: As for `gram`.

    Returns:
        float64 [k], and the digest of the registers.
    """
    x = _opened(x)
    return _folded(DistinctJob(**_form(x, chunk_rows), precision=precision), x, threads)


def top(
    x: Rows,
    column: int | str,
    *,
    count: int = 10,
    smallest: bool = False,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> Result:
    """Returns the rows with the greatest numbers in one column, or the least.

    Args:
        x: The rows, as for `gram`.
        column: The number of the column, counted from 0, or its name in a file that has names.
        count: The number of rows.
        smallest: Whether to take the least numbers.
        chunk_rows: As for `gram`.
        threads: As for `gram`.

    Returns:
        An array of `count` rows or fewer, with the fields `value` and `row`; and the digest.

    Example:
        >>> top([[1.0], [7.0], [6.0]], 0, count=1).value
        array([(7., 1)], dtype=[('value', '<f8'), ('row', '<u8')])
    """
    x = _opened(x)
    if isinstance(column, str):
        if not isinstance(x, Matrix):
            raise InvalidArgument(
                f"expected the number of a column, because an array has no names, found {column!r}"
            )
        column = x.column_of(column)
    job = TopJob(**_form(x, chunk_rows), column=column, count=count, smallest=smallest)
    return _folded(job, x, threads)


def shifts(x: Rows) -> list[float]:
    """Returns the median of each column's finite numbers among the first 1,024 rows.

    `headwater-reduce moments` takes them by default; 0 for a column without finite numbers there.
    """
    return _shifts(_opened(x))


def _shifts(x: Matrix | npt.NDArray[Any]) -> list[float]:
    if isinstance(x, Matrix):
        return x.shifts()
    # The job knows what an array of rows is.
    rows = GramJob(**_form(x, 1))._arrays(x, {})
    return first_shifts(x.dtype.name, *rows)


def _opened(x: Rows) -> Matrix | npt.NDArray[Any]:
    """Opens the files that are named, and returns anything else as an array."""
    if isinstance(x, Matrix):
        return x
    if isinstance(x, str | os.PathLike):
        return Matrix(x)
    if isinstance(x, list | tuple) and x and all(isinstance(p, str | os.PathLike) for p in x):
        return Matrix(*x)
    return np.asanyarray(x)


def _form(x: Matrix | npt.NDArray[Any], chunk_rows: int) -> dict[str, Any]:
    """Returns the fields of a job of these rows."""
    if isinstance(x, Matrix):
        form = {"rows": x.rows, "columns": x.columns, "data": x.data, "dtype": x.dtype}
    elif x.ndim == 2:
        rows, columns = x.shape
        form = {"rows": rows, "columns": columns, "data": "an array", "dtype": x.dtype.name}
    else:
        raise InvalidArgument(
            f"expected rows as a matrix [n, k], found the shape {x.shape}; reshape them"
        )
    return form | {"chunk_rows": chunk_rows}


def _form_of_y(y: Matrix | npt.NDArray[Any] | None) -> dict[str, Any]:
    if y is None:
        return {}
    form = _form(y, 1)
    return {"y_columns": form["columns"], "y_dtype": form["dtype"]}


def _folded(job: Job, x: Matrix | npt.NDArray[Any], threads: int | None, **others: Any) -> Result:
    """Folds all rows of a job."""
    reduction = Reduction(job)
    given = [x, *(other for other in others.values() if other is not None)]
    files = [matrix for matrix in given if isinstance(matrix, Matrix)]
    if isinstance(x, Matrix) and len(files) == len(given):
        reduction.receive(fold_files(job._fields(), files, threads))
    elif isinstance(x, Matrix) or files:
        raise InvalidArgument(
            "expected arrays only or files only, found both; read the files with NumPy, or save "
            "the arrays"
        )
    else:
        worker = Worker(job, threads=threads)
        worker.push(x, **others)
        reduction.receive(worker.portion())
    return Result(reduction.result(), reduction.digest)
