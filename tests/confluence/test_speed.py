"""How long a machine takes, measured at a clock of the test."""

import contextlib
import types

import pytest

from confluence import speed
from confluence.parallel import Processes
from confluence.speed import Speed


def test_a_slower_machine_takes_longer_for_steps_and_batches_alone():
    assert Speed(8.0, 2.0, 0.5, 0.25).slower(2) == Speed(8.0, 2.0, 1.0, 0.5)


@pytest.mark.parametrize(("is_kept", "again"), [(True, 10.5 / 4), (False, 10.5)])
def test_compiling_comes_before_what_is_measured(is_kept, again, monkeypatch):
    clock, said = types.SimpleNamespace(now=100.0), []
    # The first step and the first batch compile; one of the others is disturbed.
    seconds = {"step": [7.0, 1, 1, 9, 2, 2], "predict": [3.5, 0.25, 0.25, 8, 0.5, 0.5]}

    def step(state, batch, stop):
        assert (batch, stop) == ("on the device: the batch", "flag False")
        clock.now += seconds["step"].pop(0)
        return types.SimpleNamespace(inference_params=state.inference_params + 1), 0

    def predict(params, batch):
        # Those of the newest step.
        assert (params, batch) == (6 - len(seconds["step"]), "on the device: the batch")
        clock.now += seconds["predict"].pop(0)

    @contextlib.contextmanager
    def assemble(settings, processes):
        assert (settings, processes) == ("settings", Processes())
        program = types.SimpleNamespace(
            step=step, predict=predict, initial=lambda: types.SimpleNamespace(inference_params=0)
        )
        yield types.SimpleNamespace(
            program=program,
            layout=types.SimpleNamespace(flag_to_devices=lambda flag: f"flag {flag}"),
            transfer=types.SimpleNamespace(to_device=lambda batch: f"on the device: {batch}"),
            samplers=types.SimpleNamespace(next_batch=lambda _: ("the batch", "the cursor")),
            status=types.SimpleNamespace(show=said.append),
        )

    monkeypatch.setattr(speed, "assemble", assemble)
    monkeypatch.setattr(speed, "time", types.SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(speed.compile_cache, "is_used", lambda: is_kept)
    assert speed.measure("settings") == Speed(10.5, again, 2.0, 0.5)
    assert said == ["measuring steps"]
