"""A small sampler, and the comparison of batches, for many tests."""

import numpy as np

import headwater

SETTINGS = {"default_batch_size": 4, "default_sequence_length": 64, "max_rows": 16, "seed": 7}


def sampler(store_path, **changes):
    return headwater.Sampler(store_path, **(SETTINGS | changes))


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)
