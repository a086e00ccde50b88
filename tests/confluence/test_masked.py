"""Masked cells: what the model sees and does not see of them, their losses, and learning them."""

import contextlib
import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headwater
from confluence import batch, config, feed, loss, masked, model, synthetic
from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TEXT, TIMESTAMP, TYPE_NAMES
from confluence.parallel import Layout, Processes
from confluence.step import Program
from headwater.sampler import micros

TYPES = (NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL, TEXT)
SETTINGS = config.Config(
    model=config.Model(width=16, heads=2, layers=2, hidden=24, compute="float32", epochs=True),
    data=config.Data(batch_size=4, sequence_length=34, max_rows=5, mask_share=0.2),
    optimizer=config.Optimizer(steps=150, warmup_steps=0, adam_rate=3e-3),
)
VOCABULARY, TABLES = synthetic.vocabulary_and_tables()
TEXTS = batch.Texts(TABLES.texts, None)
SHAPE = model.Shape(max_rows=5, target_categories=32, has_texts=True, compute="float32")
INITIAL = jax.jit(model.initial_params, static_argnums=(0, 1, 2), static_argnames="with_texts")
PREDICT = jax.jit(lambda *given: model.predict_masked(*given, SETTINGS.model, SHAPE))
EXPAND = jax.jit(batch.expand, static_argnums=2)
# Two cells of each type but identifiers, in the rows 1 to 3.
PLACES = np.array([8, 9, 10, 11, 12, 14, 15, 16, 17, 24], np.uint16)


def made(places=PLACES):
    """Returns a batch whose contexts have these masked cells, the last one a cell less."""
    one = synthetic.batch(SETTINGS.data, BOOLEAN, np.random.default_rng(3))
    places = np.tile(places, (len(one.types), 1))
    places[-1, -1:] = 65535
    return one._replace(masked=places)


def some_params():
    """Returns parameters none of which is zero."""
    params = INITIAL(SETTINGS.model, TABLES.columns.shape[1], 0, with_texts=True)
    draws = np.random.default_rng(4)
    return jax.tree.map(
        lambda p: jnp.asarray(p + 0.1 * draws.standard_normal(p.shape), p.dtype), params
    )


def with_other_values(one, at):
    """Returns the batch with other values, of every type, in the cells `at` [B, S]."""
    return one._replace(
        numbers=np.where(at, one.numbers + 2, one.numbers),
        days=np.where(at, one.days + 300, one.days).astype(np.int32),
        milliseconds=np.where(at, 3_600_000, one.milliseconds).astype(np.int32),
        booleans=np.where(at, 1 - one.booleans, one.booleans),
        categories=np.where(at, 3 - one.categories, one.categories).astype(np.int32),
        texts=np.where(at, 15 - one.texts, one.texts).astype(np.int32),
    )


def is_masked(one):
    found = np.zeros(one.types.shape, bool)
    for of, places in zip(found, one.masked, strict=True):
        of[places[places < len(of)]] = True
    return found


def all_equal(ours, theirs):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(our, their) for our, their in pairs)


def test_p7_no_masked_value_reaches_a_prediction():
    params, one = some_params(), made()
    assert {one.types[0, at] for at in PLACES} == set(TYPES)
    wanted = PREDICT(params, one, TABLES)
    assert all_equal(PREDICT(params, with_other_values(one, is_masked(one)), TABLES), wanted)
    # Each value of a cell that is not masked does.
    for at in (7 + kind for kind in TYPES):
        shown = one._replace(masked=np.where(one.masked == at, 65535, one.masked).astype(np.uint16))
        other = with_other_values(shown, np.arange(34) == np.full((4, 1), at))
        found, wanted = (PREDICT(params, of, TABLES) for of in (other, shown))
        assert not all_equal(found, wanted), at


