"""The attention of `attention.Dense`, computed from the existing pairs of cells alone.

OUT and IN: the cells of each row are laid out in slots of 8. A tile is a pair of slots, of one row
or of a reference between two rows; the cells of the first attend to the second's.
COL: the cells are sorted by column and cut into blocks. Each block attends to itself and to its
two neighbours.

Logits are bounded, so the parts of a softmax can be added without a common maximum.

JAX compiles fixed shapes. So there are a few methods, each for a number of tiles or a width of
blocks, and each batch takes the cheapest method that holds it; the last method is the dense one.
The choice changes the time that a step takes and, beyond rounding, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from confluence.attention import COL, IN, OUT, RelationVectors, dense_attention
from confluence.batch import Cells

_SLOT = 8
_BLOCKS = (64, 128, 256)

Method = Callable[[jax.Array, jax.Array, jax.Array, RelationVectors | None], jax.Array]


class _Tiles(NamedTuple):
    """Pairs of slots; the cells of the first attend to the second's. T pairs for each context."""

    query_slots: jax.Array  # i32 [B, T]
    key_slots: jax.Array  # i32 [B, T]
    # The relation of the reference; -1 for a tile of one row.
    relations: jax.Array  # i32 [B, T]
    # Whether each cell attends to all cells of the second slot; else only to itself.
    is_full: jax.Array  # bool [B, T]
    # False after the last pair.
    is_used: jax.Array  # bool [B, T]


class Structured:
    """Attention in tiles for references, in bands of blocks for columns."""

    def __init__(self, cells: Cells) -> None:
        self.tiling = _tiling(cells)

    def __call__(
        self,
        way: int,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        relations: RelationVectors | None,
    ) -> jax.Array:
        """Returns [B, S, H, d]."""
        found = _attention(way, self.tiling, q, k, v, relations)
        return jnp.where(self.tiling.cells.is_padding[..., None, None], v, found)


class Tiling(NamedTuple):
    """The layout of a batch: slots of cells, tiles of slots, cells sorted by column."""

    cells: Cells
    # The place of each cell in the slots, and the cell in each place; S for an empty place.
    slot_place: jax.Array  # i32 [B, S]
    slot_cells: jax.Array  # i32 [B, slots * 8]
    tiles: Mapping[int, _Tiles]
    # The number of tiles per context that the largest context of the batch needs.
    tiles_needed: Mapping[int, jax.Array]  # i32 []
    # The cells in the order of their columns, and the position of each cell in that order.
    by_column: jax.Array  # i32 [B, S]
    column_rank: jax.Array  # i32 [B, S]
    longest_column: jax.Array  # i32 []

    def methods(self, way: int) -> tuple[jax.Array, list[Method]]:
        """Returns the number of the cheapest method that holds the batch, and all methods."""

        def dense(
            q: jax.Array, k: jax.Array, v: jax.Array, relations: RelationVectors | None
        ) -> jax.Array:
            return dense_attention(self.cells, way, q, k, v, relations)

        if way == COL:
            widths = [width for width in _BLOCKS if 3 * width < self.cells.rows.shape[1]]
            too_narrow = self.longest_column > jnp.array(widths, jnp.int32)
            return jnp.sum(too_narrow), [*(self._banded(width) for width in widths), dense]
        limits = _tile_limits(self.cells)
        too_few = self.tiles_needed[way] > jnp.array(limits, jnp.int32)
        return jnp.sum(too_few), [*(self._tiled(way, limit) for limit in limits), dense]

    def _tiled(self, way: int, limit: int) -> Method:
        tiles = _Tiles(*(of_tiles[:, :limit] for of_tiles in self.tiles[way]))
        slot_count = _slot_count(self.cells)

        def method(
            q: jax.Array, k: jax.Array, v: jax.Array, relations: RelationVectors | None
        ) -> jax.Array:
            assert relations is not None, "only COL is without relations"

            def in_slots(x: jax.Array) -> jax.Array:
                """Returns [B, slots, H, 8, d]: the factors of a product, laid out together."""
                taken = jax.vmap(lambda of, at: jnp.take(of, at, axis=0, mode="fill", fill_value=0))
                found = taken(x, self.slot_cells).reshape(-1, slot_count, _SLOT, *x.shape[2:])
                return jnp.moveaxis(found, 2, -2)

            of_slot = jax.vmap(lambda slots, at: slots[at])
            # A product with this is a gather whose gradient is a product, too. -1 adds nothing.
            one_hot = jax.nn.one_hot(tiles.relations, len(relations.keys), dtype=q.dtype)

            def of_key_slot(x: jax.Array, added: jax.Array) -> jax.Array:
                """Returns [B, T, H, 8, d], with the vector of each tile's relation added."""
                of_tile = jnp.einsum("btn,nhd->bthd", one_hot, added.astype(x.dtype))
                return of_slot(in_slots(x), tiles.key_slots) + of_tile[:, :, :, None]

            is_cell = in_slots(~self.cells.is_padding[..., None])[..., 0]
            mask = of_slot(is_cell, tiles.key_slots)[:, :, None] & tiles.is_used[..., None, None]
            mask &= tiles.is_full[..., None, None] | jnp.eye(_SLOT, dtype=bool)
            logits = jnp.einsum(
                "bthqd,bthkd->bthqk", of_slot(in_slots(q), tiles.query_slots),
                of_key_slot(k, relations.keys), preferred_element_type=jnp.float32,
            )  # fmt: skip
            weights = jnp.where(mask[:, :, None], jnp.exp(logits), 0)
            parts = _weighted_sum(weights, of_key_slot(v, relations.values), "bthqk,bthkd->bthqd")

            def summed_by_slot(parts: jax.Array, at: jax.Array) -> jax.Array:
                slots = jax.ops.segment_sum(parts, at, num_segments=slot_count)
                slots = jnp.moveaxis(slots, -2, 1)
                return slots.reshape(-1, *slots.shape[2:])

            whole = jax.vmap(summed_by_slot)(parts, tiles.query_slots)
            back = jax.vmap(lambda of, at: jnp.take(of, at, axis=0, mode="clip"))
            return _normalised(back(whole, self.slot_place), v.dtype)

        return method

    def _banded(self, width: int) -> Method:
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

        def method(
            q: jax.Array, k: jax.Array, v: jax.Array, relations: RelationVectors | None
        ) -> jax.Array:
            assert relations is None, "columns have no relations"
            sort = jax.vmap(lambda of, at: of[at])
            # The key 0 marks padding and the places beyond both ends; no cell has it.
            columns = jnp.where(self.cells.is_padding, 0, self.cells.columns + 1)
            keys = blocks(sort(columns, order))
            mask = (keys[..., :, None] == with_neighbours(keys)[..., None, :]) & (
                keys[..., :, None] > 0
            )
            logits = jnp.einsum(
                "bnqhd,bnkhd->bnhqk", blocks(sort(q, order)),
                with_neighbours(blocks(sort(k, order))), preferred_element_type=jnp.float32,
            )  # fmt: skip
            weights = jnp.where(mask[:, :, None], jnp.exp(logits), 0)
            values = with_neighbours(blocks(sort(v, order)))
            parts = _weighted_sum(weights, values, "bnhqk,bnkhd->bnqhd")
            whole = parts.reshape(count, -1, *parts.shape[3:])
            return _normalised(sort(whole, self.column_rank), v.dtype)

        return method


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(
    way: int,
    tiling: Tiling,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    relations: RelationVectors | None,
) -> jax.Array:
    chosen, methods = tiling.methods(way)
    return jax.lax.switch(chosen, methods, q, k, v, relations)


