"""The commands predict and inspect, with a model that computes nothing."""

import contextlib
import types

import pytest

import headwater
from confluence import (
    assembly,
    cli,
    config,
    drawing,
    evaluation,
    intervals,
    prediction,
    ranking,
    time_range,
)

NAME = "demo-shop/churn"


@pytest.fixture(scope="module")
def store(demo_store):
    return headwater.Store(demo_store)


@pytest.fixture
def asked(store, monkeypatch):
    """A run of the demo shop; returns what is asked of it, and what it warns of."""
    found = types.SimpleNamespace(opened=[], predicted=[], warnings={}, cleared=[])
    (task,) = evaluation.find_tasks([NAME], [store])
    parts = types.SimpleNamespace(
        stores=[store],
        task=lambda name: {"churn": task}[name],
        status=types.SimpleNamespace(show=lambda _: None, end=lambda: found.cleared.append(1)),
    )

    @contextlib.contextmanager
    def open_run(*of, needs_task):
        found.opened.append((*of, needs_task))
        yield parts, [types.SimpleNamespace(params=f"model {step}", step=step) for step in (1, 2)]

    def of_run(folder, steps, task):
        found.intervals = (folder, steps)
        own = types.SimpleNamespace(warning=found.warnings.get("intervals"), task=task)
        own.ends = lambda values: ([float("nan")] * len(values),) * 2
        return own

    def predict_values(given, models, own, seeds):
        assert (given, models, own) == (parts, ["model 1", "model 2"], task)
        found.predicted += seeds
        return [0.25] * len(seeds), [0.5] * len(seeds)

    def predict_visible(given, models, own, at, top):
        assert (given, models, own) == (parts, ["model 1", "model 2"], task)
        found.predicted.append((at, top))
        keys = {3: "17", 5: None}
        return types.SimpleNamespace(
            anchor=types.SimpleNamespace(key=keys.get),
            ranked=([3, 5], [0.75, 0.5], [0.0, 0.125]),
            warning=found.warnings.get("ranking"),
        )

    def times_warning(given, own, times):
        assert (given, own) == (parts, task)
        found.times = times
        return found.warnings.get("times")

    monkeypatch.setattr(assembly, "open_run", open_run)
    monkeypatch.setattr(intervals, "of_run", of_run)
    monkeypatch.setattr(prediction, "predict_values", predict_values)
    monkeypatch.setattr(ranking, "predict_visible", predict_visible)
    monkeypatch.setattr(time_range, "warning", times_warning)
    return found


@pytest.fixture
def predict(asked, tmp_path, capsys):
    def run(*arguments, seeds=None):
        more = [str(of) for of in arguments]
        if seeds is not None:
            lines = "".join(f"{key},{at}\n" for key, at in seeds)
            (tmp_path / "seeds.csv").write_text("key,at\n" + lines)
            more += ["--seeds", str(tmp_path / "seeds.csv")]
        status = cli.main(["predict", "run", "--task", "churn", *more])
        return status, *capsys.readouterr()

    return run


HEADER = "key,obs_time,prediction,null_probability\n"
AT = "2022-01-01"


def test_seeds_of_a_file_are_predicted_in_their_order(predict, asked):
    found = predict("--checkpoint", "latest", "--store", "there", seeds=[("7", AT), ("3", AT)])
    lines = f"{HEADER}7,{AT},0.250000,0.5\n3,{AT},0.250000,0.5\n"
    assert found == (0, lines, "")
    assert [(str(of[0]), *of[1:]) for of in asked.opened] == [("run", "latest", ["there"], True)]
    assert (str(asked.intervals[0]), asked.intervals[1]) == ("run", [1, 2])
    assert asked.times == [AT, AT]
    # Before the first line of the output.
    assert asked.cleared


def test_predictions_for_a_full_disk_leave_no_file(predict, full_disk):
    out = full_disk / "p.csv"
    status, _, errors = predict("--out", out, seeds=[("7", AT)])
    assert (status, out.exists()) == (1, False)
    assert errors.startswith(f"confluence: writing {out}: no space left on the device; nothing")


