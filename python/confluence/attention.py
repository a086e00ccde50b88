"""Which cells see which, and the attention over them.

Three relations: OUT, to the own row and to the rows that it refers to; IN, to the rows that refer
to it; COL, to the same column. Every cell sees itself in all three, so that no softmax is over
nothing.

`dense` defines what attention is: every pair of cells, under a mask. `structured` computes the same
from the pairs that there are, in tiles.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from confluence.batch import Cells

RELATIONS = 3
OUT, IN, COL = range(RELATIONS)


class Attention(Protocol):
    """Attention over all relations' pairs of cells, prepared once for a batch."""

    def __call__(self, relation: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        """Returns [B, S, H, d]; q is scaled already, so that logits are products."""
        ...


def sees(cells: Cells, relation: int) -> jax.Array:
    """Returns bool [B, S, S]: whether cell i sees cell j by a relation."""
    there = ~cells.is_padding
    if relation == COL:
        pairs = cells.columns[:, :, None] == cells.columns[:, None, :]
    else:
        # (i, j) is whether j's row refers to i's; twice a gather of whole rows.
        pairs = jax.vmap(lambda refers, rows: refers[rows].T[rows])(cells.refers, cells.rows)
    if relation == OUT:
        same_row = cells.rows[:, :, None] == cells.rows[:, None, :]
        pairs = same_row | pairs.transpose(0, 2, 1)
    itself = jnp.eye(cells.rows.shape[1], dtype=bool)
    return (pairs & there[:, :, None] & there[:, None, :]) | itself


def masked(seen: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Returns the attention [B, S, H, d] of all pairs of cells under a mask [B, S, S]."""
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    # Logits are bounded, so that no maximum need be taken off, and the sum may divide last.
    weights = jnp.where(seen[:, None], jnp.exp(logits), 0)
    total = jnp.sum(weights, axis=-1)
    found = jnp.einsum(
        "bhqk,bkhd->bqhd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    return (found / total.transpose(0, 2, 1)[..., None]).astype(v.dtype)


class Dense:
    """All pairs of cells, under a mask."""

    def __init__(self, cells: Cells) -> None:
        self._seen = [sees(cells, relation) for relation in range(RELATIONS)]

    def __call__(self, relation: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        """Returns [B, S, H, d]."""
        return masked(self._seen[relation], q, k, v)
