"""The fixed tree over numbered leaves, the one of the reducer (src/fold/FORMAT.md), as arithmetic.

A node covers the leaves from `start` on, `size` of them: a power of two that divides `start`. Two
siblings add up to their parent, the left one first. The leaves 0 to M - 1 are one node for each bit
of M, the greatest first, and the whole is added up from the right. So the sum depends on the leaves
alone, not on who adds up which of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

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


class Leaves(Generic[T]):
    """The leaves of one process, added up as they come.

    Raises:
        InvalidArgument: There are more processes than leaves.
    """

    def __init__(self, leaves: int, rank: int, world: int, add: Callable[[T, T], T]) -> None:
        # The numbers of the process's leaves, in the order in which they are pushed.
        self.numbers = share(leaves, rank, world)
        # The shapes and types of the first leaf.
        self.form: Any = None
        self._pushed = 0
        self._fold = Fold(add)

    def push(self, form: Any, leaf: Callable[[], T]) -> None:
        """Adds the next leaf, which is called for if it fits.

        Raises:
            InvalidArgument: It has another form than the leaf before, or is one too many.
        """
        if self._pushed == len(self.numbers):
            raise InvalidArgument(
                f"expected {len(self.numbers)} pushes, one for each leaf of this process, found "
                "one more; make a new TreeSum for the next sum"
            )
        if self.form is None:
            self.form = form
        if form != self.form:
            raise InvalidArgument(
                f"expected a leaf like the one before, {self.form}, found {form}; push the same "
                "names, shapes and types for each leaf"
            )
        self._fold.push(Node(self.numbers[self._pushed], 1), leaf())
        self._pushed += 1

    def nodes(self) -> list[T]:
        """Returns the sums of the nodes of `nodes_within(numbers)`.

        Raises:
            InvalidArgument: A leaf was not pushed.
        """
        self._check_all_are_there()
        return [value for _, value in self._fold]

    def whole(self) -> T:
        """Returns the sum of all leaves of this process.

        Raises:
            InvalidArgument: A leaf was not pushed.
        """
        self._check_all_are_there()
        return self._fold.whole()

    def _check_all_are_there(self) -> None:
        missing = list(self.numbers[self._pushed :])
        if missing:
            raise InvalidArgument(
                f"expected the leaves {list(self.numbers)} of this process, found {missing} "
                "missing; push one for each of `numbers` first"
            )
