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
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    # Logits are bounded, so no maximum needs to be subtracted, and the division can come last.
    exponentials = jnp.exp(logits)
    added: jax.Array | float = 0.0
    if relations is None:
        weights = jnp.where(_same_column(cells)[:, None], exponentials, 0)
    else:
        factors, added = _by_reference(cells, way, exponentials, q, relations)
        weights = exponentials * factors
    total = jnp.sum(weights, axis=-1)
    weighted = jnp.einsum(
        "bhqk,bkhd->bqhd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return ((weighted + added) / total.transpose(0, 2, 1)[..., None]).astype(v.dtype)


def column_attention(
    cells: Cells, at: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array
) -> jax.Array:
    """Returns the attention COL [B, H, d] of the cell `at[b]` of each context; q is [B, H, d]."""
    logits = jnp.einsum("bhd,bkhd->bhk", q, k, preferred_element_type=jnp.float32)
    at = at[:, None]
    column, is_padding = (
        jnp.take_along_axis(of, at, axis=1) for of in (cells.columns, cells.is_padding)
    )
    is_attended = (cells.columns == column) & ~cells.is_padding & ~is_padding
    is_attended |= jnp.arange(cells.columns.shape[1]) == at
    weights = jnp.where(is_attended[:, None], jnp.exp(logits), 0)
    weighted = jnp.einsum(
        "bhk,bkhd->bhd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return (weighted / jnp.sum(weights, axis=-1)[..., None]).astype(v.dtype)


def _by_reference(
    cells: Cells, way: int, exponentials: jax.Array, q: jax.Array, relations: RelationVectors
) -> tuple[jax.Array, jax.Array]:
    """Returns what the references of OUT or IN make of exp(q k).

    That is the factor [B, H, S, S] of each pair, 0 without a reference, and what the values of the
    relations add to the weighted sum, [B, S, H, d].

    A pair's key is k + r: its weight is exp(q k) exp(q r), and its value v + r'. exp(q r) depends
    on the cell i that attends and on the row that it attends to, so there is one array of cells by
    rows, made before that of cells by cells.
    """
    row_count = cells.row_count
    # Padding is in no row; the number of rows marks a reference to none.
    rows = jnp.where(cells.is_padding, row_count + 1, cells.rows)
    of_row = jax.nn.one_hot(rows, row_count, dtype=jnp.float32)
    by_relation = jnp.exp(
        jnp.einsum("bqhd,nhd->bhqn", q, relations.keys, preferred_element_type=jnp.float32)
    )
    row_exponentials = _product("bhqk,bkr->bhqr", exponentials, of_row)
    alone = jnp.eye(cells.rows.shape[1], dtype=bool)[None]
    row_factors = jnp.zeros_like(row_exponentials)
    if way == OUT:
        alone &= cells.is_padding[:, None]
        row_factors += of_row[:, None]
    relation_totals = jnp.zeros_like(by_relation)
    for number in range(cells.parents.shape[1]):
        parents, numbers = cells.parents[:, number], cells.relations[:, number]
        if way == OUT:
            parents, numbers = (
                jnp.take_along_axis(x, cells.rows, axis=1) for x in (parents, numbers)
            )
            one_hot = jax.nn.one_hot(numbers, len(relations.keys), dtype=jnp.float32)[:, None]
            parents = jnp.where(cells.is_padding, row_count, parents)
            leads = jax.nn.one_hot(parents, row_count, dtype=jnp.float32)[:, None]
            of_rows = jnp.sum(by_relation * one_hot, axis=-1, keepdims=True) * leads
            total = jnp.sum(of_rows * row_exponentials, axis=-1, keepdims=True)
            relation_totals += total * one_hot
        else:
            one_hot = jax.nn.one_hot(numbers, len(relations.keys), dtype=jnp.float32)
            leads = (rows[:, :, None] == parents[:, None, :])[:, None]
            of_rows = jnp.where(leads, _product("bhqn,brn->bhqr", by_relation, one_hot), 0)
            relation_totals += _product("bhqr,brn->bhqn", of_rows * row_exponentials, one_hot)
        row_factors += of_rows
    factors = _product("bhqr,bkr->bhqk", row_factors, of_row) + alone[:, None]
    values = relations.values.astype(jnp.float32)
    return factors, jnp.einsum("bhqn,nhd->bqhd", relation_totals, values)


def _product(over: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """Returns a product with zeros and ones, which chooses or sums and rounds nothing else."""
    return jnp.einsum(over, left, right, precision=jax.lax.Precision.HIGHEST)


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
