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


def own_mask(cells: Cells, way: int) -> jax.Array:
    """Returns bool [B, S, S]: whether cell i attends to cell j other than by a reference."""
    itself = jnp.eye(cells.rows.shape[1], dtype=bool)
    if way == IN:
        return jnp.broadcast_to(itself, (len(cells.rows), *itself.shape))
    of = cells.columns if way == COL else cells.rows
    return ((of[:, :, None] == of[:, None, :]) & _are_real(cells)) | itself


def reference_mask(cells: Cells, way: int, number: int) -> jax.Array:
    """Returns bool [B, S, S]: whether reference `number` of a row leads cell i to cell j.

    That is a reference of i's row for OUT, and of j's row for IN.
    """
    parents = _of_cells(cells.parents[:, number], cells)
    pairs = parents[:, :, None] == cells.rows[:, None, :]
    return (pairs if way == OUT else pairs.transpose(0, 2, 1)) & _are_real(cells)


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
    weights = jnp.where(own_mask(cells, way)[:, None], exponentials, 0)
    added: jax.Array | float = 0.0
    if relations is not None:
        # A pair's key is k + r: its weight is exp(q k) exp(q r), and its value v + r'.
        of_relation = jnp.exp(
            jnp.einsum("bqhd,nhd->bhqn", q, relations.keys, preferred_element_type=jnp.float32)
        )
        for number in range(cells.parents.shape[1]):
            which = _of_cells(cells.relations[:, number], cells)
            one_hot = jax.nn.one_hot(which, len(relations.keys), dtype=jnp.float32)
            mask = reference_mask(cells, way, number)[:, None]
            if way == OUT:
                factor = jnp.sum(of_relation * one_hot[:, None], axis=-1, keepdims=True)
            else:
                factor = jnp.einsum("bhqn,bkn->bhqk", of_relation, one_hot)
            by_reference = jnp.where(mask, exponentials * factor, 0)
            if way == OUT:
                total = jnp.sum(by_reference, axis=-1)
                by_relation = total[..., None] * one_hot[:, None]
            else:
                by_relation = jnp.einsum("bhqk,bkn->bhqn", by_reference, one_hot)
            added += jnp.einsum("bhqn,nhd->bqhd", by_relation, relations.values.astype(jnp.float32))
            weights += by_reference
    total = jnp.sum(weights, axis=-1)
    weighted = jnp.einsum(
        "bhqk,bkhd->bqhd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return ((weighted + added) / total.transpose(0, 2, 1)[..., None]).astype(v.dtype)


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


def _are_real(cells: Cells) -> jax.Array:
    """Returns bool [B, S, S]: whether neither cell is padding."""
    is_real = ~cells.is_padding
    return is_real[:, :, None] & is_real[:, None, :]


def _of_cells(of_rows: jax.Array, cells: Cells) -> jax.Array:
    """Returns for each cell the number of its row, from [B, R] to [B, S]."""
    return jnp.take_along_axis(of_rows, cells.rows, axis=1)
