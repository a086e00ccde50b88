"""Runs that learn from masked cells, and runs that start from their parameters."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import confluence
import headwater
from confluence import assembly, cli, config, feed, masked, starting
from confluence.checkpoint import CheckpointError, Checkpoints
from confluence.parallel import Processes
from runs import records, results, run, start_run, wait_for_step
from stores import prepare_tables

POOLS = ["data.tasks=[]", "data.pools={ orders = '', reviews = '' }", "data.mask_share=0.2"]
SHORT = [*POOLS, "optimizer.steps=16", "optimizer.adam_rate=3e-3", "run.evaluate_every=8"]
STREAMS = ["demo-shop/pool:orders", "demo-shop/pool:reviews"]


@pytest.fixture(scope="module")
def pretrained(tiny, tmp_path_factory):
    """The folder of a finished run of pools alone."""
    out = tmp_path_factory.mktemp("pretrained") / "run"
    finished = run([*tiny, *SHORT], out)
    assert finished.returncode == 0, finished.stderr
    assert "masked cells of" in finished.stdout
    return out


def test_a_run_of_pools_records_the_loss_of_each_type(pretrained):
    found = records(pretrained)
    train = [r for r in found if "split" not in r]
    assert {r["task"] for r in train} == set(STREAMS)
    types = {"numerical", "timestamp", "boolean", "categorical", "text"}
    assert {name for r in train for name in r["masked"]} <= types
    for stream in STREAMS:
        of_stream = [r for r in found if r["task"] == stream and "split" in r]
        assert [r["step"] for r in of_stream] == [0, 8, 16]
        # The same cells are masked each time.
        assert len({r["masked"]["cells"] for r in of_stream}) == 1
        assert all(r["loss"] == r["masked"]["loss"] for r in of_stream)
        # Too few steps to learn from; test_masked learns.
        assert len({r["loss"] for r in of_stream}) == 3
        assert "text" in of_stream[0]["masked"]
    content = json.loads((pretrained / "results.json").read_text())
    assert content["tasks"] == {}
    assert list(content["masked"]) == STREAMS
    report = (pretrained / "report.html").read_text()
    assert "masked cells of" in report
    assert "demo-shop/pool:reviews" in report


def test_an_evaluation_masks_the_same_cells_again(pretrained):
    found = confluence.evaluate(pretrained)
    recorded = results(pretrained)["masked"]
    assert {of: {"test": splits["test"]} for of, splits in recorded.items()} == found.masked


def test_p2_a_killed_run_of_pools_resumes_unchanged(tiny, pretrained, tmp_path):
    out = tmp_path / "run"
    process = start_run([*tiny, *SHORT], out)
    wait_for_step(process, out, 5)
    process.kill()
    process.communicate()
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert records(out) == records(pretrained)
    assert results(out) == results(pretrained)


def test_masks_beside_a_task_hide_nothing_from_its_scores(tiny, whole, tmp_path):
    settings = ["data.mask_share=0.2", "optimizer.steps=2", "run.evaluate_every=0"]
    finished = run([*tiny, *settings], tmp_path / "run")
    assert finished.returncode == 0, finished.stderr
    before = {r["task"]: r for r in records(tmp_path / "run") if r["step"] == 0}
    assert set(before) == {"demo-shop/churn", "demo-shop/spend", "demo-shop/products.material"}
    for other in (r for r in records(whole) if r["step"] == 0):
        of_masked = before[other["task"]].pop("masked")
        assert of_masked["cells"] > 20
        assert before[other["task"]] == other
    assert all("masked" in r for r in records(tmp_path / "run") if r["step"] == 1)


@pytest.mark.parametrize("is_pretrained", [True, False])
def test_a_run_starts_from_one_with_or_without_masked_texts(is_pretrained, tiny, pretrained, whole):
    """All parameters are those of the other run, but for the head that one of the two has not."""
    theirs = pretrained if is_pretrained else whole
    settings = config.load(None, [*tiny, *([] if is_pretrained else POOLS)])
    start = dataclasses.replace(settings.optimizer, start_from=str(theirs))
    settings = starting.resolve(dataclasses.replace(settings, optimizer=start))
    with assembly.assemble(settings, Processes()) as parts:
        initial = parts.program.initial()
        embedders = [of.embedder for of in parts.identities]
        found = starting.load(settings, parts.program, embedders).params
        checkpoints = Checkpoints(theirs / "checkpoints")
        like = parts.program.abstract_state(with_texts=is_pretrained)
        like = like._replace(mean=like.params)
        wanted = checkpoints.read_state(checkpoints.best, like).inference_params
    heads = {"null", "numerical", "boolean", "timestamp", "categorical"}
    assert set(found["heads"]) == heads | (set() if is_pretrained else {"text"})
    assert set(wanted["heads"]) == heads | ({"text"} if is_pretrained else set())
    if not is_pretrained:
        assert_equal(found["heads"]["text"], initial.params["heads"]["text"])
    for name in heads:
        assert_equal(found["heads"][name], wanted["heads"][name])
    for name in ("encoder", "blocks", "norm"):
        assert_equal(found[name], wanted[name])
    assert not np.array_equal(
        found["heads"]["numerical"]["weight"], initial.params["heads"]["numerical"]["weight"]
    )


def assert_equal(ours, theirs):
    for our, their in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(our, their)


SCHEMA = """
database = "league"

