"""Trains by the Trainer of Hugging Face; its checkpoints have the cursor that belongs to them.

    python examples/clients/hugging_face.py STORE FOLDER STEPS

STORE is demo/churn of `make demo`. Every third step is saved in FOLDER; started again, the program
goes on from the last one. It needs torch, transformers and accelerate.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import headwater
from features import arguments, columns_of, features, open_sampler

CURSOR = "headwater.cursor"


class Model(nn.Module):
    """A model whose `forward` returns the loss, as the Trainer wants it."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2 * columns, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the loss and the logits of a batch."""
        logits = self.layers(inputs)[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        return {"loss": loss, "logits": logits}


class Batches(torch.utils.data.IterableDataset):
    """The batches of a sampler, and a cursor for each batch that was read, in order."""

    def __init__(self, store: str) -> None:
        self.sampler, self.columns = open_sampler(store), columns_of(store)
        self.cursors: deque[headwater.Cursor] = deque()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            batch, cursor = self.sampler.next_batch("train")
            self.cursors.append(cursor)
            inputs, labels = features(batch, self.columns)
            yield {"inputs": torch.from_numpy(inputs), "labels": torch.from_numpy(labels)}


class SavedCursor(transformers.TrainerCallback):
    """Writes into each checkpoint the cursor of the last batch of its step; prints the losses.

    The Trainer reads batches ahead, so the sampler's own cursor is that of a later batch.
    """

    def __init__(self, cursors: deque[headwater.Cursor]) -> None:
        self._cursors = cursors

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Takes the cursor of the step's batch."""
        self._cursor = self._cursors.popleft()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Writes the cursor last: a checkpoint without one is not whole."""
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (checkpoint / CURSOR).write_bytes(self._cursor.encode())

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Prints the loss of a step."""
        if "loss" in more["logs"]:
            print(f"step {state.global_step} loss {more['logs']['loss']}", flush=True)


def train(store: str, folder: Path, steps: int) -> None:
    """Trains up to a step."""
    transformers.set_seed(0)
    whole = [int(of.parent.name.partition("-")[2]) for of in folder.glob(f"checkpoint-*/{CURSOR}")]
    first, batches = max(whole, default=0), Batches(store)
    saved = folder / f"checkpoint-{first}"
    if first:
        batches.sampler.resume(saved / CURSOR)
    settings = transformers.TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=1, logging_steps=1, save_steps=3,
        learning_rate=3e-3, lr_scheduler_type="constant", use_cpu=True, report_to=[],
        disable_tqdm=True,
        # The cursor has set the sampler behind the batches of the steps so far.
        ignore_data_skip=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        Model(batches.columns), settings, data_collator=lambda batch: batch[0],
        train_dataset=batches, callbacks=[SavedCursor(batches.cursors)],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=str(saved) if first else None)


if __name__ == "__main__":
    train(*arguments(__doc__))
