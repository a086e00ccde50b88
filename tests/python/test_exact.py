"""`exact`: what it rounds, beside Python's own fractions, which are rounded once as well."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import reduce

# Of any size, often near each other, so that sums cancel.
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(1, 1 + 1e-12),
    st.sampled_from([5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -1.7976931348623157e308]),
)


def rounded(number: Fraction) -> float:
    """Returns the number rounded once; infinite where Python refuses it."""
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def plainly(column):
    numbers = [Fraction(value) for value in column]
    count, total = len(numbers), sum(numbers)
    squares = sum(number**2 for number in numbers)
    variance = squares / count - (total / count) ** 2
    return {
        "sum": rounded(total),
        "mean": rounded(total / count),
        "sum_of_squares": rounded(squares),
        "variance": rounded(variance),
        "std": root(variance),
    }


def root(number: Fraction) -> float:
    """Returns the square root rounded once, from 400 bits of it."""
    if number == 0:
        return 0.0
    shift = 400 + max(number.denominator.bit_length() - number.numerator.bit_length(), 0)
    square, rest = divmod(number.numerator << 2 * shift, number.denominator)
    whole = math.isqrt(square)
    # An odd last bit stands for what follows, so that there is no tie.
    return rounded(Fraction(2 * whole + bool(rest or whole**2 != square), 2 << shift))


@given(st.lists(NUMBERS, min_size=1, max_size=40))
def test_exact_results_are_rounded_once(column):
    (found,) = reduce.exact(np.array(column)[:, None]).value
    expected = plainly(column)
    for name, value in expected.items():
        assert found[name] == value, (name, found[name], value)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9))
def test_exact_deviations_of_whole_numbers_are_those_of_the_library(column):
    """Squares among the variances, whose roots are exact."""
    (found,) = reduce.exact(np.array(column, np.float32)[:, None]).value
    assert found["std"] == statistics.pstdev(map(Fraction, column))


def test_exact_sums_do_not_depend_on_the_order_of_the_rows_or_the_chunks():
    draws = np.random.default_rng(4)
    rows = draws.standard_normal((5000, 3)) * 10.0 ** draws.integers(-300, 300, (5000, 3))
    first = reduce.exact(rows)
    for _ in range(3):
        draws.shuffle(rows)
        again = reduce.exact(rows, chunk_rows=int(draws.integers(1, 900)))
        assert again.value.tobytes() == first.value.tobytes()
    assert again.digest == first.digest
    assert (first.value["sum"] == [math.fsum(column) for column in rows.T]).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_exact_results_of_no_number_are_nan_and_counts_are_told(dtype):
    rows = np.array([[np.nan, 1], [np.inf, 2], [-np.inf, -0.0], [np.nan, 4]], dtype)
    none, some = reduce.exact(rows).value
    assert [none[name] for name in none.dtype.names[:5]] == [0, 2, 1, 1, 0]
    assert none["sum"] == none["sum_of_squares"] == 0
    assert all(math.isnan(none[name]) for name in ("mean", "variance", "std"))
    assert (some["finite"], some["sum"], some["sum_of_squares"]) == (4, 7, 21)
