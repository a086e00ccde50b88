"""The three attentions: which cells attend to which, and the dense computation.

A cell attends to other cells in three ways: OUT, to its own row and, for each reference of its row,
to the row that it refers to; IN, for each reference to its row, to the row that refers to it; COL,
to the cells of the same column. Every cell attends to itself in all three, so that no softmax is
empty.

A reference adds the vectors of its relation to the keys and values of the cells that it leads to.
So the model tells two references of a row apart, even if they lead to one row; then its cells take
part in the softmax once for each reference.

`Dense` is the definition: every pair of cells, under masks. `structured.Structured` computes the
same from the existing pairs alone, in tiles.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from confluence.batch import Cells

WAYS = 3
OUT, IN, COL = range(WAYS)


class RelationVectors(NamedTuple):
    """What each relation adds to keys and values; for COL there is nothing to add."""

    keys: jax.Array  # [N, H, d]
    values: jax.Array  # [N, H, d]


class Attention(Protocol):
    """Attention in all ways, prepared once for a batch."""

    def __call__(
        self,
        way: int,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        relations: RelationVectors | None,
    ) -> jax.Array:
        """Returns [B, S, H, d]; q is scaled already, so that the logits are plain products."""
        ...


def dense_attention(
    cells: Cells,
    way: int,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    relations: RelationVectors | None,
) -> jax.Array:
    """Returns the attention [B, S, H, d] of all pairs of cells."""
    # Arrays of pairs have the keys before the queries: so the row of a key lies in one piece.
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    # Logits are bounded, so no maximum needs to be subtracted, and the division can come last.
    exponentials = jnp.exp(_logits(q, k))
    added: jax.Array | float = 0.0
    if relations is None:
        weights = jnp.where(_same_column(cells)[:, None], exponentials, 0)
    else:
        factors, added = _by_reference(cells, way, exponentials, q, relations)
        weights = exponentials * factors
    total = jnp.sum(weights, axis=2)[..., None]
    weighted = _weighted(weights.astype(v.dtype), v)
    return ((weighted + added) / total).astype(v.dtype).swapaxes(1, 2)


def column_attention(
    cells: Cells, at: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array
) -> jax.Array:
    """Returns the attention COL [B, P, H, d] of the cells `at` [B, P]; q is [B, P, H, d]."""
    logits = jnp.einsum("bphd,bkhd->bhpk", q, k, preferred_element_type=jnp.float32)
    column, is_padding = (
        jnp.take_along_axis(of, at, axis=1) for of in (cells.columns, cells.is_padding)
    )
    is_attended = cells.columns[:, None] == column[..., None]
    is_attended &= ~cells.is_padding[:, None] & ~is_padding[..., None]
    is_attended |= jnp.arange(cells.columns.shape[1]) == at[..., None]
    weights = jnp.where(is_attended[:, None], jnp.exp(logits), 0)
    weighted = jnp.einsum(
        "bhpk,bkhd->bhpd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    total = jnp.sum(weights, axis=-1)[..., None]
    return (weighted / total).astype(v.dtype).swapaxes(1, 2)


def _by_reference(
    cells: Cells, way: int, exponentials: jax.Array, q: jax.Array, relations: RelationVectors
) -> tuple[jax.Array, jax.Array]:
    """Returns what the references of OUT or IN make of exp(q k).

    That is the factor [B, H, S, S] of each pair, 0 without a reference, and what the values of the
    relations add to the weighted sum, [B, H, S, d].

    A pair's key is k + r: its weight is exp(q k) exp(q r), and its value v + r'. exp(q r) depends
    on the cell i that attends and on the row that it attends to, so there is one array of rows by
    cells, made before that of cells by cells.
    """
    row_count, relation_count = cells.row_count, len(relations.keys)
    # Padding is in no row; the number of rows marks a reference to none.
    rows = jnp.where(cells.is_padding, row_count + 1, cells.rows)
    by_relation = jnp.exp(
        jnp.einsum("nhd,bhqd->bhnq", relations.keys, q, preferred_element_type=jnp.float32)
    )
    row_exponentials = _add_up(exponentials, rows, row_count)
    row_factors = jnp.zeros_like(row_exponentials)
    relation_totals = jnp.zeros_like(by_relation)
    alone = jnp.eye(cells.rows.shape[1], dtype=bool)[None]
    every_row = jnp.arange(row_count)[:, None]
    if way == OUT:
        alone &= cells.is_padding[:, None]
        row_factors += (every_row == rows[:, None])[:, None]
    for number in range(cells.parents.shape[1]):
        parents, numbers = cells.parents[:, number], cells.relations[:, number]
        if way == OUT:
            parents, numbers = (
                jnp.take_along_axis(x, cells.rows, axis=1) for x in (parents, numbers)
            )
            leads = every_row == jnp.where(cells.is_padding, row_count, parents)[:, None]
            one_hot = jax.nn.one_hot(numbers, relation_count, axis=1, dtype=jnp.float32)[:, None]
            factor = jnp.sum(by_relation * one_hot, axis=2, keepdims=True)
            of_rows = jnp.where(leads[:, None], factor, 0)
            total = jnp.sum(of_rows * row_exponentials, axis=2, keepdims=True)
            relation_totals += total * one_hot
        else:
            leads = parents[:, :, None] == rows[:, None]
            of_rows = jnp.where(leads[:, None], _take(by_relation, numbers), 0)
            relation_totals += _add_up(of_rows * row_exponentials, numbers, relation_count)
        row_factors += of_rows
    values = relations.values.astype(jnp.float32)
    added = jnp.einsum("bhnq,nhd->bhqd", relation_totals, values)
    return _take(row_factors, rows) + alone[:, None], added


# The gradients of these four are written out. JAX's own ones of `_logits` and `_weighted` would
# transpose an array of pairs; its own one of `_take` would scatter on every device.


@jax.custom_vjp
def _logits(q: jax.Array, k: jax.Array) -> jax.Array:
    """Returns the products [B, H, keys, queries] of queries and keys [B, H, S, d]."""
    return jnp.einsum("bhqd,bhkd->bhkq", q, k, preferred_element_type=jnp.float32)


def _logits_gradient(
    given: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    q, k = given
    gradient = gradient.astype(q.dtype)
    return (k.swapaxes(2, 3) @ gradient).swapaxes(2, 3), gradient @ q


_logits.defvjp(lambda q, k: (_logits(q, k), (q, k)), _logits_gradient)


@jax.custom_vjp
def _weighted(weights: jax.Array, v: jax.Array) -> jax.Array:
    """Returns the sums [B, H, queries, d] of values, by weights [B, H, keys, queries]."""
    v = v.swapaxes(2, 3)
    return jnp.matmul(v, weights, preferred_element_type=jnp.float32).swapaxes(2, 3)


def _weighted_gradient(
    given: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    weights, v = given
    gradient = gradient.astype(v.dtype)
    return v @ gradient.swapaxes(2, 3), weights @ gradient


_weighted.defvjp(lambda weights, v: (_weighted(weights, v), (weights, v)), _weighted_gradient)


def _take(x: jax.Array, at: jax.Array) -> jax.Array:
    """Returns [B, H, T, S]: of x [B, H, R, S] the rows `at` [B, T], 0 for a row beyond the last."""
    return _take_of(x, at, x.shape[2])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _take_of(x: jax.Array, at: jax.Array, _count_for_gradient: int) -> jax.Array:
    numbers = jax.lax.GatherDimensionNumbers(
        offset_dims=(3,), collapsed_slice_dims=(2,), start_index_map=(2,),
        operand_batching_dims=(0, 1), start_indices_batching_dims=(0, 1),
    )  # fmt: skip
    whole_row = (1, 1, 1, x.shape[3])
    return jax.lax.gather(x, _of_each_head(at, x), numbers, whole_row, mode="fill", fill_value=0)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _add_up(x: jax.Array, at: jax.Array, count: int) -> jax.Array:
    """Returns [B, H, R, S]: the sums of the rows of x [B, H, T, S] that have the same `at`."""
    if jax.default_backend() != "cpu":
        # A GPU scatters slowly, or in no fixed order.
        one_hot = jax.nn.one_hot(at, count, dtype=x.dtype)
        return jnp.einsum("btr,bhts->bhrs", one_hot, x, precision=jax.lax.Precision.HIGHEST)
    sums = jnp.zeros((*x.shape[:2], count, x.shape[3]), x.dtype)
    # Whole rows are the windows. Otherwise, as with `at[].add`, XLA copies x first.
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(3, 4), inserted_window_dims=(), scatter_dims_to_operand_dims=(2,),
        operand_batching_dims=(0, 1), scatter_indices_batching_dims=(0, 1),
    )  # fmt: skip
    windows = x[:, :, :, None]
    return jax.lax.scatter_add(sums, _of_each_head(at, x), windows, numbers, mode="drop")


def _of_each_head(at: jax.Array, x: jax.Array) -> jax.Array:
    """Returns `at` [B, T] as indices [B, H, T, 1] into the rows of x [B, H, R, S].

    Contexts stay an axis of their own: else XLA would send them to all devices of a run.
    """
    return jnp.broadcast_to(at[:, None, :, None], (*x.shape[:2], at.shape[1], 1))


_take_of.defvjp(
    lambda x, at, count: (_take_of(x, at, count), at),
    lambda count, at, gradient: (_add_up(gradient, at, count), None),
)
_add_up.defvjp(
    lambda x, at, count: (_add_up(x, at, count), at),
    lambda count, at, gradient: (_take(gradient, at), None),
)


def _same_column(cells: Cells) -> jax.Array:
    """Returns bool [B, S, S]: whether cell i attends to cell j in COL."""
    is_real = ~cells.is_padding
    is_same = cells.columns[:, :, None] == cells.columns[:, None, :]
    is_same &= is_real[:, :, None] & is_real[:, None, :]
    return is_same | jnp.eye(cells.rows.shape[1], dtype=bool)


class Dense:
    """Attention over all pairs of cells, under masks: the definition."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells

    def __call__(
        self,
        way: int,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        relations: RelationVectors | None,
    ) -> jax.Array:
        """Returns [B, S, H, d]."""
        return dense_attention(self._cells, way, q, k, v, relations)