@pytest.fixture(scope="module")
def with_means(demo_store, tmp_path_factory):
    """The demo shop as a store with means of stars and of earlier labels."""
    root, store = Path(__file__).parents[2], tmp_path_factory.mktemp("means") / "store"
    schema = root / "examples/demo-shop/schema.toml"
    headwater.prepare(demo_store.parent / "data", schema, store, dimension=32)
    return store


def test_p7_no_aggregate_tells_a_masked_value(with_means, tiny_config):
    """The mean of the stars of a product's reviews is not shown where a review is masked."""
    store = headwater.Store(with_means)
    vocabulary, tables = batch.vocabulary_and_tables([store], "global")
    metadata = store.metadata()
    index = {c["name"]: c["index"] for t in metadata["tables"] for c in t["columns"]}
    means = {
        of["index"]: of["name"].rpartition("mean of ")[2]
        for of in metadata["aggregates"]
        if "mean of" in of["name"]
    }
    assert means
    assert {at: tables.sources[at] for at in means} == {at: index[n] for at, n in means.items()}
    assert np.count_nonzero(tables.sources >= 0) == len(means)
    data = config.changed(tiny_config, [
        f"data.stores={with_means}", "data.tasks=churn", "data.mask_share=0.3",
        "data.sequence_length=96", "data.max_rows=40", "data.aggregates=all",
    ]).data  # fmt: skip
    hidden = 0
    with feed.open_sampler(data, tiny_config.run, Processes()) as sampler:
        for _ in range(12):
            host = sampler.next_train_batch()
            one = batch.from_sampler(host, vocabulary, 0, with_masks=True)
            cells = EXPAND(one, tables, data.max_rows)
            for b, columns in enumerate(one.columns):
                of_masked = {columns[at] for at in one.masked[b] if at < len(columns)}
                told = np.array([tables.sources[column] in of_masked for column in columns])
                wanted = host["is_masked"][b].astype(bool) | told
                assert np.array_equal(cells.is_masked[b], wanted)
                hidden += np.count_nonzero(told & (host["is_masked"][b] == 0))
            # A target is predicted from all cells.
            unmasked = batch.from_sampler(host, vocabulary, 0)
            assert not np.any(EXPAND(unmasked, tables, data.max_rows).is_masked)
    assert hidden > 0


def test_p7_no_summary_tells_a_masked_value():
    columns = [{"name": name, "index": at} for at, name in enumerate(("id", "net: worth", "paid"))]
    of_summary = ("count", "net: worth: mean", "net: worth: quantile 0.1", "paid: mean")
    tables = [
        {"columns": columns},
        {"columns": [{"name": n, "index": 3 + at} for at, n in enumerate(of_summary)]},
    ]
    metadata = {
        "tables": tables, "relations": [], "aggregates": [], "embedding": {"column_count": 7},
        "summaries": [{"table": 1, "of": 0, "columns": [1, 2]}],
    }  # fmt: skip
    assert batch._sources(metadata).tolist() == [-1, -1, -1, -1, 1, 1, 2]


def plain_loss(predictions, one, b, m):
    """Returns the loss of a masked cell, from its definition."""
    at = one.masked[b, m]
    heads = jax.tree.map(lambda of: np.asarray(of, np.float64)[b, m], predictions.heads)
    kind = one.types[b, at]
    if kind == NUMERICAL:
        error = abs(heads.numerical - one.numbers[b, at])
        return 2 * (0.5 * min(error, 0.25) ** 2 + 0.25 * max(error - 0.25, 0))
    if kind == BOOLEAN:
        return np.logaddexp(0, -heads.boolean if one.booleans[b, at] else heads.boolean)
    if kind == CATEGORICAL:
        scores = heads.categories[:4]  # those of its column
        size = np.log(np.sum(np.exp(scores)))
        return size - scores[one.categories[b, at]] + 1e-4 * size**2
    if kind == TEXT:
        vector = TABLES.texts[one.texts[b, at]].astype(np.float64)
        found = np.asarray(predictions.texts, np.float64)[b, m]
        return 1 - found @ vector / np.linalg.norm(found) / np.linalg.norm(vector)
    times = np.asarray(EXPAND(one, TABLES, 5).times, np.float64)[b, at]
    errors = np.abs(heads.timestamp - times)
    huber = np.where(errors < 1, 0.5 * errors**2, errors - 0.5)
    return huber @ np.array([1.0] * 14 + [2.0]) / 16


