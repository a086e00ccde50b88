"""The smoke test: without a store, all four types of targets are learnt."""

import pytest

from confluence.smoke import LEARNT_SHARE, smoke


@pytest.mark.parametrize("attention", ["dense", "structured"])
def test_smoke_learns_every_type_of_target(attention):
    for name, (first, last) in smoke(attention=attention, steps=280).items():
        assert last < LEARNT_SHARE * first, name
