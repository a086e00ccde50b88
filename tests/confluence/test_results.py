"""Results: the model beside baselines and boosting, as a table, a page and JSON."""

import html
import json
import re
import shutil

import pytest

import confluence
from confluence import boosting
from confluence.results import Results
from runs import confluence as command

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


def test_a_wide_table_of_scores_goes_on_in_lines_below():
    names = ["mean", "median", "mean of the entity", "last label", "mean of the last year"]
    found = results(1.0, **{name.replace(" ", "_"): 3.0 for name in names})
    (header, line) = found.table().splitlines()
    assert len(line) > 120
    wide = found.table(100).splitlines()
    assert max(map(len, wide)) <= 100
    at = header.index("baselines")
    assert wide[0] == header
    assert all(not line[:at].strip() for line in wide[2:])
    assert " ".join(line[at:] for line in wide[1:]) == line[at:]
    assert found.table(1000) == found.table()


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
