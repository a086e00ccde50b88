"""Baselines against plain loops, and as a command."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

import confluence
import headwater
from confluence import baselines, boosting, config, evaluation, feed, links, seeds
from confluence.baselines import History
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL
from confluence.evaluation import Task
from confluence.parallel import Processes
from confluence.seeds import DAY_MICROSECONDS, Seeds

SEEDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900), st.integers(0, 5)), min_size=1)
HORIZON = 30 * DAY_MICROSECONDS


def of_days(found):
    """Returns seeds of (row, day, label)."""
    rows, days, labels = zip(*found, strict=True)
    times = np.array(days, np.int64) * DAY_MICROSECONDS
    cells = np.zeros((len(rows), 0))
    return Seeds(np.array(rows, np.uint32), times, np.array(labels, float), cells)


@given(SEEDS, SEEDS)
def test_p7_baselines_repeat_what_was_known_at_the_time(known, asked):
    history = History.of([of_days(known)], HORIZON)
    otherwise = np.full(len(asked), -1.0)
    found = baselines.from_history(NUMERICAL, history, of_days(asked), otherwise)
    told = baselines.known_labels(NUMERICAL, history, of_days(asked))
    for number, (row, day, _) in enumerate(asked):
        # In the order of time; of one time, in the order of the seeds.
        of_row = sorted((d + 30, n) for n, (r, d, _) in enumerate(known) if r == row)
        past = [(at, known[n][2]) for at, n in of_row if at <= day]
        assert found["last label"][number] == (past[-1][1] if past else -1)
        year = [label for at, label in past if at > day - 365]
        wanted = np.mean(year) if year else -1
        assert found["mean of the last year"][number] == pytest.approx(wanted)
        features = [of[number] for of in told.values()]
        wanted = [past[-1][1], day - past[-1][0]] if past else [np.nan] * 2
        wanted += [np.mean(year) if year else np.nan]
        wanted += [np.mean([label for _, label in past]) if past else np.nan]
        assert features == pytest.approx(wanted, nan_ok=True)
    assert list(baselines.from_history(CATEGORICAL, history, of_days(asked), otherwise)) == [
        "last label"
    ]
    assert len(baselines.known_labels(CATEGORICAL, history, of_days(asked))) == 2


def test_the_last_year_has_365_days():
    history = History.of([of_days([(1, 0, 7)])], 10 * DAY_MICROSECONDS)
    asked = of_days([(1, day, 0) for day in (9, 10, 374, 375)])
    told = baselines.known_labels(NUMERICAL, history, asked)
    found = told["mean of the last year"]
    assert found == pytest.approx([np.nan, 7, 7, np.nan], nan_ok=True)


DAY = DAY_MICROSECONDS
TASK = Task("shop/spend", 0, NUMERICAL, {}, sees_everything=False)


class Shop:
    """A store that says of its tasks what the baselines ask."""

    def __init__(self, horizon=None, *, strict=False, last=()):
        target = {} if horizon is None else {"derived": {"horizon_us": horizon}}
        self._tasks = [
            {"name": "other", "target": {"derived": {"horizon_us": 1}}, "strict": True},
            {"name": "spend", "target": target, "strict": strict},
        ]
        self._last = np.array(last)

    def metadata(self):
        return {"tasks": self._tasks}

    def pairs(self, name, until):
        assert name == "spend"
        known = self._last if until is None else np.minimum(self._last, until)
        return {"popularity": np.zeros(len(known), np.uint32), "last": known}


@pytest.fixture
def given(monkeypatch):
    """Seeds (row, day, label) of each split in place of those of a sampler; what is read of them.

    Of row 1 the labels 1, 2 and 3 are known after 10, 25 and 30 days.
    """
    of = {
        "train": [(1, 0, 1), (1, 20, 3), (2, 0, 8)],
        "val": [(1, 15, 2), (2, 15, 2), (3, 15, 2)],
        "test": [(1, 40, 5)],
    }
    reads = []

    def read(settings, stores, task, split, *, with_cells):
        reads.append((split, with_cells))
        assert (isinstance(stores[0], Shop), task.name) == (True, "shop/spend")
        return (
            of_days(of[split])
            if of[split]
            else of_days([(0, 0, 0)])._replace(
                labels=np.zeros(0), rows=np.zeros(0, np.uint32), times=np.zeros(0, np.int64)
            )
        )

    def compare(task, found, columns, labels):
        assert (list(found), columns) == (["train", "val", "test"], "columns")
        boosted.append(labels)
        scores = {"val": {"mae": 0.25}, "test": {"mae": 0.5}}
        return {"boosting": boosting.Boosted(scores, 1.5)}

    boosted = []
    monkeypatch.setattr(seeds, "read", read)
    monkeypatch.setattr(seeds, "describe", lambda stores, _: stores[0].metadata() and "columns")
    monkeypatch.setattr(boosting, "compare", compare)
    return SimpleNamespace(seeds=of, reads=reads, boosted=boosted)


def compared(store, *splits, task=TASK, with_boosting=False):
    return baselines.of_task(None, [store], task, splits, with_boosting=with_boosting)


def maes(found, split):
    return {name: scores["mae"] for name, scores in found.metrics[split].items()}


def test_the_baselines_of_a_task_are_those_of_its_labels(given):
    found = compared(Shop(10 * DAY), "val", "test")
    assert (found.boosting, found.seconds) == ("off", {})
    assert maes(found, "val") == pytest.approx({
        # Of row 3 nothing is known: it gets the mean of all.
        "mean": 2, "median": 1, "mean of the entity": (0 + 6 + 2) / 3,
        "last label": (1 + 6 + 2) / 3, "mean of the last year": (1 + 6 + 2) / 3,
    })  # fmt: skip
    assert maes(found, "test") == {
        "mean": 1, "median": 2, "mean of the entity": 3, "last label": 2,
        "mean of the last year": 3,
    }  # fmt: skip
    # A row's own train labels are the answer on train.
    assert list(maes(compared(Shop(), "train"), "train")) == ["mean", "median"]


def test_a_strict_task_knows_a_label_a_microsecond_later(given):
    given.seeds["test"] = [(1, 10, 1)]
    for strict, wanted in ((False, 0), (True, 3)):
        found = compared(Shop(10 * DAY, strict=strict), "test")
        assert maes(found, "test")["last label"] == wanted
    # Without a horizon nobody knows.
    assert "last label" not in maes(compared(Shop(), "test"), "test")


def test_only_the_splits_that_are_needed_are_read(given):
    for store, with_boosting, wanted in (
        (Shop(), False, ["train", "val"]),
        (Shop(1), False, ["train", "val", "test"]),
        (Shop(), True, ["train", "val", "test"]),
    ):
        given.reads.clear()
        compared(store, "val", with_boosting=with_boosting)
        assert given.reads == [(split, with_boosting) for split in wanted]


@pytest.mark.parametrize("empty", ["train", "val"])
def test_a_split_without_labels_has_no_baselines_and_no_boosting(given, empty):
    given.seeds[empty] = []
    found = compared(Shop(1), "val", "test", with_boosting=True)
    assert found.boosting == f"no labels in {empty}"
    assert found.metrics["val"] == {}
    assert (found.metrics["test"] == {}) == (empty == "train")
    with pytest.raises(config.ConfigError, match=f"shop/spend, found no labels in {empty}"):
        baselines.compare(None, [Shop(1)], TASK)


def test_boosting_is_beside_the_baselines_of_the_splits_that_are_asked_for(given):
    found = compared(Shop(10 * DAY), "test", with_boosting=True)
    assert list(found.metrics) == ["test"]
    assert maes(found, "test")["boosting"] == 0.5
    assert (found.boosting, found.seconds) == ("done", {"boosting": 1.5})
    kind = TASK._replace(kind=CATEGORICAL)
    for task, is_category in ((TASK, [False] * 4), (kind, [True, False])):
        given.boosted.clear()
        compared(Shop(10 * DAY), "test", task=task, with_boosting=True)
        (labels,) = given.boosted
        assert labels.is_category.tolist() == is_category
        # The last label, and since when it was known.
        assert labels.cells["test"][:, :2].tolist() == [[3, 10]]
        assert np.isnan(labels.cells["val"][2]).all()
    given.boosted.clear()
    compared(Shop(), "test", with_boosting=True)
    assert given.boosted == [None]


def test_all_baselines_are_a_table_with_their_seconds(given, monkeypatch):
    clock = iter([10.0, 14.0])
    monkeypatch.setattr(baselines, "time", SimpleNamespace(process_time=lambda: next(clock)))
    given.seeds["val"] = given.seeds["val"][:1]
    found = baselines.compare(None, [Shop()], TASK)[::-1]
    assert [(of.name, of.metrics["val"]["mae"], of.seconds) for of in found] == [
        ("boosting", 0.25, 1.5), ("mean of the entity", 0, 2.5), ("median", 1, 2.5),
        ("mean", 2, 2.5),
    ]  # fmt: skip
    header, first, *_, last = baselines.table(
        [of._replace(metrics={s: {"mae": m["mae"]} for s, m in of.metrics.items()}) for of in found]
    ).splitlines()
    assert header == "baseline            val mae  test mae  CPU seconds"
    assert first == "boosting            0.2500   0.5000    1.5"
    assert last == "mean                2.0000   1.0000    2.5"


def test_without_scikit_learn_comparing_says_what_to_install(given, monkeypatch):
    monkeypatch.setattr(boosting, "is_installed", lambda: False)
    assert compared(Shop(), "val", with_boosting=True).boosting == "not installed"
    assert given.reads == [("train", False), ("val", False)]
    with pytest.raises(config.ConfigError, match=r"pip install headwater\[baselines\]"):
        baselines.compare(None, [Shop()], TASK)


def test_pairs_have_the_baselines_of_links_and_no_boosting(given):
    groups = np.zeros(3, np.int64)
    task = TASK._replace(kind=BOOLEAN, pairs=links.Pairs(groups.astype(np.uint32), groups, 2))
    given.seeds.update(val=[(0, 0, 0), (1, 0, 1), (2, 0, 0)], test=[(2, 0, 1), (1, 0, 0)])
    store = Shop(last=[5, 9 * DAY, 7 * DAY])
    for until, val, test in ((None, 1, 0.5), ("1970-01-02", 0.75, 0.75)):
        data = SimpleNamespace(data=SimpleNamespace(visible_until=until))
        found = baselines.compare(data, [store], task)
        assert [of.name for of in found] == ["random", "popularity", "last linked"]
        of_last = found[-1].metrics
        assert (of_last["val"]["map"], of_last["test"]["map"]) == (val, test)
    assert given.reads == [("val", False), ("test", False)] * 2
    given.seeds["test"] = []
    with pytest.raises(config.ConfigError, match="found no labels in test"):
        baselines.compare(data, [store], task)


@pytest.fixture(scope="module")
def labelled_store(demo_store, tmp_path_factory):
    """The demo shop, whose labels are known after 60 days, with aggregates of them."""
    data = demo_store.parent / "data"
    schema = (data / "schema.toml").read_text()
    split = 'split = "split"\n'
    schema = schema.replace(split, split + 'horizon = "60 days"\n')
    schema += (
        '[[aggregate]]\ntable = "churn labels"\nreference = "customer_id"\ncolumns = "churned"\n'
    )
    out = tmp_path_factory.mktemp("labelled")
    (out / "schema.toml").write_text(schema)
    headwater.prepare(data, out / "schema.toml", out / "store", dimension=32)
    return out / "store"


def test_seeds_have_the_cells_and_aggregates_of_their_row(labelled_store):
    stores = [headwater.Store(labelled_store)]
    (task,) = evaluation.find_tasks(["demo-shop/churn"], stores)
    settings = config.load(None, [f"data.stores={labelled_store}"])
    found = seeds.read(settings, stores, task, "val", with_cells=True)
    cells = seeds.describe(stores, task)
    assert (task.kind, found.cells.shape) == (BOOLEAN, (len(found.labels), len(cells.names)))
    earlier = found.cells[:, cells.names.index("churn labels by customer_id: count")]
    mean = found.cells[:, cells.names.index("churn labels by customer_id: mean of churned")]
    every = [
        seeds.read(settings, stores, task, split, with_cells=False)
        for split in ("train", "val", "test")
    ]
    history = History.of(every, 60 * DAY_MICROSECONDS)
    for place in range(0, len(found.labels), 97):
        is_known = (history.rows == found.rows[place]) & (history.known <= found.times[place])
        labels = history.labels[is_known]
        # A count is a cell as log2(1 + n) / 8.
        assert 2 ** (8 * earlier[place]) - 1 == pytest.approx(len(labels), abs=1e-3)
        if len(labels):
            assert mean[place] == pytest.approx(np.mean(labels), abs=1e-5)
        else:
            assert np.isnan(mean[place])


BUSY = """
database = "busy"

