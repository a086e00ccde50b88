"""What surrounds the steps of a training: processes, members, signals, and what settings mean."""

import contextlib
import dataclasses
import json
import os
import signal
import threading
import types

import numpy as np
import pytest

import headwater
from confluence import config, run_folder, training
from confluence.checkpoint import CheckpointError
from confluence.config import ConfigError
from confluence.parallel import Processes
from confluence.rollcall import JoinError
from confluence.step import StepMetrics
from confluence.training import Interrupted, TrainingError

SETTINGS = config.load(None, ["data.stores=here", "optimizer.microbatches=8"])


class Watch:
    """What watches the other processes, and is told how the run ended."""

    def __init__(self):
        self.ended = []

    def close(self, *, has_ended):
        self.ended.append(has_ended)

    @contextlib.contextmanager
    def exit_on_error(self, expected):
        assert expected is Interrupted
        yield


@dataclasses.dataclass(frozen=True)
class Joining(Processes):
    """Processes that have joined."""

    watch: Watch = dataclasses.field(default_factory=Watch)
    joined: list = dataclasses.field(default_factory=list)

    def join(self, timeout_seconds, meeting, folder):
        self.joined.append((timeout_seconds, meeting, folder))
        return self.watch


@pytest.fixture
def events(monkeypatch):
    """What happens of a training that does not train, in order."""
    found = []

    def noted(name, result):
        def note(*of, **more):
            found.append((name, *of, *more.values()))
            return result

        return note

    changed = dataclasses.replace(SETTINGS, model=config.Model(compute="float32"))
    monkeypatch.setattr(training, "_resolved", noted("resolved", changed))
    monkeypatch.setattr(training, "_train", noted("train", "results"))
    monkeypatch.setattr(training, "_run_identity", noted("identity", {"step": 0}))
    monkeypatch.setattr(training.parallel, "warn_of_unlike_processes", noted("warn", None))
    monkeypatch.setattr(training.jax.distributed, "shutdown", noted("shutdown", None))
    return found


def names(events):
    return [of[0] for of in events]


def test_a_process_alone_is_refused_before_it_creates_a_folder(events, tmp_path, monkeypatch):
    def refuse(*_):
        assert not (tmp_path / "run").exists()
        raise ConfigError("no")

    monkeypatch.setattr(training, "_resolved", refuse)
    with pytest.raises(ConfigError):
        training.train(SETTINGS, tmp_path / "run", Processes())
    assert not (tmp_path / "run").exists()


def test_a_process_alone_trains_in_a_new_folder(events, tmp_path):
    out = tmp_path / "run"
    assert training.train(SETTINGS, out, Processes(), profile=(3, 4)) == "results"
    (_, *resolved), (_, changed, *rest) = events
    assert resolved == [SETTINGS, out, False, Processes()]
    assert changed.model.compute == "float32"
    folder, processes, peers, resume, profile = rest
    assert (folder, processes, resume, profile) == (out, Processes(), False, (3, 4))
    assert (peers._rank, peers._timeout) == (0, SETTINGS.run.timeout_seconds)
    assert out.is_dir()
    with pytest.raises(ConfigError, match="expected the folder of a run, found no config.toml"):
        training.train(SETTINGS, out, Processes(), resume=True)


@pytest.mark.parametrize(("microbatches", "warnings"), [(8, ["warn"]), (0, [])])
def test_several_processes_join_before_they_use_jax(
    microbatches, warnings, events, tmp_path, monkeypatch
):
    optimizer = dataclasses.replace(SETTINGS.optimizer, microbatches=microbatches)
    settings = dataclasses.replace(SETTINGS, optimizer=optimizer)
    monkeypatch.setattr(
        training, "_resolved", lambda *of: events.append(("resolved", *of)) or settings
    )
    processes = Joining(2, 1)
    assert training.train(settings, tmp_path / "run", processes) == "results"
    assert names(events) == ["identity", "resolved", *warnings, "train", "shutdown"]
    [(timeout, meeting, folder)] = processes.joined
    assert (timeout, folder) == (settings.run.timeout_seconds, tmp_path / "run")
    assert (meeting.key, meeting.identity) == (os.path.abspath(tmp_path / "run"), {"step": 0})
    assert meeting.differences is training._identity_differences
    assert events[0] == ("identity", settings, tmp_path / "run", False)
    assert processes.watch.ended == [True]