[[table]]
name = "matches"
source = "matches"
key = "id"
columns = { id = "ignored", city = "categorical", home_won = "boolean", report = "text" }
"""


@pytest.fixture(scope="module")
def league(tmp_path_factory):
    """A store of one table without a time."""
    draws = np.random.default_rng(7)
    rows = [
        (at, f"city {draws.integers(9)}", bool(draws.integers(2)), f"report {at}")
        for at in range(400)
    ]
    tables = {"matches": (("id", "city", "home_won", "report"), rows)}
    return prepare_tables(tmp_path_factory.mktemp("league"), SCHEMA, tables, dimension=32)


def test_pools_of_two_stores_are_learnt_in_one_run(tiny_config, league):
    data = dataclasses.replace(
        tiny_config.data, stores=(*tiny_config.data.stores, str(league)), tasks=(),
        mask_share=0.4, pools={"orders": "", "league/matches": "2024-01-01"},
    )  # fmt: skip
    whole = dataclasses.replace(tiny_config.optimizer, microbatches=0)
    settings = dataclasses.replace(tiny_config, data=data, optimizer=whole)
    with assembly.assemble(settings, Processes()) as parts:
        assert parts.streams == ["demo-shop/pool:orders", "league/pool:matches"]
        params, shop = parts.program.initial().params, parts.stores[0].metadata()["embedding"]
        for stream in parts.streams:
            host = next(iter(parts.samplers.evaluate("val", [stream])))
            one = parts.transfer.to_device(host, with_masks=True)
            is_league = stream.startswith("league")
            columns, used = np.asarray(one.columns), np.asarray(one.is_padding) == 0
            assert ((columns >= shop["column_count"]) == is_league)[used].all()
            losses = masked.by_name(*jax.device_get(parts.program.score_masked(params, one)))
            assert all(np.isfinite(of) for of in losses.values())
            assert ("categorical" in losses) or not is_league
        # A category of the second store is one of its own column.
        tables = parts.program._tables
        column = shop["column_count"]
        assert int(tables.category_starts[column]) == shop["category_count"]
        assert int(tables.category_counts[column]) == 9


def constant(texts):
    """An embedder."""
    return np.ones((len(texts), 32))


def test_stores_of_different_embedders_are_refused(tiny, whole, league, demo_store, tmp_path):
    """In one run, to start from a run, to go on with it, and to ask it."""
    embedded, shop, theirs = tmp_path / "embedded", tmp_path / "shop", "python:constant"
    for source, out in ((league.parent, embedded), (demo_store.parent / "data", shop)):
        headwater.prepare(source, source / "schema.toml", out, embedder=constant, dimension=32)
    small = ["data.tasks=[]", "data.pools={ matches = '2024-01-01' }", "data.mask_share=0.4"]
    (store,) = config.load(None, tiny).data.stores
    both = f"data.stores=['{store}', '{embedded}']"
    mixed = run([*tiny, *small, both], tmp_path / "mixed")
    assert mixed.stderr == (
        f"confluence: expected stores with vectors of one embedder, found 'hashing-1' in {store} "
        f"and {theirs!r} in {embedded}: vectors of different embedders cannot be "
        "compared; prepare one of the stores again with the embedder of the other, or train on one "
        "store\n"
    )
    started = run([*tiny, *small, f"data.stores={embedded}"], tmp_path / "second", "--from", whole)
    assert started.returncode == 1
    assert f"{whole} was trained with, 'hashing-1', found those of {theirs!r}" in started.stderr
    assert not (tmp_path / "mixed").exists()
    assert not (tmp_path / "second").exists()
    message = (
        f"the store {shop} has vectors of the embedder {theirs!r}, the checkpoint was trained "
        "on those of 'hashing-1': prepare the store again with that embedder; use the run's own"
    )
    shutil.copytree(whole, tmp_path / "copy")
    resumed = run([f"data.stores={shop}"], tmp_path / "copy", "--resume")
    assert message in resumed.stderr
    for checkpoint in ("best", "latest"):  # as evaluate and predict open a run
        with (
            pytest.raises(CheckpointError, match=re.escape(message)),
            assembly.open_run(whole, checkpoint, [shop]),
        ):
            pass


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ({"matches": ""}, 'a time at which the rows of "matches" are observed'),
        ({"match": ""}, 'no table is called "match"; name one of league/matches'),
    ],
)
def test_a_pool_that_cannot_be_is_refused(pools, message, tiny_config, league):
    data = dataclasses.replace(
        tiny_config.data, stores=(str(league),), tasks=(), mask_share=0.1, pools=pools
    )
    with pytest.raises(headwater.InvalidArgument, match=message):
        feed.open_sampler(data, tiny_config.run, Processes())


def test_a_pool_that_shows_the_test_period_gets_an_advice(demo_store, league):
    """Unless its rows, or all of the run, are observed before the training period ends."""
    stores = [headwater.Store(demo_store), headwater.Store(league)]
    end = stores[0].metadata()["statistics_until"]["time_us"]

    def advice(pools, visible_until=""):
        data = config.Data(pools=pools, visible_until=visible_until, mask_share=0.15)
        return masked.advice(data, stores)

    (line,) = advice({"orders": "", "products": "2021-01-01", "matches": "2024-01-01"})
    day = str(np.datetime64(end, "us").astype("datetime64[s]")).replace("T", " ")
    assert line.startswith(f"the pool orders masks cells of rows after {day}, when the training")
    assert line.endswith(f'set data.visible_until="{day}"')
    assert advice({"demo-shop/orders": ""}, visible_until=day) == []
    assert len(advice({"orders": "", "customers": "2029-01-01"}, visible_until="2029-01-01")) == 2
    assert advice({"other/orders": ""}) == []


ITEMS = """
database = "attic"

