"""Rows of a task's anchor by key and by time, and the highest of them, with a store of a few."""

from types import SimpleNamespace

import numpy as np
import pytest

import headwater
from confluence import anchors, config, prediction, ranking
from confluence.batch import BOOLEAN, CATEGORICAL
from confluence.evaluation import Task
from headwater.sampler import micros
from stores import NEVER, FewRows


def of_kind(kind):
    return Task("club/pays", 0, kind, {}, sees_everything=False)


def anchor_of(*members):
    return anchors.of_task(FewRows(*members), of_kind(BOOLEAN))


def test_a_row_is_visible_from_its_time_on_or_always_or_never():
    anchor = anchor_of(
        ("a", "2020-01-02"), ("b", None), (None, None), ("c", NEVER), ("d", "2020-01-03")
    )
    assert anchor[1:] == ("members", ("id",), 5)
    assert list(anchor.visible_rows(micros("2020-01-02"))) == [(0, "a"), (1, "b")]
    assert list(anchor.visible_rows(micros("2020-01-02") - 1)) == [(1, "b")]
    times = ["2020-01-02", "2020-01-01", "1999-01-01", None, "2020-01-05", None, "2020-01-05"]
    found = anchor.look_up([("a",), ("a",), ("b",), ("c",), ("c",), None, ("e",)], times)
    assert (found.known, found.unknown) == ([0, 2, 3], [5, 6])
    assert found.absent == [
        (1, "a", "2020-01-01", "2020-01-02 00:00:00"), (4, "c", "2020-01-05", None)
    ]  # fmt: skip
    assert anchor.key(4) == "d"


def test_a_key_of_several_columns_is_found_by_all_of_them():
    asked = []
    store = SimpleNamespace(row=lambda table, key: asked.append((table, key)))
    anchor = anchors.Anchor(store, "members", ("club", "number"), 3)
    for key in ("a", ("a",), ("a", "1")):
        anchor.find(key)
    one, same, two = asked
    assert one == same == ("members", "a")
    assert two == ("members", headwater._headwater.key_text(("a", "1")))


def test_at_most_ten_rows_that_did_not_exist_are_named():
    absent = [anchors.Absent(number, f"k{number}", "1999", None) for number in range(11)]
    told = anchors.absent_text(absent, 1200, "members", "line", 2)
    assert told.startswith('11 of 1,200 observation times are before their row of table "members"')
    assert '"k0" did not exist at 1999; its row is never visible (line 2), ' in told
    assert "(line 11), and 1 more; choose later times" in told
    assert "(line 11); choose" in anchors.absent_text(absent[:10], 10, "members", "line", 2)


@pytest.fixture
def predict(monkeypatch):
    """Returns a function that ranks the members by predictions for their keys."""

    def of(members, values, at="2022-01-01", top=None, kind=BOOLEAN, until=None, size=2):
        asked = []

        def predict_batch(parts, models, task, keys, times):
            assert (models, task.kind) == ("models", kind)
            asked.append((keys, times))
            return np.array([values[key] for key in keys]), np.array([0.5] * len(keys))

        monkeypatch.setattr(prediction, "predict_batch", predict_batch)
        data = SimpleNamespace(batch_size=size, visible_until=until)
        parts = SimpleNamespace(
            stores=[FewRows(*members)],
            settings=SimpleNamespace(data=data),
            status=SimpleNamespace(show_sometimes=shown.append),
        )
        return ranking.predict_visible(parts, "models", of_kind(kind), at, top), asked

    shown = []
    of.shown = shown
    return of


VALUES = {"a": 0.1, "b": 0.7, "c": 0.4, "d": 0.7, "e": 0.9}
MEMBERS = [(key, f"2020-01-0{1 + number}") for number, key in enumerate(VALUES)]


def test_all_visible_rows_are_predicted_in_batches_the_highest_first(predict):
    found, asked = predict(MEMBERS, VALUES, at="2020-01-05")
    assert [keys for keys, _ in asked] == [["a", "b"], ["c", "d"], ["e"]]
    assert {time for _, times in asked for time in times} == {"2020-01-05"}
    assert found.ranked.rows.tolist() == [4, 1, 3, 2, 0]
    assert found.ranked.values.tolist() == [0.9, 0.7, 0.7, 0.4, 0.1]
    assert found.anchor.table == "members"
    assert (found.repeated, found.warning) == ([], None)
    assert predict.shown[1] == "predicting club/pays at 2020-01-05: row 3 of 5"
    found, _ = predict(MEMBERS, VALUES, top=2)
    assert found.ranked.rows.tolist() == [4, 1]
    # The observation comes first, or the time until which contexts know anything.
    for at, until in (("2020-01-02", "2021-01-01"), ("2022-01-01", "2020-01-02")):
        assert predict(MEMBERS, VALUES, at, until=until)[0].ranked.rows.tolist() == [1, 0]
    with pytest.raises(config.ConfigError, match="visible at 2019-12-31, found none"):
        predict(MEMBERS, VALUES, at="2019-12-31")


def test_categories_stay_in_the_order_of_the_rows_and_have_no_highest(predict):
    found, _ = predict(MEMBERS, VALUES, kind=CATEGORICAL)
    assert found.ranked.rows.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(config.ConfigError, match="leave --top out"):
        predict(MEMBERS, VALUES, kind=CATEGORICAL, top=2)


def test_the_highest_come_from_all_batches_when_memory_is_bounded(predict, monkeypatch):
    monkeypatch.setattr(ranking, "_LEAST_KEPT", 0)
    kept = []

    def highest(parts, top):
        kept.append(sum(len(of.rows) for of in parts))
        return of_all(parts, top)

    of_all = ranking.highest
    monkeypatch.setattr(ranking, "highest", highest)
    draws = np.random.default_rng(0).permutation(40)
    values = {str(number): float(draw) for number, draw in enumerate(draws)}
    found, _ = predict([(key, None) for key in values], values, top=3)
    assert found.ranked.rows.tolist() == np.argsort(-draws)[:3].tolist()
    # Twice as many as are asked for are kept, and a batch.
    assert max(kept) <= 2 * 3 + 2
    assert len(kept) > 5


def test_rows_whose_key_names_an_earlier_row_are_named_up_to_ten(predict):
    members = [("a", None), ("b", NEVER), *[("a", None)] * 10, ("c", None), ("b", None)]
    found, asked = predict(members, {"a": 1.0, "c": 2.0})
    assert [keys for keys, _ in asked] == [["a", "c"]]
    assert found.ranked.rows.tolist() == [12, 0]
    assert found.repeated == [*((row, "a") for row in range(2, 12)), (13, "b")]
    assert found.warning.startswith('11 rows of table "members" have the key of an earlier row')
    assert '"a" (row 11), and 1 more; give' in found.warning
    assert "(row 13)" not in found.warning
    ten = found._replace(repeated=found.repeated[:10])
    assert '"a" (row 11); give' in ten.warning
