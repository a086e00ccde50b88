"""The answers of a run on a split: each prediction beside its label, and metrics by period."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from confluence import anchors, metrics, outputs, seeds, times
from confluence.assembly import Assembly
from confluence.batch import BOOLEAN, NUMERICAL, TIMESTAMP
from confluence.config import ConfigError
from confluence.evaluation import Scores, Task
from confluence.intervals import KINDS, Intervals
from confluence.prediction import ENDS, formatted, formatted_ends
from confluence.tables import aligned
from headwater.sampler import Split

Period = Literal["day", "week", "month", "quarter", "year"]
PERIODS: tuple[Period, ...] = get_args(Period)

# The header of a file of answers; with the columns of the ends of intervals if any task has some.
_COLUMNS = ("task", "split", "key", "obs_time", "prediction", *ENDS, "label")


class Answers(NamedTuple):
    """The seeds of a split that have a label, in the order of the evaluation."""

    task: Task
    split: Split
    rows: npt.NDArray[np.uint32]
    times: npt.NDArray[np.datetime64]
    # In the units of the data; a category is its number within the column.
    values: metrics.Numbers
    # With the rounding of the model's numbers, as the metrics have them.
    labels: metrics.Numbers
    # As the store has them, for a file.
    stored_labels: metrics.Numbers
    intervals: Intervals


def of_split(
    parts: Assembly, scores: Scores, task: Task, split: Split, intervals: Intervals
) -> Answers:
    """Returns the answers of which `scores` are the metrics, from one process."""
    found = seeds.read(parts.settings, parts.stores, task, split, with_cells=False, as_stored=True)
    assert np.array_equal(found.rows, scores.rows), "both passes have the same seeds, in one order"
    observed = found.times.astype("datetime64[us]")
    observed[found.times == seeds.NO_TIME] = np.datetime64("NaT")
    return Answers(
        task, split, scores.rows, observed, scores.values, scores.labels, found.labels, intervals
    )


def by_period(answers: Answers, period: Period) -> dict[str, dict[str, float]]:
    """Returns the metrics of the seeds that are observed in each period, and their number."""
    names = np.array([_period_name(time, period) for time in answers.times])
    found = {}
    for name in np.unique(names):
        inside = names == name
        scores = answers.task.score(
            answers.rows[inside], answers.values[inside], answers.labels[inside]
        )
        found[str(name)] = {"seeds": int(np.count_nonzero(inside)), **scores}
    return found


def _period_name(time: np.datetime64, period: Period) -> str:
    if np.isnat(time):
        return "no time"
    if period in ("day", "week"):
        day = time.astype("datetime64[D]")
        # 1970-01-01 was a Thursday; weeks begin on Monday.
        return str(day - (day.astype(np.int64) + 3) % 7 if period == "week" else day)
    month = time.astype("datetime64[M]")
    if period == "month":
        return str(month)
    year, number = divmod(int(month.astype(np.int64)), 12)
    name = f"{1970 + year:04}"
    return name if period == "year" else f"{name}-Q{number // 3 + 1}"


def table(of_tasks: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Returns the metrics of tasks by period, as lines of text."""
    blocks = []
    for name, periods in of_tasks.items():
        columns = list(next(iter(periods.values()), {}))
        rows = [[name, *columns]]
        for period, scores in periods.items():
            rows.append([period, *(_number(scores[column]) for column in columns)])
        blocks.append("\n".join(aligned(rows)))
    return "\n\n".join(blocks)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def check_file(out: Path) -> None:
    """Checks that answers can be written to a file of this name.

    Raises:
        ConfigError: The name has another ending, pyarrow is not installed, or the file exists.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"expected a file that ends in .csv or .parquet for --out, found {out}")
    if out.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            f"{out}: Parquet needs pyarrow; install it (pip install pyarrow), or choose a .csv file"
        )
    outputs.check_new(out)
    outputs.check_parent(out)


def write(out: Path, parts: Assembly, of_splits: Sequence[Answers]) -> None:
    """Writes a row for each seed to a CSV or Parquet file: its key, time, prediction and label.

    The prediction of a boolean is its probability. A number and a time have the ends of their
    interval. Times are in UTC. A Parquet file has numbers as numbers and times as times, unless its
    tasks have targets of several types, which become text.
    """
    kinds = {answers.task.kind for answers in of_splits}
    columns = [name for name in _COLUMNS if name not in ENDS or kinds & set(KINDS)]
    rows = [
        [row[name] for name in columns] for answers in of_splits for row in _rows(parts, answers)
    ]
    if out.suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        outputs.write(out, text.getvalue().encode())
        return
    import pyarrow
    import pyarrow.parquet

    is_number = kinds <= {BOOLEAN, NUMERICAL}
    numbers = _numbers(of_splits)
    arrays = {}
    for place, name in enumerate(columns):
        values: Any = [row[place] for row in rows]
        kind = pyarrow.string()
        if name == "obs_time":
            kind = pyarrow.timestamp("us", "UTC")
        elif name in numbers and is_number:
            values, kind = numbers[name], pyarrow.float64()
        elif name in numbers and kinds == {TIMESTAMP}:
            values = times.array(numbers[name])
            kind = pyarrow.timestamp("us", "UTC")
        # As in pandas, NaN is NULL: the end of an interval that there is none of.
        arrays[name] = pyarrow.array(values, kind, from_pandas=name in ENDS)
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), content)
    outputs.write(out, content.getvalue())


def _numbers(of_splits: Sequence[Answers]) -> dict[str, metrics.Numbers]:
    """Returns the columns that are numbers, if all tasks have numbers or all have times."""
    ends = [answers.intervals.ends(answers.values) for answers in of_splits]
    return {
        "prediction": np.concatenate([answers.values for answers in of_splits]),
        **{name: np.concatenate([of[at] for of in ends]) for at, name in enumerate(ENDS)},
        "label": np.concatenate([answers.stored_labels for answers in of_splits]),
    }


def _rows(parts: Assembly, answers: Answers) -> Iterator[dict[str, Any]]:
    """Yields the fields of a file for each seed, the times as `datetime`, the others as text."""
    anchor = anchors.of_task(parts.stores[answers.task.store], answers.task)
    keys = {row: anchor.key(row) or f"row {row}" for row in np.unique(answers.rows)}
    ends = zip(*answers.intervals.ends(answers.values), strict=True)
    for row, time, value, label, of_ends in zip(
        answers.rows, answers.times, answers.values, answers.stored_labels, ends, strict=True
    ):
        yield {
            "task": answers.task.name,
            "split": answers.split,
            "key": keys[row],
            "obs_time": None if np.isnat(time) else time.item(),
            "prediction": formatted(parts, answers.task, value),
            **dict(zip(ENDS, formatted_ends(parts, answers.task, of_ends), strict=True)),
            "label": formatted(parts, answers.task, label, is_label=True),
        }