def _forward(
    way: int, tiling: Tiling, *given: Any
) -> tuple[jax.Array, tuple[Tiling, tuple[Any, ...]]]:
    return _attention(way, tiling, *given), (tiling, given)


def _backward(way: int, saved: tuple[Tiling, tuple[Any, ...]], of: jax.Array) -> tuple[Any, ...]:
    """Chooses the method again, and recomputes its forward pass.

    JAX's own gradient of a switch would keep the intermediate values of all methods: for the dense
    one alone several arrays of B*H*S*S numbers, filled with zeros in each step.
    """
    tiling, given = saved
    chosen, methods = tiling.methods(way)

    def back(method: Method) -> Callable[..., tuple[Any, ...]]:
        return lambda given, of: jax.vjp(method, *given)[1](of)

    # The tiling has no gradient.
    return None, *jax.lax.switch(chosen, [back(method) for method in methods], given, of)


_attention.defvjp(_forward, _backward)


def _tiling(cells: Cells) -> Tiling:
    count, cell_count = cells.rows.shape
    row_count = cells.row_count
    slot_count = _slot_count(cells)
    slot_place, first, slots = _slots(cells)
    numbers = jnp.broadcast_to(jnp.arange(cell_count), (count, cell_count))
    empty = jnp.full((count, slot_count * _SLOT), cell_count)
    # Padding has no place, and is dropped.
    slot_cells = empty.at[jnp.arange(count)[:, None], slot_place].set(numbers, mode="drop")
    row_numbers = jnp.arange(row_count)
    every_row = jnp.broadcast_to(row_numbers, cells.parents.shape)
    tiles, tiles_needed = {}, {}
    most = max(_tile_limits(cells))
    for way in (OUT, IN):
        query_rows, key_rows = every_row, cells.parents
        if way == IN:
            query_rows, key_rows = key_rows, query_rows

        def of_context(
            queries: jax.Array,
            keys: jax.Array,
            relations: jax.Array,
            first: jax.Array,
            slots: jax.Array,
            way: int = way,
        ) -> tuple[_Tiles, jax.Array]:
            pairs = _Pairs(
                jnp.concatenate([row_numbers, queries.ravel()]),
                jnp.concatenate([row_numbers, keys.ravel()]),
                jnp.concatenate([jnp.full(row_count, -1), relations.ravel()]),
            )
            return _tiles(pairs, first, slots, way == OUT, most)

        tiles[way], need = jax.vmap(of_context)(query_rows, key_rows, cells.relations, first, slots)
        tiles_needed[way] = jnp.max(need)
    by_column = jnp.argsort(_column_keys(cells), axis=1, stable=True)
    return Tiling(
        cells=cells,
        slot_place=slot_place,
        slot_cells=slot_cells,
        tiles=tiles,
        tiles_needed=tiles_needed,
        by_column=by_column,
        column_rank=jnp.argsort(by_column, axis=1),
        longest_column=_longest_run(cells, by_column),
    )