def test_the_losses_are_those_of_the_definition():
    params, one = some_params(), made()
    one = one._replace(weights=np.array([1, 1, 0, 1], np.float32))  # a filler
    _, predictions = PREDICT(params, one, TABLES)
    cells = EXPAND(one, TABLES, 5)
    found = loss.masked_losses(predictions, cells, one, TABLES, TEXTS)
    sums, counts = np.zeros((2, len(TYPE_NAMES)))
    for b, m in np.ndindex(one.masked.shape):
        if one.masked[b, m] < 34 and one.weights[b]:
            kind = one.types[b, one.masked[b, m]]
            sums[kind] += plain_loss(predictions, one, b, m)
            counts[kind] += 1
    np.testing.assert_allclose(found.counts, counts)
    np.testing.assert_allclose(loss.masked_counts(cells, one, TABLES), counts)
    np.testing.assert_allclose(found.sums, sums, rtol=2e-5)
    # Each cell weighs alike.
    assert float(found.mean) == pytest.approx(sums.sum() / counts.sum(), rel=2e-5)
    named = masked.by_name(*found)
    assert list(named) == list(TYPE_NAMES[1:])
    assert named["text"] == pytest.approx(sums[TEXT] / counts[TEXT], rel=2e-5)


def test_losses_have_a_mean_of_one_cell_and_of_none():
    one = jnp.zeros(6).at[TEXT].set(1)
    assert float(loss.ByType(3 * one, one).mean) == 3
    assert float(loss.ByType(jnp.zeros(6), jnp.zeros(6)).mean) == 0


def test_the_losses_of_the_last_cell_are_its_own():
    params, one = some_params(), made(np.array([33], np.uint16))
    one = one._replace(
        types=np.where(np.arange(34) == 33, NUMERICAL, BOOLEAN) + np.zeros_like(one.types),
        is_padding=np.zeros_like(one.is_padding),
    )
    _, predictions = PREDICT(params, one, TABLES)
    cells = EXPAND(one, TABLES, 5)
    found = loss.masked_losses(predictions, cells, one, TABLES, TEXTS)
    # The last context has no masked cell.
    assert found.counts[NUMERICAL] == np.sum(found.counts) == 3
    wanted = sum(plain_loss(predictions, one, b, 0) for b in range(3))
    assert float(np.sum(found.sums)) == pytest.approx(wanted, rel=1e-5)


def test_losses_know_the_categories_of_a_column_alone():
    found = loss.known_categories(jnp.arange(6.0), jnp.array([[2], [0]]), jnp.array([[3], [1]]))
    assert found.tolist() == [[-1e9, -1e9, -1e9, 3, 4, -1e9], [-1e9] * 6]


def test_categories_of_other_columns_and_later_ones_change_no_loss():
    params, one = some_params(), made()
    _, predictions = PREDICT(params, one, TABLES)
    cells = EXPAND(one, TABLES, 5)

    def categorical(categories, counts=TABLES.category_counts):
        heads = predictions.heads._replace(categories=categories)
        tables = TABLES._replace(category_counts=counts)
        given = predictions._replace(heads=heads), cells, one, tables, TEXTS
        found = loss.masked_losses(*given)
        return float(found.sums[CATEGORICAL]), int(found.counts[CATEGORICAL])

    scores = predictions.heads.categories
    wanted = categorical(scores)
    assert categorical(scores.at[..., 4:].set(50.0)) == wanted
    assert categorical(scores.at[..., 3].add(1.0)) != wanted
    # Categories that training did not know count nothing.
    assert wanted[1] > 0
    assert categorical(scores, np.zeros_like(TABLES.category_counts)) == (0.0, 0)


