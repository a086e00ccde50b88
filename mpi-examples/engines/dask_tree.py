"""A Gram matrix by Dask, with one digest for any partitions.

The products of `dask.array` have other last bits when the chunks are others: their sums follow the
chunks. Here Dask runs the same tasks in any order and grouping, and `headwater.reduce` adds up.
"""

from __future__ import annotations

import dask
import dask.array
import dask.bag
import numpy as np

from headwater.reduce import GramJob, Reduction, fold, gram, merge

ROWS, CHUNK = 60_000, 1_000


def main() -> None:
    """Folds by a tree of delayed tasks and by a bag, in partitions of several sizes."""
    rows = np.random.default_rng(2).standard_normal((ROWS, 24), np.float32)
    job = GramJob(ROWS, rows.shape[1], "rows of dask_tree.py", CHUNK)
    digests = {gram(rows, chunk_rows=CHUNK).digest}
    for each in (2_000, 7_000, 30_000):
        digests.add(digest(job, tree(job, rows, each).compute(scheduler="threads")))
        digests.add(digest(job, bag(job, rows, each).compute(scheduler="threads")))
    assert len(digests) == 1, digests
    own = {products(rows, each).tobytes() for each in (2_000, 7_000, 30_000)}
    assert len(own) > 1
    print(f"dask_tree: one digest of {2 * 3 + 1} folds, {len(own)} of dask.array:", *digests)


def tree(job: GramJob, rows: np.ndarray, each: int) -> dask.delayed.Delayed:
    """Returns the portion of all rows: a task for each partition, then a tree of merges."""
    of_rows, of_portions = dask.delayed(fold), dask.delayed(merge)
    level = [of_rows(job, first, rows[first : first + each]) for first in range(0, ROWS, each)]
    while len(level) > 1:
        level = [of_portions(job, *level[at : at + 4]) for at in range(0, len(level), 4)]
    return level[0]


def bag(job: GramJob, rows: np.ndarray, each: int) -> dask.bag.Item:
    """Returns the same by the reduction of a bag."""

    def of_partition(firsts):
        return merge(job, *(fold(job, first, rows[first : first + each]) for first in firsts))

    firsts = dask.bag.from_sequence(range(0, ROWS, each), npartitions=4)
    return firsts.reduction(of_partition, lambda portions: merge(job, *portions))


def digest(job: GramJob, portion: bytes) -> str:
    """Returns the digest of a result."""
    reduction = Reduction(job)
    reduction.receive(portion)
    return reduction.digest


def products(rows: np.ndarray, each: int) -> np.ndarray:
    """Returns what Dask itself adds up."""
    x = dask.array.from_array(rows, chunks=(each, rows.shape[1]))
    return (x.T @ x).compute(scheduler="threads")


if __name__ == "__main__":
    main()
