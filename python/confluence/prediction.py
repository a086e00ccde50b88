"""Predictions for chosen rows and observation times."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

import headwater
from confluence import anchors, evaluation, metrics, outputs, times
from confluence.anchors import Anchor
from confluence.assembly import Assembly
from confluence.batch import BOOLEAN, CATEGORICAL, TIMESTAMP
from confluence.config import ConfigError
from confluence.intervals import KINDS, Intervals
from headwater._headwater import read_file
from headwater.sampler import micros

# The columns of the ends of a prediction's interval.
ENDS = ("prediction_low", "prediction_high")
# The usual name of the column of observation times.
_OBS_TIME = "obs_time"


class Seed(NamedTuple):
    """A row, by its key, and an observation time; without one, the context has all rows."""

    key: tuple[str, ...]
    time: str | None


class Prediction(NamedTuple):
    """A number, a probability, a category's name or a time; and the probability of NULL.

    The ends of a number's or a time's interval, which holds 90 % of the labels, are None where
    there is none.
    """

    value: str
    null: float
    low: str | None = None
    high: str | None = None


def read_seeds(path: Path) -> list[Seed]:
    """Reads a CSV file with a header: the columns of the key, then the observation time.

    Raises:
        ConfigError: The file cannot be read, or a line is not a key and a time.
    """
    try:
        text = read_file(path).decode()
        lines = list(csv.reader(io.StringIO(text, newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read {path} as CSV with a header: {error}") from None
    if not lines:
        raise ConfigError(
            f"{path}: expected a header such as key,obs_time and one line per seed, found an "
            "empty file"
        )
    header = lines[0]
    if len(header) < 2:
        raise ConfigError(
            f"{path}, line 1: expected a header of at least two columns, divided by commas: the "
            f"columns of the key, then the observation time; found {header}"
        )
    if is_time(header[-1]):
        raise ConfigError(
            f"{path}, line 1: expected a header such as key,obs_time, found a seed: {header}"
        )
    if _OBS_TIME in header[:-1] and header[-1] != _OBS_TIME:
        raise _time_is_not_last(path, header, header.index(_OBS_TIME))
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(header):
            raise ConfigError(
                f"{path}, line {number}: expected {len(header)} fields like the header, found "
                f"{len(line)}"
            )
        # A number is a time, too, the year, but beside a date it is rather a key.
        if header[-1] != _OBS_TIME and _is_date(line[0]) and line[-1] and not _is_date(line[-1]):
            raise _time_is_not_last(path, header, 0)
        if line[-1] and not is_time(line[-1]):
            raise ConfigError(
                f"{path}, line {number}: expected a time such as 2024-05-31 12:00:00 as the last "
                f"field, found {line[-1]!r}"
            )
    return [Seed(tuple(line[:-1]), line[-1] or None) for line in lines[1:]]


def _time_is_not_last(path: Path, header: Sequence[str], at: int) -> ConfigError:
    """Returns an error that says which column has the observation time."""
    keys = "key's column" if len(header) == 2 else "key's columns"
    return ConfigError(
        f"{path}, line 1: expected the {keys} first and the observation time last, found "
        f"{','.join(header)}; "
        + ("swap the two columns" if len(header) == 2 else f"put {header[at]} last")
    )


def _is_date(text: str) -> bool:
    """Returns whether a text is a time of more than a year."""
    return "-" in text[1:] and is_time(text)


def is_time(text: str) -> bool:
    """Returns whether a text is an observation time."""
    try:
        micros(text)
    except headwater.InvalidArgument:
        return False
    return True


def check_seeds(task: evaluation.Task, seeds: Sequence[Seed]) -> None:
    """Checks that each seed has the observation time it needs, and that this is no year.

    Raises:
        ConfigError: A seed has none.
    """
    for number, seed in enumerate(seeds, start=1):
        times.check_given(f"seed {number}", seed.time)
    timeless = [number for number, seed in enumerate(seeds, start=1) if seed.time is None]
    if timeless and not task.sees_everything:
        raise ConfigError(
            f"seed {timeless[0]} (line {timeless[0] + 1} of a seeds file): expected an observation "
            f"time, found none; without one, a seed of {task.name} would see later rows"
        )


def check_rows(anchor: Anchor, seeds: Sequence[Seed]) -> None:
    """Checks that no seed asks about a row that did not exist at its time.

    Raises:
        ConfigError: Some rows did not; the message names them.
    """
    found = anchor.look_up([seed.key for seed in seeds], [seed.time for seed in seeds])
    if found.absent:
        raise ConfigError(anchors.absent_text(found.absent, len(seeds), anchor.table, "seed", 1))


def predict_seeds(
    parts: Assembly, models: Sequence[Any], found: Intervals, seeds: Sequence[Seed]
) -> list[Prediction]:
    """Returns the prediction of the models' mean for each seed, in the units of the data.

    Raises:
        HeadwaterError: There is no such row.
    """
    values, nulls = predict_values(parts, models, found.task, seeds)
    return list(as_predictions(parts, found, values, nulls))


def as_predictions(
    parts: Assembly, found: Intervals, values: metrics.Numbers, nulls: metrics.Numbers
) -> Iterator[Prediction]:
    """Yields each prediction of the intervals' task, as text."""
    for value, null, *ends in zip(values, nulls, *found.ends(values), strict=True):
        low, high = formatted_ends(parts, found.task, ends)
        yield Prediction(formatted(parts, found.task, value), float(null), low, high)


