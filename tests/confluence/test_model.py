"""The model against plain implementations of its parts."""

import dataclasses
import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headwater
from confluence import attention, batch, config, feed, loss, model, optimizer, structured, synthetic
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP
from confluence.parallel import Layout, Processes
from confluence.step import Program

SETTINGS = config.Config(
    model=config.Model(width=16, heads=2, layers=2, hidden=24, compute="float32"),
    data=config.Data(batch_size=4, sequence_length=34, max_rows=5),
)


# Compiled once for all tests.
PREDICT = jax.jit(model.predict, static_argnums=(3, 4))
INITIAL_PARAMS = jax.jit(
    functools.partial(model.initial_params, with_texts=False), static_argnums=(0, 1, 2)
)
EXPAND = jax.jit(batch.expand, static_argnums=2)


def program(settings=SETTINGS):
    return Program(settings, *synthetic.vocabulary_and_tables(), Layout(jax.devices()[:1]))


@functools.cache
def learning_program(mean_share):
    """Returns a program whose training step is compiled once for several tests."""
    rates = config.Optimizer(steps=150, warmup_steps=0, adam_rate=3e-3, mean_share=mean_share)
    return program(dataclasses.replace(SETTINGS, optimizer=rates))


def made(kind=NUMERICAL, seed=0, data=SETTINGS.data):
    """Returns a batch; five rows do not fill it, so it has padding."""
    return synthetic.batch(data, kind, np.random.default_rng(seed))


def tables():
    return jax.device_put(synthetic.vocabulary_and_tables()[1])


def predicted(a_batch, params, settings=SETTINGS):
    return PREDICT(params, a_batch, tables(), settings.model, program(settings).shape)


def some_params(seed=3):
    """Returns parameters none of which is zero."""
    params = INITIAL_PARAMS(SETTINGS.model, tables().columns.shape[1], 0)
    draws = np.random.default_rng(seed)
    return jax.tree.map(
        lambda p: jnp.asarray(p + 0.1 * draws.standard_normal(p.shape), p.dtype), params
    )


def with_references(cells, draws, row_count, slots, share, relations=3):
    """Returns the cells with references of random rows, some of them to themselves."""
    shape = (len(cells.rows), slots, row_count)
    parents = draws.integers(0, row_count, shape)
    return cells._replace(
        parents=jnp.asarray(np.where(draws.random(shape) < share, parents, row_count)),
        relations=jnp.asarray(draws.integers(0, relations, shape)),
    )


def relation_vectors(draws, count, heads, depth):
    return attention.RelationVectors(
        *(jnp.asarray(draws.standard_normal((count, heads, depth)), jnp.float32) for _ in range(2))
    )


def attended(cells, way, i, j):
    """Returns how cell i attends to cell j: -1 for without a relation, else the relations."""
    rows, parents = np.asarray(cells.rows), np.asarray(cells.parents)
    found = []
    for b in range(len(rows)):
        entries = [-1] if i == j else []
        if not cells.is_padding[b, i] and not cells.is_padding[b, j]:
            if i != j and way == attention.OUT and rows[b, i] == rows[b, j]:
                entries.append(-1)
            if i != j and way == attention.COL and cells.columns[b, i] == cells.columns[b, j]:
                entries.append(-1)
            child, parent = (i, j) if way == attention.OUT else (j, i)
            if way != attention.COL:
                entries += [
                    int(cells.relations[b, slot, rows[b, child]])
                    for slot in range(parents.shape[1])
                    if parents[b, slot, rows[b, child]] == rows[b, parent]
                ]
        found.append(entries)
    return found


