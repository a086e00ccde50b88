"""The sampler as a dataset of PyTorch: `pip install torch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data

from headwater._headwater import InvalidArgument
from headwater.sampler import Sampler, Split

# PyTorch can hold numbers of these types, but neither look anything up by them nor add them.
_WIDER = {"uint16": np.int32, "uint32": np.int64}


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """A copy, since PyTorch would have its tensors writable."""
    return torch.from_numpy(array.astype(_WIDER.get(array.dtype.name, array.dtype)))


class SamplerDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A stream of batches as tensors on the host; its state is the sampler's cursor.

    Give it to `StatefulDataLoader(dataset, batch_size=None)`, with `num_workers=0`: the sampler has
    threads of its own, and they need no worker processes. What is uint16 or uint32 in
    `sampler/FORMAT.md` is int32 or int64 here, so that it can be an index.

    Args:
        sampler: Where the batches come from.
        split: The stream.
    """

    def __init__(self, sampler: Sampler, split: Split = "train") -> None:
        super().__init__()
        self._sampler = sampler
        self._split: Split = split

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if torch.utils.data.get_worker_info() is not None:
            raise InvalidArgument(
                "a worker process would draw the same batches as every other; use num_workers=0"
            )
        while True:
            batch, _ = self._sampler.next_batch(self._split)
            yield {name: _tensor(array) for name, array in batch.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the cursor."""
        return {"cursor": self._sampler.cursor()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state; one of another plan is refused."""
        self._sampler.resume(state["cursor"])
