"""Sinks receive the metrics of the log."""

import json
import struct
import sys
import types

import pytest
from tensorboardX.proto.event_pb2 import Event

from confluence import config, sinks
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


def test_numbers_are_named_by_split_task_and_metric():
    step = {"step": 3, "task": "shop/churn", "loss": 0.5, "masked": {"boolean": 2.0}, "skipped": 0}
    assert sinks.numbers(step) == {
        "train/shop/churn/loss": 0.5,
        "train/shop/churn/masked/boolean": 2.0,
        "train/shop/churn/skipped": 0,
    }
    val = {"step": 3, "split": "val", "task": "shop/churn", "auroc": 0.5}
    assert sinks.numbers(val) == {"val/shop/churn/auroc": 0.5}
    speed = {"step": 3, "speed": {"data_wait": 0.5, "device_peak_bytes": None}}
    assert sinks.numbers(speed) == {"speed/data_wait": 0.5}


class Calls:
    """Notes what is called, and with what."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*of, **more):
            self.calls.append((name, *of, *more.items()))
            return self

        return call


def opened(monkeypatch, out, package, sink, step=0):
    found = Calls()
    monkeypatch.setitem(sys.modules, package, found)
    settings = config.load(None, ["data.stores=here", f"run.sinks={sink}"])
    (of,) = sinks.open_sinks(settings, out, step)
    of.write(7, {"a": 1.0, "b": 2.0})
    of.flush()
    of.close()
    return settings, found.calls


def test_tensorboard_hides_what_a_killed_run_wrote(monkeypatch, tmp_path):
    _, calls = opened(monkeypatch, tmp_path, "tensorboardX", "tensorboard", step=5)
    assert calls == [
        ("SummaryWriter", str(tmp_path / "tensorboard"), ("purge_step", 6)),
        ("add_scalar", "a", 1.0, 7),
        ("add_scalar", "b", 2.0, 7),
        ("flush",),
        ("close",),
    ]


def test_wandb_continues_one_run_for_a_folder(monkeypatch, tmp_path):
    ids = []
    for _ in range(2):
        settings, ((_, (_, key), *options), *calls) = opened(
            monkeypatch, tmp_path, "wandb", "wandb"
        )
        ids.append(key)
        assert dict(options) == {"resume": "allow", "dir": tmp_path, "config": settings.to_dict()}
        assert calls == [("log", {"a": 1.0, "b": 2.0}, ("step", 7)), ("finish",)]
    assert ids[0] == ids[1] == (tmp_path / "wandb-run").read_text()
    other = tmp_path / "other"
    other.mkdir()
    opened(monkeypatch, other, "wandb", "wandb")
    assert (other / "wandb-run").read_text() != ids[0]


@pytest.mark.parametrize(("package", "sink"), [("tensorboardX", "tensorboard"), ("wandb", "wandb")])
def test_a_package_that_is_missing_is_named_with_its_sink(package, sink, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    settings = types.SimpleNamespace(run=types.SimpleNamespace(sinks=[sink]))
    with pytest.raises(config.ConfigError) as refused:
        sinks.open_sinks(settings, tmp_path, 0)
    message = str(refused.value)
    assert message.startswith(f"run.sinks has '{sink}', but {package} cannot be imported (")
    assert message.endswith(f"pip install {package}")