def test_attention_is_a_softmax_over_the_cells_that_references_lead_to():
    draws = np.random.default_rng(2)
    cell_count, row_count, shape = 23, 8, (3, 23, 2, 8)
    cells = EXPAND(made(), tables(), SETTINGS.data.max_rows)
    cells = cells._replace(
        rows=jnp.asarray(draws.integers(0, row_count - 2, shape[:2])),
        columns=jnp.asarray(draws.integers(0, 4, shape[:2])),
        is_padding=jnp.asarray(np.arange(cell_count) >= np.array([[23], [17], [1]])),
    )
    # Some rows refer to themselves, some twice to one row, some to rows without a cell.
    cells = jax.tree.map(np.asarray, with_references(cells, draws, row_count, 3, 0.4))
    q, k, v = (draws.standard_normal(shape).astype(np.float32) for _ in range(3))
    vectors = relation_vectors(draws, 3, 2, 8)
    # Row -1, for an entry without a relation, adds nothing.
    keys, values = (np.concatenate([x, np.zeros_like(x[:1])]) for x in vectors)
    seen = set()
    for way in range(3):
        given = None if way == attention.COL else vectors
        found = attention.Dense(cells)(way, jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), given)
        for i in (0, 7, 12, 22):
            entries = [attended(cells, way, i, j) for j in range(cell_count)]
            for b, h in np.ndindex(3, 2):
                pairs = [(j, n) for j in range(cell_count) for n in entries[j][b]]
                seen |= {n for _, n in pairs}
                logits = np.array([q[b, i, h] @ (k[b, j, h] + keys[n, h]) for j, n in pairs])
                weights = np.exp(logits.astype(np.float64))
                wanted = weights @ np.array([v[b, j, h] + values[n, h] for j, n in pairs])
                np.testing.assert_allclose(
                    found[b, i, h], wanted / weights.sum(), rtol=5e-5, atol=5e-6
                )
    assert seen == {-1, 0, 1, 2}


def contexts(draws, count, cell_count, row_count, column_count, widest, slots, edge_share):
    """Returns contexts of rows of any width, their cells in any order, some self-referring."""
    cells = EXPAND(made(), tables(), SETTINGS.data.max_rows)
    rows = np.zeros((count, cell_count), int)
    padding = np.ones((count, cell_count), bool)
    for b in range(count):
        widths = draws.integers(1, widest + 1, row_count)
        of_cell = np.repeat(np.arange(row_count), widths)[: cell_count - 3 * b]
        rows[b, : len(of_cell)] = draws.permutation(of_cell)
        padding[b, : len(of_cell)] = False
    cells = cells._replace(
        rows=jnp.asarray(rows),
        columns=jnp.asarray(draws.integers(0, column_count, rows.shape)),
        is_padding=jnp.asarray(padding),
    )
    return with_references(cells, draws, row_count, slots, edge_share)


@pytest.mark.parametrize(
    ("cell_count", "row_count", "column_count", "widest", "slots", "edge_share", "methods"),
    [
        (40, 12, 5, 4, 2, 0.6, (1, 1, 0)),
        (200, 24, 9, 8, 3, 0.3, (0, 0, 0)),
        (200, 5, 300, 40, 1, 0.9, (2, 2, 0)),  # rows of several slots
        # Too many tiles and too long columns for any tiled method.
        (200, 24, 1, 8, 12, 0.9, (3, 3, 1)),
        (450, 40, 4, 20, 2, 0.9, (2, 2, 1)),  # columns that fit the second band
    ],
)
def test_structured_equals_dense_in_values_and_gradients(
    cell_count, row_count, column_count, widest, slots, edge_share, methods
):
    draws = np.random.default_rng(5)
    cells = contexts(draws, 3, cell_count, row_count, column_count, widest, slots, edge_share)
    tiling = structured.Structured(cells).tiling
    assert tuple(int(tiling.methods(way)[0]) for way in range(3)) == methods
    shape = (3, cell_count, 2, 4)
    q, k, v, towards = (jnp.asarray(draws.standard_normal(shape), jnp.float32) for _ in range(4))
    vectors = relation_vectors(draws, 3, 2, 4)

    def values_and_gradients(kind):
        """Returns the attention and its gradients in each way, compiled together."""

        def of_way(way, prepared):
            given = (q, k, v, None if way == attention.COL else vectors)
            values, backward = jax.vjp(lambda *x: prepared(way, *x), *given)
            return values, backward(towards)

        def of_all(cells):
            prepared = kind(cells)
            return [of_way(way, prepared) for way in range(3)]

        return jax.jit(of_all)(cells)

    dense = values_and_gradients(attention.Dense)
    tiled = values_and_gradients(structured.Structured)
    for (wanted, slopes), (found, ours) in zip(dense, tiled, strict=True):
        np.testing.assert_allclose(found, wanted, atol=3e-6)
        pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(slopes), strict=True)
        for our, slope in pairs:
            np.testing.assert_allclose(our, slope, rtol=1e-5, atol=2e-5)