@pytest.mark.parametrize(
    ("error", "has_ended"), [(Interrupted(), True), (TrainingError(), False), (JoinError(), False)]
)
def test_a_run_that_is_interrupted_has_ended_for_all_and_a_failed_one_is_lost(
    error, has_ended, events, tmp_path, monkeypatch
):
    def fail(*_):
        raise error

    monkeypatch.setattr(training, "_train", fail)
    processes = Joining(2, 1)
    with pytest.raises(type(error)):
        training.train(SETTINGS, tmp_path / "run", processes)
    assert processes.watch.ended == [has_ended]
    assert ("shutdown" in names(events)) == has_ended


def test_rank_0_alone_says_that_it_reads_the_store(events, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(
        training.StatusLine, "__init__", lambda _, *, is_leader: said.append(is_leader)
    )
    monkeypatch.setattr(training.StatusLine, "show", lambda _, text: said.append(text))
    for rank in (0, 1):
        training.train(SETTINGS, tmp_path / str(rank), Joining(2, rank))
    assert said == [True, "reading the store", False, "reading the store"]


def test_rank_0_alone_locks_the_folder(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(training, "_train_run", lambda *of: calls.append(("run", of)) or "results")

    @contextlib.contextmanager
    def lock(out):
        calls.append(("lock", out))
        yield

    monkeypatch.setattr(run_folder, "lock_folder", lock)
    for rank, locks in ((0, [("lock", tmp_path)]), (1, [])):
        calls.clear()
        watch, processes = Watch(), Processes(2, rank)
        found = training._train(SETTINGS, tmp_path, processes, watch, True, (3, 4))
        assert found == "results"
        *locked, (_, (settings, out, *rest)) = calls
        assert (locked, settings, out) == (locks, SETTINGS, tmp_path)
        assert rest[:3] == [processes, watch, True]
        assert (rest[3].is_requested, rest[4]) == (False, (3, 4))


def test_a_run_is_assembled_and_trained(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def assemble(settings, processes):
        yield "parts", settings, processes

    class Trainer:
        def __init__(self, parts, out, processes, peers, resume, stop, resources):
            self.given = (parts, out, processes, resume, stop)

        def run(self, profile):
            return (*self.given, profile)

    monkeypatch.setattr(training, "assemble", assemble)
    monkeypatch.setattr(training, "_Trainer", Trainer)
    found = training._train_run(SETTINGS, tmp_path, "both", Watch(), True, "stop", (3, 4))
    assert found == (("parts", SETTINGS, "both"), tmp_path, "both", True, "stop", (3, 4))


MEMBERS = config.load(None, ["data.stores=here", "run.members=3", "optimizer.seed=5"])


def test_members_that_have_not_ended_are_trained_one_after_the_other(tmp_path, monkeypatch, capsys):
    trained = []

    def train_run(settings, out, processes, peers, resume, stop, profile):
        trained.append((settings.optimizer.seed, out.name, resume))
        assert (processes.count, stop, profile) == (2, "stop", None)
        return "of a member"

    averaged = []
    monkeypatch.setattr(training, "_train_run", train_run)
    monkeypatch.setattr(
        training, "_average_members", lambda *of: averaged.append(of[:3]) or "results"
    )
    (tmp_path / "member-0").mkdir()
    own = training.members.settings_of(MEMBERS)
    (tmp_path / "member-0/config.toml").write_text(own[0].to_toml())
    (tmp_path / "member-0/results.json").touch()
    (tmp_path / "member-1/checkpoints/5").mkdir(parents=True)
    for rank in (1, 0):
        processes = Processes(2, rank)
        training._train_members(MEMBERS, tmp_path, processes, Watch(), "stop", None)
        assert (tmp_path / "config.toml").exists() == (rank == 0)
        assert ("training" in capsys.readouterr().err) == (rank == 0)
    assert config.load_run(tmp_path) == MEMBERS
    assert trained == 2 * [(6, "member-1", True), (7, "member-2", False)]
    trained.clear()
    # All of a run of members; its own signal is that of each.
    monkeypatch.setattr(training, "_train_members", lambda *of: trained.append(of[:3]))
    found = training._train(MEMBERS, tmp_path, processes, Watch(), False, None)
    assert found == "results"
    assert trained == averaged == [(MEMBERS, tmp_path, processes)]


def test_members_of_other_settings_are_refused_before_anything_is_written(tmp_path):
    (tmp_path / "member-2").mkdir()
    (tmp_path / "member-2/config.toml").write_text(SETTINGS.to_toml())
    with pytest.raises(CheckpointError, match="holds another run"):
        training._train_members(MEMBERS, tmp_path, Processes(), Watch(), "stop", None)
    assert [path.name for path in tmp_path.iterdir()] == ["member-2"]


class Parts:
    """The parts of a run of members that are scored."""

    def __init__(self, signal_comes=lambda: None):
        self.signal_comes, self.boosting, self.pages = signal_comes, [], []
        self.tasks = [types.SimpleNamespace(name="shop/churn")]
        self.sampler = types.SimpleNamespace(render_context=lambda *of: self.pages.append(of))

    def results(self, models, splits, *, after_batch, with_boosting):
        assert (models, splits) == (["a", "b"], ("val", "test"))
        self.signal_comes()
        after_batch()
        self.boosting.append(with_boosting)
        return {}

    def masked_results(self, models, splits, *, after_batch):
        assert (models, splits) == (["a", "b"], ("val", "test"))
        after_batch()
        return {"shop/churn": {}}


@pytest.fixture
def averaged(monkeypatch, tmp_path):
    """Scores the mean of two members; returns the results and what is written."""

    def average(rank=0, count=1, is_asked_to_stop=False, boosting=True):
        stop, written = training._StopRequest(), []

        def signal_comes():
            stop.is_requested = is_asked_to_stop

        parts = Parts(signal_comes)

        @contextlib.contextmanager
        def open_run(out, choice, *, processes):
            assert (out, choice, processes) == (tmp_path, "best", Processes(count, rank))
            yield parts, [types.SimpleNamespace(params=of, step=ord(of)) for of in "ab"]

        monkeypatch.setattr(training, "open_run", open_run)
        monkeypatch.setattr(training.report, "write", lambda *of: written.append(of))
        run = dataclasses.replace(MEMBERS.run, members=2, boosting=boosting)
        settings = dataclasses.replace(MEMBERS, run=run)
        processes = Processes(count, rank)
        found = training._average_members(settings, tmp_path, processes, Watch(), stop)
        return found, parts, written

    return average


def test_rank_0_writes_the_results_of_the_mean_of_members(averaged, tmp_path):
    folders = [tmp_path / f"member-{number}" for number in range(2)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        speed = {"data_wait": 0.0, "step_cpu_seconds": 2.0}
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 3, "speed": speed}) + "\n")
        (folder / "results.json").write_text(json.dumps({"stopped": ["early"] * number}))
    found, parts, written = averaged()
    assert (found.step, list(found.members), found.cpu_seconds) == (None, [97, 98], 12.0)
    assert (found.tasks, found.masked) == ({}, {"shop/churn": {}})
    assert list(found.stopped) == ["member-1 early"]
    assert (parts.boosting, parts.pages) == (
        [True], [("shop/churn", 0, tmp_path / "context-0.html")]
    )  # fmt: skip
    assert written == [(tmp_path, found, ["shop/churn"], folders)]
    assert json.loads((tmp_path / "results.json").read_text())["members"] == [97, 98]
    assert averaged(boosting=False)[1].boosting == [False]


def test_another_rank_scores_the_members_and_writes_nothing(averaged, tmp_path):
    found, parts, written = averaged(rank=1, count=2, is_asked_to_stop=True)
    assert (found.cpu_seconds, parts.boosting, parts.pages, written) == (None, [False], [], [])
    assert list(tmp_path.iterdir()) == []


def test_a_signal_stops_the_scoring_of_members_in_a_process_alone(averaged, tmp_path):
    with pytest.raises(Interrupted, match="stopped while scoring the members of .*--resume"):
        averaged(is_asked_to_stop=True)


def test_processes_run_the_same_if_data_settings_and_step_are(tmp_path, demo_store):
    settings = config.load(None, [f"data.stores={demo_store}", "run.members=2"])
    assert training._run_identity(settings, tmp_path, True)["step"] == 0
    for path in ("member-0/checkpoints/7", "member-1/checkpoints/5", "checkpoints/9"):
        (tmp_path / path).mkdir(parents=True)
    ours = training._run_identity(settings, tmp_path, True)
    assert ours["step"] == 7
    assert training._run_identity(settings, tmp_path, False)["step"] == 0
    assert ours["config"] == settings.to_dict()
    assert training._identity_differences(ours, ours) == []
    other = config.changed(settings, ["data.seed=7", "run.threads=3"])
    theirs = {"config": other.to_dict(), "stores": ["x"], "step": 3}
    assert training._identity_differences(ours, theirs) == [
        "data.seed is 7, expected 42",
        f"its stores have the roots ['x'], expected {ours['stores']}: all processes need the same "
        "data",
        "it would resume from step 3, expected step 7: all processes need the same folder as --out",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_restores_the_handler_for_the_second(number):
    def ended(*_):
        raise KeyError

    before = signal.signal(number, ended)
    try:
        with training._stop_on_signals() as stop:
            assert not stop.is_requested
            signal.raise_signal(number)
            assert stop.is_requested
            with pytest.raises(KeyError):
                signal.raise_signal(number)
        with training._stop_on_signals():
            pass
        assert signal.getsignal(number) is ended
    finally:
        signal.signal(number, before)


def test_another_thread_receives_no_signals():
    found = []

    def train():
        with training._stop_on_signals() as stop:
            found.append(stop.is_requested)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found == [False]


def test_a_step_is_finite_if_its_loss_and_its_gradient_are():
    def last(step, loss, norm, before=0):
        metrics = StepMetrics(np.float32(loss), np.float32(norm), np.int32(0), np.int32(0))
        return training._last_finite_step(step, metrics, before)

    assert last(50, 1.0, 1.0) == 50
    for loss, norm in ((np.nan, 1.0), (1.0, np.inf)):
        assert last(149, loss, norm, before=50) == 50
        with pytest.raises(TrainingError, match="none in the last 100 steps up to step 150"):
            last(150, loss, norm, before=50)


def resolved(store, out, *more, resume=False, rank=0):
    settings = config.load(None, [f"data.stores={store}", "model.epochs=true", *more])
    return training._resolved(settings, out, resume, Processes(2, rank))


def test_settings_mean_the_same_from_another_folder_and_on_another_device(
    demo_store, tmp_path, monkeypatch
):
    monkeypatch.chdir(demo_store.parent)
    found = resolved(demo_store.name, tmp_path)
    assert found.data.stores == (str(demo_store),)
    assert found.model.compute in ("float32", "bfloat16")
    assert found.optimizer.microbatches == 8
    # A run goes on with its own number, which may be older than the setting.
    (tmp_path / "config.toml").write_text(
        config.changed(found, ["optimizer.microbatches=0"]).to_toml()
    )
    assert resolved(demo_store, tmp_path, resume=True).optimizer.microbatches == 0
    assert resolved(demo_store, tmp_path).optimizer.microbatches == 8
    given = "optimizer.microbatches=4"
    assert resolved(demo_store, tmp_path, given, resume=True).optimizer.microbatches == 4
    assert resolved(demo_store, tmp_path / "none", resume=True).optimizer.microbatches == 8


def test_a_run_on_texts_without_vectors_begins_with_a_note(demo_store, tmp_path, capsys):
    data, silent = demo_store.parent / "data", tmp_path / "silent"
    headwater.prepare(data, data / "schema.toml", silent, dimension=32, text_vectors=False)
    count = headwater.Store(silent).metadata()["embedding"]["text_count"]
    resolved(silent, tmp_path / "run", "data.tasks=churn")
    shown = capsys.readouterr().err
    (note,) = [line for line in shown.splitlines() if "texts" in line]
    assert note == (
        f"confluence: {silent} has no vectors of its {count:,} texts, so the model does not read "
        "them: of a text it sees the column, and whether it is NULL; for their words prepare the "
        "store again, without --no-text-vectors (in Python: text_vectors=True)"
    )
    resolved(silent, tmp_path / "run", "data.tasks=churn", rank=1)
    resolved(silent, tmp_path / "run", "data.tasks=churn", resume=True)
    resolved(demo_store, tmp_path / "run", "data.tasks=churn")
    assert "texts" not in capsys.readouterr().err


def test_rank_0_advises_when_a_run_begins(demo_store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training.masked, "advice", lambda data, stores: [f"of {len(stores)} store"])
    checked, decided = [], []
    monkeypatch.setattr(training.masked, "check_cells", checked.append)

    def resolve(settings, stores, *, is_new, is_leader):
        decided.append((is_new, is_leader, len(stores)))
        return settings

    monkeypatch.setattr(training.epochs, "resolve", resolve)
    resolved(demo_store, tmp_path)
    assert capsys.readouterr().err == "confluence: advice: of 1 store\n"
    resolved(demo_store, tmp_path, rank=1)
    resolved(demo_store, tmp_path, resume=True)
    assert capsys.readouterr().err == ""
    assert len(checked) == 1
    assert decided == [(True, True, 1), (True, False, 1), (False, True, 1)]
