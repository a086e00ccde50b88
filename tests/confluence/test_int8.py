"""Models and runs on stores whose vectors of texts are 8-bit integers."""

import jax
import numpy as np
import pytest

import headwater
from confluence import batch, config, feed, loss, model, synthetic
from confluence.parallel import Layout, Processes
from runs import confluence, records, results, train_on

SETTINGS = config.Model(width=16, heads=2, layers=2, hidden=24, compute="float32", epochs=True)
DATA = config.Data(batch_size=4, sequence_length=34, max_rows=7)
SHORT = ["optimizer.steps=6", "run.evaluate_every=3", "run.checkpoint_every=1"]


@pytest.fixture(scope="module")
def outputs():
    """A function from tables to predictions of targets and of texts, and the loss of texts."""
    vocabulary, _ = synthetic.vocabulary_and_tables()
    shape = model.Shape(DATA.max_rows, vocabulary.target_categories, True, "float32")
    one = synthetic.batch(DATA, batch.NUMERICAL, np.random.default_rng(8))
    of_texts = np.argsort(one.types != batch.TEXT, axis=1, kind="stable")[:, :4]
    one = one._replace(masked=of_texts.astype(np.uint16))
    make = jax.jit(lambda: model.initial_params(SETTINGS, 32, 0, with_texts=True))
    params = jax.tree.map(
        lambda of: of + 0.1 * jax.random.normal(jax.random.key(1), of.shape), make()
    )

    @jax.jit
    def found(params, one, tables):
        target, masked = model.predict_masked(params, one, tables, SETTINGS, shape)
        cells = batch.expand(one, tables, DATA.max_rows)
        texts = model.text_vectors(one, tables, shape)
        losses = loss.masked_losses(masked, cells, one, tables, texts)
        return target, masked.texts, losses.sums[batch.TEXT], losses.counts[batch.TEXT]

    return lambda tables: jax.device_get(found(params, one, tables))


def quantised(tables):
    wide = tables.texts.astype(np.float32)
    scales = np.abs(wide).max(axis=1) / np.float32(127)
    integers = np.rint(wide / scales[:, None]).astype(np.int8)
    return tables._replace(texts=integers, text_scales=scales)


def test_int8_texts_give_what_their_float32_numbers_give(outputs):
    _, tables = synthetic.vocabulary_and_tables()
    integers = quantised(tables)
    wide = tables._replace(texts=integers.texts * integers.text_scales[:, None])
    assert outputs(wide)[3] == 4 * 4
    for found, wanted in zip(outputs(integers), outputs(wide), strict=True):
        jax.tree.map(
            lambda *of: np.testing.assert_allclose(*of, rtol=2e-6, atol=2e-6), found, wanted
        )
    # Half a step of each number changes the outputs, and little.
    changes = jax.tree.map(
        lambda one, other: np.abs(one - other).max() / np.abs(other).max(),
        outputs(integers)[:3], outputs(tables)[:3],
    )  # fmt: skip
    changes = jax.tree.leaves(changes)
    assert 0 < max(changes) < 0.05, changes


def test_batches_bring_int8_texts_and_their_scales_to_the_device(int8_store, tiny_config):
    store = headwater.Store(int8_store)
    data = config.load(None, [f"data.stores={int8_store}", "data.texts='batch'"]).data
    vocabulary, tables = batch.vocabulary_and_tables([store], "batch")
    with feed.open_sampler(data, tiny_config.run, Processes()) as sampler:
        host = sampler.next_train_batch()
    layout = Layout()
    found = layout.to_devices(batch.from_sampler(host, vocabulary, 0))
    texts = model.text_vectors(found, tables, model.Shape(1, 32, False, "float32"))
    assert (texts.vectors.dtype, texts.scales.dtype) == (np.int8, np.float32)
    places = host["text_embed_ids"][:2]
    wanted = host["text_batch_embeddings"] * host["text_batch_scales"][:, None]
    assert wanted.any()
    np.testing.assert_array_equal(texts.at(places), wanted[places])


def trained(settings, out):
    """Trains on one process; returns the records of the run."""
    train_on(1, settings, out)
    return records(out)


@pytest.fixture(scope="module")
def in_batches(tiny, int8_store, tmp_path_factory):
    """The folder of a run on int8 texts that come with the batches, and its settings."""
    settings = [*tiny, *SHORT, "data.texts='batch'", f"data.stores={int8_store}"]
    out = tmp_path_factory.mktemp("int8") / "run"
    trained(settings, out)
    return out, settings


def losses(lines):
    return [line["loss"] for line in lines if line.get("split")]


def test_a_run_on_int8_texts_is_near_that_on_float16(in_batches, tiny, tmp_path):
    out, _ = in_batches
    halves = trained([*tiny, *SHORT, "data.texts='batch'"], tmp_path / "f16")
    found, wanted = losses(records(out)), losses(halves)
    assert len(found) == 9
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    assert found != wanted


def test_a_model_that_predicts_int8_texts_is_near_that_of_float16(tiny, int8_store, tmp_path):
    settings = [*tiny, *SHORT, "data.mask_share=0.2"]
    halves = trained(settings, tmp_path / "f16")
    integers = trained([*settings, f"data.stores={int8_store}"], tmp_path / "int8")
    found, wanted = (
        [line["masked"]["text"] for line in lines if line.get("split")]
        for lines in (integers, halves)
    )
    assert len(found) == 9
    np.testing.assert_allclose(found, wanted, rtol=1e-2)
    assert found != wanted


def test_p9_two_processes_change_no_bit_of_a_run_on_int8_texts(in_batches, tmp_path):
    out, settings = in_batches
    train_on(2, settings, tmp_path / "two")
    assert records(tmp_path / "two") == records(out)
    assert results(tmp_path / "two") == results(out)


def test_a_run_on_stores_of_two_encodings_is_refused(demo_store, tmp_path):
    data, other = demo_store.parent / "data", tmp_path / "other"
    schema = (data / "schema.toml").read_text().replace('"demo-shop"', '"another"', 1)
    (tmp_path / "schema.toml").write_text(schema)
    headwater.prepare(data, tmp_path / "schema.toml", other, dimension=32, text_vectors="int8")
    stores = f"data.stores=['{demo_store}', '{other}']"
    for texts in ("global", "batch"):
        given = ["--set", stores, "--set", f"data.texts='{texts}'", "--out", tmp_path / "run"]
        finished = confluence("train", *given)
        assert finished.returncode == 1
        expected = f"found f16 in {demo_store} and int8 in {other}; prepare {other} again"
        assert expected in finished.stderr