def test_a_model_learns_masked_cells_of_every_type():
    layout = Layout(jax.devices()[:1])
    program = Program(SETTINGS, VOCABULARY, TABLES, layout)
    state, stop = program.initial(), layout.flag_to_devices(False)
    one = layout.to_devices(made())
    losses = []
    for _ in range(SETTINGS.optimizer.steps):
        state, metrics = program.step(state, one, stop)
        losses.append(masked.by_name(*jax.device_get(metrics.masked)))
    assert set(losses[0]) == set(TYPE_NAMES[1:])
    for name, last in losses[-1].items():
        assert last < 0.3 * losses[0][name], name
    assert program.compiled_steps == 1
    # Scored with the parameters after the step before, it has the loss of the next step.
    scored = jax.device_get(program.score_masked(state.params, one))
    state, metrics = program.step(state, one, stop)
    np.testing.assert_allclose(scored.sums, metrics.masked.sums, rtol=1e-4)


def test_masked_cells_are_learnt_from_other_cells_of_contexts_never_seen():
    """A rule, that is; without one, a model comes no further than the mean of each type."""
    data = config.Data(batch_size=32, sequence_length=19, max_rows=3, mask_share=0.2)
    settings = config.Config(
        model=dataclasses.replace(SETTINGS.model, width=32, hidden=48),
        data=data,
        optimizer=dataclasses.replace(SETTINGS.optimizer, steps=100, warmup_steps=10),
    )
    layout = Layout(jax.devices()[:1])
    program, stop = Program(settings, VOCABULARY, TABLES, layout), layout.flag_to_devices(False)

    def fresh(seed, contexts_apart):
        """Masks the seed's row, whose cells are those of its parent, or of another context's."""
        one = synthetic.batch(data, BOOLEAN, np.random.default_rng(seed))
        for values in (one.numbers, one.days, one.booleans, one.categories, one.texts):
            values[:, 2:7] = np.roll(values[:, 8:13], contexts_apart, axis=0)
        places = np.tile(np.arange(2, 7, dtype=np.uint16), (data.batch_size, 1))
        return layout.to_devices(one._replace(masked=places))

    def losses(contexts_apart):
        state = program.initial()
        for seed in range(settings.optimizer.steps):
            state, _ = program.step(state, fresh(seed, contexts_apart), stop)
        scored = program.score_masked(state.params, fresh(10_000, contexts_apart))
        return masked.by_name(*jax.device_get(scored))

    by_rule, without_rule = losses(0), losses(1)
    assert set(by_rule) == set(TYPE_NAMES[1:])
    for name, found in by_rule.items():
        assert found < 0.05 < 0.1 < without_rule[name], name


@pytest.fixture(scope="module")
def gradients():
    """Returns a function that gives the loss and the gradients of a batch, by mask_weight."""

    def of(one, weight):
        optimizer = dataclasses.replace(SETTINGS.optimizer, mask_weight=weight)
        settings = dataclasses.replace(SETTINGS, optimizer=optimizer)
        program = Program(settings, VOCABULARY, TABLES, Layout(jax.devices()[:1]))

        def cost(params, one, tables):
            sums = program._sums(params, one, tables)
            return program._cost(sums), sums.masked

        whole = jax.value_and_grad(cost, has_aux=True)
        (found, by_type), slopes = jax.jit(whole)(some_params(), one, TABLES)
        return float(found), None if by_type is None else float(by_type.mean), slopes

    return of


def test_the_loss_is_that_of_the_target_and_the_weighted_mean_of_the_cells(gradients):
    alone, _, _ = gradients(made(), 0.0)
    whole, mean, _ = gradients(made(), 0.5)
    assert whole == pytest.approx(alone + 0.5 * mean, rel=1e-6)
    # In the same context all cells but the target may be seen.
    unmasked, nothing, slopes = gradients(made(PLACES[:0]), 0.5)
    assert nothing is None
    assert unmasked != alone
    assert not np.any(slopes["heads"]["text"]["weight"])


