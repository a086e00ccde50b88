"""The three relational attentions: which cells attend to which, and the dense computation.

A cell attends to other cells through three relations: OUT, to its own row and to the rows that its
row refers to; IN, to the rows that refer to its row; COL, to the cells of the same column. Every
cell attends to itself in all three, so that no softmax is empty.

`Dense` is the definition: every pair of cells, under a mask. `structured.Structured` computes the
same from the existing pairs alone, in tiles.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from confluence.batch import Cells

RELATIONS = 3
OUT, IN, COL = range(RELATIONS)


class Attention(Protocol):
    """Attention through all relations, prepared once for a batch."""

    def __call__(self, relation: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        """Returns [B, S, H, d]; q is scaled already, so that the logits are plain products."""
        ...


def attention_mask(cells: Cells, relation: int) -> jax.Array:
    """Returns bool [B, S, S]: whether cell i attends to cell j through a relation."""
    is_real = ~cells.is_padding
    if relation == COL:
        pairs = cells.columns[:, :, None] == cells.columns[:, None, :]
    else:
        # (i, j) is whether the row of j refers to the row of i; both gathers take whole rows.
        pairs = jax.vmap(lambda refers, rows: refers[rows].T[rows])(cells.refers, cells.rows)
    if relation == OUT:
        same_row = cells.rows[:, :, None] == cells.rows[:, None, :]
        pairs = same_row | pairs.transpose(0, 2, 1)
    itself = jnp.eye(cells.rows.shape[1], dtype=bool)
    return (pairs & is_real[:, :, None] & is_real[:, None, :]) | itself


def masked_attention(mask: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Returns the attention [B, S, H, d] of all pairs of cells under a mask [B, S, S]."""
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    # Logits are bounded, so no maximum needs to be subtracted, and the division can come last.
    weights = jnp.where(mask[:, None], jnp.exp(logits), 0)
    total = jnp.sum(weights, axis=-1)
    weighted = jnp.einsum(
        "bhqk,bkhd->bqhd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return (weighted / total.transpose(0, 2, 1)[..., None]).astype(v.dtype)


class Dense:
    """Attention over all pairs of cells, under a mask: the definition."""

    def __init__(self, cells: Cells) -> None:
        self._masks = [attention_mask(cells, relation) for relation in range(RELATIONS)]

    def __call__(self, relation: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        """Returns [B, S, H, d]."""
        return masked_attention(self._masks[relation], q, k, v)
