"""Batches made ahead on the device: none is lost, and each has the cursor that follows it."""

import contextlib
import dataclasses
import os
import warnings

import jax
import numpy as np
import pytest

import headwater
from confluence import batch, config, feed, microbatches
from confluence.parallel import Layout, Processes


@pytest.fixture
def parts(demo_store, tiny_config):
    """A sampler of a task of numbers and one of categories, and what brings its batches over."""
    vocabulary, _ = batch.vocabulary_and_tables([headwater.Store(demo_store)], "global")
    data = config.changed(tiny_config, ["data.tasks=['spend', 'products.material']"]).data
    with feed.open_sampler(data, tiny_config.run, Processes()) as sampler:
        transfer = feed.DeviceTransfer(
            vocabulary, [0, 0], Layout(jax.devices()[:1]), 0, in_microbatches=False
        )
        yield feed.Samplers([sampler]), transfer, vocabulary


def test_p8_each_batch_has_the_cursor_that_follows_it(parts, demo_store, tiny_config):
    samplers, transfer, vocabulary = parts
    begin = samplers.first.cursor()
    made = [samplers.next_batch("train")[0][0] for _ in range(6)]
    samplers.resume(begin)
    fed = feed.Feed(samplers, transfer, 2)
    assert fed.waited_seconds == 0
    try:
        cursors = []
        for host in made:
            found = fed.next_batch()
            wanted = batch.from_sampler(host, vocabulary, 0)
            for name, ours, theirs in zip(batch.Batch._fields, found.batch, wanted, strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=name)
            assert found.task == host["task_idx"][0]
            assert found.cells == np.sum(host["is_padding"] == 0)
            assert found.capacity == host["is_padding"].size
            assert 0 < found.transfer_seconds < 60
            cursors.append(found.cursor)
        assert 0 < fed.waited_seconds < 60
    finally:
        fed.close()
    # What was made ahead does not count: the batch after a cursor is the next one taken.
    for number, cursor in enumerate(cursors[:-1]):
        samplers.resume(cursor)
        again = samplers.first.next_train_batch()
        assert all(np.array_equal(again[name], of) for name, of in made[number + 1].items())


def same(ours, theirs):
    names = ("seed_row", "obs_time", "numeric_values")
    return all(np.array_equal(ours[name], theirs[name]) for name in names)


def test_p9_the_microbatches_of_all_processes_are_the_batch(tiny_config):
    """Microbatch m of M has every M-th context from the m-th on, in every kind of batch."""
    churn = config.changed(tiny_config, ["data.tasks=churn"])

    def batches(samplers):
        yield samplers.next_batch("train")
        yield from ((of, None) for of in samplers.evaluate("val", ["churn"]))
        samplers.resume(begin)
        yield samplers.next_batch("train")

    with contextlib.ExitStack() as resources:

        def opened(count, *processes):
            settings = config.changed(churn, [f"optimizer.microbatches={count}"])
            return feed.open_samplers(settings, Processes(*processes, "x:1"), resources)

        whole = opened(0, 1, 0)
        begin = whole.first.cursor()
        expected = list(batches(whole))
        assert len(expected) > 4
        for count, world in ((8, 1), (8, 3), (2, 2)):
            ranks = [list(batches(opened(count, world, rank))) for rank in range(world)]
            for number, ((wanted,), cursor) in enumerate(expected):
                parts = [part for rank in ranks for part in rank[number][0]]
                assert len(parts) == count
                for at, part in enumerate(parts):
                    assert same(part, {name: of[at::count] for name, of in wanted.items()})
                assert all(rank[number][1] == cursor for rank in ranks)