[[table]]
name = "items"
key = "id"
time = { column = "at" }
columns = { id = "identifier", at = "timestamp", size = "numerical", good = "boolean" }

[[task]]
name = "good"
cell = { table = "items", column = "good" }
"""


@pytest.fixture(scope="module")
def attic(tmp_path_factory):
    """A store whose first row is the latest, with a task whose labels are cells."""
    start = np.datetime64("2020-01-01")
    rows = [(at, start + np.timedelta64(300 - at, "D"), at % 7, at % 2 == 0) for at in range(300)]
    tables = {"items": (("id", "at", "size", "good"), rows)}
    return prepare_tables(tmp_path_factory.mktemp("attic"), ITEMS, tables, dimension=32)


def test_a_pool_whose_first_row_is_no_seed_has_results(attic, tiny, tmp_path):
    pools = ["data.tasks=[]", "data.pools={ items = '2020-04-01' }", "data.mask_share=0.4"]
    short = ["optimizer.steps=2", "optimizer.warmup_steps=1", "run.evaluate_every=2"]
    finished = run([*tiny, f"data.stores={attic}", *pools, *short], tmp_path / "run")
    assert finished.returncode == 0, finished.stderr
    assert list(results(tmp_path / "run")["masked"]) == ["attic/pool:items"]
    advice = "confluence: advice: contexts may show labels of test rows of attic/good, because"
    assert advice in finished.stderr


def test_a_pool_shows_labels_of_test_rows_of_a_split_by_hash(attic, tiny_config):
    """Unmasked, in its train split; the advice says so."""
    data = dataclasses.replace(
        tiny_config.data, stores=(str(attic),), tasks=("good",), pools={"items": ""},
        mask_share=0.4, task_weights=(),
    )  # fmt: skip
    (items,) = headwater.Store(attic).metadata()["tables"]
    (label,) = [of["index"] for of in items["columns"] if of["name"] == "good"]
    with feed.open_sampler(data, tiny_config.run, Processes()) as sampler:
        rows = {
            row
            for found in sampler.evaluate("test", ["good"])
            for row in found["seed_row"][found["seq_weight"] > 0]
        }
        shown = 0
        for found in sampler.evaluate("train", ["pool:items"]):
            is_label = (found["column_ids"] == label) & (found["is_padding"] == 0)
            assert not found["is_masked"][is_label].any()
            is_test = np.isin(found["seed_row"], list(rows)) & (found["seq_weight"] > 0)
            shown += np.count_nonzero(is_label[is_test] & (found["is_null"][is_test] == 0))
    assert shown > 0
    alone = dataclasses.replace(data, tasks=())
    (line,) = masked.advice_of_labels(alone, [headwater.Store(attic)])
    assert line.startswith("contexts may show labels of test rows of attic/good, because")
    # The contexts of the task have no other row of this table, which refers to none.
    assert (
        masked.advice_of_labels(dataclasses.replace(data, pools={}), [headwater.Store(attic)]) == []
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.mask_share=0.1", "optimizer.mask_weight=0"], "expected an optimizer.mask_weight"),
        (["data.mask_share=0.1", "data.task_weights=[1,1]"], "1 in all, found 2;"),
    ],
)
def test_settings_of_pools_that_cannot_be_are_refused(changes, message):
    with pytest.raises(config.ConfigError, match=message):
        config.load(None, ["data.stores=a.store", "data.pools={ items = '' }", *changes])


def test_a_run_of_pools_predicts_no_task(pretrained, monkeypatch, tmp_path, capsys):
    """Before anything is opened."""
    monkeypatch.setattr(assembly, "assemble", None)
    ours = confluence.open(pretrained)
    message = (
        f"expected a run that learnt a task, found {pretrained}, which learnt masked cells of "
        "pools alone (orders, reviews); learn a task from there with `confluence train --from "
        f"{pretrained} --set data.pools={{}} --set data.mask_share=0 --set data.visible_until= "
        "--set data.tasks=TASK --out "
        "FOLDER`"
    )
    for ask in (
        lambda: ours.predict([], key="id", at="2024-01-01"),
        lambda: ours.predict([], "churn", key="id", at="2024-01-01"),
        lambda: confluence.predict(pretrained, "churn", [("17", "2024-01-01")]),
        lambda: confluence.evaluate(pretrained, out=tmp_path / "answers.csv"),
        lambda: confluence.evaluate(pretrained, by="year"),
        lambda: confluence.evaluate(pretrained, relations=True),
    ):
        with pytest.raises(config.ConfigError, match=re.escape(message)):
            ask()
    asked = ["--task", "churn", "--at", "2024-01-01"]
    assert cli.main(["predict", str(pretrained), *asked]) == 1
    assert capsys.readouterr().err == f"confluence: {message}\n"
    assert not (tmp_path / "answers.csv").exists()
    assert ours.tasks == []


BARE = """
database = "bare"

