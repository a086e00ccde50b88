"""Baselines against plain loops, and as a command."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

import confluence
import headwater
from confluence import baselines, boosting, config, evaluation, feed, seeds
from confluence.baselines import History
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL
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
    assert last_label(None)["auroc"] > 0.5


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