def predict_values(
    parts: Assembly, models: Sequence[Any], task: evaluation.Task, seeds: Sequence[Seed]
) -> tuple[metrics.Numbers, metrics.Numbers]:
    """Returns the predictions, in the units of the data, and the probabilities of NULL.

    Raises:
        HeadwaterError: There is no such row.
    """
    size = parts.settings.data.batch_size
    found = [(np.zeros(0), np.zeros(0))]
    for begin in range(0, len(seeds), size):
        parts.status.show_sometimes(
            f"predicting {task.name}: seed {begin + 1} of {len(seeds)}", begin / len(seeds)
        )
        chunk = seeds[begin : begin + size]
        keys = [seed.key if len(seed.key) > 1 else seed.key[0] for seed in chunk]
        found.append(predict_batch(parts, models, task, keys, [seed.time for seed in chunk]))
    values, nulls = (np.concatenate(of) for of in zip(*found, strict=True))
    return values, nulls


def predict_batch(
    parts: Assembly,
    models: Sequence[Any],
    task: evaluation.Task,
    keys: Sequence[str | tuple[str, ...]],
    times: Sequence[str | None],
) -> tuple[metrics.Numbers, metrics.Numbers]:
    """Returns the predictions, in the units of the data, and the probabilities of NULL.

    There are at most as many keys as a batch has sequences.

    Raises:
        HeadwaterError: There is no such row.
    """
    on_device = parts.transfer.to_device(parts.samplers.sample(task.name, keys, times))
    outputs, *_ = evaluation.predict_batch(parts.program, models, on_device, task.kind)
    values = metrics.in_units(task.kind, outputs.value.astype(np.float64), task.stats)
    return values[: len(keys)], outputs.null[: len(keys)].astype(np.float64)


def write_predictions(
    task: evaluation.Task,
    seeds: Iterable[Seed],
    predictions: Iterable[Prediction],
    out: Path | None,
) -> None:
    """Writes one line of CSV for each seed, to a file or to standard output."""
    if out is None:
        _write(task, seeds, predictions, sys.stdout)
    else:
        text = io.StringIO()
        _write(task, seeds, predictions, text)
        outputs.write(out, text.getvalue().encode())


def _write(
    task: evaluation.Task, seeds: Iterable[Seed], predictions: Iterable[Prediction], file: TextIO
) -> None:
    writer = csv.writer(file, lineterminator="\n")
    has_ends = task.kind in KINDS
    columns = ["prediction", *ENDS] if has_ends else ["prediction"]
    writer.writerow(["key", _OBS_TIME, *columns, "null_probability"])
    for seed, found in zip(seeds, predictions, strict=True):
        ends = (found.low, found.high) if has_ends else ()
        key = "|".join(seed.key)
        writer.writerow([key, seed.time or "", found.value, *ends, f"{found.null:.6g}"])


def formatted_ends(
    parts: Assembly, task: evaluation.Task, ends: Iterable[float]
) -> list[str | None]:
    """Returns the ends of an interval as text, None for NaN, which is no end."""
    return [None if np.isnan(end) else formatted(parts, task, end) for end in ends]


def formatted(
    parts: Assembly, task: evaluation.Task, value: float, *, is_label: bool = False
) -> str:
    """Returns a prediction, or a label, as text in the units of the data.

    A label that is a number has all its digits, a prediction six.
    """
    if task.kind == CATEGORICAL:
        return parts.stores[task.store].category(task.stats["cat_emb_start"] + int(value))
    if task.kind == TIMESTAMP:
        return times.text(value)
    if task.kind == BOOLEAN:
        return ("true" if value else "false") if is_label else f"{value:.6f}"
    return repr(float(value)) if is_label else f"{value:.6g}"
