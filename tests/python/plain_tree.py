"""The sum of leaves along the tree of fold/FORMAT.md, written as plainly as it can be."""

from __future__ import annotations


def plain_sum(leaves):
    """Splits the leaves at the greatest power of two below their number, again and again."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return plain_sum(leaves[:half]) + plain_sum(leaves[half:])
