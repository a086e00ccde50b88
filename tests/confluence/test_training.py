"""A run goes on as if nothing had happened, whatever happened."""

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess

import jax
import numpy as np
import pytest

import headwater
from confluence import assembly, checkpoint, config, feed, train
from confluence.parallel import Processes
from runs import begun, confluence, records, results, run, together, wait_for_step

# Orbax closes its event loop when one part of a checkpoint cannot be read, while others are still
# on their way to it; now and then they complain of it where nobody hears them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_run_leaves_all_that_tells_of_it(whole, tiny_config):
    assert {path.name for path in whole.iterdir()} == {
        ".lock", "checkpoints", "config.toml", "context-0.html", "context-1.html", "context-2.html",
        "curves.png", "metrics.jsonl", "report.html", "results.json", "versions.json",
    }  # fmt: skip
    speeds = [
        line["speed"]
        for line in map(json.loads, (whole / "metrics.jsonl").read_text().splitlines())
        if "speed" in line
    ]
    # One form of batches, one compilation, whatever the task.
    assert {speed["compiled_steps"] for speed in speeds} == {1}
    assert {line["task"] for line in records(whole)} == {
        "demo-shop/churn", "demo-shop/spend", "demo-shop/products.material"
    }  # fmt: skip
    assert 0 <= speeds[-1]["data_wait"] <= 1
    found = results(whole)["tasks"]
    with feed.sampler(tiny_config.data, tiny_config.run, Processes()) as sampler:
        for task, seeds in sampler.seed_counts("test").items():
            assert found[task]["test"]["seeds"] == seeds > 30
    assert found["demo-shop/churn"]["test"]["baselines"]["mean"]["auroc"] == 0.5
    assert "svg" in (whole / "report.html").read_text()


def test_p2_killed_and_resumed_is_the_run_that_nothing_happened_to(whole, tiny, tmp_path):
    out = tmp_path / "run"
    for step in (5, 15):
        resumed = ["--resume"] if step > 5 else []
        process = begun(tiny, out, *resumed)
        wait_for_step(process, out, step)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.communicate()
    ended = run(tiny, out, "--resume")
    assert ended.returncode == 0, ended.stderr
    assert records(out) == records(whole)
    assert results(out) == results(whole)


def test_asked_to_end_a_run_keeps_what_it_has_and_goes_on(whole, tiny, tmp_path):
    out = tmp_path / "run"
    process = begun(tiny, out)
    wait_for_step(process, out, 5)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert "go on with --resume" in error
    ended = run([], out, "--resume")
    assert ended.returncode == 0, ended.stderr
    assert records(out) == records(whole)
    assert results(out) == results(whole)


