"""Statistics of rows that live in Python, such as activations: the same bits whoever folds them.

A job is a matrix of so many rows in chunks of one size. Workers, in any number of processes, each
take a run of its rows and hand out portions, which are bytes; how those travel is the caller's
matter. A reduction takes them in, in any order and some more than once, until nothing is missing.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater._headwater import GramReductionCore, GramWorkerCore, InvalidArgument


@dataclasses.dataclass(frozen=True)
class GramJob:
    """The Gram matrix of the columns of some rows: all that determines its bits.

    Args:
        rows: How many rows there are.
        columns: k, the numbers of a row.
        data: A name that tells these rows from all others. Portions of rows of another name are
            refused; that rows of one name are the same is the caller's promise.
        chunk_rows: How many rows are summed up one after the other; the sums of chunks are added in
            a fixed tree.
        dtype: The type of the numbers. Products and sums have 64 bits in any case.

    Raises:
        InvalidArgument: There is no such job.
        LimitExceeded: It has more columns than can be folded.
    """

    rows: int
    columns: int
    data: str
    chunk_rows: int = 4096
    dtype: Literal["float64", "float32", "float16", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        GramReductionCore(vars(self))


class Worker:
    """Folds the rows of a job from one row on, as they come.

    It keeps the rows of one unfinished chunk, and a few matrices of sums until they are handed out.

    Args:
        job: What is folded.
        first_row: The first row that it is given: a multiple of the job's `chunk_rows`.
        threads: How many threads fold; None is all cores. Changes no bit.

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

    def __init__(self, job: GramJob, first_row: int = 0, threads: int | None = None) -> None:
        self._job = job
        self._core = GramWorkerCore(vars(job), first_row, threads)

    def push(self, rows: npt.ArrayLike) -> None:
        """Takes in the next rows, and folds the chunks that they finish.

        Other Python threads run meanwhile. Ctrl-C ends it: the rows before `next_row` are taken in.

        Args:
            rows: The numbers [n, k], of the job's dtype; n is whatever the caller has.

        Raises:
            InvalidArgument: They are not of the job's form, or more than it has. None is taken in.
        """
        if isinstance(rows, np.ma.MaskedArray):
            raise InvalidArgument(
                "expected numbers that are all there, found a masked array; fill it in (`filled`), "
                "or leave out the rows"
            )
        array: npt.NDArray[Any] = np.asarray(rows)
        found = array.dtype.name if array.dtype.isnative else array.dtype.str
        if found != self._job.dtype:
            raise InvalidArgument(
                f"expected rows of {self._job.dtype} as in the job, found {found}; convert "
                "them, or make the job of that dtype"
            )
        if array.ndim != 2:
            raise InvalidArgument(
                f"expected rows as a matrix [n, {self._job.columns}], found the shape {array.shape}"
            )
        self._core.push(np.ascontiguousarray(array).view(np.uint8))

    def portion(self) -> bytes:
        """Returns all that was finished since the last time, for `Reduction.receive`.

        A chunk is finished when its last row was pushed. Nothing finished is a portion as well.
        """
        return self._core.portion()

    @property
    def next_row(self) -> int:
        """The number of the row that is to be pushed next."""
        return self._core.next_row


class Reduction:
    """What of a job was folded.

    Its result depends on the job and the rows, and not on how many workers there were, which rows
    each of them had, or when their portions came.

    Args:
        job: What is folded.
    """

    def __init__(self, job: GramJob) -> None:
        self._core = GramReductionCore(vars(job))

    def receive(self, portion: bytes) -> int:
        """Takes in a portion: a worker's, another reduction's, or the bytes of a saved file.

        All of it is taken in, or nothing. Sums of more rows take the place of those of some.

        Returns:
            How many of its matrices of sums are new; what is there already changes nothing.

        Raises:
            PlanMismatch: It is of another job; the message names every field that differs.
            Corrupt: It is damaged, or has other sums of exactly the rows of sums that were received
                before. Sums that were added to others since cannot be compared.
            NotOurs: It is no portion.
            VersionMismatch: It is of another format version.
        """
        return self._core.receive(portion)

    def portion(self) -> bytes:
        """Returns all that was received, as one portion."""
        return self._core.portion()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the portion to a file, wholly or not at all, to go on from after a crash.

        Whoever goes on receives the bytes of the file, and has `missing` folded, by any number of
        workers.
        """
        self._core.save(path)

    def missing(self) -> list[tuple[int, int]]:
        """Returns the rows that are still to be folded, as ranges: the first, and the end.

        Each begins with a chunk, so that it is a `first_row` of a worker.
        """
        return self._core.missing()

    @property
    def is_complete(self) -> bool:
        """Whether no row is missing."""
        return self._core.is_complete

    def result(self) -> npt.NDArray[np.float64]:
        """Returns the Gram matrix of all rows, float64 [k, k], both halves.

        Raises:
            InvalidArgument: Rows are missing, or the job has none.
        """
        return self._core.result()

    @property
    def digest(self) -> str:
        """The digest of the result, in hexadecimal digits.

        It is what `headwater-reduce gram` prints for the same rows in chunks of the same size.
        """
        return self._core.digest
