"""What the functions that the package exports hand on: settings, stores, keys and times."""

import contextlib
import dataclasses
import types
import warnings

import pytest

import headwater
from confluence import api, config, evaluation
from confluence.api import Processes
from confluence.config import ConfigError
from confluence.draft import MINUTES
from confluence.prediction import Seed

SETTINGS = config.load(None, ["data.stores=here"])


@pytest.fixture
def trained(monkeypatch):
    """What is trained, by a training that leaves a folder alone."""
    calls = []

    def train(settings, out, processes, **more):
        out.mkdir(exist_ok=True)
        (out / "config.toml").write_text(settings.to_toml())
        calls.append((settings, processes, more))

    monkeypatch.setattr(api.training, "train", train)
    return calls


def test_train_takes_a_configuration_or_its_file(trained, tmp_path):
    (tmp_path / "my.toml").write_text(SETTINGS.to_toml())
    for what in (SETTINGS, tmp_path / "my.toml"):
        found = api.train(what, tmp_path / "run", profile=(3, 4))
        assert found.path == tmp_path / "run"
    more = {"resume": False, "profile": (3, 4)}
    assert trained == 2 * [(SETTINGS, Processes(), more)]
    trained.clear()
    ours = Processes(2, 1, "x:1")
    api.train(SETTINGS, tmp_path / "run", processes=ours, resume=True)
    assert trained == [(SETTINGS, ours, {"resume": True, "profile": None})]


def test_a_start_from_another_run_is_recorded_unless_a_run_resumes(trained, tmp_path):
    recorded = dataclasses.replace(
        SETTINGS.optimizer, start_from="old", start_digest="abc", start_step=5
    )
    settings = dataclasses.replace(SETTINGS, optimizer=recorded)
    api.train(settings, tmp_path / "run")
    for resume in (False, True):
        api.train(settings, tmp_path / "run", start_from=tmp_path, resume=resume)
    found = [of[0].optimizer for of in trained]
    assert [(of.start_from, of.start_digest, of.start_step) for of in found] == [
        ("old", "abc", 5), (str(tmp_path), "", 0), (str(tmp_path), "abc", 5)
    ]  # fmt: skip


@pytest.fixture
def drafted(monkeypatch):
    """A draft of a store; returns it, and what it was asked for."""
    asked = []
    found = api.Draft.__new__(api.Draft)
    object.__setattr__(found, "config", SETTINGS)
    object.__setattr__(found, "too_short", "")

    def init(*of):
        asked.append(of)
        return found

    monkeypatch.setattr(api, "init", init)
    return found, asked


def test_train_drafts_for_a_store(trained, drafted, tmp_path):
    found, asked = drafted
    store = tmp_path / "shop.db"
    store.mkdir()
    # A task or minutes tell that it is one, and so does its content.
    api.train(store, tmp_path / "1", tasks="churn")
    api.train(store, tmp_path / "2", minutes=0.5)
    (store / "metadata.json").touch()
    api.train(store, tmp_path / "3")
    assert asked == [(store, "churn", MINUTES), (store, (), 0.5), (store, (), MINUTES)]
    api.train(found, tmp_path / "4")
    assert [of[0] for of in trained] == 4 * [SETTINGS]
    with pytest.raises(ConfigError, match="already holds a run"):
        api.train(store, tmp_path / "3")
    with pytest.raises(ConfigError, match=r"found a store, .* use confluence.open\('.*5'\).resume"):
        api.train(store, tmp_path / "5", resume=True)
    with pytest.raises(ConfigError, match="for 2 processes, found a store"):
        api.train(store, tmp_path / "5", processes=Processes(2, 1, "x:1"))
    object.__setattr__(found, "too_short", "too few minutes")
    with pytest.raises(ConfigError, match="too few minutes"):
        api.train(store, tmp_path / "5")


@pytest.mark.parametrize(
    ("options", "name"), [({"tasks": "churn"}, "tasks"), ({"minutes": 0}, "minutes")]
)
def test_a_configuration_has_its_own_tasks_and_minutes(options, name, trained, tmp_path):
    message = (
        f"expected a store with {name}, found a configuration, which has its own; leave {name}"
    )
    with pytest.raises(ConfigError, match=message):
        api.train(SETTINGS, tmp_path / "run", **options)
    assert trained == []


def test_baselines_are_compared_on_one_task_of_a_store(demo_store, monkeypatch):
    asked = []
    monkeypatch.setattr(api.baselines, "compare", lambda *of: asked.append(of) or "found")
    store = headwater.Store(demo_store)
    assert api.compare_baselines(store, "churn") == "found"
    assert api.compare_baselines(demo_store, "churn", visible_until="2021-01-01") == "found"
    for (settings, stores, task), until in zip(asked, ("", "2021-01-01"), strict=True):
        assert settings.data.stores == (str(demo_store),)
        assert (settings.data.tasks, settings.data.visible_until) == (("churn",), until)
        assert (stores[0].root, task.name) == (store.root, "demo-shop/churn")
    with pytest.raises(ConfigError, match="for visible_until, found the integer 2010"):
        api.compare_baselines(demo_store, "churn", visible_until=2010)


@pytest.fixture
def opened(demo_store, monkeypatch):
    """A run of the demo shop, which predicts nothing; returns what is asked of it."""
    found = types.SimpleNamespace(opened=[], predicted=[], ends=None, times=None)
    store = headwater.Store(demo_store)
    (task,) = evaluation.find_tasks(["demo-shop/churn"], [store])
    found.parts = types.SimpleNamespace(stores=[store], task=lambda name: {"churn": task}[name])

    @contextlib.contextmanager
    def open_run(*of, needs_task):
        found.opened.append((*of, needs_task))
        yield found.parts, [types.SimpleNamespace(params=f"model {n}", step=n) for n in (1, 2)]

    def predict_seeds(*of):
        found.predicted.append(of)
        return "predictions"

    def times_warning(*of):
        assert of[:2] == (found.parts, task)
        return found.times

    def of_run(*of):
        assert of[1:] == ([1, 2], task)
        return types.SimpleNamespace(warning=found.ends, folder=str(of[0]))

    monkeypatch.setattr(api.assembly, "open_run", open_run)
    monkeypatch.setattr(api.prediction, "predict_seeds", predict_seeds)
    monkeypatch.setattr(api.time_range, "warning", times_warning)
    monkeypatch.setattr(api.intervals, "of_run", of_run)
    return found


AT = "2022-01-01"


def test_predict_asks_for_keys_of_one_or_more_parts(opened, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = api.predict(tmp_path, "churn", [("7", AT), (("3",), AT)], stores=["there"])
    assert found == "predictions"
    assert opened.opened == [(tmp_path, "best", ["there"], True)]
    [(parts, models, ends, seeds)] = opened.predicted
    assert (parts, models, ends.folder) == (opened.parts, ["model 1", "model 2"], str(tmp_path))
    assert seeds == [Seed(("7",), AT), Seed(("3",), AT)]


def test_predict_warns_its_caller(opened, tmp_path):
    opened.times, opened.ends = "late", "old"
    with pytest.warns(UserWarning, match="late|old") as told:
        api.predict(tmp_path, "churn", [("7", AT)])
    assert [str(of.message) for of in told] == ["late", "old"]
    # The line of the call, not one in the package.
    assert {of.filename for of in told} == {__file__}


def test_predict_refuses_invalid_questions(opened, tmp_path):
    for time, message in ((None, "expected an observation time"), ("1999-01-01", "did not exist")):
        with pytest.raises(ConfigError, match=message):
            api.predict(tmp_path, "churn", [("7", time)])
    assert opened.predicted == []
