"""Boosting: what it learns from, and how many trees it keeps, against scikit-learn itself."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_info, threadpool_limits

from confluence import boosting, metrics
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL
from confluence.boosting import Boosted, Features
from confluence.evaluation import Task
from confluence.seeds import Columns, Seeds

SPLITS = ("train", "val", "test")
SIZES = {"train": 90, "val": 40, "test": 30}


def of_each(value):
    return dict.fromkeys(SPLITS, value)


def drawn(kind):
    """Returns features, a number and a category, and labels that depend on both with noise."""
    draws = np.random.default_rng(kind)
    cells, labels = {}, {}
    for split, size in SIZES.items():
        number, category = draws.standard_normal(size), draws.integers(0, 3, size)
        noisy = number + (category == 1) + draws.standard_normal(size)
        cells[split] = np.stack([number, category], axis=1).astype(np.float64)
        labels[split] = {
            NUMERICAL: noisy, BOOLEAN: (noisy > 0) * 1.0, CATEGORICAL: np.digitize(noisy, [-1, 1]),
        }[kind].astype(np.float64)  # fmt: skip
    return Features(cells, np.array([False, True])), labels


def plain(kind, features, labels, trees):
    """Returns the predictions by so many iterations."""
    options = {
        "learning_rate": 0.05, "early_stopping": False, "random_state": 0, "max_iter": trees,
        "categorical_features": [False, True],
    }  # fmt: skip
    if kind == NUMERICAL:
        model = HistGradientBoostingRegressor(loss="absolute_error", **options)
    else:
        model = HistGradientBoostingClassifier(**options)
    with threadpool_limits(1):
        model.fit(features.cells["train"], labels["train"])
        if kind == BOOLEAN:
            return {of: model.predict_proba(features.cells[of])[:, 1] for of in ("val", "test")}
        return {of: model.predict(features.cells[of]) for of in ("val", "test")}


@pytest.mark.parametrize("kind", [NUMERICAL, BOOLEAN, CATEGORICAL])
def test_as_many_trees_as_are_best_on_the_validation_split_predict(kind, monkeypatch):
    # Three categories have three trees in each iteration.
    monkeypatch.setattr(boosting, "_ITERATIONS", 8 if kind == CATEGORICAL else 5)
    monkeypatch.setattr(boosting, "_MOST_TREES", 13)
    features, labels = drawn(kind)
    found = boosting._predictions(kind, features, labels)
    tried = [plain(kind, features, labels, trees) for trees in range(1, 6)]
    leading = metrics.LEADING[kind]
    scores = [metrics.score(kind, of["val"], labels["val"])[leading] for of in tried]
    best = tried[int(np.argmin(scores) if kind == NUMERICAL else np.argmax(scores))]
    assert list(found) == ["val", "test"]
    for split, of_split in found.items():
        np.testing.assert_allclose(of_split, best[split])
    start = time.process_time()
    boosted = boosting._boosted(kind, features, labels)
    wanted = {of: metrics.score(kind, found[of], labels[of]) for of in ("val", "test")}
    assert boosted.metrics == wanted
    assert 0 < boosted.seconds <= time.process_time() - start


def test_a_validation_split_of_one_class_keeps_the_first_tree(monkeypatch):
    monkeypatch.setattr(boosting, "_ITERATIONS", 3)
    features, labels = drawn(BOOLEAN)
    labels["val"][:] = 1
    found = boosting._predictions(BOOLEAN, features, labels)
    np.testing.assert_allclose(found["test"], plain(BOOLEAN, features, labels, 1)["test"])


def test_many_train_seeds_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr(boosting, "_ITERATIONS", 2)
    monkeypatch.setattr(boosting, "_MOST_SEEDS", 60)
    features, labels = drawn(NUMERICAL)
    found = boosting._predictions(NUMERICAL, features, labels)
    # Two of three.
    thin = [at for at in range(90) if at % 3 != 2]
    few = Features({**features.cells, "train": features.cells["train"][thin]}, None)
    of_few = [
        plain(NUMERICAL, few, {**labels, "train": labels["train"][thin]}, of)["val"]
        for of in (1, 2)
    ]
    assert any(np.allclose(found["val"], of) for of in of_few)


def test_labels_of_one_class_are_predicted_for_all():
    features, labels = drawn(BOOLEAN)
    labels["train"][:] = 1
    found = boosting._predictions(BOOLEAN, features, labels)
    assert {split: set(of) for split, of in found.items()} == {"val": {1.0}, "test": {1.0}}
    assert len(found["test"]) == SIZES["test"]


def test_the_most_frequent_categories_are_numbered_and_others_unknown(monkeypatch):
    monkeypatch.setattr(boosting, "_MOST_CATEGORIES", 2)
    nan = float("nan")
    cells = {
        # 9 comes twice, 7 and 4 once: of equally frequent ones the first.
        "train": np.array([[9, 0.5, nan], [7, 1, nan], [9, 2, nan], [4, 3, nan], [nan, 4, nan]]),
        "val": np.array([[4, 0, 3], [7, 0, 3], [9, 0, 3], [12, 0, 3], [nan, nan, nan]]),
    }
    found = boosting._prepared(Features(cells, np.array([True, False, True])), np.arange(5))
    # A column without a value in train is left out.
    assert found.is_category.tolist() == [True, False]
    first = {split: of[:, 0].tolist() for split, of in found.cells.items()}
    assert first["train"] == pytest.approx([1, nan, 1, 0, nan], nan_ok=True)
    assert first["val"] == pytest.approx([0, nan, 1, nan, nan], nan_ok=True)
    assert found.cells["train"][:, 1].tolist() == [0.5, 1, 2, 3, 4]
    # The given cells stay as they are.
    assert cells["train"][0, 0] == 9
    # So is one whose values were not chosen.
    assert boosting._prepared(Features(cells, np.array([True, False, True])), np.array([4])).cells[
        "val"
    ].shape == (5, 1)


def test_a_column_may_have_more_categories_than_boosting_knows(monkeypatch):
    monkeypatch.setattr(boosting, "_ITERATIONS", 1)
    cells, labels = np.arange(300.0)[:, None], np.arange(300.0)
    found = boosting._predictions(
        NUMERICAL, Features(of_each(cells), np.array([True])), of_each(labels)
    )
    assert np.isfinite(found["test"]).all()


def test_boosting_learns_in_one_thread(monkeypatch):
    fit, threads = HistGradientBoostingRegressor.fit, []

    def watched(self, *data):
        pools = threadpool_info()
        threads.extend(of["num_threads"] for of in pools if of["user_api"] == "openmp")
        return fit(self, *data)

    monkeypatch.setattr(boosting, "_ITERATIONS", 1)
    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", watched)
    boosting._predictions(NUMERICAL, *drawn(NUMERICAL))
    assert set(threads) == {1}


def test_the_row_its_aggregates_and_earlier_labels_are_compared_in_turn(monkeypatch):
    def boosted(kind, features, answers):
        asked.append((kind, {split: of[0].tolist() for split, of in features.cells.items()},
                      features.is_category.tolist()))  # fmt: skip
        assert {split: of.tolist() for split, of in answers.items()} == of_each([5])
        return Boosted({}, len(asked))

    asked = []
    monkeypatch.setattr(boosting, "_boosted", boosted)
    task = Task("shop/spend", 0, NUMERICAL, {}, sees_everything=False)

    def compare(columns, labels=None):
        asked.clear()
        count = len(columns.names)
        cells = np.arange(1.0, count + 1)[None]
        seeds = Seeds(np.zeros(1, np.uint32), np.zeros(1, np.int64), np.full(1, 5.0), cells)
        return boosting.compare(task, dict.fromkeys(SPLITS, seeds), columns, labels)

    def columns(*, is_category, is_aggregate):
        names = tuple(f"c{at}" for at in range(len(is_category)))
        return Columns(names, np.array(is_category, bool), np.array(is_aggregate, bool))

    both = columns(is_category=[False, True, False], is_aggregate=[True, False, True])
    earlier = Features(dict.fromkeys(SPLITS, np.full((1, 2), 8.0)), np.array([True, False]))
    found = compare(both, earlier)
    assert {name: of.seconds for name, of in found.items()} == {
        boosting.ROW: 1, boosting.AGGREGATES: 2, boosting.LABELS: 3
    }  # fmt: skip
    assert asked == [
        (NUMERICAL, of_each([2]), [True]),
        (NUMERICAL, of_each([1, 2, 3]), [False, True, False]),
        (NUMERICAL, of_each([1, 2, 3, 8, 8]), [False, True, False, True, False]),
    ]
    assert list(compare(both)) == [boosting.ROW, boosting.AGGREGATES]
    assert list(compare(columns(is_category=[False], is_aggregate=[False]))) == [boosting.ROW]
    # Without a cell of the row there is nothing to learn from.
    assert list(compare(columns(is_category=[False], is_aggregate=[True]))) == [boosting.AGGREGATES]


def test_scikit_learn_is_needed(monkeypatch):
    assert boosting.is_installed()
    util = SimpleNamespace(find_spec=lambda name: None if name == "sklearn" else name)
    monkeypatch.setattr(boosting, "importlib", SimpleNamespace(util=util))
    assert not boosting.is_installed()
