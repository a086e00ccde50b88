"""Statistics of rows in Python, with the same bits for any workers.

One call folds an array or files: `gram`, `cross`, `moments`, `exact`, `histogram`, `exponents`,
`distinct`, `top` and `quantiles`. To share the rows among processes, make a job, such as `GramJob`:
it describes rows that are folded in chunks of one size. Workers each fold consecutive rows and
return portions, which are bytes. A reduction receives the portions, in any order and also more than
once, until no row is missing. A `PartitionedJob` has parts of any length in place of rows, and a
`SumJob` arrays that the caller has computed.

`fold` and `merge` do this as pure functions, for engines such as Dask, Ray, Spark and Beam.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater._headwater import (
    InvalidArgument,
    Matrix,
    first_shifts,
    fold_files,
    sum_leaf,
)
from headwater._optional import installed_by
from headwater._reduce_jobs import (
    CrossJob,
    DistinctJob,
    ExactJob,
    ExponentsJob,
    GramJob,
    HistogramJob,
    Job,
    MomentsJob,
    PartitionedJob,
    QuantilesJob,
    SumJob,
    Sums,
    TopJob,
)
from headwater._reduce_workers import PartWorker, Reduction, Worker

__all__ = [
    "CrossJob",
    "DistinctJob",
    "ExactJob",
    "ExponentsJob",
    "GramJob",
    "HistogramJob",
    "Job",
    "Matrix",
    "MomentsJob",
    "PartWorker",
    "PartitionedJob",
    "QuantilesJob",
    "Reduction",
    "Result",
    "SumJob",
    "TopJob",
    "Worker",
    "cross",
    "distinct",
    "exact",
    "exponents",
    "fold",
    "gram",
    "histogram",
    "merge",
    "moments",
    "quantiles",
    "shifts",
    "top",
]


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


# How many numbers of files are in memory at a time, where arrays have the same rows.
_PART_NUMBERS = 1 << 21

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
    reject_nonfinite: bool = False,
    sums: Sums = "f64",
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
        reject_nonfinite: Whether a NaN or an infinity is an error that names its row and column.
            By default they go into the sums.
        sums: "f64", or "f32x128": in about half the time with an error of some 1e-8 to 2e-6, for
            rows of float32, float16 or bfloat16 without weights, as `GramJob` describes it. Another
            choice gives other bits.
        chunk_rows: The number of rows in a chunk. Another number gives other bits.
        threads: The number of threads; default: all cores. It changes no bit.

    Returns:
        float64 [k, k], and the digest.

    Raises:
        InvalidArgument: An argument is not valid.
        DataError: The files have NULL, or have changed meanwhile; there is a number that
            `reject_nonfinite` refuses.

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
        reject_nonfinite=reject_nonfinite,
        sums=sums,
    )
    return _folded(job, x, threads, y=y, weights=weights)


def cross(
    x: Rows,
    y: Rows,
    *,
    reject_nonfinite: bool = False,
    sums: Sums = "f64",
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> Result:
    """Returns the cross products X^T Y: row n of one belongs to row n of the other.

    Args:
        x: The rows of X, as for `gram`.
        y: The rows of Y, an array or files.
        reject_nonfinite: As for `gram`.
        sums: As for `gram`.
        chunk_rows: As for `gram`.
        threads: As for `gram`.

    Returns:
        float64 [columns of x, columns of y], and the digest.
    """
    x, y = _opened(x), _opened(y)
    job = CrossJob(
        **_form(x, chunk_rows),
        **_form_of_y(y),
        reject_nonfinite=reject_nonfinite,
        sums=sums,
    )
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


def exact(x: Rows, *, chunk_rows: int = 4096, threads: int | None = None) -> Result:
    """Returns sum, mean and deviation of each column without any error but one rounding.

    The sums are integers as wide as they need to be, so that they are the same for any order of the
    rows and any `chunk_rows`.

    Args:
        x: The rows, as for `gram`.
        chunk_rows: As for `gram`; it changes no bit.
        threads: As for `gram`.

    Returns:
        An array with an element for each column, whose fields `ExactJob` describes; and the digest.

    Example:
        >>> exact([[1e16], [1.0], [-1e16]]).value["sum"]
        array([1.])
    """
    x = _opened(x)
    return _folded(ExactJob(**_form(x, chunk_rows)), x, threads)


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


def quantiles(
    x: Rows,
    at: float | str | Sequence[float | str],
    *,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> Result:
    """Returns the exact quantiles of each column, by passes over the rows: two, or four of float64.

    The quantile q of n numbers is the least of them that at least q n of them do not exceed, as
    `numpy.quantile` has it with `method="inverted_cdf"`; of 0 it is the least number. Numbers are
    in their total order: -0 is below +0, infinities are at the ends. NaN and NULL are counted, and
    are not among the n. No row is kept: a pass needs 512 KiB for each column, and after the first
    one for each quantile of a column.

    Args:
        x: The rows, as for `gram`.
        at: The quantiles, from 0 to 1. Each is the decimal number that is written, without
            rounding: of a float its `repr`; a text, such as "0.999", can have more digits.
        chunk_rows: As for `gram`; it changes no bit.
        threads: As for `gram`.

    Returns:
        An array with an element for each column, whose fields `QuantilesJob` describes; and the
        digest.

    Raises:
        InvalidArgument: An argument is not valid.
        LimitExceeded: There are too many columns and quantiles for one pass.
        DataError: The rows have changed between two passes.

    Example:
        >>> quantiles([[1.0], [7.0], [6.0], [2.0]], at=[0, 0.5, 0.9]).value["quantiles"]
        array([[1., 2., 7.]])
    """
    x = _opened(x)
    job: QuantilesJob | None = QuantilesJob(**_form(x, chunk_rows), at=at)
    while job is not None:
        reduction = _reduced(job, x, threads)
        job = job.after(reduction)
    return Result(reduction.result(), reduction.digest)


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
    """Folds all rows of a job, and returns its result."""
    reduction = _reduced(job, x, threads, **others)
    return Result(reduction.result(), reduction.digest)


def _reduced(
    job: Job, x: Matrix | npt.NDArray[Any], threads: int | None, **others: Any
) -> Reduction:
    """Folds all rows of a job."""
    reduction = Reduction(job)
    given = {name: of for name, of in others.items() if of is not None}
    files = [of for of in [x, *given.values()] if isinstance(of, Matrix)]
    if isinstance(x, Matrix) and len(files) == 1 + len(given) and not vars(job).get("ones"):
        reduction.receive(fold_files(job._fields(), files, threads))
    else:
        worker = Worker(job, threads=threads)
        if isinstance(x, Matrix) or files:
            for rows, arrays in _parts(x, given):
                worker.push(rows, **arrays)
        else:
            worker.push(x, **given)
        reduction.receive(worker.portion())
    return reduction


def _parts(
    x: Matrix | npt.NDArray[Any], others: dict[str, Any]
) -> Iterator[tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]]:
    """Yields all rows of files and arrays, some megabytes of the files at a time."""
    arrays = {
        name: of if isinstance(of, Matrix) else np.asanyarray(of)
        for name, of in {"x": x, **others}.items()
    }
    for name, of in arrays.items():
        if not isinstance(of, Matrix) and of.ndim == 0:
            raise InvalidArgument(f"expected {name} as an array of numbers, found {of.item()!r}")
    counts = {name: of.rows if isinstance(of, Matrix) else len(of) for name, of in arrays.items()}
    if len(set(counts.values())) > 1:
        raise InvalidArgument(
            "expected as many rows in each of the files and arrays, found "
            + ", ".join(f"{count:,} of {name}" for name, count in counts.items())
        )
    columns = sum(of.columns for of in arrays.values() if isinstance(of, Matrix))
    step = max(_PART_NUMBERS // columns, 1)
    for start in range(0, counts["x"], step):
        part = {name: _rows_of(of, start, start + step) for name, of in arrays.items()}
        yield part.pop("x"), part


def _rows_of(of: Matrix | npt.NDArray[Any], start: int, stop: int) -> npt.NDArray[Any]:
    if not isinstance(of, Matrix):
        return of[start:stop]
    if of.dtype == "bfloat16":
        # It tells NumPy of the type.
        with installed_by("pip install ml_dtypes"):
            import ml_dtypes  # noqa: F401
    read = of.read(start, min(stop, of.rows))
    return np.frombuffer(read, np.dtype(of.dtype)).reshape(-1, of.columns)
