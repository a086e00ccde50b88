"""A run as an object: what it reads of its folder, and what it hands on."""

import contextlib
import json
import math
import os
import types

import pytest

from confluence import config, run
from confluence.checkpoint import CheckpointError
from confluence.parallel import Processes
from confluence.results import Results
from confluence.run import Run

SETTINGS = ["data.stores=here", "optimizer.steps=24"]
RECORDS = [
    {"step": 0, "split": "val", "task": "shop/churn", "loss": 0.5},
    {"step": 1, "task": "shop/churn", "loss": None, "gradient_norm": 1.0},
    {"step": 1, "speed": {"data_wait": 0.1}},
]
SCORES = {"loss": 0.1, "seeds": 3, "mae": 1.0, "baselines": {"mean": {"mae": 2.0}}}
OF_TASK = {"leading": "mae", "boosting": "off", "cpu_seconds": {}, "test": SCORES}


def write(folder, records=RECORDS, more=()):
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(config.load(None, [*SETTINGS, *more]).to_toml())
    (folder / "metrics.jsonl").write_text("".join(json.dumps(of) + "\n" for of in records))
    return Run(folder)


@pytest.fixture
def found(tmp_path):
    return write(tmp_path)


def test_a_run_that_has_not_ended_has_a_history_and_no_metrics(found, tmp_path):
    assert (found.results, found.metrics) == (None, [])
    val, train = found.history
    expected = {"member": 0, "step": 0, "task": "shop/churn", "split": "val", "loss": 0.5}
    assert val == expected
    assert train | {"loss": 0} == expected | {"step": 1, "split": "train", "loss": 0}
    assert math.isnan(train["loss"])
    assert repr(found) == f"<run {tmp_path}: not finished, step 1 of 24>"
    assert found._repr_html_() == (
        f"<p><b>{tmp_path}</b>: not finished, step 1 of 24; continue with "
        "<code>run.resume()</code></p>"
    )
    assert "step 0 of 24" in repr(write(tmp_path, []))


def test_a_finished_run_has_metrics_and_a_report(tmp_path):
    folder = tmp_path / 'a "run"'
    found = write(folder)
    (folder / "results.json").write_text(json.dumps(Results(20, {"shop/spend": OF_TASK}).to_dict()))
    assert found.results.step == 20
    rows = [(of["model"], of["value"]) for of in found.metrics if of["metric"] == "mae"]
    assert rows == [("confluence", 1.0), ("mean", 2.0)]
    assert found.report == folder / "report.html"
    assert os.fspath(found) == str(folder)
    assert repr(found) == f"<run {folder}: finished>\n{found.results}"
    assert 'run&quot;/report.html">report</a></p>\n' in found._repr_html_()
    assert found._repr_html_().endswith(found.results._repr_html_())


def test_the_history_of_members_is_that_of_each(tmp_path):
    found = write(tmp_path, more=["run.members=2"])
    for number in range(2):
        write(tmp_path / f"member-{number}", RECORDS[: 1 + number])
    assert [of["member"] for of in found.history] == [0, 1, 1]


def test_a_folder_without_a_run_is_no_run(tmp_path):
    with pytest.raises(CheckpointError, match="found no config.toml in"):
        Run(tmp_path)


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ([], ["demo-shop/churn", "demo-shop/spend", "demo-shop/products.material"]),
        (["data.tasks=['spend', 'demo-shop/churn']"], ["demo-shop/churn", "demo-shop/spend"]),
        (["data.tasks=[]", "data.pools={ orders = '' }", "data.mask_share=0.2"], []),
    ],
)
def test_a_run_names_its_tasks_with_their_database(settings, tasks, demo_store, tmp_path):
    found = write(tmp_path, more=[f"data.stores={demo_store}", *settings]).tasks
    assert set(tasks) <= set(found)
    assert tasks == found or not settings


@pytest.fixture
def asked(monkeypatch):
    """What a run hands on: names and arguments."""
    calls = []

    def noted(name):
        return lambda *of, **more: calls.append((name, of, more)) or name

    monkeypatch.setattr(run.training, "train", noted("train"))
    monkeypatch.setattr(run.scoring, "evaluate", noted("evaluate"))
    monkeypatch.setattr(run.drawing, "draw", noted("draw"))
    monkeypatch.setattr(run.intervals, "of_run", noted("intervals"))
    monkeypatch.setattr(run.frames, "predict", noted("predict"))
    return calls


def test_a_run_goes_on_is_scored_and_is_drawn_with_its_own_settings(found, asked):
    assert found.resume() is found
    assert asked.pop() == ("train", (found.config, found.path, Processes()), {"resume": True})
    assert found.evaluate(["val"], stores=["there"]) == "evaluate"
    defaults = {"visible_until": None, "out": None, "by": None, "relations": False}
    more = {"splits": ["val"], "checkpoint": "best", "stores": ["there"]} | defaults
    assert asked.pop() == ("evaluate", (found.path,), more)
    assert found.draw("churn", 3) == "draw"
    assert asked.pop() == ("draw", (found.config, "churn", 3), {})


@pytest.fixture
def opened(monkeypatch):
    """Opens a run of tasks; returns what it was opened with."""
    with_tasks, asked = [], []

    @contextlib.contextmanager
    def open_run(*of, needs_task):
        asked.append((*of, needs_task))
        parts = types.SimpleNamespace(
            tasks=[types.SimpleNamespace(name=name) for name in with_tasks],
            task=lambda name: f"task {name}",
        )
        yield parts, [types.SimpleNamespace(params=f"params {n}", step=n) for n in range(2)]

    monkeypatch.setattr(run.assembly, "open_run", open_run)
    return with_tasks, asked


def test_a_run_of_one_task_predicts_it(found, asked, opened):
    tasks, with_which = opened
    tasks.append("shop/churn")
    assert found.predict("frame", key="id", at="2022") == "predict"
    assert with_which == [(found.path, "best", (), True)]
    (_, of_intervals, _), (_, (parts, params, intervals, frame, wanted), _) = asked
    assert of_intervals == (found.path, [0, 1], parts.tasks[0])
    assert (params, intervals, frame) == (["params 0", "params 1"], "intervals", "frame")
    assert (wanted.key, wanted.time, wanted.at) == (("id",), None, "2022")


def test_a_run_of_several_tasks_asks_for_one(found, asked, opened):
    opened[0].extend(["shop/churn", "shop/spend"])
    with pytest.raises(config.ConfigError, match="set task to one of shop/churn, shop/spend"):
        found.predict("frame", time="when")
    found.predict("frame", "spend", key=["a", "b"], time="when")
    (_, (*_, task), _), (_, (*_, wanted), _) = asked
    assert task == "task spend"
    assert (wanted.key, wanted.time, wanted.at) == (("a", "b"), "when", None)
