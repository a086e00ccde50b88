"""Counts of what contexts hold, of batches made by hand."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from confluence import config, contexts

METADATA = {
    "tables": [{"name": "countries"}, {"name": "users"}, {"name": "orders"}],
    # Users refer to countries, orders to users.
    "relations": [
        {"name": "country", "child": 1, "parent": 0}, {"name": "user", "child": 2, "parent": 1}
    ],
    "tasks": [{"name": "churn", "anchor": 1}, {"name": "fraud", "anchor": 2}],
}  # fmt: skip
SEED, PARENT, CHILD = contexts.SEED, contexts.PARENT, contexts.CHILD
UNUSED = (9, CHILD, 0)
# Rows (hop, direction, relation), and whether each cell is padding by its row. Of the first context
# the user's country, an order, a user nine hops away, and the latest row of a summary.
ROWS = [
    [(0, SEED, 0), (1, PARENT, 0), (1, CHILD, 1), (9, CHILD, 0), (2, CHILD, 2)],
    [(0, SEED, 0), (1, CHILD, 1), (1, CHILD, 1), UNUSED, UNUSED],
]
CELLS = [[0, 0, 1, 2, 3, 4, 4], [0, 1, 2, 2, 0, 0, 0]]
PADDING = [[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1]]


@pytest.fixture
def counted(monkeypatch):
    """Returns the counts of these contexts for each seed, and the settings of the sampler."""

    def count(tasks, horizon, metadata=METADATA, rows=ROWS):
        hop, direction, relation = np.moveaxis(np.array(rows, np.uint16), -1, 0)
        batch = {
            "num_rows": np.array([5, 3], np.uint32), "row_hop": hop, "row_direction": direction,
            "row_relation": relation, "seq_row_ids": np.array(CELLS, np.uint16),
            "is_padding": np.array(PADDING, np.uint8),
        }  # fmt: skip
        opened = []

        @contextlib.contextmanager
        def open_sampler(data, run, processes):
            opened.append((data, run, processes.count))
            batches = ({**batch, "task_idx": np.full(2, n % len(tasks))} for n in range(1000))
            yield SimpleNamespace(
                tasks=[f"shop/{of}" for of in tasks], next_train_batch=lambda: next(batches)
            )

        monkeypatch.setattr(contexts, "open_sampler", open_sampler)
        data = config.Data(tasks=tuple(tasks), batch_size=7)
        found = contexts.count(data, metadata, horizon, max_rows=5)
        (used,) = opened
        return found, used

    return count


def test_the_contexts_of_equally_many_seeds_of_each_task_are_counted(counted):
    for tasks, batches, size in ((["churn"], 20, 50), (["churn", "fraud", "churn"], 21, 48)):
        found, (data, run, processes) = counted(tasks, 1)
        assert len(found.rows) == 2 * batches
        assert (data.batch_size, data.texts, data.max_rows) == (size, "global", 5)
        assert (run.prefetch, processes) == (0, 1)


def test_rows_and_cells_are_counted_by_relation_table_and_hop(counted):
    found, _ = counted(["churn"], 1)
    assert found.rows[:2].tolist() == [5, 3]
    assert found.cells[:2].tolist() == [7, 4]
    # The fourth row of the first context is a child beyond one hop.
    assert found.near_cells[:2].tolist() == [4, 4]
    assert [counted(["churn"], of)[0].near_cells[0] for of in (0, 2, 8, 9)] == [3, 4, 4, 7]
    wanted = np.zeros((2, 2, 7))
    # A row nine hops away counts as if it were six away, and one of no relation as none.
    wanted[0, 1, 1] = wanted[0, 0, 6] = 1
    wanted[1, 1, 1] = 2
    assert found.children[:2].tolist() == wanted.tolist()
    wanted = np.zeros((2, 3, 3, 7))
    wanted[0, 1, SEED, 0] = wanted[0, 0, PARENT, 1] = wanted[0, 2, CHILD, 1] = 1
    wanted[0, 1, CHILD, 6] = wanted[1, 1, SEED, 0] = 1
    wanted[1, 2, CHILD, 1] = 2
    assert found.reached[:2].tolist() == wanted.tolist()


def test_the_seed_is_a_row_of_the_table_of_its_task(counted):
    found, _ = counted(["churn", "fraud"], 1)
    tables = found.reached[:, :, SEED, 0].argmax(axis=1)
    assert tables.tolist() == [1, 1, 2, 2] * 10


def test_a_store_without_relations_has_seeds_alone(counted):
    rows = [[(0, SEED, 0)] + [(1, CHILD, 0)] * 4] * 2
    found, _ = counted(["churn"], 1, {**METADATA, "relations": []}, rows)
    assert found.children.shape == (40, 0, 7)
    assert found.reached.sum() == found.reached[:, 1, SEED, 0].sum() == 40


def test_a_quantile_is_the_cells_that_a_share_of_the_contexts_does_not_exceed():
    found = contexts.Contexts(*[np.array([4, 1, 3, 2])] * 5)
    assert [found.quantile(share) for share in (0.25, 0.26, 0.5, 0.75, 1.0)] == [1, 2, 2, 3, 4]
