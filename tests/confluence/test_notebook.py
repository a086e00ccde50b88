"""What a notebook uses: runs, predictions beside frames, the bar, the look at a context."""

import dataclasses
import datetime
import os
import signal
import sys
import threading
import types

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import confluence
import headwater
import runs
from confluence import config, draft, speed, status

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*Sharding")


@pytest.fixture(scope="module")
def run(whole):
    return confluence.open(whole)


@pytest.fixture(scope="module")
def known(run):
    """Keys and times in an order of their own, with the predictions of `confluence.predict`."""
    seeds = [(str(key), f"2022-0{1 + key % 3}-01 06:00:00") for key in (40, 3, 17, 3, 88)]
    return seeds, confluence.predict(run, "churn", seeds)


def test_a_run_has_its_metrics_and_its_history(run, whole):
    assert os.fspath(run) == str(whole)
    results = runs.results(whole)
    found = pandas.DataFrame(run.metrics)
    assert list(found.columns) == ["task", "split", "model", "metric", "value"]
    for name, of_task in results["tasks"].items():
        own = found[(found.task == name) & (found.split == "test")]
        leading = own[own.metric == of_task["leading"]].set_index("model").value
        assert leading["confluence"] == of_task["test"][of_task["leading"]]
        assert set(leading.index) == {"confluence", *of_task["test"]["baselines"]}
    history = pandas.DataFrame(run.history)
    steps = history[history.split == "train"]
    assert steps.step.tolist() == list(range(1, 25))
    assert np.isfinite(steps.loss).all()
    assert sorted(set(history[history.split == "val"].step)) == [0, 12, 24]
    assert sorted(run.tasks) == sorted(results["tasks"])


def test_results_read_back_from_the_file_are_shown_as_those_of_the_training(run, whole):
    assert run.results.to_dict()["tasks"] == confluence.open(whole).results.to_dict()["tasks"]
    assert runs.without_seconds(run.results.to_dict()) == runs.results(whole)
    html = run._repr_html_()
    assert f'<a href="{whole}/report.html">report</a>' in html
    assert run.results._repr_html_() in html
    assert "demo-shop/churn" in repr(run)
    found = run.evaluate(["test"], by="year")
    shown = found._repr_html_()
    for name, periods in found.periods.items():
        assert f"<caption>{name}</caption>" in shown
        for period, scores in periods.items():
            assert f"<tr><td>{period}<td>{scores['seeds']:.4g}<td>" in shown
    for name, of_task in found.tasks.items():
        leading = of_task["leading"]
        assert of_task["test"][leading] == run.results.tasks[name]["test"][leading]


def frames(seeds, **more):
    """Returns the seeds as a frame of each library."""
    keys = [int(key) for key, _ in seeds]
    times = [datetime.datetime.fromisoformat(time) for _, time in seeds]
    columns = {"note": [f"n{row}" for row in range(len(seeds))], "id": keys, "obs_time": times}
    columns |= more
    return {
        "pandas": pandas.DataFrame(columns, index=[7, 5, 5, 1, 0]),
        "polars": polars.DataFrame(columns),
        "pyarrow": pyarrow.table(columns),
    }


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_predictions_stand_beside_the_rows_of_a_frame(run, known, library):
    seeds, wanted = known
    frame = frames(seeds)[library]
    found = run.predict(frame, "churn")
    assert type(found) is type(frame)
    names = list(found.columns if library != "pyarrow" else found.column_names)
    assert names == ["note", "id", "obs_time", "prediction", "null_probability"]
    if library == "pandas":
        assert list(found.index) == [7, 5, 5, 1, 0]
        pandas.testing.assert_frame_equal(found[names[:3]], frame)
    values = list(found["prediction"] if library != "pyarrow" else found["prediction"].to_pylist())
    assert [f"{value:.6f}" for value in values] == [of.value for of in wanted]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_unknown_keys_are_told_and_have_no_prediction(run, known, library):
    seeds, wanted = known
    frame = frames(seeds, id=["40", "x17", None, "3", "88"])[library]
    with pytest.warns(UserWarning, match=r"2 of 5 keys are in no row .*: x17 \(row 1\), NULL \(ro"):
        found = run.predict(frame, "churn")
    if library == "pandas":
        values = [None if np.isnan(of) else of for of in found["prediction"]]
    else:
        values = (found["prediction"].to_list if library == "polars" else
                  found["prediction"].to_pylist)()  # fmt: skip
    assert [of is None for of in values] == [False, True, True, False, False]
    assert f"{values[3]:.6f}" == wanted[3].value
    assert f"{values[0]:.6f}" == wanted[0].value


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_rows_that_do_not_exist_yet_are_told_and_have_no_prediction(run, known, library):
    seeds, wanted = known
    early = datetime.datetime(2001, 2, 3, 4)
    times = [datetime.datetime.fromisoformat(time) for _, time in seeds]
    frame = frames(seeds, obs_time=[times[0], early, *times[2:]])[library]
    with pytest.warns(
        UserWarning, match=r'"3" did not exist at 2001-02-03T04.*first seen at.*ow 1'
    ):
        found = run.predict(frame, "churn")
    values = found["prediction"] if library != "pyarrow" else found["prediction"].to_pylist()
    values = [None if of is None or np.isnan(of) else f"{of:.6f}" for of in values]
    assert values == [of.value if at != 1 else None for at, of in enumerate(wanted)]


