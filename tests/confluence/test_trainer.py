"""The course of a run: when it evaluates, saves and ends, with a model that computes nothing."""

import contextlib
import json
import types

import jax.numpy as jnp
import numpy as np
import pytest

from confluence import config, training
from confluence.checkpoint import Restored, StoreIdentity
from confluence.feed import FedBatch
from confluence.parallel import Processes
from confluence.peers import Peers
from confluence.step import State, StepMetrics

SETTINGS = [
    "data.stores=here", "optimizer.steps=6", "run.evaluate_every=3", "run.checkpoint_every=2",
    "run.keep=9", "run.evaluate_batches=5",
]  # fmt: skip
CHURN, SPEND = "shop/churn", "shop/spend"


class Feed:
    """Batches that are their number, from the one after that of the samplers' cursor on."""

    def __init__(self, samplers, transfer, ahead):
        assert (transfer, ahead) == ("transfer", 2)
        self.samplers, self.number = samplers, samplers.number
        samplers.feed = self
        self.is_closed = False

    def next_batch(self):
        self.number += 1
        return FedBatch(self.number, f"cursor {self.number}".encode(), 0, 1, 1, 0.0)

    def close(self):
        self.is_closed = True


class Samplers:
    def __init__(self):
        self.number, self.feed = 0, None

    def resume(self, cursor):
        self.number = int(cursor.split()[1])


class Recorder:
    """Notes the steps that it is told of in the log of events of the parts."""

    def __init__(self, parts, log, feed, skipped):
        assert (feed.is_closed, skipped) == (False, 0)
        self.parts = parts

    def record(self, step, fed, metrics):
        assert fed.batch == step
        self.parts.events.append(step)

    @contextlib.contextmanager
    def paused(self):
        self.parts.events.append("pause")
        yield


class Kept:
    """The checkpoints of a run in memory: what writes them, and what reads them."""

    def __init__(self, found):
        self.found, self.keep, self.is_closed = found, None, False

    def save(self, step, state, cursor, settings, identities, validation, loss=None):
        assert identities == Parts.identities
        self.found[step] = (Restored(step, state, cursor, validation), loss)

    def wait(self):
        pass

    def close(self):
        self.is_closed = True

    @property
    def latest(self):
        return max(self.found, default=None)

    def restore_newest(self, like, settings, identities):
        assert (int(like.step), identities) == (0, Parts.identities)
        return self.found[self.latest][0] if self.found else None

    def restore_chosen(self, choice, like, settings, identities):
        assert (choice, identities) == ("best", Parts.identities)
        losses = {step: loss for step, (_, loss) in self.found.items() if loss is not None}
        return self.found[min(losses, key=losses.get)][0]


