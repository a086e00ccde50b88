"""The splits of many seeds are kept beside the store, and change no batch."""

import numpy as np
import pyarrow as pa
import pytest

import headwater
from samplers import same, sampler

# As few seeds as are kept.
SEEDS = 1 << 22
SCHEMA = """
database = "seeds"

[[table]]
name = "t"
time = { column = "at" }
columns = { at = "timestamp", size = "numerical" }

[[task]]
name = "size"
cell = { table = "t", column = "size" }
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept-splits")
    (folder / "seeds.toml").write_text(SCHEMA)
    at = np.arange(SEEDS, dtype=np.int64)
    table = pa.table(
        {
            "at": pa.array(at * 1_000_000).cast("timestamp[us]"),
            "size": pa.array((at % 1009).astype(np.float64)),
        }
    )
    headwater.prepare({"t": table}, folder / "seeds.toml", folder / "seeds.db", text_vectors=False)
    return folder / "seeds.db"


def files(store):
    kept = store.with_name("seeds.db.splits")
    return set(kept.iterdir()) if kept.exists() else set()


def first_batches(store, **settings):
    with sampler(store, **settings) as made:
        return [made.next_batch(split)[0] for split in ("train", "val", "test")]


@pytest.mark.parametrize("settings", [{"split_seed": 4}, {"pools": ["t"]}])
def test_p1_batches_by_kept_splits(store, settings):
    before = files(store)
    expected = first_batches(store, **settings)
    [file] = files(store) - before
    assert file.stat().st_size < SEEDS * 3 / 8 + 1000
    written = file.stat().st_mtime_ns
    assert all(map(same, first_batches(store, **settings), expected))
    assert file.stat().st_mtime_ns == written
    file.unlink()
    assert all(map(same, first_batches(store, **settings), expected))
    # The store is whole without them.
    headwater.Store(store).verify()


def test_p6_each_setting_that_decides_splits_has_a_file(store):
    all_settings = [
        {"split_seed": 5},
        {"split_seed": 6},
        {"split_seed": 5, "split_ratios": (0.7, 0.2, 0.1)},
        {"split_seed": 5, "require_label": True},
        {"pools": ["t"], "split_seed": 5},
        {"pools": {"t": "1970-01-30"}},
        {"pools": {"t": "1970-01-31"}},
        {"pools": ["t"], "visible_until": "1970-01-30"},
        {"pools": ["t"], "visible_until": "1970-01-31"},
    ]
    expected = {}
    for number, settings in enumerate(all_settings):
        before = files(store)
        expected[number] = first_batches(store, **settings)
        assert len(files(store) - before) == 1, settings
    for number, settings in enumerate(all_settings):
        before = files(store)
        assert all(map(same, first_batches(store, **settings), expected[number]))
        assert files(store) == before


def test_what_decides_no_split_has_no_file(store):
    first_batches(store, split_seed=7)
    before = files(store)
    # The store records these splits.
    first_batches(store)
    first_batches(store, split_seed=7, visible_until="1970-01-30", rank=1, world_size=2)
    first_batches({"other": store}, split_seed=7)
    assert files(store) == before
