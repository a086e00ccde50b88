"""Widths for contexts of a made-up site, counted without a sampler; `test_init.py` has real ones.

A user has a country, some events, each on a page with two clicks, and a few notes. The contexts
have what `contexts.count` would count.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from confluence import config, contexts, widths
from confluence.contexts import CHILD, PARENT, SEED, Contexts, Relation
from confluence.widths import Reached

USERS, COUNTRIES, EVENTS, CLICKS, PAGES, NOTES, LABELS = range(7)
NAMES = ("users", "countries", "events", "clicks", "pages", "notes", "returns labels")
RELATIONS = [
    Relation("users.country", USERS, COUNTRIES), Relation("events.user", EVENTS, USERS),
    Relation("events.page", EVENTS, PAGES), Relation("clicks.event", CLICKS, EVENTS),
    Relation("notes.user", NOTES, USERS), Relation("returns labels.user", LABELS, USERS),
]  # fmt: skip
COUNTRY, OWN, PAGE, CLICK, NOTE, LABEL = range(6)
METADATA = {
    "tables": [{"name": name} for name in NAMES],
    "relations": [
        {"name": of.name.partition(".")[2], "child": of.child, "parent": of.parent}
        for of in RELATIONS
    ],
    "tasks": [
        {"name": "returns", "target": {"derived": {"horizon_us": 5}}},
        {"name": "pays", "target": {"derived": {"horizon_us": None}}},
        {"name": "plain", "target": {"cell": 3}},
    ],
    "aggregates": [],
}
SEEDS = 40


class Site:
    """What contexts of the site hold, by their settings; `has` is how many rows a relation has."""

    def __init__(self, cells_of_row=4, few_have=0, **has):
        self.cells_of_row = cells_of_row
        # The cells that a quarter of the users have beside those of the others.
        self.few_have = few_have
        self.aggregate_cells = 0
        self.has = {"country": 30, "own": 20, "page": 40, "click": 2, "note": 3, "label": 0}
        self.has |= has
        self.asked = []

    def count(self, data, metadata, horizon, *, sequence_length, max_rows):
        assert sequence_length == max_rows
        named = [data.child_widths[of.name] for of in RELATIONS]
        assert len(data.child_widths) == len(RELATIONS)
        self.asked.append((data, horizon, sequence_length))
        few = np.arange(SEEDS) % 4 == 0
        children = np.zeros((SEEDS, len(RELATIONS), 7), np.int64)
        reached = np.zeros((SEEDS, len(NAMES), 3, 7), np.int64)
        reached[:, USERS, SEED, 0] = reached[:, COUNTRIES, PARENT, 1] = 1

        def add(relation, hop, rows):
            children[:, relation, hop] += rows
            reached[:, RELATIONS[relation].child, CHILD, hop] += rows
            return rows

        own = add(
            OWN, 1, np.minimum(named[OWN], np.where(few, min(1, self.has["own"]), self.has["own"]))
        )
        # A quarter of the users have no note.
        add(NOTE, 1, np.where(few, 0, min(named[NOTE], self.has["note"])))
        add(LABEL, 1, np.full(SEEDS, min(named[LABEL], self.has["label"])))
        add(CLICK, 2, own * min(named[CLICK], self.has["click"]))
        add(COUNTRY, 2, np.full(SEEDS, min(named[COUNTRY], self.has["country"])))
        reached[:, PAGES, PARENT, 2] = own
        add(PAGE, 3, own * min(named[PAGE], self.has["page"]))
        rows = 1 + 1 + own + children.sum(axis=(1, 2))
        wide = self.aggregate_cells if data.aggregates == "all" else 0
        wide = wide + few * self.few_have
        cells = rows * self.cells_of_row + wide
        near = (children * (np.arange(7) <= horizon)).sum(axis=(1, 2)) + 2 + own
        return Contexts(
            rows=np.minimum(rows, max_rows), cells=np.minimum(cells, sequence_length),
            near_cells=np.minimum(near * self.cells_of_row + wide, sequence_length),
            children=children, reached=reached,
        )  # fmt: skip


@pytest.fixture
def chosen(monkeypatch):
    def choose(most_cells, tasks=("returns",), metadata=METADATA, **site):
        made = Site(**site)
        monkeypatch.setattr(contexts, "count", made.count)
        said = []
        data = config.Data(tasks=tasks, child_widths={"old.name": 3})
        shape = widths.choose(data, metadata, most_cells, said.append)
        assert said[0] == "measuring contexts: which relations are reached"
        return SimpleNamespace(
            shape=shape, site=made, said=said, data=shape.data,
            width={of.relation.name: of.width for of in shape.widths},
            role={of.relation.name: of.role for of in shape.widths},
        )  # fmt: skip

    return choose


def test_the_own_history_comes_first_with_what_belongs_to_it(chosen):
    found = chosen(200)
    assert found.role == {
        "users.country": "sibling", "events.user": "history", "events.page": "sibling",
        "clicks.event": "detail", "notes.user": "history", "returns labels.user": "unreached",
    }  # fmt: skip
    # A note of each that there is, and all clicks of an event.
    assert found.width["notes.user"] == 3
    assert found.width["clicks.event"] == 2
    assert found.width["events.user"] >= 6
    # Of a country there is one, of pages there are as many as events.
    assert 0 < found.width["users.country"] <= found.width["events.user"] // 2
    assert found.width["events.page"] == 0
    assert found.width["returns labels.user"] == 0
    held = found.shape.contexts
    # The median context fills most of the room, and not more.
    assert 0.7 * 200 < np.median(held.cells) <= 200
    assert found.data.sequence_length % 8 == found.data.max_rows % 8 == 0
    assert np.quantile(held.near_cells, 0.75) <= found.data.sequence_length <= 200
    assert held.rows.max() <= found.data.max_rows < held.rows.max() + 8
    assert found.data.child_widths == found.width
    assert found.data.aggregates == "near"
    assert found.shape.without_room == []
    assert found.shape.cut == np.mean(held.near_cells > found.data.sequence_length)


def test_widths_grow_with_the_room_and_no_further_than_there_are_rows(chosen):
    before = 0
    for cells in (64, 128, 256, 512, 2048):
        width = chosen(cells).width["events.user"]
        assert width >= before
        before = width
    # All twenty events: the next width is 24.
    assert before == 24
    large = chosen(1 << 14)
    assert large.width["users.country"] == min(16, 24 // 2)
    assert chosen(1 << 14, own=100).width["events.user"] == 64
    assert chosen(1 << 14, own=100).width["users.country"] == 16
    # Of what belongs to an event, four at most.
    assert chosen(1 << 14, click=9).width["clicks.event"] == 4


def test_a_row_of_each_history_has_room_even_if_it_is_more_than_was_asked_for(chosen):
    narrow = chosen(8)
    assert narrow.width["events.user"] >= 1
    assert narrow.shape.without_room == ["notes.user"]
    assert chosen(24).shape.without_room == []
    assert 8 < narrow.data.sequence_length <= 3 * 8
    assert narrow.data.max_rows <= narrow.data.sequence_length


def test_a_short_sequence_is_lengthened_for_two_rows_of_each_history(chosen):
    # The user, the country, two events with their pages and two notes, and a quarter more.
    assert chosen(32).data.sequence_length == 8 * 4 * 1.25
    # An event with its page, and no second one.
    narrow = chosen(8)
    assert (narrow.data.sequence_length, narrow.width["events.user"]) == (4 * 4, 1)
    # Four such rows of 8 cells would be more than three times what was asked for.
    assert chosen(8, cells_of_row=8).data.sequence_length == 3 * 8
    # Half of the contexts have to fit, not each of them.
    assert chosen(8, few_have=40).data.sequence_length == 4 * 4


def test_children_of_an_event_come_before_more_events(chosen):
    # Room for 30 cells, and for 21 of the history with what belongs to it.
    found = chosen(28, note=0, click=9)
    assert found.data.sequence_length == 24
    assert found.width["events.user"] == found.width["clicks.event"] == 1
    # No more children of the country than events.
    assert found.width["users.country"] == 1
    # Where parents have no other children, the history has their room.
    assert chosen(28, note=0, click=9, country=0, page=0).width["clicks.event"] == 3


def test_a_context_may_fill_the_sequence_to_its_last_cell(chosen):
    # 18 rows: the user, the country and its other user, two events with pages, 8 clicks, 3 notes.
    found = chosen(18 * 4, click=9)
    assert (found.width["events.user"], found.data.max_rows) == (2, 24)
    assert chosen(18 * 4 - 1, click=9).width["events.user"] == 1


def test_children_of_tables_outside_the_contexts_have_width_0(monkeypatch):
    monkeypatch.setattr(contexts, "count", Site().count)
    reached = [Reached("detail", 2, 1.0)] * len(RELATIONS)
    growth = widths._Growth(config.Data(), METADATA, RELATIONS, reached, lambda _: None)
    growth.grow([CLICK], 1000)
    assert growth.widths == [0] * len(RELATIONS)
    growth.grow([OWN, CLICK], 1000)
    assert growth.widths[CLICK] == 2


def test_few_large_contexts_count_as_twice_the_sequence(chosen):
    # A quarter of the contexts fill twice the room, which leaves two thirds of it to the others.
    site = {"few_have": 1000, "note": 0, "country": 0, "page": 0, "click": 0}
    assert chosen(64, **site).width["events.user"] == 4
    assert 4 * (2 + 2 * 4) <= 64 * 2 / 3 < 4 * (2 + 2 * 6)


def test_labels_of_other_tasks_are_apart_and_own_ones_always_there(chosen):
    other = chosen(64, tasks=("shop/pays",), label=2)
    assert (other.role["returns labels.user"], other.width["returns labels.user"]) == ("labels", 0)
    own = chosen(64, tasks=("shop/returns",), label=2)
    assert own.role["returns labels.user"] == "history"
    assert own.width["returns labels.user"] >= 1
    # Without a choice of tasks all are learnt.
    assert chosen(64, tasks=(), label=2).role["returns labels.user"] == "history"
    # Where there is no other history, they are it.
    alone = chosen(64, tasks=("pays",), label=2, own=0, note=0)
    assert alone.role["returns labels.user"] == "history"
    assert alone.width["returns labels.user"] == 2


def test_a_seed_without_history_has_the_children_of_its_parents(chosen):
    found = chosen(128, own=0, note=0)
    assert found.width["users.country"] == 16
    assert sum(found.width.values()) == 16
    assert found.shape.without_room == []
    # Or nothing but its parents, in the least limit of cells.
    assert chosen(128, own=0, note=0, country=0).data.sequence_length == 8


def probe_of(children=(), reached=()):
    """A probe of 100 contexts: (relation, hop, contexts) and (table, how, hop, rows of each)."""
    of_children = np.zeros((100, len(RELATIONS), 7), np.int64)
    for relation, hop, count in children:
        of_children[:count, relation, hop] = 1
    of_tables = np.zeros((100, len(NAMES), 3, 7), np.int64)
    for table, how, hop, rows in reached:
        of_tables[:, table, how, hop] = rows
    counts = np.zeros(100, np.int64)
    return Contexts(counts, counts, counts, of_children, of_tables)


@pytest.mark.parametrize(
    ("children", "reached", "is_asked", "found"),
    [
        ([], [], False, Reached("unreached", 0, 0.0)),
        ([(CLICK, 2, 1)], [], False, Reached("unreached", 0, 0.0)),
        ([(CLICK, 1, 2)], [], False, Reached("history", 1, 0.02)),
        (
            [(CLICK, 1, 1), (CLICK, 2, 30)],
            [(EVENTS, CHILD, 1, 3)],
            False,
            Reached("detail", 2, 0.3),
        ),
        ([(CLICK, 2, 30)], [(EVENTS, PARENT, 1, 1)], False, Reached("sibling", 2, 0.3)),
        ([(CLICK, 2, 30)], [], False, Reached("sibling", 2, 0.3)),
        ([(CLICK, 2, 30)], [(EVENTS, PARENT, 1, 1)], True, Reached("history", 2, 0.3)),
        ([(CLICK, 3, 30)], [(EVENTS, PARENT, 2, 1)], True, Reached("sibling", 3, 0.3)),
        ([(CLICK, 4, 100)], [(EVENTS, CHILD, 3, 1)], False, Reached("detail", 4, 1.0)),
        # Further away they are not counted.
        ([(CLICK, 5, 100)], [(EVENTS, CHILD, 4, 1)], False, Reached("unreached", 0, 0.0)),
    ],
)
def test_a_relation_is_reached_where_its_children_are_nearest(children, reached, is_asked, found):
    probe = probe_of(children, reached)
    assert widths._reached(probe, CLICK, RELATIONS[CLICK], is_asked=is_asked) == found


def test_tasks_about_links_ask_about_the_parent_of_their_anchor():
    links = [
        {"name": "buys", "target": {"derived": {"link": {"anchor": OWN}}}},
        {"name": "sees", "target": {"derived": {"link": {"anchor": PAGE}}}},
    ]
    metadata = METADATA | {"tasks": [*METADATA["tasks"], *links]}
    for tasks, tables in [
        ((), {USERS, PAGES}), (("shop/buys",), {USERS}), (("sees", "pays"), {PAGES}),
        (("pays",), set()),
    ]:  # fmt: skip
        assert widths._asked_of_pairs(config.Data(tasks=tasks), metadata) == tables


def test_the_first_history_and_all_labels_are_indispensable():
    assert widths._indispensable([NOTE, LABEL, OWN], RELATIONS, {LABELS}) == [NOTE, LABEL]
    assert widths._indispensable([LABEL], RELATIONS, {LABELS}) == [LABEL]
    assert widths._labels(METADATA, []) == {LABELS}
    assert widths._labels(METADATA, ["shop/returns"]) == set()
    shares = [Reached("history", 1, of) for of in (0.2, 0.9, 0.9, 0.5)]
    assert widths._most_common_first([*shares, Reached("detail", 1, 1.0)], "history") == [
        1,
        2,
        3,
        0,
    ]


def test_further_rows_have_aggregates_if_they_have_some_and_there_is_room(chosen, monkeypatch):
    # Of the pages, which are parents of the events, and not of the user or the country.
    of_pages = METADATA | {"aggregates": [{"relation": PAGE}]}
    of_users = METADATA | {"aggregates": [{"relation": OWN}, {"relation": COUNTRY}]}
    assert chosen(400, metadata=of_pages).data.aggregates == "all"
    assert chosen(400, metadata=of_users).data.aggregates == "near"
    assert chosen(400).data.aggregates == "near"
    # The least contexts may have half of the cells that were asked for.
    usual = Site.__init__

    def wide(cells):
        def init(self, **has):
            usual(self, **has)
            self.aggregate_cells = cells

        monkeypatch.setattr(Site, "__init__", init)
        return chosen(400, metadata=of_pages).data.aggregates

    # Two rows of each history: the user, the country, two events with their pages, two notes.
    least = 4 * (2 + 4 + 2)
    assert wide(200 - least) == "all"
    assert wide(201 - least) == "near"


@pytest.mark.parametrize(
    ("reached", "count", "rows"),
    [
        # One page in half of the contexts, which an event refers to.
        ([(PAGES, PARENT, 2, 1)], 50, "all"), ([(PAGES, PARENT, 2, 1)], 49, "near"),
        # The pages are seeds, too, or the seeds refer to them: then they have theirs in any case.
        ([(PAGES, PARENT, 2, 1), (PAGES, SEED, 0, 1)], 100, "near"),
        ([(PAGES, PARENT, 2, 1), (PAGES, PARENT, 1, 1)], 100, "near"),
        ([(PAGES, PARENT, 2, 1), (PAGES, SEED, 0, 1), (PAGES, PARENT, 1, 1)], 100, "near"),
    ],
)  # fmt: skip
def test_aggregates_of_further_tables_are_for_half_of_the_contexts(
    reached, count, rows, monkeypatch
):
    # That few contexts are large does not matter.
    monkeypatch.setattr(contexts, "count", Site(few_have=1000).count)
    metadata = METADATA | {"aggregates": [{"relation": PAGE}]}
    roles = [Reached("history", 1, 1.0)] * len(RELATIONS)
    growth = widths._Growth(config.Data(), metadata, RELATIONS, roles, lambda _: None)
    probe = probe_of(reached=reached)
    probe.reached[count:] = 0
    assert widths._aggregates(growth, probe, [OWN], 400) == rows


@pytest.mark.parametrize(
    ("hop", "parents", "referring", "are_few"),
    [
        (2, 4.0, 0, True), (2, 4.5, 0, False),
        # Nearly as many as the rows that refer to them: the races of a driver.
        (3, 3.0, 5.0, True), (3, 3.5, 5.0, False), (3, 4.0, 50.0, True), (3, 4.5, 50.0, False),
    ],
)  # fmt: skip
def test_other_children_of_many_parents_stay_out(hop, parents, referring, are_few, monkeypatch):
    monkeypatch.setattr(contexts, "count", Site().count)
    reached = [Reached("sibling", hop, 1.0)] * len(RELATIONS)
    growth = widths._Growth(config.Data(), METADATA, RELATIONS, reached, lambda _: None)
    # By table, how they were reached, and hop; in the mean of two contexts.
    rows = np.zeros((2, len(NAMES), 3, 7))
    rows[0, PAGES, PARENT, hop - 1] = 2 * parents
    rows[0, EVENTS, CHILD, hop - 2] = 2 * referring
    # Rows that refer to other parents do not count.
    rows[0, NOTES, CHILD, hop - 2] = 500
    growth.contexts = dataclasses.replace(growth.contexts, reached=rows)
    assert growth.of_few_parents([PAGE]) == [PAGE] * are_few