def test_chosen_rows_are_the_microbatches_of_one_process(tiny_config):
    keys, times = list(range(1, 9)), [f"2023-01-0{day}" for day in range(1, 9)]
    with contextlib.ExitStack() as resources:
        (wanted,), parts = (
            feed.open_samplers(
                config.changed(tiny_config, [f"optimizer.microbatches={count}"]),
                Processes(),
                resources,
            ).sample("churn", keys, times)
            for count in (0, 4)
        )
    assert len(parts) == 4
    for at, part in enumerate(parts):
        assert same(part, {name: of[at::4] for name, of in wanted.items()})


def test_a_feed_of_microbatches_brings_each_to_the_device(parts, tiny_config):
    """Each has its own texts, the first in place 0 on every rank."""
    _, _, vocabulary = parts
    vocabulary = dataclasses.replace(vocabulary, has_texts=False)
    changes = ["data.texts=batch", "data.mask_share=0.3", "optimizer.microbatches=8"]
    settings, layout = config.changed(tiny_config, changes), Layout(jax.devices()[:1])
    transfer = feed.DeviceTransfer(vocabulary, [0] * 3, layout, 1, in_microbatches=True)
    with contextlib.ExitStack() as resources:
        samplers = feed.open_samplers(settings, Processes(), resources)
        begin = samplers.first.cursor()
        hosts, cursor = samplers.next_batch("train")
        samplers.resume(begin)
        fed = feed.Feed(samplers, transfer, 1)
        try:
            found = fed.next_batch()
        finally:
            fed.close()
        assert isinstance(found.batch, microbatches.Microbatches)
        assert found.cursor == cursor
        assert found.task == hosts[0]["task_idx"][0]
        assert found.cells == sum(np.sum(host["is_padding"] == 0) for host in hosts)
        assert found.capacity == 8 * 40
        for ours, host in zip(found.batch, hosts, strict=True):
            theirs = batch.from_sampler(host, vocabulary, 0, with_masks=True)
            assert theirs.masked.size
            assert all(map(np.array_equal, ours, theirs))
        # To predict, all cells are there to be seen.
        assert all(of.masked.size == 0 for of in transfer.to_device(hosts))
        of_rank = feed.DeviceTransfer(vocabulary, [0] * 3, layout, 1, in_microbatches=False)
        found = of_rank.to_device(hosts[:1])
        np.testing.assert_array_equal(
            found.texts, batch.from_sampler(hosts[0], vocabulary, 0, rank=1).texts
        )


@pytest.mark.parametrize("count", [1, 2])
def test_a_microbatch_without_seeds_is_no_idle_rank(count):
    class Idle:
        def evaluate(self, split, tasks):
            warnings.warn(f"task {tasks[0]!r} has none of its 3 seeds on this rank", stacklevel=2)
            return iter([split])

    samplers = feed.Samplers([Idle() for _ in range(count)])
    told = pytest.warns(UserWarning, match="on this rank")
    with told if count == 1 else contextlib.nullcontext():
        assert list(samplers.evaluate("val", ["churn"])) == [["val"] * count]


@pytest.mark.parametrize(("threads", "each"), [(8, 2), (3, 1), (0, 3)])
def test_microbatches_share_the_threads_of_a_process(threads, each, tiny_config, monkeypatch):
    found = []

    def opened(stores, **arguments):
        found.append((arguments["rank"], arguments["world_size"], arguments["num_threads"]))
        return contextlib.nullcontext()

    monkeypatch.setattr(headwater, "Sampler", opened)
    monkeypatch.setattr(os, "sched_getaffinity", {0: range(12)}.__getitem__)
    changes = [f"run.threads={threads}", "optimizer.microbatches=8"]
    settings = config.changed(tiny_config, changes)
    with contextlib.ExitStack() as resources:
        feed.open_samplers(settings, Processes(2, 1, "x:1"), resources)
    assert found == [(number, 8, each) for number in range(4, 8)]


def test_an_error_of_the_sampler_is_raised_by_the_next_batch(parts):
    samplers, transfer, _ = parts
    samplers.first.shutdown()
    fed = feed.Feed(samplers, transfer, 1)
    with pytest.raises(headwater.SamplerShutdown):
        fed.next_batch()
    fed.close()


