"""Token rows in grain: here, because the process loads JAX."""

import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import headwater
from pings import SCHEMA, pings, write_csv

grain = pytest.importorskip("grain", reason="grain is not installed")

from headwater.grain import EventsDataset, EventsSource, SamplerDataset  # noqa: E402

SETTINGS = {"seed": 3, "batch_size": 4, "sequence_length": 128}


@pytest.fixture(scope="module")
def events_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pings")
    schema = folder / "events.toml"
    schema.write_text(SCHEMA)
    headwater.prepare(write_csv(folder, pings()), schema, folder / "pings.db")
    return folder / "pings.db"


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_grain_resumes_token_rows_at_every_step(events_path):
    dataset = EventsDataset({"path": events_path} | SETTINGS, batch_count=6)
    grain.experimental.assert_equal_output_after_checkpoint(dataset)


@pytest.mark.parametrize(
    "wrong",
    [{"cursor": "?"}, {"taken": "a"}, {"taken": -1}, {"batch_rows": 0}, {"batch_rows": None}],
)
def test_p6_a_foreign_grain_state_is_rejected(events_path, wrong):
    iterator = iter(EventsDataset({"path": events_path} | SETTINGS))
    with pytest.raises(headwater.InvalidArgument, match="expected"):
        iterator.set_state(iterator.get_state() | wrong)
    (name,) = wrong
    state = iterator.get_state()
    del state[name]
    with pytest.raises(headwater.InvalidArgument, match="expected a state of get_state"):
        iterator.set_state(state)


def test_a_state_of_batches_of_one_row_restores(events_path):
    dataset = EventsDataset({"path": events_path} | SETTINGS | {"batch_size": 1})
    iterator, again = iter(dataset), iter(dataset)
    next(iterator)
    again.set_state(iterator.get_state())
    assert same(next(again), next(iterator))


def test_p6_a_state_of_another_split_is_refused(events_path):
    state = iter(EventsDataset({"path": events_path} | SETTINGS)).get_state()
    iterator = iter(EventsDataset({"path": events_path} | SETTINGS, "test"))
    with pytest.raises(headwater.PlanMismatch, match="of the test split, found one of the train"):
        iterator.set_state(state)


def test_p4_p5_a_counted_stream_ends_after_the_same_rows_with_other_batches(events_path):
    def iterator(batch_size, batch_count, **other):
        arguments = {"path": events_path} | SETTINGS | {"batch_size": batch_size} | other
        return iter(EventsDataset(arguments, batch_count=batch_count))

    whole = [batch["inputs"] for batch in iterator(4, 10)]
    assert len(whole) == 10
    begun = iterator(4, 10)
    for _ in range(6):
        next(begun)
    state = begun.get_state()
    for batch_size, batch_count in [(4, 10), (8, 5), (2, 20)]:
        restored = iterator(batch_size, batch_count)
        restored.set_state(state)
        rest = np.concatenate([batch["inputs"] for batch in restored])
        assert np.array_equal(rest, np.concatenate(whole[6:]))
    # A stream of as many batches as were taken has none left; one without an end counts on.
    ended, endless = iterator(4, 6), iterator(4, None)
    for restored in (ended, endless):
        restored.set_state(state)
        assert restored.get_state() == state
    assert list(ended) == []
    assert np.array_equal(next(endless)["inputs"], whole[6])
    for batch_size, batch_count in [(4, 5), (5, 8)]:
        with pytest.raises(headwater.InvalidArgument, match=f"at most {batch_count} batches"):
            iterator(batch_size, batch_count).set_state(state)
    # A state that is refused leaves the iterator as it was.
    other = iterator(4, 10, seed=99)
    with pytest.raises(headwater.PlanMismatch, match="seed"):
        other.set_state(state)
    assert len(list(other)) == 10


@pytest.mark.parametrize("batch_count", [-1, 2.5, "3", True])
def test_a_batch_count_that_is_none_is_refused(events_path, batch_count):
    with pytest.raises(headwater.InvalidArgument, match="batch_count: expected a number of ba"):
        EventsDataset({"path": events_path}, batch_count=batch_count)
    with pytest.raises(headwater.InvalidArgument, match="split: expected train, val or test"):
        EventsDataset({"path": events_path}, "trian")


