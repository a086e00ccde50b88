"""The inputs and labels of the small models that these programs train."""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

import headwater


def arguments(usage: str | None) -> tuple[str, Path, int]:
    """Returns the store, the folder, which it makes, and the last step of a program."""
    if len(sys.argv) != 4:
        sys.exit(usage)
    _, store, folder, last = sys.argv
    Path(folder).mkdir(parents=True, exist_ok=True)
    return store, Path(folder), int(last)


def open_sampler(store: str) -> headwater.Sampler:
    """Returns a sampler of the task churn of the demo shop."""
    return headwater.Sampler(
        store, tasks=["churn"], default_batch_size=32, default_sequence_length=64
    )


def columns_of(store: str) -> int:
    """Returns how many columns the tables of a store have."""
    return len(headwater.Store(store).column_embeddings())


def features(
    batch: Mapping[str, npt.NDArray[np.generic]], columns: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Returns the inputs [B, 2 * columns] and the labels [B] of a batch.

    The inputs are the sum of the numbers of each column and how many there are, without the target.
    """
    is_seen = (batch["is_padding"] + batch["is_target"] + batch["is_null"]) == 0
    of_column = np.eye(columns, dtype=np.float32)[batch["column_ids"]] * is_seen[..., None]
    values = batch["numeric_values"].astype(np.float32) + batch["bool_values"]
    sums = np.einsum("bs,bsc->bc", values, of_column)
    inputs = np.concatenate([sums, np.log1p(of_column.sum(1))], axis=1)
    place = batch["target_pos"].astype(np.int64)[:, None]
    labels = np.take_along_axis(batch["bool_values"], place, axis=1)[:, 0]
    return inputs.astype(np.float32), labels.astype(np.float32)
