"""What a model uses: which rows and cells a hidden relation takes away, and what that costs."""

import json
import shutil

import jax
import numpy as np
import pandas
import pytest

import confluence
import headwater
from confluence import batch, config, feed, hiding
from confluence.batch import BOOLEAN, NUMERICAL
from confluence.evaluation import Scores, Task
from confluence.parallel import Layout, Processes
from confluence.step import Program
from runs import confluence_here as command
from stores import prepare_tables

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")

KINDS, THINGS = 60, 2000

SCHEMA = """
database = "attic"

[[table]]
name = "kinds"
source = "kinds"
key = "id"
columns = { id = "ignored", strength = "numerical" }

[[table]]
name = "places"
source = "places"
key = "id"
columns = { id = "ignored", strength = "numerical" }

[[table]]
name = "things"
source = "things"
key = "id"
references = [{ columns = "kind", to = "kinds" }, { columns = "place", to = "places" }]
[table.columns]
id = "ignored"
kind = "ignored"
place = "ignored"
size = "numerical"
good = "boolean"

[[table]]
name = "notes"
source = "notes"
key = "id"
columns = { id = "ignored", thing = "ignored", at = "timestamp", length = "numerical" }
references = [{ columns = "thing", to = "things" }]
time = { column = "at" }

[[aggregate]]
table = "notes"
reference = "thing"
columns = "length"

[[summary]]
table = "notes"
period = "month"

[[task]]
name = "good"
cell = { table = "things", column = "good" }
sees_everything = true
"""

SETTINGS = [
    "data.batch_size=32", "data.sequence_length=24", "data.max_rows=8",
    'data.child_widths={"things.kind" = 0, "things.place" = 0, "notes.thing" = 2}',
    "model.width=32", "model.heads=2", "model.layers=1", "model.hidden=64", "model.epochs=false",
    "model.rematerialise=false", "optimizer.steps=240", "optimizer.warmup_steps=20",
    "optimizer.adam_rate=2e-3", "run.evaluate_every=120", "run.evaluate_batches=2",
    "run.checkpoint_every=120", "run.threads=1", "run.boosting=false",
]  # fmt: skip


@pytest.fixture(scope="module")
def attic(tmp_path_factory):
    """A store of things that are good if their kind is strong; half of them have notes."""
    folder = tmp_path_factory.mktemp("attic")
    draws = np.random.default_rng(7)
    strengths = draws.standard_normal((2, KINDS))
    kind, place = draws.integers(0, KINDS, (2, THINGS))
    size, length = draws.standard_normal((2, THINGS))
    days = draws.integers(0, 360, THINGS)
    tables = {
        "kinds": (("id", "strength"), zip(range(KINDS), strengths[0], strict=True)),
        "places": (("id", "strength"), zip(range(KINDS), strengths[1], strict=True)),
        "things": (
            ("id", "kind", "place", "size", "good"),
            zip(range(THINGS), kind, place, size, strengths[0][kind] > 0, strict=True),
        ),
        "notes": (
            ("id", "thing", "at", "length"),
            (
                (
                    number,
                    number // 2 * 2,
                    np.datetime64("2022-01-01") + days[number],
                    length[number],
                )
                for number in range(THINGS)
            ),
        ),
    }
    return prepare_tables(folder, SCHEMA, tables, dimension=32)


@pytest.fixture(scope="module")
def settings(attic):
    return config.load(None, [f"data.stores={attic}", *SETTINGS])


@pytest.fixture(scope="module")
def made(settings):
    """A batch of the test split of the attic."""
    with feed.open_sampler(settings.data, settings.run, Processes()) as sampler:
        return {name: of.copy() for name, of in next(iter(sampler.evaluate("test"))).items()}


def of_kind(kind):
    return Task("shop/any", 0, kind, {}, sees_everything=False)


