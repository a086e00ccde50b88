"""The fixed tree over numbered leaves, the one of the reducer (src/fold/FORMAT.md), as arithmetic.

A node covers the leaves from `start` on, `size` of them: a power of two that divides `start`. Two
siblings add up to their parent, the left one first. The leaves 0 to M - 1 are one node for each bit
of M, the greatest first, and the whole is added up from the right. So the sum depends on the leaves
alone, not on who adds up which of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from headwater._headwater import InvalidArgument

T = TypeVar("T")


class Node(NamedTuple):
    """The leaves from `start` to `start + size`, the end not included."""

    start: int
    size: int


def share(leaves: int, rank: int, world: int) -> range:
    """Returns the leaves of a rank: they follow each other, and ranks differ by at most one.

    Raises:
        InvalidArgument: There are more ranks than leaves.
    """
    if not 1 <= world <= leaves:
        raise InvalidArgument(
            f"expected from 1 to {leaves} processes, at least one leaf for each, found {world}; "
            "add up more leaves, or use fewer processes"
        )
    each, more = divmod(leaves, world)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))


def nodes_within(leaves: range) -> list[Node]:
    """Returns the greatest nodes that cover exactly these leaves, in order."""
    found, start = [], leaves.start
    while start < leaves.stop:
        size = 1
        while start % (2 * size) == 0 and start + 2 * size <= leaves.stop:
            size *= 2
        found.append(Node(start, size))
        start += size
    return found


class Fold(Generic[T]):
    """The sum of nodes that come in order: of n leaves, at most about log2(n) sums are kept."""

    def __init__(self, add: Callable[[T, T], T]) -> None:
        self._add = add
        self._found: list[tuple[Node, T]] = []

    def push(self, node: Node, value: T) -> None:
        """Takes the node after the last one; adds up siblings."""
        while self._found:
            left, its = self._found[-1]
            if left.size != node.size or left.start % (2 * left.size):
                break
            self._found.pop()
            node, value = Node(left.start, 2 * left.size), self._add(its, value)
        self._found.append((node, value))

    def __iter__(self) -> Iterator[tuple[Node, T]]:
        """Yields the nodes so far, with their sums."""
        return iter(self._found)

    def whole(self) -> T:
        """Returns the sum of all; there must be at least one."""
        *others, (_, whole) = self._found
        for _, value in reversed(others):
            whole = self._add(value, whole)
        return whole
