"""Processes and devices: how the processes of a run are found and join, and where arrays lie."""

import dataclasses
import socket
import types

import jax
import numpy as np
import pytest

from confluence import batch, parallel, peers, processor, rollcall
from confluence.parallel import Layout, Processes
from confluence.rollcall import JoinError

MEETING = rollcall.Meeting("runs/1", {}, lambda *_: [])


def test_a_process_is_alone_unless_something_started_several(monkeypatch):
    assert dataclasses.astuple(Processes()) == (1, 0, None, False, "")
    monkeypatch.setattr(parallel, "launched", lambda: None)
    assert Processes.launched() == Processes()
    monkeypatch.setattr(parallel, "launched", lambda: ("srun", 1, 3, True))
    found = dataclasses.asdict(Processes.launched())
    assert found == {
        "count": 3, "rank": 1, "coordinator": None, "is_on_one_machine": True, "launcher": "srun",
    }  # fmt: skip
    monkeypatch.setattr(parallel, "launched", lambda: ("srun", 1, None, True))
    with pytest.raises(JoinError, match="expected srun to tell the number of ranks, found rank 1"):
        Processes.launched()


class Jax:
    """JAX as far as processes join by it."""

    def __init__(self, error=None, is_initialized=False):
        self.error, self.settings, self.started = error, {}, []
        self.config = types.SimpleNamespace(update=self.settings.__setitem__)
        self.distributed = types.SimpleNamespace(
            is_initialized=lambda: is_initialized, initialize=self.initialize
        )

    def initialize(self, coordinator, **options):
        self.started.append((coordinator, options))
        if self.error is not None:
            raise self.error


@pytest.fixture
def joined(monkeypatch, tmp_path):
    """Joins a run of two processes; returns their watch, and what the roll call was asked."""
    here, there = socket.socketpair()

    def join(of_jax, processes):
        asked = []

        def call(*arguments):
            asked.append(arguments)
            return rollcall.Joined("there:7", {0: here})

        monkeypatch.setattr(parallel, "jax", of_jax)
        monkeypatch.setattr(rollcall, "call", call)
        # The watch ends with its next beat.
        monkeypatch.setattr(peers, "_BEAT_SECONDS", 0.05)
        return processes.join(100, MEETING, tmp_path), asked

    yield join
    here.close()
    there.close()


def test_a_process_joins_the_others_and_starts_jax(joined):
    of_jax = Jax()
    watch, [(rank, count, place, meeting, seconds)] = joined(of_jax, Processes(2, 1, "x:1"))
    watch.close(has_ended=True)
    assert (rank, count, place.read(), meeting, seconds) == (1, 2, "x:1", MEETING, 100)
    [(coordinator, options)] = of_jax.started
    assert coordinator == options["coordinator_bind_address"] == "there:7"
    assert (options["num_processes"], options["process_id"]) == (2, 1)
    assert options["initialization_timeout"] == 100
    # The watch notices sooner who is silent, and nobody is waited for who writes results.
    assert options["heartbeat_timeout_seconds"] > 100
    assert options["shutdown_timeout_seconds"] >= 86_400
    assert of_jax.settings == {
        # SIGTERM is the run's own.
        "jax_enable_preemption_service": False,
        "jax_cpu_collectives_implementation": "gloo",
    }


def test_without_a_coordinator_the_address_is_in_the_folder(joined, tmp_path):
    (tmp_path / "rank-0.address").write_text("there:9")
    watch, [(_, _, place, *_)] = joined(Jax(), Processes(2, 1))
    watch.close(has_ended=True)
    assert place.read() == "there:9"


@pytest.mark.parametrize("error", [RuntimeError("no answer"), ValueError("no answer")])
def test_a_process_whose_jax_does_not_start_is_lost_to_the_others(error, joined, monkeypatch):
    ended, close = [], parallel.Peers.close

    def noted(self, *, has_ended):
        ended.append(has_ended)
        close(self, has_ended=has_ended)

    monkeypatch.setattr(parallel.Peers, "close", noted)
    with pytest.raises(JoinError, match=r"rank 1 of 2 could not join the coordinator at there:7: "):
        joined(Jax(error), Processes(2, 1, "x:1"))
    assert ended == [False]


