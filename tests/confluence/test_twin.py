"""The model against its twin in plain NumPy, and changes of the model that the twin notices."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import headwater
import twin
from confluence import attention, batch, config, feed, model, synthetic
from confluence.parallel import Processes

SETTINGS = config.Model(width=16, heads=2, layers=2, hidden=24, compute="float32", epochs=True)
DATA = config.Data(batch_size=3, sequence_length=34, max_rows=7)


def wild_batch():
    """Returns a batch with all that a batch may have, and its tables.

    Cells in any order, NULLs, padding, times before 1970, rows that refer to themselves and twice
    to one row, three relations, rows without a time, a context without an observation time.
    """
    draws = np.random.default_rng(8)
    one = synthetic.batch(DATA, twin.CATEGORICAL, draws)
    vectors = synthetic.vocabulary_and_tables()[1]
    column_count = len(vectors.columns)
    vectors = vectors._replace(
        relations=draws.standard_normal((3, 32)).astype(np.float16),
        mean_days=draws.integers(-3_000, 3_000, column_count, np.int32),
        mean_milliseconds=draws.integers(0, twin.DAY_MILLISECONDS, column_count, np.int32),
        per_deviation=np.full(column_count, 2e-4, np.float32),
    )
    shape, rows = one.types.shape, (3, DATA.max_rows)
    child, parent = draws.integers(0, DATA.max_rows, (2, 3, 2 * DATA.max_rows))
    order = np.argsort(child, axis=1, kind="stable")
    child, parent = (np.take_along_axis(of, order, axis=1) for of in (child, parent))
    # At most two references of a row, as the slots of a batch allow.
    place = np.stack([np.arange(len(of)) - np.searchsorted(of, of) for of in child])
    child, parent = (np.where(place < 2, of, 65535) for of in (child, parent))
    return one._replace(
        types=draws.integers(0, 6, shape, np.int8),
        columns=draws.integers(0, 12, shape, np.int32),
        rows=draws.integers(0, DATA.max_rows - 1, shape).astype(np.uint16),
        days=draws.integers(-30_000, 25_000, shape, np.int32),
        milliseconds=draws.integers(0, twin.DAY_MILLISECONDS, shape, np.int32),
        categories=draws.integers(0, 4, shape, np.int32),
        is_null=(draws.random(shape) < 0.2).astype(np.uint8),
        is_padding=(np.arange(shape[1]) >= np.array([[34], [27], [20]])).astype(np.uint8),
        edges=np.stack([child, parent], axis=-1).astype(np.uint16),
        relations=draws.integers(0, 3, child.shape, np.int32),
        row_days=np.where(draws.random(rows) < 0.3, batch.NO_DAY, draws.integers(1e4, 3e4, rows))
        .astype(np.int32),
        row_milliseconds=draws.integers(0, twin.DAY_MILLISECONDS, rows, np.int32),
        row_hops=draws.integers(0, 5, rows).astype(np.uint16),
        row_directions=draws.integers(0, 3, rows).astype(np.uint8),
        target_position=np.array([0, 11, 19], np.int32),
        observed_days=np.array([21_000, 3_000, batch.NO_DAY], np.int32),
        observed_milliseconds=np.array([5_000_000, 60_000_000, 0], np.int32),
        category_start=np.int32(1),
        category_count=np.int32(3),
    ), vectors  # fmt: skip


def with_masks(one, tables):
    """Returns the batch with masked cells, and tables with a column that is made of another.

    The last cell of the first context is among them.
    """
    draws = np.random.default_rng(5)
    one = one._replace(types=one.types.copy(), is_null=one.is_null.copy())
    one.types[0, -1], one.is_null[0, -1] = twin.NUMERICAL, 0
    may_be = (one.is_null == 0) & (one.is_padding == 0) & (one.types > twin.IDENTIFIER)
    may_be[np.arange(len(may_be)), one.target_position] = False
    masked = np.full((len(may_be), 9), 65535, np.uint16)
    for b, of in enumerate(may_be):
        *others, last = np.flatnonzero(of)
        places = [*draws.permutation(others)[: 8 - 2 * b], last]
        masked[b, : len(places)] = np.sort(places)
    sources = tables.sources.copy()
    sources[7] = 3
    return one._replace(masked=masked), tables._replace(sources=sources)


def some_params(settings, text_width):
    """Returns parameters none of which is zero, and of which some scales are beyond their limit."""
    made = functools.partial(model.initial_params, with_texts=True)
    params = jax.jit(made, static_argnums=(0, 1, 2))(settings, text_width, 0)
    draws = np.random.default_rng(3)
    params = jax.tree.map(
        lambda of: np.array(of + 0.2 * draws.standard_normal(of.shape), np.float32), params
    )
    params["blocks"]["relation"]["key_scale"][0, 0] = [1.7, -2.5]
    params["blocks"]["attention"]["scale"][1, 2, 1] = 42.0
    return params


def compiled(predict, one, settings):
    """Returns a function of the model, compiled anew each time, since tests change parts of it."""
    shape = model.Shape(one.row_days.shape[1], 32, has_texts=True, compute="float32")
    return jax.jit(lambda p, b, t: predict(p, b, t, settings, shape))


def predicted(one, tables, params, settings):
    return compiled(model.predict, one, settings)(params, one, tables)._asdict()


def worst_difference(ours, theirs):
    """Returns the greatest difference of any head, relative to the size of its predictions."""
    assert ours.keys() == theirs.keys()
    return max(
        np.max(np.abs(ours[name] - theirs[name])) / np.max(np.abs(theirs[name])) for name in ours
    )


@pytest.fixture(scope="module")
def wild():
    one, tables = wild_batch()
    return one, tables, some_params(SETTINGS, 32)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ages": False},
        {"epochs": False},
        {"layers": 1},
        {"layers": 3},
        {"layers": 3, "rematerialise": False},
        {"rematerialise": False},
        {"attention": "structured"},
    ],
    ids=str,
)
def test_the_model_equals_its_twin(changes, wild):
    one, tables, _ = wild
    settings = dataclasses.replace(SETTINGS, **changes)
    params = some_params(dataclasses.replace(settings, layers=max(settings.layers, 2)), 32)
    if settings.layers == 1:
        params["blocks"] = jax.tree.map(lambda of: of[:1], params["blocks"])
    wanted = twin.predictions(params, one, tables, settings, 32)
    assert worst_difference(predicted(one, tables, params, settings), wanted) < 5e-6


@pytest.mark.parametrize("attention", ["dense", "structured"])
def test_the_model_equals_its_twin_at_masked_cells(attention, wild):
    one, tables = with_masks(*wild[:2])
    settings, params = dataclasses.replace(SETTINGS, attention=attention), wild[2]
    target, masked = compiled(model.predict_masked, one, settings)(params, one, tables)
    wanted = twin.predictions(params, one, tables, settings, 32)
    assert worst_difference(target._asdict(), wanted) < 2e-5
    places = twin.masked_predictions(params, one, tables, settings)
    assert len(places) == 9 + 7 + 5
    assert all(np.isfinite(of).all() for of in jax.tree.leaves(masked)), "NaN where none is masked"
    numbers = [(b, list(one.masked[b]).index(at)) for b, at in places]
    ours = {
        name: np.array([of[at] for at in numbers])
        for name, of in {**masked.heads._asdict(), "texts": masked.texts}.items()
    }
    theirs = {name: np.array([of[name] for of in places.values()]) for name in ours}
    assert worst_difference(ours, theirs) < 2e-5


def test_the_model_equals_its_twin_on_a_store(demo_store, tiny_config):
    vocabulary, tables = batch.vocabulary_and_tables([headwater.Store(demo_store)], "global")
    params = some_params(SETTINGS, 32)
    seen = set()
    with feed.open_sampler(tiny_config.data, tiny_config.run, Processes()) as sampler:
        for _ in range(3):
            one = batch.from_sampler(sampler.next_train_batch(), vocabulary, 0)
            one = one._replace(**{
                name: getattr(one, name)[:2] for name in batch.Batch._fields
                if name not in batch.REPLICATED | batch.OF_TEXTS
            })  # fmt: skip
            seen.add(int(one.target_type))
            wanted = twin.predictions(params, one, tables, SETTINGS, vocabulary.target_categories)
            found = predicted(one, tables, params, SETTINGS)
            assert worst_difference(found, wanted) < 5e-6
    assert len(seen) > 1


def test_norms_of_small_vectors_are_bounded():
    """The term that keeps them finite at 0 is 1e-6, beside the mean and beside the sum."""
    gain = np.full(4, 0.5, np.float32)
    for size in (0.0, 1e-4, 1e-3, 1.0):
        x = np.full((2, 4), size, np.float32)
        wanted = size / np.sqrt(size**2 + 1e-6)
        np.testing.assert_allclose(model.rms_norm(x, gain), np.full((2, 4), 1.5 * wanted), 1e-5)
        wanted = size / np.sqrt(4 * size**2 + 1e-6)
        np.testing.assert_allclose(model.unit_length(x), np.full((2, 4), wanted), 1e-5)


def without_gate(own, hidden, attended):
    return model._matmul(attended.reshape(hidden.shape), own["out"])


def unnormalised(own, hidden, heads):
    x = model.rms_norm(hidden, own["norm"])
    q, k, v = (
        model._matmul(x, own[name]).reshape(*x.shape[:2], heads, -1)
        for name in ("query", "key", "value")
    )
    return q, model.unit_length(k), v


def same_row(cells):
    is_real = ~cells.is_padding
    found = cells.rows[:, :, None] == cells.rows[:, None, :]
    found &= is_real[:, :, None] & is_real[:, None, :]
    return found | np.eye(cells.rows.shape[1], dtype=bool)


REAL_AGES = batch._ages


def inverted_ages(of, days, milliseconds):
    return -REAL_AGES(of, days, milliseconds)


CHANGES = {
    "no gate": (model, "_gated", without_gate),
    "queries of any length": (model, "_projected", unnormalised),
    "COL by the mask of OUT": (attention, "_same_column", same_row),
    "inverted ages": (batch, "_ages", inverted_ages),
    "no norms": (model, "rms_norm", lambda x, gain: x),
    "scales of any size": (model, "_MAX_SCALE", 1e9),
}


@pytest.mark.parametrize("names", [*([name] for name in CHANGES), list(CHANGES)[:4]], ids=str)
def test_the_twin_notices_a_changed_model(names, wild, monkeypatch):
    one, tables, params = wild
    wanted = twin.predictions(params, one, tables, SETTINGS, 32)
    for name in names:
        monkeypatch.setattr(*CHANGES[name])
    assert worst_difference(predicted(one, tables, params, SETTINGS), wanted) > 1e-3
