"""A few hundred steps on made-up contexts: whether everything works, and each type is learnt."""

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
# What is left of each loss at the end, at most, for the type to count as learnt.
SHARE = 0.5

SETTINGS = config.Config(
    model=config.Model(width=64, heads=4, layers=2, hidden=128, rematerialise=False),
    data=config.Data(batch_size=32, cells=31, rows=5),
    optimizer=config.Optimizer(steps=400, warmup_steps=20, adam_rate=3e-3),
)


def smoke(
    tell: Callable[[str], object] = lambda _: None, attention: config.Attention = "dense"
) -> dict[str, tuple[float, float]]:
    """Trains on all types by turns; returns the first and the last loss of each.

    The losses are means over the first and the last ten steps of a type.
    """
    model = dataclasses.replace(SETTINGS.model, attention=attention)
    settings = dataclasses.replace(SETTINGS, model=model)
    layout = Layout(jax.devices()[:1])
    program = Program(settings, *synthetic.vocabulary_and_tables(), layout)
    draws = np.random.default_rng(2)
    state, flag = program.initial(), layout.put_flag(False)
    losses: dict[int, list[float]] = {kind: [] for kind in synthetic.TARGET_TYPES}
    for step in range(settings.optimizer.steps):
        kind = synthetic.TARGET_TYPES[step % len(synthetic.TARGET_TYPES)]
        made = layout.put_batch(synthetic.batch(settings.data, kind, draws))
        state, told = program.step(state, made, flag)
        losses[kind].append(float(told.loss))
        if (step + 1) % 80 == 0:
            now = "  ".join(f"{NAMES[k]} {np.mean(v[-10:]):.3f}" for k, v in losses.items())
            tell(f"step {step + 1}/{settings.optimizer.steps}  {now}")
    return {
        NAMES[kind]: (float(np.mean(of[:10])), float(np.mean(of[-10:])))
        for kind, of in losses.items()
    }
