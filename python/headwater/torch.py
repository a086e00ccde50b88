"""A PyTorch dataset over a sampler: `pip install torch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data

from headwater._alias import alias
from headwater._headwater import InvalidArgument
from headwater.events import Events
from headwater.sampler import Sampler, Split

# PyTorch stores these types, but supports neither indexing nor addition for them.
_WIDER = {"uint16": np.int32, "uint32": np.int64}


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """Returns an array as a tensor of the same memory, or as a copy in a wider type."""
    wider = _WIDER.get(array.dtype.name)
    return torch.from_numpy(alias(array) if wider is None else array.astype(wider))


class SamplerDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A stream of batches as tensors on the host; its state is the sampler's cursor.

    Pass it to `StatefulDataLoader(dataset, batch_size=None, num_workers=0)`. The sampler has its
    own threads, so worker processes are not needed. Tensors that are uint16 or uint32 in
    `sampler/FORMAT.md` are int32 or int64 here, so that they can be indices. All others have the
    memory of the batch, without a copy, which is reused after the last of them is deleted. PyTorch
    cannot protect it: `clone()` a tensor before you change it.

    Args:
        sampler: The `Sampler`, or the `Events`, that makes the batches.
        split: The split whose stream is read.
    """

    def __init__(self, sampler: Sampler | Events, split: Split = "train") -> None:
        super().__init__()
        self._sampler = sampler
        self._split: Split = split

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if torch.utils.data.get_worker_info() is not None:
            raise InvalidArgument(
                "expected no worker processes, because each would yield the same batches, found a "
                "worker process; use num_workers=0"
            )
        while True:
            batch, _ = self._sampler.next_batch(self._split)
            yield {name: _tensor(array) for name, array in batch.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the cursor."""
        return {"cursor": self._sampler.cursor()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from a state; a state of another plan is refused."""
        if not isinstance(state, dict) or "cursor" not in state:
            raise InvalidArgument(
                'state: expected what state_dict returned, with a "cursor", found '
                f"{sorted(state) if isinstance(state, dict) else type(state).__name__}"
            )
        self._sampler.resume(state["cursor"])
