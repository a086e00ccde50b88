"""The parameters that a run takes over from another one: which, and when it refuses them."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from confluence import config, starting
from confluence.checkpoint import CheckpointError, Checkpoints, StoreIdentity, Writer
from confluence.patience import Validation
from confluence.step import State

STORES = [StoreIdentity("root", "hashing-1")]
TRAINED = ["data.stores=here", "model.epochs=false", "optimizer.mean_share=0.5"]


def params(number, texts=False, dimension=32, width=4):
    heads = {"boolean": {"weight": jnp.full((width, 1), number)}}
    if texts:
        heads["text"] = {"weight": jnp.full((width, 5), number)}
    column = {"weight": jnp.full((dimension, width), number)}
    return {"encoder": {"column": column}, "heads": heads}


class Program:
    """A model before its first step, all of whose parameters are 7."""

    def __init__(self, texts=False, has_mean=True, **sizes):
        self.texts, self.has_mean, self.sizes = texts, has_mean, sizes

    def initial(self):
        return self.abstract_state()

    def abstract_state(self, *, with_texts=None):
        found = params(7.0, self.texts if with_texts is None else with_texts, **self.sizes)
        return state(found, found if self.has_mean else {})


def state(of_params, mean):
    return State(of_params, {"m": jnp.zeros(2)}, jnp.int32(0), jnp.int32(0), mean)


def trained(folder, losses, settings=TRAINED, *, texts=False):
    """Writes checkpoints of a run, whose parameters are its step, and their mean half of it."""
    found = config.load(None, settings)
    writer = Writer(folder / "checkpoints", 9)
    for step, loss in losses.items():
        mean = params(step / 2, texts) if found.optimizer.mean_share else {}
        of_step = state(params(float(step), texts), mean)
        writer.save(step, of_step, b"", found, STORES, Validation(), loss)
    writer.close()
    return folder


def settings(folder, *more):
    return starting.resolve(
        config.load(None, ["data.stores=here", f"optimizer.start_from={folder}", *more])
    )


def numbers(tree):
    """Returns the number that all elements of each leaf have."""
    return {
        path[-2].key: float(np.unique(leaf)[0])
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose best checkpoint is that of step 2."""
    return trained(tmp_path_factory.mktemp("trained"), {2: 0.5, 4: 1.0, 6: None})


def test_a_run_from_scratch_starts_from_nothing():
    found = config.load(None, ["data.stores=here"])
    assert starting.resolve(found) == found


