"""Synthetic contexts with a rule in them, for tests and benchmarks without a store.

The seed's row has a target and refers to one row, its parent; the other rows refer to the seed's
row. All rows have the same columns, one of each type. The target equals the parent's cell of the
target's type, so that a model that cannot tell the relations apart learns nothing.
"""

from __future__ import annotations

import numpy as np

from confluence import config
from confluence.batch import (
    BOOLEAN,
    CATEGORICAL,
    IDENTIFIER,
    NUMERICAL,
    TEXT,
    TIMESTAMP,
    Batch,
    Tables,
    Vocabulary,
)

TARGET_TYPES = (NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL)
_ROW_TYPES = np.array([IDENTIFIER, NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL, TEXT], np.int8)
# The columns of a row, then a target column for each type.
_COLUMN_COUNT = 2 * len(_ROW_TYPES)
_CATEGORIES = 4
_TEXTS = 16
_TEXT_WIDTH = 32
_SPREAD_DAYS = 400
_NO_ROW = 65535


def vocabulary_and_tables() -> tuple[Vocabulary, Tables]:
    """Returns the frozen vectors that go with the batches."""
    draws = np.random.default_rng(1)

    def vectors(count: int) -> np.ndarray:
        return draws.standard_normal((count, _TEXT_WIDTH)).astype(np.float16)

    target_categories = 32
    categories = vectors(_CATEGORIES + target_categories)
    tables = Tables(
        columns=vectors(_COLUMN_COUNT),
        relations=vectors(1),
        categories=categories,
        texts=vectors(_TEXTS),
        text_scales=None,
        mean_days=np.full(_COLUMN_COUNT, 19_000, np.int32),
        mean_milliseconds=np.zeros(_COLUMN_COUNT, np.int32),
        per_deviation=np.full(_COLUMN_COUNT, 1 / _SPREAD_DAYS, np.float32),
        category_starts=np.zeros(_COLUMN_COUNT, np.int32),
        category_counts=np.full(_COLUMN_COUNT, _CATEGORIES, np.int32),
        sources=np.full(_COLUMN_COUNT, -1, np.int32),
    )
    return Vocabulary((0,), (0,), (0,), (0,), target_categories, has_texts=True), tables


def batch(data: config.Data, target_type: int, draws: np.random.Generator) -> Batch:
    """Returns a batch whose targets are of a type.

    Raises:
        ConfigError: The sequence is too short for the target, its row and the parent.
    """
    count, cells, max_rows = data.batch_size, data.sequence_length, data.max_rows
    per_row = len(_ROW_TYPES)
    if cells < 1 + 2 * per_row or max_rows < 2:
        raise config.ConfigError(
            f"expected data.sequence_length of at least {1 + 2 * per_row} and data.max_rows of at "
            f"least 2 for synthetic data, found {cells} and {max_rows}"
        )
    # The first cell is the target, then come the cells of the seed's row, then row after row.
    place = np.arange(cells) - 1
    rows = np.broadcast_to(np.maximum(place // per_row, 0), (count, cells))
    types = np.broadcast_to(_ROW_TYPES[place % per_row], (count, cells)).copy()
    columns = np.broadcast_to((place % per_row).astype(np.int32), (count, cells)).copy()
    is_padding = np.broadcast_to(rows >= max_rows, (count, cells))
    types[:, 0], columns[:, 0] = target_type, per_row + target_type
    numbers = draws.standard_normal((count, cells)).astype(np.float32)
    days = 19_000 + (draws.standard_normal((count, cells)) * _SPREAD_DAYS).astype(np.int32)
    booleans = draws.integers(0, 2, (count, cells), dtype=np.uint8)
    categories = draws.integers(0, _CATEGORIES, (count, cells), dtype=np.int32)
    # The rule: the target equals the cell of row 1, the parent.
    answer = 1 + per_row + int(list(_ROW_TYPES).index(target_type))
    for values in (numbers, days, booleans, categories):
        values[:, 0] = values[:, answer]
    edges = np.full((count, max_rows, 2), _NO_ROW, np.uint16)
    edges[:, 0] = (0, 1)
    children = np.arange(2, max_rows)
    edges[:, 1 : 1 + len(children), 0], edges[:, 1 : 1 + len(children), 1] = children, 0
    zeros = np.zeros((count, cells), np.int32)
    of_rows = np.broadcast_to(np.arange(max_rows), (count, max_rows))
    return Batch(
        types=types,
        columns=columns,
        rows=np.where(is_padding, 0, rows).astype(np.uint16),
        numbers=numbers,
        days=days,
        milliseconds=zeros,
        booleans=booleans,
        categories=categories,
        texts=draws.integers(0, _TEXTS, (count, cells), dtype=np.int32),
        is_null=zeros.astype(np.uint8),
        is_padding=is_padding.astype(np.uint8),
        edges=edges,
        relations=np.zeros(edges.shape[:2], np.int32),
        row_days=np.full(of_rows.shape, 20_000, np.int32),
        row_milliseconds=np.zeros(of_rows.shape, np.int32),
        row_hops=(of_rows > 0).astype(np.uint16),
        row_relations=np.zeros(of_rows.shape, np.int32),
        row_directions=np.where(of_rows > 0, np.where(of_rows == 1, 1, 2), 0).astype(np.uint8),
        target_position=np.zeros(count, np.int32),
        masked=np.zeros((count, 0), np.uint16),
        weights=np.ones(count, np.float32),
        observed_days=np.full(count, 21_000, np.int32),
        observed_milliseconds=np.zeros(count, np.int32),
        seed_row=np.arange(count, dtype=np.uint32),
        text_vectors=np.zeros((1, 1), np.float16),
        text_scales=None,
        target_type=np.int32(target_type),
        category_start=np.int32(0),
        category_count=np.int32(_CATEGORIES),
    )
