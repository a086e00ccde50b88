"""Checkpoints: damaged and foreign ones are passed over, and take no place of good ones."""

import builtins
import errno
import io
import json
import os
import re
import shutil
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from confluence import checkpoint, config
from confluence.checkpoint import CheckpointError, Checkpoints, DamageError, StoreIdentity, Writer
from confluence.patience import Validation
from confluence.step import State
from runs import confluence, errors_of, process_options, records, results, run, start_run

SETTINGS = config.load(None, ["data.stores=here"])
STORES = [StoreIdentity("root", "hashing-1")]


def state(number):
    """Returns a small state that is different for each number."""
    return State(
        {"w": jnp.arange(300.0) + number}, {"m": jnp.full(3, number)}, jnp.int32(number),
        jnp.int32(0), {},
    )  # fmt: skip


def write(folder, losses, keep=2):
    writer = Writer(folder, keep)
    for step, loss in losses.items():
        cursor = f"cursor {step}".encode()
        writer.save(step, state(step), cursor, SETTINGS, STORES, Validation(loss, step), loss)
    writer.wait()
    writer.close()


def check(found, step):
    """Checks that this is what was written after a step."""
    assert (found.step, found.cursor) == (step, f"cursor {step}".encode())
    assert found.validation.best_step == step
    for ours, theirs in zip(
        jax.tree.leaves(found.state), jax.tree.leaves(state(step)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def newest(folder, settings=SETTINGS):
    return Checkpoints(folder).restore_newest(state(0), settings, STORES)


def overwrite_state(step):
    for path in step.glob("state/d/*"):
        path.write_bytes(b"x" * path.stat().st_size)
    for path in step.glob("state/ocdbt.process_0/d/*"):
        path.write_bytes(b"x" * path.stat().st_size)


def other_record(step):
    path = step / "run/metadata"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cursor": "AAAA"}))


def another_state(step):
    shutil.rmtree(step / "state")
    shutil.copytree(step.parent / "10/state", step / "state")


DAMAGE = {
    "a record that is no JSON": lambda step: (step / "run/metadata").write_text("{"),
    "a record that is a list": lambda step: (step / "run/metadata").write_text("[]"),
    "a record of bytes": lambda step: (step / "run/metadata").write_bytes(b"\xff"),
    "a changed record": other_record,
    "no record": lambda step: shutil.rmtree(step / "run"),
    "no state": lambda step: shutil.rmtree(step / "state"),
    "a state of other bytes": overwrite_state,
    "another state": another_state,
    "an empty folder": lambda step: (shutil.rmtree(step), step.mkdir()),
    "a copy of another step": lambda step: (
        shutil.rmtree(step),
        shutil.copytree(step.parent / "10", step),
    ),
}


def told(capfd):
    """Returns the one line of confluence on standard error; the command silences Orbax's."""
    lines = capfd.readouterr().err.splitlines()
    (line,) = [line for line in lines if line.startswith("confluence: ")]
    return line


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_moved(name, tmp_path, capfd):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None, 15: None})
    DAMAGE[name](folder / "15")
    with pytest.raises(DamageError) as refused:
        Checkpoints(folder).restore(15, state(0), SETTINGS, STORES)
    message = str(refused.value)
    # One line that says what is wrong, before anything that Orbax says.
    assert re.match(rf"(the|expected the) checkpoint .*{re.escape(str(folder / '15'))}", message)
    assert len(message) < 400
    assert "\n" not in message
    assert "".join(traceback.format_exception(refused.value)).count("Traceback") == 1
    for choice in ("best", "latest"):
        check(Checkpoints(folder).restore_chosen(choice, state(0), SETTINGS, STORES), 10)
        warning = told(capfd)
        assert warning.startswith("confluence: warning: ")
        assert str(folder / "15") in warning
        assert warning.endswith("; it is passed over")
    assert Checkpoints(folder).steps == [10, 15]
    check(newest(folder), 10)
    place = tmp_path / "damaged-checkpoints/15"
    assert told(capfd).endswith(f"; it is passed over, and now in {place}")
    assert place.is_dir()
    assert Checkpoints(folder).steps == [10]