def tiling_of(cell_count, longest_column=1, tiles_needed=1):
    """Returns the layout of a context of 5 rows that needs so much; it has no cells."""
    cells = batch.Cells(*[None] * len(batch.Cells._fields))._replace(
        rows=np.zeros((1, cell_count)), parents=np.zeros((1, 1, 5))
    )
    ways = (attention.OUT, attention.IN)
    return structured.Tiling(
        cells, None, None, {way: structured._Tiles(*[np.zeros((1, 1))] * 5) for way in ways},
        {way: jnp.int32(tiles_needed) for way in ways}, None, None, jnp.int32(longest_column),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cell_count", "widths"),
    [(192, []), (193, [64]), (385, [64, 128]), (768, [64, 128]), (769, [64, 128, 256])],
)
def test_the_narrowest_band_that_holds_the_longest_column_is_chosen(cell_count, widths):
    for number, width in enumerate(widths):
        for longest, wanted in ((width, number), (width + 1, number + 1)):
            chosen, methods = tiling_of(cell_count, longest).methods(attention.COL)
            assert (int(chosen), len(methods)) == (wanted, len(widths) + 1)
    assert len(tiling_of(cell_count).methods(attention.COL)[1]) == len(widths) + 1


def test_the_longest_column_is_counted_without_padding():
    columns = np.array([[3, 1, 3, 900, 3, 1], [5, 5, 2, 2, 2, 2], [8, 8, 8, 8, 8, 8]])
    padding = np.arange(6) >= np.array([[6], [4], [2]])
    for is_padding, longest in ((padding, 3), (padding[[2, 2, 2]], 2), (padding | True, 0)):
        cells = tiling_of(6).cells._replace(columns=columns, is_padding=is_padding)
        order = jnp.argsort(structured._column_keys(cells), axis=1)
        assert int(structured._longest_run(cells, order)) == longest


def test_the_fewest_tiles_that_hold_a_batch_are_chosen():
    """40 cells of 5 rows have 10 slots of 8: a half more, then 2.5 and 5 times as many."""
    for way in (attention.OUT, attention.IN):
        for needed, wanted in {1: 0, 15: 0, 16: 1, 25: 1, 26: 2, 50: 2, 51: 3}.items():
            chosen, methods = tiling_of(40, tiles_needed=needed).methods(way)
            assert (int(chosen), len(methods)) == (wanted, 4)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_rows_are_summed_alike_with_the_method_of_each_device(monkeypatch, backend):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    draws = np.random.default_rng(2)
    x, at = draws.standard_normal((2, 3, 5, 4)), np.array([[2, 0, 2, 4, 9], [3, 3, 3, 3, 0]])
    sums, found = np.zeros((2, 3, 4, 4)), np.zeros(x.shape)
    for b, t in np.ndindex(at.shape):
        if at[b, t] < 4:  # rows beyond the last are left out
            sums[b, :, at[b, t]] += x[b, :, t]
    for b, t in np.ndindex(at.shape):
        if at[b, t] < 4:
            found[b, :, t] = sums[b, :, at[b, t]]
    x, towards = jnp.asarray(x, jnp.float32), jnp.asarray(sums, jnp.float32)
    ours, backward = jax.vjp(lambda x: attention._add_up(x, jnp.asarray(at), 4), x)
    np.testing.assert_allclose(ours, sums, atol=1e-6)
    np.testing.assert_allclose(backward(towards)[0], found, atol=1e-6)
    taken, backward = jax.vjp(lambda x: attention._take(x, jnp.asarray(at)), towards)
    np.testing.assert_allclose(taken, found, atol=1e-6)
    np.testing.assert_allclose(backward(x)[0], sums, atol=1e-6)


def test_no_device_needs_the_contexts_of_another():
    program = """
import jax, jax.numpy as jnp, numpy as np
from confluence import attention
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("contexts",))
shared = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("contexts"))
x, at = jnp.ones((4, 2, 8, 6)), jnp.zeros((4, 8), jnp.int32)
def both(x, at):
    sums, back = jax.vjp(lambda x: attention._add_up(x, at, 5), x)
    found, again = jax.vjp(lambda sums: attention._take(sums, at), sums)
    return back(sums), again(found)
text = jax.jit(both, in_shardings=shared, out_shardings=shared).lower(x, at).compile().as_text()
assert len(jax.devices()) == 2 and "num_partitions=2" in text
assert not any(word in text for word in ("all-", "reduce-scatter", "permute")), text
"""
    two = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **two})


