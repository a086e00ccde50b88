"""Trains a small PyTorch model with the same bits on any number of processes.

    python examples/elastic_torch.py STORE TASK FOLDER [STEPS]
    torchrun --nproc-per-node 3 examples/elastic_torch.py STORE TASK FOLDER [STEPS]

TASK has a boolean target. Each step's batch is eight microbatches, of which each process computes
some; `headwater.torch.TreeSum` adds up their gradients in one order. The program writes a
checkpoint into FOLDER after every tenth step, and goes on from it when it is started again, with
any number of processes up to eight. It prints the digest of all losses and parameters.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import headwater
from headwater.torch import SamplerDataset, TreeSum

MICROBATCHES, MICROBATCH_SIZE, SEQUENCE_LENGTH = 8, 8, 64
SAVED_EVERY = 10


class Model(nn.Module):
    """The probability of a target, from the sum of the numbers of each column and how many."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.layers = nn.Sequential(nn.Linear(2 * columns, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Returns the logit of each context."""
        is_seen = (batch["is_padding"] + batch["is_target"] + batch["is_null"]) == 0
        of_column = nn.functional.one_hot(batch["column_ids"].long(), self.columns).float()
        of_column *= is_seen[..., None]
        value = batch["numeric_values"] + batch["bool_values"]
        sums, counts = (value[..., None] * of_column).sum(1), of_column.sum(1)
        return self.layers(torch.cat([sums, torch.log1p(counts)], 1))[:, 0]


def loss_of(model: Model, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the loss of a microbatch, a share of that of the whole batch."""
    place = batch["target_pos"].long()[:, None]
    label = batch["bool_values"].gather(1, place)[:, 0].float()
    each = nn.functional.binary_cross_entropy_with_logits(model(batch), label, reduction="sum")
    return each / (MICROBATCHES * MICROBATCH_SIZE)


def train(store: str, task: str, folder: Path, steps: int, device: torch.device) -> str:
    """Trains up to a step; returns the digest of the losses and parameters."""
    own = TreeSum(MICROBATCHES).numbers
    settings: dict[str, Any] = {
        "tasks": [task],
        "default_batch_size": MICROBATCH_SIZE,
        "default_sequence_length": SEQUENCE_LENGTH,
    }
    # A microbatch is what a rank would have of as many: so all processes have one global batch.
    samplers = [
        headwater.Sampler(store, number, MICROBATCHES, num_threads=1, **settings) for number in own
    ]
    torch.manual_seed(0)
    model = Model(len(headwater.Store(store).column_embeddings())).to(device)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, 3e-3)
    losses, checkpoint = [], folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True, map_location=device)
        losses = state["losses"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for sampler in samplers:
            sampler.resume(state["cursor"])
    streams = [iter(SamplerDataset(sampler)) for sampler in samplers]
    for step in range(len(losses) + 1, steps + 1):
        total = TreeSum(MICROBATCHES)
        for stream in streams:
            batch = {name: array.to(device) for name, array in next(stream).items()}
            loss = loss_of(model, batch)
            total.push([loss, *torch.autograd.grad(loss, parameters)])
        loss, *gradients = total.whole()
        losses.append(loss.item())
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        if step % SAVED_EVERY == 0 and own.start == 0:
            state = {
                "losses": losses,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "cursor": samplers[0].cursor(),
            }
            # Whole or not at all.
            torch.save(state, folder / "checkpoint.new")
            os.replace(folder / "checkpoint.new", checkpoint)
    digest = hashlib.sha256(repr(losses).encode())
    for parameter in parameters:
        digest.update(parameter.detach().cpu().numpy().tobytes())
    if losses:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}", file=sys.stderr)
    return digest.hexdigest()[:16]


def main() -> None:
    """Trains, on the processes that torchrun started or in this one alone."""
    store, task, folder, *steps = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    # Kernels that add in a fixed order: without it the bits would not even repeat on a GPU.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    if world > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    digest = train(store, task, Path(folder), int(steps[0]) if steps else 60, device)
    if rank == 0:
        print(digest)
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
