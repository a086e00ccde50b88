"""Statistics of arrays that JAX has spread over devices and processes: `pip install jax`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import jax
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils

from headwater._headwater import InvalidArgument
from headwater.reduce import GramJob, Reduction, Worker

_LENGTH_BYTES = 8


def gram(
    x: jax.Array | npt.NDArray[np.number],
    *,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> npt.NDArray[np.float64]:
    """Returns the Gram matrix x^T x, the same bits for any number of processes and devices.

    Each process folds the rows that its devices hold, rows that several hold once; sums travel,
    through JAX's own collectives, and rows do not. Where the array is spread over processes, all of
    them call this, as they call every other collective. One that this process holds alone (a NumPy
    array, say) is folded here, and nothing travels.

    Args:
        x: Rows [n, k] of float32, float16, bfloat16 or float64, sharded along the first axis or not
            at all.
        chunk_rows: How many rows are summed up one after the other; the sums of chunks are added in
            a fixed tree. The bits depend on it. Rows of a chunk must lie on one device, so that a
            shard has a multiple of it.
        threads: How many threads of each process fold; None is all cores. Changes no bit.

    Returns:
        The matrix, float64 [k, k], on every process.

    Raises:
        InvalidArgument: The array is no such matrix, or a shard ends within a chunk; the message
            says which `chunk_rows` would do. It is raised on all processes.

    Example:
        >>> gram(np.ones((3, 2), np.float32))
        array([[3., 3.],
               [3., 3.]])
    """
    if isinstance(x, jax.core.Tracer):
        raise InvalidArgument(
            "expected an array with its numbers, found one that JAX traces; call gram outside of "
            "jax.jit, and give it what the compiled function returns"
        )
    if not isinstance(x, (jax.Array, np.ndarray)):
        raise InvalidArgument(
            f"expected an array of JAX or NumPy, found {type(x).__name__}; make one with "
            "numpy.asarray"
        )
    if x.ndim != 2:
        raise InvalidArgument(f"expected rows as a matrix [n, k], found the shape {x.shape}")
    rows, columns = x.shape
    # GramJob refuses what is none of its types.
    job = GramJob(rows, columns, "an array of JAX", chunk_rows, x.dtype.name)  # type: ignore[arg-type]
    reduction = Reduction(job)
    if not isinstance(x, jax.Array):
        _fold(job, reduction, 0, x, threads)
        return reduction.result()
    _check_shards(x, chunk_rows)
    for shard in x.addressable_shards:
        if shard.replica_id == 0:
            first_row = shard.index[0].indices(rows)[0]
            _fold(job, reduction, first_row, np.asarray(shard.data), threads)
    if not x.is_fully_addressable:
        for portion in _from_all_processes(reduction.portion()):
            reduction.receive(portion)
    return reduction.result()


def _fold(
    job: GramJob, reduction: Reduction, first_row: int, rows: npt.ArrayLike, threads: int | None
) -> None:
    worker = Worker(job, first_row, threads)
    worker.push(rows)
    reduction.receive(worker.portion())


def _check_shards(x: jax.Array, chunk_rows: int) -> None:
    """Refuses shards that chunks do not fit into; every process sees those of all."""
    rows, columns = x.shape
    indices = x.sharding.devices_indices_map(x.shape).values()
    cuts = {0}
    for row_slice, column_slice in indices:
        if column_slice.indices(columns)[:2] != (0, columns):
            raise InvalidArgument(
                "expected an array that is sharded along its first axis alone, found "
                f"{x.sharding}; whole rows are folded: give it another sharding with jax.device_put"
            )
        cuts.update(row_slice.indices(rows)[:2])
    cuts.discard(rows)
    wrong = sorted(cut for cut in cuts if cut % chunk_rows != 0)
    if wrong:
        raise InvalidArgument(
            f"expected shards that begin with a chunk, found one that begins with row {wrong[0]}, "
            f"no multiple of {chunk_rows}; with chunk_rows={_divisor(cuts, chunk_rows)} all do"
        )


def _divisor(cuts: Iterable[int], most: int) -> int:
    """The greatest number that divides all, and is not above `most`."""
    common = math.gcd(*cuts)
    low = (number for number in range(1, math.isqrt(common) + 1) if common % number == 0)
    divisors = {divisor for number in low for divisor in (number, common // number)}
    return max(divisor for divisor in divisors if divisor <= most)


def _from_all_processes(own: bytes) -> list[bytes]:
    """What each process has, on every one of them."""
    # Arrays that are gathered are of one shape, and without JAX's 64 bits a length is four bytes.
    lengths = _gathered(len(own).to_bytes(_LENGTH_BYTES, "little"))
    counts = [int.from_bytes(length, "little") for length in lengths]
    pieces = _gathered(own.ljust(max(counts), b"\0"))
    return [piece[:count] for piece, count in zip(pieces, counts, strict=True)]


def _gathered(own: bytes) -> list[bytes]:
    all_of_them = multihost_utils.process_allgather(np.frombuffer(own, np.uint8), tiled=False)
    return [row.tobytes() for row in cast(npt.NDArray[np.uint8], all_of_them)]
