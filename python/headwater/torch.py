"""A PyTorch dataset over a sampler, masks, sums with the same bits: `pip install torch`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater._alias import alias
from headwater._attention import check_batch
from headwater._headwater import InvalidArgument
from headwater._optional import installed_by
from headwater._tree import Fold, Leaves, nodes_within, share
from headwater.events import Events
from headwater.sampler import Sampler, Split

with installed_by("pip install torch"):
    import torch
    import torch.distributed
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

    Raises:
        InvalidArgument: The batch lacks an array; the message names it.

    Example:
        >>> masks = attention_masks(next(iter(SamplerDataset(sampler))))  # doctest: +SKIP
    """
    check_batch(batch)
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


# Tensors by name or in a list, or one tensor.
Tensors: TypeAlias = "torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]"
# The names of tensors, or their places in a list; None for one tensor.
_Names: TypeAlias = list[str] | range | None


def tree_sum(tensors: Tensors, *, leaves: int, group: Any = None) -> Any:
    """Returns the sum of `leaves` leaves, with the same bits for any number of processes.

    `torch.distributed.all_reduce` adds in an order that the number of processes decides. This
    function adds along a fixed tree over the numbers of the leaves, such as the microbatches of a
    training step. It is a collective: all processes of the group call it, each with its own leaves.

    Args:
        tensors: One tensor, or several in a list or by name, each [n, ...]: the leaves of this
            process along the first axis, as many as `TreeSum(leaves).numbers`.
        leaves: The number of leaves of all processes, at least one for each.
        group: The process group; default: all processes, this one alone if PyTorch connects none.

    Returns:
        Tensors [...] of the same form and types, on every process.

    Raises:
        InvalidArgument: A tensor has another number of leaves, or there are more processes.

    Example:
        >>> tree_sum(torch.tensor([1.0, 2.0, 4.0]), leaves=3)  # doctest: +SKIP
        tensor(7.)
    """
    total = TreeSum(leaves, group)
    names, flat = _flat(tensors)
    for tensor in flat:
        if tensor.shape[:1] != (len(total.numbers),):
            raise InvalidArgument(
                f"expected tensors of {len(total.numbers)} leaves along the first axis, this "
                f"process's share of leaves={leaves}, found the shape {list(tensor.shape)}"
            )
    for place in range(len(total.numbers)):
        total.push(_in_form(names, [tensor[place] for tensor in flat]))
    return total.whole()


