"""Training: a run continues unchanged after kills, signals, full disks and lost ranks."""

import io
import json
import os
import random
import re
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

import headwater
from confluence import assembly, checkpoint, config, feed, run_folder, status, training
from confluence.checkpoint import StoreIdentity
from confluence.parallel import Processes
from confluence.step import StepMetrics
from runs import (
    ENDLESS,
    errors_of,
    process_options,
    records,
    results,
    run,
    start_run,
    wait_for_step,
)

# If one part of a checkpoint cannot be read, Orbax closes its event loop while tasks for the other
# parts still run on it; now and then such a task raises an error that nobody can catch.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_finished_run_leaves_its_files(whole, tiny_config):
    assert {path.name for path in whole.iterdir()} == {
        ".lock", "checkpoints", "config.toml", "context-0.html", "context-1.html", "context-2.html",
        "curves.png", "metrics.jsonl", "report.html", "results.json", "versions.json",
    }  # fmt: skip
    speeds = [
        line["speed"]
        for line in map(json.loads, (whole / "metrics.jsonl").read_text().splitlines())
        if "speed" in line
    ]
    # One shape of batches, one compilation, for all tasks.
    assert {speed["compiled_steps"] for speed in speeds} == {1}
    assert {line["task"] for line in records(whole)} == {
        "demo-shop/churn", "demo-shop/spend", "demo-shop/products.material"
    }  # fmt: skip
    assert 0 <= speeds[-1]["data_wait"] <= 1
    found = results(whole)["tasks"]
    with feed.open_sampler(tiny_config.data, tiny_config.run, Processes()) as sampler:
        for task, seeds in sampler.seed_counts("test").items():
            assert found[task]["test"]["seeds"] == seeds > 30
    assert found["demo-shop/churn"]["test"]["baselines"]["mean"]["auroc"] == 0.5
    assert "svg" in (whole / "report.html").read_text()


