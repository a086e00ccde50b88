"""Elastic training: a run has the same bits on any number of processes, killed and gone on."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from child_processes import free_port
from confluence import batch, config, feed, microbatches, synthetic, training
from confluence.checkpoint import CheckpointError, Checkpoints
from confluence.config import ConfigError
from confluence.parallel import Layout, Processes
from confluence.step import Program
from runs import (
    confluence,
    errors_of,
    process_options,
    records,
    results,
    run,
    sets,
    start_run,
    train_on,
    wait_for_step,
)

SMALL = [
    "optimizer.microbatches=8", "optimizer.steps=12", "run.evaluate_every=6",
    "run.checkpoint_every=1",
]  # fmt: skip
# With masked cells, whose number divides their losses, in bfloat16 and by the other attention.
OTHER = [
    "model.attention='structured'", "model.compute='bfloat16'", "data.mask_share=0.2",
    "optimizer.steps=4", "run.evaluate_every=2", "optimizer.microbatches=4",
]  # fmt: skip


@pytest.fixture(scope="module")
def small(tiny):
    return [*tiny, *SMALL]


@pytest.fixture(scope="module")
def alone(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "run"
    train_on(1, small, out)
    return out


# They have two microbatches of eight, and more: they do not divide the batch either. Two processes
# are in the tests below.
def test_p9_three_processes_change_no_bit(alone, small, tmp_path):
    train_on(3, small, tmp_path / "run")
    assert records(tmp_path / "run") == records(alone)
    assert results(tmp_path / "run") == results(alone)


# More are tried with the variable set: docs/reliability.md.
KILLS = int(os.environ.get("HEADWATER_KILLS", "2"))


def test_p9_a_run_goes_on_with_any_number_of_processes_after_kills(alone, small, tmp_path):
    out, draws = tmp_path / "run", random.Random(KILLS)
    # A rank may be killed before it has met the others, which then wait so long for it.
    settings = [*small, "run.timeout_seconds=60"]
    # The last step ends a run, so that none could be killed after it.
    steps = sorted(draws.sample(range(1, 12), KILLS))
    for number, step in enumerate(steps):
        # Another one each time.
        count = [2, 1, 3, 4][number % 4]
        more = ["--resume"] if number else []
        options = process_options(count) if count > 1 else []
        ranks = [
            start_run(settings, out, *more, *options, *([rank] if count > 1 else []))
            for rank in range(count)
        ]
        try:
            wait_for_step(ranks[0], out, step)
            ranks[draws.randrange(count)].kill()
            for rank in ranks:
                errors_of(rank)
        finally:
            for rank in ranks:
                rank.kill()
    train_on(2, small, out, "--resume")
    assert records(out) == records(alone)
    assert results(out) == results(alone)


def mpirun(count):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", count], [{}]


def srun(count):
    """Returns what each rank has in its environment under srun, which is not here.

    Of several machines for all that is known, so that rank 0 says another address.
    """
    shared = {"SLURM_STEP_NUM_TASKS": str(count)}
    return [], [{**shared, "SLURM_PROCID": str(number)} for number in range(count)]


# The variables of others are in the tests of src/launcher.rs.
LAUNCHERS = {"mpirun": mpirun, "srun": srun}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_p9_a_launcher_starts_the_processes_without_options(launcher, alone, small, tmp_path):
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    out = tmp_path / "run"
    before, environments = LAUNCHERS[launcher](2)
    command = [
        *before, sys.executable, "-m", "confluence.cli", "train", *sets(small), "--out", out
    ]  # fmt: skip
    out.mkdir()
    # As a killed run leaves it.
    (out / "rank-0.address").write_text(f"127.0.0.1:{free_port()}")
    ranks = [
        subprocess.Popen(
            list(map(str, command)), env=os.environ | more, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for more in environments
    ]  # fmt: skip
    try:
        for rank in ranks:
            error = errors_of(rank)
            assert rank.returncode == 0, error
    finally:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
    assert records(out) == records(alone)
    assert results(out) == results(alone)
    assert not (out / "rank-0.address").exists()


def test_a_launched_process_needs_a_configuration_and_a_count(tiny, tmp_path):
    of_torchrun = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    found = confluence("train", "shop.db", "--out", tmp_path / "run", **of_torchrun)
    assert "for 2 processes, found a store: each would" in found.stderr
    found = run(tiny, tmp_path / "run", PMIX_RANK="1")
    assert "expected srun --mpi=pmix to tell the number of ranks, found rank 1" in found.stderr
    assert found.returncode == 1


def test_p9_structured_attention_in_bfloat16_with_masked_cells(small, tmp_path):
    for count in (1, 2):
        train_on(count, [*small, *OTHER], tmp_path / str(count))
    assert records(tmp_path / "2") == records(tmp_path / "1")
    assert results(tmp_path / "2") == results(tmp_path / "1")
    assert any("masked" in line for line in records(tmp_path / "1"))


# Contexts of one row and its neighbours, which differ in length.
NEAR = ["data.walk=breadth", "data.max_hops=1", "data.budget=2", "data.child_width=16"]


def test_p9_microbatches_of_several_lengths(small, tmp_path):
    near = [*small, *NEAR, "optimizer.steps=3", "run.evaluate_every=3", "run.log_every=3"]
    lengths = "data.sequence_buckets=[24]"
    train_on(1, near, tmp_path / "padded")
    train_on(1, [*near, lengths], tmp_path / "1")
    train_on(2, [*near, lengths], tmp_path / "2")
    assert records(tmp_path / "2") == records(tmp_path / "1")
    assert results(tmp_path / "2") == results(tmp_path / "1")
    # The same contexts with less padding: the losses differ by rounding alone.
    ours, theirs = records(tmp_path / "1"), records(tmp_path / "padded")
    assert [line["loss"] for line in ours] == pytest.approx(
        [line["loss"] for line in theirs], rel=1e-3
    )
    speeds = {}
    for name in ("1", "padded"):
        lines = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        speeds[name] = [line["speed"] for line in lines if "speed" in line]
    assert speeds["1"][-1]["compiled_steps"] == 2
    assert speeds["padded"][-1]["compiled_steps"] == 1
    for short, padded in zip(speeds["1"], speeds["padded"], strict=True):
        assert short["padding"] < padded["padding"]


def test_processes_that_share_a_whole_batch_have_one_length(tiny_config):
    settings = config.changed(
        tiny_config, ["optimizer.microbatches=0", "data.sequence_buckets=[8, 12]"]
    )
    feed.check_processes(settings, 1)
    with pytest.raises(ConfigError, match=r"no data\.sequence_buckets .* found \[8, 12\]; leave"):
        feed.check_processes(settings, 2)


def test_p9_of_several_devices_in_a_process_one_is_used(alone, small, tmp_path):
    flags = "--xla_force_host_platform_device_count=2"
    finished = run(small, tmp_path / "run", XLA_FLAGS=flags)
    assert finished.returncode == 0, finished.stderr
    assert "using 1 of 2 devices, one per process" in finished.stderr
    assert records(tmp_path / "run") == records(alone)


def test_p9_another_number_of_microbatches_is_another_run(alone, small):
    finished = run([*small, "optimizer.microbatches=4"], alone, "--resume")
    assert finished.returncode == 1
    assert "optimizer.microbatches is 4, the checkpoint has 8" in finished.stderr


def test_p9_the_sum_of_microbatches_is_that_of_the_batch():
    settings = config.Config(
        model=config.Model(width=16, heads=2, layers=1, hidden=24, compute="float32", epochs=True),
        data=config.Data(batch_size=6, sequence_length=34, max_rows=5),
    )
    layout = Layout(jax.devices()[:1])
    program = Program(settings, *synthetic.vocabulary_and_tables(), layout)
    whole = synthetic.batch(settings.data, batch.NUMERICAL, np.random.default_rng(0))
    stop = layout.flag_to_devices(False)
    _, wanted = program.step(program.initial(), layout.to_devices(whole), stop)
    parts = microbatches.split(whole, config.microbatches(settings), layout)
    assert len(parts) == 6
    state, found = program.step(program.initial(), parts, stop)
    assert float(found.loss) == pytest.approx(float(wanted.loss), rel=1e-5)
    assert float(found.gradient_norm) == pytest.approx(float(wanted.gradient_norm), rel=1e-4)
    ours = program.predict(state.params, parts)
    theirs = jax.device_get(program.predict(state.params, layout.to_devices(whole)))
    np.testing.assert_array_equal(ours.row, theirs.row)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-3, atol=1e-4)


def test_the_number_of_microbatches_divides_the_batch():
    found = {
        size: config.microbatches(config.load(None, [f"data.batch_size={size}"]))
        for size in (32, 12, 10, 11, 7, 1)
    }
    assert found == {32: 8, 12: 6, 10: 5, 11: 1, 7: 7, 1: 1}
    assert config.microbatches(config.load(None, ["optimizer.microbatches=0"])) == 0
    with pytest.raises(ConfigError, match=r"found 12 and 8; set optimizer\.microbatches=6, or"):
        config.load(None, ["data.batch_size=12", "optimizer.microbatches=8"])
    with pytest.raises(ConfigError, match=r"at least 0 for optimizer\.microbatches, found -1"):
        config.load(None, ["optimizer.microbatches=-1"])
    with pytest.raises(ConfigError, match=r"expected an integer for optimizer\.microbatches"):
        config.load(None, ["optimizer.microbatches=2.5"])
    with pytest.raises(ConfigError, match="'auto'"):
        config.load(None, ["optimizer.microbatches=many"])


def test_more_processes_than_microbatches_are_refused(tiny_config, tmp_path):
    with pytest.raises(ConfigError, match="expected at most 4 processes, .* found 5"):
        feed.check_processes(tiny_config, 5)
    feed.check_processes(tiny_config, 4)
    # Before a rank waits for others.
    five = Processes(5, 0, "127.0.0.1:1")
    with pytest.raises(ConfigError, match="expected at most 4 processes, .* found 5"):
        training.train(tiny_config, tmp_path / "run", five)
    assert not (tmp_path / "run").exists()


def test_a_run_from_before_the_setting_has_no_microbatches(alone, tmp_path):
    text = (alone / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(text.replace("microbatches = 8\n", ""))
    assert config.load_run(tmp_path).optimizer.microbatches == 0
    settings = config.load_run(alone)
    older = settings.to_dict()
    del older["optimizer"]["microbatches"]
    assert config.differences(settings, older) == [
        "optimizer.microbatches is 8, the checkpoint has 0"
    ]
    found = Checkpoints(alone / "checkpoints")
    with pytest.raises(CheckpointError, match="microbatches is 0, the checkpoint has 8"):
        found.restore(found.latest, None, config.load_run(tmp_path), [])