[[table]]
name = "items"
key = "id"
time = { column = "at" }
columns = { id = "identifier", at = "timestamp" }
"""


def test_a_pool_without_a_cell_to_mask_is_refused(tiny, tmp_path):
    """Alone, and beside a pool and a task with cells."""
    rows = [(at, np.datetime64("2020-01-01") + np.timedelta64(at, "D")) for at in range(300)]
    store = prepare_tables(tmp_path, BARE, {"items": (("id", "at"), rows)}, dimension=32)
    pools = ["data.tasks=[]", "data.pools={ items = '' }", "data.mask_share=0.4"]
    refused = run([*tiny, f"data.stores={store}", *pools], tmp_path / "run")
    assert refused.returncode == 1
    assert refused.stderr == (
        "confluence: expected cells to mask in the contexts of each task and pool, found none in "
        "the first 64 contexts of bare/pool:items: with data.mask_share = 0.4 there is nothing to "
        "learn from their masked cells; set a greater data.mask_share, leave out bare/pool:items, "
        "or let contexts have rows with cells that may be masked: no identifiers, keys, "
        "references, labels, aggregates, summaries nor times of rows, and no texts with "
        "data.mask_texts = false\n"
    )
    assert not (tmp_path / "run").exists()
    shop, bare = config.load(None, tiny), config.load(None, [f"data.stores={store}"])
    stores = shop.data.stores + bare.data.stores
    for pools, weights in (
        ({"orders": "", "items": ""}, (1.0, 1.0, 1.0)),
        ({"demo-shop/orders": "", "bare/items": "2020-03-01"}, (1.0, 99.0, 1.0)),
    ):
        data = dataclasses.replace(
            shop.data, stores=stores, tasks=("churn",), pools=pools, task_weights=weights,
            mask_share=0.4,
        )  # fmt: skip
        with pytest.raises(config.ConfigError, match="64 contexts of bare/pool:items: with"):
            masked.check_cells(dataclasses.replace(shop, data=data))
        data = dataclasses.replace(data, pools={next(iter(pools)): ""}, task_weights=())
        masked.check_cells(dataclasses.replace(shop, data=data))
    with pytest.raises(config.ConfigError, match="without a task, data.pools and data.mask_share"):
        confluence.init(store, [])


def test_the_example_pretrains_and_starts_from_it(demo_store, tmp_path):
    """The commands of docs/pretraining.md, with a smaller model and few steps."""
    example = Path(__file__).parents[2] / "examples/demo-shop"
    store = tmp_path / "store"
    headwater.prepare(demo_store.parent / "data", example / "schema.toml", store, dimension=32)
    files = [example / "pretrain.toml", example / "train.toml"]
    assert config.load(files[0]).model == config.load(files[1]).model
    small = [
        f"data.stores={store}", "model.layers=1", "model.width=16", "model.hidden=32",
        "optimizer.steps=3", "run.evaluate_batches=1", "run.boosting=false", "run.threads=1",
    ]  # fmt: skip
    cells, churn = tmp_path / "cells", tmp_path / "churn"
    first = run(small, cells, "--config", files[0])
    assert first.returncode == 0, first.stderr
    assert "advice: the pool" not in first.stderr
    line = (
        "confluence: a run that starts --from this one must have the same [model]: width = 16, "
        "heads = 2, layers = 1, hidden = 32, ages = true, epochs = true\n"
    )
    assert line in first.stderr
    second = run(small, churn, "--config", files[1], "--from", cells)
    assert second.returncode == 0, second.stderr
    # What the first run fixes is no choice of the second.
    assert "model.epochs" not in second.stderr
    assert "[model]" not in second.stderr
    assert "demo-shop/churn" in second.stdout


def test_texts_without_vectors_are_refused(league, tiny_config):
    source = league.parent
    headwater.prepare(
        source, source / "schema.toml", source / "silent", dimension=32, text_vectors=False
    )
    silent = headwater.Store(source / "silent")
    data = config.Data(stores=("silent",), mask_share=0.1)
    with pytest.raises(config.ConfigError, match=r"none in silent; set data\.mask_texts=false"):
        masked.check_texts(data, [silent])
    masked.check_texts(dataclasses.replace(data, mask_texts=False), [silent])
    masked.check_texts(data, [headwater.Store(league)])
