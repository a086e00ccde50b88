"""Prediction intervals: what they hold, where they come from, and where they are shown."""

import csv
import io
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pandas
import pyarrow.parquet
import pytest

import confluence
import headwater
from confluence import answers, intervals, prediction
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP
from confluence.evaluation import Scores, Task
from runs import confluence_here as command

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")

LINEAR, LOG = {}, {"scale": "log"}


def fitted(values, labels, stats=LINEAR, kind=NUMERICAL):
    values, labels = (np.array(of, np.float64) for of in (values, labels))
    rows = np.arange(len(values), dtype=np.uint32)
    scores = Scores(0.0, len(values), 0, {}, rows, values, labels)
    return intervals.of_scores(Task("shop/spend", 0, kind, stats, sees_everything=False), scores)


def ends(found, *values):
    return [tuple(of) for of in zip(*found.ends(np.array(values, np.float64)), strict=True)]


def test_the_ends_leave_out_one_error_in_twenty_below_and_above():
    # Of 19 errors and a new one, the new one is the least with probability 1 / 20.
    found = fitted([10.0] * 19, 10 + np.arange(-9, 10))
    assert ends(found, 10.0, 50.0) == [pytest.approx((1, 19)), pytest.approx((41, 59))]
    assert ends(fitted([10.0] * 38, 10 + np.arange(38)), 10.0) == [pytest.approx((10, 47))]
    # The second of 39 errors.
    found = fitted([10.0] * 39, 10 + np.arange(-19, 20))
    assert ends(found, 10.0) == [pytest.approx((-8, 28))]
    assert found.coverage(np.full(3, 10.0), np.array([-8.0, 28.0, 28.1])) == {
        "coverage": {"level": 0.9, "share": pytest.approx(2 / 3)}
    }


def test_an_interval_holds_its_prediction_however_the_model_is_biased():
    assert ends(fitted([0.0] * 40, np.arange(40) + 5), 0.0) == [(0.0, pytest.approx(43))]


def test_too_few_labels_give_no_interval_and_few_give_few_bins():
    found = fitted(np.arange(18), np.arange(18))
    assert found.warning == (
        "shop/spend: no intervals: expected at least 19 labels in the validation split, found 18"
    )
    assert np.isnan(ends(found, 3.0)).all()
    for count, sizes in ((19, [19]), (99, [99]), (100, [50, 50]), (1000, [100] * 10)):
        values = np.arange(float(count))
        assert [of["seeds"] for of in fitted(values, values).bins] == sizes
    # Most predictions are 0: they share a bin, and too few are left for another one.
    for others, sizes in ((30, [150]), (60, [120, 60])):
        values = np.append(np.zeros(120), np.arange(1.0, others + 1))
        assert [of["seeds"] for of in fitted(values, values).bins] == sizes


def test_intervals_hold_nine_of_ten_exchangeable_labels():
    draws = np.random.default_rng(0)
    shares = []
    for _ in range(20):
        values = draws.standard_normal(6000)
        labels = values + draws.exponential(1 + np.abs(values)) - 1
        found = fitted(values[:1000], labels[:1000])
        shares.append(found.coverage(values[1000:], labels[1000:])["coverage"]["share"])
    # Ten bins of 100 errors: 1 - 2 * 5 / 101. The deviation is that of 1,000 and of 5,000 labels.
    deviation = np.sqrt(0.09 / 1000 + 0.09 / 5000)
    assert np.mean(shares) == pytest.approx(1 - 10 / 101, abs=3 * deviation / np.sqrt(20))
    assert np.abs(np.array(shares) - 0.9).max() < 4 * deviation


def test_the_width_follows_the_noise_of_the_prediction():
    draws = np.random.default_rng(1)
    values = draws.uniform(0, 10, 5000)
    found = fitted(values, values + values * draws.standard_normal(5000))
    widths = [high - low for low, high in ends(found, 2.5, 5.5, 9.5)]
    # 1.64 deviations on each side.
    assert widths == pytest.approx([2 * 1.64 * of for of in (2.5, 5.5, 9.5)], rel=0.2)


def test_on_a_logarithmic_scale_an_interval_grows_within_its_bin():
    draws = np.random.default_rng(2)
    values = np.expm1(draws.uniform(0, 8, 40))
    labels = np.expm1(np.log1p(values) + draws.uniform(-0.5, 0.5, 40))
    (small, large) = ends(fitted(values, labels, LOG), 1.0, 1000.0)
    assert (large[1] + 1) / (small[1] + 1) == pytest.approx(1001 / 2)
    assert small[0] > 0


def test_each_prediction_has_the_ends_of_its_own_bin():
    errors = np.append(np.tile([-1.0, 1.0], 25), np.tile([-9.0, 9.0], 25))
    found = fitted(np.arange(100.0), np.arange(100.0) + errors)
    assert ends(found, 0.0, 49.0, 50.0, 1000.0) == [
        pytest.approx(of) for of in ((-1, 1), (48, 50), (41, 59), (991, 1009))
    ]


