"""The attention of `attention.Dense`, computed from the pairs of cells that there are.

OUT and IN: the cells of a row stand in slots of 8, and a tile is a pair of slots of which one sees
the other: those of one row, and those of two rows of which one refers to the other. COL: the cells
sorted by column, in blocks, each of which sees itself and its two neighbours.

Logits are bounded, so that parts of a softmax add up without a common maximum. The numbers of tiles
and the widths of blocks are fixed, some of each, for one compilation; a batch takes the least that
hold it, or the dense way. Which way was taken shows in nothing but time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from confluence.attention import COL, IN, OUT, masked, sees
from confluence.batch import Cells

_SLOT = 8
_BLOCKS = (64, 128, 256)

Way = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


class _Tiles(NamedTuple):
    """Pairs of slots, of which the first sees the second; of each context as many."""

    seeing: jax.Array  # i32 [B, T]
    seen: jax.Array  # i32 [B, T]
    # Whether each cell sees all cells; else only itself.
    is_full: jax.Array  # bool [B, T]
    # Beyond the last pair there is none.
    is_there: jax.Array  # bool [B, T]


class Structured:
    """Tiles for references, bands for columns."""

    def __init__(self, cells: Cells) -> None:
        self.plan = _plan(cells)

    def __call__(self, relation: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        """Returns [B, S, H, d]."""
        found = _attended(relation, self.plan, q, k, v)
        return jnp.where(self.plan.cells.is_padding[..., None, None], v, found)


class Plan(NamedTuple):
    """Where the cells of a batch stand, and which tiles and blocks there are."""

    cells: Cells
    # Each cell's place in the slots, and what stands in each place: S is none.
    place: jax.Array  # i32 [B, S]
    cell_at: jax.Array  # i32 [B, slots * 8]
    tiles: Mapping[int, _Tiles]
    # How many tiles there would have to be for all pairs of all contexts.
    needed: Mapping[int, jax.Array]  # i32 []
    # The cells in the order of their columns, and the place of each in it.
    by_column: jax.Array  # i32 [B, S]
    in_columns: jax.Array  # i32 [B, S]
    longest_column: jax.Array  # i32 []

    def ways(self, relation: int) -> tuple[jax.Array, list[Way]]:
        """Returns the number of the first way that holds all that is seen, and the ways."""

        def dense(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            return masked(sees(self.cells, relation), q, k, v)

        if relation == COL:
            widths = [width for width in _BLOCKS if 3 * width < self.cells.rows.shape[1]]
            too_narrow = self.longest_column > jnp.array(widths, jnp.int32)
            return jnp.sum(too_narrow), [*(self._banded(width) for width in widths), dense]
        limits = _tile_limits(self.cells)
        too_few = self.needed[relation] > jnp.array(limits, jnp.int32)
        return jnp.sum(too_few), [*(self._tiled(relation, limit) for limit in limits), dense]

    def _tiled(self, relation: int, limit: int) -> Way:
        tiles = _Tiles(*(of_tiles[:, :limit] for of_tiles in self.tiles[relation]))
        slot_count = _slot_count(self.cells)

        def way(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            def in_slots(x: jax.Array) -> jax.Array:
                """[B, slots, H, 8, d]: what is multiplied lies together before it is gathered."""
                taken = jax.vmap(lambda of, at: jnp.take(of, at, axis=0, mode="fill", fill_value=0))
                found = taken(x, self.cell_at).reshape(-1, slot_count, _SLOT, *x.shape[2:])
                return jnp.moveaxis(found, 2, -2)

            of_slot = jax.vmap(lambda slots, at: slots[at])
            there = in_slots(~self.cells.is_padding[..., None])[..., 0]
            seen = of_slot(there, tiles.seen)[:, :, None] & tiles.is_there[..., None, None]
            seen &= tiles.is_full[..., None, None] | jnp.eye(_SLOT, dtype=bool)
            logits = jnp.einsum(
                "bthqd,bthkd->bthqk", of_slot(in_slots(q), tiles.seeing),
                of_slot(in_slots(k), tiles.seen), preferred_element_type=jnp.float32,
            )  # fmt: skip
            weights = jnp.where(seen[:, :, None], jnp.exp(logits), 0)
            parts = _summed(weights, of_slot(in_slots(v), tiles.seen), "bthqk,bthkd->bthqd")

            def gathered(parts: jax.Array, at: jax.Array) -> jax.Array:
                slots = jax.ops.segment_sum(parts, at, num_segments=slot_count)
                slots = jnp.moveaxis(slots, -2, 1)
                return slots.reshape(-1, *slots.shape[2:])

            whole = jax.vmap(gathered)(parts, tiles.seeing)
            back = jax.vmap(lambda of, at: jnp.take(of, at, axis=0, mode="clip"))
            return _divided(back(whole, self.place), v.dtype)

        return way

    def _banded(self, width: int) -> Way:
        count, cell_count = self.cells.rows.shape
        beyond = -cell_count % width
        order = self.by_column

        def blocks(x: jax.Array, fill: int = 0) -> jax.Array:
            ends = [(0, 0), (0, beyond), *[(0, 0)] * (x.ndim - 2)]
            whole = jnp.pad(x, ends, constant_values=fill)
            return whole.reshape(count, -1, width, *x.shape[2:])

        def with_neighbours(x: jax.Array) -> jax.Array:
            around = jnp.pad(x, [(0, 0), (1, 1), *[(0, 0)] * (x.ndim - 2)])
            return jnp.concatenate([around[:, :-2], around[:, 1:-1], around[:, 2:]], axis=2)

        def way(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            sort = jax.vmap(lambda of, at: of[at])
            # Padding, and what is beyond the ends, has the key 0, and no cell that is there.
            columns = jnp.where(self.cells.is_padding, 0, self.cells.columns + 1)
            keys = blocks(sort(columns, order))
            seen = (keys[..., :, None] == with_neighbours(keys)[..., None, :]) & (
                keys[..., :, None] > 0
            )
            logits = jnp.einsum(
                "bnqhd,bnkhd->bnhqk", blocks(sort(q, order)),
                with_neighbours(blocks(sort(k, order))), preferred_element_type=jnp.float32,
            )  # fmt: skip
            weights = jnp.where(seen[:, :, None], jnp.exp(logits), 0)
            values = with_neighbours(blocks(sort(v, order)))
            parts = _summed(weights, values, "bnhqk,bnkhd->bnqhd")
            whole = parts.reshape(count, -1, *parts.shape[3:])
            return _divided(sort(whole, self.in_columns), v.dtype)

        return way


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attended(relation: int, plan: Plan, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    chosen, ways = plan.ways(relation)
    return jax.lax.switch(chosen, ways, q, k, v)


def _kept(
    relation: int, plan: Plan, *given: jax.Array
) -> tuple[jax.Array, tuple[Plan, tuple[jax.Array, ...]]]:
    return _attended(relation, plan, *given), (plan, given)


def _gradients(
    relation: int, kept: tuple[Plan, tuple[jax.Array, ...]], of: jax.Array
) -> tuple[jax.Array | None, ...]:
    """Chooses again, and makes again what it wants of the forward pass.

    What is kept of a switch has room for all its ways; of the dense one alone that is B*H*S*S, and
    more of it, to be filled with zeros at each step.
    """
    plan, given = kept
    chosen, ways = plan.ways(relation)

    def back(way: Way) -> Callable[..., tuple[jax.Array, ...]]:
        return lambda given, of: jax.vjp(way, *given)[1](of)

    # Nothing in the plan is learnt.
    return None, *jax.lax.switch(chosen, [back(way) for way in ways], given, of)


_attended.defvjp(_kept, _gradients)


def _plan(cells: Cells) -> Plan:
    count, cell_count = cells.rows.shape
    row_count = cells.refers.shape[-1]
    slot_count = _slot_count(cells)
    place, first, slots = _slots(cells)
    numbers = jnp.broadcast_to(jnp.arange(cell_count), (count, cell_count))
    empty = jnp.full((count, slot_count * _SLOT), cell_count)
    # What has no place, padding, is dropped.
    cell_at = empty.at[jnp.arange(count)[:, None], place].set(numbers, mode="drop")
    itself = jnp.eye(row_count, dtype=bool)
    is_row = slots > 0
    pairs = {OUT: cells.refers | itself, IN: cells.refers.transpose(0, 2, 1) | itself}
    full = {OUT: pairs[OUT], IN: cells.refers.transpose(0, 2, 1)}
    tiles, needed = {}, {}
    most = max(_tile_limits(cells))
    for relation in (OUT, IN):
        there = pairs[relation] & is_row[:, :, None] & is_row[:, None, :]
        found = jax.vmap(lambda p, f, a, n: _tiles(p, f, a, n, most))(
            there, full[relation], first, slots
        )
        tiles[relation], need = found
        needed[relation] = jnp.max(need)
    by_column = jnp.argsort(_column_keys(cells), axis=1, stable=True)
    return Plan(
        cells=cells,
        place=place,
        cell_at=cell_at,
        tiles=tiles,
        needed=needed,
        by_column=by_column,
        in_columns=jnp.argsort(by_column, axis=1),
        longest_column=_longest_run(cells, by_column),
    )


def _tile_limits(cells: Cells) -> list[int]:
    # Real contexts ask for up to 1.3 to 1.8 times as many tiles as there may be slots
    # (benches/record/2026-11-22-attention.json).
    return [int(_slot_count(cells) * times) for times in (1.5, 2.5, 5)]


def _slot_count(cells: Cells) -> int:
    # Each row may end with a slot that is not full.
    return cells.refers.shape[-1] + cells.rows.shape[1] // _SLOT


def _summed(weights: jax.Array, values: jax.Array, over: str) -> jax.Array:
    """Returns [..., d + 1]: the weighted sum of the values, and last the weights' own."""
    ones = jnp.ones((*values.shape[:-1], 1), values.dtype)
    values = jnp.concatenate([values, ones], axis=-1)
    return jnp.einsum(
        over, weights.astype(values.dtype), values, preferred_element_type=jnp.float32
    )


