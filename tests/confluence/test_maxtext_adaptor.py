"""Token rows in MaxText: what the adaptor asks of it and gives to it.

`make test-maxtext` trains MaxText itself. Here modules of its names stand for it, which record what
they get.
"""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import headwater
from pings import SCHEMA, pings, write_csv

pytest.importorskip("grain", reason="grain is not installed")

from headwater import maxtext

TENSORS = {
    f"{name}{part}" for name in ("inputs", "targets") for part in ("", "_position", "_segmentation")
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pings")
    (folder / "events.toml").write_text(SCHEMA)
    headwater.prepare(write_csv(folder, pings()), folder / "events.toml", folder / "pings.db")
    return folder / "pings.db"


@pytest.fixture
def fake(monkeypatch):
    """MaxText's modules, as far as the adaptor uses them."""
    names = (
        "maxtext", "maxtext.input_pipeline", "maxtext.input_pipeline.input_pipeline_interface",
        "maxtext.input_pipeline.multihost_dataloading", "maxtext.trainers",
        "maxtext.trainers.pre_train", "maxtext.trainers.pre_train.train",
    )  # fmt: skip
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    modules[names[3]].MultiHostDataLoadIterator = lambda *given, **named: (given, named)
    trained = []
    modules[names[6]].main = trained.append
    return SimpleNamespace(interface=modules[names[2]], trained=trained)


def config(**changes):
    fields = {
        "global_batch_size_to_load": 6, "global_batch_size_to_load_eval": 4, "vocab_size": 267,
        "max_target_length": 128, "data_shuffle_seed": 3, "generate_padding_batch_train": "train?",
        "generate_padding_batch_eval": "eval?", "expansion_factor_real_data": 2.5,
    }  # fmt: skip
    return SimpleNamespace(**fields | changes)


def rows_of(stream, count=2):
    """The first batches of a stream."""
    rows = iter(stream)
    found = [next(rows) for _ in range(count)]
    rows.close()
    return found


def expected(store, split="train", rank=0, world=1, batch_size=6, **settings):
    arguments = {"rank": rank, "world_size": world, "batch_size": batch_size, "seed": 3}
    with headwater.Events(store, **arguments | {"sequence_length": 128} | settings) as events:
        return [events.next_batch(split)[0] for _ in range(2)]


def same(found, wanted):
    return all(
        set(one) == TENSORS and all(np.array_equal(one[name], other[name]) for name in TENSORS)
        for one, other in zip(found, wanted, strict=True)
    )


def test_maxtext_gets_the_rows_of_each_process(store, fake):
    maxtext.install(store)
    (stream, mesh, padding), named = fake.interface.make_grain_train_iterator(config(), "mesh", [0])
    assert (mesh, padding) == ("mesh", "train?")
    assert named == {"expansion_loading_factor_for_grain": 2.5}
    assert same(rows_of(stream), expected(store))
    # Each pass begins anew.
    assert same(rows_of(stream), expected(store))
    # Of the processes that load data, this one is the second.
    assert jax.process_index() == 0
    (stream, *_), _ = fake.interface.make_grain_train_iterator(config(), "mesh", [7, 0, 9])
    assert same(rows_of(stream), expected(store, rank=1, world=3, batch_size=2))


def test_maxtext_evaluates_on_the_named_store_and_split(store, fake, tmp_path):
    maxtext.install(tmp_path / "none", store, eval_split="val", seed=9, packing=False)
    (stream, _, padding), _ = fake.interface.make_grain_eval_iterator(config(), "mesh", [0])
    assert padding == "eval?"
    wanted = expected(store, "val", batch_size=4, seed=9, packing=False)
    assert same(rows_of(stream), wanted)
    assert not same(rows_of(stream), expected(store, "val", batch_size=4))
    # The default: the test split of the store for training.
    maxtext.install(store)
    (stream, *_), _ = fake.interface.make_grain_eval_iterator(config(), "mesh", [0])
    assert same(rows_of(stream), expected(store, "test", batch_size=4))


def test_p2_maxtexts_state_of_the_rows_resumes_them(store, fake):
    maxtext.install(store)
    (stream, *_), _ = fake.interface.make_grain_train_iterator(config(), "mesh", [0])
    rows = iter(stream)
    next(rows)
    state = rows.get_state()
    wanted = [next(rows), next(rows)]
    again = iter(stream)
    assert iter(again) is again
    again.set_state(state)
    assert same([next(again), next(again)], wanted)
    for one in (rows, again):
        one.close()
        with pytest.raises(headwater.SamplerShutdown):
            next(one)


def test_a_configuration_of_maxtext_that_does_not_fit_is_refused(store, fake, tmp_path):
    maxtext.install(store)
    train = fake.interface.make_grain_train_iterator
    with pytest.raises(NotImplementedError, match="colocated_python_data_input=True; set it to F"):
        train(config(colocated_python_data_input=True), "mesh", [0])
    with pytest.raises(
        headwater.InvalidArgument, match="global_batch_size_to_load that 4 processes can share, fo"
    ):
        train(config(), "mesh", [0, 1, 2, 3])
    with pytest.raises(
        headwater.InvalidArgument, match="global_batch_size_to_load_eval that 3 .*, found 4"
    ):
        fake.interface.make_grain_eval_iterator(config(), "mesh", [0, 1, 2])
    with pytest.raises(headwater.InvalidArgument, match="at least 267.*found 266; set vocab_si"):
        train(config(vocab_size=266), "mesh", [0])
    (tmp_path / "events.toml").write_text(SCHEMA.replace("0.6, val = 0.1", "0.7, val = 0.0"))
    headwater.prepare(write_csv(tmp_path, pings(4)), tmp_path / "events.toml", tmp_path / "few")
    maxtext.install(tmp_path / "few", eval_split="val")
    with pytest.raises(headwater.InvalidArgument, match="in the val split of .*few, found none"):
        fake.interface.make_grain_eval_iterator(config(), "mesh", [0])
    with pytest.raises(headwater.InvalidArgument, match="expected settings among .*, found batch"):
        maxtext.install(store, batch_size=3)


def test_the_program_trains_maxtext_with_the_store(store, fake, monkeypatch):
    installed = []
    monkeypatch.setattr(
        maxtext, "install", lambda *given, **named: installed.append((given, named))
    )
    maxtext.main(["a", "base.yml", "steps=3", "--no-packing"])
    assert installed.pop() == (("a", None), {"eval_split": "test", "packing": False})
    ours = ["dataset_type=grain", "grain_train_files=a", "grain_eval_files=a"]
    assert fake.trained.pop()[1:] == ["base.yml", *ours, "steps=3"]
    maxtext.main(
        ["a", "base.yml", "--eval-store", "b", "--eval-split", "val", "grain_eval_files=b"]
    )
    assert installed.pop() == (("a", "b"), {"eval_split": "val", "packing": True})
    ours = ["dataset_type=grain", "grain_train_files=a", "grain_eval_files=b"]
    assert fake.trained.pop()[1:] == ["base.yml", *ours, "grain_eval_files=b"]


def test_settings_of_maxtext_that_name_other_data_are_refused(fake, capsys):
    with pytest.raises(SystemExit) as ended:
        maxtext.main(["a", "base.yml", "dataset_type=c4"])
    assert ended.value.code == 2
    assert "expected dataset_type=grain, found dataset_type=c4; leave" in capsys.readouterr().err
    assert not fake.trained
    with pytest.raises(SystemExit):
        maxtext.main(["--help"])
    assert "Trains MaxText on the token rows of an event store" in capsys.readouterr().out
