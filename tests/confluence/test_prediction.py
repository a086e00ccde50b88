"""Predictions of chosen seeds: how they are read, checked, asked in batches and written."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest

from confluence import anchors, config, evaluation, prediction
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP
from confluence.evaluation import Task
from confluence.intervals import Intervals
from confluence.prediction import Prediction, Seed
from confluence.step import Outputs


def of_kind(kind, **stats):
    return Task("shop/any", 1, kind, stats, sees_everything=False)


def seeds_file(folder, text):
    path = folder / "seeds.csv"
    path.write_text(text)
    return path


def test_a_file_of_seeds_has_the_columns_of_the_key_and_then_the_time(tmp_path):
    found = prediction.read_seeds(
        seeds_file(tmp_path, 'club,number,at\n"a,1",x7,2022-01-01 06:00\nb,x8,\n')
    )
    assert found == [Seed(("a,1", "x7"), "2022-01-01 06:00"), Seed(("b", "x8"), None)]
    # A key may look like a time, and a time may be a year.
    for time in ("2022-01-02", "2023", ""):
        file = seeds_file(tmp_path, f"day,obs_time\n2022-01-01,{time}\n")
        assert prediction.read_seeds(file) == [Seed(("2022-01-01",), time or None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header such as key,obs_time and one line per seed, found an empty file"),
        ("key\n1\n", "line 1: expected a header of at least two columns"),
        ("1,2022-01-01\n", "line 1: expected a header such as key,obs_time, found a seed"),
        ("a,b,2022-01-01\n", "line 1: expected a header such as key,obs_time, found a seed"),
        ("key,at\n1,2022-01-01\n1,2,3\n", "line 3: expected 2 fields like the header, found 3"),
        ("key,at\n1,\n2,soon\n", "line 3: expected a time such as .*, found 'soon'"),
        (
            "obs_time,patient\n2022-01-01,1\n",
            "line 1: expected the key's column first and the observation time last, found "
            "obs_time,patient; swap the two columns",
        ),
        # Named otherwise, the times tell.
        ("at,key\n2022-01-01,1\n", "observation time last, found at,key; swap the two columns"),
        ("at,a,b\n2022-01-01,1,2\n", "expected the key's columns first .*; put at last"),
        ("a,obs_time,b\n1,,2\n", "found a,obs_time,b; put obs_time last"),
    ],
)
def test_a_file_that_has_no_seeds_is_refused_with_its_line(text, message, tmp_path):
    with pytest.raises(config.ConfigError, match=message):
        prediction.read_seeds(seeds_file(tmp_path, text))


def test_a_seed_has_a_time_unless_its_task_sees_everything():
    seeds = [Seed(("1",), "2022-01-01"), Seed(("2",), None)]
    prediction.check_seeds(of_kind(BOOLEAN), seeds[:1])
    prediction.check_seeds(of_kind(BOOLEAN)._replace(sees_everything=True), seeds)
    with pytest.raises(
        config.ConfigError, match=r"^seed 2 \(line 3 of a seeds file\): expected an"
    ):
        prediction.check_seeds(of_kind(BOOLEAN), seeds)
    with pytest.raises(config.ConfigError, match="for seed 2, found the integer 2023"):
        prediction.check_seeds(of_kind(BOOLEAN), [seeds[0], Seed(("2",), 2023)])


def test_a_seed_whose_row_did_not_exist_yet_is_refused():
    row = {"time": np.datetime64("2022-01-01", "us")}
    anchor = anchors.Anchor(SimpleNamespace(row=lambda table, key: row), "members", ("id",), 1)
    prediction.check_rows(anchor, [Seed(("a",), "2022-01-01"), Seed(("b",), None)])
    with pytest.raises(config.ConfigError, match=r'1 of 2 obs.* table "members".*\(seed 2\)'):
        prediction.check_rows(anchor, [Seed(("a",), None), Seed(("b",), "2021-01-01")])


def test_seeds_are_predicted_in_batches_and_stay_in_their_order(monkeypatch):
    asked, shown = [], []

    def predict_batch(parts, models, task, keys, times):
        assert models == ["model"]
        asked.append((task.name, keys, times))
        return np.full(len(keys), float(len(asked))), np.full(len(keys), 0.5)

    monkeypatch.setattr(prediction, "predict_batch", predict_batch)
    parts = SimpleNamespace(
        settings=SimpleNamespace(data=SimpleNamespace(batch_size=2)),
        status=SimpleNamespace(show_sometimes=lambda *of: shown.append(of)),
    )
    task, bare = of_kind(NUMERICAL), Intervals(of_kind(NUMERICAL))
    seeds = [Seed((key,), "2022-01-01") for key in "abc"]
    found = prediction.predict_seeds(parts, ["model"], bare, seeds)
    assert found == [Prediction(value, 0.5) for value in ("1", "1", "2")]
    assert asked == [
        ("shop/any", ["a", "b"], ["2022-01-01"] * 2), ("shop/any", ["c"], ["2022-01-01"])
    ]  # fmt: skip
    assert shown == [
        ("predicting shop/any: seed 1 of 3", 0.0), ("predicting shop/any: seed 3 of 3", 2 / 3)
    ]  # fmt: skip
    prediction.predict_values(parts, ["model"], task, [Seed(("a", "1"), None)])
    assert asked[-1][1:] == ([("a", "1")], [None])
    assert [len(of) for of in prediction.predict_values(parts, ["model"], task, [])] == [0, 0]


def test_a_batch_has_a_prediction_for_each_key_in_the_units_of_the_data(monkeypatch):
    outputs = Outputs(*[np.zeros(4, np.float32)] * 8)._replace(
        value=np.arange(4, dtype=np.float32), null=np.full(4, 0.25, np.float32)
    )
    asked = []
    monkeypatch.setattr(
        evaluation, "predict_batch", lambda *of: asked.append(of) or [outputs, None, None]
    )
    parts = SimpleNamespace(
        program="program",
        samplers=SimpleNamespace(sample=lambda *of: of),
        transfer=SimpleNamespace(to_device=lambda of: of),
    )
    task = of_kind(NUMERICAL, mean=10.0, std=2.0)
    found = prediction.predict_batch(parts, ["m"], task, ["a", "b", "c"], [None] * 3)
    assert [of.tolist() for of in found] == [[10, 12, 14], [0.25] * 3]
    assert asked == [("program", ["m"], ("shop/any", ["a", "b", "c"], [None] * 3), NUMERICAL)]
    assert {of.dtype for of in found} == {np.dtype(np.float64)}


def test_a_value_is_text_in_the_units_of_the_data():
    store = SimpleNamespace(category=lambda number: f"category {number}")
    parts = SimpleNamespace(stores=[None, store])

    def both(task, value):
        return [prediction.formatted(parts, task, value, is_label=of) for of in (False, True)]

    assert both(of_kind(CATEGORICAL, cat_emb_start=5), 2.0) == ["category 7"] * 2
    assert both(of_kind(TIMESTAMP), 0.0) == ["1970-01-01T00:00:00.000000"] * 2
    assert both(of_kind(BOOLEAN), 1.0) == ["1.000000", "true"]
    assert both(of_kind(BOOLEAN), 0.0) == ["0.000000", "false"]
    assert both(of_kind(NUMERICAL), np.float64(1234.5678)) == ["1234.57", "1234.5678"]
    assert prediction.formatted_ends(parts, of_kind(NUMERICAL), [np.nan, 2.0]) == [None, "2"]
    day = {"from": 0.0, "to": 0.0, "seeds": 1, "low": -86_400e6, "high": 86_400e6}
    (found,) = prediction.as_predictions(
        parts, Intervals(of_kind(TIMESTAMP), [day]), np.zeros(1), np.full(1, 0.25)
    )
    assert (found.value[:10], found.null) == ("1970-01-01", 0.25)
    assert (found.low[:10], found.high[:10]) == ("1969-12-30", "1970-01-02")


@pytest.mark.parametrize("kind", [NUMERICAL, BOOLEAN])
def test_predictions_are_lines_with_the_ends_of_intervals_if_there_can_be_any(
    kind, tmp_path, capsys
):
    seeds = [Seed(("a", "1"), "2022-01-01"), Seed(("b",), None)]
    given = [Prediction("3", 0.1234567, "2", "4"), Prediction("5", 0.5)]
    prediction.write_predictions(of_kind(kind), seeds, given, None)
    text = capsys.readouterr().out
    prediction.write_predictions(of_kind(kind), seeds, given, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == text
    ends = [["prediction_low", "prediction_high"], ["2", "4"], ["", ""]]
    ends = ends if kind == NUMERICAL else [[]] * 3
    assert list(csv.reader(text.splitlines())) == [
        ["key", "obs_time", "prediction", *ends[0], "null_probability"],
        ["a|1", "2022-01-01", "3", *ends[1], "0.123457"],
        ["b", "", "5", *ends[2], "0.5"],
    ]
