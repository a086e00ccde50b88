"""`headwater.jax.attention_masks`, against plain loops."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import headwater
import headwater.jax
from plain_masks import plain_masks


@pytest.mark.parametrize("compact", [False, True])
def test_masks_are_those_of_the_loops_in_both_forms(demo_store, compact):
    with headwater.Sampler(
        demo_store, seed=3, default_batch_size=5, default_sequence_length=48, max_rows=9,
        compact=compact,
    ) as sampler:  # fmt: skip
        made = jax.jit(headwater.jax.attention_masks)
        for split in ("train", "val"):
            # The last batch of a task ends with sequences of padding alone.
            for _, batch in zip(range(4), sampler.evaluate(split), strict=False):
                kept = {name: array for name, array in batch.items() if array.dtype.itemsize < 8}
                found = made(headwater.jax.arrays(kept))
                for name, expected in plain_masks(batch).items():
                    mask = np.asarray(getattr(found, name))
                    assert np.array_equal(mask, expected), name
                    assert mask.any(axis=2).all()


def test_masks_suit_the_attention_of_jax(demo_store):
    with headwater.Sampler(
        demo_store, default_batch_size=2, default_sequence_length=32, max_rows=6
    ) as sampler:
        batch = headwater.jax.arrays(sampler.next_train_batch())
    masks = headwater.jax.attention_masks(batch)
    x = jax.random.normal(jax.random.key(1), (2, 32, 4, 8))
    for mask in masks:
        assert np.isfinite(jax.nn.dot_product_attention(x, x, x, mask=mask[:, None])).all()


def test_a_batch_without_cells_is_refused_by_its_missing_arrays():
    with pytest.raises(headwater.InvalidArgument, match="'fk_edges'; give a whole batch of"):
        headwater.jax.attention_masks({})
