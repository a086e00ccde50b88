"""Trains in plain PyTorch with torchdata's StatefulDataLoader, whose state has the cursor.

    python examples/clients/torch_loop.py STORE FOLDER STEPS

STORE is demo/churn of `make demo`. Every third step is saved in FOLDER; started again, the program
goes on from the last one. It needs torch and torchdata.
"""

import os
from pathlib import Path

import torch
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

from features import arguments, columns_of, features, open_sampler
from headwater.torch import SamplerDataset


def train(store: str, folder: Path, steps: int) -> None:
    """Trains up to a step."""
    columns, saved, first = columns_of(store), folder / "saved.pt", 0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2 * columns, 32), nn.GELU(), nn.Linear(32, 1), nn.Flatten(0))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    # The sampler has its own threads: worker processes are not needed.
    dataset = SamplerDataset(open_sampler(store))
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=0)
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        first = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
    for step, batch in zip(range(first + 1, steps + 1), loader, strict=False):
        arrays = {name: tensor.numpy() for name, tensor in batch.items()}
        inputs, labels = map(torch.from_numpy, features(arrays, columns))
        loss = nn.functional.binary_cross_entropy_with_logits(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if step % 3 == 0:
            state = {"step": step, "model": model.state_dict(), "loader": loader.state_dict()}
            torch.save(state | {"optimizer": optimizer.state_dict()}, folder / "partial.pt")
            # Under its name it is whole.
            os.replace(folder / "partial.pt", saved)


if __name__ == "__main__":
    train(*arguments(__doc__))
