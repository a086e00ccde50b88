"""The smoke test: without a store, all four types of targets are learnt."""

import types

import pytest

from confluence import config
from confluence import smoke as module
from confluence.parallel import Layout
from confluence.smoke import LEARNT_SHARE, smoke


@pytest.mark.parametrize("attention", ["dense", "structured"])
def test_smoke_learns_every_type_of_target(attention):
    for name, (first, last) in smoke(attention=attention, steps=280).items():
        assert last < LEARNT_SHARE * first, name


def test_a_run_may_have_the_settings_of_the_smoke_test():
    # A setting that no run may have is refused.
    found = config.changed(module.SETTINGS, ["data.stores=here"])
    assert found.model == module.SETTINGS.model


def test_smoke_trains_on_all_types_in_turn_and_reports_their_losses(monkeypatch):
    trained = []

    class Program:
        """Its loss is the number of the step."""

        def __init__(self, settings, vocabulary, tables, layout):
            assert (settings.model.attention, settings.optimizer.steps) == ("structured", 160)
            assert isinstance(layout, Layout)

        def initial(self):
            return 0

        def step(self, state, batch, stop):
            assert not stop.any()
            trained.append(int(batch.target_type))
            return state + 1, types.SimpleNamespace(loss=float(state))

    monkeypatch.setattr(module, "Program", Program)
    lines = []
    found = smoke(report=lines.append, attention="structured", steps=160)
    assert trained == [*module.synthetic.TARGET_TYPES] * 40
    names = [module.NAMES[kind] for kind in module.synthetic.TARGET_TYPES]
    # Each fourth step is of a type: the means are of ten of them.
    assert found == {name: (18.0 + n, 138.0 + n) for n, name in enumerate(names)}
    assert [line.partition("  ")[0] for line in lines] == ["step 80/160", "step 160/160"]
    assert lines[1].endswith("  ".join(f"{name} {138 + n}.000" for n, name in enumerate(names)))