@pytest.mark.parametrize("texts", ["global", "batch"])
def test_two_processes_are_one_but_for_rounding(texts, whole, tiny, tmp_path):
    out = tmp_path / "run"
    several = together(2)
    ranks = [begun([*tiny, f"data.texts={texts}"], out, *several, rank) for rank in range(2)]
    for rank in ranks:
        _, error = rank.communicate(timeout=300)
        assert rank.returncode == 0, error
    ours, theirs = records(out), records(whole)
    assert [(line["step"], line["task"]) for line in ours] == [
        (line["step"], line["task"]) for line in theirs
    ]
    # The same sequences in each step, so that the first losses differ by rounding alone.
    for line, other in zip(ours[:6], theirs[:6], strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-5)
        # A sum over processes in place of a mean would have the same losses for some steps.
        norms = [record.get("gradient_norm", 0.0) for record in (line, other)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_two_stores_are_one_run_and_each_task_reads_its_own(whole, tiny, demo_store, tmp_path):
    schema = (demo_store.parent / "data/schema.toml").read_text()
    assert schema.count('database = "demo-shop"') == 1
    (tmp_path / "schema.toml").write_text(schema.replace("demo-shop", "other-shop"))
    headwater.prepare(
        demo_store.parent / "data", tmp_path / "schema.toml", tmp_path / "other", dimension=32
    )
    tasks = ["demo-shop/churn", "other-shop/spend", "demo-shop/products.material"]
    settings = [f"data.stores=['{tmp_path / 'other'}', '{demo_store}']", f"data.tasks={tasks}"]
    ended = run([*tiny, *settings], tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert set(results(tmp_path / "run")["tasks"]) == set(tasks)
    # Before the first step a task's loss is that of its store alone.
    ours, theirs = (
        {line["task"]: line["loss"] for line in records(out) if line["step"] == 0}
        for out in (tmp_path / "run", whole)
    )
    for task in (tasks[0], tasks[2]):
        assert ours[task] == pytest.approx(theirs[task], rel=1e-6)


def test_p4_another_number_of_processes_goes_on_with_the_same_seeds(tiny_config):
    def stream(processes):
        return [feed.sampler(tiny_config.data, tiny_config.run, who) for who in processes]

    def seeds(ranks, steps):
        """Of each global step the seeds of all ranks, and the cursor that follows."""
        seen = []
        for _ in range(steps):
            parts, cursors = zip(*(rank.next_batch("train") for rank in ranks), strict=True)
            rows = np.concatenate([part["seed_row"] for part in parts])
            times = np.concatenate([part["obs_time"] for part in parts])
            seen.append((int(parts[0]["task_idx"][0]), sorted(zip(rows, times, strict=True))))
        return seen, cursors[0]

    (alone,), two = stream([Processes()]), stream([Processes(2, r, "x:1") for r in range(2)])
    expected, _ = seeds([alone], 12)
    begun, cursor = seeds(two, 5)
    four = stream([Processes(4, r, "x:1") for r in range(4)])
    for rank in four:
        rank.resume(cursor)
    assert begun + seeds(four, 7)[0] == expected


@pytest.mark.parametrize("dying", [0, 1])
def test_a_rank_that_dies_ends_the_others_in_bounded_time(dying, tiny, tmp_path):
    out = tmp_path / "run"
    settings = [*tiny, "optimizer.steps=100000", "run.timeout_seconds=10"]
    several = together(2)
    ranks = [begun(settings, out, *several, rank) for rank in range(2)]
    try:
        wait_for_step(ranks[0], out, 5)
        ranks[dying].kill()
        other = ranks[1 - dying]
        _, error = other.communicate(timeout=60)
        assert other.returncode not in (0, None)
        assert error
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    # What was kept is good: one process goes on where two stood.
    found = checkpoint.Checkpoints(out / "checkpoints", 2)
    step = found.latest
    found.close()
    again = begun(settings, out, "--resume")
    try:
        wait_for_step(again, out, step // 5 * 5 + 5)
    finally:
        again.kill()
        again.communicate()


def test_another_run_is_refused_by_what_differs(whole, tiny):
    ended = run([*tiny, "model.width=32", "data.seed=7"], whole, "--resume")
    assert ended.returncode == 1
    assert "data.seed is 7, and was 42; model.width is 32, and was 16" in ended.stderr
    ended = run(tiny, whole)
    assert ended.returncode == 1
    assert "holds a run already; go on with --resume" in ended.stderr
    ended = run(tiny, whole.parent / "other", "--resume")
    assert ended.returncode == 1
    assert "holds no run to go on with" in ended.stderr


def test_other_data_are_refused(whole, tiny, tmp_path, tiny_config):
    found = checkpoint.Checkpoints(whole / "checkpoints", 2)
    [store] = tiny_config.data.stores
    changed = f"the data of {store} have the root other, and had "
    with pytest.raises(checkpoint.CheckpointError, match=re.escape(changed)):
        found.restore(found.latest, None, tiny_config, ["other"])
    with pytest.raises(checkpoint.CheckpointError, match="there are 2 stores, and were 1"):
        found.restore(found.latest, None, tiny_config, ["other", "third"])
    found.close()


def test_p6_a_checkpoint_with_another_bit_is_refused(whole, tmp_path):
    """Or the bit is one that no number is made of."""
    with assembly.trained(whole, "latest") as (parts, _, step):
        like = parts.program.initial()
        settings, roots = parts.settings, parts.roots
    intact = jax.tree.map(np.asarray, restored(whole, step, like, settings, roots))
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
            found = restored(copy, step, like, settings, roots)
        except checkpoint.CheckpointError as error:
            refused += "take it away to go on from the one before" in str(error)
        else:
            for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(intact), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert refused >= 3


def test_p6_what_stands_beside_the_state_is_sealed(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    checkpoints = tmp_path / "run/checkpoints"
    steps = [path.name for path in checkpoints.iterdir() if path.name.isdigit()]
    told = checkpoints / steps[0] / "run/metadata"
    content = json.loads(told.read_text())
    for key, other in (("loss", 0.0), ("cursor", "AAAA"), ("config", {}), ("stores", ["x"])):
        told.write_text(json.dumps({**content, key: other}))
        ended = confluence("evaluate", tmp_path / "run")
        assert ended.returncode == 1
        assert f"the checkpoint {told.parents[1]} is damaged" in ended.stderr
    told.write_text(json.dumps(content))
    # What Orbax keeps of the loss chooses what it keeps, and nothing here.
    best = results(whole)["step"]
    for step in steps:
        metrics = checkpoints / step / "metrics/metrics"
        if metrics.exists():
            metrics.write_text('{"loss": 1e9}' if int(step) == best else '{"loss": 0.0}')
    found = checkpoint.Checkpoints(checkpoints, 2, is_read_only=True)
    assert found.best == best
    found.close()


def test_a_loss_that_is_no_number_is_never_the_best():
    assert train._mean_of_finite([1.0, 2.0]) == 1.5
    assert train._mean_of_finite([1.0, float("nan")]) is None
    assert train._mean_of_finite([]) is None


def test_what_is_no_number_is_null_in_the_log():
    record = {"loss": float("nan"), "of": [1.0, float("inf")], "step": 3, "name": "x"}
    assert train._strict(record) == {"loss": None, "of": [1.0, None], "step": 3, "name": "x"}


def test_going_on_under_other_versions_is_said_and_kept(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    versions = json.loads((out / "versions.json").read_text())
    assert [of["after_step"] for of in versions] == [0]
    (out / "versions.json").write_text(json.dumps([{**versions[0], "jax": "0.1", "cores": 999}]))
    ended = run([], out, "--resume")
    assert ended.returncode == 0, ended.stderr
    assert "jax is '" in ended.stderr
    assert "and was '0.1'" in ended.stderr
    assert "and was 999: from step 24 on the last digits may be others" in ended.stderr
    again = json.loads((out / "versions.json").read_text())
    assert [of["after_step"] for of in again] == [0, 24]


def test_a_terminal_without_a_size_is_written_to(monkeypatch, tmp_path):
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((0, 0)))
    shown = io.StringIO()
    shown.isatty = lambda: True
    shown.fileno = lambda: 2
    monkeypatch.setattr("sys.stderr", shown)
    log = train._Log(tmp_path / "metrics.jsonl", 0, True, [])
    log.show("step 1")
    log.close()
    assert "step 1" in shown.getvalue()


def restored(out, step, like, settings, roots):
    checkpoints = checkpoint.Checkpoints(out / "checkpoints", 2, is_read_only=True)
    try:
        return checkpoints.restore(step, like, settings, roots).state
    finally:
        checkpoints.close()


def test_two_at_once_in_one_folder_are_kept_apart(tiny, tmp_path):
    first = begun([*tiny, "optimizer.steps=4000"], tmp_path / "run")
    try:
        wait_for_step(first, tmp_path / "run", 5)
        second = run([], tmp_path / "run", "--resume")
        assert second.returncode == 1
        assert f"another process trains in {tmp_path / 'run'}; wait for" in second.stderr
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("data.stores=nowhere", "nowhere"),
        ("data.tasks=chrun", "chrun"),
        ("data.cells=x", "data.cells"),
    ],
)
def test_bad_settings_are_one_line_and_no_traceback(setting, words, tiny, tmp_path):
    ended = run([*tiny, setting], tmp_path / "run")
    assert ended.returncode == 1
    assert ended.stderr.startswith("confluence: ")
    assert ended.stderr.count("\n") == 1
    assert words in ended.stderr


def test_gradients_that_stay_infinite_end_a_run():
    told = train.Told(np.float32(np.nan), np.float32(np.nan), np.int32(1), np.int32(0))
    assert train._last_finite(99, told, 0) == 0
    with pytest.raises(train.TrainingError, match="begin again with lower rates"):
        train._last_finite(100, told, 0)


def test_a_batch_that_cannot_be_shared_out_is_refused(tiny_config, tmp_path):
    with pytest.raises(config.ConfigError, match="found 8 and 3"):
        feed.sampler(tiny_config.data, tiny_config.run, Processes(3, 0, "x:1"))


def test_a_full_disk_ends_a_run_and_the_last_checkpoint_stays_good(whole, tiny, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    # The settings, the first checkpoint, one after it: each has 450 kB.
    for size, kept in (("4k", None), ("100k", "there is none yet"), ("700k", "step 5")):
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], capture_output=True
        )
        if mounted.returncode:
            pytest.skip(f"no small disk can be mounted here: {mounted.stderr.decode().strip()}")
        try:
            out = disk / "run"
            ended = run(tiny, out)
            assert ended.returncode == 1, ended.stderr
            assert "go on with --resume" in ended.stderr
            assert ended.stderr.count("\n") == 1, ended.stderr
            if kept:
                assert kept in ended.stderr
            if kept == "step 5":
                subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
                ended = run(tiny, out, "--resume")
                assert ended.returncode == 0, ended.stderr
                assert records(out) == records(whole)
        finally:
            subprocess.run(["umount", disk], check=True)