def test_damaged_checkpoints_take_no_place_of_good_ones(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None, 15: None, 20: None}, keep=3)
    for step in (15, 20):
        overwrite_state(folder / str(step))
    check(newest(folder), 10)
    write(folder, {11: None, 12: None, 15: None})
    assert Checkpoints(folder).steps == [12, 15]
    check(newest(folder), 15)
    # Damaged once more, at the same step.
    overwrite_state(folder / "15")
    check(newest(folder), 12)
    places = {path.name for path in (tmp_path / "damaged-checkpoints").iterdir()}
    assert places == {"15", "15-1", "20"}


def test_a_copied_checkpoint_is_refused_by_both_numbers(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None})
    shutil.copytree(folder / "10", folder / "99")
    expected = f"expected the checkpoint of step 99 in {folder / '99'}, found that of step 10"
    with pytest.raises(DamageError, match=re.escape(expected)):
        Checkpoints(folder).restore(99, state(0), SETTINGS, STORES)
    check(newest(folder), 10)
    assert (tmp_path / "damaged-checkpoints/99").is_dir()


def test_if_all_are_damaged_nothing_is_moved(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None, 15: None})
    for step in (10, 15):
        (folder / str(step) / "run/metadata").write_text("{")
    for restore in (
        lambda: newest(folder),
        lambda: Checkpoints(folder).best,
        lambda: Checkpoints(folder).restore_chosen("latest", state(0), SETTINGS, STORES),
    ):
        with pytest.raises(CheckpointError, match=r"found none: the checkpoint .*15 is damaged"):
            restore()
    for step in (10, 15):
        overwrite_state(folder / str(step))
    with pytest.raises(CheckpointError, match=r"expected an undamaged checkpoint in "):
        newest(folder)
    assert Checkpoints(folder).steps == [10, 15]


@pytest.mark.parametrize(
    "error",
    [MemoryError("no memory"), ValueError("RESOURCE_EXHAUSTED: too many open files\nmore\nmore")],
)
def test_trouble_that_may_pass_is_no_damage(error, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None, 15: None})

    def fail(*_):
        raise error

    def check_refused(restore, reason):
        with pytest.raises(CheckpointError, match=r"cannot read the checkpoint ") as refused:
            restore()
        assert not isinstance(refused.value, DamageError)
        assert f": {reason}; it may be whole" in str(refused.value)
        assert Checkpoints(folder).steps == [10, 15]

    with monkeypatch.context() as patched:
        patched.setattr(ocp.StandardCheckpointer, "restore", fail)
        check_refused(lambda: newest(folder), str(error).partition("\n")[0])
    (folder / "15/run/metadata").unlink()
    (folder / "15/run/metadata").mkdir()
    what = "expected a file, found a folder; name a file"
    check_refused(lambda: newest(folder), f"reading {folder / '15/run/metadata'}: {what}")


class PassingTrouble:
    """Reads of one file fail with an error of the system, until they are asked to succeed."""

    def __init__(self, path, number, monkeypatch):
        self.path, self.number, self.fails = path, number, True
        for module, name in [(io, "open"), (builtins, "open"), (checkpoint, "read_file")]:
            monkeypatch.setattr(module, name, self.opening(getattr(module, name)))

    def opening(self, real):
        def opened(file, *rest, **more):
            if self.fails and not isinstance(file, int) and str(file) == str(self.path):
                raise OSError(self.number, os.strerror(self.number), str(file))
            return real(file, *rest, **more)

        return opened


