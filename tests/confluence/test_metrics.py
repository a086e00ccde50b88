"""Metrics against their definitions, computed pair by pair."""

import math
import re
import statistics
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confluence import config, evaluation, metrics
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP

SCORED_PAIRS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30)


def arrays(pairs):
    values, labels = zip(*pairs, strict=True)
    return np.array(values, float), np.array(labels, float)


@given(SCORED_PAIRS)
def test_auroc_is_the_share_of_ordered_pairs(scored):
    values, labels = arrays(scored)
    pairs = [(v, w) for v, a in scored if a for w, b in scored if not b]
    found = metrics.auroc(values, labels)
    if not pairs:
        assert math.isnan(found)
    else:
        right = sum(1.0 if v > w else 0.5 if v == w else 0.0 for v, w in pairs)
        assert found == pytest.approx(right / len(pairs))


@given(SCORED_PAIRS)
def test_average_precision_sums_over_thresholds(scored):
    values, labels = arrays(scored)
    found = metrics.average_precision(values, labels)
    positives = labels.sum()
    if not positives:
        assert math.isnan(found)
        return
    wanted = recall_before = 0.0
    for threshold in sorted(set(values), reverse=True):
        taken = labels[values >= threshold]
        recall = taken.sum() / positives
        wanted += (recall - recall_before) * taken.mean()
        recall_before = recall
    assert found == pytest.approx(wanted)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_macro_f1_is_the_mean_over_categories(pairs):
    values, labels = (np.array(side, float) for side in zip(*pairs, strict=True))
    each = []
    for category in set(values) | set(labels):
        hit = sum(v == label == category for v, label in pairs)
        precision = hit / max(sum(v == category for v, _ in pairs), 1)
        recall = hit / max(sum(label == category for _, label in pairs), 1)
        each.append(2 * precision * recall / (precision + recall) if hit else 0.0)
    assert metrics.macro_f1(values, labels) == pytest.approx(np.mean(each))


def test_a_score_has_the_metrics_of_its_type():
    values, labels = np.array([0.9, 0.5, 0.4, 0.2, 0.1]), np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    assert metrics.score(BOOLEAN, values, labels) == pytest.approx(
        {"auroc": 5 / 6, "ap": 1 / 2 + 1 / 2 * 2 / 3, "accuracy": 3 / 5, "bias": 0.02}
    )
    found = metrics.score(CATEGORICAL, np.array([1.0, 2.0, 2.0]), np.array([1.0, 2.0, 1.0]))
    assert found == pytest.approx({"accuracy": 2 / 3, "macro_f1": 2 / 3})


def test_an_interval_is_one_of_the_leading_metric():
    # Each draw has the one entity, with all its seeds.
    rows, labels = np.zeros(3, np.uint32), np.array([1.0, 1.0, 0.0])
    assert metrics.interval(NUMERICAL, rows, np.array([1.0, 3.0, 4.0]), labels) == (2.0, 2.0)
    assert metrics.interval(BOOLEAN, rows, np.array([0.9, 0.1, 0.5]), labels) == (0.5, 0.5)


def test_an_error_is_worth_more_when_it_is_less():
    for metric in metrics.LEADING.values():
        assert metrics.worth(metric, 2.0) == (-2.0 if "mae" in metric else 2.0)


def test_errors_are_in_the_units_of_the_column():
    stats = {"std": 10.0, "mean": 100.0, "std_us": 86_400e6, "mean_us": 5e12}
    values = metrics.in_units(NUMERICAL, np.array([0.0, 1.0, -1.0]), stats)
    found = metrics.score(NUMERICAL, values, np.array([101.0, 110.0, 92.0]))
    assert found["mae"] == 1.0
    assert found["rmse"] == pytest.approx(math.sqrt(5 / 3))
    assert found["r2"] == pytest.approx(1 - 5 / (81 + 81))
    days = metrics.in_units(TIMESTAMP, np.array([1.0, 2.0]), stats)
    assert metrics.score(TIMESTAMP, days, np.array([5e12, 5e12]))["mae_days"] == 1.5


def test_numbers_on_a_scale_return_to_the_units_of_the_column():
    log = {"std": 2.0, "mean": 5.0, "scale": "log"}
    values = metrics.in_units(NUMERICAL, np.array([-2.5, 0.0, 1e6, -1e6]), log)
    assert values[:2] == pytest.approx([0.0, math.expm1(5)])
    assert np.isfinite(values).all()
    assert values[3] < 0
    rank = {"std": 1.0, "mean": 0.5, "scale": {"rank": {"quantiles": [1.0, 2.0, 10.0]}}}
    values = metrics.in_units(NUMERICAL, np.array([-0.5, -0.25, 0.0, 0.25, 3.0]), rank)
    assert values.tolist() == [1.0, 1.5, 2.0, 6.0, 10.0]


