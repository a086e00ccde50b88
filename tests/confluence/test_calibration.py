"""Predictions against labels: the bins, and where the results show them."""

import json
import re

import numpy as np
import pytest

import confluence
from confluence import calibration
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL
from runs import confluence_here as command

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_boolean_has_ten_bins_and_the_expected_calibration_error():
    values = np.array([0.0, 0.04, 0.1, 0.62, 0.68, 1.0])
    labels = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    found = calibration.calibration(BOOLEAN, values, labels)
    assert [of["seeds"] for of in found["bins"]] == [2, 1, 0, 0, 0, 0, 2, 0, 0, 1]
    assert [(of["from"], of["to"]) for of in found["bins"]][6] == (0.6, 0.7)
    first, second, empty = found["bins"][:3]
    assert (first["prediction"], first["label"]) == (pytest.approx(0.02), 0.5)
    assert (second["prediction"], second["label"]) == (pytest.approx(0.1), 0.0)
    assert (empty["prediction"], empty["label"]) == (None, None)
    # Two seeds are off by .48, one by .1, two by .15, one by 0.
    assert found["error"] == pytest.approx((2 * 0.48 + 0.1 + 2 * 0.15) / 6)


def test_the_error_of_true_probabilities_is_small_and_of_others_large():
    chance = np.random.default_rng(0)
    values = chance.random(100_000)
    labels = (chance.random(100_000) < values).astype(float)
    assert calibration.calibration(BOOLEAN, values, labels)["error"] < 0.01
    sure = np.round(values)
    assert calibration.calibration(BOOLEAN, sure, labels)["error"] == pytest.approx(0.25, abs=0.01)


def test_a_number_has_bins_of_equal_size_and_equal_predictions_share_one():
    values = np.arange(40.0)[::-1]
    found = calibration.calibration(NUMERICAL, values, values + 2)["bins"]
    assert [of["seeds"] for of in found] == [4] * 10
    assert (found[0]["from"], found[0]["to"], found[9]["to"]) == (0.0, 3.0, 39.0)
    assert {of["mae"] for of in found} == {2.0}
    assert (found[1]["prediction"], found[1]["label"]) == (5.5, 7.5)
    # Most predictions are 0, as medians of rare payments are.
    values = np.array([0.0] * 95 + [1.0, 2.0, 3.0, 4.0, 5.0])
    found = calibration.calibration(NUMERICAL, values, np.zeros(100))["bins"]
    assert [(of["seeds"], of["mae"]) for of in found] == [(95, 0.0), (5, 3.0)]


def test_a_category_has_no_bins():
    assert calibration.calibration(CATEGORICAL, np.zeros(3), np.zeros(3)) is None


def test_each_task_and_split_with_bins_has_a_table_of_them():
    values = np.array([0.25, 0.25, 0.5])
    tasks = {
        "shop/churn": {
            "train": {},
            "val": {"calibration": calibration.calibration(BOOLEAN, values, np.ones(3))},
        },
        "shop/kind": {"test": {}},
        # All predictions are equal: there is one bin.
        "shop/spend": {
            "test": {
                "calibration": calibration.calibration(NUMERICAL, np.full(2, 3.0), np.array([3, 6]))
            }
        },
    }
    churn, spend = (
        [re.split("  +", line) for line in block.splitlines()]
        for block in calibration.text(tasks).split("\n\n")
    )
    assert churn[:3] == [
        ["shop/churn, val: predictions and labels, expected calibration error 0.6667"],
        ["from", "to", "seeds", "mean prediction", "mean label"],
        ["0", "0.1", "0", "-", "-"],
    ]
    assert churn[4] == ["0.2", "0.3", "2", "0.25", "1"]
    assert spend == [
        ["shop/spend, test: predictions and labels"],
        ["from", "to", "seeds", "mean prediction", "mean label", "mean absolute error"],
        ["3", "3", "2", "3", "4.5", "1.5"],
    ]


def test_the_results_and_the_report_of_a_run_have_the_bins(whole):
    shown = command("evaluate", whole)
    assert shown.returncode == 0, shown.stderr
    tasks = json.loads((whole / "results.json").read_text())["tasks"]
    page = (whole / "report.html").read_text()
    assert "<h2>Predictions and labels</h2>" in page
    for name, columns in (
        ("demo-shop/churn", "from  to   seeds  mean prediction  mean label"),
        ("demo-shop/spend", "mean absolute error"),
    ):
        for split in ("val", "test"):
            scores = tasks[name][split]
            bins = scores["calibration"]["bins"]
            assert sum(of["seeds"] for of in bins) == scores["seeds"] - scores["nulls"]
            assert f"<p>{name}, {split}: predictions and labels" in page
        assert f"{name}, test: predictions and labels" in shown.stdout
        assert columns in shown.stdout
        # The means of the bins have the bias of the whole.
        means = [
            sum(of["seeds"] * of[part] for of in bins if of["seeds"]) / scores["seeds"]
            for part in ("prediction", "label")
        ]
        assert means[0] - means[1] == pytest.approx(scores["bias"], abs=1e-6 * abs(means[0]) + 1e-9)
    error = tasks["demo-shop/churn"]["test"]["calibration"]["error"]
    assert f"expected calibration error {error:.4f}" in shown.stdout
    assert "calibration" not in tasks["demo-shop/products.material"]["test"]
    assert "products.material, test: predictions" not in page
    html = confluence.evaluate(whole)._repr_html_()
    assert "demo-shop/spend, test: predictions and labels" in html
