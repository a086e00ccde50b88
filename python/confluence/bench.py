"""What a step costs: making its batch, and computing."""

from __future__ import annotations

import statistics
import time
from typing import Any, Literal

import jax
import numpy as np

from confluence import config, synthetic
from confluence.assembly import assembled
from confluence.feed import Feed
from confluence.parallel import Layout, Processes
from confluence.step import Program

What = Literal["batches", "steps", "both"]

# Steps that are not measured: the first compiles.
_WARM = 3


def bench(settings: config.Config, steps: int, what: What) -> dict[str, Any]:
    """Returns medians over `steps` of making batches alone, of computing alone, or of both.

    Computing alone is on made-up contexts, and needs no store.
    """
    if what == "steps":
        return _steps_alone(settings, steps)
    with assembled(settings, Processes()) as parts:
        feed = Feed(parts.sampler, parts.form, settings.run.ahead_on_device)
        try:
            state = parts.program.initial() if what == "both" else None
            flag = parts.layout.put_flag(False)
            seconds, cells, waited, cpu = [], 0, 0.0, 0.0
            for step in range(_WARM + steps):
                if step == _WARM:
                    cells, waited, cpu = 0, feed.waited_seconds, time.process_time()
                begun = time.perf_counter()
                fed = feed.take()
                if state is not None:
                    state, told = parts.program.step(state, fed.batch, flag)
                    jax.block_until_ready(told)
                seconds.append(time.perf_counter() - begun)
                cells += fed.cells
        finally:
            feed.close()
    return {
        **_summary(seconds, cpu),
        "cells_per_second": cells / sum(seconds[_WARM:]),
        "data_wait": (feed.waited_seconds - waited) / sum(seconds[_WARM:]),
    }


def _steps_alone(settings: config.Config, steps: int) -> dict[str, Any]:
    layout = Layout()
    program = Program(settings, *synthetic.vocabulary_and_tables(), layout)
    state, flag = program.initial(), layout.put_flag(False)
    draws = np.random.default_rng(1)
    batch = layout.put_batch(synthetic.batch(settings.data, synthetic.TARGET_TYPES[0], draws))
    seconds, cpu = [], 0.0
    for step in range(_WARM + steps):
        if step == _WARM:
            cpu = time.process_time()
        begun = time.perf_counter()
        state, told = program.step(state, batch, flag)
        jax.block_until_ready(told)
        seconds.append(time.perf_counter() - begun)
    cells = settings.data.batch_size * settings.data.cells * steps
    return {**_summary(seconds, cpu), "cells_per_second": cells / sum(seconds[_WARM:])}


def _summary(seconds: list[float], cpu_begun: float) -> dict[str, Any]:
    measured = seconds[_WARM:]
    return {
        "device": jax.devices()[0].device_kind,
        "devices": jax.process_count(),
        "steps": len(measured),
        "first_seconds": seconds[0],
        "step_seconds": statistics.median(measured),
        "step_cpu_seconds": (time.process_time() - cpu_begun) / len(measured),
    }