def test_a_store_without_text_vectors_does_not_use_anothers(demo_store, tmp_path):
    data = demo_store.parent / "data"
    headwater.prepare(
        data, data / "schema.toml", tmp_path / "silent", dimension=32, text_vectors=False
    )
    silent, other = headwater.Store(tmp_path / "silent"), headwater.Store(demo_store)
    vocabulary, tables = batch.vocabulary_and_tables([silent, other], "global")
    count = silent.metadata()["embedding"]["text_count"]
    assert vocabulary.text_starts == (0, count)
    # So of a text the model sees its column, and whether it is NULL, as the note of a run says.
    assert not tables.texts[:count].any()
    np.testing.assert_array_equal(tables.texts[count:], other.text_embeddings())


def test_a_compact_batch_expands_to_the_full_one(demo_store, tiny_config):
    def sampler(**form):
        data = tiny_config.data
        return feed.open_sampler(data, tiny_config.run, Processes(), tasks=["churn"], **form)

    vocabulary, of_store = batch.vocabulary_and_tables([headwater.Store(demo_store)], "global")
    with sampler() as compact, sampler(compact=False) as full:
        for _ in range(5):
            theirs = full.next_train_batch()
            ours = batch.from_sampler(compact.next_train_batch(), vocabulary, 0)
            cells = EXPAND(ours, jax.device_put(of_store), tiny_config.data.max_rows)
            times = (theirs["semantic_types"] == TIMESTAMP) & (theirs["is_null"] == 0)
            assert times.any()
            wanted = theirs["timestamp_values"][times]
            np.testing.assert_allclose(np.asarray(cells.times)[times], wanted, atol=2e-6)
            places = np.arange(cells.row_count)
            refers = (np.asarray(cells.parents)[..., None] == places).any(axis=1)
            assert np.array_equal(refers, theirs["fk_adj"].astype(bool))
            assert np.array_equal(cells.is_target, theirs["is_target"].astype(bool))


@pytest.mark.parametrize("year", [1899, 1900, 1970, 1972, 2000, 2023, 2024, 2100])
def test_the_calendar_of_every_day_of_a_year(year):
    days = np.arange(f"{year}-01-01", f"{year + 1}-01-01", dtype="datetime64[D]")
    month, day, day_of_year = batch._calendar(jnp.asarray(days.astype(np.int32)))
    months = days.astype("datetime64[M]")
    assert np.array_equal(month, months.astype(int) % 12)
    assert np.array_equal(day, (days - months).astype(int))
    assert np.array_equal(day_of_year, np.arange(len(days)))


def test_padding_does_not_change_predictions():
    params, one = some_params(), made()
    wanted = predicted(one, params)
    padding = one.is_padding.astype(bool)
    assert padding.any()
    draws = np.random.default_rng(4)
    other = one._replace(
        numbers=np.where(padding, np.float32(50), one.numbers),
        columns=np.where(padding, draws.integers(0, 12, padding.shape, np.int32), one.columns),
        types=np.where(padding, draws.integers(0, 6, padding.shape, np.int8), one.types),
        rows=np.where(padding, np.uint16(1), one.rows),
    )
    for name, found in predicted(other, params)._asdict().items():
        assert np.array_equal(found, getattr(wanted, name)), name