def test_a_category_is_a_name_and_needs_no_time(run):
    found = run.predict(polars.DataFrame({"id": [5, 6]}), "products.material", at="2022-01-01")
    store = headwater.Store(run.config.data.stores[0])
    materials = set(store.tables["products"].to_polars()["material"])
    assert found["prediction"].dtype == polars.String
    assert set(found["prediction"]) <= materials


def test_the_seeds_of_a_task_are_a_frame_to_predict(run):
    store = headwater.Store(run.config.data.stores[0])
    seeds = store.task("spend").to_pandas().head(9)
    found = run.predict(seeds, "spend")
    wanted = confluence.predict(
        run, "spend", [(key, str(time)) for key, time in zip(seeds.id, seeds.obs_time, strict=True)]
    )
    assert [f"{of:.6g}" for of in found["prediction"]] == [of.value for of in wanted]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"i": [1]}, {"at": "2022-01-01"}, "expected a column 'id' in the frame, found i; .*key="),
        ({"id": [1]}, {}, "expected a column 'obs_time' in the frame, found id; .*time="),
        ({"id": [1], "obs_tim": [1]}, {}, "did you mean 'obs_tim'"),
        ({"id": [1, 2], "obs_time": ["2022-01-01", None]}, {}, "found none in row 1 "),
        ({"id": [1]}, {"at": "soon"}, "expected an observation time, found 'soon'"),
        ({"id": [1]}, {"at": "2022-01-01", "time": "id"}, "expected time or at, found both"),
        ({"id": [1], "prediction": [1]}, {"at": "2022-01-01"}, "without the column 'prediction'"),
        ({"id": [1]}, {"key": ["id", "id"], "at": "2022-01-01"}, "expected 1 columns for key"),
    ],
)
def test_a_frame_that_asks_no_question_is_refused(run, columns, options, message):
    with pytest.raises(config.ConfigError, match=message):
        run.predict(polars.DataFrame(columns), "churn", **options)


def test_predict_names_the_tasks_if_there_are_several(run):
    with pytest.raises(config.ConfigError, match="expected the task to predict.*demo-shop/churn"):
        run.predict(polars.DataFrame({"id": [1]}), at="2022-01-01")
    with pytest.raises(config.ConfigError, match="expected a frame .*found list"):
        run.predict([1], "churn", at="2022-01-01")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: pandas.Series([1]),
            r"found Series of pandas; it is one column: give its frame",
        ),
        (lambda: polars.Series("id", [1]), r"found Series of polars; it is one column"),
        (lambda: pyarrow.chunked_array([[1]]), r"found ChunkedArray of pyarrow; it is one"),
        (lambda: "seeds.csv", r"found str; give the keys as a column of a frame"),
    ],
)
def test_one_column_or_a_path_is_no_frame(run, make, message):
    with pytest.raises(config.ConfigError, match=f"expected a frame .*{message}"):
        run.predict(make(), "churn", at="2022-01-01")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": 2023}, 'for at, found the integer 2023, which is 1970-.*; write .*"2024-01-01"'),
        ({"time": "id"}, "for 'id', found the integer 1, which is 1970-01-01T00:00:00.000001"),
        ({"at": pandas.Series(["2022-01-01"])}, r"one time for all rows for at, found Series"),
        ({"time": pandas.Series(["2022-01-01"])}, "expected the name of a column for time, found"),
        ({"at": "2022-01-01", "key": pandas.Series([1])}, "name of a column for key, found int"),
        ({"at": "2022-01-01", "checkpoint": "lates"}, "for checkpoint, .*did you mean 'latest'"),
        ({"at": "2022-01-01", "task": "chrn"}, "no task is called 'chrn'; did you mean 'churn'"),
    ],
)
def test_arguments_of_another_kind_are_refused(run, options, message):
    with pytest.raises(config.ConfigError, match=message):
        run.predict(pandas.DataFrame({"id": [1]}), **{"task": "churn", **options})


