"""Batches and cursors in JAX, grain and Orbax: here, because the process loads JAX."""

import shutil

import numpy as np
import pytest

import headwater
from samplers import SETTINGS, same, sampler


def test_jax_names_the_greatest_chunk_rows_that_divide_all_shards():
    jax = pytest.importorskip("headwater.jax", reason="JAX is not installed")
    assert [jax._divisor([9, 18], limit) for limit in (2, 5, 8)] == [1, 3, 3]
    assert [jax._divisor([12, 18], limit) for limit in (1, 4, 5)] == [1, 3, 3]


def test_jax_adopts_the_buffers_without_a_copy(demo_store):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with sampler(demo_store, default_batch_size=32) as running:
        batch = running.next_train_batch()
        for name in ("column_ids", "timestamp_values", "fk_adj", "text_batch_embeddings"):
            array = jax.device_put(batch[name], jax.devices("cpu")[0])
            assert array.unsafe_buffer_pointer() == batch[name].ctypes.data, name


def test_jax_shares_the_memory_of_a_batch_and_keeps_it(demo_store):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    from headwater.jax import arrays

    with sampler(demo_store, num_prefetch=0) as running:
        batch = running.next_train_batch()
        ours = arrays(batch)
        assert ours.keys() == batch.keys()
        for name, array in ours.items():
            assert array.dtype == batch[name].dtype, name
            np.testing.assert_array_equal(array, batch[name])
            if array.itemsize < 8:
                assert array.unsafe_buffer_pointer() == batch[name].ctypes.data, name
            else:
                # JAX would cut it to 32 bits.
                assert array is batch[name], name
        with jax.enable_x64(True):
            assert isinstance(arrays(batch)["obs_time"], jax.Array)
        kept, place = np.array(batch["numeric_values"]), batch["numeric_values"].ctypes.data
        first = ours["numeric_values"]
        del batch, ours, array
        for _ in range(20):
            assert running.next_train_batch()["numeric_values"].ctypes.data != place
        np.testing.assert_array_equal(first, kept)
        jax.block_until_ready(first)
        del first
        others = [running.next_train_batch()["numeric_values"].ctypes.data for _ in range(3)]
        assert place in others


def test_grain_resumes_at_every_step(demo_store):
    pytest.importorskip("grain", reason="grain is not installed")
    import grain

    from headwater.grain import SamplerDataset

    dataset = SamplerDataset({"db_path": demo_store} | SETTINGS, batch_count=6)
    grain.experimental.assert_equal_output_after_checkpoint(dataset)
    iterator = iter(dataset)
    next(iterator)
    iterator.close()
    with pytest.raises(ValueError, match="closed"):
        next(iterator)


def test_orbax_restores_the_cursor_beside_the_model(demo_store, tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint", reason="Orbax is not installed")
    from headwater import orbax

    with sampler(demo_store) as running, ocp.CheckpointManager(tmp_path / "ck") as manager:
        running.next_train_batch()
        state = {"weights": np.arange(5.0)}
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(state), sampler=orbax.save_args(running, 1)
        )
        manager.save(1, args=args)
        manager.wait_until_finished()
        tail = running.next_train_batch()
        args = ocp.args.Composite(
            state=ocp.args.StandardRestore(state), sampler=orbax.restore_args()
        )
        restored = manager.restore(1, args=args)
        orbax.resume(running, restored.sampler, 1)
        assert same(running.next_train_batch(), tail)
        # The folder of step 1 is copied to another number.
        manager.close()
        shutil.copytree(tmp_path / "ck/1", tmp_path / "ck/7")
        with ocp.CheckpointManager(tmp_path / "ck") as again:
            copied = again.restore(7, args=ocp.args.Composite(sampler=orbax.restore_args()))
        with pytest.raises(headwater.PlanMismatch, match="cursor of step 7, found that of step 1"):
            orbax.resume(running, copied.sampler, 7)
        # Without a step, as before.
        for known in (copied.sampler, {"cursor": copied.sampler["cursor"]}):
            orbax.resume(running, known)
            assert same(running.next_train_batch(), tail)
        for wrong in ({}, [], {"cursor": "?"}, {"cursor": 3}, None):
            with pytest.raises(headwater.InvalidArgument, match="restore_args"):
                orbax.resume(running, wrong)