@pytest.mark.parametrize("kind", ["dense", "structured"])
def test_the_order_of_cells_and_rows_does_not_change_predictions(kind):
    settings = dataclasses.replace(SETTINGS, model=config.Model(
        width=16, heads=2, layers=2, hidden=24, compute="float32", attention=kind
    ))  # fmt: skip
    params, one = some_params(), made()
    wanted = predicted(one, params, settings)
    draws = np.random.default_rng(6)
    count, cell_count = one.types.shape
    orders = np.stack([draws.permutation(cell_count) for _ in range(count)])
    # The new number of each row; the last stands for unused edges.
    rows = np.stack([draws.permutation(SETTINGS.data.max_rows) for _ in range(count)])
    beyond = np.full((count, 1), 65535)
    renumbered = np.concatenate([rows, beyond], axis=1).astype(np.uint16)
    places = np.minimum(one.edges.astype(int), SETTINGS.data.max_rows)
    edges = np.stack([renumbered[b][places[b]] for b in range(count)])
    for b in range(count):
        draws.shuffle(edges[b])
    of_rows = {
        name: np.take_along_axis(getattr(one, name), np.argsort(rows, axis=1), axis=1)
        for name in ("row_days", "row_milliseconds", "row_hops", "row_relations", "row_directions")
    }
    cells = {
        name: np.take_along_axis(np.asarray(array), orders, axis=1)
        for name, array in one._asdict().items()
        if np.shape(array) == one.types.shape
    }
    cells["rows"] = np.take_along_axis(rows.astype(np.uint16), cells["rows"].astype(int), axis=1)
    shuffled = one._replace(
        **cells,
        **of_rows,
        edges=edges,
        target_position=np.argmax(orders == one.target_position[:, None], axis=1).astype(np.int32),
    )
    for name, found in predicted(shuffled, params, settings)._asdict().items():
        np.testing.assert_allclose(found, getattr(wanted, name), rtol=2e-5, atol=1e-5)
    # The references do change them.
    other = shuffled._replace(edges=one.edges)
    found = predicted(other, params, settings)
    assert not np.allclose(found.numerical, wanted.numerical, rtol=2e-5, atol=1e-5)


def test_without_epochs_and_ages_400_years_change_nothing():
    params, one = some_params(), made()
    # 400 years, which are whole weeks.
    later = one._replace(days=one.days + np.int32(146_097))
    for epochs in (True, False):
        settings = dataclasses.replace(
            SETTINGS, model=dataclasses.replace(SETTINGS.model, ages=False, epochs=epochs)
        )
        then, now = (predicted(a_batch, params, settings).numerical for a_batch in (later, one))
        assert np.array_equal(then, now) != epochs


def test_the_age_of_a_row_and_the_way_to_it_are_inputs():
    params, one = some_params(), made()
    others = {
        "older": one._replace(row_days=one.row_days - np.int32(400)),
        "always visible": one._replace(row_days=np.full_like(one.row_days, batch.NO_DAY)),
        "farther": one._replace(row_hops=one.row_hops + np.uint16(1)),
        "as parents": one._replace(row_directions=np.ones_like(one.row_directions)),
    }
    for ages in (True, False):
        model_settings = dataclasses.replace(SETTINGS.model, ages=ages)
        settings = dataclasses.replace(SETTINGS, model=model_settings)
        wanted = predicted(one, params, settings).numerical
        for name, other in others.items():
            is_same = np.array_equal(predicted(other, params, settings).numerical, wanted)
            assert is_same == (name in ("older", "always visible") and not ages), name


def test_the_encoder_has_a_vector_for_each_boolean():
    encoder = some_params()["encoder"]
    assert encoder["boolean"].shape == (2, SETTINGS.model.width)


def test_nan_in_cells_of_another_type_or_null_reaches_no_gradient():
    params, one = some_params(), made(BOOLEAN)
    is_null = (one.types == NUMERICAL) & (np.arange(one.types.shape[1]) % 4 == 0)
    assert is_null.any()
    one = one._replace(is_null=is_null.astype(np.uint8))
    shape = program().shape

    def cost(p, b):
        predictions = model.predict(p, b, tables(), SETTINGS.model, shape)
        cells = EXPAND(b, tables(), SETTINGS.data.max_rows)
        return loss.weighted_sums(
            loss.context_losses(predictions, loss.labels(cells, b), b), b.weights
        ).mean

    slope = jax.jit(jax.grad(cost))
    wanted = slope(params, one)
    hidden = (one.types != NUMERICAL) | is_null
    spoilt = one._replace(numbers=np.where(hidden, np.float32(np.nan), one.numbers))
    found = slope(params, spoilt)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", [NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL])
def test_p7_the_label_reaches_no_prediction(kind):
    params, one = some_params(), made(kind)
    wanted = predicted(one, params)
    first = np.zeros((4, SETTINGS.data.sequence_length), bool)
    first[:, 0] = True
    other = one._replace(
        numbers=np.where(first, 7, one.numbers).astype(np.float32),
        days=np.where(first, 20_000, one.days).astype(np.int32),
        booleans=np.where(first, 1 - one.booleans, one.booleans),
        categories=np.where(first, 3 - one.categories, one.categories),
        is_null=np.where(first, 1, one.is_null).astype(np.uint8),
    )
    for name, found in predicted(other, params)._asdict().items():
        assert np.array_equal(found, getattr(wanted, name)), name


