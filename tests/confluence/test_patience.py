"""Patience: a run ends when the validation loss gets no better; a resumed one at the same step."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confluence import config
from confluence.patience import Validation
from runs import records, results, run, start_run, wait_for_step

LOSSES = st.lists(st.one_of(st.none(), st.integers(0, 4).map(float)), max_size=12)


@given(LOSSES, st.integers(1, 4))
def test_a_run_is_over_after_as_many_evaluations_without_a_better_loss(losses, patience):
    found = Validation()
    for step, loss in enumerate(losses, start=1):
        found = found.after(step, loss)
        known = [(of, at) for at, of in enumerate(losses[:step], start=1) if of is not None]
        best_loss, best_step = min(known, default=(None, 0))
        assert (found.best_loss, found.best_step) == (best_loss, best_step)
        assert found.waited == step - best_step
        assert found.is_over(patience) == (step - best_step >= patience)
        assert not found.is_over(0)


def test_patience_needs_evaluations():
    with pytest.raises(config.ConfigError, match="at least 1 for run.evaluate_every with optim"):
        config.load(None, ["optimizer.patience=2", "run.evaluate_every=0"])
    with pytest.raises(config.ConfigError, match="at least 0 for optimizer.patience, found -1"):
        config.load(None, ["optimizer.patience=-1"])


@pytest.fixture(scope="module")
def impatient(tiny):
    """Settings of a run whose loss soon gets worse: its rates are far too high."""
    return [
        *tiny, "model.layers=2", "data.tasks=['churn']", "optimizer.adam_rate=1.0",
        "optimizer.muon_rate=1.0", "optimizer.mean_share=0.0", "optimizer.patience=3",
        "run.evaluate_every=2",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def stopped(impatient, tmp_path_factory):
    out = tmp_path_factory.mktemp("stopped") / "run"
    finished = run(impatient, out)
    assert finished.returncode == 0, finished.stderr
    (line,) = results(out)["stopped"]
    assert finished.stdout.splitlines().count(line) == 1
    assert line in (out / "report.html").read_text()
    return out


def test_a_run_stops_at_the_step_that_its_losses_tell(stopped):
    losses = {r["step"]: r["loss"] for r in records(stopped) if "split" in r and r["step"]}
    last = max(losses)
    best = min(losses, key=losses.get)
    assert 6 <= last < 24
    assert last == best + 3 * 2
    # At no earlier evaluation was it over.
    for until in itertools.takewhile(lambda step: step < last, sorted(losses)):
        before = {step: loss for step, loss in losses.items() if step <= until}
        assert until < min(before, key=before.get) + 3 * 2
    assert max(r["step"] for r in records(stopped)) == last
    assert results(stopped)["step"] == best
    assert results(stopped)["stopped"] == [
        f"stopped early after step {last}: no better validation loss since step {best}"
    ]
    assert results(stopped)["remarks"][0] == results(stopped)["stopped"][0]


def test_p2_a_killed_run_stops_at_the_same_step(stopped, impatient, tmp_path):
    out = tmp_path / "run"
    last = max(r["step"] for r in records(stopped))
    # Between the best evaluation and the last one.
    process = start_run(impatient, out)
    wait_for_step(process, out, last - 2)
    process.kill()
    process.communicate()
    assert not (out / "results.json").exists()
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert records(out) == records(stopped)
    assert results(out) == results(stopped)


def test_resuming_a_stopped_run_only_writes_its_results_again(stopped):
    log, before = (stopped / "metrics.jsonl").read_text(), results(stopped)
    steps = {path.name for path in (stopped / "checkpoints").iterdir()}
    (stopped / "results.json").unlink()
    finished = run([], stopped, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert (stopped / "metrics.jsonl").read_text() == log
    assert {path.name for path in (stopped / "checkpoints").iterdir()} == steps
    assert results(stopped) == before
    assert json.loads(log.splitlines()[-1])["step"] == int(np.max([int(s) for s in steps]))