def graph(*edges, cells=(0, 0, 1, 2, 3), columns=(0, 1, 2, 3, 4), target=0):
    """Returns a batch of one context with edges (row, row, relation) and cells of rows."""
    unused = 2
    count = len(edges) + unused
    return {
        "fk_edges": np.array([[*(of[:2] for of in edges), *[(65535, 65535)] * unused]], np.uint16),
        "fk_relations": np.array([[*(of[2] for of in edges), *[0] * unused]], np.int32),
        "seq_row_ids": np.array([cells], np.uint16),
        "column_ids": np.array([columns], np.int32),
        "is_padding": np.zeros((1, len(cells)), np.uint8),
        "is_target": (np.arange(len(cells)) == target).astype(np.uint8)[None],
        "row_hop": np.zeros((1, 6), np.uint16),
        "seq_weight": np.ones(1, np.float32),
        "edge_count": count,
    }


def metadata(relations, aggregates=()):
    return {
        "tables": [{"name": "orders"}],
        "relations": [{"name": f"r{of}", "child": 0, "parent": 0} for of in range(relations)],
        "aggregates": [{"relation": of, "index": column} for of, column in aggregates],
    }


def hidden_cells(hider, given):
    return [np.flatnonzero(of["is_padding"][0] == 1).tolist() for of in hider.hide(given)]


def test_a_row_is_hidden_if_only_the_relation_leads_to_it():
    # Row 1 is reached by relation 0 alone, row 2 by relation 1 and through row 3.
    given = graph((0, 1, 0), (0, 2, 1), (3, 0, 2), (3, 2, 3))
    hider = hiding.Hider(metadata(4))
    assert hidden_cells(hider, given) == [[2], [], [], [], [1]]
    # The edges of the relation are gone, and no others.
    for number, found in enumerate(hider.hide(given)[:4]):
        kept = [pair.tolist() for pair in given["fk_edges"][0] if pair[0] != 65535]
        del kept[number]
        assert [of.tolist() for of in found["fk_edges"][0] if of[0] != 65535] == kept
    # Without both ways to rows 2 and 3 these are lost.
    assert hidden_cells(hider, graph((0, 1, 0), (0, 2, 1), (3, 0, 1), (3, 2, 3)))[1] == [3, 4]
    # The rows behind a hidden row are lost with it.
    assert hidden_cells(hider, graph((0, 1, 0), (2, 1, 1), (2, 3, 2)))[0] == [2, 3, 4]


def test_padding_stays_beside_what_is_hidden():
    given = graph((0, 1, 0))
    given["is_padding"][0, 4] = 1
    assert hidden_cells(hiding.Hider(metadata(1)), given) == [[2, 4], [1, 4]]


def test_rows_behind_the_relation_are_those_of_a_plain_search():
    draws = np.random.default_rng(0)
    for _ in range(200):
        edges = [(*draws.integers(0, 6, 2), draws.integers(0, 3)) for _ in range(7)]
        hider = hiding.Hider(metadata(3))
        given = graph(*edges, cells=range(6), columns=range(6))

        def search(without, edges=edges):
            reached, before = {0}, set()
            while reached != before:
                before = set(reached)
                for first, second, relation in edges:
                    if relation != without and {first, second} & before:
                        reached |= {int(first), int(second)}
            return reached

        for number, found in enumerate(hidden_cells(hider, given)[:3]):
            assert set(found) == search(None) - search(number)


def test_aggregates_are_hidden_with_their_relation_and_are_no_own_cells():
    # The columns 1 and 3 are aggregates of relation 1, of which the context has no row.
    given = graph((0, 1, 0), columns=(0, 1, 2, 3, 1))
    hider = hiding.Hider(metadata(2, [(1, 1), (1, 3)]))
    assert hidden_cells(hider, given) == [[2], [1, 3, 4], []]
    # The target stays, wherever it is.
    assert hidden_cells(hider, graph((0, 1, 0), columns=(0, 5, 2, 4, 4), target=1))[2] == [0]