QUANTILES = {"rank": {"quantiles": [-3.0, 0.0, 0.0, 0.0, 2.0, 2.0, 50.0]}}


@given(st.lists(st.floats(-3, 50), min_size=2, max_size=9), st.sampled_from(["log", QUANTILES]))
def test_a_number_is_at_its_place_on_a_scale_and_the_order_stays(numbers, scale):
    places = metrics.to_scale(np.sort(numbers), scale)
    assert (np.diff(places) >= 0).all()
    assert metrics.from_scale(places, scale) == pytest.approx(np.sort(numbers), abs=1e-9)


def test_bias_is_the_mean_prediction_minus_the_mean_label():
    day = 86_400e6
    for kind, name, unit in ((NUMERICAL, "bias", 1), (TIMESTAMP, "bias_days", day)):
        found = metrics.score(kind, np.array([4.0, 6.0]) * unit, np.array([1.0, 3.0]) * unit)
        assert found[name] == 3.0
        assert next(iter(found)) == metrics.LEADING[kind]
    found = metrics.score(BOOLEAN, np.array([0.9, 0.3, 0.3]), np.array([1.0, 0.0, 1.0]))
    assert found["bias"] == pytest.approx(0.5 - 2 / 3)
    assert next(iter(found)) == "auroc"
    assert "bias" not in metrics.score(CATEGORICAL, np.array([1.0]), np.array([2.0]))


def test_baselines_use_the_train_labels_alone():
    train_rows = np.array([4, 4, 9], np.uint32)
    predictions = metrics.baselines(
        NUMERICAL, train_rows, np.array([1.0, 2.0, 6.0]), 3, np.array([9, 4, 5], np.uint32)
    )
    assert predictions["mean"].tolist() == [3.0, 3.0, 3.0]
    assert predictions["median"].tolist() == [2.0, 2.0, 2.0]
    assert predictions["mean of the entity"].tolist() == [6.0, 1.5, 3.0]
    predictions = metrics.baselines(
        CATEGORICAL, train_rows, np.array([2.0, 2.0, 1.0]), 2, np.array([9, 5], np.uint32)
    )
    assert predictions["majority of the entity"].tolist() == [1.0, 2.0]
    assert "median" not in predictions


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1),
    st.lists(st.integers(0, 7), min_size=1),
)
def test_baselines_equal_a_plain_count(train, rows):
    train_rows, labels = (np.array(part) for part in zip(*train, strict=True))
    seed_rows = np.array(rows, np.uint32)
    for kind, typical in ((NUMERICAL, np.mean), (CATEGORICAL, statistics.mode)):
        predictions = metrics.baselines(
            kind, train_rows.astype(np.uint32), labels.astype(float), len(rows), seed_rows
        )
        name = "majority" if kind == CATEGORICAL else "mean"
        # Of equally frequent ones, the least.
        overall = typical(np.sort(labels))
        own = [
            typical(np.sort(labels[train_rows == row])) if row in train_rows else overall
            for row in rows
        ]
        assert predictions[name].tolist() == pytest.approx([overall] * len(rows))
        assert predictions[f"{name} of the entity"].tolist() == pytest.approx(own)


def test_no_baseline_uses_a_train_rows_own_labels_on_train():
    rows = np.array([4, 9], np.uint32)
    assert list(metrics.baselines(BOOLEAN, rows, np.array([1.0, 0.0]), 2, None)) == ["mean"]


def test_a_split_with_one_class_has_no_auroc():
    found = metrics.score(BOOLEAN, np.array([0.2, 0.9]), np.array([1.0, 1.0]))
    assert math.isnan(found["auroc"])
    assert found["accuracy"] == 0.5


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_an_interval_draws_entities_with_all_their_seeds(rows):
    rows = np.array(rows, np.uint32)
    values = np.arange(len(rows)) ** 1.5
    entities = [np.flatnonzero(rows == row) for row in np.unique(rows)]
    draws, means = np.random.default_rng(0), []
    for _ in range(400):
        chosen = draws.integers(len(entities), size=len(entities))
        means.append(np.mean(values[np.concatenate([entities[of] for of in chosen])]))
    found = metrics.resampled(rows, lambda at: float(np.mean(values[at])))
    assert found == pytest.approx((np.quantile(means, 0.025), np.quantile(means, 0.975)))


def test_an_interval_has_the_draws_that_have_a_metric():
    rows, calls = np.arange(3, dtype=np.uint32), []

    def metric(at):
        calls.append(at)
        return float("nan") if 0 in at else 7.0

    assert metrics.resampled(rows, metric) == (7.0, 7.0)
    assert len(calls) == 400
    assert np.isnan(metrics.resampled(rows, lambda _: float("nan"))).all()


