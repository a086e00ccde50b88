"""The answers of a run: files of predictions, metrics by period, intervals."""

import csv
import datetime

import numpy as np
import pyarrow.parquet
import pytest

import confluence
import headwater
from confluence import answers, config, evaluation, frames, metrics, prediction, seeds, times
from confluence.batch import BOOLEAN, NUMERICAL, TIMESTAMP
from confluence.evaluation import Task
from confluence.intervals import Intervals
from runs import confluence as command
from stores import prepare_tables

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
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_once(name, message, tmp_path):
    (tmp_path / "there.csv").write_text("")
    with pytest.raises(confluence.config.ConfigError, match=message):
        answers.check_file(tmp_path / name)
