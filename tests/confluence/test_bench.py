"""What `confluence bench` counts, with a clock of the test."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import pytest

from confluence import bench, config
from confluence.batch import Batch
from confluence.microbatches import Microbatches

SETTINGS = config.load(None, ["data.batch_size=4", "data.sequence_length=10"])
# Three steps that are not measured, of which the first one compiles, and those that are.
SECONDS = [50.0, 9.0, 9.0, 1.0, 4.0, 2.0, 1.0]


class Clock:
    """Seconds that pass when a step runs, and half as many of the processor."""

    def __init__(self, seconds):
        self.now, self._left = 100.0, iter(seconds)

    def perf_counter(self):
        return self.now

    def process_time(self):
        return self.now / 2

    def step(self):
        self.now += next(self._left)


@pytest.fixture
def clock(monkeypatch):
    made = Clock(SECONDS)
    monkeypatch.setattr(bench, "time", made)
    return made


def program_of(step):
    def run(state, batch, stop):
        assert (batch, stop) == ("a batch", False)
        step()
        return state + 1, {}

    return SimpleNamespace(initial=lambda: 0, step=run)


def test_computing_alone_is_measured_after_the_warm_up(clock, monkeypatch):
    program = program_of(clock.step)
    monkeypatch.setattr(bench, "synthetic_program", lambda _: (program, "a batch", False))
    found = bench.bench(SETTINGS, 4, "steps")
    assert found.pop("device")
    assert found == {
        "devices": 1, "steps": 4, "first_seconds": 50.0, "step_seconds": 1.5,
        "step_cpu_seconds": 1.0, "cells_per_second": 4 * 4 * 10 / 8,
    }  # fmt: skip


@pytest.mark.parametrize("subject", ["batches", "both"])
def test_batches_are_measured_with_or_without_computing(subject, clock, monkeypatch):
    taken = itertools.count(1)
    feed = SimpleNamespace(waited_seconds=0.0, closed=False)

    def next_batch():
        # Of each step half the time is waited for the batch.
        before = clock.now
        if subject == "batches":
            clock.step()
        number = next(taken)
        feed.waited_seconds += (clock.now - before) / 2 if subject == "batches" else 0.25
        return SimpleNamespace(batch="a batch", cells=10 * number)

    def close():
        feed.closed = True

    feed.next_batch, feed.close = next_batch, close

    def feed_of(samplers, transfer, ahead):
        assert (samplers, transfer, ahead) == ("samplers", "transfer", 2)
        return feed

    def no_step():
        raise AssertionError("a step in a measurement of batches alone")

    parts = SimpleNamespace(
        samplers="samplers", transfer="transfer", status=SimpleNamespace(show=lambda _: None),
        layout=SimpleNamespace(flag_to_devices=lambda flag: flag),
        program=program_of(clock.step if subject == "both" else no_step),
    )  # fmt: skip

    def assemble(settings, processes):
        assert (settings, processes.count) == (SETTINGS, 1)
        return contextlib.nullcontext(parts)

    monkeypatch.setattr(bench, "assemble", assemble)
    monkeypatch.setattr(bench, "Feed", feed_of)
    found = bench.bench(SETTINGS, 4, subject)
    assert found.pop("device")
    assert found == {
        "devices": 1, "steps": 4, "first_seconds": 50.0, "step_seconds": 1.5,
        "step_cpu_seconds": 1.0, "cells_per_second": (40 + 50 + 60 + 70) / 8,
        "data_wait": 0.5 if subject == "batches" else 4 * 0.25 / 8,
    }  # fmt: skip
    assert feed.closed


@pytest.mark.parametrize("count", [0, 2])
def test_a_synthetic_batch_is_whole_or_in_the_parts_of_a_step(count):
    settings = config.load(
        None,
        [
            "model.width=8", "model.heads=1", "model.layers=1", "model.hidden=8",
            "data.batch_size=4", "data.sequence_length=16", "data.max_rows=4",
            f"optimizer.microbatches={count}",
        ],
    )  # fmt: skip
    _, batch, stop = bench.synthetic_program(settings)
    assert isinstance(batch, Microbatches if count else Batch)
    assert not bool(stop)
    if not count:
        assert batch.rows.shape == (4, 16)
