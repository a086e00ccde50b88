"""Predictions beside the rows of a frame of pandas, Polars or pyarrow.

None of these libraries is imported unless the frame is one of theirs.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import headwater
from confluence import anchors, prediction, time_range, times
from confluence.anchors import Anchor
from confluence.assembly import Assembly
from confluence.batch import CATEGORICAL, TIMESTAMP
from confluence.config import ConfigError
from confluence.evaluation import Task
from confluence.intervals import KINDS, Intervals
from confluence.prediction import ENDS, Seed
from headwater._frames import is_one_column
from headwater._headwater import key_text
from headwater.sampler import micros

# The columns that a prediction adds.
PREDICTION, NULL_PROBABILITY = "prediction", "null_probability"
# The column of the observation times, unless another one is named.
OBS_TIME = "obs_time"
# More unknown keys are only counted.
_MOST_LISTED = 10


class Wanted(NamedTuple):
    """What is asked about the rows of a frame: by the columns of the key, at which time."""

    # Of the key; empty means the columns that the anchor's own key has.
    key: tuple[str, ...] = ()
    # The column of the observation times; None means `obs_time`.
    time: str | None = None
    # One observation time for all rows, in place of a column.
    at: Any | None = None


def predict(
    parts: Assembly, models: Sequence[Any], intervals: Intervals, frame: Any, wanted: Wanted
) -> Any:
    """Returns the frame with the columns `prediction` and `null_probability` beside its own.

    Between these two, a number or a time has the ends of its interval. Rows whose key the store
    does not have, or whose row did not exist at their time, are warned of, and have no prediction.

    Raises:
        ConfigError: A column is missing or there already, or a row lacks the observation time.
    """
    columns, task = _Columns.of(frame), intervals.task
    ends = ENDS if task.kind in KINDS else ()
    for name in (PREDICTION, *ends, NULL_PROBABILITY):
        if name in columns.names:
            raise ConfigError(
                f"expected a frame without the column {name!r}, which the prediction adds, found "
                "one; rename or drop it"
            )
    anchor = anchors.of_task(parts.stores[task.store], task)
    keys = _keys(columns, anchor, wanted.key)
    observed = _times(columns, task, wanted, len(keys))
    parts.status.show("looking up the keys")
    looked_up = anchor.look_up(keys, observed)
    rows = looked_up.known
    if looked_up.unknown:
        warnings.warn(_unknown(anchor, keys, looked_up.unknown), stacklevel=4)
    if looked_up.absent:
        line = anchors.absent_text(looked_up.absent, len(keys), anchor.table, "row", 0)
        warnings.warn(f"{line}; they have no prediction", stacklevel=4)
    seeds = [Seed(keys[row] or (), observed[row]) for row in rows]
    warning = time_range.warning(parts, task, [seed.time for seed in seeds]) if seeds else None
    if warning is not None:
        warnings.warn(warning, stacklevel=4)
    if intervals.warning is not None:
        warnings.warn(intervals.warning, stacklevel=4)
    values, nulls = prediction.predict_values(parts, models, task, seeds)
    kind = {CATEGORICAL: "text", TIMESTAMP: "time"}.get(task.kind, "number")
    of_kind = dict(zip((PREDICTION, *ends), (values, *intervals.ends(values)), strict=False))
    added = {
        name: (_in_place([_value(parts, task, of) for of in found], rows, len(keys)), kind)
        for name, found in of_kind.items()
    }
    shares = _in_place([float(of) for of in nulls], rows, len(keys))
    return columns.beside({**added, NULL_PROBABILITY: (shares, "number")})


def _keys(columns: _Columns, anchor: Anchor, wanted: Sequence[str]) -> list[tuple[str, ...] | None]:
    """Returns the text of each row's key; None where a part is missing."""
    if not anchor.key_columns:
        raise ConfigError(
            f"expected a task whose rows have a key, found that table {anchor.table!r} has none; "
            "add `key` to its schema and prepare the store again"
        )
    names = tuple(wanted) or anchor.key_columns
    if len(names) != len(anchor.key_columns):
        raise ConfigError(
            f"expected {len(anchor.key_columns)} columns for key, as table {anchor.table!r} has "
            f"({', '.join(anchor.key_columns)}), found {len(names)}: {', '.join(map(str, names))}"
        )
    parts = [columns.values(name, "key") for name in names]
    return [_key(row) for row in zip(*parts, strict=True)]


