"""The sum of leaves along the tree of fold/FORMAT.md, written as plainly as it can be."""

from __future__ import annotations

import numpy as np


def plain_sum(leaves):
    """Splits the leaves at the greatest power of two below their number, again and again."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    with np.errstate(invalid="ignore"):
        total = plain_sum(leaves[:half]) + plain_sum(leaves[half:])
    is_nan = total != total
    if is_nan.any():
        # Each NaN of a sum has the same bits.
        total[is_nan] = float("nan")
    return total