# Of the best checkpoint, which only its loss keeps. Orbax's own copy of the loss is the last.
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize("file", ["run/metadata", "state/_METADATA", "metrics/metrics"])
def test_a_checkpoint_that_cannot_be_read_now_keeps_its_place(file, number, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    write(folder, {10: 0.5, 15: 1.0, 20: 2.0})
    trouble = PassingTrouble(folder / "10" / file, number, monkeypatch)
    if file != "metrics/metrics":
        calls = [lambda: newest(folder)]
        if file == "run/metadata":
            calls += [lambda: Checkpoints(folder).best]
        calls += [lambda: Checkpoints(folder).restore_chosen("best", state(0), SETTINGS, STORES)]
        for call in calls:
            with pytest.raises(CheckpointError, match=os.strerror(number)) as refused:
                call()
            assert not isinstance(refused.value, DamageError)
            assert str(refused.value).startswith(f"cannot read the checkpoint {folder / '10'}: ")
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            Writer(folder, 2)
    assert Checkpoints(folder).steps == [10, 15, 20]
    trouble.fails = False
    assert Checkpoints(folder).best == 10
    check(newest(folder), 20)
    write(folder, {25: 3.0, 30: 3.0})
    assert Checkpoints(folder).steps == [10, 25, 30]
    assert not (tmp_path / "damaged-checkpoints").exists()


def test_a_systems_error_in_a_states_file_is_no_damage(tmp_path):
    """TensorStore has its own words for the errors of the system."""
    folder = tmp_path / "checkpoints"
    write(folder, {10: None, 15: None})
    for path in (folder / "15/state").glob("**/d/*"):
        path.unlink()
        path.symlink_to(path.name)  # a loop of links
    with pytest.raises(CheckpointError, match="Too many levels of symbolic links") as refused:
        newest(folder)
    assert not isinstance(refused.value, DamageError)
    assert Checkpoints(folder).steps == [10, 15]


def wrapped(error):
    """Returns an error as Orbax may raise it: of its own, because of another."""
    found = ValueError("cannot restore")
    found.__cause__ = error
    return found


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (wrapped(OSError(errno.EIO, "of the disk")), True),
        (wrapped(FileNotFoundError(errno.ENOENT, "no such file")), False),
        (wrapped(NotADirectoryError(errno.ENOTDIR, "no folder")), False),
        (wrapped(FileNotFoundError("words alone")), False),
        (TimeoutError(), True),
        (wrapped(MemoryError()), True),
        (ValueError("ABORTED: at its end [os_error_code='116']"), True),
        (ValueError("NOT_FOUND: at its end [os_error_code='2']"), False),
        (ValueError("DATA_LOSS: checksum"), False),
    ],
)
def test_errors_that_may_pass_are_told_from_damage(error, may_pass, tmp_path, monkeypatch):
    write(tmp_path, {10: None})

    def fail(*_):
        raise error

    monkeypatch.setattr(ocp.StandardCheckpointer, "restore", fail)
    with pytest.raises(CheckpointError) as refused:
        Checkpoints(tmp_path).read_state(10, state(0))
    assert isinstance(refused.value, DamageError) != may_pass


def test_the_shapes_of_parameters_are_known_without_reading_them(tmp_path):
    write(tmp_path, {10: None})
    assert Checkpoints(tmp_path).shapes(10) == {"w": (300,)}


