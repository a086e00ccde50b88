"""What a run reports while it trains: its log, its speed, the line on the terminal, a trace."""

import json
import types

import numpy as np
import pytest

from confluence import config, progress
from confluence.feed import FedBatch
from confluence.progress import MetricsLog, ProfilerTrace, StepRecorder
from confluence.step import StepMetrics

STREAMS = ["shop/churn", "shop/spend"]


class Sink:
    def __init__(self):
        self.calls = []

    def write(self, step, numbers):
        self.calls.append((step, numbers))

    def flush(self):
        self.calls.append("flush")

    def close(self):
        self.calls.append("close")


def test_rank_0_writes_a_log_that_goes_on_after_its_checkpoint(tmp_path):
    path, sink = tmp_path / "metrics.jsonl", Sink()
    path.write_text('{"step": 4}\n{"step": 6}\n')
    log = MetricsLog(path, 5, is_leader=True, other_sinks=[sink])
    log.write({"step": 6, "task": "shop/churn", "loss": float("nan"), "norm": 2.0})
    log.flush()
    lines = ['{"step": 4}', '{"step": 6, "task": "shop/churn", "loss": null, "norm": 2.0}']
    assert path.read_text().splitlines() == lines
    log.close()
    (step, numbers), *ends = sink.calls
    assert (step, ends) == (6, ["flush", "close"])
    assert numbers["train/shop/churn/norm"] == 2.0
    assert log._file.closed


def test_the_other_ranks_write_no_log(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", 0, is_leader=False, other_sinks=[])
    log.write({"step": 1})
    log.flush()
    log.close()
    assert list(tmp_path.iterdir()) == []


class Clock:
    """A clock of seconds and of CPU seconds, which run as a test says."""

    def __init__(self, monkeypatch):
        self.seconds, self.cpu_seconds = 100.0, 50.0
        monkeypatch.setattr(
            progress,
            "time",
            types.SimpleNamespace(
                perf_counter=lambda: self.seconds, process_time=lambda: self.cpu_seconds
            ),
        )

    def run(self, seconds, cpu_seconds=0.0):
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def training(clock, tmp_path):
    """A recorder of a run of 10 steps that logs its speed every second step."""
    changes = [
        "data.stores=here", "optimizer.steps=10", "optimizer.warmup_steps=4", "run.log_every=2",
        "optimizer.muon_rate=0.4", "optimizer.adam_rate=0.04",
    ]  # fmt: skip
    shown = []
    parts = types.SimpleNamespace(
        settings=config.load(None, changes),
        streams=STREAMS,
        program=types.SimpleNamespace(compiled_steps=1),
        status=types.SimpleNamespace(show_sometimes=lambda *of: shown.append(of)),
    )
    feed = types.SimpleNamespace(waited_seconds=7.0)
    log = MetricsLog(tmp_path / "metrics.jsonl", 0, is_leader=True, other_sinks=[])

    def start(skipped=0):
        return StepRecorder(parts, log, feed, skipped)

    def records():
        log.flush()
        return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]

    yield types.SimpleNamespace(start=start, records=records, feed=feed, shown=shown)
    log.close()


def metrics(loss, skipped=0, masked=None):
    return StepMetrics(np.float32(loss), np.float32(2.5), np.int32(skipped), np.int32(0), masked)


def fed(task=0, cells=300, capacity=400, seconds=0.5):
    return FedBatch(None, b"", task, cells, capacity, seconds)


def test_each_step_has_a_record(training):
    recorder = training.start()
    recorder.record(1, fed(), metrics(0.5))
    masked = (np.array([0, 3.0, 0, 0, 0, 0]), np.array([0, 2, 0, 0, 0, 0]))
    recorder.record(3, fed(task=1), metrics(0.25, skipped=1, masked=masked))
    # A skipped step does not advance the rates.
    recorder.record(5, fed(), metrics(0.5, skipped=1))
    first, third, fifth = training.records()
    assert first == {
        "step": 1, "task": "shop/churn", "loss": 0.5, "gradient_norm": 2.5, "skipped": 0,
        "muon_rate": 0.0, "adam_rate": 0.0,
    }  # fmt: skip
    assert (third["task"], third["skipped"], third["masked"]) == (
        "shop/spend", 1, {progress.masked.TYPE_NAMES[1]: 1.5}
    )  # fmt: skip
    assert [third["muon_rate"], third["adam_rate"]] == pytest.approx([0.2, 0.02])
    assert fifth["muon_rate"] == pytest.approx(0.3)
    resumed = training.start(skipped=2)
    resumed.record(7, fed(), metrics(0.5, skipped=2))
    assert training.records()[-1]["muon_rate"] == pytest.approx(0.4)


