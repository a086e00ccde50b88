"""Synthetic contexts: their form is that of a sampler's, and the target follows their rule."""

from __future__ import annotations

import numpy as np
import pytest

from confluence import batch, config, synthetic

# Cells of a row: an identifier, a number, a time, a boolean, a category and a text.
PER_ROW, ROWS, CONTEXTS = 6, 4, 3
# Rows 0 to 3, and two cells of a row that is one too many.
CELLS = 1 + PER_ROW * ROWS + 2
DATA = config.Data(batch_size=CONTEXTS, sequence_length=CELLS, max_rows=ROWS)


def drawn(kind, seed=0, data=DATA):
    return synthetic.batch(data, kind, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", synthetic.TARGET_TYPES)
def test_the_target_is_the_cell_of_its_type_in_the_row_that_the_seed_refers_to(kind):
    one = drawn(kind)
    values = {
        batch.NUMERICAL: one.numbers, batch.TIMESTAMP: one.days, batch.BOOLEAN: one.booleans,
        batch.CATEGORICAL: one.categories,
    }[kind]  # fmt: skip
    parents = (one.rows == 1) & (one.types == kind) & (one.is_padding == 0)
    assert parents.sum(axis=1).tolist() == [1] * CONTEXTS
    assert (values[:, 0] == values[parents]).all()
    assert (one.types[:, 0] == kind).all()
    assert one.target_type == kind
    # Its column is none of a cell of a row, and another one for each type.
    columns = {int(drawn(other).columns[0, 0]) for other in synthetic.TARGET_TYPES}
    assert len(columns - set(range(PER_ROW))) == len(synthetic.TARGET_TYPES)
    assert max(columns) < len(synthetic.vocabulary_and_tables()[1].columns)
    # The rule holds for the target alone.
    assert (values[:, 1:] == values[:, :1]).mean() < 0.6
    assert drawn(kind, 1).numbers.tobytes() != one.numbers.tobytes()


def test_cells_are_in_rows_that_refer_to_the_seed():
    one = drawn(batch.NUMERICAL)
    places = np.arange(CELLS - 3) // PER_ROW
    assert (one.rows == [0, *places, 0, 0]).all()
    assert (one.is_padding == [0] * (CELLS - 2) + [1, 1]).all()
    assert (one.columns[:, 1:] == np.arange(CELLS - 1) % PER_ROW).all()
    kinds = one.types[:, 1 : 1 + PER_ROW]
    assert all(len(set(of)) == PER_ROW for of in kinds.tolist())
    assert (one.types[:, 1:25].reshape(CONTEXTS, ROWS, PER_ROW) == kinds[:, None]).all()
    # The seed's row refers to row 1, the others to the seed's row; the last edge is unused.
    unused = [65535, 65535]
    assert (one.edges == [[0, 1], [2, 0], [3, 0], unused]).all()
    assert one.relations.shape == (CONTEXTS, ROWS)
    assert (one.row_hops == [0, 1, 1, 1]).all()
    assert (one.row_directions == [0, 1, 2, 2]).all()
    for name in ("is_null", "milliseconds", "relations", "row_relations", "row_milliseconds",
                 "target_position", "observed_milliseconds"):  # fmt: skip
        assert not getattr(one, name).any(), name
    assert (one.weights == 1).all()
    assert one.seed_row.tolist() == list(range(CONTEXTS))
    assert one.masked.shape == (CONTEXTS, 0)
    # Rows are before the time of observation, and cells are spread over some years before.
    assert (one.row_days < one.observed_days[:, None]).all()
    many = drawn(batch.NUMERICAL, data=config.Data(batch_size=200, sequence_length=40))
    assert (many.edges[:, 1:-1, 1] == 0).all()
    assert np.abs(many.days.mean() - many.days[0, 0]) < 4 * many.days.std()
    assert 300 < many.days.std() < 500
    assert np.abs(many.numbers.mean()) < 0.1
    for values, count in ((many.booleans, 2), (many.categories, 4), (many.texts, 16)):
        assert set(np.unique(values)) == set(range(count))
    assert one.category_start == 0
    assert one.category_count == 4


def test_every_number_has_a_vector_of_its_own_and_the_same_each_time():
    vocabulary, tables = synthetic.vocabulary_and_tables()
    again = synthetic.vocabulary_and_tables()[1]
    for name in ("columns", "relations", "categories", "texts"):
        vectors = getattr(tables, name)
        assert len(np.unique(vectors, axis=0)) == len(vectors)
        assert vectors.tobytes() == getattr(again, name).tobytes()
    one = drawn(batch.CATEGORICAL)
    assert tables.columns.shape == (12, 32)
    assert len(tables.relations) == 1
    assert len(tables.texts) == 16
    # Those of the cells, and those of a target of 32 categories.
    assert len(tables.categories) == 4 + 32
    assert vocabulary.target_categories == 32
    # Those of the one store come first.
    for name in ("column_starts", "relation_starts", "category_starts", "text_starts"):
        assert getattr(vocabulary, name) == (0,), name
    assert vocabulary.has_texts
    assert (tables.sources == -1).all()
    # As columns of their own statistics: the z-scores of times are near those of the numbers.
    scores = (one.days - tables.mean_days[0]) * tables.per_deviation[0]
    assert np.abs(scores).max() < 5
    assert 0.7 < scores.std() < 1.3
    assert not tables.mean_milliseconds.any()
    assert (tables.category_counts == 4).all()
    assert not tables.category_starts.any()


def test_a_context_without_room_for_the_parent_is_refused():
    least = config.Data(batch_size=1, sequence_length=13, max_rows=2)
    assert drawn(batch.BOOLEAN, data=least).edges.tolist() == [[[0, 1], [65535, 65535]]]
    for cells, rows in ((12, 2), (13, 1)):
        data = config.Data(batch_size=1, sequence_length=cells, max_rows=rows)
        words = f"at least 13 and data.max_rows of at least 2 .*, found {cells} and {rows}"
        with pytest.raises(config.ConfigError, match=words):
            drawn(batch.BOOLEAN, data=data)