def test_seeds_that_have_no_prediction_are_listed(predict):
    known = [("7", AT), ("3", AT)]
    unknown = [(f"x{number}", AT) for number in range(11)]
    early = [("7", "1999-01-01")]
    status, output, errors = predict(seeds=[*known, *early, *unknown])
    assert (status, output.count("\n")) == (0, 3)
    first, second = errors.splitlines()
    assert first.startswith(
        'confluence: 11 of 14 keys are in no row of table "customers": "x0" (line 5), "x1" (line 6)'
    )
    assert first.endswith(
        '"x9" (line 14), and 1 more; a key looks like "1"; they have no prediction'
    )
    assert '"7" did not exist at 1999-01-01; first seen at ' in second
    assert "(line 4); choose later times; they have no prediction" in second
    # Ten are listed, and no more are counted.
    _, _, errors = predict(seeds=[*known, *unknown[:10]])
    assert '"x9" (line 13); a key looks like' in errors
    status, output, errors = predict(seeds=[*early, *unknown[:1]])
    assert (status, output) == (1, "")
    assert errors.startswith("confluence: no seed has a prediction: 1 of 2 keys are in no row")
    assert predict(seeds=[])[2].endswith(
        "expected at least one seed after the header, found none\n"
    )
    assert "expected an observation time, found none" in predict(seeds=[("7", "")])[2]


def test_warnings_precede_the_predictions(predict, asked):
    asked.warnings.update(times="late", intervals="old", ranking="twice")
    warnings = "confluence: late\nconfluence: old\n"
    assert predict(seeds=[("7", AT)])[2] == warnings
    assert predict("--at", AT)[2] == f"{warnings}confluence: twice\n"


def test_rows_at_a_time_are_predicted_from_the_highest_on(predict, asked, tmp_path):
    lines = f"{HEADER}17,{AT},0.750000,0\n,{AT},0.500000,0.125\n"
    assert predict("--at", AT) == (0, lines, "")
    assert predict("--at", AT, "--top", 1, "--out", tmp_path / "a.csv") == (0, "", "")
    assert (tmp_path / "a.csv").read_text() == lines
    assert asked.predicted == [(AT, None), (AT, 1)]
    assert asked.times == [AT]
    # What is there is not replaced.
    status, _, errors = predict("--at", AT, "--out", tmp_path / "a.csv")
    assert (status, len(asked.predicted)) == (1, 2)
    assert "is there already" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", AT, "--out", "a.parquet"], "expected a CSV file for --out, found a.parquet"),
        (["--at", AT, "--top", 0], "expected at least 1 for --top, found 0"),
        (["--at", "soon"], "expected a time such as 2026-01-01 for --at, found 'soon'"),
    ],
)
def test_options_that_ask_for_nothing_are_refused(arguments, message, predict, asked):
    status, output, errors = predict(*arguments)
    assert (status, output, asked.opened) == (1, "", [])
    assert errors.startswith(f"confluence: {message}")


def test_the_highest_are_of_a_time(predict):
    message = "confluence: expected --at TIME with --top, found none; add it, or leave --top out\n"
    assert predict("--top", 3, seeds=[("7", AT)]) == (1, "", message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", AT], "arguments are required: --task"),
        (["--task", "churn"], "one of the arguments --seeds --at is required"),
        (["--task", "churn", "--at", AT, "--seeds", "x"], "not allowed with argument --at"),
    ],
)
def test_one_question_is_asked_of_one_task(arguments, message, capsys):
    with pytest.raises(SystemExit):
        cli.main(["predict", "run", *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("is_run", [True, False])
def test_inspect_shows_a_context_of_a_configuration_or_a_run(is_run, monkeypatch, tmp_path, capsys):
    class Page:
        text = "the context"

        def __str__(self):
            return self.text

        def __repr__(self):
            return "<page>"

        def save(self, path):
            path.write_text("html")

    drawn = []
    monkeypatch.setattr(drawing, "draw", lambda *of: drawn.append(of) or Page())
    file = tmp_path / "config.toml"
    file.write_text(config.load(None, ["data.stores=here", "data.seed=7"]).to_toml())
    what = ["--task", "churn", "--seed-index", "3", "--set", "data.max_rows=9"]
    command = ["inspect", str(tmp_path if is_run else file), *what]
    assert cli.main(command) == 0
    assert capsys.readouterr().out == "the context\n"
    [(settings, task, number)] = drawn
    assert (settings.data.seed, settings.data.max_rows, task, number) == (7, 9, "churn", 3)
    page = tmp_path / "a page.html"
    assert cli.main([*command, "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"'{page}': <page>; open it in a browser\n"
    assert page.read_text() == "html"