@pytest.mark.parametrize(
    ("made", "arguments", "message"),
    [
        (EventsDataset, {"path": "a", "batchsize": 3}, "no argument 'batchsize'; did you mean 'ba"),
        (EventsDataset, {"path": "a", "qqq": 3}, "no argument 'qqq'; expected one of: path, rank,"),
        (EventsDataset, {"batch_size": 3}, "expected 'path' among .* found batch_size"),
        (EventsDataset, "pings.db", "expected a dict of the arguments of headwater.Events, found"),
        (SamplerDataset, {"db_path": "a", "sead": 3}, "headwater.Sampler has .* did you mean 'se"),
        (SamplerDataset, {}, "expected 'db_path' among .* found none"),
    ],
)
def test_a_dataset_tells_a_wrong_name_when_it_is_made(made, arguments, message):
    with pytest.raises(headwater.InvalidArgument, match=message):
        made(arguments)


def test_a_dataset_of_events_tells_a_wrong_value_when_it_is_made(events_path, tmp_path):
    with pytest.raises(headwater.IoError, match="missing.db"):
        EventsDataset({"path": tmp_path / "missing.db"})
    with pytest.raises(headwater.InvalidArgument, match="sequence_length: expected"):
        EventsDataset({"path": events_path, "sequence_length": 3})


def test_a_dataset_keeps_the_arguments_that_it_checked(events_path):
    arguments = {"path": events_path} | SETTINGS
    dataset = EventsDataset(arguments)
    arguments["batchsize"] = 3
    assert next(iter(dataset))["inputs"].shape == (4, 128)


def test_p4_a_state_of_two_ranks_restores_on_one(events_path):
    def iterator(rank, world):
        arguments = {"path": events_path, "rank": rank, "world_size": world} | SETTINGS
        return iter(EventsDataset(arguments))

    two = [iterator(rank, 2) for rank in range(2)]
    for one in two:
        for _ in range(3):
            next(one)
    states = [one.get_state() for one in two]
    assert states[0] == states[1]
    tail = [next(one) for one in two]
    alone = iter(EventsDataset({"path": events_path} | SETTINGS | {"batch_size": 8}))
    alone.set_state(states[0])
    batch = next(alone)
    for rank, part in enumerate(tail):
        assert same({name: array[rank::2] for name, array in batch.items()}, part)


def test_a_source_has_the_rows_of_the_stream_for_every_worker(events_path):
    source = EventsSource(events_path, epochs=2, seed=3, sequence_length=128)
    with headwater.Events(events_path, **SETTINGS) as events:
        assert len(source) == 2 * events.row_count("train")
        batch = next(events)
    for row in range(4):
        assert same(source[row], {name: array[row] for name, array in batch.items()})
    for wrong in (-1, len(source)):
        with pytest.raises(IndexError, match="expected a row from 0"):
            source[wrong]


def test_a_source_has_an_epoch_of_the_default_stream_unless_told(events_path):
    source = EventsSource(events_path)
    with headwater.Events(events_path) as events:
        assert len(source) == events.row_count("train")
        batch = next(events)
    assert same(source[7], {name: array[7] for name, array in batch.items()})


@pytest.mark.parametrize("epochs", [0, -1, 2**31 + 1, 1.5, "2"])
def test_a_number_of_epochs_that_cannot_be_is_refused(events_path, epochs):
    with pytest.raises(headwater.InvalidArgument, match="give a whole number of epochs up to 2"):
        EventsSource(events_path, epochs=epochs)
    most = EventsSource(events_path, epochs=2**31)
    assert len(most) == 2**31 * len(EventsSource(events_path))


def test_a_source_has_one_row_at_least(tmp_path):
    split = "train = 0.6, val = 0.1, test = 0.3"
    assert split in SCHEMA
    alone = SCHEMA.replace(split, "train = 1.0, val = 0.0, test = 0.0")
    (tmp_path / "schema.toml").write_text(alone)
    first = pings(1)[:2]
    headwater.prepare(write_csv(tmp_path, first), tmp_path / "schema.toml", tmp_path / "pings.db")
    assert len(EventsSource(tmp_path / "pings.db")) == 1
    with pytest.raises(headwater.InvalidArgument, match="found 1 epochs of 0 rows in the test"):
        EventsSource(tmp_path / "pings.db", "test")


def test_a_dataset_of_no_batches_is_empty(events_path):
    assert list(EventsDataset({"path": events_path} | SETTINGS, batch_count=0)) == []


def replaced(path):
    """Another store at the path, and the message of a source that was made of the first."""
    first, schema = headwater.Events(path).metadata()["root"], path.parent / "events.toml"
    schema.write_text(SCHEMA)
    shutil.rmtree(path)
    headwater.prepare(write_csv(path.parent, pings(seed=1)), schema, path)
    found = headwater.Events(path).metadata()["root"]
    return (
        f"{path}: expected the store with the root {first}, .*found the root {found}; .*make a new"
    )


