"""How long this machine takes to compile, to train a step and to predict a batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax

from confluence import compile_cache, config
from confluence.assembly import assemble
from confluence.parallel import Processes

_STEPS = 5


# What is compiled for a measurement is read from JAX's cache for the run, which takes this share.
_CACHED_SHARE = 0.25


class Speed(NamedTuple):
    """Seconds on this machine."""

    compile_seconds: float
    # For a run of the same configuration, afterwards.
    compile_again_seconds: float
    step_seconds: float
    predict_seconds: float

    def slower(self, factor: float) -> Speed:
        """Returns the speed if each step and batch takes so many times the seconds."""
        return self._replace(
            step_seconds=factor * self.step_seconds, predict_seconds=factor * self.predict_seconds
        )


def measure(settings: config.Config) -> Speed:
    """Returns medians over a few steps and batches, each with the making of its batch."""
    with assemble(settings, Processes()) as parts:
        stop = parts.layout.flag_to_devices(False)
        start = time.perf_counter()
        state = parts.program.initial()

        def train() -> None:
            nonlocal state
            batch = parts.transfer.to_device(parts.samplers.next_batch("train")[0])
            state, metrics = parts.program.step(state, batch, stop)
            jax.block_until_ready(metrics)

        def predict() -> None:
            batch = parts.transfer.to_device(parts.samplers.next_batch("train")[0])
            jax.device_get(parts.program.predict(state.inference_params, batch))

        train()
        predict()
        compile_seconds = time.perf_counter() - start
        parts.status.show("measuring steps")
        again = compile_seconds * (_CACHED_SHARE if compile_cache.is_used() else 1.0)
        return Speed(compile_seconds, again, _median(train), _median(predict))


def _median(action: Callable[[], None]) -> float:
    seconds = []
    for _ in range(_STEPS):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
