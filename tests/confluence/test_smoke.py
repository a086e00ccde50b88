"""The seed's smoke test: no store, all four types of targets learnt."""

import pytest

from confluence.smoke import SHARE, smoke


@pytest.mark.parametrize("attention", ["dense", "structured"])
def test_smoke_learns_every_type_of_target(attention):
    for name, (first, last) in smoke(attention=attention).items():
        assert last < SHARE * first, name
