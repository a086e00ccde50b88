"""Batches and masks as JAX arrays, Gram matrices of sharded arrays: `pip install jax`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from headwater._alias import alias
from headwater._headwater import InvalidArgument
from headwater._optional import installed_by
from headwater.reduce import GramJob, Reduction, Worker

with installed_by("pip install jax"):
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

_LENGTH_BYTES = 8


def arrays(batch: Mapping[str, npt.NDArray[Any]]) -> dict[str, jax.Array | npt.NDArray[Any]]:
    """Returns the arrays of a batch as JAX arrays on the CPU, without a copy.

    They share the memory of the batch, which is reused after the last of them is deleted.
    `jax.device_put` transfers them to an accelerator. Arrays of 64 bits, such as `obs_time`, stay
    NumPy arrays unless `jax_enable_x64` is set, because JAX would cut them to 32 bits.

    `jnp.from_dlpack` itself refuses the arrays of a batch: they are read-only, and it asks for a
    version of DLPack that cannot say so.

    Example:
        >>> batch = headwater.jax.arrays(sampler.next_train_batch())  # doctest: +SKIP
    """
    return {
        name: jnp.from_dlpack(alias(array))
        if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype
        else array
        for name, array in batch.items()
    }


class AttentionMasks(NamedTuple):
    """Which cells attend to which, bool [B, S, S]: True at (b, i, j) if cell i attends to j."""

    # Cells of the same column.
    column: jax.Array
    # Cells of the same row.
    feature: jax.Array
    # Cells of rows that refer to the cell's row, or that it refers to.
    neighbor: jax.Array


def attention_masks(batch: Mapping[str, jax.Array | npt.NDArray[Any]]) -> AttentionMasks:
    """Returns the three masks of relational attention for a batch, made on its device.

    Padding attends to nothing and nothing to it, but each cell attends to itself in every mask: a
    row of a mask without any True would make a softmax NaN. It takes batches in both forms, may be
    called within `jax.jit`, and suits `jax.nn.dot_product_attention(..., mask=mask[:, None])`.

    Example:
        >>> masks = attention_masks(arrays(sampler.next_train_batch()))  # doctest: +SKIP
    """
    rows = jnp.asarray(batch["seq_row_ids"]).astype(jnp.int32)
    columns = jnp.asarray(batch["column_ids"])
    edges = jnp.asarray(batch["fk_edges"]).astype(jnp.int32)
    is_cell = jnp.asarray(batch["is_padding"]) == 0
    most_rows = batch["row_hop"].shape[1]

    def linked(edges: jax.Array, rows: jax.Array) -> jax.Array:
        matrix = jnp.zeros((most_rows, most_rows), bool)
        # Unused edges have rows out of range, which are dropped.
        matrix = matrix.at[edges[:, 0], edges[:, 1]].set(True, mode="drop")
        return (matrix | matrix.T)[rows][:, rows]

    both = is_cell[:, :, None] & is_cell[:, None, :]
    itself = jnp.eye(rows.shape[1], dtype=bool)
    masks = (
        columns[:, :, None] == columns[:, None, :],
        rows[:, :, None] == rows[:, None, :],
        jax.vmap(linked)(edges, rows),
    )
    return AttentionMasks(*(mask & both | itself for mask in masks))


def gram(
    x: jax.Array | npt.NDArray[np.number],
    *,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> npt.NDArray[np.float64]:
    """Returns the Gram matrix x^T x, with the same bits for any number of processes and devices.

    Each process folds the rows on its own devices; a replicated row is folded once. Processes
    exchange sums, not rows, through JAX's collectives. If the array spans several processes, all of
    them must call this function, as for any collective. An array that one process holds alone, such
    as a NumPy array, is folded without communication.

    Args:
        x: Rows [n, k] of float32, float16, bfloat16 or float64, sharded along the first axis or not
            sharded.
        chunk_rows: The number of rows in a chunk. The rows of a chunk are summed in order, and a
            fixed tree adds the chunks, so another number gives other bits. A chunk must lie on one
            device, so each shard begins at a multiple of `chunk_rows`.
        threads: The number of threads of each process; default: all cores. It changes no bit.

    Returns:
        The matrix, float64 [k, k], on every process.

    Raises:
        InvalidArgument: The array is not such a matrix, or a shard begins within a chunk; then the
            message names a valid `chunk_rows`. All processes raise it.

    Example:
        >>> gram(np.ones((3, 2), np.float32))
        array([[3., 3.],
               [3., 3.]])
    """
    if isinstance(x, jax.core.Tracer):
        raise InvalidArgument(
            "expected a concrete array, found a JAX tracer; call gram outside of jax.jit and "
            "jax.vmap, on the array that the transformed function returns"
        )
    if not isinstance(x, (jax.Array, np.ndarray)):
        raise InvalidArgument(
            f"expected a JAX or NumPy array, found {type(x).__name__}; convert it with "
            "numpy.asarray"
        )
    if x.ndim != 2:
        raise InvalidArgument(
            f"expected rows as a matrix [n, k], found the shape {x.shape}; reshape them"
        )
    rows, columns = x.shape
    # GramJob rejects other dtypes.
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
    """Rejects shards that begin within a chunk; every process checks all shards."""
    rows, columns = x.shape
    indices = x.sharding.devices_indices_map(x.shape).values()
    cuts = {0}
    for row_slice, column_slice in indices:
        if column_slice.indices(columns)[:2] != (0, columns):
            raise InvalidArgument(
                "expected an array that is sharded along its first axis only, found "
                f"{x.sharding}; reshard it with jax.device_put, so that each shard has whole rows"
            )
        cuts.update(row_slice.indices(rows)[:2])
    cuts.discard(rows)
    wrong = sorted(cut for cut in cuts if cut % chunk_rows != 0)
    if wrong:
        raise InvalidArgument(
            f"expected shards that begin at a multiple of chunk_rows, {chunk_rows}, found one that "
            f"begins at row {wrong[0]}; use chunk_rows={_divisor(cuts, chunk_rows)}"
        )


def _divisor(cuts: Iterable[int], limit: int) -> int:
    """Returns the greatest number up to `limit` that divides all cuts."""
    common = math.gcd(*cuts)
    low = (number for number in range(1, math.isqrt(common) + 1) if common % number == 0)
    divisors = {divisor for number in low for divisor in (number, common // number)}
    return max(divisor for divisor in divisors if divisor <= limit)


def _from_all_processes(own: bytes) -> list[bytes]:
    """Returns the bytes of every process, by rank; all processes call it."""
    # Gathered arrays have one shape, so the lengths are gathered first. They travel as bytes,
    # because JAX cuts integers to 32 bits unless jax_enable_x64 is set.
    lengths = _gathered(len(own).to_bytes(_LENGTH_BYTES, "little"))
    counts = [int.from_bytes(length, "little") for length in lengths]
    pieces = _gathered(own.ljust(max(counts), b"\0"))
    return [piece[:count] for piece, count in zip(pieces, counts, strict=True)]


def _gathered(own: bytes) -> list[bytes]:
    gathered = multihost_utils.process_allgather(np.frombuffer(own, np.uint8), tiled=False)
    return [row.tobytes() for row in cast(npt.NDArray[np.uint8], gathered)]