class Parts:
    """The parts of a run whose state is the number of its steps."""

    identities = (StoreIdentity("root", "hashing-1"),)
    transfer = "transfer"

    def __init__(self, settings, stop):
        self.settings, self.stop = settings, stop
        self.events, self.rendered, self.scored_results = [], [], []
        # The losses of each evaluation, by task.
        self.losses = {CHURN: [], SPEND: []}
        self.masked_losses = {}
        # The step or the number of the evaluation in which a signal comes.
        self.signal_at = None
        self.samplers = Samplers()
        self.tasks = [types.SimpleNamespace(name=name) for name in (CHURN, SPEND)]
        self.program = types.SimpleNamespace(
            initial=lambda: state(0), abstract_state=lambda: state(0), step=self.step
        )
        self.layout = types.SimpleNamespace(flag_to_devices=lambda flag: flag)
        self.status = types.SimpleNamespace(show=lambda _: None)
        self.sampler = types.SimpleNamespace(render_context=self.render)
        self.evaluations = -1

    @property
    def streams(self):
        return [task.name for task in self.tasks] + list(self.masked_losses)

    def step(self, before, batch, stop):
        number = int(before.step) + 1
        assert batch == number
        if self.signal_at == number:
            self.stop.is_requested = stop = True
        loss = np.float32(1)
        return state(number), StepMetrics(loss, loss, np.int32(0), np.int32(bool(stop)))

    def score(self, models, split, task, *, batch_limit, after_batch):
        assert (split, batch_limit) == ("val", 5)
        if task.name == CHURN:
            self.evaluations += 1
            self.events.append(f"evaluate {int(models[0]['w'][0])}")
        if self.signal_at == f"evaluation {self.evaluations}":
            self.stop.is_requested = True
        after_batch()
        losses = self.losses[task.name]
        if losses is None:
            return [types.SimpleNamespace(seeds=0)]
        loss = losses[self.evaluations] if losses else 1.0
        return [types.SimpleNamespace(seeds=9, record=lambda: {"loss": loss})]

    def score_masked(self, models, split, stream, *, batch_limit, after_batch):
        assert (split, batch_limit) == ("val", 5)
        loss = self.masked_losses.get(stream)
        return {"cells": 0 if loss is None else 4, "loss": loss}

    def results(self, models, splits, *, after_batch, with_boosting):
        after_batch()
        self.scored_results.append((int(models[0]["w"][0]), splits, with_boosting))
        return {}

    def masked_results(self, models, splits, *, after_batch):
        self.scored_results.append((int(models[0]["w"][0]), splits))
        return {}

    def render(self, task, number, path):
        self.rendered.append((task, number, path.name))


def state(number):
    params = {"w": jnp.full(2, float(number))}
    return State(params, {"m": jnp.zeros(1)}, jnp.int32(number), jnp.int32(0), {})


@pytest.fixture
def course(monkeypatch, tmp_path):
    """Trains the run in a folder; returns its parts and its results."""
    written, kept = [], Kept({})

    def opened(folder, keep=9):
        assert (folder, keep) == (tmp_path / "run/checkpoints", 9)
        kept.is_closed = False
        return kept

    monkeypatch.setattr(training, "Writer", opened)
    monkeypatch.setattr(training, "Checkpoints", opened)
    monkeypatch.setattr(training, "Feed", Feed)
    monkeypatch.setattr(training, "StepRecorder", Recorder)
    monkeypatch.setattr(training.report, "write", lambda *of: written.append(of))

    def train(*changes, resume=False, processes=None, change=lambda parts: None):
        stop = training._StopRequest()
        parts = Parts(config.load(None, [*SETTINGS, *changes]), stop)
        change(parts)
        peers = Peers(0, {}, 10)
        out = tmp_path / "run"
        out.mkdir(exist_ok=True)
        parts.report, parts.peers = written, peers
        with contextlib.ExitStack() as resources:
            trainer = training._Trainer(
                parts, out, processes or Processes(), peers, resume, stop, resources
            )
            parts.found = trainer.run(None)
        assert kept.is_closed
        return parts

    train.out, train.kept = tmp_path / "run", kept.found
    return train


def saved(course):
    """Returns the validation losses of the checkpoints, by step."""
    return {step: loss for step, (_, loss) in course.kept.items()}


