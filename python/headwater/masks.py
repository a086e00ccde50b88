"""The masks of relational attention as bits, made on the host with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater._attention import check_batch

Bits = npt.NDArray[np.uint8]


class AttentionBits(NamedTuple):
    """Which cells attend to which, uint8 [B, S, ceil(S / 8)], the lowest bit of a byte first.

    Bit j of row i is 1 if cell i attends to cell j; bits after the last cell are 0.
    """

    # Cells of the same column.
    column: Bits
    # Cells of the same row.
    feature: Bits
    # Cells of rows that refer to the cell's row, or that it refers to.
    neighbor: Bits


def attention_bits(batch: Mapping[str, npt.NDArray[Any]]) -> AttentionBits:
    """Returns the three masks of relational attention for a batch, in an eighth of their bytes.

    They are the masks of `headwater.jax.attention_masks` and `headwater.torch.attention_masks`, for
    frameworks without such a function: each cell attends to itself, padding to nothing else. It
    takes batches in both forms.

    Raises:
        InvalidArgument: The batch lacks an array; the message names it.

    Example:
        >>> bits = attention_bits(sampler.next_train_batch())  # doctest: +SKIP
        >>> mask = numpy.unpackbits(bits.column, axis=2, count=1024, bitorder="little")
        ... # doctest: +SKIP
    """
    check_batch(batch)
    count, cells = batch["is_padding"].shape
    most_rows = batch["row_hop"].shape[1]
    made = AttentionBits(*(np.empty((count, cells, -(-cells // 8)), np.uint8) for _ in range(3)))
    itself = np.eye(cells, dtype=bool)
    # One context after the other: the masks of a batch in bytes would not fit into a cache.
    for b in range(count):
        rows, columns, edges = (batch[of][b] for of in ("seq_row_ids", "column_ids", "fk_edges"))
        is_cell = batch["is_padding"][b] == 0
        # Unused edges have rows out of range.
        child, parent = edges[edges[:, 0] < most_rows].T
        linked = np.zeros((most_rows, most_rows), bool)
        linked[child, parent] = linked[parent, child] = True
        masks = (
            columns[:, None] == columns,
            rows[:, None] == rows,
            linked[rows][:, rows],
        )
        both = is_cell[:, None] & is_cell
        for mask, bits in zip(masks, made, strict=True):
            bits[b] = np.packbits(mask & both | itself, axis=1, bitorder="little")
    return made