def test_an_integer_after_1980_is_microseconds(run):
    frame = pandas.DataFrame({"id": [1]})
    at = int(np.datetime64("2022-01-01", "us").astype(np.int64))
    found, wanted = (run.predict(frame, "churn", at=of) for of in (at, "2022-01-01"))
    pandas.testing.assert_frame_equal(found, wanted)
    with pytest.raises(config.ConfigError, match="for seed 2, found the integer 2023"):
        confluence.predict(run, "churn", [("1", "2022-01-01"), ("1", 2023)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "yr"}, "'quarter', 'year' for by, found 'yr'; did you mean 'year'"),
        ({"splits": ["tests"]}, "'val', 'test' for splits, found 'tests'; did you mean 'test'"),
        ({"splits": "test"}, r"expected a list of splits, found 'test'; write \['test'\]"),
        ({"visible_until": 2010}, "for visible_until, found the integer 2010"),
        (
            {"checkpoint": "newest"},
            "expected one of 'best', 'latest' for checkpoint, found 'newest",
        ),
    ],
)
def test_a_word_that_evaluate_does_not_know_is_refused(run, options, message):
    with pytest.raises(config.ConfigError, match=message):
        run.evaluate(**options)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(confluence.checkpoint.CheckpointError, match="found no config.toml in"):
        confluence.open(tmp_path)


def test_a_context_is_drawn_with_the_settings_of_the_configuration(run, tiny, whole, tmp_path):
    page = run.draw("churn", 3)
    (tmp_path / "my.toml").write_text(run.config.to_toml())
    store = run.config.data.stores[0]
    with headwater.Sampler(store, num_prefetch=0) as sampler:
        assert sampler.draw("churn", 3).text != page.text
    for what in (whole, tmp_path / "my.toml"):
        arguments = ["inspect", what, "--task", "churn", "--seed-index", 3]
        shown = runs.confluence(*arguments)
        assert shown.stdout.rstrip() == str(page)
        shown = runs.confluence(*arguments, "--html", tmp_path / "page.html")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert (tmp_path / "page.html").read_text() == page.html
    narrow = runs.confluence(*arguments, "--set", "data.max_rows=2")
    assert "2 rows and" in narrow.stdout
    shown = runs.confluence("inspect", whole, "--task", "churns", "--seed-index", 3)
    assert shown.returncode == 1
    assert "Traceback" not in shown.stderr


def test_a_store_or_a_draft_is_trained_as_its_configuration(
    demo_store, tiny_config, tmp_path, monkeypatch
):
    asked = []

    def fixed(store, tasks, minutes):
        asked.append((os.fspath(store), tasks, minutes))
        return found

    measured = speed.Speed(5.0, 5.0, 0.2, 0.05)
    monkeypatch.setattr(speed, "measure", lambda _: measured)
    found = draft.init(headwater.Store(demo_store), "churn", 6)
    assert found.config.data.tasks == ("churn",)
    assert found.config.data.stores == (str(demo_store),)
    assert "<pre># Written by: confluence init" in found._repr_html_()
    assert found.draw("churn", 3).text.startswith("task demo-shop/churn, seed_index 3")
    monkeypatch.setattr(confluence.api, "init", fixed)
    trained = []
    monkeypatch.setattr(
        confluence.api.training, "train",
        lambda settings, out, *_, **__: (
            trained.append(settings), out.mkdir(), (out / "config.toml").write_text("")
        ),
    )  # fmt: skip
    for number, what in enumerate((headwater.Store(demo_store), demo_store)):
        confluence.train(what, tmp_path / str(number), tasks="churn", minutes=3)
    assert asked == [(str(demo_store), "churn", 3)] * 2
    (tmp_path / "my.toml").write_text(found.config.to_toml())
    confluence.train(found, tmp_path / "2")
    confluence.train(tmp_path / "my.toml", tmp_path / "3")
    assert trained == [found.config] * 4
    with pytest.raises(config.ConfigError, match="expected a store with minutes, found a configu"):
        confluence.train(found, tmp_path / "4", minutes=3)
    with pytest.raises(config.ConfigError, match=r"confluence.open\(.*\).resume\(\)"):
        confluence.train(demo_store, tmp_path / "2", tasks="churn", resume=True)
    with pytest.raises(config.ConfigError, match="already holds a run"):
        confluence.train(demo_store, tmp_path / "2", tasks="churn")
    monkeypatch.undo()
    with pytest.raises(config.ConfigError, match="expected a store at .*none, found nothing"):
        confluence.train(tmp_path / "none", tmp_path / "5", tasks="churn")


