"""Trains a Keras model by `fit` on JAX; each epoch is saved with the cursor that belongs to it.

    python examples/clients/keras_fit.py STORE FOLDER EPOCHS

STORE is demo/churn of `make demo`. An epoch has three steps; started again, the program goes on
after the last epoch in FOLDER. It needs jax and keras.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras

import headwater
from features import arguments, columns_of, features, open_sampler

STEPS = 3


class Saved(keras.callbacks.Callback):
    """Saves the model after each epoch, with the cursor after the last batch of the epoch.

    `fit` reads batches ahead, so the sampler's own cursor is that of a later batch. `cursors` has
    one cursor for each batch that was read, in order.
    """

    def __init__(self, folder: Path, cursors: deque[headwater.Cursor]) -> None:
        super().__init__()
        self._folder, self._cursors = folder, cursors

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes the cursor of the batch."""
        self._cursor = self._cursors.popleft()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes a folder that has its name only when it is whole."""
        print(f"epoch {epoch} loss {(logs or {})['loss']!r}", flush=True)
        partial = self._folder / "partial"
        partial.mkdir(exist_ok=True)
        self.model.save(partial / "model.keras")
        (partial / "cursor").write_bytes(self._cursor.encode())
        partial.rename(self._folder / str(epoch))


def train(store: str, folder: Path, epochs: int) -> None:
    """Trains up to an epoch."""
    columns, sampler = columns_of(store), open_sampler(store)
    cursors: deque[headwater.Cursor] = deque()
    first = 1 + max((int(of.name) for of in folder.glob("[0-9]*")), default=-1)
    keras.utils.set_random_seed(0)
    if first:
        model = keras.saving.load_model(folder / str(first - 1) / "model.keras")
        sampler.resume(folder / str(first - 1) / "cursor")
    else:
        model = keras.Sequential([keras.layers.Dense(32, "gelu"), keras.layers.Dense(1, "sigmoid")])
        model.build((None, 2 * columns))
        model.compile(keras.optimizers.AdamW(3e-3), "binary_crossentropy")

    def batches() -> Iterator[Any]:
        while True:
            batch, cursor = sampler.next_batch("train")
            cursors.append(cursor)
            inputs, labels = features(batch, columns)
            yield inputs, labels[:, None]

    model.fit(
        batches(), epochs=epochs, initial_epoch=first, steps_per_epoch=STEPS, shuffle=False,
        callbacks=[Saved(folder, cursors)], verbose=0,
    )  # fmt: skip


if __name__ == "__main__":
    train(*arguments(__doc__))