def test_labels_at_an_end_are_inside_however_the_scale_rounds():
    draws = np.random.default_rng(3)
    labels = draws.integers(1, 5, 200).astype(np.float64)
    rank = {"scale": {"rank": {"quantiles": [1.0, 2, 2, 3, 3, 3, 4]}}}
    for stats, value, unit in (
        (LINEAR, 3.7, 1), (LINEAR, 3.7, 1e6 / 9), (LINEAR, 1.4, 1e6 / 9), (LOG, 3.7, 1),
        (rank, 3.7, 1),
    ):  # fmt: skip
        values = np.full(200, value * unit)
        found = fitted(values, labels * unit, stats)
        assert found.coverage(values, labels * unit)["coverage"]["share"] == 1


def test_probabilities_and_categories_have_no_intervals_and_no_warning(capsys):
    for kind in (BOOLEAN, CATEGORICAL):
        found = fitted(np.arange(100), np.arange(100), kind=kind)
        assert (found.bins, found.warning, found.record()) == ((), None, {})
        assert found.coverage(np.zeros(1), np.zeros(1)) == {}
        seeds = [prediction.Seed(("17",), "2022-01-01")]
        prediction.write_predictions(found.task, seeds, [prediction.Prediction("x", 0.5)], None)
        assert capsys.readouterr().out == (
            "key,obs_time,prediction,null_probability\n17,2022-01-01,x,0.5\n"
        )


def test_a_run_has_the_intervals_of_its_results_if_they_are_of_its_checkpoints(tmp_path):
    found = fitted([10.0] * 19, 10 + np.arange(-9, 10))
    assert (found.warning, set(found.record())) == (None, {"prediction_intervals"})

    def of_run(steps, kind=NUMERICAL):
        return intervals.of_run(tmp_path, steps, found.task._replace(kind=kind))

    def write(**content):
        of_val = {"val": found.record()}
        content = {"members": [], "step": 3, "tasks": {"shop/spend": of_val}, **content}
        (tmp_path / "results.json").write_text(json.dumps(content))

    assert of_run([3]).missing == "the training has not ended; they come with its results"
    assert of_run([3], BOOLEAN).warning is None
    write()
    assert of_run([3]) == found
    assert of_run([4]).missing == "the results are of step 3, the checkpoint of 4"
    write(members=[3, 5], step=None)
    assert of_run([3, 5]) == found
    assert of_run([3, 6]).missing == "the results are of step 3, 5, the checkpoint of 3, 6"
    for tasks in ({}, {"shop/spend": {"val": {"mae": 1.0}}}):
        write(tasks=tasks)
        assert of_run([3]).missing.startswith("the results are of an earlier version; add them")


def test_a_time_has_an_interval_of_times(demo_store, tmp_path):
    day = 86_400_000_000
    at = 19_000 * day
    found = fitted([at] * 39, at + day * np.arange(-19.0, 20), kind=TIMESTAMP)
    parts = SimpleNamespace(stores=[headwater.Store(demo_store)])
    (shown,) = prediction.as_predictions(parts, found, np.array([float(at)]), np.zeros(1))
    times = [np.datetime64(of) for of in (shown.low, shown.value, shown.high)]
    assert np.round(np.diff(times) / np.timedelta64(1, "h")).tolist() == [18 * 24] * 2
    seeds = np.zeros(1, np.uint32), np.full(1, "2022-01-01", "datetime64[us]")
    for ends_of, is_there in ((found, True), (found._replace(bins=()), False)):
        given = answers.Answers(found.task, "test", *seeds, *[np.array([float(at)])] * 3, ends_of)
        out = tmp_path / f"{is_there}.parquet"
        answers.write(out, parts, [given])
        (row,) = pyarrow.parquet.read_table(out).to_pylist()
        assert (row["prediction_low"] is not None) == is_there
        if is_there:
            assert row["prediction_low"] < row["prediction"] < row["prediction_high"]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def answered(whole, tmp_path_factory):
    """The lines of `confluence evaluate --out` on the test split."""
    out = tmp_path_factory.mktemp("answered") / "answers.csv"
    shown = command("evaluate", whole, "--out", out)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout, rows_of(out.read_text())


def test_evaluate_measures_the_coverage_on_the_test_split(whole, answered):
    tasks = json.loads((whole / "results.json").read_text())["tasks"]
    share = tasks["demo-shop/spend"]["test"]["coverage"]["share"]
    line = f"demo-shop/spend: 90 % intervals hold {100 * share:.1f} % of the test labels"
    shown, rows = answered
    assert line in shown.splitlines()
    assert line in (whole / "report.html").read_text()
    assert 0.8 < share < 1
    own = [row for row in rows if row["task"] == "demo-shop/spend"]
    inside = [
        float(row["prediction_low"]) <= float(row["label"]) <= float(row["prediction_high"])
        for row in own
    ]
    assert np.mean(inside) == pytest.approx(share, abs=1e-9)
    assert all(row["prediction_low"] == "" for row in rows if row["task"] != "demo-shop/spend")
    bins = tasks["demo-shop/spend"]["val"]["prediction_intervals"]["bins"]
    assert sum(of["seeds"] for of in bins) == tasks["demo-shop/spend"]["val"]["seeds"]
    assert "coverage" not in tasks["demo-shop/spend"]["val"]
    for name in ("demo-shop/churn", "demo-shop/products.material"):
        assert "prediction_intervals" not in tasks[name]["val"]
        assert "coverage" not in tasks[name]["test"]


