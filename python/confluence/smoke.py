"""A smoke test: a few hundred steps on synthetic contexts must learn every type of target."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from confluence import config, synthetic
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP
from confluence.parallel import Layout
from confluence.step import Program

NAMES = {
    NUMERICAL: "numerical",
    TIMESTAMP: "timestamp",
    BOOLEAN: "boolean",
    CATEGORICAL: "categorical",
}
# A type counts as learnt if its last loss is below this share of its first.
LEARNT_SHARE = 0.5

SETTINGS = config.Config(
    model=config.Model(width=64, heads=4, layers=2, hidden=128, rematerialise=False),
    data=config.Data(batch_size=32, sequence_length=31, max_rows=5),
    optimizer=config.Optimizer(steps=400, warmup_steps=20, adam_rate=3e-3),
)


def smoke(
    *,
    report: Callable[[str], object] = lambda _: None,
    attention: config.Attention = "dense",
    steps: int = SETTINGS.optimizer.steps,
) -> dict[str, tuple[float, float]]:
    """Trains on all types in turn; returns the first and the last loss of each.

    The losses are means over the first and the last ten steps of a type. `report` is called with a
    line of text every 80 steps.
    """
    settings = dataclasses.replace(
        SETTINGS,
        model=dataclasses.replace(SETTINGS.model, attention=attention),
        optimizer=dataclasses.replace(SETTINGS.optimizer, steps=steps),
    )
    layout = Layout(jax.devices()[:1])
    program = Program(settings, *synthetic.vocabulary_and_tables(), layout)
    draws = np.random.default_rng(2)
    state, stop = program.initial(), layout.flag_to_devices(False)
    losses: dict[int, list[float]] = {kind: [] for kind in synthetic.TARGET_TYPES}
    for step in range(settings.optimizer.steps):
        kind = synthetic.TARGET_TYPES[step % len(synthetic.TARGET_TYPES)]
        batch = layout.to_devices(synthetic.batch(settings.data, kind, draws))
        state, metrics = program.step(state, batch, stop)
        losses[kind].append(float(metrics.loss))
        if (step + 1) % 80 == 0:
            now = "  ".join(f"{NAMES[k]} {np.mean(v[-10:]):.3f}" for k, v in losses.items())
            report(f"step {step + 1}/{settings.optimizer.steps}  {now}")
    return {
        NAMES[kind]: (float(np.mean(of_kind[:10])), float(np.mean(of_kind[-10:])))
        for kind, of_kind in losses.items()
    }