def logged(out):
    """Returns the losses in the log, by step and task."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {(of["step"], of["task"]): of["loss"] for of in lines if of["split"] == "val"}


def test_a_run_evaluates_saves_and_ends_at_its_steps(course):
    def change(parts):
        parts.losses = {CHURN: [3.0, 1.0, 2.0], SPEND: [5.0, 2.0, 3.0]}

    parts = course(change=change)
    assert parts.events == [
        "evaluate 0", 1, 2, 3, "pause", "evaluate 3", 4, 5, 6, "pause", "evaluate 6"
    ]  # fmt: skip
    # An evaluation before the first step leaves no checkpoint.
    assert saved(course) == {2: None, 3: 1.5, 4: None, 6: 2.5}
    assert logged(course.out) == {
        (0, CHURN): 3.0, (0, SPEND): 5.0, (3, CHURN): 1.0, (3, SPEND): 2.0,
        (6, CHURN): 2.0, (6, SPEND): 3.0,
    }  # fmt: skip
    # The best one is scored.
    assert parts.found.step == 3
    assert parts.found.stopped == []
    both = ("val", "test")
    assert parts.scored_results == [(3, both, True), (3, both)]
    assert parts.rendered == [(CHURN, 0, "context-0.html"), (SPEND, 0, "context-1.html")]
    assert parts.report == [(course.out, parts.found, [CHURN, SPEND], [course.out])]
    assert json.loads((course.out / "results.json").read_text())["step"] == 3
    assert json.loads((course.out / "versions.json").read_text())[0]["after_step"] == 0
    assert parts.samplers.feed.is_closed
    assert parts.peers._steps_begun == 6
    restored, _ = course.kept[6]
    assert (restored.cursor, int(restored.state.step)) == (b"cursor 6", 6)
    assert restored.validation[1:] == (3, 1)


def test_a_run_without_evaluations_has_one_at_its_end(course):
    parts = course("run.evaluate_every=0", "run.boosting=false", "optimizer.steps=5")
    assert parts.events == ["evaluate 0", 1, 2, 3, 4, 5, "pause", "evaluate 5"]
    assert saved(course) == {2: None, 4: None, 5: 1.0}
    assert parts.scored_results[0][2] is False


def interrupted(course, *changes, at, **more):
    def change(parts):
        parts.signal_at = at
        changed.append(parts)

    changed = []
    with pytest.raises(training.Interrupted) as found:
        course(*changes, change=change, **more)
    return changed[0], str(found.value)


def test_a_signal_ends_a_run_after_its_step_and_it_goes_on_from_there(course, capsys):
    parts, message = interrupted(course, at=5)
    assert message == (
        f"stopped after step 5 of 6, whose checkpoint is in {course.out}; continue with --resume "
        "(from Python: resume=True)"
    )
    assert parts.samplers.feed.is_closed
    assert saved(course) == {2: None, 3: 1.0, 4: None, 5: None}
    assert capsys.readouterr().err == ""
    parts = course(resume=True)
    assert capsys.readouterr().err == "confluence: resuming after step 5\n"
    assert parts.events == [6, "pause", "evaluate 6"]
    assert set(logged(course.out)) == {(at, of) for at in (0, 3, 6) for of in (CHURN, SPEND)}
    # The first of equal losses is the best.
    restored, _ = course.kept[6]
    assert restored.validation == (1.0, 3, 1)
    assert course(resume=True).events == []


def test_a_signal_during_an_evaluation_ends_a_process_alone(course, capsys):
    _, message = interrupted(course, at="evaluation 0")
    assert message.startswith(f"stopped during an evaluation; no checkpoint yet in {course.out}; c")
    _, message = interrupted(course, at="evaluation 1")
    assert message.startswith("stopped during an evaluation; the newest checkpoint is of step 2 in")
    # Several agree on it in a step.
    _, message = interrupted(course, at="evaluation 0", processes=Processes(2, 0, "x:1"))
    assert message.startswith("stopped after step 1 of 6")


def test_a_run_without_a_checkpoint_starts_again(course, capsys):
    interrupted(course, at="evaluation 0")
    parts = course(resume=True)
    assert capsys.readouterr().err == (
        "confluence: there is no checkpoint yet; starting at step 0\n"
    )
    assert parts.events[:2] == ["evaluate 0", 1]
    assert len(logged(course.out)) == 6


def test_a_run_ends_early_without_a_better_loss(course):
    def change(parts):
        parts.losses = {CHURN: [9.0, 1.0, 2.0, 0.5], SPEND: None}

    changes = ["optimizer.patience=1", "optimizer.steps=30"]
    parts = course(*changes, change=change)
    assert parts.events[-2:] == ["pause", "evaluate 6"]
    assert set(logged(course.out)) == {(at, CHURN) for at in (0, 3, 6)}
    line = "stopped early after step 6: no better validation loss since step 3"
    assert (parts.found.step, parts.found.stopped) == (3, [line])
    assert course(*changes, resume=True).events == []


def test_a_loss_that_is_not_finite_is_null(course):
    def change(parts):
        parts.losses = {CHURN: [1.0, float("nan"), 2.0], SPEND: []}

    course(change=change)
    assert saved(course) == {2: None, 3: None, 4: None, 6: 1.5}
    assert logged(course.out)[3, CHURN] is None


POOL = "shop/pool:orders"
MASKED = "data.mask_share=0.2"


def test_masked_cells_are_scored_beside_the_tasks(course):
    def change(parts):
        parts.masked_losses = {CHURN: 7.0, SPEND: None, POOL: 5.0}

    course(MASKED, change=change)
    lines = list(map(json.loads, (course.out / "metrics.jsonl").read_text().splitlines()))
    found = {of["task"]: (of["loss"], of.get("masked")) for of in lines if of["step"] == 6}
    assert found == {
        CHURN: (1.0, {"cells": 4, "loss": 7.0}),
        SPEND: (1.0, None),
        POOL: (5.0, {"cells": 4, "loss": 5.0}),
    }
    # The tasks alone say which checkpoint is the best.
    assert saved(course)[6] == 1.0


def test_a_run_of_pools_alone_is_judged_by_its_masked_cells(course):
    def change(parts):
        parts.tasks, parts.masked_losses = [], {POOL: 5.0, "shop/pool:reviews": 3.0}

    course(MASKED, change=change)
    assert saved(course) == {2: None, 3: 4.0, 4: None, 6: 4.0}


def test_another_rank_trains_and_writes_no_file(course, capsys):
    rank_1 = Processes(2, 1, "x:1")
    parts = course("run.sinks=wandb", processes=rank_1)
    assert {path.name for path in course.out.iterdir()} == set()
    assert (parts.rendered, parts.report) == ([], [])
    assert [of[2] for of in parts.scored_results if len(of) == 3] == [False]
    assert parts.found.cpu_seconds is None
    course("run.sinks=wandb", processes=rank_1, resume=True)
    assert capsys.readouterr().err == ""


class TimedRecorder(Recorder):
    """Writes to the log that each step took two seconds."""

    def __init__(self, parts, log, feed, skipped):
        super().__init__(parts, log, feed, skipped)
        self.log = log

    def record(self, step, fed, metrics):
        self.log.write({"step": step, "speed": {"step_cpu_seconds": 2.0}})


def test_rank_0_alone_reads_the_seconds_of_the_steps_in_its_log(course, monkeypatch):
    monkeypatch.setattr(training, "StepRecorder", TimedRecorder)
    assert course().found.cpu_seconds == 12.0
    assert course(processes=Processes(2, 1, "x:1"), resume=True).found.cpu_seconds is None


def test_the_parameters_of_another_run_are_loaded_once(course, monkeypatch):
    loaded = []

    def load(settings, program, embedders):
        assert embedders == ["hashing-1"]
        loaded.append((settings.optimizer.start_from, program.initial is not None))
        return state(0)._replace(params={"w": jnp.full(2, 40.0)})

    monkeypatch.setattr(training.starting, "load", load)
    started = "optimizer.start_from=there"
    parts, _ = interrupted(course, started, at=2)
    assert parts.events[0] == "evaluate 40"
    course(started, resume=True)
    assert loaded == [("there", True)]


def test_rank_0_opens_the_sinks_after_the_step_of_its_checkpoint(course, monkeypatch):
    opened = []
    monkeypatch.setattr(training.sinks, "open_sinks", lambda *of: opened.append(of) or [])
    parts, _ = interrupted(course, at=2)
    course(resume=True)
    assert [(of[1], of[2]) for of in opened] == [(course.out, 0), (course.out, 2)]
    assert opened[0][0] == parts.settings