def _tile_limits(cells: Cells) -> list[int]:
    # Contexts of real databases need up to 1.3 to 1.8 times as many tiles as slots
    # (benches/record/2026-11-22-attention.json).
    return [int(_slot_count(cells) * times) for times in (1.5, 2.5, 5)]


def _slot_count(cells: Cells) -> int:
    # The last slot of each row may be partly empty.
    return cells.row_count + cells.rows.shape[1] // _SLOT


def _weighted_sum(weights: jax.Array, values: jax.Array, over: str) -> jax.Array:
    """Returns [..., d + 1]: the weighted sum of the values, then the sum of the weights."""
    ones = jnp.ones((*values.shape[:-1], 1), values.dtype)
    values = jnp.concatenate([values, ones], axis=-1)
    return jnp.einsum(
        over, weights.astype(values.dtype), values, preferred_element_type=jnp.float32
    )


def _normalised(whole: jax.Array, dtype: jnp.dtype) -> jax.Array:
    # Only padding has weights that sum to 0. Its output is unused, but its gradient must be finite.
    total = jnp.where(whole[..., -1:] > 0, whole[..., -1:], 1)
    return (whole[..., :-1] / total).astype(dtype)


def _slots(cells: Cells) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns each cell's place in the slots, and each row's first slot and number of slots."""
    row_count = cells.row_count
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
        slot_place = first[jnp.minimum(sorted_keys, row_count - 1)] * _SLOT + within
        nowhere = _slot_count(cells) * _SLOT
        slot_place = jnp.where(sorted_keys < row_count, slot_place, nowhere)
        return jnp.zeros(cell_count, slot_place.dtype).at[order].set(slot_place), first, slots

    return jax.vmap(of_context)(keys)


class _Pairs(NamedTuple):
    """Pairs of rows; the first attends to the second. Row R, or one without cells, has no tile."""

    query_rows: jax.Array  # i32 [P]
    key_rows: jax.Array  # i32 [P]
    relations: jax.Array  # i32 [P]; -1 for a pair of one row, which is no reference


def _tiles(
    pairs: _Pairs, first: jax.Array, slots: jax.Array, is_row_full: bool, limit: int
) -> tuple[_Tiles, jax.Array]:
    """Returns the tiles of the pairs of rows, and how many tiles the context needs.

    Unless `is_row_full`, the cells of a pair of one row attend to themselves alone; then such a
    pair needs the tile of each slot with itself.
    """
    first, slots = (jnp.append(of_rows, 0) for of_rows in (first, slots))
    is_full = is_row_full | (pairs.relations >= 0)
    query_slots, key_slots = slots[pairs.query_rows], slots[pairs.key_rows]
    ends = jnp.cumsum(query_slots * jnp.where(is_full, key_slots, 1))
    number = jnp.arange(limit)
    is_used = number < ends[-1]
    pair = jnp.minimum(jnp.searchsorted(ends, number, side="right"), len(ends) - 1)
    before = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    within = number - before[pair]
    across = jnp.where(is_full, jnp.maximum(key_slots, 1), 1)[pair]
    query_slot = first[pairs.query_rows[pair]] + within // across
    key_slot = first[pairs.key_rows[pair]] + within % across
    key_slot = jnp.where(is_full[pair], key_slot, query_slot)
    query_slot, key_slot = (jnp.where(is_used, slot, 0) for slot in (query_slot, key_slot))
    return _Tiles(query_slot, key_slot, pairs.relations[pair], is_full[pair], is_used), ends[-1]


def _column_keys(cells: Cells) -> jax.Array:
    return jnp.where(cells.is_padding, jnp.iinfo(jnp.int32).max, cells.columns)


def _longest_run(cells: Cells, order: jax.Array) -> jax.Array:
    """Returns the largest number of cells of one column in a context."""
    keys = jnp.take_along_axis(_column_keys(cells), order, axis=1)
    padding = jnp.take_along_axis(cells.is_padding, order, axis=1)
    position = jnp.arange(keys.shape[1])
    begins = jnp.concatenate(
        [jnp.ones_like(keys[:, :1], bool), keys[:, 1:] != keys[:, :-1]], axis=1
    )
    begun_at = jax.lax.cummax(jnp.where(begins, position, 0), axis=1)
    return jnp.max(jnp.where(padding, 0, position - begun_at + 1))