def test_what_no_context_has_is_the_same_batch_and_not_listed():
    given = graph((0, 1, 0))
    hider = hiding.Hider(metadata(3))
    found = hider.hide(given)
    assert [of is given for of in found] == [False, True, True, False]
    filler = graph((0, 1, 1)) | {"seq_weight": np.zeros(1, np.float32)}
    hider.hide(filler)
    empty = np.zeros(0)

    def scores(auroc):
        return Scores(0.0, 1, 0, {"auroc": auroc}, empty, empty, empty)

    records = hider.records(
        of_kind(BOOLEAN), scores(0.9), [scores(of) for of in (0.5, 0.9, 0.9, 0.8)]
    )
    assert records == [
        {"hidden": "orders.r0", "contexts": 1.0, "value": 0.5, "difference": 0.5 - 0.9},
        {"hidden": hiding.OWN_CELLS, "contexts": 1.0, "value": 0.8, "difference": 0.8 - 0.9},
    ]


def test_a_summary_without_parents_is_hidden_by_the_name_of_its_table():
    # The first is of relation 0, the second has a number after all relations.
    summaries = [{"table": 0, "relation": 0}, {"table": 0, "relation": 1}]
    hider = hiding.Hider({**metadata(1), "summaries": summaries})
    assert hidden_cells(hider, graph((0, 1, 0), (0, 2, 1))) == [[2], [3], [1]]
    hider.hide(graph((0, 1, 0)))
    scores = Scores(0.0, 1, 0, {"auroc": 0.5}, *[np.zeros(0)] * 3)
    shares = {
        of["hidden"]: of["contexts"] for of in hider.records(of_kind(BOOLEAN), scores, [scores] * 3)
    }
    assert shares == {"orders.r0": 1.0, "orders": 0.5, hiding.OWN_CELLS: 1.0}


def test_what_a_task_uses_is_a_table_for_each_split_that_has_it():
    used = {"hidden": "orders.r0", "contexts": 0.125, "value": 0.75, "difference": -0.15}
    of_task = {
        "leading": "auroc",
        "train": {"auroc": 0.99},
        "val": {"auroc": 0.9, "relations": [used, used | {"difference": 0.15}]},
        "test": {"auroc": 0.8, "relations": [used]},
    }
    val, test = hiding.text({"shop/churn": of_task, "shop/spend": {"leading": "mae"}}).split("\n\n")
    assert val.splitlines() == [
        "shop/churn, val: auroc 0.9000; with one relation hidden:",
        "hidden     contexts  auroc   difference",
        "orders.r0  12.5 %    0.7500  -0.1500",
        "orders.r0  12.5 %    0.7500  +0.1500",
    ]
    assert test.startswith("shop/churn, test: auroc 0.8000; ")


def test_the_greatest_loss_comes_first_and_what_has_no_metric_last():
    hider = hiding.Hider(metadata(4))
    hider.hide(graph((0, 1, 0), (0, 2, 1), (0, 3, 2), (0, 3, 3)))
    empty = np.zeros(0)
    whole, *hidden = (
        Scores(0.0, 1, 0, {"mae": of}, empty, empty, empty) for of in (2, 3, np.nan, 5, 3, 1.0)
    )
    names = [of["hidden"] for of in hider.records(of_kind(NUMERICAL), whole, hidden)]
    assert names == ["orders.r2", "orders.r0", "orders.r3", hiding.OWN_CELLS, "orders.r1"]


def test_neither_the_target_nor_its_row_is_ever_hidden(attic, made):
    found = hiding.Hider(headwater.Store(attic).metadata()).hide(made)
    # Three relations, the summary, and the own cells.
    assert len(found) == 5
    places = np.arange(len(made["target_pos"])), made["target_pos"]
    for changed in found:
        assert (changed["is_padding"][places] == 0).all()
        assert (changed["is_padding"] >= made["is_padding"]).all()
        assert changed["is_padding"].sum() > made["is_padding"].sum()
        assert {name: of.shape for name, of in changed.items()} == {
            name: of.shape for name, of in made.items()
        }
    assert found[3]["is_padding"].sum() - made["is_padding"].sum() == 32


