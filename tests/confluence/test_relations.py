"""The model tells the references of a row apart."""

import jax
import numpy as np
import pytest

import headwater
from confluence import batch, config, feed, metrics
from confluence.parallel import Layout, Processes
from confluence.step import Program
from stores import prepare_tables

TEAMS, MATCHES = 60, 3000

SCHEMA = """
database = "league"

[[table]]
name = "teams"
source = "teams"
key = "id"
columns = { id = "ignored", strength = "numerical" }

[[table]]
name = "matches"
source = "matches"
key = "id"
columns = { id = "ignored", home = "ignored", away = "ignored", home_won = "boolean" }
references = [{ columns = "home", to = "teams" }, { columns = "away", to = "teams" }]

[[task]]
name = "home_won"
cell = { table = "matches", column = "home_won" }
sees_everything = true
"""


@pytest.fixture(scope="module")
def league(tmp_path_factory):
    """A store of matches that the stronger of two teams wins, at home or away."""
    folder = tmp_path_factory.mktemp("league")
    draws = np.random.default_rng(7)
    strength = draws.standard_normal(TEAMS)
    home, away = draws.integers(0, TEAMS, (2, MATCHES))
    tables = {
        "teams": (("id", "strength"), zip(range(TEAMS), strength, strict=True)),
        "matches": (
            ("id", "home", "away", "home_won"),
            zip(range(MATCHES), home, away, strength[home] > strength[away], strict=True),
        ),
    }
    return prepare_tables(folder, SCHEMA, tables, dimension=64)


def trained_auroc(store, attention, change):
    """Trains 300 steps on batches after `change`; returns the AUROC of the test split."""
    settings = config.load(None, [
        f"data.stores={store}", "data.batch_size=32", "data.sequence_length=8", "data.max_rows=4",
        'data.child_widths={ "matches.home" = 0, "matches.away" = 0 }', "model.width=32",
        "model.heads=2", "model.layers=2",
        "model.hidden=64", "model.rematerialise=false", f"model.attention={attention}",
        "optimizer.steps=300", "optimizer.warmup_steps=20", "optimizer.adam_rate=2e-3",
        "run.threads=1",
    ])  # fmt: skip
    layout = Layout(jax.devices()[:1])
    vocabulary, tables = batch.vocabulary_and_tables([headwater.Store(store)], "global")
    program = Program(settings, vocabulary, tables, layout)

    def to_device(made):
        return layout.to_devices(change(batch.from_sampler(made, vocabulary, 0)))

    state, flag = program.initial(), layout.flag_to_devices(False)
    with feed.open_sampler(settings.data, settings.run, Processes()) as sampler:
        for _ in range(300):
            state, _ = program.step(state, to_device(sampler.next_train_batch()), flag)
        found = [program.predict(state.params, to_device(b)) for b in sampler.evaluate("test")]
    weight, value, label = (
        np.concatenate([np.asarray(getattr(outputs, name)) for outputs in found])
        for name in ("weight", "value", "label")
    )
    return metrics.auroc(value[weight > 0], label[weight > 0])


@pytest.mark.parametrize("attention", ["dense", "structured"])
def test_two_references_to_one_table_are_told_apart(league, attention):
    assert trained_auroc(league, attention, lambda made: made) > 0.95


def test_without_relations_two_references_to_one_table_are_alike(league):
    def without(made):
        return made._replace(relations=np.zeros_like(made.relations))

    assert 0.4 < trained_auroc(league, "dense", without) < 0.6
