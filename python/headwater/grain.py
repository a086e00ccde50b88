"""A grain dataset over the sampler: `pip install grain`."""

from __future__ import annotations

import base64
from typing import Any

import grain

from headwater.sampler import Batch, Sampler, Split


class SamplerDataset(grain.IterDataset):  # type: ignore[misc]
    """A stream of batches for a grain pipeline; its state is the sampler's cursor.

    Args:
        arguments: The arguments of `headwater.Sampler`, by name.
        split: The split whose stream is read.
        batch_count: The number of batches in the stream; default: the stream is endless.
    """

    def __init__(
        self, arguments: dict[str, Any], split: Split = "train", batch_count: int | None = None
    ) -> None:
        super().__init__()
        self._arguments = arguments
        self._split: Split = split
        self._batch_count = batch_count

    def __iter__(self) -> SamplerIterator:
        return SamplerIterator(Sampler(**self._arguments), self._split, self._batch_count)


class SamplerIterator(grain.DatasetIterator):  # type: ignore[misc]
    """One pass over a `SamplerDataset`; a saved state restores its position."""

    def __init__(self, sampler: Sampler, split: Split, batch_count: int | None) -> None:
        super().__init__()
        self._sampler = sampler
        self._split: Split = split
        self._batch_count = batch_count
        self._taken = 0

    def __next__(self) -> Batch:
        self._assert_not_closed()
        if self._taken == self._batch_count:
            raise StopIteration
        batch, _ = self._sampler.next_batch(self._split)
        self._taken += 1
        return batch

    def get_state(self) -> dict[str, Any]:
        """Returns the cursor as base64 text, and the number of batches taken."""
        cursor = base64.b64encode(self._sampler.cursor()).decode()
        return {"cursor": cursor, "taken": self._taken}

    def set_state(self, state: dict[str, Any]) -> None:
        """Resumes from a state; a state of another plan is refused."""
        self._sampler.resume(base64.b64decode(state["cursor"]))
        self._taken = state["taken"]

    def close(self) -> None:
        """Stops the sampler's threads."""
        super().close()
        self._sampler.shutdown()
