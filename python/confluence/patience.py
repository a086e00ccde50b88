"""Patience: a run may end when its validation loss has not become better for a while."""

from __future__ import annotations

from typing import NamedTuple


class Validation(NamedTuple):
    """The evaluations of a run so far; a part of its checkpoints."""

    # The least mean validation loss after a step, and that step; the first of equal ones.
    best_loss: float | None = None
    best_step: int = 0
    # The evaluations since then.
    waited: int = 0

    def after(self, step: int, loss: float | None) -> Validation:
        """Returns this with one more evaluation; a loss of None is not finite, and never better."""
        if loss is not None and (self.best_loss is None or loss < self.best_loss):
            return Validation(loss, step, 0)
        return self._replace(waited=self.waited + 1)

    def is_over(self, patience: int) -> bool:
        """Returns whether as many evaluations as `patience` were no better; never if it is 0."""
        return 0 < patience <= self.waited