def test_a_null_target_trains_the_null_head_alone():
    one = made(NUMERICAL)
    is_null = one.is_null.copy()
    is_null[:, 0] = 1
    one = one._replace(is_null=is_null, numbers=np.full_like(one.numbers, np.nan))
    predictions = model.Predictions(*(jnp.ones((4, *rest)) for rest in ((), (), (), (15,), (32,))))
    cells = EXPAND(one, tables(), SETTINGS.data.max_rows)

    def cost(predictions):
        return jnp.sum(loss.context_losses(predictions, loss.labels(cells, one), one))

    assert float(cost(predictions)) == pytest.approx(4 * np.log1p(np.exp(-1.0)))
    slopes = jax.grad(cost)(predictions)
    assert (np.asarray(slopes.null) < 0).all()
    for name in ("numerical", "boolean", "timestamp", "categories"):
        assert not np.asarray(getattr(slopes, name)).any(), name


def test_losses_match_the_definition():
    predictions = model.Predictions(
        null=jnp.array([-1.0] * 4),
        numerical=jnp.array([0.0, 0.5, 3.0, -3.0]),
        boolean=jnp.array([0.0, 2.0, -2.0, 1.0]),
        timestamp=jnp.zeros((4, 15)),
        categories=jnp.tile(jnp.arange(32.0), (4, 1)),
    )
    null = np.log1p(np.exp(-1.0))
    for kind in synthetic.TARGET_TYPES:
        one = made(kind)
        truth = loss.Labels(
            is_null=jnp.zeros(4, bool), number=jnp.ones(4), boolean=jnp.array([0, 1, 0, 1]),
            time=jnp.full((4, 15), 3.0), category=jnp.array([0, 1, 2, 3]),
        )  # fmt: skip
        x = np.asarray(predictions.boolean)
        size = np.log(np.exp(np.arange(4.0)).sum())
        wanted = {
            # Errors of 1, a half, 2 and 4: beyond a quarter, linear.
            NUMERICAL: (np.array([1, 0.5, 2, 4]) - 1 / 8) / 2,
            BOOLEAN: np.log1p(np.exp(x)) - x * np.array([0, 1, 0, 1]),
            TIMESTAMP: [2.5 * (14 + 2) / 16] * 4,
            CATEGORICAL: size - np.arange(4.0) + 1e-4 * size**2,
        }[kind]
        np.testing.assert_allclose(
            loss.context_losses(predictions, truth, one), null + np.array(wanted), rtol=1e-5
        )


@pytest.mark.parametrize("kind", synthetic.TARGET_TYPES)
def test_a_label_is_zero_for_null_and_for_every_other_type(kind):
    one = made(kind)
    is_null = one.is_null.copy()
    is_null[1, 0] = 1
    cells = EXPAND(one._replace(is_null=is_null), tables(), SETTINGS.data.max_rows)
    found = loss.labels(cells, one)
    assert list(found.is_null) == [False, True, False, False]
    wanted = {
        "number": (NUMERICAL, cells.numbers[:, 0]),
        "boolean": (BOOLEAN, cells.booleans[:, 0]),
        "time": (TIMESTAMP, cells.times[:, 0]),
        "category": (CATEGORICAL, cells.categories[:, 0]),
    }
    for name, (own, values) in wanted.items():
        values = np.array(values) * (own == kind)
        values[1] = 0
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)


def test_the_label_of_a_category_is_its_number_within_its_column():
    one = made(CATEGORICAL)._replace(category_start=np.int32(7))
    one.categories[:, 0] = [7, 9, 10, 8]
    cells = EXPAND(one, tables(), SETTINGS.data.max_rows)
    assert list(loss.labels(cells, one).category) == [0, 2, 3, 1]