def test_a_large_split_needs_fewer_draws():
    for count, draws in ((100_000, 200), (600_000, 40)):
        calls = []
        metrics.resampled(np.arange(count, dtype=np.uint32), lambda at, c=calls: c.append(1) or 0.0)
        assert len(calls) == draws


@pytest.mark.parametrize(
    ("value", "width", "rounded"),
    [
        (123.456, 0.0, 123.456), (123.456, 0.05, 123.5), (123.456, 0.1, 123.5),
        (123.456, 0.5, 123.0), (123.456, 1.0, 123.0), (123.456, 1.5, 120.0), (125.0, 10.0, 130.0),
        # As a text of no decimals, to the even number.
        (122.5, 1.0, 122.0), (123.5, 1.0, 124.0),
        (-125.0, 10.0, -130.0), (124.9, 10.0, 120.0), (12_345.0, 300.0, 12_000.0),
        (1e-12, 1e-9, 0.0), (-1e-12, 1e-9, 0.0), (-0.0, 0.0, 0.0), (-3.0, 100.0, 0.0),
    ],
)  # fmt: skip
def test_a_number_is_rounded_to_the_power_of_ten_of_its_width(value, width, rounded):
    found = metrics._rounded(value, width)
    assert found == rounded
    assert math.copysign(1, found) == (math.copysign(1, rounded))


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=30, unique=True))
def test_a_stored_number_has_the_digits_that_it_had(cents):
    """Of z-scores of 32 bits, which determine seven digits of the distance from the mean."""
    for scale, to in (("linear", np.asarray), ("log", lambda of: metrics.to_scale(of, "log"))):
        numbers = np.array(cents) / 100
        places = to(numbers)
        stats = {"mean": float(places.mean()), "std": float(places.std()), "scale": scale}
        scores = ((places - stats["mean"]) / stats["std"]).astype(np.float32)
        found = metrics.as_stored(scores, stats)
        step = 2e-7 * (np.abs(places) + abs(stats["mean"]) + 4 * stats["std"])
        width = step * (1 if scale == "linear" else 1 + np.abs(numbers))
        assert (np.abs(found - numbers) <= 10 * width).all()


def test_known_numbers_are_shown_as_a_store_shows_them():
    stats = {"mean": 1234.5, "std": 310.25}
    numbers = np.array([0.0, 1.0, 999.99, 1234.5, 1300.0, -4000.5])
    scores = ((numbers - stats["mean"]) / stats["std"]).astype(np.float32)
    assert metrics.as_stored(scores, stats).tolist() == numbers.tolist()
    # Far from 0 the digits of 64 bits are the limit.
    far = metrics.as_stored(np.array([0.1], np.float32), {"mean": 1e12, "std": 1.0})
    assert far.tolist() == [1_000_000_000_000.1]
    log = {"mean": 3.0, "std": 1.5, "scale": "log"}
    numbers = np.array([0.0, 1.0, 12.5, -7.0, 100_000.0])
    scores = ((metrics.to_scale(numbers, "log") - 3.0) / 1.5).astype(np.float32)
    assert metrics.as_stored(scores, log).tolist() == numbers.tolist()


def test_a_number_has_as_many_digits_as_its_z_score_determines():
    # The width is 2^-23 of the number, and more than 1e-7 from 0.839 on.
    scores = np.array([0.8000001, 0.9000004], np.float32)
    found = metrics.as_stored(scores, {"mean": 0.0, "std": 1.0})
    assert found.tolist() == [0.8000001, 0.9]
    third = metrics.as_stored(np.zeros(1, np.float32), {"mean": 1 / 3, "std": 1.0})
    assert third.tolist() == [0.333333333333333]


def test_a_task_without_a_known_category_is_refused():
    def store(known):
        stats = {"type": "categorical", "cat_emb_start": 0, "cat_emb_count": 3, **known}
        task = {"name": "kind", "anchor": 0, "target": {"cell": {"column": 0, "hide": []}}}
        metadata = {
            "database": "shop",
            "tables": [{"columns": [{"stats": stats}]}],
            "tasks": [{**task, "sees_everything": False}],
        }
        return types.SimpleNamespace(metadata=lambda: metadata)

    for known in ({}, {"known_count": 2}):
        (task,) = evaluation.find_tasks(["shop/kind"], [store(known)])
        assert task.kind == CATEGORICAL
    with pytest.raises(config.ConfigError, match=re.escape("found none for task 'shop/kind'")):
        evaluation.find_tasks(["shop/kind"], [store({"known_count": 0})])
