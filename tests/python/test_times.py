"""Times for a device, in days and milliseconds, are what NumPy's 64-bit division gives."""

import numpy as np
import pytest

from headwater._headwater import split_times

DAY_US = 86_400_000_000
EDGES = [np.iinfo(np.int64).min, -DAY_US - 1, -DAY_US, -1, 0, 999, 1000, DAY_US - 1, DAY_US]


@pytest.mark.parametrize("shape", [(9,), (300, 7), (0, 4), (20, 3, 5)])
@pytest.mark.parametrize("order", ["C", "F", "every other"])
def test_times_are_split_as_numpy_divides_them(shape, order):
    drawn = np.random.default_rng(1).integers(-(2**63), 2**63, 2 * np.prod(shape), np.int64)
    drawn[: len(EDGES)] = EDGES[: len(drawn)]
    times = drawn[::2] if order == "every other" else drawn[: np.prod(shape)]
    times = np.asarray(times.reshape(shape), order="F" if order == "F" else None)
    days, milliseconds = split_times(times)
    assert (days.dtype, milliseconds.dtype) == (np.int32, np.int32)
    assert days.shape == milliseconds.shape == shape
    np.testing.assert_array_equal(days, times // DAY_US)
    np.testing.assert_array_equal(milliseconds, times % DAY_US // 1000)
