"""The parts of a run: what scores its splits, and what opens its stores and folders."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import headwater
from confluence import assembly, baselines, config, evaluation, hiding, intervals, links, masked
from confluence.batch import BOOLEAN, NUMERICAL
from confluence.checkpoint import CheckpointError, StoreIdentity, Writer
from confluence.microbatches import Microbatches
from confluence.parallel import Processes
from confluence.patience import Validation
from confluence.status import StatusLine
from confluence.step import State

SPEND = evaluation.Task("shop/spend", 0, NUMERICAL, {}, sees_everything=False)
CHURN = evaluation.Task("shop/churn", 0, BOOLEAN, {}, sees_everything=False)
PAIRS = links.Pairs(np.zeros(1, np.uint32), np.zeros(1, np.int64), drawn=7)


class Status:
    def __init__(self):
        self.shown = []

    def show(self, text):
        self.shown.append(text)

    def show_sometimes(self, text, share):
        self.shown.append((text, share))


METADATA = {"embedding": {"embedder": "hashing-1"}}


def parts_of(tasks=(SPEND,), pools=(), **settings):
    """An assembly whose sampler only counts seeds: 9 of every task and split."""
    first = SimpleNamespace(
        seed_counts=lambda split: dict.fromkeys(
            [of.name for of in (*tasks, *pools)], 9 if split == "val" else 3
        ),
        task_number=lambda name: [of.name.split("/")[1] for of in tasks].index(name.split("/")[-1]),
    )
    store = SimpleNamespace(root="r0", metadata=lambda: METADATA)
    made = config.load(None, [f"{name}={value}" for name, value in settings.items()])
    return assembly.Assembly(
        made, [store], "layout", "program", SimpleNamespace(first=first), "transfer",
        list(tasks), list(pools), Status(),
    )  # fmt: skip


def scores(values, labels=None, loss=0.5):
    values = np.array(values, float)
    labels = values if labels is None else np.array(labels, float)
    metrics = {"mae": float(np.abs(values - labels).mean()), "auroc": 0.75} if len(values) else {}
    rows = np.arange(len(values), dtype=np.uint32)
    return evaluation.Scores(loss, len(values), 0, metrics, rows, values, labels)


@pytest.fixture
def scored(monkeypatch):
    """Records how splits are scored; each has the scores that the test puts into `scored.next`."""
    recorder = SimpleNamespace(calls=[], next=[])

    def score_split(program, models, samplers, transfer, split, task, **options):
        assert (program, transfer) == ("program", "transfer")
        assert models[0] in ("a", "params")
        recorder.calls.append((split, task.name, options["batch_limit"], options["hide"]))
        for _ in range(2):
            options["after_batch"]()
        return recorder.next.pop(0)

    def of_task(settings, stores, task, splits, *, with_boosting):
        assert isinstance(settings, config.Config)
        assert [store.root for store in stores] == ["r0"]
        recorder.with_boosting = with_boosting
        metrics = {split: {"constant": {"mae": len(split)}} for split in splits}
        return SimpleNamespace(metrics=metrics, boosting={"mae": 1.5}, seconds=2.5)

    monkeypatch.setattr(evaluation, "score_split", score_split)
    monkeypatch.setattr(baselines, "of_task", of_task)
    return recorder


def test_the_validation_split_comes_first_and_gives_the_intervals_of_the_others(scored):
    # Errors from -0.5 to 0.49, and a test split of which half the labels are far off.
    errors = np.arange(100) / 100 - 0.5
    val = scores(np.full(100, 3.0), 3.0 + errors)
    test = scores([3.0, 3.0, 3.0, 3.0], [3.0, 3.1, 9.0, -9.0])
    scored.next = [[val], [test]]
    kept, batches = [], []
    found = parts_of().results(
        ["params"], ["test", "val"], with_boosting=True, after_batch=lambda: batches.append(1),
        keep=lambda *given: kept.append(given),
    )["shop/spend"]  # fmt: skip
    assert [call[:3] for call in scored.calls] == [
        ("val", "shop/spend", 0), ("test", "shop/spend", 0)
    ]  # fmt: skip
    assert scored.with_boosting
    assert len(batches) == 4
    assert list(found) == ["leading", "boosting", "cpu_seconds", "val", "test", "no_intervals"]
    assert (found["leading"], found["boosting"], found["cpu_seconds"]) == ("mae", {"mae": 1.5}, 2.5)
    assert found["no_intervals"] == ""
    of_val = intervals.of_scores(SPEND, val)
    assert found["val"]["prediction_intervals"] == of_val.record()["prediction_intervals"]
    assert "coverage" not in found["val"]
    assert found["test"]["coverage"]["share"] == 0.5
    assert "prediction_intervals" not in found["test"]
    for split, of in (("val", val), ("test", test)):
        record = found[split]
        assert record["baselines"] == {"constant": {"mae": len(split)}}
        assert (record["loss"], record["seeds"], record["mae"]) == (
            0.5,
            of.seeds,
            of.metrics["mae"],
        )
        low, high = record["interval"]
        assert low <= record["mae"] <= high
        assert record["calibration"]
        assert "members" not in record
    assert [given[:2] for given in kept] == [(SPEND, "val"), (SPEND, "test")]
    assert kept[0][2] is val
    assert kept[0][3] == kept[1][3] == of_val


def test_a_split_without_validation_has_the_recorded_intervals(scored):
    # Labels lie above what is predicted, never below it.
    recorded = intervals.Intervals(SPEND, [{"from": 0, "to": 9, "low": 0.0, "high": 1.0}])
    scored.next = [[scores([3.0, 3.0], [3.5, 9.0])], [scores([3.0, 3.0], [3.5, 9.0])]]
    parts = parts_of()
    found = parts.results(
        ["params"], ["test"], with_boosting=False, recorded=lambda task: recorded
    )["shop/spend"]
    assert not scored.with_boosting
    assert found["test"]["coverage"]["share"] == 0.5
    missing = parts.results(["params"], ["test"], with_boosting=False)["shop/spend"]["test"]
    assert "coverage" not in missing


def test_members_are_scored_by_their_mean_which_has_no_loss(scored):
    scored.next = [[scores([1.0], [2.0]), scores([1.0], [3.0]), scores([1.0], [5.0])]]
    found = parts_of().results(["a", "b"], ["test"], with_boosting=False)["shop/spend"]["test"]
    assert found["mae"] == 1.0
    assert found["members"] == [2.0, 4.0]
    assert "loss" not in found


def test_a_split_without_labels_has_no_metric(scored):
    nothing = scores([])
    scored.next = [[nothing, nothing, nothing]]
    found = parts_of().results(
        ["a", "b"], ["test"], with_boosting=False, with_relations=False,
    )["shop/spend"]["test"]  # fmt: skip
    assert found["members"] == []
    for name in ("interval", "calibration", "coverage", "relations", "mae"):
        assert name not in found


def test_the_scores_without_relations_follow_those_of_the_models(scored, monkeypatch):
    made = []

    class Hider:
        def __init__(self, metadata):
            assert metadata is METADATA
            made.append(self)

        def hide(self, batch):
            raise AssertionError

        def records(self, task, whole, hidden):
            assert whole is scored_first
            return [of.metrics[task.leading] for of in hidden]

    monkeypatch.setattr(hiding, "Hider", Hider)
    pairs = SPEND._replace(pairs=PAIRS)
    monkeypatch.setattr(links, "LEADING", "mae")
    monkeypatch.setattr(links, "interval", lambda *_: (0.0, 1.0))
    scored_first = scores([1.0], [2.0])
    hidden = [scores([1.0], [8.0]), scores([1.0], [9.0])]
    for models in (["a"], ["a", "b"]):
        each = [scores([1.0], [3.0]), scores([1.0], [5.0])] if len(models) > 1 else []
        scored.next = [[scored_first, *each, *hidden]]
        found = parts_of([pairs]).results(
            models, ["test"], with_boosting=False, with_relations=True
        )["shop/spend"]
        assert found["test"]["relations"] == [7.0, 8.0]
        assert found["test"].get("members") == ([2.0, 4.0] if each else None)
        assert found["drawn"] == 7
        assert scored.calls.pop()[3] == made[-1].hide
    scored.next = [[scores([]), *hidden]]
    found = parts_of([pairs]).results(["a"], ["test"], with_boosting=False, with_relations=True)
    assert "relations" not in found["shop/spend"]["test"]
    scored.next = [[scored_first]]
    found = parts_of().results(["a"], ["test"], with_boosting=False)["shop/spend"]
    assert "relations" not in found["test"]
    assert "drawn" not in found
    assert list(scored.calls[-1][3]("a batch")) == []


def test_progress_counts_batches_up_to_the_limit(scored):
    parts = parts_of(**{"data.batch_size": 2})
    for limit, last in ((0, 5), (2, 2), (7, 5)):
        scored.next = [[scores([1.0])]]
        parts.status.shown.clear()
        parts.score(["a"], "val", SPEND, batch_limit=limit)
        assert parts.status.shown == [
            (f"scoring val of shop/spend: batch {number} of {last}", number / last)
            for number in (1, 2)
        ]


def test_masked_cells_are_scored_for_every_task_and_pool_of_a_run_with_masks(monkeypatch):
    calls = []

    def score(program, models, samplers, transfer, split, stream, *, batch_limit, after_batch):
        assert (program, models, transfer) == ("program", ["a"], "transfer")
        calls.append((split, stream, batch_limit))
        after_batch()
        return {"loss": len(calls)}

    monkeypatch.setattr(masked, "score", score)
    pool = SimpleNamespace(name="shop/orders rows", store=0)
    parts = parts_of([SPEND, CHURN], [pool])
    assert parts.streams == ["shop/spend", "shop/churn", "shop/orders rows"]
    assert parts.masked_results(["a"], ["val"]) == {}
    parts = parts_of([SPEND], [pool], **{"data.mask_share": 0.1, "run.evaluate_batches": 4})
    found = parts.masked_results(["a"], ["val", "test"])
    assert found == {
        "shop/spend": {"val": {"loss": 1}, "test": {"loss": 2}},
        "shop/orders rows": {"val": {"loss": 3}, "test": {"loss": 4}},
    }
    assert {call[2] for call in calls} == {4}
    assert parts.status.shown[0] == ("scoring masked cells of val of shop/spend: batch 1 of 1", 1.0)
    # Alone it has no limit.
    parts.score_masked(["a"], "val", "shop/spend")
    assert calls[-1] == ("val", "shop/spend", 0)


def test_a_task_is_found_by_its_short_and_its_full_name():
    parts = parts_of([SPEND, CHURN])
    assert parts.task("churn") is parts.task("shop/churn") is CHURN
    assert parts.sampler is parts.samplers.first
    assert parts.identities == [StoreIdentity("r0", "hashing-1")]
    with pytest.raises(config.ConfigError, match="no task is called 'chrn'; did you mean 'churn'"):
        parts.task("chrn")


def test_the_parts_of_a_run_suit_each_other(tiny_config, monkeypatch):
    leaders = []

    def status(*, is_leader):
        leaders.append(is_leader)
        return StatusLine(is_leader=False)

    monkeypatch.setattr(assembly, "StatusLine", status)
    with assembly.assemble(tiny_config, Processes()) as parts:
        assert [store.metadata()["database"] for store in parts.stores] == ["demo-shop"]
        assert parts.streams == [f"demo-shop/{name}" for name in tiny_config.data.tasks]
        batches = next(parts.samplers.evaluate("val", ["demo-shop/churn"]))
        assert len(batches) == config.microbatches(tiny_config) == 4
        sampler = parts.sampler
    with pytest.raises(headwater.SamplerShutdown):
        sampler.next_train_batch()
    whole = config.changed(tiny_config, ["optimizer.microbatches=0"])
    with assembly.assemble(whole, Processes()) as parts:
        (fed,) = next(parts.samplers.evaluate("val", ["demo-shop/churn"]))
        assert parts.transfer.to_device([fed]).rows.shape == fed["seq_row_ids"].shape
    # One microbatch is a part of a batch as well, in the one form that all parts have.
    one = config.changed(tiny_config, ["optimizer.microbatches=1"])
    with assembly.assemble(one, Processes()) as parts:
        fed = next(parts.samplers.evaluate("val", ["demo-shop/churn"]))
        assert isinstance(parts.transfer.to_device(fed), Microbatches)
    # Rank 0 alone shows what is being done.
    assert leaders == [True, True, True]


def test_stores_that_are_missing_or_of_one_name_are_refused(tiny_config, tmp_path):
    (store,) = tiny_config.data.stores
    assert len(assembly.open_stores(tiny_config)) == 1
    for stores, words in [
        ((), "expected a store, found none; set data.stores=FOLDER"),
        ((str(tmp_path / "gone"),), "gone, found nothing; if it was moved"),
        ((store, store), "two stores have the name 'demo-shop'"),
    ]:
        data = dataclasses.replace(tiny_config.data, stores=stores)
        with pytest.raises(config.ConfigError, match=re.escape(words)):
            assembly.open_stores(dataclasses.replace(tiny_config, data=data))


def test_stores_of_two_embedders_are_refused():
    def check(*names):
        embedded = [{"embedding": {"embedder": name}} for name in names]
        stores = [SimpleNamespace(metadata=lambda of=of: of) for of in embedded]
        settings = config.load(None, [f"data.stores={list('abc')[: len(names)]}"])
        assembly.check_embedders(settings, stores)

    check("hashing-1")
    check("python:embed", "python:embed")
    message = "found 'hashing-1' in a and 'model m' in c: vectors of different embedders"
    with pytest.raises(config.ConfigError, match=message):
        check("hashing-1", "hashing-1", "model m")


def test_a_folder_that_is_no_run_or_has_no_checkpoint_is_refused(tiny_config, tmp_path):
    def opened(out, *given, **options):
        with assembly.open_run(out, *given, **options):
            pass

    with pytest.raises(config.ConfigError, match="for checkpoint, found 'newest'"):
        opened(tmp_path, "newest")
    with pytest.raises(config.ConfigError, match="for visible_until, found the integer 2023"):
        opened(tmp_path, "best", visible_until=2023)
    with pytest.raises(CheckpointError, match=r"found no config\.toml in .*; name the folder"):
        opened(tmp_path, "best")
    (tmp_path / "config.toml").write_text(tiny_config.to_toml())
    with pytest.raises(CheckpointError, match="has no checkpoint yet; train until the first one"):
        opened(tmp_path, "best", needs_task=True)
    with pytest.raises(config.ConfigError, match="expected a store at elsewhere, found nothing"):
        opened(tmp_path, "best", stores=["elsewhere"])
    pools = config.load(
        None, ["data.stores=a", "data.pools={ orders = '' }", "data.mask_share=0.1"]
    )
    (tmp_path / "config.toml").write_text(pools.to_toml())
    with pytest.raises(config.ConfigError, match=r"masked cells of pools alone \(orders\); learn"):
        opened(tmp_path, "best", needs_task=True)
    with pytest.raises(config.ConfigError, match="expected a store at a, found nothing"):
        opened(tmp_path, "best")


def test_a_run_has_the_parameters_of_its_best_or_its_newest_step(tmp_path):
    def state(step):
        numbers = jnp.full(3, step)
        return State({"w": numbers}, {"m": numbers}, jnp.int32(step), jnp.int32(0), {})

    parts = parts_of(**{"data.stores": "here"})
    writer = Writer(tmp_path / "checkpoints", 2)
    for step, loss in ((1, 0.5), (2, 0.7)):
        best = Validation(0.5, 1)
        writer.save(step, state(step), b"", parts.settings, parts.identities, best, loss)
    writer.wait()
    writer.close()
    for choice, step in (("best", 1), ("latest", 2)):
        found = assembly._trained(parts, tmp_path, parts.settings, choice, state(0))
        assert (found.step, found.params["w"].tolist()) == (step, [step] * 3)
