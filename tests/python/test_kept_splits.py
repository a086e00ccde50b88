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


def first_batches(store, **settings):
    with sampler(store, **settings) as made:
        return [made.next_batch(split)[0] for split in ("train", "val", "test")]


@pytest.mark.parametrize("settings", [{"split_seed": 4}, {"pools": ["t"]}])
def test_p1_batches_by_kept_splits(store, settings):
    kept = store.with_name("seeds.db.splits")
    before = set(kept.iterdir()) if kept.exists() else set()
    expected = first_batches(store, **settings)
    [file] = set(kept.iterdir()) - before
    assert file.stat().st_size < SEEDS * 3 / 8 + 1000
    written = file.stat().st_mtime_ns
    assert all(map(same, first_batches(store, **settings), expected))
    assert file.stat().st_mtime_ns == written
    file.unlink()
    assert all(map(same, first_batches(store, **settings), expected))
    # The store is whole without them.
    headwater.Store(store).verify()


def test_splits_that_the_store_records_are_not_kept(store):
    kept = store.with_name("seeds.db.splits")
    before = set(kept.iterdir()) if kept.exists() else set()
    first_batches(store)
    assert (set(kept.iterdir()) if kept.exists() else set()) == before
