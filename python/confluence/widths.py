"""How many children each relation brings into a context, and how large a context then is.

The principles, in this order: a seed's parents are always there. Its own history, the children of
its row, comes first and is widest; with each of them comes what belongs to it, as the items to an
order. Children of other rows that are reached as parents get the room that is left, if there are
few such parents: the other results of a driver's team, but not those of each of his races.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from confluence import config, contexts
from confluence.contexts import CHILD, PARENT, Contexts, Relation

Role = Literal["history", "detail", "sibling", "unreached"]

# Widths grow in these steps, and no further than a relation has children.
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Of what belongs to a row of the history.
_MOST_DETAILS = 4
# Of other children of a parent; at most half of the widest history, too.
_MOST_SIBLINGS = 16
# Where a context has more parents than this, their other children stay out.
_MOST_PARENTS = 4.0
# The share of the cells that the history may fill where other children want room, too.
_HISTORY_SHARE = 0.7
# Children further away are not counted: the walk goes on from row to row without an end.
_MOST_CHILD_HOPS = 4
# A relation counts as reached if this share of the contexts has children by it.
_REACHED_SHARE = 0.02
# The size of the contexts that tell which relations are reached.
_PROBE_CELLS = 2048
# What few children say: whether a relation is reached, and by how many rows.
_PROBE_WIDTH = 2


class Width(NamedTuple):
    """What a relation brings into contexts."""

    relation: Relation
    role: Role
    # The hop of its children that are nearest to the seed; 0 where it has none.
    hop: int
    width: int


class Shape(NamedTuple):
    """Settings of contexts, and what such contexts hold."""

    data: config.Data
    widths: list[Width]
    contexts: Contexts

    @property
    def cut(self) -> float:
        """The share of the contexts that lose near rows to the limits of cells and rows."""
        return float(np.mean(self.contexts.near_cells > self.data.sequence_length))


def choose(
    data: config.Data,
    metadata: Mapping[str, Any],
    most_cells: int,
    report: Callable[[str], None],
) -> Shape:
    """Returns settings with which a context has at most `most_cells`, and few are cut."""
    relations = contexts.relations_of(metadata)
    data = dataclasses.replace(data, aggregates="none", child_widths={})
    report("measuring contexts: which relations are reached")
    narrow = _with_widths(data, relations, [_PROBE_WIDTH] * len(relations))
    probe = contexts.count(narrow, metadata, 0, **_limits(_PROBE_CELLS))
    roles = [_role(probe, number, relation) for number, relation in enumerate(relations)]
    data = dataclasses.replace(data, aggregates=_aggregates(data, metadata, probe))
    # Twice the room: what the walk brings in beyond it decides nothing.
    growth = _Growth(data, metadata, relations, roles, 2 * most_cells, report)
    history, details, siblings = (
        [number for number, (of, _) in enumerate(roles) if of == role]
        for role in ("history", "detail", "sibling")
    )
    share = _HISTORY_SHARE if siblings else 1.0
    growth.grow(history, most_cells * share, until=1)
    growth.grow(details, most_cells * share, until=_MOST_DETAILS)
    growth.grow(history, most_cells * share)
    widest = max((growth.widths[number] for number in history), default=2 * _MOST_SIBLINGS)
    most_siblings = min(_MOST_SIBLINGS, max(1, widest // 2))
    growth.grow(growth.of_few_parents(siblings), most_cells, until=most_siblings)
    growth.grow(history, most_cells)
    return _shape(growth, most_cells)


class _Growth:
    """Widths that grow as long as the median context has room."""

    def __init__(
        self,
        data: config.Data,
        metadata: Mapping[str, Any],
        relations: Sequence[Relation],
        roles: Sequence[tuple[Role, int]],
        cells: int,
        report: Callable[[str], None],
    ) -> None:
        self.data, self.metadata, self.relations, self.roles = data, metadata, relations, roles
        self._cells, self._report = cells, report
        self.widths = [0] * len(relations)
        self.contexts = self.count(self.widths, cells)

    def count(self, widths: Sequence[int], cells: int) -> Contexts:
        """Counts contexts of these widths, and of as many cells at most."""
        horizon = max(
            (hop for width, (_, hop) in zip(widths, self.roles, strict=True) if width), default=0
        )
        data = _with_widths(self.data, self.relations, widths)
        return contexts.count(data, self.metadata, horizon, **_limits(cells))

    def grow(self, numbers: Sequence[int], most_cells: float, until: int = _STEPS[-1]) -> None:
        """Widens these relations in turn, each until it has no more children or no more room."""
        growing = [number for number in numbers if self.widths[number] < until]
        while growing:
            growing = [number for number in growing if self._widen(number, most_cells, until)]

    def of_few_parents(self, numbers: Sequence[int]) -> list[int]:
        """Returns the relations of whose parents a context has few."""
        return [
            number
            for number in numbers
            if _parents(self.contexts, self.relations[number], self.roles[number][1])
            <= _MOST_PARENTS
        ]

    def _widen(self, number: int, most_cells: float, until: int) -> bool:
        """Takes the next step of one relation, if it brings rows and there is room for them."""
        before = self.widths[number]
        wider = min(until, next(step for step in _STEPS if step > before))
        widths = [*self.widths[:number], wider, *self.widths[number + 1 :]]
        name = self.relations[number].name
        self._report(f"measuring contexts: {wider} of {name}")
        found = self.count(widths, self._cells)
        if found.quantile(0.5) > most_cells:
            return False
        brought, had = (of.children[:, number].sum() for of in (found, self.contexts))
        # A step that few contexts have the children for widens nothing.
        if brought <= had * 1.02:
            return False
        self.widths, self.contexts = widths, found
        return wider < until


def _shape(growth: _Growth, most_cells: int) -> Shape:
    """Returns the limits of cells and rows for the widths, and what such contexts hold."""
    cells = min(growth.contexts.quantile(0.75), most_cells)
    # A context has its target and one more cell at least.
    cells = max(8, -(-cells // 8) * 8)
    fitted = growth.count(growth.widths, cells)
    rows = -(-int(fitted.rows.max()) // 8) * 8
    widths = [
        Width(relation, role, hop, width)
        for relation, (role, hop), width in zip(
            growth.relations, growth.roles, growth.widths, strict=True
        )
    ]
    data = dataclasses.replace(
        _with_widths(growth.data, growth.relations, growth.widths),
        sequence_length=cells,
        max_rows=min(rows, cells),
    )
    # The near cells are those without a limit: what a context would have, and loses.
    fitted = dataclasses.replace(fitted, near_cells=growth.contexts.near_cells)
    return Shape(data, widths, fitted)


def _role(probe: Contexts, number: int, relation: Relation) -> tuple[Role, int]:
    """Returns the role of a relation, and the hop of its nearest children."""
    shares = (probe.children[:, number] > 0).mean(axis=0)
    hops = [hop for hop in range(1, _MOST_CHILD_HOPS + 1) if shares[hop] >= _REACHED_SHARE]
    if not hops:
        return "unreached", 0
    hop = hops[0]
    if hop == 1:
        return "history", hop
    of_parent = probe.reached[:, relation.parent, :, hop - 1].sum(axis=0)
    return ("detail" if of_parent[CHILD] > of_parent[PARENT] else "sibling"), hop


def _parents(found: Contexts, relation: Relation, hop: int) -> float:
    """Returns how many rows of a context have children by a relation at a hop, in the mean."""
    return float(found.reached[:, relation.parent, :, hop - 1].sum(axis=1).mean())


def _aggregates(
    data: config.Data, metadata: Mapping[str, Any], probe: Contexts
) -> Literal["near", "all"]:
    """Returns which rows have aggregates: all, if rows beyond the seed's parents have their own.

    The aggregates of the seed's own table tell of it; those of other rows of that table do not.
    """
    names = {name.rpartition("/")[2] for name in data.tasks}
    anchors = {task["anchor"] for task in metadata["tasks"] if task["name"] in names}
    tables = {metadata["relations"][of["relation"]]["parent"] for of in metadata["aggregates"]}
    is_reached = (probe.reached[:, :, PARENT, 2:] > 0).any(axis=2).mean(axis=0) >= 0.5
    return "all" if any(is_reached[table] for table in tables - anchors) else "near"


def _limits(cells: int) -> dict[str, int]:
    # A row without cells counts as a row alone.
    return {"sequence_length": cells, "max_rows": cells}


def _with_widths(
    data: config.Data, relations: Sequence[Relation], widths: Sequence[int]
) -> config.Data:
    named = {of.name: width for of, width in zip(relations, widths, strict=True)}
    return dataclasses.replace(data, child_widths=named)