def test_p2_a_killed_and_resumed_run_equals_an_uninterrupted_one(whole, tiny, tmp_path):
    out = tmp_path / "run"
    for step in (5, 15):
        resumed = ["--resume"] if step > 5 else []
        process = start_run(tiny, out, *resumed)
        wait_for_step(process, out, step)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.communicate()
    finished = run(tiny, out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert records(out) == records(whole)
    assert results(out) == results(whole)


def test_a_stopped_run_writes_a_checkpoint_and_resumes(whole, tiny, tmp_path):
    out = tmp_path / "run"
    process = start_run(tiny, out)
    wait_for_step(process, out, 5)
    process.send_signal(signal.SIGTERM)
    error = errors_of(process)
    assert process.returncode == 130, error
    assert "continue with --resume" in error
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert records(out) == records(whole)
    assert results(out) == results(whole)


@pytest.mark.parametrize("texts", ["global", "batch"])
def test_without_microbatches_two_processes_equal_one_up_to_rounding(texts, whole, tiny, tmp_path):
    out = tmp_path / "run"
    options = process_options(2)
    settings = [*tiny, "optimizer.microbatches=0", f"data.texts={texts}"]
    ranks = [start_run(settings, out, *options, rank) for rank in range(2)]
    for rank in ranks:
        error = errors_of(rank)
        assert rank.returncode == 0, error
    ours, theirs = records(out), records(whole)
    assert [(line["step"], line["task"]) for line in ours] == [
        (line["step"], line["task"]) for line in theirs
    ]
    # The same sequences in each step, so that the first losses differ by rounding alone.
    for line, other in zip(ours[:6], theirs[:6], strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-5)
        # A sum over processes instead of a mean would give the same losses for some steps.
        norms = [record.get("gradient_norm", 0.0) for record in (line, other)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_a_run_of_two_stores_reads_each_task_from_its_own(whole, tiny, demo_store, tmp_path):
    schema = (demo_store.parent / "data/schema.toml").read_text()
    assert schema.count('database = "demo-shop"') == 1
    (tmp_path / "schema.toml").write_text(schema.replace("demo-shop", "other-shop"))
    headwater.prepare(
        demo_store.parent / "data", tmp_path / "schema.toml", tmp_path / "other", dimension=32
    )
    tasks = ["demo-shop/churn", "other-shop/spend", "demo-shop/products.material"]
    settings = [f"data.stores=['{tmp_path / 'other'}', '{demo_store}']", f"data.tasks={tasks}"]
    finished = run([*tiny, *settings], tmp_path / "run")
    assert finished.returncode == 0, finished.stderr
    assert set(results(tmp_path / "run")["tasks"]) == set(tasks)
    # Before the first step the loss of a task depends on its own store alone.
    ours, theirs = (
        {line["task"]: line["loss"] for line in records(out) if line["step"] == 0}
        for out in (tmp_path / "run", whole)
    )
    for task in (tasks[0], tasks[2]):
        assert ours[task] == pytest.approx(theirs[task], rel=1e-6)


def test_p4_any_number_of_processes_resumes_with_the_same_seeds(tiny_config):
    def samplers(processes):
        return [feed.open_sampler(tiny_config.data, tiny_config.run, one) for one in processes]

    def seeds(ranks, steps):
        """Returns the seeds of all ranks for each global step, and the cursor that follows."""
        seen = []
        for _ in range(steps):
            parts, cursors = zip(*(rank.next_batch("train") for rank in ranks), strict=True)
            rows = np.concatenate([part["seed_row"] for part in parts])
            times = np.concatenate([part["obs_time"] for part in parts])
            seen.append((int(parts[0]["task_idx"][0]), sorted(zip(rows, times, strict=True))))
        return seen, cursors[0]

    (alone,), two = samplers([Processes()]), samplers([Processes(2, r, "x:1") for r in range(2)])
    expected, _ = seeds([alone], 12)
    first, cursor = seeds(two, 5)
    four = samplers([Processes(4, r, "x:1") for r in range(4)])
    for rank in four:
        rank.resume(cursor)
    assert first + seeds(four, 7)[0] == expected


@pytest.mark.parametrize("dying", [0, 1])
def test_a_killed_rank_ends_the_others_in_bounded_time(dying, tiny, tmp_path):
    out = tmp_path / "run"
    # So long that the death of a rank ends the other, and not that it is late.
    settings = [*tiny, *ENDLESS, "run.timeout_seconds=120"]
    options = process_options(2)
    ranks = [start_run(settings, out, *options, rank) for rank in range(2)]
    try:
        wait_for_step(ranks[0], out, 5)
        # The coordinator listens at its own address, not at all of the machine.
        assert listening_addresses(int(options[-2].rpartition(":")[2])) == {"0100007F"}
        ranks[dying].kill()
        other = ranks[1 - dying]
        _, error = other.communicate(timeout=60)
        assert other.returncode not in (0, None)
        assert error
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    # The checkpoint is good: one process resumes the run of two.
    found = checkpoint.Checkpoints(out / "checkpoints")
    step = found.latest
    again = start_run(settings, out, "--resume")
    try:
        wait_for_step(again, out, step // 5 * 5 + 5)
    finally:
        again.kill()
        again.communicate()


def listening_addresses(port):
    """Returns the IPv4 addresses at which this machine listens on a port, as Linux writes them.

    Those of IPv6 are cut to their last 4 bytes: 0 for all addresses.
    """
    lines = [
        line.split()
        for family in ("tcp", "tcp6")
        for line in Path("/proc/net", family).read_text().splitlines()[1:]
    ]
    places = [of[1].split(":") for of in lines if of[3] == "0A"]
    return {address[-8:] for address, found in places if int(found, 16) == port}


def test_resuming_another_run_names_what_differs(whole, tiny):
    finished = run([*tiny, "model.width=32", "data.seed=7"], whole, "--resume")
    assert finished.returncode == 1
    assert (
        "data.seed is 7, the checkpoint has 42; model.width is 32, the checkpoint has 16"
        in finished.stderr
    )
    finished = run(tiny, whole)
    assert finished.returncode == 1
    assert "already holds a run; continue it with --resume" in finished.stderr
    finished = run(tiny, whole.parent / "other", "--resume")
    assert finished.returncode == 1
    assert "expected the folder of a run, found no config.toml in" in finished.stderr


def test_files_that_a_run_would_replace_are_refused(tiny, tmp_path):
    for name in ("results.json", "metrics.jsonl"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "notes.txt").write_text("no file of a run")
    # What a refused run may leave is none.
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "versions.json").touch()
    finished = run(tiny, tmp_path)
    assert finished.returncode == 1
    message = (
        f"expected a folder without files that a run writes, found metrics.jsonl, results.json in "
        f"{tmp_path}, and no config.toml; name another folder"
    )
    assert message in finished.stderr
    assert (tmp_path / "results.json").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 5


def test_a_checkpoint_of_other_data_is_refused(whole, tiny, tmp_path, tiny_config):
    found = checkpoint.Checkpoints(whole / "checkpoints")
    [store] = tiny_config.data.stores
    changed = f"the store {store} has the root other, the checkpoint has "
    with pytest.raises(checkpoint.CheckpointError, match=re.escape(changed)):
        found.restore(found.latest, None, tiny_config, [StoreIdentity("other", "hashing-1")])
    with pytest.raises(
        checkpoint.CheckpointError, match="data.stores has 2 stores, the checkpoint has 1"
    ):
        found.restore(found.latest, None, tiny_config, [StoreIdentity("other", "hashing-1")] * 2)


def test_p6_a_checkpoint_with_a_flipped_bit_is_refused(whole, tmp_path):
    """Or the bit is in bytes of the file that hold no number, and nothing changes."""
    with assembly.open_run(whole, "latest") as (parts, [(_, step)]):
        like = parts.program.initial()
        settings, identities = parts.settings, parts.identities
    intact = jax.tree.map(np.asarray, restored(whole, step, like, settings, identities))
    draws, refused = random.Random(5), 0
    for trial in range(12):
        copy = tmp_path / str(trial)
        shutil.copytree(whole / "checkpoints", copy / "checkpoints")
        files = (copy / "checkpoints" / str(step) / "state").rglob("d/*")
        path = max(files, key=lambda path: path.stat().st_size)
        damaged = bytearray(path.read_bytes())
        # Two, since not every byte of the file is read.
        for _ in range(2):
            damaged[draws.randrange(len(damaged))] ^= 1 << draws.randrange(8)
        path.write_bytes(damaged)
        try:
            found = restored(copy, step, like, settings, identities)
        except checkpoint.CheckpointError as error:
            refused += "remove it, and the one before is used" in str(error)
        else:
            for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(intact), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert refused >= 3


def test_p6_a_changed_run_record_is_refused(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    checkpoints = tmp_path / "run/checkpoints"
    steps = [path.name for path in checkpoints.iterdir() if path.name.isdigit()]
    record = checkpoints / steps[0] / "run/metadata"
    content = json.loads(record.read_text())
    for key, other in (("loss", 0.0), ("cursor", "AAAA"), ("config", {}), ("stores", ["x"])):
        record.write_text(json.dumps({**content, key: other}))
        message = f"the checkpoint {record.parents[1]} is damaged: its digest does not match its co"
        with pytest.raises(checkpoint.DamageError, match=re.escape(message)):
            checkpoint.Checkpoints(checkpoints).settings(int(steps[0]))
    record.write_text(json.dumps(content))
    # Orbax has a copy of the loss, which chooses what to keep, but not the best one here.
    best = results(whole)["step"]
    for step in steps:
        metrics = checkpoints / step / "metrics/metrics"
        if metrics.exists():
            metrics.write_text('{"loss": 1e9}' if int(step) == best else '{"loss": 0.0}')
    found = checkpoint.Checkpoints(checkpoints)
    assert found.best == best


def test_a_loss_that_is_not_finite_is_never_the_best():
    assert training._mean_of_finite([1.0, 2.0]) == 1.5
    assert training._mean_of_finite([1.0, float("nan")]) is None
    assert training._mean_of_finite([]) is None


def test_numbers_that_are_not_finite_are_null_in_the_log():
    record = {"loss": float("nan"), "of": [1.0, float("inf")], "step": 3, "name": "x"}
    assert run_folder.strict_json(record) == {
        "loss": None,
        "of": [1.0, None],
        "step": 3,
        "name": "x",
    }


def test_resuming_under_other_versions_is_reported_and_recorded(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    versions = json.loads((out / "versions.json").read_text())
    assert [of["after_step"] for of in versions] == [0]
    (out / "versions.json").write_text(json.dumps([{**versions[0], "jax": "0.1", "cores": 999}]))
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert "jax is '" in finished.stderr
    assert "was '0.1'" in finished.stderr
    assert "was 999: from step 24 on the last digits may differ" in finished.stderr
    again = json.loads((out / "versions.json").read_text())
    assert [of["after_step"] for of in again] == [0, 24]


def test_a_terminal_without_a_size_shows_progress(monkeypatch):
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((0, 0)))
    shown = io.StringIO()
    shown.isatty = lambda: True
    shown.fileno = lambda: 2
    monkeypatch.setattr("sys.stderr", shown)
    line = status.StatusLine()
    line.show("step 1")
    line.end()
    assert "step 1" in shown.getvalue()
    status.StatusLine(is_leader=False).show("step 2")
    assert "step 2" not in shown.getvalue()


def restored(out, step, like, settings, identities):
    checkpoints = checkpoint.Checkpoints(out / "checkpoints")
    return checkpoints.restore(step, like, settings, identities).state


def test_a_second_process_in_one_folder_is_refused(tiny, tmp_path):
    first = start_run([*tiny, *ENDLESS], tmp_path / "run")
    try:
        wait_for_step(first, tmp_path / "run", 5)
        second = run([], tmp_path / "run", "--resume")
        assert second.returncode == 1
        assert (
            f"another process is at work in {tmp_path / 'run'}; wait until it has ended"
            in second.stderr
        )
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.stores=nowhere", "nowhere"),
        ("data.tasks=chrun", "chrun"),
        ("data.sequence_length=x", "data.sequence_length"),
    ],
)
def test_invalid_settings_give_one_line_and_no_traceback(setting, message, tiny, tmp_path):
    finished = run([*tiny, setting], tmp_path / "run")
    assert finished.returncode == 1
    assert finished.stderr.startswith("confluence: ")
    assert finished.stderr.count("\n") == 1
    assert message in finished.stderr
    assert not (tmp_path / "run").exists(), "a refused run leaves nothing behind"


def test_gradients_that_stay_infinite_end_a_run():
    metrics = StepMetrics(np.float32(np.nan), np.float32(np.nan), np.int32(1), np.int32(0))
    assert training._last_finite_step(99, metrics, 0) == 0
    with pytest.raises(training.TrainingError, match="start again with lower rates"):
        training._last_finite_step(100, metrics, 0)


def test_a_batch_size_that_processes_do_not_divide_is_refused(tiny_config, tmp_path):
    with pytest.raises(config.ConfigError, match="found 8 and 3"):
        feed.open_sampler(tiny_config.data, tiny_config.run, Processes(3, 0, "x:1"))


def assert_ended_by_full_disk(finished):
    assert finished.returncode == 1, finished.stderr
    assert "continue with --resume" in finished.stderr
    first, *more = finished.stderr.splitlines()
    assert len(more) == first.startswith("confluence: resuming after step "), finished.stderr


# Too small for the settings, and for the first checkpoint, which has some 450 kB.
@pytest.mark.parametrize(("size", "message"), [("4k", ""), ("100k", "there is none yet")])
def test_a_disk_too_small_for_a_checkpoint_ends_a_run(size, message, tiny, small_disk):
    disk, resize = small_disk
    resize(size)
    finished = run(tiny, disk / "run")
    assert_ended_by_full_disk(finished)
    assert message in finished.stderr


def test_a_full_disk_ends_a_run_and_keeps_its_checkpoint(whole, tiny, small_disk):
    disk, resize = small_disk
    out = disk / "run"
    process = start_run(tiny, out)
    wait_for_step(process, out, 5)
    # Unlike a kill, it leaves no half of a checkpoint, which would be removed and free its space.
    process.send_signal(signal.SIGTERM)
    errors_of(process)
    newest = max(int(found.name) for found in (out / "checkpoints").iterdir())
    used = shutil.disk_usage(disk).used
    resize(used + 100_000)
    finished = run([], out, "--resume")
    assert_ended_by_full_disk(finished)
    assert f"the newest is of step {newest}" in finished.stderr
    resize("64m")
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert records(out) == records(whole)