def test_an_interrupted_run_says_how_to_go_on_and_goes_on(tiny, whole, tmp_path):
    settings = confluence.load(None, tiny)
    out = tmp_path / "run"

    def interrupt():
        process = types.SimpleNamespace(poll=lambda: None)
        runs.wait_for_step(process, out, 5)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(confluence.Interrupted, match=r"continue with .*resume=True"):
        confluence.train(settings, out)
    thread.join()
    stopped = confluence.open(out)
    assert stopped.results is None
    assert stopped.metrics == []
    assert "not finished, step" in repr(stopped)
    assert "run.resume()" in stopped._repr_html_()
    assert stopped.resume() is stopped
    assert runs.records(out) == runs.records(whole)
    assert runs.results(out) == runs.results(whole)


def test_training_in_another_thread_needs_no_signals(tiny, whole, tmp_path):
    found = []
    settings = confluence.load(None, tiny)
    thread = threading.Thread(
        target=lambda: found.append(confluence.train(settings, tmp_path / "run"))
    )
    thread.start()
    thread.join()
    assert runs.without_seconds(found[0].results.to_dict()) == runs.results(whole)


class Shell:
    """The shell of a notebook's kernel, which keeps what each cell displays."""

    kernel = object()

    def __init__(self):
        self.execution_count, self.bars = 1, []

    def display(self, data, *, raw, display_id):
        assert (raw, display_id) == (True, True)
        self.bars.append([data])
        bar = self.bars[-1]
        return types.SimpleNamespace(update=lambda data, *, raw: bar.append(data if raw else {}))


@pytest.fixture
def shell(monkeypatch):
    found = Shell()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: found
    # Matplotlib asks for it when the first figure is drawn.
    ipython.version_info = (9, 0)
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = found.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.setattr(status, "_shown", None)
    return found


def test_a_notebook_has_one_bar_for_a_cell(shell, capsys):
    status.StatusLine().end()
    assert shell.bars == []
    status.StatusLine().show("reading <the> store")
    status.StatusLine().show("step 3/4", 0.75)
    status.StatusLine(is_leader=False).show("hidden")
    shell.execution_count = 2
    with status.emptied_at_end():
        status.StatusLine().show("again")
    first, second = shell.bars
    assert [of["text/plain"] for of in first] == ["reading <the> store", "step 3/4"]
    assert "&lt;the&gt;" in first[0]["text/html"]
    assert 'value="0.7500"' in first[1]["text/html"]
    assert [of["text/plain"] for of in second] == ["again", ""]
    assert capsys.readouterr() == ("", "")


def test_a_shell_on_a_terminal_has_no_bar(shell):
    shell.kernel = None
    status.StatusLine().show("step 3/4", 0.75)
    assert shell.bars == []


def test_training_moves_the_bar(shell, tiny, tmp_path):
    settings = confluence.load(None, tiny)
    run = dataclasses.replace(settings.run, evaluate_every=0, evaluate_batches=1)
    optimizer = dataclasses.replace(settings.optimizer, steps=6, patience=0)
    settings = dataclasses.replace(settings, run=run, optimizer=optimizer)
    confluence.train(settings, tmp_path / "run")
    (bar,) = shell.bars
    assert any('value="1.0000"' in of["text/html"] for of in bar)
    assert any(of["text/plain"].startswith("step ") for of in bar)
    assert bar[-1]["text/plain"] == ""
