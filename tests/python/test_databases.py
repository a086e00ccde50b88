"""Several databases in one sampler, and tasks without seeds."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import headwater
from digests import global_batch
from shop import SCHEMA, orders, shop, write_csv

SETTINGS = {"default_sequence_length": 64, "max_rows": 16, "seed": 7}

FEW = """
[[task]]
name = "promise"
[task.derived]
anchor = "customers"
source = "promises"
key = "customer_id"
time = "at"
target = "kept"
type = "boolean"
split = "split"
"""

PROMISES = {
    "customer_id": [100, 101, 102, 103],
    "at": ["2023-01-05"] * 4,
    "kept": ["true", "false", "true", "false"],
    "split": ["train", "train", "train", "val"],
}


def prepared(folder, name, schema=SCHEMA, **tables):
    """The store of a shop under another name."""
    data = write_csv(folder / f"{name} data", shop() | tables)
    path = folder / name
    schema_file = folder / f"{name}.toml"
    schema_file.write_text(schema.replace('database = "shop"', f'database = "{name}"'))
    headwater.prepare(data, schema_file, path, dimension=32)
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return [prepared(folder, "north"), prepared(folder, "south", orders=orders(5000))]


@pytest.fixture(scope="module")
def with_promises(tmp_path_factory):
    """A shop with a task of four seeds, none of which is in the test split."""
    return prepared(tmp_path_factory.mktemp("few"), "few", SCHEMA + FEW, promises=PROMISES)


def ranks(paths, world, **changes):
    changes = SETTINGS | {"default_batch_size": 12 // world} | changes
    return [headwater.Sampler(paths, rank, world, **changes) for rank in range(world)]


def shut(samplers):
    for sampler in samplers:
        sampler.shutdown()


def test_the_schedule_serves_every_database(two):
    (sampler,) = ranks(two, 1)
    assert sampler.tasks == ["north/price", "south/price"]
    served = [int(sampler.next_train_batch()["task_idx"][0]) for _ in range(40)]
    assert served.count(0) == served.count(1) == 20
    assert sampler.database_metadata(1)["database"] == "south"
    assert len(sampler.categorical_embeddings(1)) == 3
    position = headwater.Cursor.decode(sampler.cursor()).position
    assert position["train/draws/north/price"] == position["train/draws/south/price"] == 240
    shut([sampler])


def test_p2_p4_one_cursor_resumes_all_with_other_ranks(two, tmp_path):
    (alone,) = ranks(two, 1)
    whole = [global_batch([alone]) for _ in range(20)]
    three = ranks(two, 3, num_threads=1)
    assert [global_batch(three) for _ in range(9)] == whole[:9]
    three[2].save_cursor(tmp_path / "cursor")
    four = ranks(two, 4, num_prefetch=0)
    for sampler in four:
        sampler.resume(tmp_path / "cursor")
    assert [global_batch(four) for _ in range(11)] == whole[9:]
    shut([alone, *three, *four])


def test_p6_a_database_of_other_content_is_rejected_by_name(two, tmp_path):
    changed = prepared(tmp_path, "south", orders=orders(5001))
    (before,), (after,) = ranks(two, 1), ranks([two[0], changed], 1)
    with pytest.raises(headwater.PlanMismatch, match='1 setting differs: "database/1/root"'):
        after.resume(before.cursor())
    (swapped,) = ranks(two[::-1], 1)
    with pytest.raises(headwater.PlanMismatch, match='"database/0" was "north" and is now "south"'):
        swapped.resume(before.cursor())
    with pytest.raises(
        headwater.InvalidArgument, match='several tasks are called "price"; name one of north'
    ):
        before.evaluate("val", ["price"])
    shut([before, after, swapped])


def test_a_task_without_seeds_is_skipped_with_a_warning(with_promises):
    (sampler,) = ranks(with_promises, 1)
    assert sampler.seed_counts("test")["few/promise"] == 0
    # Both tasks have train seeds, so that no warning is given.
    sampler.next_train_batch()
    warning = "task 'few/promise' has no seed in the test split and is skipped"
    with pytest.warns(UserWarning, match=warning) as caught:
        sampler.next_batch("test")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(sampler.next_batch("test")[0]["task_idx"] == [0] for _ in range(10))
    with pytest.warns(UserWarning, match=warning) as caught:
        batches = list(sampler.evaluate("test", ["promise"]))
    assert caught[0].filename == __file__
    assert batches == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.evaluate("test", ["price"])
    shut([sampler])


def test_each_stream_warns_once_of_a_task_that_it_skips(tmp_path):
    late = PROMISES | {"split": ["test"] * 4}
    (sampler,) = ranks([prepared(tmp_path, "late", SCHEMA + FEW, promises=late)], 1)
    for split, take in (("train", sampler.next_train_batch), ("val", sampler.next_val_batch)):
        with pytest.warns(UserWarning, match=f"no seed in the {split} split") as caught:
            take()
        assert [warning.filename for warning in caught] == [__file__]
        take()
    shut([sampler])


def test_the_command_names_skipped_tasks(tmp_path):
    late = PROMISES | {"split": ["val"] * 4}
    store = prepared(tmp_path, "late", SCHEMA + FEW, promises=late)
    command = [sys.executable, "-m", "headwater", "bench", store, "--batches", "1"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert "note: task late/promise has no train seed and is skipped" in lines
    assert "task late/price" in lines


def test_a_rank_without_seeds_gets_a_warning(with_promises):
    samplers = ranks(with_promises, 4)
    assert [s.own_seed_counts("train")["few/promise"] for s in samplers] == [1, 1, 1, 0]
    weights = []
    for rank, sampler in enumerate(samplers):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = list(sampler.evaluate("train", ["few/promise"]))
        messages = [str(warning.message) for warning in caught]
        assert len(messages) == (rank == 3), messages
        assert all(warning.filename == __file__ for warning in caught)
        weights.append(np.concatenate([batch["seq_weight"] for batch in batches]).sum())
    assert "task 'few/promise' has none of its 3 train seeds on this rank" in messages[0]
    assert weights == [1, 1, 1, 0]
    shut(samplers)


def test_stores_of_one_name_have_aliases(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (prepared(folder, "shop") for folder in folders)
    with pytest.raises(headwater.InvalidArgument, match="the name 'shop'|the name \"shop\""):
        headwater.Sampler([first, second])
    with headwater.Sampler({"eu": first, "us": second}, default_batch_size=2) as sampler:
        assert sampler.tasks == ["eu/price", "us/price"]
        for _ in range(3):
            sampler.next_train_batch()
        copy = pickle.loads(pickle.dumps(sampler))
        expected, found = sampler.next_train_batch(), copy.next_train_batch()
        assert all(np.array_equal(expected[name], found[name]) for name in expected)
        copy.shutdown()
    with pytest.raises(headwater.InvalidArgument, match="alias of at least one character"):
        headwater.Sampler({"a/b": first})
    with pytest.raises(headwater.InvalidArgument, match="aliases: "):
        headwater.Sampler({1: first})