def test_a_process_trains_once_with_others(joined):
    with pytest.raises(JoinError, match="found a second one in this process"):
        joined(Jax(is_initialized=True), Processes(2, 1, "x:1"))


@pytest.mark.parametrize("launcher", ["", "srun"])
def test_the_error_of_a_launched_process_says_how_to_train_alone(launcher, monkeypatch, tmp_path):
    def refuse(*_):
        raise JoinError("nobody is there")

    monkeypatch.setattr(rollcall, "call", refuse)
    with pytest.raises(JoinError) as refused:
        Processes(2, 1, None, True, launcher).join(100, MEETING, tmp_path)
    assert str(refused.value) == "nobody is there" + (
        "; this process is rank 1 of 2 that srun started: to train alone in it, say --processes 1"
        if launcher
        else ""
    )


def rows(*kinds):
    return np.stack([np.frombuffer(of.encode().ljust(256), np.uint8) for of in kinds])


def test_a_processor_other_than_that_of_rank_0_is_reported(monkeypatch, capsys):
    parallel.warn_of_unlike_processes()
    assert capsys.readouterr().err == ""
    sent = []

    def allgather(own, *, tiled):
        assert not tiled
        sent.append(own.tobytes().decode())
        return np.stack([own, own, *rows("a toaster")])

    monkeypatch.setattr(parallel.multihost_utils, "process_allgather", allgather)
    parallel.warn_of_unlike_processes()
    own = sent[0].strip()
    assert len(sent[0]) == 256
    if jax.default_backend() == "cpu":
        # JAX calls every CPU "cpu".
        assert own.startswith(processor.processor())
    assert f" of {processor.cores()} cores with jax {jax.__version__}, jaxlib " in own
    assert capsys.readouterr().err.startswith(
        f"confluence: rank 2 has a toaster, rank 0 has {own}: the last digits depend on which rank"
    )
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    parallel.warn_of_unlike_processes()
    assert capsys.readouterr().err == ""


def test_arrays_go_to_the_device_of_a_process_and_come_back():
    layout = Layout()
    device = jax.devices()[0]
    assert (layout.world, layout.rank, layout.device) == (1, 0, device)
    parts = {name: np.arange(6).reshape(2, 3) for name in batch.Batch._fields}
    found = layout.to_devices(batch.Batch(**parts))
    for name, array in found._asdict().items():
        np.testing.assert_array_equal(array, parts[name])
        kept = layout.replicated if name in batch.REPLICATED else layout.sharded
        assert array.sharding == kept
    assert layout.replicated.spec == jax.sharding.PartitionSpec()
    assert layout.sharded.spec == jax.sharding.PartitionSpec("data")
    for flag in (False, True):
        assert layout.flag_to_devices(flag).tolist() == [flag]
    own = jax.device_put(np.arange(24).reshape(2, 3, 4), device)
    for there, kept in (
        (layout.everywhere({"x": own})["x"], layout.replicated),
        (layout.joined(own), layout.sharded),
        (layout.copy_to_all({"x": own})["x"], layout.replicated),
    ):
        assert there.sharding == kept
        np.testing.assert_array_equal(there, own)
        local = layout.local({"x": there})["x"]
        np.testing.assert_array_equal(local, own)
        assert local.sharding == jax.sharding.SingleDeviceSharding(device)


@pytest.mark.parametrize("process", [0, 1])
def test_each_process_has_its_first_device(process, monkeypatch, capsys):
    devices = [types.SimpleNamespace(process_index=of, number=n) for n, of in enumerate("1001")]
    fake = types.SimpleNamespace(
        devices=lambda: devices,
        device_count=lambda: len(devices),
        process_index=lambda: process,
    )
    monkeypatch.setattr(parallel, "jax", fake)
    assert [of.number for of in parallel._one_device_per_process()] == [1, 0]
    told = capsys.readouterr().err
    assert told.startswith("confluence: using 2 of 4 devices, one per process") == (process == 0)
    del devices[2:]
    parallel._one_device_per_process()
    assert capsys.readouterr().err == ""
