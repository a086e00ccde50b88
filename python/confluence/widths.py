"""How many children each relation brings into a context, and how large a context then is.

The principles, in this order: a seed's parents are always there. Its own history, the children of
its row, comes first and is widest; with each of them comes what belongs to it, as the items to an
order. Children of other rows that are reached as parents get the room that is left, if there are
few such parents: the other results of a driver's team, but not those of each of his races.

The seed of a task about links is a pair. Its history is that of the row that the task asks about.

The labels of tasks that the model does not learn stay out: they repeat in other words what the
history says, and take its room. They stay in where a seed has no other history.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from confluence import config, contexts
from confluence.contexts import CHILD, PARENT, SEED, Contexts, Relation

Role = Literal["history", "detail", "sibling", "labels", "unreached"]

# Widths grow in these steps, and no further than a relation has children.
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Of what belongs to a row of the history.
_MOST_DETAILS = 4
# Of other children of a parent; at most half of the widest history, too.
_MOST_SIBLINGS = 16
# Where a context has more parents than this, or nearly as many as rows that refer to them, their
# other children stay out: those of each race of a driver, but not those of the driver's team.
_MOST_PARENTS = 4.0
_MOST_PARENTS_OF_ROW = 0.6
# The share of the cells that the history may fill where other children want room, too.
_HISTORY_SHARE = 0.7
# Contexts have these times the cells that two rows of each common relation of the history need.
_LEAST_ROWS = 2
_ROOM = 1.25
# At most so many times the cells that were asked for, if not even one row fits.
_MOST_ROOM = 3
# Children further away are not counted: the walk goes on from row to row without an end.
_MOST_CHILD_HOPS = 4
# A relation counts as reached if this share of the contexts has children by it.
_REACHED_SHARE = 0.02
# The size of the contexts that tell which relations are reached.
_PROBE_CELLS = 2048
# What few children say: whether a relation is reached, and by how many rows.
_PROBE_WIDTH = 2


class Reached(NamedTuple):
    """How contexts reach the children of a relation."""

    role: Role
    # The hop of those that are nearest to the seed; 0 where there are none.
    hop: int
    # The share of the contexts that have some there.
    share: float


class Width(NamedTuple):
    """What a relation brings into contexts."""

    relation: Relation
    role: Role
    width: int


class Shape(NamedTuple):
    """Settings of contexts, and what such contexts hold."""

    data: config.Data
    widths: list[Width]
    contexts: Contexts

    @property
    def without_room(self) -> list[str]:
        """The relations of the seed's own history for which a context has no room at all."""
        return [of.relation.name for of in self.widths if of.role == "history" and not of.width]

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
    """Returns settings with which a context has about `most_cells` at most, and few are cut.

    Where rows have so many cells that this is too little, a context has up to twice as many, and up
    to three times where not even one row of the seed's own history fits.
    """
    relations = contexts.relations_of(metadata)
    data = dataclasses.replace(data, aggregates="none", child_widths={})
    report("measuring contexts: which relations are reached")
    narrow = _with_widths(data, relations, [_PROBE_WIDTH] * len(relations))
    probe = contexts.count(narrow, metadata, 0, **_limits(_PROBE_CELLS))
    asked = _asked_of_pairs(data, metadata)
    reached = [
        _reached(probe, number, relation, is_asked=relation.parent in asked)
        for number, relation in enumerate(relations)
    ]
    all_labels, other_labels = _labels(metadata, []), _labels(metadata, data.tasks)
    reached = _other_labels_apart(reached, relations, other_labels if data.tasks else set())
    history, details, siblings = (
        _most_common_first(reached, role) for role in ("history", "detail", "sibling")
    )
    growth = _Growth(data, metadata, relations, reached, report)
    leading = history or growth.of_few_parents(siblings)
    growth.data = dataclasses.replace(
        data, aggregates=_aggregates(growth, probe, leading, most_cells)
    )
    asked_cells = most_cells
    least = growth.count(growth.least_widths(leading), 4 * most_cells).quantile(0.5)
    most_cells = max(most_cells, min(2 * most_cells, int(_ROOM * least)))
    # Twice the room: what the walk brings in beyond it decides nothing.
    growth.start(2 * most_cells)
    share = _HISTORY_SHARE if history and siblings else 1.0
    # The table of which most seeds have a row, and the earlier labels, are there in any case. A row
    # of each table of the history comes next, and may take all the room.
    growth.grow(_indispensable(history, relations, all_labels), math.inf, until=1)
    most_cells = max(most_cells, min(_MOST_ROOM * asked_cells, growth.contexts.quantile(0.5)))
    growth.grow(leading, most_cells, until=1)
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
        reached: Sequence[Reached],
        report: Callable[[str], None],
    ) -> None:
        self.data, self.metadata, self.relations, self.reached = data, metadata, relations, reached
        self._report = report
        self.start(_PROBE_CELLS)

    def start(self, cells: int) -> None:
        """Sets all widths to 0, and the cells of the contexts that are counted."""
        self._cells = cells
        self.widths = [0] * len(self.relations)
        self.contexts = self.count(self.widths, cells)

    def least_widths(self, numbers: Sequence[int]) -> list[int]:
        """Returns widths that bring in a few rows of those relations that most contexts have."""
        return [
            _LEAST_ROWS if number in numbers and of.share >= 0.5 else 0
            for number, of in enumerate(self.reached)
        ]

    def count(self, widths: Sequence[int], cells: int) -> Contexts:
        """Counts contexts of these widths, and of as many cells at most."""
        horizon = max(
            (of.hop for width, of in zip(widths, self.reached, strict=True) if width), default=0
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
        return [number for number in numbers if self._has_few_parents(number)]

    def _has_few_parents(self, number: int) -> bool:
        relation, hop = self.relations[number], self.reached[number].hop
        # By table and hop, in the mean.
        rows = self.contexts.reached.sum(axis=2).mean(axis=0)
        parents = rows[relation.parent, hop - 1]
        if hop == 2:
            return bool(parents <= _MOST_PARENTS)
        referring = max(
            rows[of.child, hop - 2] for of in self.relations if of.parent == relation.parent
        )
        return bool(parents <= min(_MOST_PARENTS, _MOST_PARENTS_OF_ROW * referring))

    def _widen(self, number: int, most_cells: float, until: int) -> bool:
        """Takes the next step of one relation, if it brings rows and there is room for them."""
        before = self.widths[number]
        wider = min(until, next(step for step in _STEPS if step > before))
        widths = [*self.widths[:number], wider, *self.widths[number + 1 :]]
        name = self.relations[number].name
        self._report(f"measuring contexts: {wider} of {name}")
        found = self.count(widths, self._cells)
        # The mean counts what few contexts have, too.
        if max(found.quantile(0.5), found.near_cells.mean()) > most_cells:
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
        Width(relation, of.role, width)
        for relation, of, width in zip(growth.relations, growth.reached, growth.widths, strict=True)
    ]
    data = dataclasses.replace(
        _with_widths(growth.data, growth.relations, growth.widths),
        sequence_length=cells,
        max_rows=min(rows, cells),
    )
    # The near cells are those without a limit: what a context would have, and loses.
    fitted = dataclasses.replace(fitted, near_cells=growth.contexts.near_cells)
    return Shape(data, widths, fitted)


