"""The answers of a run: files of predictions, metrics by period, intervals."""

import csv
import datetime
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest

import confluence
import headwater
from confluence import answers, config, evaluation, frames, metrics, prediction, seeds, times
from confluence.batch import BOOLEAN, NUMERICAL, TIMESTAMP
from confluence.evaluation import Scores, Task
from confluence.intervals import Intervals
from runs import confluence_here as command
from stores import FewRows, prepare_tables

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_file_of_answers_has_the_metrics_of_the_run(whole, tmp_path):
    found = confluence.evaluate(whole, splits=["val", "test"], out=tmp_path / "answers.csv")
    rows = rows_of(tmp_path / "answers.csv")
    for name, kind, read in (
        ("demo-shop/churn", BOOLEAN, lambda text: float(text == "true")),
        ("demo-shop/spend", NUMERICAL, float),
    ):
        for split in ("val", "test"):
            own = [row for row in rows if (row["task"], row["split"]) == (name, split)]
            values = np.array([float(row["prediction"]) for row in own])
            labels = np.array([read(row["label"]) for row in own])
            scores, wanted = metrics.score(kind, values, labels), found.tasks[name][split]
            assert len(own) == wanted["seeds"] - wanted["nulls"]
            for metric, value in scores.items():
                assert value == pytest.approx(wanted[metric], rel=1e-4), (name, split, metric)
    # Each seed once, by the key of its customer and its time.
    seeds = [(row["task"], row["key"], row["obs_time"]) for row in rows]
    assert len(set(seeds)) == len(seeds)


def test_a_written_label_is_the_one_that_the_store_shows(whole, tmp_path):
    store = headwater.Store(confluence.open(whole).config.data.stores[0])
    paths = [tmp_path / "answers.csv", tmp_path / "answers.parquet"]
    for path in paths:
        confluence.evaluate(whole, splits=["train", "val", "test"], out=path)
    parquet = pyarrow.parquet.read_table(paths[1]).to_pylist()
    for rows in (rows_of(paths[0]), parquet):
        for name, text in (("spend", repr), ("churn", lambda label: str(label).lower())):
            shown = store.task(name).to_arrow().to_pylist()
            wanted = [(of["split"], of["id"], text(of["target"])) for of in shown]
            own = [row for row in rows if row["task"] == f"demo-shop/{name}"]
            found = [(row["split"], row["key"], row["label"]) for row in own]
            assert sorted(found) == sorted(wanted)
            assert "spend" not in name or "0.0" in {label for *_, label in found}


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_numbers_of_any_scale_are_as_the_store_shows_them(scale, tmp_path):
    draws = np.random.default_rng(4)
    numbers = [0.0, 1e12, -2.5, 0.1, 12345.678, *np.expm1(draws.uniform(0, 20, 200)).round(2)]
    of_scale = "" if scale == "linear" else f'scale = "{scale}"'
    schema = f"""
database = "firm"
[[table]]
name = "people"
key = "id"
columns = {{ id = "ignored", age = "numerical" }}
[[task]]
name = "pay"
[task.derived]
anchor = "people"
source = "pay"
key = "id"
time = "at"
target = "pay"
type = "numerical"
{of_scale}
"""
    tables = {
        "people": (("id", "age"), [(n, n % 7) for n in range(len(numbers))]),
        "pay": (("id", "at", "pay"), [(n, "2022-01-01", of) for n, of in enumerate(numbers)]),
    }
    store = headwater.Store(prepare_tables(tmp_path, schema, tables, dimension=32))
    (task,) = evaluation.find_tasks(["firm/pay"], [store])
    settings = config.load(None, [f"data.stores={store.path}"])
    found = seeds.read(settings, [store], task, "train", with_cells=False, as_stored=True).labels
    shown = store.task("pay").to_arrow().to_pylist()
    assert found.tolist() == [of["target"] for of in shown if of["split"] == "train"]