def test_predict_has_the_intervals_that_evaluate_had(whole, answered, tmp_path):
    own = [row for row in answered[1] if row["task"] == "demo-shop/spend"][:20]
    path = tmp_path / "seeds.csv"
    path.write_text("key,at\n" + "".join(f"{row['key']},{row['obs_time']}\n" for row in own))
    shown = command("predict", whole, "--task", "spend", "--seeds", path)
    assert shown.stderr == ""
    lines = rows_of(shown.stdout)
    assert list(lines[0]) == [
        "key", "obs_time", "prediction", "prediction_low", "prediction_high", "null_probability",
    ]  # fmt: skip
    for row in lines:
        values = [float(row[name]) for name in ("prediction_low", "prediction", "prediction_high")]
        assert values == sorted(values)
    seeds = [(row["key"], row["obs_time"]) for row in own]
    found = confluence.predict(whole, "spend", seeds)
    texts = [(row["prediction_low"], row["prediction_high"]) for row in lines]
    assert [(of.low, of.high) for of in found] == texts
    frame = pandas.DataFrame(seeds, columns=["id", "obs_time"])
    beside = confluence.open(whole).predict(frame, "spend")
    assert [f"{of:.6g}" for of in beside.prediction_low] == [of[0] for of in texts]
    assert list(beside.columns[2:]) == list(lines[0])[2:]
    wanted = "without the column 'prediction_low', which the prediction adds"
    with pytest.raises(confluence.config.ConfigError, match=wanted):
        confluence.open(whole).predict(frame.assign(prediction_low=1), "spend")


def test_a_run_of_an_earlier_version_has_no_intervals_until_it_is_evaluated(whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    wanted = json.loads((run / "results.json").read_text())
    older = json.loads((run / "results.json").read_text())
    for of_task in older["tasks"].values():
        del of_task["no_intervals"]
        of_task["val"].pop("prediction_intervals", None)
        of_task["test"].pop("coverage", None)
    older["remarks"] = [line for line in older["remarks"] if "intervals" not in line]
    (run / "results.json").write_text(json.dumps(older))
    remedy = (
        "demo-shop/spend: no intervals: the results are of an earlier version; add them with "
        f"confluence evaluate {run} --split val"
    )
    asked = ("predict", run, "--task", "spend", "--at", "2022-01-01", "--top", 3)
    shown = command(*asked)
    assert shown.stderr == f"confluence: {remedy}\n"
    assert [row["prediction_low"] for row in rows_of(shown.stdout)] == [""] * 3
    found = confluence.evaluate(run, out=tmp_path / "answers.parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "answers.parquet").to_pylist()
    assert {row["prediction_low"] for row in rows} == {None}
    assert [line for line in found.remarks if "intervals" in line] == [remedy]
    assert json.loads((run / "results.json").read_text()) == older
    evaluated = command("evaluate", run, "--split", "test", "--split", "val")
    assert "demo-shop/spend: 90 % intervals hold" in evaluated.stdout
    now = json.loads((run / "results.json").read_text())
    for of_task in wanted["tasks"].values():
        del of_task["no_intervals"]
    assert now == wanted
    shown = command(*asked)
    assert shown.stderr == ""
    for row in rows_of(shown.stdout):
        assert float(row["prediction_low"]) <= float(row["prediction"])


def test_other_parameters_than_those_of_the_results_have_no_intervals(whole, tmp_path):
    task = Task("demo-shop/spend", 0, NUMERICAL, {}, sees_everything=False)
    (step,) = [json.loads((whole / "results.json").read_text())["step"]]
    assert intervals.of_run(whole, [step], task).bins
    found = intervals.of_run(whole, [step + 1], task)
    assert found.missing == f"the results are of step {step}, the checkpoint of {step + 1}"
    assert intervals.of_run(tmp_path, [step], task).missing == (
        "the training has not ended; they come with its results"
    )


def test_p7_the_labels_of_the_test_split_change_no_interval(tiny, demo_store, whole, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(demo_store.parent / "data", data)
    lines = (data / "task_spend.csv").read_text().splitlines()
    changed = [line.replace(f",{line.split(',')[2]},test", ",123456.0,test") for line in lines]
    assert lines != changed
    (data / "task_spend.csv").write_text("\n".join(changed) + "\n")
    headwater.prepare(data, data / "schema.toml", tmp_path / "store", dimension=32)
    settings = [*tiny, f"data.stores={tmp_path / 'store'}"]
    found = confluence.train(confluence.load(None, settings), tmp_path / "run").results.tasks
    before = json.loads((whole / "results.json").read_text())["tasks"]["demo-shop/spend"]
    after = found["demo-shop/spend"]
    assert after["test"]["mae"] > 100 * before["test"]["mae"]
    assert after["test"]["coverage"]["share"] == 0
    assert after["val"]["prediction_intervals"] == before["val"]["prediction_intervals"]
