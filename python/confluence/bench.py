"""Benchmarks: the time that a step takes for making its batch, and for computing."""

from __future__ import annotations

import statistics
import time
from typing import Any, Literal

import jax
import numpy as np

from confluence import config, synthetic
from confluence.assembly import assemble
from confluence.batch import Batch
from confluence.feed import Feed
from confluence.microbatches import Microbatches, split
from confluence.parallel import Layout, Processes
from confluence.step import Program

Subject = Literal["batches", "steps", "both"]

# Steps that are not measured: the first one compiles.
_WARM_UP = 3


def bench(settings: config.Config, steps: int, subject: Subject) -> dict[str, Any]:
    """Returns medians over `steps` of making batches alone, of computing alone, or of both.

    Computing alone takes synthetic contexts, and needs no store.
    """
    if subject == "steps":
        return _bench_computing(settings, steps)
    with assemble(settings, Processes()) as parts:
        feed = Feed(parts.samplers, parts.transfer, settings.run.ahead_on_device)
        try:
            state = parts.program.initial() if subject == "both" else None
            stop = parts.layout.flag_to_devices(False)
            seconds, cells, waited, cpu = [], 0, 0.0, 0.0
            for step in range(_WARM_UP + steps):
                if step == _WARM_UP:
                    parts.status.show("measuring steps")
                    cells, waited, cpu = 0, feed.waited_seconds, time.process_time()
                start = time.perf_counter()
                fed = feed.next_batch()
                if state is not None:
                    state, metrics = parts.program.step(state, fed.batch, stop)
                    jax.block_until_ready(metrics)
                seconds.append(time.perf_counter() - start)
                cells += fed.cells
        finally:
            feed.close()
    return {
        **_summary(seconds, cpu),
        "cells_per_second": cells / sum(seconds[_WARM_UP:]),
        "data_wait": (feed.waited_seconds - waited) / sum(seconds[_WARM_UP:]),
    }


def synthetic_program(
    settings: config.Config,
) -> tuple[Program, Batch | Microbatches, jax.Array]:
    """Returns the compiled functions, a synthetic batch, and the unset flag to stop."""
    layout = Layout()
    program = Program(settings, *synthetic.vocabulary_and_tables(), layout)
    draws = np.random.default_rng(1)
    batch = synthetic.batch(settings.data, synthetic.TARGET_TYPES[0], draws)
    count = config.microbatches(settings)
    on_device = split(batch, count, layout) if count else layout.to_devices(batch)
    return program, on_device, layout.flag_to_devices(False)


def _bench_computing(settings: config.Config, steps: int) -> dict[str, Any]:
    program, batch, stop = synthetic_program(settings)
    state = program.initial()
    seconds, cpu = [], 0.0
    for step in range(_WARM_UP + steps):
        if step == _WARM_UP:
            cpu = time.process_time()
        start = time.perf_counter()
        state, metrics = program.step(state, batch, stop)
        jax.block_until_ready(metrics)
        seconds.append(time.perf_counter() - start)
    cells = settings.data.batch_size * settings.data.sequence_length * steps
    return {**_summary(seconds, cpu), "cells_per_second": cells / sum(seconds[_WARM_UP:])}


def _summary(seconds: list[float], cpu_start: float) -> dict[str, Any]:
    measured = seconds[_WARM_UP:]
    return {
        "device": jax.devices()[0].device_kind,
        "devices": jax.process_count(),
        "steps": len(measured),
        "first_seconds": seconds[0],
        "step_seconds": statistics.median(measured),
        "step_cpu_seconds": (time.process_time() - cpu_start) / len(measured),
    }
