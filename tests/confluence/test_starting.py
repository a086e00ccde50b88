"""Runs that start from the parameters of another run."""

import shutil

import pytest

import headwater
from confluence import api, cli, config
from confluence.checkpoint import steps_in
from runs import ENDLESS, confluence, records, results, run, sets, start_run, wait_for_step

STEPS = ["--set", "optimizer.steps=12", "--set", "data.tasks=['churn', 'spend']"]


@pytest.fixture(scope="module")
def continuation(whole, tmp_path_factory):
    """The folder of a finished run from the parameters of another one, and what it printed."""
    out = tmp_path_factory.mktemp("continued") / "run"
    finished = confluence("train", "--from", whole, *STEPS, "--out", out)
    assert finished.returncode == 0, finished.stderr
    return out, finished.stderr


@pytest.fixture(scope="module")
def continued(continuation):
    """A finished run from the parameters of another one, with fewer tasks."""
    return continuation[0]


def test_the_loss_before_the_first_step_is_that_of_the_other_run(whole, continued):
    best = results(whole)["step"]
    theirs = {r["task"]: r for r in records(whole) if r["step"] == best and "split" in r}
    ours = {r["task"]: r for r in records(continued) if r["step"] == 0}
    assert set(ours) == {"demo-shop/churn", "demo-shop/spend"}
    for task, record in ours.items():
        assert record == {**theirs[task], "step": 0}
    # Steps, rates and data start anew.
    first = [r for r in records(continued) if r["step"] == 1]
    assert [r["muon_rate"] for r in first] == [0.0]
    settings = config.load(continued / "config.toml")
    assert settings.optimizer.start_from == str(whole)
    assert len(settings.optimizer.start_digest) == 32


def test_a_run_from_another_tells_and_records_the_step(whole, continuation):
    out, errors = continuation
    step = results(whole)["step"]
    assert (
        f"confluence: starting from the parameters of {whole} after step {step}, its best "
        "checkpoint by validation loss\n"
    ) in errors
    assert config.load_run(out).optimizer.start_step == step


def test_a_start_from_a_run_without_evaluations_says_so(tiny, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    process = start_run([*tiny, *ENDLESS, "run.evaluate_every=0"], one)
    wait_for_step(process, one, 5)
    process.kill()
    process.communicate()
    newest = max(steps_in(one / "checkpoints"))
    ended = confluence("train", "--from", one, *sets(["optimizer.steps=1"]), "--out", other)
    assert ended.returncode == 0, ended.stderr
    assert (
        f"after step {newest}, its newest checkpoint, because none has a validation loss\n"
    ) in ended.stderr


def test_a_step_to_start_from_is_no_choice():
    with pytest.raises(config.ConfigError, match=r"expected no optimizer\.start_step, which a run"):
        config.load(None, ["optimizer.start_step=5"])


LIMITED = ["data.visible_until='2022-06-19'", "data.pools={ orders = '' }", "data.mask_share=0.2"]
NO_POOLS = ["data.pools={}", "data.mask_share=0"]


def told(monkeypatch, capsys, *arguments):
    """Returns what `confluence train` prints before it trains."""

    def refuse(*_, **__):
        raise config.ConfigError("the end of the test")

    monkeypatch.setattr(api, "train", refuse)
    assert cli.main(["train", *map(str, arguments)]) == 1
    return capsys.readouterr().err


def test_an_inherited_visible_until_is_told(monkeypatch, capsys, tmp_path):
    cells, out = tmp_path / "cells", tmp_path / "out"
    cells.mkdir()
    text = config.load(None, LIMITED).to_toml()
    (cells / "config.toml").write_text(text)
    advice = (
        f'confluence: advice: data.visible_until = "2022-06-19" is taken over from {cells}: '
        "contexts show nothing later, and val and test seeds are scored as of that time; lift it "
        "with --set data.visible_until=\n"
    )

    def found(*arguments):
        return told(monkeypatch, capsys, "--from", cells, *arguments, "--out", out)

    without = sets(NO_POOLS)
    assert advice in found(*without)
    assert advice in found(*sets(["data.tasks=['churn']"]))
    assert "advice" not in found(*without, *sets(["data.visible_until="]))
    assert "advice" not in found(*without, *sets(["data.visible_until=2022-06-19"]))
    # A run of pools alone has no scores but those of masked cells.
    assert "advice" not in found()
    # What the user's own file says is given.
    (tmp_path / "own.toml").write_text(text)
    assert "advice" not in found("--config", tmp_path / "own.toml", *without)
    (cells / "config.toml").write_text(config.load(None).to_toml())
    assert "advice" not in found()


def test_p2_a_run_from_another_is_killed_and_resumes_unchanged(whole, continued, tmp_path):
    out = tmp_path / "run"
    process = start_run([], out, "--from", whole, *STEPS)
    wait_for_step(process, out, 5)
    process.kill()
    process.communicate()
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert records(out) == records(continued)
    assert results(out) == results(continued)


def test_p2_a_run_killed_before_its_first_checkpoint_starts_from_the_same(continued, tmp_path):
    out = without_checkpoints(continued, tmp_path)
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert "there is no checkpoint yet" in finished.stderr
    assert records(out) == records(continued)


def without_checkpoints(run_folder, tmp_path):
    """Returns a copy of a run as a kill before its first checkpoint leaves it."""
    out = tmp_path / "copy"
    shutil.copytree(run_folder, out)
    shutil.rmtree(out / "checkpoints")
    return out


def test_p6_a_changed_or_vanished_run_is_refused(whole, continued, tmp_path):
    out = without_checkpoints(continued, tmp_path)
    # Another run in its place, here the continued one itself.
    for place, message in (
        (continued, "as when this run started from it, found "),
        (tmp_path / "gone", "found no checkpoints in"),
    ):
        refused = run([], out, "--resume", "--from", place)
        assert refused.returncode == 1
        assert message in refused.stderr
        assert str(place) in refused.stderr
        assert refused.stderr.count("Traceback") == 0
    # With a checkpoint of its own a run no longer needs the other one, but is bound to its digest.
    own = tmp_path / "own"
    shutil.copytree(continued, own)
    settings = (own / "config.toml").read_text()
    (own / "config.toml").write_text(settings.replace(str(whole), "/nowhere"))
    refused = run(["optimizer.start_digest=00"], own, "--resume")
    assert "optimizer.start_digest is '00', the checkpoint has" in refused.stderr
    finished = run([], own, "--resume")
    assert finished.returncode == 0, finished.stderr


def test_another_model_is_refused_field_by_field(whole, tmp_path):
    changed = ["model.width=32", "model.ages=false", "model.attention=structured"]
    refused = confluence("train", "--from", whole, *sets(changed), "--out", tmp_path / "run")
    assert refused.returncode == 1
    assert refused.stderr.endswith(
        "found differences: model.width is 32, that run has 16; model.ages is False, that run has "
        "True; set them as that run has, or start from another run\n"
    )


def test_stores_with_other_embeddings_are_refused(whole, demo_store, tmp_path):
    data = demo_store.parent / "data"
    headwater.prepare(data, data / "schema.toml", tmp_path / "store", dimension=16)
    changed = sets([f"data.stores={tmp_path / 'store'}"])
    refused = confluence("train", "--from", whole, *changed, "--out", tmp_path / "run")
    assert refused.returncode == 1
    assert "embeddings of dimension 16, those of that run have 32" in refused.stderr