def _key(parts: Sequence[Any]) -> tuple[str, ...] | None:
    if any(_is_missing(part) for part in parts):
        return None
    return tuple(key_text(part) for part in parts)


def _times(columns: _Columns, task: Task, wanted: Wanted, count: int) -> list[str | None]:
    """Returns each row's observation time, in UTC; None for a task that sees everything."""
    if wanted.at is not None:
        if wanted.time is not None:
            raise ConfigError("expected time or at, found both; leave one of them out")
        if not isinstance(wanted.at, str) and hasattr(wanted.at, "__len__"):
            raise ConfigError(
                f"expected one time for all rows for at, found {_kind(wanted.at)}; name a column "
                "of times of the frame with time="
            )
        return [_time(wanted.at, "at")] * count
    if wanted.time is None and OBS_TIME not in columns.names and task.sees_everything:
        return [None] * count
    name = OBS_TIME if wanted.time is None else wanted.time
    found = [
        None if _is_missing(of) else _time(of, repr(name)) for of in columns.values(name, "time")
    ]
    without = [row for row, time in enumerate(found) if time is None]
    if without and not task.sees_everything:
        raise ConfigError(
            f"expected an observation time in each row of {name!r}, found none in row {without[0]} "
            f"(counted from 0; {len(without):,} of {count:,} rows); without one, a seed of "
            f"{task.name} would see later rows"
        )
    return found


def _time(value: Any, argument: str) -> str:
    times.check_given(argument, value)
    try:
        return str(np.datetime64(micros(value), "us"))
    except headwater.InvalidArgument as error:
        raise ConfigError(str(error)) from None


def _unknown(anchor: Anchor, keys: Sequence[tuple[str, ...] | None], unknown: Sequence[int]) -> str:
    listed = [f"{'|'.join(keys[row] or ('NULL',))} (row {row})" for row in unknown[:_MOST_LISTED]]
    if len(unknown) > _MOST_LISTED:
        listed.append(f"and {len(unknown) - _MOST_LISTED:,} more")
    return (
        f"{len(unknown):,} of {len(keys):,} keys are in no row of table {anchor.table!r}, and have "
        f"no prediction: {', '.join(listed)}; a key looks like {anchor.key(0)!r}"
    )


def _value(parts: Assembly, task: Task, value: float) -> Any:
    """Returns a prediction as a frame has it: a number, the name of a category, or a time.

    None for NaN, the end of an interval that there is none of, and for a time that no year has.
    """
    if np.isnan(value):
        return None
    if task.kind == CATEGORICAL:
        return prediction.formatted(parts, task, value)
    if task.kind == TIMESTAMP:
        return np.datetime64(round(value), "us") if times.is_time(value) else None
    return float(value)


def _in_place(values: Sequence[Any], rows: Sequence[int], count: int) -> list[Any]:
    found: list[Any] = [None] * count
    for row, value in zip(rows, values, strict=True):
        found[row] = value
    return found


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _kind(value: Any) -> str:
    """Returns the words for the type of a value: "Series of pandas", "list"."""
    library = type(value).__module__.partition(".")[0]
    return type(value).__qualname__ + ("" if library == "builtins" else f" of {library}")


def _one_column_hint(value: Any) -> str:
    if is_one_column(value):
        return "it is one column: give its frame, or a frame made of it"
    return "give the keys as a column of a frame"