def test_a_feed_makes_no_more_ahead_than_it_may(parts):
    samplers, _, _ = parts
    taken = []

    class Counting:
        def to_device(self, host, *, with_masks):
            assert with_masks
            taken.append(host)
            return len(taken)

    fed = feed.Feed(samplers, Counting(), 2)
    # It would hold up a process that fails without closing it.
    assert fed._thread.daemon
    fed.next_batch()
    end = 200
    while len(taken) < 4 and end:
        fed._is_closed.wait(0.02)
        end -= 1
    fed._is_closed.wait(0.3)
    # One was taken, two are ready, and one waits for a place.
    assert len(taken) == 4
    fed.close()
    assert not fed._thread.is_alive()


@pytest.mark.parametrize(("batch_size", "processes"), [(8, 3), (4, 8)])
def test_processes_must_divide_the_batch(batch_size, processes, tiny_config):
    data = config.changed(tiny_config, [f"data.batch_size={batch_size}"]).data
    with pytest.raises(config.ConfigError, match=f"found {batch_size} and {processes}"):
        feed.open_sampler(data, tiny_config.run, Processes(processes, 0, "x:1"))


def test_each_process_has_its_share_of_the_batch(tiny_config):
    shapes = []
    for rank in range(2):
        processes = Processes(2, rank, "x:1")
        with feed.open_sampler(tiny_config.data, tiny_config.run, processes) as sampler:
            shapes.append(sampler.next_train_batch()["is_padding"].shape)
            assert repr(sampler).endswith(f"rank {rank} of 2, seed 42>")
    assert shapes == [(4, 40), (4, 40)]


def test_texts_in_batches_have_one_shape(tiny_config):
    data = config.changed(tiny_config, ["data.texts=batch"]).data
    with feed.open_sampler(data, tiny_config.run, Processes()) as sampler:
        shapes = {sampler.next_train_batch()["text_batch_embeddings"].shape for _ in range(4)}
    assert shapes == {(8 * 40, 32)}


def test_texts_in_batches_are_padded_to_the_cells_of_a_length(tiny_config):
    data = config.changed(tiny_config, ["data.texts=batch", "data.sequence_buckets=[16, 8]"]).data
    with feed.open_sampler(data, tiny_config.run, Processes()) as sampler:
        counts = {sampler.next_train_batch()["text_batch_embeddings"].shape[0] for _ in range(4)}
    assert counts == {8 * 8}


def test_a_batch_has_no_permutations_which_the_model_would_not_read(parts):
    samplers, _, _ = parts
    host = samplers.first.next_train_batch()
    assert "fk_edges" in host
    assert not [name for name in host if name.endswith("_perm")]


def test_an_unknown_task_gets_the_nearest_name(tiny_config):
    data = config.changed(tiny_config, ["data.tasks=chrun"]).data
    with pytest.raises(config.ConfigError, match="did you mean 'churn'"):
        feed.open_sampler(data, tiny_config.run, Processes())
    # Another argument that is not valid keeps its own message.
    data = config.changed(tiny_config, ["data.child_widths={ 'no.relation' = 1 }"]).data
    with pytest.raises(headwater.InvalidArgument, match=r"no\.relation"):
        feed.open_sampler(data, tiny_config.run, Processes())


@pytest.mark.parametrize(("threads", "given"), [(0, None), (3, 3)])
def test_threads_and_prefetch_reach_the_sampler(threads, given, tiny_config, monkeypatch):
    found = {}
    monkeypatch.setattr(headwater, "Sampler", lambda stores, **arguments: found.update(arguments))
    run = config.changed(tiny_config, [f"run.threads={threads}", "run.prefetch=7"]).run
    feed.open_sampler(tiny_config.data, run, Processes())
    assert (found["num_threads"], found["num_prefetch"], found["compact"]) == (given, 7, True)
