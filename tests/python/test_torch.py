"""Samplers as PyTorch datasets, whose loader saves and restores their position."""

import numpy as np
import pytest

import headwater
from pings import SCHEMA, pings, write_csv
from plain_masks import plain_masks

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
loaders = pytest.importorskip(
    "torchdata.stateful_dataloader", reason="torchdata is not installed, which has the loader"
)

from headwater.torch import SamplerDataset, _tensor, attention_masks  # noqa: E402

# The warning is about torchdata's use of PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

SETTINGS = {"default_batch_size": 4, "default_sequence_length": 64, "max_rows": 16, "seed": 7}


def sampler(store_path, **changes):
    return headwater.Sampler(store_path, **(SETTINGS | changes))


def loader(running, **options):
    return loaders.StatefulDataLoader(SamplerDataset(running), batch_size=None, **options)


def take(batches, count):
    return [batch for _, batch in zip(range(count), batches, strict=False)]


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_p2_the_loader_restores_its_position(store_path):
    with sampler(store_path) as running, sampler(store_path, num_prefetch=0) as again:
        batches = iter(loader(running))
        for _ in range(4):
            next(batches)
        interrupted = loader(running)
        whole = iter(interrupted)
        take(whole, 3)
        state = interrupted.state_dict()
        tail = take(whole, 3)
        restored = loader(again)
        restored.load_state_dict(state)
        assert all(map(same, take(restored, 3), tail))


def test_p6_a_state_of_another_plan_is_refused(store_path):
    with sampler(store_path) as running, sampler(store_path, seed=8) as other:
        state = SamplerDataset(running).state_dict()
        with pytest.raises(headwater.PlanMismatch, match='"seed" was 7 and is now 8'):
            SamplerDataset(other).load_state_dict(state)
        for foreign, found in (({"epoch": 1}, r"\['epoch'\]"), ([b"cursor"], "list")):
            with pytest.raises(headwater.InvalidArgument, match=f'with a "cursor", found {found}'):
                SamplerDataset(running).load_state_dict(foreign)


def test_tensors_equal_the_arrays_in_types_valid_as_indices(store_path):
    orders = {"permutations": True}
    with sampler(store_path, **orders) as running, sampler(store_path, **orders) as plain:
        tensors, arrays = next(iter(loader(running))), plain.next_train_batch()
        assert tensors.keys() == arrays.keys()
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(tensor.numpy(), arrays[name])
        kinds = {name: tensor.dtype for name, tensor in tensors.items()}
        assert not {torch.uint16, torch.uint32} & set(kinds.values())
        assert (kinds["fk_adj"], kinds["text_batch_embeddings"]) == (torch.uint8, torch.float16)
        vectors = torch.nn.functional.embedding(
            tensors["text_embed_ids"], tensors["text_batch_embeddings"]
        )
        assert vectors.shape == (4, 64, 32)
        in_order = torch.gather(tensors["column_ids"], 1, tensors["col_perm"].long())
        assert in_order[tensors["is_padding"] == 0].numel() > 0


def test_int8_vectors_and_their_scales_are_tensors(int8_store):
    with sampler(int8_store) as running:
        tensors = next(iter(loader(running)))
        kinds = [tensors[name].dtype for name in ("text_batch_embeddings", "text_batch_scales")]
        assert kinds == [torch.int8, torch.float32]


def test_worker_processes_are_refused(store_path):
    with (
        sampler(store_path, num_prefetch=0) as running,
        pytest.raises(headwater.InvalidArgument, match="use num_workers=0"),
    ):
        next(iter(loader(running, num_workers=1)))


def test_tensors_share_the_memory_of_the_batch(store_path):
    with sampler(store_path) as running:
        batch = running.next_train_batch()
        for name, array in batch.items():
            is_shared = _tensor(array).data_ptr() == array.ctypes.data
            assert is_shared == (array.dtype.name not in ("uint16", "uint32")), name


def test_the_memory_stays_as_long_as_a_tensor_and_is_then_reused(store_path):
    with sampler(store_path, num_prefetch=0) as running:
        batches = iter(SamplerDataset(running))
        first = next(batches)["numeric_values"]
        kept, place = first.clone(), first.data_ptr()
        for _ in range(20):
            assert next(batches)["numeric_values"].data_ptr() != place
        assert torch.equal(first, kept)
        del first
        assert place in [next(batches)["numeric_values"].data_ptr() for _ in range(3)]


def test_p2_the_loader_restores_the_position_of_token_rows(tmp_path):
    (tmp_path / "events.toml").write_text(SCHEMA)
    headwater.prepare(write_csv(tmp_path, pings()), tmp_path / "events.toml", tmp_path / "pings.db")
    settings = {"seed": 3, "batch_size": 4, "sequence_length": 128}
    with headwater.Events(tmp_path / "pings.db", **settings) as events:
        running = loader(events)
        iterator = iter(running)
        take(iterator, 3)
        state = running.state_dict()
        tail = take(iterator, 2)
    with headwater.Events(tmp_path / "pings.db", **settings) as events:
        restored = loader(events)
        restored.load_state_dict(state)
        assert all(map(same, take(restored, 2), tail))


@pytest.mark.parametrize("compact", [False, True])
def test_attention_masks_are_those_of_plain_loops(store_path, compact):
    settings = {"compact": compact, "default_sequence_length": 32, "max_rows": 7}
    with sampler(store_path, **settings) as running:
        for _, batch in zip(range(3), running.evaluate("val"), strict=False):
            tensors = {name: _tensor(array) for name, array in batch.items()}
            found = attention_masks(tensors)
            for name, expected in plain_masks(batch).items():
                assert np.array_equal(getattr(found, name).numpy(), expected), name
            x = torch.randn(4, 2, 32, 8)
            attended = torch.nn.functional.scaled_dot_product_attention(
                x, x, x, attn_mask=found.neighbor[:, None]
            )
            assert attended.isfinite().all()


def test_masks_of_a_batch_without_cells_are_refused_by_the_missing_arrays():
    with pytest.raises(headwater.InvalidArgument, match="'fk_edges'; give a whole batch of"):
        attention_masks({})