class TreeSum:
    """The leaves of one process for `tree_sum`, added up as they come: gradient accumulation.

    Of n leaves it keeps about log2(n) sums.

    Args:
        leaves: The number of leaves of all processes, at least one for each.
        group: The process group; default: all processes, this one alone if PyTorch connects none.

    Raises:
        InvalidArgument: There are more processes than leaves.

    Example:
        >>> total = TreeSum(leaves=8)  # doctest: +SKIP
        >>> for number in total.numbers:  # doctest: +SKIP
        ...     loss = loss_of(model, microbatch(number))
        ...     total.push(torch.autograd.grad(loss, list(model.parameters())))
        >>> gradients = total.whole()  # doctest: +SKIP
    """

    def __init__(self, leaves: int, group: Any = None) -> None:
        self._group, rank, world = group, 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank(group)
            world = torch.distributed.get_world_size(group)
        if rank < 0:
            raise InvalidArgument(
                "expected a process that belongs to the group, found one that does not; call this "
                "in the processes of the group alone"
            )
        self._nodes = [nodes_within(share(leaves, of, world)) for of in range(world)]
        self._leaves: Leaves[list[torch.Tensor]] = Leaves(leaves, rank, world, _added)
        # The numbers of this process's leaves, in the order in which they are pushed.
        self.numbers = self._leaves.numbers
        self._names: _Names = None

    def push(self, tensors: Tensors) -> None:
        """Adds the next leaf of this process: tensors of the same form, shapes and types each time.

        Raises:
            InvalidArgument: It has another form than the leaf before, or is one too many.
        """
        self._names, flat = _flat(tensors)
        form = _in_form(self._names, [f"{of.dtype} {list(of.shape)}" for of in flat])
        # Copies, since the caller may use the memory again.
        self._leaves.push(form, lambda: [of.detach().clone() for of in flat])

    def whole(self) -> Any:
        """Returns the sum of all leaves of all processes; a collective, as `tree_sum` is.

        Raises:
            InvalidArgument: A leaf of this process was not pushed, or another process has other
                tensors or another number of leaves.
        """
        if len(self._nodes) == 1:
            # Of one leaf, the sum is the leaf, which is kept.
            sums = [of.clone() for of in self._leaves.whole()]
        else:
            sums = self._sum_of_processes(self._leaves.nodes())
        return _in_form(self._names, sums)

    def _sum_of_processes(self, own: Sequence[list[torch.Tensor]]) -> list[torch.Tensor]:
        """Returns the sum of all processes' nodes, of which `own` are those of this one."""
        self._check_others(own[0])
        sums: list[Any] = [None] * len(own[0])
        for kind in dict.fromkeys((of.device, of.dtype) for of in own[0]):
            places = [at for at, of in enumerate(own[0]) if (of.device, of.dtype) == kind]
            rows = torch.stack([torch.cat([node[at].flatten() for at in places]) for node in own])
            parts = self._sum_of_vectors(rows).split([own[0][at].numel() for at in places])
            for at, part in zip(places, parts, strict=True):
                sums[at] = part.reshape(own[0][at].shape)
        return sums

    def _check_others(self, own: Sequence[torch.Tensor]) -> None:
        """Refuses other tensors or another number of leaves in other processes."""
        text = repr((len(self._nodes), self._nodes[-1][-1], self._leaves.form)).encode()
        mine = torch.tensor(list(hashlib.blake2b(text, digest_size=16).digest()), dtype=torch.uint8)
        if own:
            mine = mine.to(own[0].device)
        everybody = mine.new_empty(len(self._nodes) * len(mine))
        torch.distributed.all_gather_into_tensor(everybody, mine, self._group)
        others = (everybody.reshape(len(self._nodes), -1) != mine).any(1).nonzero().flatten()
        if len(others):
            raise InvalidArgument(
                "expected the same number of leaves, names, shapes and types in all processes, "
                f"found other ones in ranks {others.tolist()} than in this process, which has "
                f"{self._leaves.form}"
            )

    def _sum_of_vectors(self, own: torch.Tensor) -> torch.Tensor:
        """Returns the sum of all processes' nodes, the rows of `own` [n, P] on each."""
        world, (rows, length) = len(self._nodes), own.shape
        if not length:
            return own.new_empty(0)
        # Each process adds up a W-th of the numbers, in the order of the tree.
        part = -(-length // world)
        own = torch.nn.functional.pad(own, (0, world * part - length))
        sent = own.reshape(rows, world, part).transpose(0, 1).reshape(-1, part)
        counts = [len(nodes) for nodes in self._nodes]
        received = own.new_empty((sum(counts), part))
        # As bytes: not every backend carries every type.
        torch.distributed.all_to_all_single(
            received.view(torch.uint8), sent.view(torch.uint8), counts, [rows] * world, self._group
        )
        fold: Fold[list[torch.Tensor]] = Fold(_added)
        for row, node in enumerate(node for nodes in self._nodes for node in nodes):
            fold.push(node, [received[row]])
        whole = own.new_empty(world * part)
        torch.distributed.all_gather_into_tensor(
            whole.view(torch.uint8), fold.whole()[0].view(torch.uint8), self._group
        )
        return whole[:length]


def _added(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    return [_sum_of_two(one, other) for one, other in zip(left, right, strict=True)]


def _sum_of_two(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Returns the sum. Each NaN has the same bits, whichever processor adds."""
    total = left + right
    if not (total.is_floating_point() or total.is_complex()):
        return total
    return total.masked_fill_(total.isnan(), math.nan)


def _flat(tensors: Tensors) -> tuple[_Names, list[torch.Tensor]]:
    """Returns the names of the tensors, and the tensors in a list."""
    names: _Names = None
    if isinstance(tensors, torch.Tensor):
        flat = [tensors]
    elif isinstance(tensors, Mapping):
        # In the order of the names, because another process may have them in another order.
        names = sorted(tensors)
        flat = [tensors[name] for name in names]
    else:
        flat = list(tensors)
        names = range(len(flat))
    for tensor in flat:
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(
                f"expected tensors, found {type(tensor).__name__}; for a parameter without a "
                "gradient give torch.zeros_like(parameter)"
            )
        if tensor.layout is not torch.strided:
            raise InvalidArgument(
                f"expected dense tensors, found one of the layout {tensor.layout}; give "
                "tensor.to_dense()"
            )
    return names, flat


def _in_form(names: _Names, flat: list[Any]) -> Any:
    """Returns values, one for each tensor, in the form of the tensors with these names."""
    if names is None:
        return flat[0]
    return flat if isinstance(names, range) else dict(zip(names, flat, strict=True))
