"""Gram matrices of rows in Python, such as activations, with the same bits for any workers.

A job describes a matrix of rows, which are folded in chunks of one size. Workers, in any number of
processes, each fold consecutive rows and return portions, which are bytes. The caller sends the
portions to a reduction, in any order and also more than once, until no row is missing.
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
    """The plan of a Gram matrix: all settings that determine its bits.

    Args:
        rows: The number of rows.
        columns: k, the number of columns.
        data: A name for these rows. Portions of rows with another name are refused; the caller
            makes sure that a name always means the same rows.
        chunk_rows: The number of rows in a chunk. The rows of a chunk are summed in order, and a
            fixed tree adds the chunks.
        dtype: The type of the numbers. Products and sums have 64 bits for every type.

    Raises:
        InvalidArgument: An argument is not valid.
        LimitExceeded: There are too many rows or columns, or the name is too long.
    """

    rows: int
    columns: int
    data: str
    chunk_rows: int = 4096
    dtype: Literal["float64", "float32", "float16", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        GramReductionCore(vars(self))


class Worker:
    """Folds rows of a job, which are pushed in order: consecutive ones, or those of one rank.

    With `world` ranks, the blocks of `block_chunks` chunks go to the ranks in turn: rank r owns the
    blocks b with b % world == r. After the last row of a block, `next_row` is the first row of the
    next own block.

    A worker keeps the rows of one unfinished chunk, and a few matrices of sums until `portion`
    returns them.

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
        job: GramJob,
        first_row: int | None = None,
        threads: int | None = None,
        *,
        rank: int = 0,
        world: int = 1,
        block_chunks: int = 1,
    ) -> None:
        self._job = job
        options = {
            "first_row": first_row,
            "threads": threads,
            "rank": rank,
            "world": world,
            "block_chunks": block_chunks,
        }
        self._core = GramWorkerCore(vars(job), options)

    def push(self, rows: npt.ArrayLike) -> None:
        """Accepts the next own rows, and folds the chunks that they complete.

        Other Python threads run meanwhile. If one of them writes to the array, it is undefined
        which version of a number is folded; but each number is read once, so that all sums are of
        the same rows. Ctrl-C interrupts the call; then the rows before `next_row` are accepted.

        Args:
            rows: Rows [n, k] of the job's dtype, with any n.

        Raises:
            InvalidArgument: The rows have another dtype or shape than the job, or fewer rows are
                left. No row is accepted.
        """
        if isinstance(rows, np.ma.MaskedArray):
            raise InvalidArgument(
                "expected an array without a mask, found a masked array; fill it in with `filled`, "
                "or leave out its masked rows"
            )
        array: npt.NDArray[Any] = np.asarray(rows)
        found = array.dtype.name if array.dtype.isnative else array.dtype.str
        if found != self._job.dtype:
            raise InvalidArgument(
                f"expected rows of {self._job.dtype} as in the job, found {found}; convert "
                "them, or make the job with that dtype"
            )
        if array.ndim != 2:
            raise InvalidArgument(
                f"expected rows as a matrix [n, {self._job.columns}], found the shape "
                f"{array.shape}; reshape them"
            )
        self._core.push(np.ascontiguousarray(array).view(np.uint8))

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


class Reduction:
    """The sums of a job that have been received so far.

    The result depends on the job and its rows only: not on the number of workers, the rows of each
    worker, or the order in which portions arrive.

    Args:
        job: The job whose portions are received.
    """

    def __init__(self, job: GramJob) -> None:
        self._core = GramReductionCore(vars(job))

    def receive(self, portion: bytes) -> int:
        """Receives a portion: from a worker, from another reduction, or from a saved file.

        It keeps the whole portion, or, if the portion is refused, nothing of it. The sum of several
        chunks replaces the sums of these chunks.

        Returns:
            The number of matrices of sums that are new. Sums that were received before change
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

        Each range begins with a chunk, so its first row is a valid `first_row` of a worker.
        """
        return self._core.missing()

    @property
    def is_complete(self) -> bool:
        """Whether no row is missing."""
        return self._core.is_complete

    def result(self) -> npt.NDArray[np.float64]:
        """Returns the Gram matrix of all rows, float64 [k, k], with both triangles.

        Raises:
            InvalidArgument: Rows are missing, or the job has none.
        """
        return self._core.result()

    @property
    def digest(self) -> str:
        """The digest of the result, in hexadecimal digits.

        `headwater-reduce gram` prints it for the same rows in chunks of the same size.
        """
        return self._core.digest
