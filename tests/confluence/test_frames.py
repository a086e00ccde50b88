"""Predictions beside the rows of a frame, with a store of a few rows and predictions by rule."""

import datetime
import warnings
from types import SimpleNamespace

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from confluence import config, frames, prediction, time_range
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP
from confluence.evaluation import Task
from confluence.frames import Wanted
from confluence.intervals import Intervals
from stores import FewRows

MEMBERS = [("7", "2020-01-01"), ("8", None), ("9", "2023-01-01")]
# Key 5 is in no row, and row 9 did not exist yet.
KEYS = ["8", "5", "9", None, "7"]
TIME = datetime.datetime(2022, 1, 1, 6)
AT, WITH_TIMES = Wanted(at="2022-01-01"), Wanted()
BINS = [{"from": 0.0, "to": 9.0, "seeds": 50, "low": -0.5, "high": 2.0}]


@pytest.fixture
def ask(monkeypatch):
    """Returns a function that predicts for the rows of a frame: 1, 2 and so on, unless told."""

    def of(frame, wanted=WITH_TIMES, kind=NUMERICAL, members=MEMBERS, values=None, **intervals):
        of.seeds, of.told = [], []

        def predict_values(parts, models, task, seeds):
            assert (parts.stores[0].members, models, task.kind) == (tuple(members), "models", kind)
            of.seeds += [tuple(seed) for seed in seeds]
            found = np.arange(1.0, len(seeds) + 1) if values is None else np.array(values)
            return found, np.full(len(seeds), 0.25)

        def warning(parts, task, times):
            assert (parts.stores[0].members, task.kind) == (tuple(members), kind)
            return of.outside if times else "no time"

        monkeypatch.setattr(prediction, "predict_values", predict_values)
        monkeypatch.setattr(time_range, "warning", warning)
        stats = {"cat_emb_start": 10}
        task = Task("club/pays", 0, kind, stats, sees_everything=of.sees_everything)
        status = SimpleNamespace(show=lambda _: None)
        parts = SimpleNamespace(stores=[FewRows(*members)], status=status)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = frames.predict(parts, "models", Intervals(task, **intervals), frame, wanted)
        of.told = [(str(of.message), of.filename) for of in told]
        return found

    of.sees_everything, of.outside = False, None
    return of


def columns_of(frame):
    if isinstance(frame, pyarrow.Table):
        return frame.to_pydict()
    if isinstance(frame, pandas.DataFrame):
        values = {name: list(frame[name]) for name in frame}
        return {
            name: [None if of is pandas.NaT or of != of else of for of in column]
            for name, column in values.items()
        }
    return frame.to_dict(as_series=False)


def frame_of(library, **columns):
    if library == "pandas":
        return pandas.DataFrame(columns, index=list("vwxyz")[: len(next(iter(columns.values())))])
    return (polars.DataFrame if library == "polars" else pyarrow.table)(columns)


LIBRARIES = pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])


@LIBRARIES
def test_each_row_has_the_prediction_of_its_key_and_time_or_none(ask, library):
    frame = frame_of(library, note=list("abcde"), id=KEYS, obs_time=[TIME] * 5)
    told = ask_for(ask, frame, bins=BINS)
    assert type(told) is type(frame)
    if library == "pandas":
        assert list(told.index) == list("vwxyz")
    found = columns_of(told)
    assert list(found) == [
        "note", "id", "obs_time", "prediction", "prediction_low", "prediction_high",
        "null_probability",
    ]  # fmt: skip
    assert found["note"] == list("abcde")
    assert found["prediction"] == [1, None, None, None, 2]
    assert found["prediction_low"] == [pytest.approx(0.5), None, None, None, pytest.approx(1.5)]
    assert found["prediction_high"] == [pytest.approx(3), None, None, None, pytest.approx(4)]
    assert found["null_probability"] == [0.25, None, None, None, 0.25]
    assert ask.seeds == [(("8",), "2022-01-01T06:00:00.000000"), (("7",), ask.seeds[0][1])]
    unknown, absent = ask.told
    assert unknown[0].startswith("2 of 5 keys are in no row of table 'members', and have no pred")
    assert "prediction: 5 (row 1), NULL (row 3); a key looks like '7'" in unknown[0]
    assert absent[0].startswith('1 of 5 observation times are before their row of table "members"')
    assert "2023-01-01 00:00:00 (row 2); choose later times; they have no pred" in absent[0]


def ask_for(ask, *given, **more):
    """Asks, one call further from the warnings, as users are of the function."""
    return ask(*given, **more)


@LIBRARIES
def test_a_prediction_has_the_type_of_its_target(ask, library):
    frame = frame_of(library, id=["7", "5", "8"])
    wanted = AT
    found = columns_of(ask(frame, wanted, CATEGORICAL, values=[2, 0]))
    assert found["prediction"] == ["category 12", None, "category 10"]
    assert list(found) == ["id", "prediction", "null_probability"]
    assert list(columns_of(ask(frame, wanted, BOOLEAN))) == list(found)
    year_10000 = 253_402_300_800_000_000
    told = ask(frame, wanted, TIMESTAMP, values=[86_400e6 + 0.7, 1e25])
    types = {
        "pandas": lambda: str(told.dtypes["prediction"]) == "datetime64[us]",
        "polars": lambda: told.schema["prediction"] == polars.Datetime("us"),
        "pyarrow": lambda: told.schema.field("prediction").type == pyarrow.timestamp("us"),
    }
    assert types[library]()
    found = columns_of(told)
    assert found["prediction"][0] == datetime.datetime(1970, 1, 2, 0, 0, 0, 1)
    assert found["prediction"][1:] == [None, None]
    assert found["prediction_high"] == [None] * 3
    # Times that Python's own type does not have are kept, too.
    late = ask(frame, wanted, TIMESTAMP, values=[year_10000, 0])["prediction"]
    of_first = {
        "pandas": lambda: late.to_numpy().astype(np.int64)[0],
        "polars": lambda: late.to_physical()[0],
        "pyarrow": lambda: late.cast("int64")[0].as_py(),
    }
    assert of_first[library]() == year_10000


