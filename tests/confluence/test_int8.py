"""Models and runs on stores whose vectors of texts are 8-bit integers."""

import jax
import numpy as np
import pytest

import headwater
from confluence import batch, config, feed, loss, model, synthetic
from confluence.parallel import Layout, Processes
from runs import confluence, errors_of, process_options, records, results, run, start_run

SETTINGS = config.Model(width=16, heads=2, layers=2, hidden=24, compute="float32", epochs=True)
DATA = config.Data(batch_size=4, sequence_length=34, max_rows=7)
SHORT = ["optimizer.steps=6", "run.evaluate_every=3", "run.checkpoint_every=1"]
# Texts that are masked, and those that come with each batch.
FORMS = {
    "on the device": ["data.texts='global'"],
    "in batches": ["data.texts='batch'"],
    "to be predicted": ["data.texts='global'", "data.mask_share=0.2"],
}


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
    def found(tables):
        target, masked = model.predict_masked(params, one, tables, SETTINGS, shape)
        cells = batch.expand(one, tables, DATA.max_rows)
        texts = model.text_vectors(one, tables, shape)
        losses = loss.masked_losses(masked, cells, one, tables, texts)
        return target, masked.texts, losses.sums[batch.TEXT], losses.counts[batch.TEXT]

    return lambda tables: jax.device_get(found(tables))


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


@pytest.mark.parametrize("form", FORMS)
def test_a_run_on_int8_texts_is_near_that_on_float16(form, tiny, int8_store, tmp_path):
    settings = [*tiny, *SHORT, *FORMS[form]]
    outs = {}
    for name, stores in (("f16", []), ("int8", [f"data.stores={int8_store}"])):
        outs[name] = tmp_path / name
        finished = run([*settings, *stores], outs[name])
        assert finished.returncode == 0, finished.stderr
    halves, integers = map(records, outs.values())
    losses = [
        [line["train/loss"] for line in lines if "train/loss" in line]
        for lines in (halves, integers)
    ]
    assert losses[0]
    np.testing.assert_allclose(*losses, rtol=1e-2)
    assert losses[0] != losses[1]


def test_p9_two_processes_change_no_bit_of_a_run_on_int8_texts(tiny, int8_store, tmp_path):
    settings = [*tiny, *SHORT, *FORMS["in batches"], f"data.stores={int8_store}"]
    finished = run(settings, tmp_path / "one")
    assert finished.returncode == 0, finished.stderr
    options = process_options(2)
    ranks = [start_run(settings, tmp_path / "two", *options, rank) for rank in range(2)]
    try:
        for rank in ranks:
            error = errors_of(rank)
            assert rank.returncode == 0, error
    finally:
        for rank in ranks:
            rank.kill()
    assert records(tmp_path / "two") == records(tmp_path / "one")
    assert results(tmp_path / "two") == results(tmp_path / "one")


def test_a_run_on_stores_of_two_encodings_is_refused(tiny, demo_store, int8_store, tmp_path):
    stores = f"data.stores={{one='{demo_store}', two='{int8_store}'}}"
    finished = confluence(
        "train", "--set", stores, "--set", "data.texts='batch'", "--out", tmp_path / "run"
    )
    assert finished.returncode == 1
    expected = f"found f16 in {demo_store} and int8 in {int8_store}; prepare one of them again"
    assert expected in finished.stderr
