"""Batches made ahead on the device: none is lost, and each has the cursor that follows it."""

import jax
import numpy as np
import pytest

import headwater
from confluence import batch, config, feed
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
