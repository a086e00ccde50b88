"""The lines and numbers of a draft, of contexts that are made up; `test_init.py` has real ones."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

import headwater
from confluence import config, draft, pace, speed, widths
from confluence.contexts import Contexts, Relation

CELLS = 48
# In the order of their numbers: the relation, its role and its width.
WIDTHS = [
    ("orders.customer_id", "history", 6), ("order_items.order_id", "detail", 2),
    ("reviews.customer_id", "history", 0), ("products.category_id", "sibling", 0),
    ("deliveries.order_id", "labels", 0),
]  # fmt: skip
METADATA = {"tables": [{"name": name} for name in ("customers", "cities", "rare")]}


def shape_of(data, cells=CELLS):
    """Two contexts, one of them cut, in which two relations bring in rows."""
    children = np.zeros((2, len(WIDTHS), 7), np.int64)
    children[:, 0, 1], children[:, 1, 2] = [5, 6], [1, 8]
    reached = np.zeros((2, 3, 3, 7), np.int64)
    # As parents, in two hops: cities.
    reached[:, 1, 1, 1], reached[:, 1, 1, 2] = [1, 1], [0, 1]
    held = Contexts(
        rows=np.array([10, 20]), cells=np.array([30, 50]), near_cells=np.array([30, CELLS + 1]),
        children=children, reached=reached,
    )  # fmt: skip
    relations = [widths.Width(Relation(name, 0, 0), role, width) for name, role, width in WIDTHS]
    named = {name: width for name, _, width in WIDTHS}
    data = dataclasses.replace(data, sequence_length=cells, max_rows=24, child_widths=named)
    return widths.Shape(data, relations, held)


def test_the_rows_and_cells_of_contexts_are_printed():
    shape = shape_of(config.Data())
    assert draft._context_lines(shape, METADATA) == [
        "A context has at most 48 cells and 24 rows, by the contexts of 2 train seeds.",
        "Cut: 50% of the contexts. Padding: 17% of the cells.",
        "Rows of a context, in the mean:",
        "  5.5 by orders.customer_id (width 6)",
        "  4.5 by order_items.order_id (width 2)",
        "  1.5 of cities as parents",
        "  none by products.category_id",
        "Cut: reviews.customer_id: 48 cells have no room for a row of each table of the seed's own "
        "history; set more minutes, or widths in data.child_widths.",
        "Left out: deliveries.order_id, the labels of tasks that this configuration does not "
        "train; set widths in data.child_widths to show them.",
    ]


def test_a_table_is_named_if_one_context_in_twenty_has_a_row_of_it():
    shape = shape_of(config.Data())
    for count, is_named in ((20, True), (21, False)):
        reached = np.zeros((count, 3, 3, 7), np.int64)
        reached[0, 2, 1, 1] = 1
        held = dataclasses.replace(shape.contexts, reached=reached)
        lines = draft._context_lines(shape._replace(contexts=held), METADATA)
        assert ("  0.1 of rare as parents" in lines) == is_named


def test_at_most_twelve_names_are_printed():
    names = [f"t{number}" for number in range(13)]
    assert draft.left_out_lines([]) == draft.without_room_lines([], 9) == []
    assert draft.other_labels_lines([]) == []
    assert draft.left_out_lines(names[:12])[0].count(",") == 11
    assert "13 other relations" in draft.left_out_lines(names)[0]
    assert "more:" not in draft.without_room_lines(names[:12], 9)[0]
    (line,) = draft.without_room_lines(names, 9)
    assert line.startswith(f"Cut: {', '.join(names[:12])} and 1 more: 9 cells")


@pytest.mark.parametrize(
    ("minutes", "cells"), [(0.1, 48), (1, 48), (6, 128), (12, 192), (60, 512), (10_080, 512)]
)
def test_more_minutes_have_longer_contexts_on_a_cpu(minutes, cells):
    assert draft._most_cells(minutes, is_cpu=True) == cells
    assert draft._most_cells(minutes, is_cpu=False) == 1024


def test_minutes_out_of_range_are_refused():
    for minutes in (0.1, 10_080):
        draft._check_minutes(minutes)
    for minutes in (0.0999, 10_080.1):
        with pytest.raises(config.ConfigError, match=r"0\.1 to 10,080 minutes \(a week\)"):
            draft._check_minutes(minutes)


def made_of(settings, **options):
    return draft.Draft(settings, ["a < b", "machine"], shape_of(settings.data), **options)


def test_a_draft_is_written_as_what_differs_from_the_defaults_with_reasons():
    settings = config.load(
        None, ["optimizer.steps=7", "optimizer.patience=2", "model.epochs=false"]
    )
    settings = dataclasses.replace(settings, data=shape_of(settings.data).data)
    made = made_of(settings)
    text = made.to_toml()
    assert text.startswith("# a < b\n# machine\n\n[model]\nepochs = false  # whether the model kn")
    assert "\nsteps = 7  # from the speed of this machine\n" in text
    assert "\npatience = 2  # evaluations without a better validation loss\n" in text
    assert "\nsequence_length = 48\n" in text
    for default in ("width =", "seed =", "warmup_steps", "child_widths ="):
        assert default not in text
    for line in (
        '"orders.customer_id" = 6  # the seed\'s own',
        '"order_items.order_id" = 2  # with each row of the seed\'s own',
        '"products.category_id" = 0  # other children of a parent',
        '"deliveries.order_id" = 0  # labels of a task that this one does not learn',
    ):
        assert f"\n{line}\n" in text
    assert repr(made) == "a < b\nmachine"
    assert made._repr_html_().startswith("<pre># a &lt; b\n")
    assert made.too_short == ""
    none = dataclasses.replace(made, shape=made.shape._replace(widths=[]))
    assert "child_widths" not in none.to_toml()


def test_a_draft_is_read_back(tmp_path):
    settings = config.load("cpu-small", ["data.stores=a", "data.tasks=b"])
    settings = dataclasses.replace(settings, data=shape_of(settings.data).data)
    (tmp_path / "my.toml").write_text(made_of(settings).to_toml())
    assert config.load(tmp_path / "my.toml") == settings


@pytest.fixture
def quick(monkeypatch):
    """Makes up what takes long: the contexts, the speed, and the three seconds that it took."""
    # A step of a second: the minutes limit the steps, not the epochs.
    found = SimpleNamespace(speed=speed.Speed(5.0, 4.0, 1.0, 0.05), cells=CELLS, asked=[])

    def choose(data, metadata, most_cells, report):
        found.asked.append((data, most_cells))
        return shape_of(data, found.cells)

    times = iter([100.0, 103.0] * 9)
    monkeypatch.setattr(widths, "choose", choose)
    monkeypatch.setattr(draft, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    monkeypatch.setattr(speed, "measure", lambda settings: found.speed)
    monkeypatch.setattr(
        draft,
        "_context_lines",
        lambda shape, metadata: [f"{shape.data.max_rows} rows of {metadata['database']}."],
    )
    return found


def test_a_draft_has_the_steps_that_fit_into_the_minutes(demo_store, quick):
    made = draft.init(demo_store, ["churn", "demo-shop/spend"], 6)
    ((data, most_cells),) = quick.asked
    assert most_cells == 128
    assert (data.stores, data.tasks) == ((str(demo_store),), ("churn", "demo-shop/spend"))
    assert data.children == "latest"
    tasks = headwater.Store(demo_store).tasks
    counts = {f"demo-shop/{name}": tasks[name].splits for name in ("churn", "spend")}
    chosen = pace.choose(360, 3.0, quick.speed, counts, 32)
    assert not chosen.is_too_short
    optimizer, run = made.config.optimizer, made.config.run
    assert (optimizer.steps, optimizer.warmup_steps) == (chosen.steps, chosen.warmup_steps)
    assert optimizer.patience == chosen.patience
    assert (run.evaluate_every, run.evaluate_batches, run.checkpoint_every) == (
        chosen.evaluate_every, chosen.evaluate_batches, chosen.checkpoint_every
    )  # fmt: skip
    assert made.config.data == made.shape.data
    assert made.config.model.width == config.load("cpu-small").model.width
    assert isinstance(made.config.model.epochs, bool)
    assert made.too_short == ""
    first, churn, _, contexts, epochs, *lines = made.summary
    command = f"confluence init {demo_store} --task churn --task demo-shop/spend --minutes 6"
    assert first == f"Written by: {command}"
    of = counts["demo-shop/churn"]
    assert churn == (
        f"demo-shop/churn: {of['train']:,} train, {of['val']:,} val and {of['test']:,} test seeds."
    )
    assert contexts == "24 rows of demo-shop."
    decided = r"Absolute times are (shown|hidden) \(model.epochs = (true|false)\), because of "
    assert re.match(f"{decided}demo-shop/churn: .*; demo-shop/spend: .*[^.]\\.$", epochs)
    assert lines == chosen.lines(quick.speed)
    assert draft.init(demo_store, "churn", 6).config.data.tasks == ("churn",)


@pytest.mark.parametrize("step_seconds", [3.0, 4.5])
def test_minutes_for_too_few_steps_say_how_many_are_enough(step_seconds, demo_store, quick):
    quick.speed = speed.Speed(5.0, 4.0, step_seconds, 1.5)
    enough = {}
    # Contexts that fill what two minutes allow get longer with more minutes, and so do the steps.
    for cells in (16, 64):
        quick.cells = cells
        made = draft.init(demo_store, "churn", 2)
        found = re.fullmatch(
            r"expected minutes for at least (\d+) steps of demo-shop/churn, found 2 minutes, time "
            r"for 16 steps \(\S+ epochs\) on this machine; set about (\d+) minutes, or train so "
            r"few steps all the same with --set optimizer\.steps=16, in Python with "
            r"train\(init\(\.\.\.\), \.\.\.\)",
            made.too_short,
        )
        assert found, made.too_short
        assert made.summary[-1] == f"Too few minutes on this machine: {made.too_short}."
        enough[cells] = int(found[2])
    tasks = headwater.Store(demo_store).tasks
    counts = {"demo-shop/churn": tasks["churn"].splits}

    def wanted(slower):
        def choose_for(minutes):
            found = quick.speed.slower(slower(minutes))
            return pace.choose(minutes * 60, 3.0, found, counts, 32)

        return pace.enough_minutes(2, choose_for, 10_080)

    def slower_by_cells(minutes):
        return (draft._most_cells(minutes, True) / draft._most_cells(2, True)) ** 1.2

    assert enough == {16: wanted(lambda _: 1.0), 64: wanted(slower_by_cells)}


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "expected the task to train on, found none; set --task to one of a, b1"),
        (["b"], "unknown task 'b' in shop; did you mean b1?"),
        (["a", "zzz"], "unknown task 'zzz' in shop; expected one of a, b1"),
        (["other/a"], "unknown task 'other/a' in shop"),
    ],
)
def test_a_task_of_another_name_is_refused(tasks, message):
    metadata = {"database": "shop", "tasks": [{"name": "a"}, {"name": "b1"}]}
    draft._check_tasks(["a", "shop/b1"], metadata)
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        draft._check_tasks(tasks, metadata)
    with pytest.raises(config.ConfigError, match="a store with a task, found none in shop; add"):
        draft._check_tasks(tasks, metadata | {"tasks": []})


def test_a_context_is_drawn_with_the_settings_of_the_draft(tiny_config):
    page = draft.Draft(tiny_config, [], shape_of(tiny_config.data)).draw("churn", 3)
    assert page.text.startswith("task demo-shop/churn, seed_index 3")
    wide = config.changed(tiny_config, ["data.max_rows=2"])
    assert draft.Draft(wide, [], shape_of(wide.data)).draw("churn", 3).text != page.text
    with pytest.raises(config.ConfigError, match="no task is called 'chrn'; did you mean 'churn'"):
        draft.Draft(tiny_config, [], shape_of(tiny_config.data)).draw("chrn", 3)
    with pytest.raises(config.ConfigError, match="expected a store, found none"):
        draft.Draft(config.Config(), [], shape_of(config.Data())).draw("churn", 3)
