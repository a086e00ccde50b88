"""The masks of relational attention as plain loops over the cells of a batch."""

from __future__ import annotations

import numpy as np


def plain_masks(batch):
    """Returns the masks by name, True where cell i attends to cell j; from the edges alone."""
    sequences, cells = batch["is_padding"].shape
    names = ("column", "feature", "neighbor")
    masks = {name: np.zeros((sequences, cells, cells), bool) for name in names}
    for sequence in range(sequences):
        edges = {(child, parent) for child, parent in batch["fk_edges"][sequence].tolist()}
        rows = batch["seq_row_ids"][sequence].tolist()
        columns = batch["column_ids"][sequence].tolist()
        padding = batch["is_padding"][sequence].tolist()
        for i in range(cells):
            for j in range(cells):
                sees = not padding[i] and not padding[j]
                pair = (rows[i], rows[j])
                linked = pair in edges or pair[::-1] in edges
                masks["column"][sequence, i, j] = i == j or (sees and columns[i] == columns[j])
                masks["feature"][sequence, i, j] = i == j or (sees and rows[i] == rows[j])
                masks["neighbor"][sequence, i, j] = i == j or (sees and linked)
    return masks
