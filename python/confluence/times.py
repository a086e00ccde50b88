"""Times in microseconds since 1970, as text and arrays; a prediction may lie beyond all years."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from confluence.config import ConfigError

# An earlier integer, 1980-01-01 in microseconds, is rather a year or a number of seconds.
_FIRST_GIVEN = 315_532_800_000_000
# A float64 holds neither end of int64 exactly; these are safely inside.
_LEAST, _MOST = -(2.0**63) + 2**11, 2.0**63 - 2**11


def check_given(argument: str, time: Any) -> None:
    """Checks that a time that somebody wrote is no year or number of seconds.

    An integer is microseconds since 1970, so that 2023 is a moment of 1970.

    Raises:
        ConfigError: An integer is before 1980.
    """
    if isinstance(time, int | np.integer) and not isinstance(time, bool) and time < _FIRST_GIVEN:
        raise ConfigError(
            f'expected a time such as "2024-05-31 12:00:00" for {argument}, found the integer '
            f"{time}, which is {text(float(time))}, as microseconds since 1970; write the time as "
            'text, a year as "2024-01-01"'
        )


def text(time: float) -> str:
    """Returns a time such as 2024-05-31T12:00:00.000000; the microseconds if no year has it."""
    return str(np.datetime64(round(time), "us")) if is_time(time) else f"{time:.0f}"


def short_text(time: int) -> str:
    """Returns a time to the second, such as 2024-05-31 12:00:00."""
    return str(np.datetime64(time, "us").astype("datetime64[s]")).replace("T", " ")


def is_time(time: float) -> bool:
    """Returns whether 64-bit microseconds hold the time."""
    return bool(_LEAST <= time <= _MOST)


def array(times: npt.NDArray[np.float64]) -> npt.NDArray[np.datetime64]:
    """Returns times as an array; NaT for NaN and for times that no year has."""
    has_year = (times >= _LEAST) & (times <= _MOST)
    found = np.round(np.where(has_year, times, 0)).astype(np.int64).astype("datetime64[us]")
    found[~has_year] = np.datetime64("NaT")
    return found