def test_without_checkpoints_there_is_none(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        assert Checkpoints(folder).steps == []
        assert Checkpoints(folder).latest is None
        assert Checkpoints(folder).best is None
        assert newest(folder) is None
        assert Checkpoints(folder).restore_chosen("best", state(0), SETTINGS, STORES) is None


def test_only_folders_of_numbers_are_checkpoints(tmp_path):
    for name in ("0", "7", "12", "007", "7.orbax-checkpoint-tmp", "x", "\u00b2", "-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "33").write_text("a file")
    assert checkpoint.steps_in(tmp_path) == [0, 7, 12]


def test_the_best_comes_first_and_of_equal_ones_the_later(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {5: 1.0, 10: 3.0, 15: 1.0, 20: None, 25: 2.0, 30: None}, keep=9)
    found = Checkpoints(folder)
    assert (found.best, found.latest) == (15, 30)
    for expected in (15, 5, 25, 10, 30, 20):
        check(found.restore_chosen("best", state(0), SETTINGS, STORES), expected)
        overwrite_state(folder / str(expected))
    # What was the best one is not counted as such: the best of the others is kept.
    write(tmp_path / "other", {5: 1.0, 10: 0.5, 15: 2.0, 20: 3.0}, keep=9)
    overwrite_state(tmp_path / "other/10")
    check(newest(tmp_path / "other"), 20)
    write(tmp_path / "other", {25: None, 30: None, 35: None})
    assert Checkpoints(tmp_path / "other").steps == [5, 30, 35]


def test_the_newest_and_the_best_are_kept(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {5: 1.0, 10: 0.5, 15: 2.0, 20: 0.75, 25: None, 30: None})
    assert Checkpoints(folder).steps == [10, 25, 30]


def test_no_checkpoint_is_left_out_in_silence(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None})
    # One before those that are there is written, too, and one in the place of another is refused.
    write(folder, {7: None})
    assert Checkpoints(folder).steps == [7, 10]
    with pytest.raises(CheckpointError, match="cannot write a checkpoint to "):
        write(folder, {10: None})


@pytest.mark.parametrize("text", ["{", '{"loss": 0.0}', '{"loss": 1e9}', "", None])
def test_orbaxs_copy_of_a_loss_is_mended(text, tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {5: 0.5, 10: 1.0, 15: 2.0}, keep=9)
    for step in (5, 10, 15):
        if text is None:
            shutil.rmtree(folder / str(step) / "metrics")
        elif step > 5:
            (folder / str(step) / "metrics/metrics").write_text(text)
    check(newest(folder), 15)
    write(folder, {20: None, 25: None, 30: None})
    assert Checkpoints(folder).steps == [5, 25, 30]
    assert not (tmp_path / "damaged-checkpoints").exists()


def test_p6_a_checkpoint_of_another_run_is_not_passed_over(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None, 15: None})
    other = config.load(None, ["data.stores=here", "data.seed=7"])
    for restore in (
        lambda: newest(folder, other),
        lambda: Checkpoints(folder).restore_chosen("latest", state(0), other, STORES),
    ):
        with pytest.raises(CheckpointError, match="data.seed is 7, the checkpoint has 42"):
            restore()
    assert Checkpoints(folder).steps == [10, 15]


def test_a_store_of_another_embedder_is_named_with_both(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None})
    found = Checkpoints(folder)
    assert found.embedders(10) == ["hashing-1"]
    other = [StoreIdentity("another root", "python:embed")]
    message = (
        f"{folder / '10'} belongs to another run: the store here has vectors of the embedder "
        "'python:embed', the checkpoint was trained on those of 'hashing-1': prepare the store "
        "again with that embedder; use the run's own configuration and stores, or"
    )
    for restore in (found.restore_newest, lambda *of: found.restore_chosen("best", *of)):
        with pytest.raises(CheckpointError, match=re.escape(message)):
            restore(state(0), SETTINGS, other)


def test_a_checkpoint_of_an_older_version_has_no_embedders(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None})
    path = folder / "10/run/metadata"
    older = json.loads(path.read_text())
    del older["embedders"], older["seal"]
    path.write_text(json.dumps({**older, "seal": checkpoint._seal(older)}))
    found = Checkpoints(folder)
    assert found.embedders(10) is None
    # It goes on with its own stores, and is refused others by their roots.
    check(found.restore_newest(state(0), SETTINGS, [StoreIdentity("root", "python:embed")]), 10)
    with pytest.raises(CheckpointError, match="the store here has the root other, the checkpoint"):
        found.restore_newest(state(0), SETTINGS, [StoreIdentity("other", "python:embed")])