def test_a_parquet_file_has_the_same_answers_with_types(whole, tmp_path):
    paths = [tmp_path / "answers.csv", tmp_path / "answers.parquet"]
    for path in paths:
        shown = command("evaluate", whole, "--out", path, "--by", "month")
        assert shown.returncode == 0, shown.stderr
    texts, typed = rows_of(paths[0]), pyarrow.parquet.read_table(paths[1]).to_pylist()
    assert [row["key"] for row in texts] == [row["key"] for row in typed]
    times = [row["obs_time"] and row["obs_time"].replace(tzinfo=None) for row in typed]
    wanted = [row["obs_time"] and datetime.datetime.fromisoformat(row["obs_time"]) for row in texts]
    assert times == [time or None for time in wanted]
    # Numbers beside categories are text.
    assert [row["prediction"] for row in texts] == [row["prediction"] for row in typed]
    assert "demo-shop/churn, test  seeds  auroc" in shown.stdout


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ("day", ["2023-12-31", "2024-01-01"]),
        ("week", ["2023-12-25", "2024-01-01"]),
        ("month", ["2023-12", "2024-01"]),
        ("quarter", ["2023-Q4", "2024-Q1"]),
        ("year", ["2023", "2024"]),
    ],
)
def test_metrics_by_period_are_those_of_its_seeds(period, expected):
    task = Task("shop/spend", 0, NUMERICAL, {}, sees_everything=False)
    # A Sunday, and the Monday after it.
    times = np.array(["2023-12-31T23:59", "2024-01-01", "2024-01-01T12:00"], "datetime64[us]")
    values, labels = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 5.0])
    rows = np.zeros(3, np.uint32)
    of = answers.Answers(task, "test", rows, times, values, labels, labels, Intervals(task))
    found = answers.by_period(of, period)
    assert list(found) == expected
    assert [scores["seeds"] for scores in found.values()] == [1, 2]
    assert [scores["mae"] for scores in found.values()] == [0.5, 1.0]