def test_the_speed_is_that_of_the_steps_since_it_was_recorded(training, clock, monkeypatch):
    monkeypatch.setattr(progress, "_device_peak", lambda: 5)
    recorder = training.start()
    for step in (1, 2):
        clock.run(2.0, 3.0)
        training.feed.waited_seconds += 0.5
        recorder.record(step, fed(), metrics(0.5))
    # An evaluation does not count.
    with recorder.paused():
        clock.run(100.0, 100.0)
    for step in (3, 4):
        clock.run(1.0, 2.0)
        recorder.record(step, fed(cells=100, seconds=0.25), metrics(0.5))
    one, other = (of["speed"] for of in training.records() if "speed" in of)
    assert all(10**7 < of.pop("peak_bytes") < 10**12 for of in (one, other))
    assert one == {
        "step_seconds": 2.0,
        "step_cpu_seconds": 3.0,
        "cells_per_second": 150.0,
        "padding": 0.25,
        "data_wait": 0.25,
        "transfer_seconds": 0.5,
        "compiled_steps": 1,
        "device_peak_bytes": 5,
    }
    assert other == one | {
        "step_seconds": 1.0,
        "step_cpu_seconds": 2.0,
        "cells_per_second": 100.0,
        "padding": 0.75,
        "data_wait": 0.0,
        "transfer_seconds": 0.25,
    }
    assert [of["step"] for of in training.records() if "speed" in of] == [2, 4]


def test_the_cpu_seconds_of_a_step_are_those_of_all_processes(training, clock, monkeypatch):
    monkeypatch.setattr(progress.jax, "process_count", lambda: 3)
    recorder = training.start()
    clock.run(1.0, 4.0)
    recorder.record(2, fed(), metrics(0.5))
    assert training.records()[-1]["speed"]["step_cpu_seconds"] == 12.0


def test_the_peak_of_the_memory_is_in_bytes(training, monkeypatch):
    # The system counts in kibibytes.
    usage = types.SimpleNamespace(ru_maxrss=3)
    monkeypatch.setattr(progress.resource, "getrusage", lambda _: usage)
    training.start().record(2, fed(), metrics(0.5))
    assert training.records()[-1]["speed"]["peak_bytes"] == 3072


def test_the_line_has_the_losses_the_speed_and_the_time_that_is_left(training, clock):
    recorder = training.start()
    clock.run(500.0)
    recorder.record(1, fed(), metrics(0.5))
    # The first step compiles.
    assert training.shown == [("step 1/10", 0.1)]
    clock.run(60.0)
    recorder.record(2, fed(task=1), metrics(0.25))
    line, share = training.shown[-1]
    assert line.startswith("step 2/10  churn 0.5000  spend 0.2500  280.000 s/step  waiting for")
    assert line.endswith(" 0%  8 min left")
    assert share == 0.2
    clock.run(660.0)
    recorder.record(3, fed(), metrics(0.5))
    # 90 % of 60 s, and 10 % of 660 s, for seven steps.
    assert training.shown[-1][0].endswith("  14 min left")
    with recorder.paused():
        clock.run(9000.0)
    clock.run(120.0)
    recorder.record(4, fed(), metrics(0.75))
    assert training.shown[-1][0].endswith("  12 min left")
    assert "  churn 0.6250  " in training.shown[-1][0]


@pytest.fixture
def traced(monkeypatch):
    """The steps after which a trace was started or stopped."""
    calls = []
    profiler = types.SimpleNamespace(
        start_trace=lambda folder: calls.append(f"start {folder}"),
        stop_trace=lambda: calls.append("stop"),
    )
    monkeypatch.setattr(progress.jax, "profiler", profiler)

    def trace(span, steps, folder):
        calls.clear()
        found = ProfilerTrace(folder, span)
        for step in steps:
            found.before(step)
            calls.append(step)
            found.after(step)
        found.stop()
        return calls

    return trace


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((3, 4), [1, 2, "start x", 3, 4, "stop", 5, 6]),
        ((3, 3), [1, 2, "start x", 3, "stop", 4, 5, 6]),
        # The run ends first.
        ((5, 9), [1, 2, 3, 4, "start x", 5, 6, "stop"]),
        ((7, 9), [1, 2, 3, 4, 5, 6]),
        (None, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_trace_is_of_its_steps(span, expected, traced):
    assert traced(span, range(1, 7), "x") == expected


def test_a_run_that_resumes_within_a_span_traces_the_rest(traced):
    assert traced((1, 4), [3, 4, 5], "x") == ["start x", 3, 4, "stop", 5]


@pytest.mark.parametrize(
    ("stats", "peak"), [({"peak_bytes_in_use": 7}, 7), ({}, None), (None, None)]
)
def test_the_peak_of_a_device_is_known_or_not(stats, peak, monkeypatch):
    device = types.SimpleNamespace(memory_stats=lambda: stats)
    monkeypatch.setattr(progress.jax, "local_devices", lambda: [device])
    assert progress._device_peak() == peak