def test_the_checkpoint_to_start_from_is_recorded(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    found = settings(run.name)
    digest = Checkpoints(run / "checkpoints").digest(2)
    optimizer = found.optimizer
    assert (optimizer.start_from, optimizer.start_step) == (str(run), 2)
    assert optimizer.start_digest == digest
    # What was trained without absolute times goes on without.
    assert found.model.epochs is False
    assert settings(run, "model.epochs=true").model.epochs is True


def test_a_recorded_start_is_kept(run):
    recorded = ["optimizer.start_digest=abc"]
    found = settings(run, *recorded)
    assert (found.optimizer.start_digest, found.model.epochs) == ("abc", False)
    # With all of it known, the other run may be gone.
    found = settings("/nowhere", *recorded, "model.epochs=true")
    assert (found.optimizer.start_digest, found.model.epochs) == ("abc", True)


@pytest.mark.parametrize("has_mean", [True, False])
def test_a_run_starts_from_the_mean_of_the_best_parameters(has_mean, run, capsys):
    found = starting.load(settings(run), Program(has_mean=has_mean), ["hashing-1"])
    assert numbers(found.params) == {"column": 1.0, "boolean": 1.0}
    assert numbers(found.mean) == (numbers(found.params) if has_mean else {})
    # A step consumes the buffers of both.
    ours, theirs = jax.tree.leaves(found.params), jax.tree.leaves(found.mean)
    pointers = [of.unsafe_buffer_pointer() for of in (*ours, *theirs)]
    assert len(set(pointers)) == len(pointers)
    assert capsys.readouterr().err == (
        f"confluence: starting from the parameters of {run} after step 2, its best checkpoint by "
        "validation loss\n"
    )


def test_rank_0_alone_tells_where_a_run_starts(run, capsys, monkeypatch):
    chosen = settings(run)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    starting.load(chosen, Program(), ["hashing-1"])
    assert capsys.readouterr().err == ""


def test_a_run_without_means_or_evaluations_gives_its_newest_parameters(tmp_path, capsys):
    trained(tmp_path, {2: None, 4: None}, [*TRAINED[:2], "optimizer.mean_share=0"])
    found = starting.load(settings(tmp_path), Program(), ["hashing-1"])
    assert set(numbers(found.params).values()) == set(numbers(found.mean).values()) == {4.0}
    assert "after step 4, its newest checkpoint, because none has a validation" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("texts", [True, False])
def test_a_head_for_texts_is_left_out_or_drawn(texts, tmp_path):
    trained(tmp_path, {2: 1.0}, texts=texts)
    found = starting.load(settings(tmp_path), Program(texts=not texts), ["hashing-1"])
    expected = {"column": 1.0, "boolean": 1.0}
    assert numbers(found.params) == (expected if texts else expected | {"text": 7.0})


def refused(folder, program, *more, embedders=("hashing-1",)):
    with pytest.raises(CheckpointError) as found:
        starting.load(settings(folder, *more), program, embedders)
    return str(found.value)


def test_a_store_of_another_embedder_is_refused(run):
    """Vectors of two embedders have one dimension, and nothing else in common."""
    message = refused(run, Program(), embedders=["python:embed"])
    assert message == (
        f"expected vectors of the embedder that {run} was trained with, 'hashing-1', found those "
        "of 'python:embed' in here: vectors of different embedders cannot be compared; "
        "prepare the store again with the embedder of that run, or start from another run"
    )
    two = "data.stores=['here', 'there']"
    message = refused(run, Program(), two, embedders=["hashing-1", "python:embed"])
    assert "found those of 'python:embed' in there: " in message


def test_a_run_of_an_older_version_starts_others_without_its_embedder(run, monkeypatch):
    monkeypatch.setattr(Checkpoints, "embedders", lambda *_: None)
    found = starting.load(settings(run), Program(), ["python:embed"])
    assert numbers(found.params) == {"column": 1.0, "boolean": 1.0}


def test_a_model_that_cannot_use_the_parameters_is_refused(run):
    changed = ["model.ages=false", "model.attention=structured", "model.layers=3"]
    layers = config.Model().layers
    assert refused(run, Program(), *changed).endswith(
        f"found differences: model.layers is 3, that run has {layers}; model.ages is False, that "
        "run has True; set them as that run has, or start from another run"
    )
    assert refused(run, Program(dimension=16)).endswith(
        "the stores have embeddings of dimension 16, those of that run have 32; prepare "
        "the stores again with --dimension 32, or start from another run"
    )
    assert refused(run, Program(width=3)).endswith(
        "the parameter encoder.column.weight has the shape (32, 3), in that run (32, 4); the "
        "parameter heads.boolean.weight has the shape (3, 1), in that run (4, 1); use stores like "
        "those of that run, or start from another run"
    )


def test_a_run_of_an_older_version_has_the_defaults_of_new_settings():
    theirs = {"layers": 3}
    assert starting._differences(config.Model(layers=3), theirs) == []
    assert starting._differences(config.Model(layers=4), theirs) == [
        "model.layers is 4, that run has 3"
    ]


def test_a_run_that_has_changed_or_vanished_is_refused(run, tmp_path):
    message = refused(run, Program(), "optimizer.start_digest=abc")
    assert "to have the digest abc, as when this run started from it, found " in message
    assert "after step 2" in message
    with pytest.raises(CheckpointError, match="found no checkpoints in /nowhere"):
        settings("/nowhere")
    shutil.copytree(run, tmp_path / "run")
    for step in (2, 4, 6):
        shutil.rmtree(tmp_path / "run/checkpoints" / str(step))
    with pytest.raises(CheckpointError, match="found none; train that run first"):
        settings(tmp_path / "run")