def answered(kind, split="test", *, values, labels, stored=None, times=("2022-01-01",), bins=()):
    """Returns the answers of seeds whose rows are 0, 1 and so on."""
    count = len(values)
    task = Task("club/pays", 0, kind, {"cat_emb_start": 10}, sees_everything=False)
    return answers.Answers(
        task, split, np.arange(count, dtype=np.uint32),
        np.array(list(times) * (count // len(times)), "datetime64[us]"),
        np.array(values, np.float64), np.array(labels, np.float64),
        np.array(labels if stored is None else stored, np.float64), Intervals(task, bins),
    )  # fmt: skip


MEMBERS = SimpleNamespace(stores=[FewRows(("a", None), ("b", None), (None, None))])
DAY = 86_400_000_000
BINS = [{"from": 0.0, "to": 9.0, "seeds": 50, "low": -1.0 * DAY, "high": 3.0 * DAY}]


def test_answers_are_those_of_the_seeds_of_the_split_in_their_order(monkeypatch):
    def read(*given, **options):
        assert given == ("settings", "stores", task, "val")
        assert options == {"with_cells": False, "as_stored": True}
        return seeds.Seeds(
            np.array([4, 2], np.uint32), np.array([DAY, seeds.NO_TIME]), np.array([0.1, 2.0]), None
        )

    monkeypatch.setattr(seeds, "read", read)
    task = Task("shop/spend", 0, NUMERICAL, {}, sees_everything=False)
    rows, values, labels = np.array([4, 2], np.uint32), np.ones(2), np.array([0.1000001, 2.0])
    scores = Scores(0.0, 2, 0, {}, rows, values, labels)
    parts = SimpleNamespace(settings="settings", stores="stores")
    found = answers.of_split(parts, scores, task, "val", "intervals")
    assert (found.task, found.split, found.intervals) == (task, "val", "intervals")
    assert np.array_equal(found.times, np.array(["1970-01-02", "NaT"], "M8[us]"), equal_nan=True)
    assert found.values is values
    assert found.labels is labels
    assert found.stored_labels.tolist() == [0.1, 2.0]


def test_each_seed_is_a_line_with_its_key_its_time_and_its_interval(tmp_path):
    given = [
        answered(BOOLEAN, values=[0.25, 1, 0], labels=[0, 1, 1]),
        answered(NUMERICAL, "val", values=[2], labels=[1.1], stored=[1], times=["NaT"]),
    ]
    answers.write(tmp_path / "answers.csv", MEMBERS, given[:1])
    assert (tmp_path / "answers.csv").read_text() == (
        "task,split,key,obs_time,prediction,label\n"
        "club/pays,test,a,2022-01-01 00:00:00,0.250000,false\n"
        "club/pays,test,b,2022-01-01 00:00:00,1.000000,true\n"
        "club/pays,test,row 2,2022-01-01 00:00:00,0.000000,true\n"
    )
    answers.write(tmp_path / "both.csv", MEMBERS, given)
    header, first, *_, last = (tmp_path / "both.csv").read_text().splitlines()
    assert header.split(",")[4:] == ["prediction", "prediction_low", "prediction_high", "label"]
    assert first.endswith(",0.250000,,,false")
    assert last == "club/pays,val,a,,2,,,1.0"


def test_the_columns_of_a_parquet_file_have_the_type_of_their_tasks(tmp_path):
    time, text = pyarrow.timestamp("us", "UTC"), pyarrow.string()
    numbers = [
        answered(BOOLEAN, values=[0.25, 1], labels=[0, 1]),
        answered(NUMERICAL, values=[2], labels=[1.1], stored=[1], times=["NaT"]),
    ]
    due = [answered(TIMESTAMP, values=[2 * DAY, 1e25], labels=[DAY, 0], bins=BINS)]
    for number, (given, kind) in enumerate(
        ((numbers, pyarrow.float64()), (due, time), ([*numbers, *due], text))
    ):
        out = tmp_path / f"{number}.parquet"
        answers.write(out, MEMBERS, given)
        found = pyarrow.parquet.read_table(out)
        for name in ("prediction", "label", "prediction_low", "prediction_high"):
            assert found.schema.field(name).type == kind
        assert found.schema.field("obs_time").type == time
        assert found.schema.field("key").type == text
    plain, times, texts = (
        pyarrow.parquet.read_table(tmp_path / f"{number}.parquet").to_pydict()
        for number in range(3)
    )
    assert plain["prediction"] == [0.25, 1, 2]
    assert plain["label"] == [0, 1, 1]
    assert plain["prediction_low"] == plain["prediction_high"] == [None] * 3
    assert [of and of.day for of in plain["obs_time"]] == [1, 1, None]
    since = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    days = {name: (of[0] - since) / datetime.timedelta(1) for name, of in list(times.items())[4:]}
    assert days == pytest.approx(
        {"prediction": 2, "prediction_low": 1, "prediction_high": 5, "label": 1}
    )
    assert times["prediction"][1] is None
    assert texts["prediction"][0] == "0.250000"
    assert texts["prediction_low"][:3] == [None] * 3


def test_seeds_without_a_time_are_a_period_of_their_own():
    given = answered(NUMERICAL, values=[1, 2], labels=[3, 2], times=["NaT", "0987-06-05"])
    for period, name in (
        ("day", "0987-06-05"), ("month", "0987-06"), ("year", "0987"), ("quarter", "0987-Q2")
    ):  # fmt: skip
        found = answers.by_period(given, period)
        assert {name: of["mae"] for name, of in found.items()} == {name: 0, "no time": 2}
    shown = answers.table({"club/pays, test": found, "none, test": {}})
    header, *lines = shown.splitlines()
    assert header.split()[:5] == ["club/pays,", "test", "seeds", "mae", "rmse"]
    assert lines[0].split()[:4] == ["0987-Q2", "1", "0.0000", "0.0000"]
    assert lines[-2:] == ["", "none, test"]


def test_parquet_needs_pyarrow_and_csv_does_not(tmp_path, monkeypatch):
    answers.check_file(tmp_path / "a.parquet")
    monkeypatch.setattr(answers.importlib.util, "find_spec", lambda name: None)
    answers.check_file(tmp_path / "a.csv")
    with pytest.raises(confluence.config.ConfigError, match="Parquet needs pyarrow; install it"):
        answers.check_file(tmp_path / "a.parquet")


def test_a_time_that_no_year_has_is_shown_as_microseconds():
    task = Task("shop/due", 0, TIMESTAMP, {}, sees_everything=False)
    assert prediction.formatted(None, task, 0.0) == "1970-01-01T00:00:00.000000"
    assert prediction.formatted(None, task, 1e25) == "10000000000000000905969664"
    assert prediction.formatted(None, task, -(2.0**63)) == "-9223372036854775808"
    assert frames._value(None, task, 1e25) is None
    found = times.array(np.array([86_400e6, 1e25, np.nan]))
    assert found[0] == np.datetime64("1970-01-02")
    assert np.isnat(found[1:]).all()


def test_the_interval_draws_entities_with_all_their_seeds():
    chance = np.random.default_rng(1)
    rows = np.repeat(np.arange(40, dtype=np.uint32), 25)
    # An entity's seeds have one error: 1,000 seeds are worth 40.
    errors = np.repeat(chance.standard_normal(40), 25)
    labels = chance.standard_normal(1000)
    low, high = metrics.interval(NUMERICAL, rows, labels + errors, labels)
    mae = np.abs(errors).mean()
    assert low < mae < high
    spread = np.abs(errors[::25]).std() / np.sqrt(40)
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.25)
    single = metrics.interval(NUMERICAL, np.arange(1000, dtype=np.uint32), labels + errors, labels)
    assert single[1] - single[0] < (high - low) / 3
    assert metrics.interval(NUMERICAL, rows, labels + errors, labels) == (low, high)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("answers.txt", "expected a file that ends in .csv or .parquet for --out, found"),
        ("there.csv", "there.csv is there already; remove it, or choose another file"),
        ("none/answers.csv", "none, found none; create it"),
        ("folder.csv", "folder.csv is there already"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_once(name, message, tmp_path):
    (tmp_path / "there.csv").write_text("")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(confluence.config.ConfigError, match=message):
        answers.check_file(tmp_path / name)
