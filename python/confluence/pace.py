"""How many steps and evaluations fit into the minutes of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from confluence.speed import Speed
from headwater.sampler import Split

SPLITS: tuple[Split, ...] = ("train", "val", "test")
# For each task its seeds in each split.
SeedCounts = Mapping[str, Mapping[Split, int]]

# More epochs teach little, or too much; but few seeds need some steps all the same.
_MOST_EPOCHS = 4
_STEPS_OF_FEW_SEEDS = 500
_LEAST_STEPS = 16
# Evaluations after steps; one more comes before the first step.
_EVALUATIONS = 8
_PATIENCE = 4
# The share of the time that evaluations take at most.
_EVALUATION_SHARE = 0.15
_LEAST_EVALUATION_BATCHES = 16
# For opening the store, baselines and the report.
_OTHER_SHARE = 0.05
_CHECKPOINT_SECONDS = 30
_WARMUP_STEPS = 50
# A training of fewer steps and epochs is not worth its minutes: see `Pace.is_too_short`.
_SENSIBLE_STEPS = 50
_SENSIBLE_EPOCHS = 0.1
# The factor between two numbers of minutes that are tried.
_MORE_MINUTES = 1.25


class Pace(NamedTuple):
    """The steps and evaluations of a run, and how long it takes."""

    steps: int
    warmup_steps: int
    evaluate_every: int
    # 0: the whole split.
    evaluate_batches: int
    checkpoint_every: int
    patience: int
    epochs: float
    # All of it, of which the last evaluations take some.
    minutes: float
    last_evaluation_minutes: float
    wanted_minutes: float
    # What would be enough for one epoch.
    epoch_minutes: float
    # The steps of an epoch.
    epoch_steps: float

    @property
    def sensible_steps(self) -> int:
        """The least steps that are worth their minutes.

        These are 50 steps or an epoch, and a tenth of an epoch or as many steps as few seeds get.
        """
        least = min(_SENSIBLE_STEPS, self.epoch_steps)
        of_epoch = min(_SENSIBLE_EPOCHS * self.epoch_steps, _STEPS_OF_FEW_SEEDS)
        return math.ceil(max(least, of_epoch))

    @property
    def is_too_short(self) -> bool:
        """Whether the minutes allow so few steps that the model learns next to nothing."""
        return self.steps < self.sensible_steps

    def lines(self, speed: Speed) -> list[str]:
        """Returns what the times are, in sentences that name the machine."""
        lines = [
            f"This machine takes {speed.step_seconds:.2g} s for a step, "
            f"{speed.predict_seconds:.2g} s for a batch of an evaluation, "
            f"{speed.compile_seconds:.0f} s to compile.",
            f"On this machine {self.steps} steps are {self.epochs:.2g} epochs (at most "
            f"{_MOST_EPOCHS}, or {_STEPS_OF_FEW_SEEDS} steps if they are more), about "
            f"{in_minutes(self.minutes)} in all.",
        ]
        if self.epochs < 1:
            verb = "is" if self.wanted_minutes == 1 else "are"
            lines.append(
                f"On this machine {in_minutes(self.wanted_minutes, 'g')} {verb} too few for one "
                f"epoch, which takes {self.epoch_minutes:.2g}: some train seeds are never seen."
            )
        if self.last_evaluation_minutes > self.wanted_minutes / 2:
            lines.append(
                f"On this machine the last evaluation of val and test takes "
                f"{in_minutes(self.last_evaluation_minutes)} of {self.wanted_minutes:g}."
            )
        return lines


def in_minutes(minutes: float, form: str = ".2g") -> str:
    """Returns a time such as "1 minute" or "6.7 minutes"."""
    text = format(minutes, form)
    return f"{text} minute{'' if text == '1' else 's'}"


def choose(
    seconds: float, spent_seconds: float, speed: Speed, counts: SeedCounts, batch_size: int
) -> Pace:
    """Returns the steps and evaluations for a run of `seconds`, of which some are spent."""
    train = sum(of["train"] for of in counts.values())
    val, test = (sum(-(-of[split] // batch_size) for of in counts.values()) for split in SPLITS[1:])
    last = (val + test) * speed.predict_seconds
    fixed = spent_seconds + speed.compile_again_seconds + last
    left = max(0.0, seconds * (1 - _OTHER_SHARE) - fixed)
    evaluations = _EVALUATIONS + 1
    affordable = left * _EVALUATION_SHARE / evaluations / speed.predict_seconds
    is_whole = val <= affordable
    of_task = max(_LEAST_EVALUATION_BATCHES, int(affordable / len(counts)))
    batches = val if is_whole else min(val, of_task * len(counts))
    evaluation_seconds = evaluations * batches * speed.predict_seconds
    fitting = (left - evaluation_seconds) / speed.step_seconds
    most = max(_MOST_EPOCHS * train / batch_size, _STEPS_OF_FEW_SEEDS)
    every = int(max(_LEAST_STEPS, min(fitting, most))) // _EVALUATIONS
    steps = every * _EVALUATIONS

    def minutes(of_steps: float) -> float:
        used = fixed + evaluation_seconds + of_steps * speed.step_seconds
        return used / (1 - _OTHER_SHARE) / 60

    return Pace(
        steps=steps,
        warmup_steps=min(_WARMUP_STEPS, steps // 5),
        evaluate_every=every,
        evaluate_batches=0 if is_whole else of_task,
        checkpoint_every=max(1, min(every, int(_CHECKPOINT_SECONDS / speed.step_seconds))),
        patience=_PATIENCE,
        epochs=steps * batch_size / train,
        minutes=minutes(steps),
        last_evaluation_minutes=last / 60,
        wanted_minutes=seconds / 60,
        epoch_minutes=minutes(train / batch_size),
        epoch_steps=train / batch_size,
    )


def enough_minutes(
    minutes: float, choose_for: Callable[[float], Pace], most_minutes: float
) -> float:
    """Returns about the least minutes with a sensible number of steps, a whole number from 2 on.

    `choose_for` has the steps of a number of minutes.
    """

    def rounded(tried: float) -> float:
        return min(math.ceil(tried) if tried > 1 else math.ceil(10 * tried) / 10, most_minutes)

    enough = minutes
    # What is told is what was tried: more minutes may have longer contexts, and so slower steps.
    while enough < most_minutes and choose_for(rounded(enough)).is_too_short:
        enough *= _MORE_MINUTES
    return rounded(enough)
