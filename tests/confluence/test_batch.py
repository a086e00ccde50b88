"""What the device gets: the tables of the stores, and batches that point into them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headwater
import twin
from confluence import batch, config, synthetic
from confluence.parallel import Layout


class FakeStore:
    """A store of chosen statistics; its vectors count up from a number of its own."""

    def __init__(self, first, counts, stats, targets, texts=True):
        columns, relations, categories, self.text_count = counts
        self.path, self._scales = first, None
        self._vectors = {
            name: np.arange(first, first + 2 * count, dtype=np.float16).reshape(count, 2)
            for name, count in (
                ("column", columns), ("relation", relations), ("categorical", categories),
                ("text", self.text_count if texts else 0),
            )
        }  # fmt: skip
        of_columns = [{"index": index, "stats": of} for index, of in stats.items()]
        self._metadata = {
            "embedding": {
                "dimension": 2,
                "column_count": columns,
                "text_count": self.text_count,
                "text_vectors": texts,
            },
            "tables": [{"columns": []}, {"columns": of_columns}],
            "aggregates": [],
            "tasks": targets,
        }

    def metadata(self):
        return self._metadata

    def column_embeddings(self):
        return self._vectors["column"]

    def relation_embeddings(self):
        return self._vectors["relation"]

    def categorical_embeddings(self):
        return self._vectors["categorical"]

    def text_embeddings(self):
        return self._vectors["text"]

    def text_scales(self):
        return self._scales


def derived(index, stats):
    return {"anchor": 0, "target": {"derived": {"column": {"index": index, "stats": stats}}}}


@pytest.fixture
def two_stores():
    """A store of 4 columns, 1 relation, 5 categories and 3 texts; and one of 3, 0, 40 and 2."""
    hour = 3_600_000_000
    times = {"mean_us": -30.0 * hour, "std_us": 12.0 * hour}
    cell = {"anchor": 1, "target": {"cell": {"column": 1}}}
    one = FakeStore(
        10,
        (4, 1, 5, 3),
        {2: times, 1: {"std_us": 1.0}, 0: {"cat_emb_count": 5}},
        [cell, derived(3, {"std_us": 0.0})],
    )
    one_target = derived(1, {"cat_emb_count": 33, "mean_us": 36.5 * hour})
    return one, FakeStore(100, (3, 0, 40, 2), {0: {}}, [one_target])


def test_the_tables_of_stores_follow_each_other(two_stores):
    vocabulary, found = batch.vocabulary_and_tables(two_stores, "global")
    assert vocabulary == batch.Vocabulary((0, 4), (0, 1), (0, 5), (0, 3), 64, has_texts=True)
    one, other = two_stores
    np.testing.assert_array_equal(
        found.columns, [*one.column_embeddings(), *other.column_embeddings()]
    )
    np.testing.assert_array_equal(found.relations, [[10, 11], [0, 0]])
    assert found.categories.shape == (5 + 40 + 64, 2)
    np.testing.assert_array_equal(found.categories[5:45], other.categorical_embeddings())
    assert not found.categories[45:].any()
    np.testing.assert_array_equal(found.texts, [*one.text_embeddings(), *other.text_embeddings()])
    # 30 hours before 1970, and 36.5 hours after; the task's column is the second of its store.
    assert list(found.mean_days) == [0, 0, -2, 0, 0, 1, 0]
    assert list(found.mean_milliseconds) == [0, 0, 18 * 3_600_000, 0, 0, 45_000_000, 0]
    assert list(found.per_deviation) == [0, 86_400_000_000, 2, 0, 0, 0, 0]
    assert (found.mean_days.dtype, found.per_deviation.dtype) == (np.int32, np.float32)


@pytest.mark.parametrize(
    ("counts", "padded"),
    [([], 32), ([0], 32), ([32], 32), ([33, 5], 64), ([64], 64), ([9, 65], 96)],
)
def test_target_categories_are_a_multiple_of_32(counts, padded):
    targets = [derived(0, {"cat_emb_count": count}) for count in counts]
    store = FakeStore(0, (1, 0, 0, 0), {}, [derived(0, {}), *targets] if counts else [])
    assert batch.vocabulary_and_tables([store], "global")[0].target_categories == padded


def int8_of(store, factor):
    """Returns a store whose texts are int8, with this factor as the scale of each."""
    vectors = (store._vectors["text"] - 10).astype(np.int8)
    store._vectors["text"], store._scales = vectors, np.full(len(vectors), factor, np.float32)
    store.metadata()["embedding"]["text_encoding"] = "int8"
    return store


def test_int8_tables_of_stores_follow_each_other_with_their_scales(two_stores):
    one, other = int8_of(two_stores[0], 0.5), int8_of(two_stores[1], 0.25)
    _, found = batch.vocabulary_and_tables([one, other], "global")
    assert (found.texts.dtype, found.text_scales.dtype) == (np.int8, np.float32)
    np.testing.assert_array_equal(found.texts, [*one.text_embeddings(), *other.text_embeddings()])
    np.testing.assert_array_equal(found.text_scales, [0.5, 0.5, 0.5, 0.25, 0.25])
    texts = batch.Texts(found.texts, found.text_scales).at(jnp.array([[4, 0]]))
    assert texts.dtype == jnp.float32
    wanted = [[other.text_embeddings()[1] * 0.25, one.text_embeddings()[0] * 0.5]]
    np.testing.assert_array_equal(texts, wanted)
    assert batch.vocabulary_and_tables([one, other], "batch")[1].text_scales is None


@pytest.mark.parametrize("texts", ["global", "batch"])
def test_stores_of_several_encodings_are_refused(texts, two_stores):
    one, other = two_stores
    int8_of(other, 0.5)
    expected = (
        "one encoding, found f16 in 10 and int8 in 100; prepare 100 again with --text-vectors f16"
    )
    with pytest.raises(config.ConfigError, match=expected):
        batch.vocabulary_and_tables(two_stores, texts)
    # A store without vectors has no encoding: its rows are zeros in that of the other.
    one.metadata()["embedding"]["text_vectors"] = False
    one._vectors["text"] = None
    _, found = batch.vocabulary_and_tables(two_stores, "global")
    assert found.texts.dtype == np.int8
    assert not found.texts[:3].any()
    np.testing.assert_array_equal(found.text_scales, [0, 0, 0, 0.5, 0.5])


def test_texts_of_batches_need_no_table(two_stores):
    vocabulary, found = batch.vocabulary_and_tables(two_stores, "batch")
    assert (vocabulary.text_starts, vocabulary.has_texts) == ((0, 1), False)
    np.testing.assert_array_equal(found.texts, np.zeros((2, 2)))


def test_the_texts_of_one_store_stay_in_its_map(demo_store):
    store = headwater.Store(demo_store)
    _, tables = batch.vocabulary_and_tables([store], "global")
    in_map = store.text_embeddings().ctypes.data
    assert Layout().copy_to_all(tables).texts.unsafe_buffer_pointer() == in_map


def test_the_int8_texts_and_scales_of_one_store_stay_in_its_map(int8_store):
    store = headwater.Store(int8_store)
    _, tables = batch.vocabulary_and_tables([store], "global")
    on_device = Layout().copy_to_all(tables)
    for found, own in (
        (on_device.texts, store.text_embeddings()), (on_device.text_scales, store.text_scales()),
    ):  # fmt: skip
        assert found.unsafe_buffer_pointer() == own.ctypes.data


@pytest.mark.parametrize("count", range(1, 9))
def test_the_texts_of_several_stores_are_copied_once(count):
    stores = [FakeStore(0, (1, 0, 0, count), {}, []) for _ in range(2)]
    _, tables = batch.vocabulary_and_tables(stores, "global")
    copied = tables.texts.ctypes.data
    assert Layout().copy_to_all(tables).texts.unsafe_buffer_pointer() == copied


def test_stores_of_other_dimensions_are_refused(two_stores):
    one, other = two_stores
    other.metadata()["embedding"]["dimension"] = 3
    with pytest.raises(config.ConfigError, match=r"embeddings of one dimension, found \[2, 3\]"):
        batch.vocabulary_and_tables([one, other], "global")


DAY = 86_400_000_000
LAST, FIRST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def host_batch():
    """Returns a batch of the sampler: two contexts of three cells and two rows."""

    def of(*values, dtype=np.int32):
        return np.array(values, dtype)

    return {
        "timestamp_us": of([0, DAY - 1, DAY], [-1, -DAY, 3 * DAY + 2_500], dtype=np.int64),
        "obs_time": of(2 * DAY + 1_999, LAST, dtype=np.int64),
        "row_time": of([FIRST, -1], [DAY, FIRST], dtype=np.int64),
        "column_ids": of([0, 1, 2], [2, 1, 0]),
        "categorical_embed_ids": of([0, 1, 2], [0, 0, 1], dtype=np.uint32),
        "text_embed_ids": of([1, 0, 0], [0, 1, 0], dtype=np.uint32),
        "fk_relations": of([0], [1]),
        "row_relation": of([0, 1], [1, 0]),
        "target_stype": of(4, 4, dtype=np.uint8),
        "cat_emb_start": of(7, 7),
        "cat_emb_count": of(3, 3),
        **{
            name: of(number, 40 + number, dtype=np.uint8)
            for number, name in enumerate((
                "semantic_types", "seq_row_ids", "numeric_values", "bool_values", "is_null",
                "is_padding", "fk_edges", "row_hop", "row_direction", "target_pos", "seq_weight",
                "seed_row",
            ))
        },
    }  # fmt: skip


def test_a_batch_of_the_sampler_is_shifted_to_its_store(two_stores):
    vocabulary, _ = batch.vocabulary_and_tables(two_stores, "global")
    host = host_batch()
    first, found = (batch.from_sampler(host, vocabulary, store) for store in (0, 1))
    for name in ("columns", "relations", "row_relations", "categories", "texts", "category_start"):
        shift = {"columns": 4, "texts": 3}.get(name, 5 if name.startswith("categor") else 1)
        np.testing.assert_array_equal(getattr(found, name), getattr(first, name) + shift)
    assert (first.category_start, first.category_count, first.target_type) == (7, 3, 4)
    np.testing.assert_array_equal(first.texts, host["text_embed_ids"])
    np.testing.assert_array_equal(first.columns, host["column_ids"])
    np.testing.assert_array_equal(found.days, [[0, 0, 1], [-1, -1, 3]])
    np.testing.assert_array_equal(found.milliseconds, [[0, 86_399_999, 0], [86_399_999, 0, 2]])
    # A time that is not known has the day that stands for none.
    np.testing.assert_array_equal(found.observed_days, [2, batch.NO_DAY])
    np.testing.assert_array_equal(found.observed_milliseconds, [1, 0])
    np.testing.assert_array_equal(found.row_days, [[batch.NO_DAY, -1], [1, batch.NO_DAY]])
    np.testing.assert_array_equal(found.row_milliseconds, [[0, 86_399_999], [0, 0]])
    same = {
        "types": "semantic_types", "rows": "seq_row_ids", "numbers": "numeric_values",
        "booleans": "bool_values", "is_null": "is_null", "is_padding": "is_padding",
        "edges": "fk_edges", "row_hops": "row_hop", "row_directions": "row_direction",
        "target_position": "target_pos", "weights": "seq_weight", "seed_row": "seed_row",
    }  # fmt: skip
    for ours, theirs in same.items():
        np.testing.assert_array_equal(getattr(found, ours), host[theirs], err_msg=ours)
    assert found.text_vectors.shape == (1, 1)


@pytest.mark.parametrize("rank", [0, 2])
def test_the_texts_of_a_batch_follow_those_of_the_ranks_before(rank, two_stores):
    vocabulary, _ = batch.vocabulary_and_tables(two_stores, "batch")
    host = host_batch() | {"text_batch_embeddings": np.ones((6, 2), np.float16)}
    found = batch.from_sampler(host, vocabulary, 1, rank)
    np.testing.assert_array_equal(found.texts, host["text_embed_ids"] + 6 * rank)
    assert found.text_vectors is host["text_batch_embeddings"]
    alone = batch.from_sampler(host, vocabulary, 1)
    np.testing.assert_array_equal(alone.texts, host["text_embed_ids"])


def test_a_batch_may_have_one_context(two_stores):
    vocabulary, _ = batch.vocabulary_and_tables(two_stores, "global")
    host = host_batch()
    whole = batch.from_sampler(host, vocabulary, 0)
    found = batch.from_sampler({name: of[:1] for name, of in host.items()}, vocabulary, 0)
    for name in batch.Batch._fields:
        of_all = getattr(whole, name)
        wanted = of_all if name in batch.REPLICATED | batch.OF_TEXTS else of_all[:1]
        np.testing.assert_array_equal(getattr(found, name), wanted, err_msg=name)


def test_times_are_positions_up_to_the_bounds_of_each_unit():
    """Of a minute, an hour and a day: the last millisecond before, and the first one."""
    bounds = np.concatenate([unit * np.arange(1, 25) for unit in (1_000, 60_000, 3_600_000)])
    milliseconds = np.concatenate([[0], bounds - 1, bounds])
    milliseconds = milliseconds[milliseconds < twin.DAY_MILLISECONDS].astype(np.int32)
    days = np.full_like(milliseconds, 19_783)  # a leap day
    found = batch._time_features(jnp.asarray(days), jnp.asarray(milliseconds), jnp.asarray(days))
    wanted = [[*twin._circles(19_783, int(of)), 19_783] for of in milliseconds]
    np.testing.assert_allclose(found, wanted, atol=2e-6)


@pytest.mark.parametrize(("edges", "slots"), [(0, 1), (5, 1), (9, 1), (10, 2), (15, 3)])
def test_a_row_has_a_slot_for_each_reference_that_it_may_have(edges, slots):
    data = config.Data(batch_size=2, sequence_length=34, max_rows=5)
    one = synthetic.batch(data, batch.NUMERICAL, np.random.default_rng(0))
    of_all = np.resize(one.edges, (2, 15, 2))[:, :edges]
    one = one._replace(edges=of_all, relations=np.zeros(of_all.shape[:2], np.int32))
    _, tables = synthetic.vocabulary_and_tables()
    cells = jax.eval_shape(lambda one, tables: batch.expand(one, tables, 5), one, tables)
    assert cells.parents.shape == cells.relations.shape == (2, slots, 5)


def test_ages_are_those_of_the_twin():
    """Of cells and of rows: in the future, of a minute, a month, a year, ten years, unknown."""
    data = config.Data(batch_size=2, sequence_length=34, max_rows=9)
    one = synthetic.batch(data, batch.NUMERICAL, np.random.default_rng(0))
    before = np.array([-400, -1, 0, 0, 1, 30, 365, 3_650, 0], np.int32)
    days = np.where(np.arange(9) == 8, batch.NO_DAY, 20_000 - before)
    milliseconds = np.array([0, 5, 0, 60_000, 7, 43_200_000, 0, 3, 0], np.int32)
    hops = np.array([0, 1, 2, 3, 4, 1, 2, 2, 7], np.uint16)
    one = one._replace(
        row_days=np.tile(days, (2, 1)).astype(np.int32),
        row_milliseconds=np.tile(milliseconds, (2, 1)),
        row_hops=np.tile(hops, (2, 1)),
        row_directions=np.tile(np.arange(9) % 3, (2, 1)).astype(np.uint8),
        observed_days=np.array([20_000, batch.NO_DAY], np.int32),
        observed_milliseconds=np.array([30_000, 0], np.int32),
    )
    ages = batch._ages(one, jnp.asarray(one.row_days), jnp.asarray(one.row_milliseconds))
    features = batch._row_features(one)
    for b, row in np.ndindex(2, 9):
        wanted = twin._age(one, b, int(days[row]), int(milliseconds[row]))
        np.testing.assert_allclose(ages[b, row], wanted, rtol=1e-5, atol=1e-9)
        wanted = twin._row_features(one, config.Model(), b, row)
        np.testing.assert_allclose(features[b, row], wanted, rtol=1e-5, atol=1e-9)
