"""The folder of a run: what it refuses, what it keeps, and what it says of other versions."""

import errno
import json
import os
import sys

import pytest

from confluence import config, run_folder
from confluence.checkpoint import CheckpointError
from confluence.config import ConfigError
from confluence.parallel import Processes

SETTINGS = config.load(None, ["data.stores=here", "optimizer.microbatches=0"])


def test_a_new_run_needs_a_folder_without_files_of_a_run(tmp_path):
    run_folder.check_folder(tmp_path / "none", resume=False)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").touch()
    run_folder.check_folder(tmp_path, resume=False)
    (tmp_path / "checkpoints/5").mkdir()
    (tmp_path / "results.json").write_text("x")
    with pytest.raises(ConfigError, match=r"found checkpoints, results.json in "):
        run_folder.check_folder(tmp_path, resume=False)
    with pytest.raises(ConfigError, match=r"found no config.toml in .*start a run without"):
        run_folder.check_folder(tmp_path, resume=True)
    (tmp_path / "config.toml").touch()
    run_folder.check_folder(tmp_path, resume=True)
    with pytest.raises(ConfigError, match="already holds a run"):
        run_folder.check_folder(tmp_path, resume=False)


@pytest.mark.parametrize("error", [ConfigError("no"), CheckpointError("no")])
def test_a_refused_run_removes_the_folder_that_it_created(error, tmp_path):
    def fail(out, is_alone, name):
        with run_folder.created_folder(out, is_alone=is_alone):
            if name is None:
                out.rmdir()
            else:
                (out / name).touch()
            raise error

    def is_left(out, *, is_alone=True, name=".lock"):
        with pytest.raises(type(error)):
            fail(out, is_alone, name)
        return out.exists()

    # Folders above it are created, too.
    assert not is_left(tmp_path / "deep/run")
    # What keeps it from being removed hides no refusal.
    assert not is_left(tmp_path / "gone", name=None)
    # It has begun, or other processes may be at work in it.
    assert is_left(tmp_path / "begun", name="config.toml")
    assert is_left(tmp_path / "several", is_alone=False)
    (tmp_path / "mine").mkdir()
    assert is_left(tmp_path / "mine")


def test_a_run_that_ends_or_fails_keeps_its_folder(tmp_path):
    with run_folder.created_folder(tmp_path / "ended", is_alone=True):
        pass
    with (
        pytest.raises(KeyError),
        run_folder.created_folder(tmp_path / "failed", is_alone=True),
    ):
        raise KeyError
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigError, match=r"cannot create the folder .*: Not a directory"),
        run_folder.created_folder(tmp_path / "file/run", is_alone=True),
    ):
        pass


def test_a_run_has_ended_when_its_folder_has_results_of_its_settings(tmp_path):
    assert not run_folder.has_ended(tmp_path, SETTINGS)
    run_folder.write_text(tmp_path / "config.toml", SETTINGS.to_toml())
    assert not run_folder.has_ended(tmp_path, SETTINGS)
    (tmp_path / "results.json").touch()
    assert run_folder.has_ended(tmp_path, SETTINGS)
    other = config.load(None, ["data.stores=here", "optimizer.microbatches=0", "data.seed=7"])
    with pytest.raises(CheckpointError, match=r"holds another run: data.seed is 7, .* has 42; use"):
        run_folder.has_ended(tmp_path, other)


def test_one_lock_of_a_folder_follows_another(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError), run_folder.lock_folder(tmp_path):
            raise KeyError


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_error_that_says_what_to_do(number):
    for file, named in (("file", "file"), (None, "out")):
        expected = f"cannot write {named}: {os.strerror(number)}; free some space, and continue"
        with pytest.raises(CheckpointError, match=expected), run_folder.report_full_disk("out"):
            raise OSError(number, os.strerror(number), file)


