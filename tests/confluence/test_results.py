"""Results: the model beside baselines and boosting, as a table, a page and JSON."""

import html
import json
import math
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import confluence
from confluence import boosting, calibration, run_folder, tables
from confluence.batch import BOOLEAN
from confluence.results import Results
from runs import confluence_here as command

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def with_boosting(whole, tmp_path):
    """A finished run whose settings ask for boosting."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    settings = (out / "config.toml").read_text()
    assert "boosting = false" in settings
    (out / "config.toml").write_text(settings.replace("boosting = false", "boosting = true"))
    return out


def test_boosting_stands_beside_the_model(with_boosting):
    shown = command("evaluate", with_boosting)
    assert shown.returncode == 0, shown.stderr
    lines = [re.split("  +", line) for line in shown.stdout.splitlines()]
    # The tasks have neither aggregates nor a horizon.
    header = ["task", "metric", "split", "confluence", "95 %", "boosting: row", "baselines"]
    assert lines[1] == header
    found = {(line[0], line[1]): line for line in lines if len(line) >= 4}
    low, high = map(float, found["demo-shop/spend", "mae"][4].split(" to "))
    assert low <= float(found["demo-shop/spend", "mae"][3]) <= high
    assert float(found["demo-shop/spend", "mae"][5]) > 0
    *_, ours, theirs = found["demo-shop/spend", "CPU s"]
    assert float(ours) > float(theirs) > 0


def test_without_scikit_learn_the_results_say_so(with_boosting, monkeypatch):
    monkeypatch.setattr(boosting, "is_installed", lambda: False)
    found = confluence.evaluate(with_boosting)
    of_task = found.tasks["demo-shop/churn"]
    assert (of_task["boosting"], of_task["cpu_seconds"]) == ("not installed", {})
    header, *lines = found.table().splitlines()
    assert "  boosting" in header
    assert "not installed" in lines[0]
    assert "<td>boosting</td><td>not installed</td>" in found._repr_html_()


def test_a_run_ends_with_boosting_and_its_seconds(tiny, tmp_path):
    settings = [*tiny, "data.tasks=['churn']", "run.boosting=true"]
    found = confluence.train(confluence.load(None, settings), tmp_path / "run").results
    written = json.loads((tmp_path / "run/results.json").read_text())
    of_task = written["tasks"]["demo-shop/churn"]
    names = [boosting.ROW]
    assert list(of_task["cpu_seconds"]) == names
    for split in ("val", "test"):
        scores = of_task[split]
        assert set(names) < set(scores["baselines"])
        assert scores["baselines"][boosting.ROW].keys() == scores["baselines"]["mean"].keys()
        assert "bias" in scores
    assert written["cpu_seconds"] > 0
    assert written["remarks"] == found.remarks
    page = (tmp_path / "run/report.html").read_text()
    assert html.escape(boosting.ROW) in page
    for line in found.remarks:
        assert line in found.table()
        assert html.escape(line) in page


def results(ours, **others):
    baselines = {name.replace("_", " "): {"mae": value} for name, value in others.items()}
    scores = {"loss": 0.1, "seeds": 3, "mae": ours, "baselines": baselines}
    task = {"leading": "mae", "boosting": "off", "cpu_seconds": {}, "test": scores}
    return Results(7, {"shop/spend": task})


def test_a_model_that_does_not_beat_the_best_baseline_is_named():
    nan = float("nan")
    assert results(1.0, mean=3.0, last_label=1.5).remarks == []
    assert results(nan, mean=3.0).remarks == []
    assert results(1.0, mean=nan).remarks == []
    for ours in (1.5, 2.0):
        found = results(ours, mean=3.0, last_label=1.5)
        line = (
            "shop/spend: confluence does not beat the best baseline on the test split: mae "
            f"{ours:.4f}, 1.5000 (last label)"
        )
        assert found.remarks == [line]
        assert found.table().splitlines()[-1] == line
        assert f"<p>{line}</p>" in found._repr_html_()


def test_the_table_says_why_boosting_is_missing_unless_it_was_not_asked_for():
    found = results(1.0, mean=3.0)
    assert "boosting" not in found.table()
    found.tasks["shop/spend"]["boosting"] = "no labels in val"
    header, line = (re.split("  +", line) for line in found.table().splitlines())
    assert header[-2:] == ["boosting", "baselines"]
    assert line[-2:] == ["no labels in val", "mean 3.0000"]


def test_a_model_that_is_too_good_to_be_true_sends_to_the_audit():
    def remarks(auroc):
        scores = {"loss": 0.1, "seeds": 3, "auroc": auroc, "baselines": {}}
        of_task = {"leading": "auroc", "boosting": "off", "cpu_seconds": {}, "test": scores}
        return Results(7, {"shop/churn": of_task}).remarks

    assert remarks(0.98) == remarks(float("nan")) == []
    assert remarks(0.998) == [
        "shop/churn: auroc 0.9980 on the test split may be too good: run headwater audit STORE "
        "--task 'churn'"
    ]


def record(auroc, **more):
    """Returns the record of a split with all that may stand beside the metrics."""
    baselines = {
        "mean": {"auroc": 0.5, "bias": 0.0},
        "last label": {"auroc": 0.6, "bias": 0.1},
        boosting.ROW: {"auroc": 0.7, "bias": 0.2},
    }
    bins = calibration.calibration(BOOLEAN, np.array([0.25]), np.ones(1))
    return {
        "loss": 0.3, "seeds": 9, "nulls": 1, "bias": 0.25, "auroc": auroc,
        "interval": (auroc - 0.1, auroc + 0.1), "calibration": bins, "baselines": baselines, **more,
    }  # fmt: skip


def found(**more):
    """Returns the results of a task with boosting and of one without."""
    churn = {
        "leading": "auroc", "boosting": "done", "cpu_seconds": {boosting.ROW: 2.0},
        "val": record(0.8), "test": record(0.9, interval=(math.nan, math.nan)),
    }  # fmt: skip
    spend = {
        "leading": "mae", "boosting": "not installed", "cpu_seconds": {}, "drawn": 7,
        "no_intervals": "too few labels",
        "val": {"loss": math.nan, "seeds": 0, "nulls": 0, "baselines": {}},
        "test": {
            "loss": 1.0, "seeds": 1, "nulls": 0, "mae": 2.0, "r2": 0.99, "members": [3.0, 4.0],
            "coverage": {"level": 0.9, "share": 0.875}, "baselines": {},
        },
    }  # fmt: skip
    tasks = {"shop/churn": churn, "shop/spend": spend}
    return Results(**{"step": 7, "tasks": tasks, "cpu_seconds": 12.25, **more})


REMARKS = [
    "member-0 stopped early",
    "shop/spend: r2 0.9900 on the test split may be too good: run headwater audit STORE --task "
    "'spend'",
    "shop/spend: candidates are ranked among the true ones and 7 drawn; among all rows the figures "
    "would be lower",
    "shop/spend: 90 % intervals hold 87.5 % of the test labels",
    "shop/spend: no intervals: too few labels",
]


def test_the_table_has_each_metric_beside_those_of_the_baselines():
    masks = {"shop/churn": {"val": {"loss": 0.5, "text": 0.25}}}
    of = found(members=[3, 5], stopped=REMARKS[:1], masked=masks)
    lines = [re.split("  +", line) for line in of.table().splitlines()]
    assert lines == [
        ["task", "metric", "split", "confluence", "95 %", "boosting: row", "baselines", "members"],
        ["shop/churn", "auroc", "val", "0.8000", "0.7000 to 0.9000", "0.7000",
         "mean 0.5000, last label 0.6000"],
        ["shop/churn", "bias", "val", "0.2500", "0.2000", "mean 0.0000, last label 0.1000"],
        ["shop/churn", "auroc", "test", "0.9000", "0.7000", "mean 0.5000, last label 0.6000"],
        ["shop/churn", "bias", "test", "0.2500", "0.2000", "mean 0.0000, last label 0.1000"],
        ["shop/churn", "CPU s", "12.2", "2.0"],
        ["shop/spend", "mae", "test", "2.0000", "not installed", "3.0000 4.0000"],
        ["shop/spend", "r2", "test", "0.9900", "not installed"],
        ["masked cells of", "split", "loss", "numerical", "timestamp", "boolean", "categorical",
         "text"],
        ["shop/churn", "val", "0.5000", "-", "-", "-", "-", "0.2500"],
        *([line] for line in REMARKS),
    ]  # fmt: skip
    assert repr(of).startswith("mean of 2 members, steps 3, 5\ntask ")
    alone = found().table().splitlines()
    assert alone[0].endswith("baselines")
    assert repr(found()).startswith("step 7\ntask ")
    unknown = found(cpu_seconds=None).table().splitlines()
    assert re.split("  +", unknown[5]) == ["shop/churn", "CPU s", "-", "2.0"]
    assert Results(7, {}).table() == ""


def test_a_terminal_without_room_gets_a_line_for_each_model():
    of = found(members=[3, 5], stopped=[])
    wide = of.table()
    assert max(map(len, wide.splitlines()[:8])) > 100
    assert of.table(1000) == wide
    lines = of.table(80).splitlines()
    assert lines[: -len(REMARKS[1:])] == [
        "shop/churn, val; 95 % of auroc: 0.7000 to 0.9000",
        "model                     auroc   bias    CPU s",
        "confluence                0.8000  0.2500  12.2",
        "mean                      0.5000  0.0000  -",
        "last label                0.6000  0.1000  -",
        "boosting, the seed's row  0.7000  0.2000  2.0",
        "",
        "shop/churn, test",
        "model                     auroc   bias    CPU s",
        "confluence                0.9000  0.2500  12.2",
        "mean                      0.5000  0.0000  -",
        "last label                0.6000  0.1000  -",
        "boosting, the seed's row  0.7000  0.2000  2.0",
        "",
        "shop/spend, test",
        "model       mae            r2",
        "confluence  2.0000         0.9900",
        "member 0    3.0000         -",
        "member 1    4.0000         -",
        "boosting    not installed",
    ]
    assert lines[-len(REMARKS[1:]) :] == REMARKS[1:]
    assert Results(7, {}).table(80) == ""


def test_the_results_of_all_baselines_fit_into_80_columns():
    names = ["auroc", "ap", "accuracy", "bias"]
    others = [
        "mean", "mean of the entity", "last label", "mean of the last year", boosting.ROW,
        boosting.AGGREGATES, boosting.LABELS,
    ]  # fmt: skip
    scores = dict.fromkeys(names, 123.4567)
    of_test = {**scores, "interval": (0.8, 0.9), "baselines": dict.fromkeys(others, scores)}
    of_task = {
        "leading": "auroc", "boosting": "done", "test": of_test,
        "cpu_seconds": dict.fromkeys(others[4:], 1234.5),
    }  # fmt: skip
    of = Results(7, {"a-rather-long-database/and-a-task": of_task}, cpu_seconds=1234.5)
    lines = of._by_model(80)
    assert max(map(len, lines)) <= 80
    assert max(map(len, of.table().splitlines()[:2])) > 170
    assert of.table(80).startswith("\n".join(lines))


def test_the_page_has_a_row_for_each_model_and_the_tables_of_the_parts():
    periods = {
        "shop/churn, test": {
            "2024": {"seeds": 3, "auroc": 0.875},
            "2025": {"seeds": 4, "auroc": 0.5},
        }
    }
    masks = {"shop/churn": {"val": {"loss": 0.5}}}
    page = found(periods=periods, stopped=REMARKS[:1], masked=masks)._repr_html_()
    rows = [
        re.sub("</?t[dr]>", " ", line).split("  ") for line in page.splitlines() if "<td>" in line
    ]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert rows[:11] == [
        ["shop/churn", "val", "confluence", "loss 0.3000 bias 0.2500 auroc 0.8000", "12.2"],
        ["shop/churn", "val", "mean", "auroc 0.5000 bias 0.0000", "-"],
        ["shop/churn", "val", "last label", "auroc 0.6000 bias 0.1000", "-"],
        ["shop/churn", "val", html.escape(boosting.ROW), "auroc 0.7000 bias 0.2000", "2.0"],
        ["shop/churn", "test", "confluence", "loss 0.3000 bias 0.2500 auroc 0.9000", "12.2"],
        ["shop/churn", "test", "mean", "auroc 0.5000 bias 0.0000", "-"],
        ["shop/churn", "test", "last label", "auroc 0.6000 bias 0.1000", "-"],
        ["shop/churn", "test", html.escape(boosting.ROW), "auroc 0.7000 bias 0.2000", "2.0"],
        ["shop/spend", "val", "confluence", "loss nan", "12.2"],
        ["shop/spend", "val", "boosting", "not installed", "-"],
        ["shop/spend", "test", "confluence", "loss 1.0000 mae 2.0000 r2 0.9900", "12.2"],
    ]
    assert ["shop/spend", "test", "member 1", "mae 4.0000", "-"] in rows
    assert page.startswith(
        "<p>step 7</p>\n" + "".join(f"<p>{html.escape(line)}</p>\n" for line in REMARKS)
    )
    assert "<caption>shop/churn, test</caption><tr><th>period<th>seeds<th>auroc</tr>" in page
    assert "<tr><td>2024<td>3<td>0.875\n<tr><td>2025<td>4<td>0.5\n</table>" in page
    assert "shop/churn, val: predictions and labels" in page
    assert "<pre>masked cells of" in page
    assert "<pre>" not in found()._repr_html_()
    assert "<table>" not in Results(7, {})._repr_html_()


def test_the_records_are_the_metrics_of_each_model_and_nothing_else():
    rows = [tuple(of.values()) for of in found().records]
    assert list(found().records[0]) == ["task", "split", "model", "metric", "value"]
    assert rows[:4] == [
        ("shop/churn", "val", "confluence", "auroc", 0.8),
        ("shop/churn", "val", "confluence", "bias", 0.25),
        ("shop/churn", "val", "mean", "auroc", 0.5),
        ("shop/churn", "val", "mean", "bias", 0.0),
    ]
    assert rows[16:] == [
        ("shop/spend", "test", "confluence", "mae", 2.0),
        ("shop/spend", "test", "confluence", "r2", 0.99),
    ]


def test_results_are_the_same_from_a_file(tmp_path):
    masks = {"shop/churn": {"val": {"loss": math.nan}}}
    of = found(step=None, members=[3, 5], stopped=["early"], masked=masks)
    run_folder.write_json(tmp_path / "results.json", of.to_dict())
    content = json.loads((tmp_path / "results.json").read_text())
    read = Results.from_dict(content)
    assert repr(read) == repr(of)
    assert read._repr_html_() == of._repr_html_()
    # An empty bin has no means.
    bins = read.tasks["shop/churn"]["val"]["calibration"]["bins"]
    assert bins[0]["label"] is None
    del content["masked"]
    assert Results.from_dict(content).masked == {}


def test_a_later_evaluation_adds_what_the_results_lack_and_replaces_the_relations():
    def more(of_test, step=7, members=()):
        tasks = {"shop/churn": {"test": of_test}, "shop/other": {"test": {"relations": [1]}}}
        return found().with_more(Results(step, tasks, members=members))

    assert more({"auroc": 0.1}) is None
    assert more({"coverage": 1}, step=8) is None
    assert more({"coverage": 1}, members=[7]) is None
    wanted = found().tasks["shop/churn"]["test"]
    for name in ("coverage", "prediction_intervals", "relations"):
        of = more({name: 1, "auroc": 0.1})
        assert of.tasks["shop/churn"]["test"] == {**wanted, name: 1}
        assert (of.step, list(of.tasks)) == (7, ["shop/churn", "shop/spend"])
        again = of.with_more(Results(7, {"shop/churn": {"test": {name: 2}}}))
        assert (again is not None) == (name == "relations")
    assert more({}) is None


def test_columns_without_room_follow_below_beside_the_first():
    rows = [("model", "auroc", "ap"), ("mean", "0.5000"), ("ours", "0.7000", "0.25")]
    whole = ["model  auroc   ap", "mean   0.5000", "ours   0.7000  0.25"]
    below = ["model  auroc", "mean   0.5000", "ours   0.7000", "model  ap", "mean", "ours   0.25"]
    assert tables.fitted(rows, 19) == tables.aligned(rows) == whole
    for width in (18, 13, 1):
        assert tables.fitted(rows, width) == below


def test_only_a_terminal_has_a_width(monkeypatch):
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((77, 24)))
    for is_terminal, width in ((True, 77), (False, None)):
        monkeypatch.setattr(tables.sys, "stdout", SimpleNamespace(isatty=lambda of=is_terminal: of))
        assert tables.terminal_width() == width


def test_a_table_of_a_page_shows_any_text_as_it_is():
    assert tables.titled_html("a < b", [["x & y"], ["<1>"]]) == (
        "<p>a &lt; b</p>\n<table><tr><th>x &amp; y</tr>\n<tr><td>&lt;1&gt;</td></tr>\n</table>"
    )
