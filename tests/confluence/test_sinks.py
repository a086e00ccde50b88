"""Sinks receive the metrics of the log."""

import json
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event

from confluence import sinks
from runs import run, start_run, wait_for_step


def logged(out):
    """Returns the numbers of the log, by step and name."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {
        (line["step"], name): number
        for line in lines
        for name, number in sinks.numbers(line).items()
    }


def events(folder):
    """Returns what TensorBoard shows of event files: a later purge hides earlier events."""
    shown = {}
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4
            # SessionLog.START
            if event.HasField("session_log") and event.session_log.status == 1:
                shown = {key: number for key, number in shown.items() if key[0] < event.step}
            for value in event.summary.value:
                shown[event.step, value.tag] = value.simple_value
    return shown


def test_tensorboard_shows_the_log_of_a_killed_and_resumed_run(tiny, tmp_path):
    settings = [*tiny, "run.sinks=tensorboard", "run.log_every=3"]
    process = start_run([*settings, "run.checkpoint_every=2"], tmp_path / "run")
    # Before the writer flushes by itself.
    wait_for_step(process, tmp_path / "run", 2)
    process.kill()
    process.communicate()
    finished = run(settings, tmp_path / "run", "--resume")
    assert finished.returncode == 0, finished.stderr
    found, expected = events(tmp_path / "run/tensorboard"), logged(tmp_path / "run")
    assert {"train/demo-shop/churn/loss", "val/demo-shop/churn/auroc", "speed/data_wait"} <= {
        name for _, name in found
    }
    assert set(range(1, 25)) <= {step for step, _ in found}
    for key in expected:
        assert found[key] == pytest.approx(expected[key], rel=1e-6), key


def test_wandb_receives_a_run(tiny, tmp_path):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    settings = [*tiny, "run.sinks=wandb"]
    finished = run(settings, tmp_path / "run", WANDB_MODE="offline")
    assert finished.returncode == 0, finished.stderr
    (kept,) = (tmp_path / "run/wandb").glob("offline-run-*/run-*.wandb")
    assert b"val/demo-shop/churn/auroc" in kept.read_bytes()


def test_a_sink_names_its_missing_package(tiny, tmp_path):
    (tmp_path / "tensorboardX.py").write_text("raise ImportError('not here')")
    settings = [*tiny, "run.sinks=tensorboard"]
    finished = run(settings, tmp_path / "run", PYTHONPATH=str(tmp_path))
    assert finished.returncode == 1
    assert "tensorboardX cannot be imported (not here); pip install tensorboardX" in finished.stderr
    assert "Traceback" not in finished.stderr