def test_another_error_of_the_system_stays_what_it_is():
    with pytest.raises(PermissionError), run_folder.report_full_disk("out"):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def entries(out):
    return json.loads((out / "versions.json").read_text())


def other_versions(out, **changes):
    """Changes the newest entry of the versions of a run."""
    *before, last = entries(out)
    (out / "versions.json").write_text(json.dumps([*before, last | changes]))


def test_versions_have_an_entry_for_each_change(tmp_path, capsys):
    run_folder.write_settings(tmp_path, SETTINGS, Processes(), 0)
    [first] = entries(tmp_path)
    assert first["after_step"] == 0
    assert (first["python"], first["processes"]) == (sys.version.split()[0], 1)
    assert config.load_run(tmp_path) == SETTINGS
    # The same versions need no other entry.
    run_folder.write_settings(tmp_path, SETTINGS, Processes(), 5)
    assert entries(tmp_path) == [first]
    assert capsys.readouterr().err == ""
    other_versions(tmp_path, jax="0.1", processes=3)
    run_folder.write_settings(tmp_path, SETTINGS, Processes(), 7)
    assert [of["after_step"] for of in entries(tmp_path)] == [0, 7]
    assert entries(tmp_path)[1] == first | {"after_step": 7}
    assert capsys.readouterr().err == (
        f"confluence: jax is '{first['jax']}', was '0.1'; processes is 1, was 3: from step 7 on "
        "the last digits may differ\n"
    )
    # An older version of headwater wrote fewer names.
    (tmp_path / "versions.json").write_text(json.dumps([{"after_step": 0, "jax": first["jax"]}]))
    run_folder.write_settings(tmp_path, SETTINGS, Processes(), 9)
    assert capsys.readouterr().err == ""
    # A run that starts again has one entry.
    other_versions(tmp_path, jax="0.1")
    run_folder.write_settings(tmp_path, SETTINGS, Processes(), 0)
    assert entries(tmp_path) == [first]
    assert capsys.readouterr().err == ""
    (tmp_path / "versions.json").unlink()
    run_folder.write_settings(tmp_path, SETTINGS, Processes(), 3)
    assert entries(tmp_path) == [first | {"after_step": 3}]


@pytest.mark.skipif(sys.platform != "linux", reason="cores are given to a thread on Linux")
def test_the_cores_of_a_run_are_those_that_it_may_use(tmp_path):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        run_folder.write_settings(tmp_path, SETTINGS, Processes(), 0)
    finally:
        os.sched_setaffinity(0, cores)
    assert entries(tmp_path)[0]["cores"] == 1


def test_the_number_of_processes_changes_no_digit_of_microbatches(tmp_path, capsys):
    settings = config.load(None, ["data.stores=here", "optimizer.microbatches=8"])
    run_folder.write_settings(tmp_path, settings, Processes(), 0)
    other_versions(tmp_path, processes=3)
    run_folder.write_settings(tmp_path, settings, Processes(), 7)
    assert [of["processes"] for of in entries(tmp_path)] == [3, 1]
    assert capsys.readouterr().err == ""


def test_a_log_keeps_what_lies_before_the_checkpoint(tmp_path):
    log = tmp_path / "metrics.jsonl"
    lines = ['{"step": 4}\n', '{"step": 5}\n', '{"step": 6}\n']
    run_folder.truncate_log(log, 5)
    assert not log.exists()
    # The kill left half a line.
    log.write_text("".join([*lines, '{"st']))
    run_folder.truncate_log(log, 5)
    assert log.read_text() == "".join(lines[:2])
    run_folder.truncate_log(log, 0)
    assert log.read_text() == ""


def test_json_of_a_run_is_strict(tmp_path):
    content = {"a": [1.5, float("nan"), {"b": float("-inf")}], "c": 3, "d": "x", "e": True}
    run_folder.write_json(tmp_path / "x.json", content)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == {"a": [1.5, None, {"b": None}], "c": 3, "d": "x", "e": True}
    assert text.endswith("\n}\n")