def test_a_row_of_a_pool_is_learnt_from_its_masked_cells_alone(gradients):
    one = made()._replace(
        target_position=np.full(4, -1, np.int32), target_type=np.int32(batch.NO_TARGET)
    )
    found, mean, slopes = gradients(one, 1.0)
    assert found == pytest.approx(mean, rel=1e-6)
    assert not np.any(slopes["heads"]["null"]["weight"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def test_a_head_for_texts_changes_no_other_parameter():
    alone, more = (INITIAL(SETTINGS.model, 32, 7, with_texts=of) for of in (False, True))
    assert more["heads"]["text"]["weight"].shape == (16, 32)
    heads = {name: of for name, of in more["heads"].items() if name != "text"}
    assert jax.tree.structure({**more, "heads": heads}) == jax.tree.structure(alone)
    assert all_equal({**more, "heads": heads}, alone)


@pytest.mark.parametrize(
    ("share", "texts", "has_head"), [(0.2, True, True), (0.2, False, False), (0.0, True, False)]
)
def test_only_a_run_that_masks_texts_has_a_head_for_them(share, texts, has_head):
    data = dataclasses.replace(SETTINGS.data, mask_share=share, mask_texts=texts)
    settings = dataclasses.replace(SETTINGS, data=data)
    program = Program(settings, VOCABULARY, TABLES, Layout(jax.devices()[:1]))
    assert ("text" in program.initial().params["heads"]) == has_head
    assert "text" in program.abstract_state(with_texts=True).params["heads"]


def test_the_abstract_state_has_the_shapes_types_and_devices_of_the_initial_state():
    program = Program(SETTINGS, VOCABULARY, TABLES, Layout(jax.devices()[:1]))
    states = program.abstract_state(), program.initial()
    leaves = zip(*map(jax.tree.leaves_with_path, states), strict=True)
    for (path, abstract), (other_path, made) in leaves:
        assert path == other_path
        assert (abstract.shape, abstract.dtype) == (made.shape, made.dtype)
        assert abstract.sharding == made.sharding


def store_of(**metadata):
    return SimpleNamespace(metadata=lambda: metadata)


def test_a_pool_is_named_with_its_store():
    stores = [store_of(database="shop"), store_of(database="league")]
    names = ["league/wins", "shop/whirlpool:", "league/pool:matches", "shop/pool:orders"]
    assert masked.find_pools(names, stores) == [("league/pool:matches", 1), ("shop/pool:orders", 0)]


@pytest.mark.parametrize(
    ("texts", "vectors", "share", "of_texts", "is_refused"),
    [
        (3, False, 0.1, True, True), (3, True, 0.1, True, False), (0, False, 0.1, True, False),
        (3, False, 0.0, True, False), (3, False, 0.1, False, False),
    ],
)  # fmt: skip
def test_only_masked_texts_need_vectors(texts, vectors, share, of_texts, is_refused):
    data = config.Data(stores=("db",), mask_share=share, mask_texts=of_texts)
    store = store_of(embedding={"text_count": texts, "text_vectors": vectors})
    if not is_refused:
        masked.check_texts(data, [store])
        return
    with pytest.raises(config.ConfigError, match="found none in db"):
        masked.check_texts(data, [store])


def test_a_task_or_pool_without_cells_to_mask_is_refused_after_its_first_batches(monkeypatch):
    pools = {"orders": "", "league/orders": "2021-01-01"}
    alone = {
        "shop/churn": (["shop/churn"], {}),
        "shop/pool:orders": (None, {"shop/orders": None}),
        "league/pool:orders": (None, {"league/orders": "2021-01-01"}),
    }

    def check(*first, share=0.1):
        """Checks streams whose batch of this number is the first with a masked cell."""
        firsts = dict(zip(alone, first, strict=True))

        @contextlib.contextmanager
        def open_sampler(data, run, _, **given):
            assert (data.mask_share, run.prefetch) == (share, 0)
            if not given:
                # Nothing is learnt from what has no train seed.
                counts = {name: at > 0 for name, at in firsts.items()}
                yield SimpleNamespace(seed_counts=lambda split: counts if split == "train" else {})
                return
            assert given.pop("task_weights") is None
            (name,) = [of for of in alone if alone[of] == (given["tasks"], given["pools"])]
            numbers = itertools.count(1)
            yield SimpleNamespace(
                next_train_batch=lambda: {
                    "is_masked": np.arange(3) >= 2 + (next(numbers) < firsts[name])
                }
            )

        monkeypatch.setattr(masked, "open_sampler", open_sampler)
        data = dataclasses.replace(SETTINGS.data, mask_share=share, pools=pools)
        masked.check_cells(dataclasses.replace(SETTINGS, data=data))

    check(1, 1, 1)
    check(8, 8, 8)
    check(0, 1, 0)
    with pytest.raises(config.ConfigError, match=r"the first 32 contexts of shop/churn: with"):
        check(9, 1, 1)
    with pytest.raises(config.ConfigError, match=r"leave out shop/pool:orders, league/pool:orders"):
        check(1, 9, 9)
    check(9, 9, 9, share=0.0)


@pytest.mark.parametrize(
    ("pool", "time", "until", "lines"),
    [
        ("orders", "", "", 1), ("shop/orders", "", "", 1), ("league/orders", "", "", 0),
        ("players", "", "", 0), ("orders", "2021-01-01", "", 0), ("orders", "2021-01-02", "", 1),
        ("orders", "2021-01-02", "2021-01-01", 0), ("orders", "2021-01-02", "2021-01-03", 1),
        ("orders", "", "2021-01-01", 0), ("customers", "", "", 1),
    ],
)  # fmt: skip
def test_a_pool_with_rows_after_the_training_period_gets_an_advice(pool, time, until, lines):
    tables = [{"name": "customers"}, {"name": "orders"}]
    end = {"time_us": micros("2021-01-01")}
    stores = [
        store_of(database="club", tables=tables, tasks=[]),
        store_of(database="shop", tables=tables, tasks=[], statistics_until=end),
    ]
    data = config.Data(pools={pool: time}, visible_until=until, mask_share=0.1)
    found = masked.advice(data, stores)
    assert len(found) == lines
    for line in found:
        assert line.startswith(f"the pool {pool} masks cells of rows after 2021-01-01 00:00:00, wh")
        assert "the training period of shop ends" in line


@pytest.mark.parametrize(
    ("tasks", "pools", "until", "found"),
    [
        ((), [], "", ["good", "won", "comes", "sum"]), ((), [], "2021-01-01", []),
        (("past",), [], "", []), (("past", "league/won"), [], "2021-01-02", ["won"]),
        ((), ["past labels"], "2021-01-01", []), (("other/won",), [], "", []),
    ],
)  # fmt: skip
def test_a_masked_task_that_is_split_by_hash_gets_an_advice(tasks, pools, until, found):
    """Its train seeds are of all times; those of a split by time lie in the training period."""
    store = labelled(statistics_until={"time_us": micros("2021-01-01")})
    pools = dict.fromkeys(pools, "")
    data = config.Data(tasks=tasks, pools=pools, visible_until=until, mask_share=0.1)
    lines = masked.advice(data, [store])
    assert [line.split(",")[0] for line in lines] == [f"the task {name}" for name in found]
    assert all("masks cells of rows after 2021-01-01 00:00:00, when the" in line for line in lines)
    assert masked.advice(dataclasses.replace(data, mask_share=0.0), [store]) == []


def labelled(**more):
    """Returns a store of matches that refer to teams, and of towns; each table has a task."""
    tables = [
        {"name": name} for name in ("teams", "matches", "towns", "comes labels", "past labels")
    ]
    derived = {"recorded_split": False, "horizon_us": 9}
    by_name = {
        "good": {"anchor": 2, "target": {"cell": {"column": 0}}},
        "won": {"anchor": 1, "target": {"cell": {"column": 0}}},
        "comes": {"anchor": 0, "target": {"derived": derived}},
        "past": {"anchor": 0, "target": {"derived": derived | {"recorded_split": True}}},
        "sum": {"anchor": 0, "target": {"derived": {"recorded_split": False}}},
    }
    relations = [{"child": child, "parent": 0} for child in (1, 3, 4)]
    tasks = [{"name": name, **of} for name, of in by_name.items()]
    return store_of(database="league", tables=tables, tasks=tasks, relations=relations, **more)


@pytest.mark.parametrize(
    ("tasks", "pools", "found"),
    [
        # A pool shows the cells of its own rows, and those of rows that are linked.
        ((), ["towns"], ["good"]),
        ((), ["league/matches"], ["won", "comes"]),
        ((), ["teams"], ["won", "comes"]),
        ((), ["other/towns"], []),
        # A task hides its own target, but not those of other rows.
        (("good",), [], []),
        (("league/won",), [], ["won", "comes"]),
        (("past",), ["towns"], ["good", "won", "comes"]),
        ((), [], ["won", "comes"]),
        (("other/past",), [], []),
    ],
)
def test_labels_that_a_split_by_hash_shows_get_an_advice(tasks, pools, found):
    """A recorded split is left to `visible_until`, and a target without a horizon is no cell."""
    data = config.Data(tasks=tasks, pools=dict.fromkeys(pools, ""), mask_share=0.1)
    lines = masked.advice_of_labels(data, [labelled()])
    assert len(lines) == bool(found)
    for line in lines:
        names = ", ".join(f"league/{name}" for name in found)
        assert line.startswith(f"contexts may show labels of test rows of {names}, because")
        assert "by a schema without these tasks and the columns of their labels, or" in line
    assert masked.advice_of_labels(dataclasses.replace(data, mask_share=0.0), [labelled()]) == []


def test_the_score_is_the_mean_over_all_cells_of_the_batches_and_models():
    counts = np.eye(len(TYPE_NAMES))
    of_batch = {  # sums and counts of cells
        "one": (4 * counts[NUMERICAL] + counts[TEXT], 2 * counts[NUMERICAL] + counts[TEXT]),
        "two": (9 * counts[NUMERICAL], counts[NUMERICAL]),
        "none": (0 * counts[0], 0 * counts[0]),
    }
    done = []

    def score(*batches, models=(1.0,), limit=0):
        program = SimpleNamespace(
            score_masked=lambda params, at: loss.ByType(params * of_batch[at][0], of_batch[at][1])
        )
        samplers = SimpleNamespace(
            evaluate=lambda split, names: batches if (split, names) == ("val", ["pool"]) else ()
        )
        transfer = SimpleNamespace(to_device=lambda at, with_masks: at if with_masks else "none")
        return masked.score(
            program, models, samplers, transfer, "val", "pool",
            batch_limit=limit, after_batch=lambda: done.append(1),
        )  # fmt: skip

    assert score("one", "two") == {"loss": 3.5, "cells": 4, "numerical": 13 / 3, "text": 1.0}
    assert len(done) == 2
    assert score("one", "two", limit=1) == {"loss": 5 / 3, "cells": 3, "numerical": 2, "text": 1}
    of_both = score("one", models=(1.0, 3.0))
    assert of_both == {"loss": 10 / 3, "cells": 3, "numerical": 4, "text": 2}
    nothing = score("none")
    assert np.isnan(nothing.pop("loss"))
    assert nothing == {"cells": 0}
    header, line, more = masked.table(
        {"shop/churn": {"val": score("one"), "test": {"loss": 1.5}}, "pool": {}}
    )
    assert header.split()[:6] == ["masked", "cells", "of", "split", "loss", "numerical"]
    assert line.split() == ["shop/churn", "val", "1.6667", "2.0000", "-", "-", "-", "1.0000"]
    assert more.split() == ["shop/churn", "test", "1.5000", *["-"] * 5]
    assert masked.table({}) == []
