"""The workers and the reduction of `headwater.reduce`."""

from __future__ import annotations

import os
from typing import Any

import numpy.typing as npt

from headwater._headwater import InvalidArgument, ReductionCore, WorkerCore
from headwater._reduce_jobs import Job, PartitionedJob, SumJob


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
        >>> import numpy as np
        >>> from headwater.reduce import GramJob, Reduction, Worker
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

        It covers the own blocks before the first row, and those whose sums were all returned by
        `portion`, not rows that were pushed since. It names the job, `rank`, `world` and
        `block_chunks`. It is advice for `resume`: a fold that has lost its cursors goes on from the
        `missing` rows of its `Reduction`.
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