def _asked_of_pairs(data: config.Data, metadata: Mapping[str, Any]) -> set[int]:
    """Returns the tables whose rows tasks about links ask about."""
    names = {name.rpartition("/")[2] for name in data.tasks}
    links = [
        task["target"].get("derived", {}).get("link")
        for task in metadata["tasks"]
        if not names or task["name"] in names
    ]
    return {metadata["relations"][link["anchor"]]["parent"] for link in links if link}


def _reached(probe: Contexts, number: int, relation: Relation, *, is_asked: bool) -> Reached:
    shares = (probe.children[:, number] > 0).mean(axis=0)
    hops = [hop for hop in range(1, _MOST_CHILD_HOPS + 1) if shares[hop] >= _REACHED_SHARE]
    if not hops:
        return Reached("unreached", 0, 0.0)
    hop = hops[0]
    of_parent = probe.reached[:, relation.parent, :, hop - 1].sum(axis=0)
    is_detail = of_parent[CHILD] > of_parent[PARENT]
    is_own = hop == 1 or (hop == 2 and is_asked)
    role: Role = "history" if is_own else "detail" if is_detail else "sibling"
    return Reached(role, hop, float(shares[hop]))


def _labels(metadata: Mapping[str, Any], but: Sequence[str]) -> set[int]:
    """Returns the tables of the labels of all tasks but these."""
    left_out = {name.rpartition("/")[2] for name in but}
    names = {
        f"{task['name']} labels"
        for task in metadata["tasks"]
        if task["name"] not in left_out
        and task["target"].get("derived", {}).get("horizon_us") is not None
    }
    return {number for number, table in enumerate(metadata["tables"]) if table["name"] in names}


def _indispensable(
    numbers: Sequence[int], relations: Sequence[Relation], labels: set[int]
) -> list[int]:
    """Returns the first relation whose children are no labels, and all whose children are some."""
    of_labels = [number for number in numbers if relations[number].child in labels]
    return [*[number for number in numbers if number not in of_labels][:1], *of_labels]


def _other_labels_apart(
    reached: Sequence[Reached], relations: Sequence[Relation], labels: set[int]
) -> list[Reached]:
    """Gives the relations of these labels a role of their own, unless nothing else is history."""
    is_of_labels = [relation.child in labels for relation in relations]
    pairs = list(zip(reached, is_of_labels, strict=True))
    if not any(of.role == "history" and not is_label for of, is_label in pairs):
        return list(reached)
    return [
        of._replace(role="labels") if is_label and of.role != "unreached" else of
        for of, is_label in pairs
    ]


def _most_common_first(reached: Sequence[Reached], role: Role) -> list[int]:
    """Returns the relations of a role; first those of which most contexts have children."""
    numbers = [number for number, of in enumerate(reached) if of.role == role]
    return sorted(numbers, key=lambda number: -reached[number].share)


def _aggregates(
    growth: _Growth, probe: Contexts, leading: Sequence[int], most_cells: int
) -> Literal["near", "all"]:
    """Returns which rows have aggregates: all, if that shows those of further tables, and fits.

    The seed and its parents have theirs in any case.
    """
    metadata = growth.metadata
    tables = {metadata["relations"][of["relation"]]["parent"] for of in metadata["aggregates"]}
    shares = (probe.reached > 0).mean(axis=0)
    near = shares[:, SEED, 0] + shares[:, PARENT, 1] > 0
    is_further = (shares[:, PARENT, 2:].max(axis=1) >= 0.5) & ~near
    if not any(is_further[table] for table in tables):
        return "near"
    growth.data = dataclasses.replace(growth.data, aggregates="all")
    held = growth.count(growth.least_widths(leading), 2 * most_cells)
    return "all" if held.quantile(0.5) <= most_cells / 2 else "near"


def _limits(cells: int) -> dict[str, int]:
    # A row without cells counts as a row alone.
    return {"sequence_length": cells, "max_rows": cells}


def _with_widths(
    data: config.Data, relations: Sequence[Relation], widths: Sequence[int]
) -> config.Data:
    named = {of.name: width for of, width in zip(relations, widths, strict=True)}
    return dataclasses.replace(data, child_widths=named)
