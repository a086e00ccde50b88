"""The evaluation of a split: which seeds count, and the scores of models and of their mean."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from confluence import config, evaluation, links, metrics
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP
from confluence.evaluation import Task
from confluence.step import Outputs

TASK = Task("shop/spend", 0, NUMERICAL, {"mean": 10.0, "std": 2.0}, sees_everything=False)


def store_of(database, *types, **target):
    """Returns a store with a task t0, t1 and so on for each of these types."""
    tasks = [
        {
            "name": f"t{number}", "anchor": 0, "sees_everything": number == 0,
            "target": {"derived": {"column": {"stats": {"type": of}}, **target}},
        }
        for number, of in enumerate(types)
    ]  # fmt: skip
    pairs = {"anchor": np.array([4]), "observed": np.array([1])}
    return SimpleNamespace(
        metadata=lambda: {"database": database, "tasks": tasks}, pairs={"t1": pairs}.get
    )


def test_tasks_are_found_in_their_stores_and_pools_are_none():
    stores = [store_of("a", "numerical"), store_of("b", "timestamp", "boolean", "categorical")]
    found = evaluation.find_tasks(["b/t0", "a/t0", "b/t1", "b/t2", "a/pool:orders"], stores)
    assert [(of.name, of.store, of.kind, of.sees_everything) for of in found] == [
        ("b/t0", 1, TIMESTAMP, True), ("a/t0", 0, NUMERICAL, True), ("b/t1", 1, BOOLEAN, False),
        ("b/t2", 1, CATEGORICAL, False),
    ]  # fmt: skip
    assert {of.pairs for of in found} == {None}
    assert found[0].stats == {"type": "timestamp"}
    (task,) = evaluation.find_tasks(
        ["a/t1"], [store_of("a", *["boolean"] * 2, link={"negatives": 9})]
    )
    assert (task.pairs.anchors.tolist(), task.pairs.drawn) == ([4], 9)
    with pytest.raises(config.ConfigError, match="found text for task 'a/t0'"):
        evaluation.find_tasks(["a/t0"], [store_of("a", "text")])


def test_pairs_are_scored_by_their_groups_and_other_seeds_alone():
    rows, values = np.arange(4, dtype=np.uint32), np.array([0.9, 0.1, 0.8, 0.2])
    labels = np.array([0.0, 1.0, 1.0, 0.0])
    plain = TASK._replace(kind=BOOLEAN)
    pairs = links.Pairs(np.array([0, 0, 1, 1], np.uint32), np.array([0, 0, 1, 1]), 1)
    linked = plain._replace(pairs=pairs)
    assert (plain.leading, linked.leading) == ("auroc", "map")
    assert plain.score(rows, values, labels) == metrics.score(BOOLEAN, values, labels)
    assert linked.score(rows, values, labels) == links.score(pairs, rows, values, labels)
    assert plain.interval(rows, values, labels) == metrics.interval(BOOLEAN, rows, values, labels)
    assert linked.interval(rows, values, labels) == links.interval(pairs, rows, values, labels)


def outputs(*seeds):
    """Returns the outputs of seeds (weight, is NULL, value, label)."""
    weight, is_null, value, label = (np.array(of, np.float32) for of in zip(*seeds, strict=True))
    return Outputs(
        loss=value, weight=weight, null=weight * 0, value=value,
        categories=np.stack([1 - value, value], axis=1), is_null=is_null > 0, label=label,
        row=np.arange(len(seeds), dtype=np.uint32),
    )  # fmt: skip


@pytest.fixture
def score():
    """Returns a function that scores batches of outputs by models that add a number to each."""

    def of(batches, models=(0.0,), task=TASK, limit=0, hide=lambda _: ()):
        calls = []

        def evaluate(split, names):
            assert (split, names) == ("val", [task.name])
            return ([of] for of in batches)

        def predict(number, batch):
            calls.append(number)
            return batch._replace(value=batch.value + np.float32(number))

        found = evaluation.score_split(
            SimpleNamespace(predict=predict), models,
            SimpleNamespace(evaluate=evaluate),
            SimpleNamespace(to_device=lambda parts: parts[0]), "val", task,
            batch_limit=limit, after_batch=lambda: done.append(1), hide=hide,
        )  # fmt: skip
        return found, calls

    done = []
    of.done = done
    return of


# A filler, and a seed whose label is NULL, beside two of which the errors are 1 and 3 deviations.
BATCHES = [
    outputs((1, 0, 1, 0), (0, 0, 9, 9), (1, 1, 6, 0)),
    outputs((1, 0, 2, 5), (0, 1, 9, 9)),
]  # fmt: skip


def test_fillers_count_nothing_and_null_labels_the_loss_alone(score):
    (found,), _ = score(BATCHES)
    assert len(score.done) == 2
    assert found.record() == {
        "loss": 3.0, "seeds": 3, "nulls": 1, **metrics.score(NUMERICAL, found.values, found.labels)
    }  # fmt: skip
    assert found.metrics["mae"] == 4
    assert (found.values.tolist(), found.labels.tolist()) == ([12, 14], [10, 20])
    assert found.rows.tolist() == [0, 0]
    (first,), _ = score(BATCHES, limit=1)
    assert (first.seeds, first.nulls, first.metrics["mae"]) == (2, 1, 2)
    # Without a known label there is a loss and no metric.
    (nothing,), _ = score([outputs((1, 1, 6, 0))])
    assert (nothing.loss, nothing.seeds, nothing.metrics) == (6, 1, {})


def test_the_mean_of_several_models_comes_before_their_own_scores(score):
    found, calls = score(BATCHES, models=(1.0, 2.0, 6.0))
    assert [of.values.tolist() for of in found] == [[18, 20], [14, 16], [16, 18], [24, 26]]
    assert calls == [1.0, 2.0, 6.0] * 2
    for models, count in (((1.0,), 1), ((1.0, 2.0), 3)):
        found, _ = score([], models=models)
        assert len(found) == count
        for of in found:
            assert np.isnan(of.loss)
            assert (of.seeds, of.nulls, of.metrics) == (0, 0, {})
            assert len(of.rows) == len(of.values) == len(of.labels) == 0


def test_what_is_hidden_is_scored_by_the_mean_after_the_models(score):
    def hide(batch):
        return [batch, batch._replace(value=batch.value + 10), batch]

    found, calls = score(BATCHES, models=(1.0, 5.0), hide=hide)
    whole, *_, same, other, again = found
    assert len(found) == 6
    for of in (same, again):
        assert of.values.tolist() == whole.values.tolist() == [18, 20]
    assert other.values.tolist() == [38, 40]
    # A batch from which nothing is hidden is not predicted again.
    assert len(calls) == 2 * 2 * 2


def test_the_categories_of_the_mean_are_those_of_the_greatest_probability():
    one, two = outputs((1, 0, 0.25, 0)), outputs((1, 0, 0.9, 0))
    program = SimpleNamespace(predict=lambda params, _: params)
    found = evaluation.predict_batch(program, [one, two], None, CATEGORICAL)
    assert [of.value.tolist() for of in found] == [[1.0], one.value.tolist(), two.value.tolist()]
    assert {of.categories.shape for of in found} == {(1, 0)}
    assert len(evaluation.predict_batch(program, [one], None, CATEGORICAL)) == 1
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found))
