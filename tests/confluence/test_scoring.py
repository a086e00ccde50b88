"""The evaluation of a run: what it asks of its parts, returns, writes and adds to the run."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from confluence import answers, assembly, config, intervals, members, report, scoring
from confluence.evaluation import Task
from confluence.results import Results

TASK = Task("shop/churn", 0, 3, {}, sees_everything=False)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A run whose parts write down what is asked of them."""
    of = SimpleNamespace(
        path=tmp_path / "run", asked={}, written=[], trained=[SimpleNamespace(step=5, params="p5")]
    )
    of.path.mkdir()

    def results(models, splits, *, with_boosting, with_relations, recorded, keep):
        of.asked["results"] = (models, splits, with_boosting, with_relations)
        of.asked["recorded"] = recorded(TASK)
        for split in splits:
            keep(TASK, split, "scores", "intervals")
        return {"shop/churn": {split: {"auroc": 0.5, "relations": [1]} for split in splits}}

    parts = SimpleNamespace(
        settings=SimpleNamespace(run=SimpleNamespace(boosting="boosting")),
        tasks=[TASK],
        results=results,
        masked_results=lambda models, splits: {"masked": (models, splits)},
    )

    @contextlib.contextmanager
    def open_run(path, checkpoint, stores, visible_until, *, needs_task):
        of.asked["open"] = (path, checkpoint, stores, visible_until, needs_task)
        yield parts, of.trained

    def of_split(parts, scores, task, split, found):
        return SimpleNamespace(task=task, split=split, given=(scores, found))

    monkeypatch.setattr(assembly, "open_run", open_run)
    monkeypatch.setattr(intervals, "of_run", lambda path, steps, task: (path, steps, task.name))
    monkeypatch.setattr(members, "folders", lambda path, settings: [path / "a", path / "b"])
    monkeypatch.setattr(report, "training_cpu_seconds", lambda folders: len(folders))
    monkeypatch.setattr(report, "early_stops", lambda folders: [of.name for of in folders])
    monkeypatch.setattr(report, "write", lambda *given: of.written.append(given))
    monkeypatch.setattr(answers, "of_split", of_split)
    monkeypatch.setattr(answers, "by_period", lambda of, by: {by: of.given})
    monkeypatch.setattr(answers, "write", lambda *given: of.written.append(given))
    return of


def test_a_run_is_scored_on_whole_splits(run):
    found = scoring.evaluate(str(run.path), splits=["val", "test"])
    assert run.asked == {
        "open": (run.path, "best", (), None, False),
        "results": (["p5"], ["val", "test"], "boosting", False),
        "recorded": (run.path, [5], "shop/churn"),
    }
    assert (found.step, found.members, found.cpu_seconds) == (5, [], 2)
    assert list(found.tasks["shop/churn"]) == ["val", "test"]
    assert (found.stopped, found.periods) == (["a", "b"], {})
    assert found.masked == {"masked": (["p5"], ["val", "test"])}
    # Nothing is added to a run that has no results yet.
    assert run.written == []
    assert list(run.path.iterdir()) == []


def test_members_are_scored_together(run):
    run.trained.append(SimpleNamespace(step=7, params="p7"))
    found = scoring.evaluate(run.path, relations=True)
    assert (found.step, found.members) == (None, [5, 7])
    assert run.asked["results"] == (["p5", "p7"], ("test",), "boosting", True)
    assert run.asked["open"][-1]


@pytest.mark.parametrize(("out", "by"), [(None, None), ("a.csv", None), (None, "year")])
def test_answers_are_kept_for_a_file_and_for_periods(run, tmp_path, out, by):
    path = out and tmp_path / out
    found = scoring.evaluate(run.path, out=path, by=by, splits=["train", "test"])
    assert run.asked["open"][-1] == bool(out or by)
    wanted = {f"shop/churn, {of}": {by: ("scores", "intervals")} for of in ("train", "test")}
    assert found.periods == (wanted if by else {})
    if out:
        ((written, parts, given),) = run.written
        assert (written, parts.tasks, [of.split for of in given]) == (
            path,
            [TASK],
            ["train", "test"],
        )
    else:
        assert run.written == []


def test_invalid_arguments_are_refused_before_the_run_is_opened(run, tmp_path):
    for options in ({"splits": "test"}, {"by": "yr"}, {"out": tmp_path / "a.txt"}):
        with pytest.raises(config.ConfigError):
            scoring.evaluate(run.path, **options)
    assert run.asked == {}


def test_the_results_of_a_run_get_what_they_lack(run, monkeypatch, capsys):
    path = run.path / "results.json"
    of_task = {"leading": "auroc", "boosting": "off", "cpu_seconds": {}}
    before = Results(5, {"shop/churn": {**of_task, "test": {"auroc": 0.75}}}).to_dict()
    path.write_text(json.dumps(before))
    # The contexts of the run knew of later rows.
    scoring.evaluate(run.path, visible_until="2022-01-01")
    assert run.asked["open"][3] == "2022-01-01"
    assert (json.loads(path.read_text()), run.written) == (before, [])

    def refuse(*given):
        raise PermissionError("read only")

    write = report.write
    monkeypatch.setattr(report, "write", refuse)
    scoring.evaluate(run.path)
    assert json.loads(path.read_text()) == before
    told = f"confluence: the results of {run.path} stay as they are: read only\n"
    assert capsys.readouterr().err == told
    monkeypatch.setattr(report, "write", write)
    scoring.evaluate(run.path)
    after = json.loads(path.read_text())["tasks"]["shop/churn"]["test"]
    assert after == {"auroc": 0.75, "relations": [1]}
    ((folder, results, names, folders),) = run.written
    assert (folder, names, len(folders)) == (run.path, ["shop/churn"], 2)
    assert results.tasks["shop/churn"]["test"] == after
    # Once more there is nothing to add.
    scoring.evaluate(run.path)
    assert len(run.written) == 1