@pytest.fixture(scope="module")
def predicted(attic, settings):
    """The predictions of initial parameters for a batch, by either attention."""
    layout = Layout(jax.devices()[:1])
    vocabulary, tables = batch.vocabulary_and_tables([headwater.Store(attic)], settings.data.texts)
    programs = {
        of: Program(config.changed(settings, [f"model.attention={of}"]), vocabulary, tables, layout)
        for of in ("dense", "structured")
    }
    params = programs["dense"].initial().params

    def predict(given, attention="dense"):
        on_device = layout.to_devices(batch.from_sampler(given, vocabulary, 0))
        return np.asarray(programs[attention].predict(params, on_device).value)

    return predict


def test_hidden_cells_take_no_part_in_either_attention(attic, made, predicted):
    before = predicted(made)
    for changed in hiding.Hider(headwater.Store(attic).metadata()).hide(made):
        # Each context has each relation: of notes at least the aggregates.
        assert (predicted(changed) != before).all()
        # Padding between cells is padding, and what it says does not matter.
        np.testing.assert_allclose(predicted(changed, "structured"), predicted(changed), atol=1e-5)
        numbers = np.where(changed["is_padding"], 7, changed["numeric_values"])
        other = predicted({**changed, "numeric_values": numbers})
        np.testing.assert_array_equal(other, predicted(changed))


def test_a_context_without_the_relation_keeps_each_bit(attic, made, predicted):
    # Without aggregates, things of an odd number have nothing of their notes.
    is_bare = ~((made["fk_relations"] == 2) & (made["fk_edges"][..., 0] != 65535)).any(axis=1)
    assert 0 < is_bare.sum() < len(is_bare)
    metadata = {**headwater.Store(attic).metadata(), "aggregates": []}
    without_notes = hiding.Hider(metadata).hide(made)[2]
    is_same = predicted(without_notes) == predicted(made)
    assert is_same[is_bare].all()
    assert not is_same[~is_bare].any()


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    return confluence.train(settings, out)


def test_hiding_what_decides_the_label_drops_the_metric_to_chance(trained):
    found = trained.evaluate(["test"], relations=True)
    scores = found.tasks["attic/good"]["test"]
    assert scores["auroc"] > 0.95
    table = pandas.DataFrame(scores["relations"]).set_index("hidden")
    assert table.index[0] == "things.kind"
    assert sorted(table.index) == [
        "notes by month", "notes.thing", hiding.OWN_CELLS, "things.kind", "things.place",
    ]  # fmt: skip
    assert 0.4 < table.value["things.kind"] < 0.6
    others = table.drop("things.kind")
    assert (others.difference.abs() < 0.02).all()
    assert (table.difference == table.value - scores["auroc"]).all()
    assert (table.contexts == 1).all()
    # In the results and the report of the run, and where a notebook shows them.
    kept = json.loads((trained.path / "results.json").read_text())["tasks"]["attic/good"]["test"]
    assert kept["relations"] == scores["relations"]
    assert kept["auroc"] == scores["auroc"]
    for page in (trained.report.read_text(), found._repr_html_(), trained._repr_html_()):
        assert "<td>things.kind</td><td>100.0 %</td>" in page


def test_the_command_lists_what_each_task_uses(whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shown = command("evaluate", run, "--relations", "--split", "test")
    assert shown.returncode == 0, shown.stderr
    kept = json.loads((run / "results.json").read_text())
    before = json.loads((whole / "results.json").read_text())
    for name, of_task in kept["tasks"].items():
        leading, relations = of_task["leading"], of_task["test"].pop("relations")
        value = before["tasks"][name]["test"][leading]
        title = f"{name}, test: {leading} {value:.4f}; with one relation hidden:"
        lines = shown.stdout.split(title)[1].strip().splitlines()
        assert lines[0].split() == ["hidden", "contexts", leading, "difference"]
        for line, of in zip(lines[1:], relations, strict=False):
            assert line.split("  ")[0] == of["hidden"]
            assert f"{of['value']:.4f}" in line
            assert of["value"] - value == pytest.approx(of["difference"], abs=1e-9)
            assert 0 < of["contexts"] <= 1
        assert title in (run / "report.html").read_text()
    # Nothing else in the results is changed.
    assert kept == before
    assert (run / "report.html").read_text() != (whole / "report.html").read_text()