[[table]]
name = "customers"
key = "id"
columns = { id = "ignored", age = "numerical" }

[[table]]
name = "orders"
time = { column = "at" }
columns = { customer = "ignored", at = "timestamp" }
references = [{ columns = "customer", to = "customers" }]

[[aggregate]]
table = "orders"
reference = "customer"
windows = ["30 days", "ever"]

[[task]]
name = "busy"
[task.derived]
anchor = "customers"
source = "seeds"
key = "customer"
time = "at"
target = "busy"
type = "boolean"
split = "split"
"""


def test_boosting_over_aggregates_finds_what_the_row_does_not_tell(tmp_path):
    draws = np.random.default_rng(3)
    start, day = np.datetime64("2024-01-01"), np.timedelta64(1, "D")
    customer, days = draws.integers(0, 300, 6000), draws.integers(0, 365, 6000)
    of_seed, observed = np.arange(900) % 300, draws.integers(60, 365, 900)
    recent = [
        np.sum((customer == who) & (days > at - 30) & (days <= at))
        for who, at in zip(of_seed, observed, strict=True)
    ]
    tables = {
        "customers": {"id": np.arange(300), "age": draws.integers(20, 80, 300)},
        "orders": {"customer": customer, "at": start + days * day},
        "seeds": {
            "customer": of_seed,
            "at": start + observed * day,
            "busy": np.array(recent) >= 2,
            "split": np.array(["train", "val", "test"])[draws.choice(3, 900, p=[0.6, 0.2, 0.2])],
        },
    }
    (tmp_path / "schema.toml").write_text(BUSY)
    frames = {name: polars.DataFrame(columns) for name, columns in tables.items()}
    headwater.prepare(frames, tmp_path / "schema.toml", tmp_path / "store", dimension=32)
    found = {b.name: b for b in confluence.compare_baselines(tmp_path / "store", "busy")}
    auroc = {name: baseline.metrics["test"]["auroc"] for name, baseline in found.items()}
    # Without a horizon nobody knows which labels were known.
    assert list(auroc) == [
        "mean", "mean of the entity", "boosting, the seed's row", "boosting, with its aggregates",
    ]  # fmt: skip
    assert auroc["boosting, with its aggregates"] > 0.99
    assert auroc["boosting, the seed's row"] < 0.7


def test_boosting_over_the_last_labels_finds_what_persists(tmp_path):
    draws = np.random.default_rng(5)
    customers, months = 60, 20
    mood = (
        np.cumsum(draws.random((customers, months)) < 0.1, axis=1) + np.arange(customers)[:, None]
    )
    at = np.datetime64("2024-01-01") + np.arange(months) * np.timedelta64(30, "D")
    split = np.repeat(["train", "val", "test"], [12, 4, 4])
    tables = {
        "customers": {"id": np.arange(customers), "age": draws.integers(20, 80, customers)},
        "orders": {"customer": np.arange(customers), "at": np.repeat(at[:1], customers)},
        "seeds": {
            "customer": np.repeat(np.arange(customers), months),
            "at": np.tile(at, customers),
            "busy": (mood % 2 == 0).ravel(),
            "split": np.tile(split, customers),
        },
    }
    (tmp_path / "schema.toml").write_text(BUSY + 'horizon = "30 days"\n')
    frames = {name: polars.DataFrame(columns) for name, columns in tables.items()}
    headwater.prepare(frames, tmp_path / "schema.toml", tmp_path / "store", dimension=32)
    found = {b.name: b for b in confluence.compare_baselines(tmp_path / "store", "busy")}
    auroc = {name: baseline.metrics["test"]["auroc"] for name, baseline in found.items()}
    assert auroc["boosting, with the last labels"] > 0.8
    assert auroc["boosting, with its aggregates"] < 0.7
    # A label that is known only later, and the seed's own, would make it perfect.
    assert auroc["boosting, with the last labels"] < 0.95


def test_the_command_shows_a_table(labelled_store):
    command = [sys.executable, "-m", "confluence.cli", "baselines", labelled_store]
    shown = subprocess.run(
        [*command, "--task", "churn"], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    header, *lines = shown.stdout.splitlines()
    assert header.split()[:3] == ["baseline", "val", "auroc"]
    assert [line.split("  ")[0] for line in lines] == [
        "mean", "mean of the entity", "last label", "mean of the last year",
        "boosting, the seed's row", "boosting, with its aggregates",
        "boosting, with the last labels",
    ]  # fmt: skip
    wrong = subprocess.run(
        [*command, "--task", "chrun"], capture_output=True, text=True, check=False
    )
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "chrun" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize(("kind", "typical"), [(NUMERICAL, 2.0), (BOOLEAN, 0.25)])
def test_boosting_without_columns_predicts_the_median_or_the_mean(kind, typical):
    train = [1.0, 2.0, 2.0, 9.0] if kind == NUMERICAL else [0.0, 0.0, 1.0, 0.0]
    labels = {"train": np.array(train), "val": np.array([1.0]), "test": np.array([0.0, 1.0])}
    cells = {split: np.zeros((len(of), 0)) for split, of in labels.items()}
    features = boosting.Features(cells, np.zeros(0, bool))
    predictions = boosting._predictions(kind, features, labels)
    assert {split: of.tolist() for split, of in predictions.items()} == {
        "val": [typical],
        "test": [typical] * 2,
    }


def test_nothing_known_later_than_visible_until_counts(labelled_store):
    def last_label(time):
        found = confluence.compare_baselines(labelled_store, "churn", visible_until=time)
        return next(b.metrics["test"] for b in found if b.name == "last label")

    # The first labels are known later: all seeds get the mean.
    assert last_label("2020-01-01")["auroc"] == 0.5
    assert last_label(None)["auroc"] != 0.5


def test_the_relf1_example_is_the_board_it_names(tmp_path):
    root = Path(__file__).parents[2]
    shared = Path(os.environ.get("HEADWATER_SHARED", root.parent / "shared")) / "data"
    if not (shared / "relf1").exists():
        pytest.skip(f"the tasks of rel-f1 are not at {shared / 'relf1'}")
    (tmp_path / "data").mkdir()
    for file in (*shared.glob("f1db/*.csv"), *shared.glob("relf1/*.csv")):
        (tmp_path / "data" / file.name).symlink_to(file)
    schema = root / "examples/relf1/schema.toml"
    headwater.prepare(tmp_path / "data", schema, tmp_path / "store", dimension=32)
    found = {b.name: b for b in confluence.compare_baselines(tmp_path / "store", "driver-top3")}
    assert found["mean of the last year"].metrics["test"]["auroc"] == pytest.approx(0.907, abs=0.01)
    assert found["boosting, with its aggregates"].metrics["test"]["auroc"] > 0.92
    settings = config.load(
        root / "examples/relf1/train.toml", [f"data.stores={tmp_path / 'store'}"]
    )
    with feed.open_sampler(settings.data, settings.run, Processes()) as sampler:
        assert sampler.seed_counts("val") == dict(zip(sampler.tasks, (499, 566, 588), strict=True))
        assert sampler.seed_counts("test") == dict(zip(sampler.tasks, (760, 702, 726), strict=True))