def test_the_columns_of_key_and_time_can_be_named(ask):
    frame = polars.DataFrame(
        {"who": [7, 8], "then": ["2022-01-01", "2022-01-02"], "obs_time": [1, 1]}
    )
    ask(frame, Wanted(key=("who",), time="then"))
    assert [(key, time[:10]) for key, time in ask.seeds] == [
        (("7",), "2022-01-01"), (("8",), "2022-01-02")
    ]  # fmt: skip
    ask(frame, Wanted(key=("who",), at=datetime.date(2022, 1, 3)))
    assert {time for _, time in ask.seeds} == {"2022-01-03T00:00:00.000000"}
    ask.sees_everything = True
    ask(frame.drop("obs_time"), Wanted(key=("who",)))
    assert {time for _, time in ask.seeds} == {None}
    # A column of the times counts all the same, where it has one.
    ask(frame.with_columns(obs_time=polars.Series(["2022-01-01", None])), Wanted(key=("who",)))
    assert [time and time[:10] for _, time in ask.seeds] == ["2022-01-01", None]


def test_predictions_come_with_their_warnings(ask):
    frame = polars.DataFrame({"id": [f"x{row}" for row in range(11)]})
    ask_for(ask, frame, AT, missing="too few labels")
    assert ask.seeds == []
    keys, intervals = ask.told
    assert keys[0].startswith("11 of 11 keys")
    assert "x9 (row 9), and 1 more; a key" in keys[0]
    assert intervals[0] == "club/pays: no intervals: too few labels"
    ask_for(ask, frame[:10], AT)
    assert "x9 (row 9); a key" in ask.told[0][0]
    ask.outside = "a time outside the data"
    ask_for(ask, polars.DataFrame({"id": [7, 9, 5]}), AT, missing="none")
    assert len(ask.told) == 4
    assert ask.told[2][0] == ask.outside
    # The place that is named is that of the question.
    assert {place for _, place in ask.told} == {__file__}
    # Nobody asked at any time.
    ask(frame, AT)
    assert len(ask.told) == 1


@pytest.mark.parametrize(
    ("frame", "wanted", "message"),
    [
        ({"id": [7], "prediction": [1]}, AT, "without the column 'prediction'"),
        ({"id": [7], "prediction_low": [1]}, AT, "column 'prediction_low'"),
        ({"id": [7], "null_probability": [1]}, AT, "'null_probability'"),
        ({"id": [7]}, Wanted(("id", "id"), at="2022-01-01"), r"1 columns for key.*found 2: id, id"),
        ({"id": [7]}, Wanted(time="id", at="2022-01-01"), "time or at, found both"),
        ({"id": [7]}, Wanted(at=["2022-01-01"]), "expected one time for all rows for at"),
        ({"id": [7]}, Wanted(at="soon"), "expected an observation time, found 'soon'"),
        ({"id": [7]}, Wanted(at=2023), "for at, found the integer 2023"),
        ({"id": [7]}, Wanted(), "a column 'obs_time' in the frame, found id; name .* with time="),
        ({"ids": [7]}, AT, "did you mean 'ids'. Name the column with key="),
        ({}, AT, "found none; name the column with key="),
        ({"id": [7]}, Wanted((3,), at="2022-01-01"), "the name of a column for key, found int"),
        (
            {"id": [7, 8, 9], "obs_time": ["2022-01-01", None, None]}, Wanted(),
            r"found none in row 1 \(counted from 0; 2 of 3 rows\)",
        ),
    ],
)  # fmt: skip
def test_an_invalid_question_is_refused(ask, frame, wanted, message):
    with pytest.raises(config.ConfigError, match=message):
        ask(polars.DataFrame(frame), wanted)


def test_only_frames_are_accepted_whole_or_to_be_collected(ask):
    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pyarrow.table({"id": ["7"]}).__arrow_c_stream__(requested_schema)

    lazy = polars.LazyFrame({"id": [7]})
    for frame, wanted in ((lazy, polars.DataFrame), (Stream(), pyarrow.Table)):
        assert type(ask(frame, AT)) is wanted
    for frame, hint in (
        (pandas.Series([1]), "Series of pandas; it is one column"),
        (polars.Series("id", [1]), "Series of polars; it is one column"),
        (pyarrow.chunked_array([[1]]), "ChunkedArray of pyarrow; it is one column"),
        ([1], "found list; give the keys as a column of a frame"),
        (pandas.Timestamp(0), "found Timestamp.*; give the keys as a column of a frame"),
    ):
        with pytest.raises(config.ConfigError, match=f"expected a frame .*{hint}"):
            ask(frame, AT)


def test_pandas_floats_with_missing_values_are_integer_keys(ask):
    frame = pandas.DataFrame({"id": pandas.array([7, None], "Int64")})
    found = ask(frame, AT)
    assert ask.seeds[0][0] == ("7",)
    assert found["prediction"].isna().tolist() == [False, True]
    for missing in (float("nan"), None):
        ask(polars.DataFrame({"id": ["7", missing]}, strict=False), AT)
        assert len(ask.seeds) == 1