def _divided(whole: jax.Array, dtype: jnp.dtype) -> jax.Array:
    # What saw nothing is padding, of which nothing is asked; its gradient has to be finite too.
    total = jnp.where(whole[..., -1:] > 0, whole[..., -1:], 1)
    return (whole[..., :-1] / total).astype(dtype)


def _slots(cells: Cells) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns each cell's place in the slots, and each row's first slot and number of slots."""
    row_count = cells.refers.shape[-1]
    cell_count = cells.rows.shape[1]
    keys = jnp.where(cells.is_padding, row_count, cells.rows)

    def of_context(keys: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        lengths = jnp.zeros(row_count, jnp.int32).at[keys].add(1, mode="drop")
        slots = -(-lengths // _SLOT)
        first = jnp.cumsum(slots) - slots
        order = jnp.argsort(keys, stable=True)
        begins = jnp.cumsum(lengths) - lengths
        sorted_keys = keys[order]
        within = jnp.arange(cell_count) - begins[jnp.minimum(sorted_keys, row_count - 1)]
        place = first[jnp.minimum(sorted_keys, row_count - 1)] * _SLOT + within
        nowhere = _slot_count(cells) * _SLOT
        place = jnp.where(sorted_keys < row_count, place, nowhere)
        return jnp.zeros(cell_count, place.dtype).at[order].set(place), first, slots

    return jax.vmap(of_context)(keys)


def _tiles(
    pairs: jax.Array, full: jax.Array, first: jax.Array, slots: jax.Array, limit: int
) -> tuple[_Tiles, jax.Array]:
    """Returns the tiles of pairs of rows, and how many there would have to be."""
    seeing, seen = jnp.nonzero(pairs, size=limit, fill_value=0)
    is_pair = jnp.arange(limit) < jnp.sum(pairs)
    each = jnp.where(is_pair, slots[seeing] * slots[seen], 0)
    ends = jnp.cumsum(each)
    needed = jnp.maximum(ends[-1], jnp.sum(pairs))
    number = jnp.arange(limit)
    pair = jnp.minimum(jnp.searchsorted(ends, number, side="right"), limit - 1)
    within = number - (ends - each)[pair]
    a, b = seeing[pair], seen[pair]
    across = jnp.maximum(slots[b], 1)
    slot_a, slot_b = first[a] + within // across, first[b] + within % across
    is_there = number < ends[-1]
    # Of a row that does not see itself whole, each cell is in the tile of its own slot.
    is_full = full[a, b]
    is_there &= is_full | (slot_a == slot_b)
    slot_a, slot_b = (jnp.where(number < ends[-1], slot, 0) for slot in (slot_a, slot_b))
    return _Tiles(slot_a, slot_b, is_full, is_there), needed


def _column_keys(cells: Cells) -> jax.Array:
    return jnp.where(cells.is_padding, jnp.iinfo(jnp.int32).max, cells.columns)


def _longest_run(cells: Cells, order: jax.Array) -> jax.Array:
    """Returns how many cells of a context are of one column, at most."""
    keys = jnp.take_along_axis(_column_keys(cells), order, axis=1)
    padding = jnp.take_along_axis(cells.is_padding, order, axis=1)
    place = jnp.arange(keys.shape[1])
    begins = jnp.concatenate(
        [jnp.ones_like(keys[:, :1], bool), keys[:, 1:] != keys[:, :-1]], axis=1
    )
    begun_at = jax.lax.cummax(jnp.where(begins, place, 0), axis=1)
    return jnp.max(jnp.where(padding, 0, place - begun_at + 1))