def test_the_losses_of_a_category_that_came_after_training_prefer_no_other():
    one = made(CATEGORICAL)
    truth = loss.Labels(
        is_null=jnp.zeros(4, bool), number=jnp.zeros(4), boolean=jnp.zeros(4, int),
        time=jnp.zeros((4, 15)), category=jnp.array([4, 5, 9, 3]),
    )  # fmt: skip

    def losses(first):
        scores = jnp.zeros((4, 32)).at[:, 0].set(first)
        heads = model.Predictions(*(jnp.zeros((4, *of)) for of in ((), (), (), (15,))), scores)
        return loss.context_losses(heads, truth, one)

    for first in (0.0, 5.0):
        size = np.log(np.exp(first) + 3)
        wanted = np.log(2) + 1e-4 * size**2 + np.array([0, 0, 0, size])
        np.testing.assert_allclose(losses(first), wanted, rtol=1e-5)


def test_values_and_labels_are_one_number_for_every_type():
    draws = np.random.default_rng(3)
    predictions = model.Predictions(
        null=jnp.zeros(4), numerical=jnp.arange(4.0), boolean=jnp.array([-2.0, 0.0, 1.0, 9.0]),
        timestamp=jnp.asarray(draws.standard_normal((4, 15)), jnp.float32),
        # The greatest one is beyond the four categories of the column.
        categories=jnp.asarray(draws.permuted(np.tile(np.arange(32.0), (4, 1)), axis=1)),
    )  # fmt: skip
    truth = loss.Labels(
        is_null=jnp.zeros(4, bool), number=jnp.arange(4.0) + 0.5, boolean=jnp.array([0, 1, 0, 1]),
        time=jnp.asarray(draws.standard_normal((4, 15)), jnp.float32),
        category=jnp.array([0, 1, 2, 3]),
    )  # fmt: skip
    wanted = {
        NUMERICAL: (predictions.numerical, truth.number),
        BOOLEAN: (1 / (1 + np.exp(-np.asarray(predictions.boolean))), truth.boolean),
        TIMESTAMP: (predictions.timestamp[:, 14], truth.time[:, 14]),
        CATEGORICAL: (np.argmax(predictions.categories[:, :4], axis=1), truth.category),
    }
    for kind in synthetic.TARGET_TYPES:
        found = loss.values_and_labels(predictions, truth, made(kind))
        for ours, theirs in zip(found, wanted[kind], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.fixture(scope="module")
def scoring():
    return program()


@pytest.mark.parametrize("kind", synthetic.TARGET_TYPES)
def test_outputs_are_the_predictions_and_labels_of_a_batch(kind, scoring):
    params, layout = some_params(), Layout(jax.devices()[:1])
    one = made(kind)._replace(
        weights=np.array([1, 1, 0, 1], np.float32), seed_row=np.array([7, 3, 9, 9], np.uint32)
    )
    one.is_null[1, 0] = 1
    found = scoring.predict(params, layout.to_devices(one))
    predictions = predicted(one, params)
    truth = loss.labels(EXPAND(one, tables(), SETTINGS.data.max_rows), one)
    value, label = loss.values_and_labels(predictions, truth, one)
    scores = np.exp(np.asarray(predictions.categories, np.float64))[:, :4]
    wanted = {
        "loss": loss.context_losses(predictions, truth, one),
        "weight": one.weights,
        "null": 1 / (1 + np.exp(-np.asarray(predictions.null))),
        "value": value,
        "categories": np.pad(scores / scores.sum(axis=1, keepdims=True), [(0, 0), (0, 28)]),
        "is_null": [False, True, False, False],
        "label": label,
        "row": [7, 3, 9, 9],
    }
    assert wanted.keys() == set(found._fields)
    for name, expected in wanted.items():
        np.testing.assert_allclose(
            getattr(found, name), expected, rtol=2e-5, atol=1e-6, err_msg=name
        )


def test_contexts_of_weight_zero_do_not_count():
    losses = jnp.array([1.0, 2.0, 100.0])
    assert float(loss.weighted_sums(losses, jnp.array([1.0, 1.0, 0.0])).mean) == 1.5
    assert float(loss.weighted_sums(losses, jnp.zeros(3)).mean) == 0.0


def test_muon_updates_the_blocks_matrices_alone():
    params = INITIAL_PARAMS(SETTINGS.model, 32, 0)
    kinds = optimizer.parameter_groups(params)
    muon = {
        "/".join(key.key for key in path)
        for path, kind in jax.tree_util.tree_leaves_with_path(kinds)
        if kind == optimizer.MUON
    }
    attend = {f"blocks/attention/{name}" for name in ("query", "key", "value", "out", "gate")}
    feed = {f"blocks/feed/{name}" for name in ("gate", "up", "down")}
    assert muon == attend | feed | {f"blocks/relation/{name}" for name in ("key", "value")}


def test_each_optimiser_uses_its_own_rate():
    """With one rate at 0, the parameters of the other optimiser alone change."""
    rates = config.Optimizer(steps=10, warmup_steps=0, muon_rate=0.5, adam_rate=0.0, clip_norm=1e9)
    params = INITIAL_PARAMS(SETTINGS.model, 32, 0)
    made_optimizer = optimizer.optimizer(rates)
    gradients = jax.tree.map(jnp.ones_like, params)
    updates, _ = jax.jit(made_optimizer.update)(gradients, made_optimizer.init(params), params)
    kinds = optimizer.parameter_groups(params)
    for update, kind in zip(jax.tree.leaves(updates), jax.tree.leaves(kinds), strict=True):
        assert bool(np.asarray(update).any()) == (kind == optimizer.MUON)


def test_runs_of_all_lengths_share_a_compiled_step():
    layout = Layout(jax.devices()[:1])
    batch, stop = layout.to_devices(made(CATEGORICAL)), layout.flag_to_devices(False)

    def text(steps):
        length = config.Optimizer(steps=steps, warmup_steps=steps // 10)
        of = dataclasses.replace(SETTINGS, optimizer=length)
        program = Program(of, *synthetic.vocabulary_and_tables(), layout)
        return program._step.lower(
            program.initial(), batch, stop, program._tables, program._length
        ).as_text()

    assert text(100) == text(2000)


@pytest.mark.parametrize(
    ("schedule", "after_warm_up"),
    [
        ("cosine", [0.5 - 0.45 * (1 - 0.5**0.5) / 2, 0.275, 0.05, 0.05]),
        ("linear", [0.5 - 0.45 / 4, 0.275, 0.05, 0.05]),
        ("constant", [0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_the_rate_rises_in_the_warm_up_and_follows_its_schedule(schedule, after_warm_up):
    rates = config.Optimizer(steps=90, warmup_steps=10, final_share=0.1, schedule=schedule)
    rate = optimizer.learning_rate(rates, 0.5, optimizer.Length.of(rates))
    found = [float(rate(step)) for step in (0, 5, 10, 30, 50, 90, 200)]
    assert found == pytest.approx([0, 0.25, 0.5, *after_warm_up])


def test_the_rate_falls_within_a_single_step_too():
    rates = config.Optimizer(steps=11, warmup_steps=10, final_share=0.1)
    rate = optimizer.learning_rate(rates, 0.5, optimizer.Length.of(rates))
    assert [float(rate(step)) for step in (9, 10, 11)] == pytest.approx([0.45, 0.5, 0.05])


def test_training_overfits_one_batch():
    learning = learning_program(0.0)
    layout = Layout(jax.devices()[:1])
    state, one = learning.initial(), layout.to_devices(made(CATEGORICAL))
    losses = []
    for _ in range(150):
        state, metrics = learning.step(state, one, layout.flag_to_devices(False))
        losses.append(float(metrics.loss))
    assert losses[-1] < 0.05 * losses[0]


def test_a_step_without_finite_gradient_is_skipped_and_counted():
    learning = learning_program(0.3)
    layout = Layout(jax.devices()[:1])
    flag = layout.flag_to_devices(False)
    state, _ = learning.step(learning.initial(), layout.to_devices(made()), flag)
    before = jax.device_get(state)
    spoilt = made()
    spoilt = spoilt._replace(numbers=np.where(spoilt.types == NUMERICAL, np.inf, spoilt.numbers))
    state, metrics = learning.step(state, layout.to_devices(spoilt), flag)
    assert int(metrics.skipped) == 1
    after = jax.device_get(state)
    assert int(after.step) == 2
    for name in ("params", "optimizer", "mean"):
        pairs = zip(
            jax.tree.leaves(getattr(before, name)), jax.tree.leaves(getattr(after, name)),
            strict=True,
        )  # fmt: skip
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
    _, metrics = learning.step(state, layout.to_devices(made()), flag)
    assert int(metrics.skipped) == 1
    assert np.isfinite(metrics.loss)