class _Columns:
    """The columns of a frame, whatever library it is of."""

    def __init__(self, frame: Any, names: Sequence[str]) -> None:
        self.frame, self.names = frame, list(names)

    @staticmethod
    def of(frame: Any) -> _Columns:
        """Returns the columns of a frame.

        Raises:
            ConfigError: It is no frame.
        """
        library = type(frame).__module__.partition(".")[0]
        if library == "pandas" and hasattr(frame, "assign"):
            return _Pandas(frame, [str(name) for name in frame.columns])
        if library == "polars" and hasattr(frame, "collect_schema"):
            frame = frame.collect() if hasattr(frame, "collect") else frame
            return _Polars(frame, frame.columns)
        if hasattr(frame, "__arrow_c_stream__") and not is_one_column(frame):
            import pyarrow

            table = frame if isinstance(frame, pyarrow.Table) else pyarrow.table(frame)
            return _Arrow(table, table.column_names)
        raise ConfigError(
            "expected a frame (pandas, Polars, or a table with an Arrow stream), found "
            f"{_kind(frame)}; {_one_column_hint(frame)}"
        )

    def values(self, name: str, argument: str) -> list[Any]:
        """Returns the values of a column, None for NULL.

        Raises:
            ConfigError: There is no such column.
        """
        if not isinstance(name, str):
            raise ConfigError(
                f"expected the name of a column for {argument}, found {_kind(name)}; put the "
                "values into a column of the frame"
            )
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=1)
            hint = f"did you mean {near[0]!r}? N" if near else "n"
            raise ConfigError(
                f"expected a column {name!r} in the frame, found {', '.join(self.names) or 'none'}"
                f"; {hint}ame the column with {argument}="
            )
        return self._values(name)

    def _values(self, name: str) -> list[Any]:
        raise NotImplementedError

    def beside(self, added: dict[str, tuple[list[Any], str]]) -> Any:
        """Returns the frame with further columns: values, and "number", "text" or "time"."""
        raise NotImplementedError


class _Pandas(_Columns):
    def _values(self, name: str) -> list[Any]:
        column = self.frame[name]
        found: list[Any] = column.astype(object).where(column.notna(), None).tolist()
        return found

    def beside(self, added: dict[str, tuple[list[Any], str]]) -> Any:
        import pandas

        types = {"number": "float64", "text": "str", "time": "datetime64[us]"}
        return self.frame.assign(**{
            name: pandas.Series(values, index=self.frame.index, dtype=types[kind])
            for name, (values, kind) in added.items()
        })  # fmt: skip


class _Polars(_Columns):
    def _values(self, name: str) -> list[Any]:
        found: list[Any] = self.frame[name].to_list()
        return found

    def beside(self, added: dict[str, tuple[list[Any], str]]) -> Any:
        import polars

        types: dict[str, Any] = {
            "number": polars.Float64,
            "text": polars.String,
            "time": polars.Datetime("us"),
        }
        return self.frame.with_columns([
            polars.Series(name, _objects(values, kind), dtype=types[kind])
            for name, (values, kind) in added.items()
        ])  # fmt: skip


class _Arrow(_Columns):
    def _values(self, name: str) -> list[Any]:
        found: list[Any] = self.frame[name].to_pylist()
        return found

    def beside(self, added: dict[str, tuple[list[Any], str]]) -> Any:
        import pyarrow

        types = {
            "number": pyarrow.float64(), "text": pyarrow.string(), "time": pyarrow.timestamp("us"),
        }  # fmt: skip
        table = self.frame
        for name, (values, kind) in added.items():
            array = pyarrow.array(_objects(values, kind), types[kind])
            table = table.append_column(name, array)
        return table


def _objects(values: list[Any], kind: str) -> list[Any]:
    """Returns times as microseconds, which each library reads, also those after the year 9999."""
    if kind != "time":
        return values
    return [None if of is None else int(of.astype(np.int64)) for of in values]