def test_p6_a_pickled_source_refuses_another_store(events_path, tmp_path):
    path = shutil.copytree(events_path, tmp_path / "pings.db")
    source = EventsSource(path, sequence_length=128)
    expected, copied = source[3], pickle.dumps(source)
    again = pickle.loads(copied)
    assert same(again[3], expected)
    assert repr(again) == repr(source)
    message = replaced(path)
    again = pickle.loads(copied)
    for _ in range(2):
        with pytest.raises(headwater.PlanMismatch, match=message):
            again[3]
    # What was opened before is read on.
    assert same(source[3], expected)


def test_p6_a_forked_source_refuses_another_store(events_path, tmp_path):
    path = shutil.copytree(events_path, tmp_path / "pings.db")
    # In a process of its own, because JAX has threads here.
    script = (
        "import os, sys, headwater\n"
        "from headwater.grain import EventsSource\n"
        "source = EventsSource(sys.argv[1], sequence_length=128)\n"
        "expected = source[3]['inputs'].tolist()\n"
        "print('made', flush=True)\n"
        "input()\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        source[3]\n"
        "    except headwater.PlanMismatch as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(source[3]['inputs'].tolist() == expected)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "made\n"
        message = replaced(path)
        output, _ = process.communicate("go\n", timeout=60)
    told, parent = output.splitlines()
    assert re.match(message, told)
    assert parent == "True"


def test_p6_a_loader_state_of_another_plan_is_rejected(events_path):
    def loader(**settings):
        source = EventsSource(events_path, seed=3, **settings)
        sampler = grain.samplers.IndexSampler(len(source), shuffle=False, num_epochs=1, seed=1)
        return grain.DataLoader(data_source=source, sampler=sampler, worker_count=0)

    iterator = iter(loader(sequence_length=128))
    next(iterator)
    state = iterator.get_state()
    iter(loader(sequence_length=128)).set_state(state)
    for change in ({"sequence_length": 256}, {"sequence_length": 128, "packing": False}):
        with pytest.raises(ValueError, match="EventsSource"):
            iter(loader(**change)).set_state(state)


def batches(dataset):
    return [{name: np.asarray(array) for name, array in batch.items()} for batch in dataset]


def test_a_source_goes_through_grains_own_pipeline(events_path):
    source = EventsSource(events_path, seed=3, sequence_length=128)
    dataset = grain.MapDataset.source(source).seed(5).shuffle().batch(4, drop_remainder=True)
    plain = batches(dataset)
    assert len(plain) == len(source) // 4
    firsts = [int(batch["inputs"][0][:9].sum()) for batch in plain]
    assert firsts != sorted(firsts)
    flags = pytest.importorskip("absl.flags")
    flags.FLAGS.mark_as_parsed()  # grain's workers read them
    read = dataset.to_iter_dataset(grain.ReadOptions(num_threads=2))
    worked = batches(read.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))
    assert len(worked) == len(plain)
    assert all(same(one, other) for one, other in zip(worked, plain, strict=True))
    grain.experimental.assert_equal_output_after_checkpoint(read)


class Counting(EventsSource):
    """Counts how often each row is made."""

    def __init__(self, path):
        super().__init__(path, seed=3, sequence_length=128)
        self.made = []

    def __getitem__(self, index):
        self.made.append(index)
        return super().__getitem__(index)


def test_no_row_is_made_twice_in_grains_pipeline(events_path):
    source = Counting(events_path)
    dataset = grain.MapDataset.source(source).seed(5).shuffle().batch(4, drop_remainder=True)
    assert len(batches(dataset)) == len(source.made) // 4 == len(source) // 4
    assert len(set(source.made)) == len(source.made)


def test_p4_grains_elastic_iterator_goes_from_two_shards_to_four(events_path):
    source = EventsSource(events_path, seed=3, sequence_length=128)
    dataset = grain.MapDataset.source(source).seed(5).shuffle().repeat()

    def iterators(count):
        return [
            grain.experimental.ElasticIterator(
                dataset, 8, grain.sharding.ShardOptions(shard_index=shard, shard_count=count)
            )
            for shard in range(count)
        ]

    def rows(iterators, steps):
        found = []
        for _ in range(steps):
            parts = [next(one) for one in iterators]
            found += sorted(row.tobytes() for part in parts for row in part["inputs"])
        return found

    two = iterators(2)
    rows(two, 3)
    state = two[0].get_state()
    expected = rows(two, 3)
    four = iterators(4)
    for one in four:
        one.set_state(state)
    assert rows(four, 3) == expected
