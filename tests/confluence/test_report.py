"""The report of a run: its page, its curves, and what it reads of the logs."""

import json
import math

import numpy as np

from confluence import report
from confluence.results import Results

SCORES = {"loss": 0.1, "seeds": 3, "mae": 1.0, "baselines": {}}
BINS = {"bins": [{"seeds": 3, "prediction": 0.5, "label": 1.0}]}
HIDDEN = [{"hidden": "orders.customer", "contexts": 0.5, "value": 2.0, "difference": 1.0}]


def logged(folder, records):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(of) + "\n" for of in records))
    return folder


def speed(step, **more):
    return {"step": step, "speed": {"data_wait": 0.25, **more}}


def test_the_seconds_of_a_training_are_those_of_all_its_steps(tmp_path):
    one = [speed(6, step_cpu_seconds=2.0), speed(12, step_cpu_seconds=4.0), {"step": 24}]
    runs = [
        logged(tmp_path / "one", one),
        # An older version recorded none.
        logged(tmp_path / "old", [speed(6)]),
        logged(tmp_path / "other", [speed(10, step_cpu_seconds=1.0)]),
        tmp_path / "none",
    ]
    assert report.training_cpu_seconds(runs) == 24 * 3.0 + 10 * 1.0
    assert report.training_cpu_seconds([runs[1], runs[3]]) is None
    assert report.read_log(tmp_path / "none") == []


def test_early_stops_are_those_of_the_runs_that_have_ended(tmp_path):
    folders = [tmp_path / name for name in ("member-0", "member-1", "member-2")]
    for folder, content in zip(folders, ({"stopped": ["early"]}, {}, None), strict=True):
        folder.mkdir()
        if content is not None:
            (folder / "results.json").write_text(json.dumps(content))
    assert report.early_stops(folders) == ["member-0 early"]
    assert report.early_stops(folders[:2]) == ["member-0 early"]
    assert report.early_stops(folders[:1]) == ["early"]


TASK, POOL = "shop/churn", "shop/pool:orders"
LOG = [
    {"step": 0, "split": "val", "task": TASK, "loss": 0.75},
    {
        "step": 0, "split": "val", "task": POOL, "loss": 0.5,
        "masked": {"loss": 0.5, "cells": 9, "boolean": 0.625},
    },
    {"step": 1, "task": TASK, "loss": 0.5, "gradient_norm": 2.0},
    {"step": 2, "task": POOL, "loss": None, "gradient_norm": None, "masked": {"boolean": 9.0}},
    speed(2),
]  # fmt: skip


def label(line):
    """Returns the name of a curve; Matplotlib names those without one."""
    return "" if line.get_label().startswith("_") else line.get_label()


def drawn(runs):
    """Returns the points of each curve by the title of its panel and its name."""
    figure = report._figure(runs)
    # Two beside each other, and no empty row.
    assert figure.axes[0].get_gridspec().nrows == -(-len(figure.axes) // 2)
    for axes in figure.axes:
        assert axes.get_xlabel() == "step"
        # A curve without a name needs no legend.
        assert (axes.get_legend() is not None) == any(label(line) for line in axes.get_lines())
    return {
        (axes.get_title(), label(line)): list(zip(*line.get_data(), strict=True))
        for axes in figure.axes
        for line in axes.get_lines()
    }, [axes.get_title() for axes in figure.axes]


def test_a_curve_for_each_task_and_number(tmp_path):
    curves, titles = drawn({"": LOG})
    # It has no name but that of the run, which is empty.
    norm, wait = (
        curves.pop(("gradient norm", "")),
        curves.pop(("waiting for data, % of the time", "")),
    )
    assert norm[0] == (1, 2.0)
    assert math.isnan(norm[1][1])
    assert wait == [(2, 25.0)]
    ((step, unknown),) = curves.pop(("loss, train", POOL))
    assert (step, math.isnan(unknown)) == (2, True)
    assert curves == {
        ("loss, train", TASK): [(1, 0.5)],
        ("loss, validation", TASK): [(0, 0.75)],
        ("loss, validation", POOL): [(0, 0.5)],
        ("loss of masked cells, validation", f"{POOL} boolean"): [(0, 0.625)],
    }
    assert len(titles) == 5
    # Without masked cells there is no panel of them.
    _, titles = drawn({"": [LOG[0], LOG[2]]})
    assert len(titles) == 4


def test_the_curves_of_members_have_their_names():
    curves, _ = drawn({"member-0": LOG[:1], "member-1": LOG[:1]})
    assert set(curves) == {("loss, validation", f"member-{number} {TASK}") for number in (0, 1)}


def test_short_curves_have_their_points_marked():
    records = [{**LOG[0], "step": step} for step in range(60)]
    for count, marker in ((49, "."), (50, "None")):
        (line,) = report._figure({"": records[:count]}).axes[1].get_lines()
        assert line.get_marker() == marker


def test_a_long_curve_is_thinned_to_means():
    values = np.arange(1001.0)
    steps, means = report._thinned([(step, float(step)) for step in range(1001)])
    assert len(steps) <= 400
    assert steps[:2] == [2, 5]
    assert steps[-1] == 1000
    assert means[:2] == [values[:3].mean(), values[3:6].mean()]
    assert means[-1] == values[999:].mean()
    assert report._thinned([(step, step) for step in range(400)])[0] == list(range(400))
    assert report._thinned([]) == ([], [])


def page(folder, of_task, logs):
    (folder / "config.toml").write_text('note = "<own>"\n')
    (folder / "metrics.jsonl").touch()
    results = Results(
        20, {TASK: {"leading": "mae", "cpu_seconds": {}, "boosting": "off"} | of_task}
    )
    report.write(folder, results, [TASK, "shop/<b>"], logs)
    return (folder / "report.html").read_text()


def test_the_page_has_metrics_curves_contexts_and_settings(tmp_path):
    folder = logged(tmp_path / "a <run>", LOG)
    found = page(folder, {"test": SCORES}, [folder])
    assert "<h1>a &lt;run&gt;</h1>" in found
    assert f"<td>{TASK}</td>" in found
    assert "note = &quot;&lt;own&gt;&quot;" in found
    assert '<h3>shop/&lt;b&gt;</h3>\n<iframe src="context-1.html"' in found
    assert found.count("<iframe") == 2
    assert found.count("<svg") == 1
    assert "<?xml" not in found
    assert "<!-- loss, validation -->" in found
    # The curves of a run without members have the names of its tasks alone.
    assert f"<!-- {TASK} -->" in found
    assert "Predictions and labels" not in found
    assert "With one relation hidden" not in found
    assert (folder / "curves.png").read_bytes()[1:4] == b"PNG"


def test_the_page_of_members_has_the_curves_of_each_and_what_was_asked_for(tmp_path):
    trained = [logged(tmp_path / f"member-{number}", LOG) for number in range(2)]
    more = {"calibration": BINS, "relations": HIDDEN}
    found = page(tmp_path, {"test": SCORES | more}, trained)
    assert "<h2>Predictions and labels</h2>" in found
    assert "<h2>With one relation hidden</h2>" in found
    for number in range(2):
        assert f"<!-- member-{number} {TASK} -->" in found