def test_digests_and_seals_stay_what_they_are():
    """Otherwise all checkpoints that were written before would count as damaged."""
    assert checkpoint._digest(state(1)) == "1f172e58cdb3f0d71bb06ee08c938a83"
    record = {"b": [1, None], "a": {"d": 2.5, "c": "x"}}
    assert checkpoint._seal(record) == "5a96580ccc4415f4438d8724a5098367"


def test_a_checkpoint_without_its_step_is_an_older_one(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None})
    path = folder / "10/run/metadata"
    record = json.loads(path.read_text())
    del record["seal"], record["step"], record["validation"]
    path.write_text(json.dumps(record | {"seal": checkpoint._seal(record)}))
    found = newest(folder)
    assert (found.step, found.validation) == (10, Validation())


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: None})
    half = folder / "15.orbax-checkpoint-tmp"
    half.mkdir()
    check(newest(folder), 10)
    write(folder, {12: None})
    assert not half.exists()
    assert Checkpoints(folder).steps == [10, 12]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device\nat many places"), "no space left"),
        (ValueError(f"{'long ' * 99}\npages"), ("long " * 99)[:200]),
        (ValueError(), "ValueError"),
    ],
)
@pytest.mark.parametrize(("losses", "there"), [({}, "there is none yet"), ({7: None}, "step 7")])
def test_a_failed_write_is_told_in_one_line(error, reason, losses, there, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    write(folder, losses)

    def fail(*_, **__):
        raise error

    writer = Writer(folder, 2)
    calls = {
        "save": lambda: writer.save(9, state(9), b"", SETTINGS, STORES, Validation()),
        "wait_until_finished": writer.wait,
        "close": writer.close,
    }
    for name, call in calls.items():
        with monkeypatch.context() as patched:
            patched.setattr(writer._manager, name, fail)
            with pytest.raises(CheckpointError) as refused:
                call()
        message = str(refused.value)
        assert message.startswith(f"cannot write a checkpoint to {folder}: {reason} (")
        assert f"{there})" in message
        assert "\n" not in message
        assert "".join(traceback.format_exception(refused.value)).count("Traceback") == 1
    writer.close()


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path):
    folder = tmp_path / "checkpoints"
    write(folder, {10: 1.0})
    (folder / "10/metrics/metrics").write_text("{")
    with pytest.raises(CheckpointError, match="cannot read the checkpoints in ") as refused:
        Writer(folder, 2)
    assert "\n" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_p2_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    (out / "results.json").unlink()
    checkpoints = Checkpoints(out / "checkpoints")
    overwrite_state(out / "checkpoints" / str(checkpoints.steps[-1]))
    before = checkpoints.steps[-2]
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert f"checkpoints/{checkpoints.latest} is damaged: " in finished.stderr
    assert f"resuming after step {before}" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert records(out) == records(whole)
    assert results(out) == results(whole)


def test_two_processes_go_on_from_the_checkpoint_before_a_damaged_one(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    checkpoints = Checkpoints(out / "checkpoints")
    *_, before, damaged = checkpoints.steps
    overwrite_state(out / "checkpoints" / str(damaged))
    options = process_options(2)
    ranks = [start_run([], out, "--resume", *options, rank) for rank in range(2)]
    errors = [errors_of(rank) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    # Rank 0 alone tells it, and moves it.
    assert [error.count("is damaged: ") for error in errors] == [1, 0]
    assert f"resuming after step {before}" in errors[0]
    assert (out / "damaged-checkpoints" / str(damaged)).is_dir()
    assert Checkpoints(out / "checkpoints").latest == damaged
    assert [line["step"] for line in records(out)] == [line["step"] for line in records(whole)]


def test_a_damaged_best_checkpoint_is_passed_over_in_an_evaluation(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    best = out / "checkpoints" / str(results(whole)["step"])
    overwrite_state(best)
    finished = confluence("evaluate", out)
    assert finished.returncode == 0, finished.stderr
    assert f"confluence: warning: the checkpoint {best} is damaged: " in finished.stderr
    assert finished.stderr.count("is damaged") == 1
    assert best.is_dir()
