"""A PyTorch dataset over a sampler, and masks of its batches: `pip install torch`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater._alias import alias
from headwater._headwater import InvalidArgument
from headwater._optional import installed_by
from headwater.events import Events
from headwater.sampler import Sampler, Split

with installed_by("pip install torch"):
    import torch
    import torch.utils.data

# PyTorch stores these types, but supports neither indexing nor addition for them.
_WIDER = {"uint16": np.int32, "uint32": np.int64}


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """Returns an array as a tensor of the same memory, or as a copy in a wider type."""
    wider = _WIDER.get(array.dtype.name)
    return torch.from_numpy(alias(array) if wider is None else array.astype(wider))


class AttentionMasks(NamedTuple):
    """Which cells attend to which, bool [B, S, S]: True at (b, i, j) if cell i attends to j."""

    # Cells of the same column.
    column: torch.Tensor
    # Cells of the same row.
    feature: torch.Tensor
    # Cells of rows that refer to the cell's row, or that it refers to.
    neighbor: torch.Tensor


def attention_masks(batch: Mapping[str, torch.Tensor]) -> AttentionMasks:
    """Returns the three masks of relational attention for a batch, made on its device.

    Padding attends to nothing and nothing to it, but each cell attends to itself in every mask: a
    row of a mask without any True would make a softmax NaN. It takes batches in both forms, and
    suits `scaled_dot_product_attention(..., attn_mask=mask[:, None])`.

    Example:
        >>> masks = attention_masks(next(iter(SamplerDataset(sampler))))  # doctest: +SKIP
    """
    rows, columns = batch["seq_row_ids"].long(), batch["column_ids"]
    edges, is_cell = batch["fk_edges"].long(), batch["is_padding"] == 0
    count, most_rows = len(rows), batch["row_hop"].shape[1]
    # Unused edges have rows out of range: they get one of their own, which no cell has.
    child, parent = edges.clamp(max=most_rows).unbind(dim=2)
    sequence = torch.arange(count, device=rows.device)[:, None]
    matrix = torch.zeros(
        (count, most_rows + 1, most_rows + 1), dtype=torch.bool, device=rows.device
    )
    matrix[sequence, child, parent] = True
    matrix |= matrix.transpose(1, 2).clone()
    both = is_cell[:, :, None] & is_cell[:, None, :]
    itself = torch.eye(rows.shape[1], dtype=torch.bool, device=rows.device)
    masks = (
        columns[:, :, None] == columns[:, None, :],
        rows[:, :, None] == rows[:, None, :],
        matrix[sequence[:, :, None], rows[:, :, None], rows[:, None, :]],
    )
    return AttentionMasks(*(mask & both | itself for mask in masks))


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
