"""The optimiser and whole training steps against plain NumPy, and against recorded losses."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from confluence import batch, config, model, optimizer, synthetic
from confluence.parallel import Layout
from confluence.step import Program
from runs import records, results, run

MODEL = config.Model(width=16, heads=2, layers=2, hidden=24, compute="float32", epochs=True)
RATES = config.Optimizer(
    steps=8, warmup_steps=2, muon_rate=0.03, adam_rate=0.01, final_share=0.2, weight_decay=0.3,
    clip_norm=0.7,
)  # fmt: skip
OTHER_RATES = dataclasses.replace(RATES, schedule="linear", muon_beta=0.8, adam_b1=0.7, adam_b2=0.9)
MATRICES = ("weight", "query", "key", "value", "out", "gate", "up", "down")
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalised(x):
    """Five steps of Newton and Schulz, which bring all singular values near 1."""
    x = x / (np.linalg.norm(x) + 1e-8)
    a, b, c = NEWTON_SCHULZ
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x


class PlainOptimizer:
    """Clips by the global norm; then Muon for the blocks' matrices, AdamW for all others."""

    def __init__(self, params, rates):
        self.rates = rates
        self.first = {name: np.zeros_like(of) for name, of in params.items()}
        self.second = {name: np.zeros_like(of) for name, of in params.items()}
        self.count = 0

    def step(self, params, gradients):
        norm = math.sqrt(sum(float(np.sum(of**2)) for of in gradients.values()))
        rates = {peak: peak * self.share() for peak in (self.rates.muon_rate, self.rates.adam_rate)}
        self.count += 1
        changed = {}
        for name, of in gradients.items():
            gradient = of * min(1, self.rates.clip_norm / norm)
            is_matrix = name.rpartition("/")[2] in MATRICES
            is_muon = is_matrix and name.startswith("blocks/")
            update = (self.muon if is_muon else self.adam)(name, gradient)
            if is_matrix:
                update = update + self.rates.weight_decay * params[name]
            rate = rates[self.rates.muon_rate if is_muon else self.rates.adam_rate]
            changed[name] = params[name] - rate * update
        return changed

    def share(self):
        """The rate as a share of its peak: a line, then another one or the half of a cosine."""
        if self.count < self.rates.warmup_steps:
            return self.count / self.rates.warmup_steps
        gone = (self.count - self.rates.warmup_steps) / (self.rates.steps - self.rates.warmup_steps)
        is_linear = self.rates.schedule == "linear"
        left = 1 - gone if is_linear else (1 + math.cos(math.pi * gone)) / 2
        return self.rates.final_share + (1 - self.rates.final_share) * left

    def muon(self, name, gradient):
        beta = self.rates.muon_beta
        self.first[name] = beta * self.first[name] + (1 - beta) * gradient
        mean = self.first[name] / (1 - beta ** (self.count + 1))
        ahead = beta * mean + (1 - beta) * gradient / (1 - beta**self.count)
        *leading, inputs, outputs = ahead.shape
        matrices = ahead.reshape(-1, inputs, outputs)
        made = [
            orthogonalised(of) if inputs <= outputs else orthogonalised(of.T).T for of in matrices
        ]
        made = np.array(made).reshape(*leading, inputs, outputs)
        return made * math.sqrt(max(1, outputs / inputs))

    def adam(self, name, gradient):
        b1, b2 = self.rates.adam_b1, self.rates.adam_b2
        self.first[name] = b1 * self.first[name] + (1 - b1) * gradient
        self.second[name] = b2 * self.second[name] + (1 - b2) * gradient**2
        mean = self.first[name] / (1 - b1**self.count)
        square = self.second[name] / (1 - b2**self.count)
        return mean / (np.sqrt(square) + 1e-8)


def by_name(tree):
    return {
        "/".join(key.key for key in path): np.asarray(leaf, np.float64)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@pytest.mark.parametrize("rates", [RATES, OTHER_RATES])
def test_the_optimiser_equals_plain_numpy_step_by_step(rates):
    made = functools.partial(model.initial_params, with_texts=False)
    params = jax.jit(made, static_argnums=(0, 1, 2))(MODEL, 32, 0)
    made = optimizer.optimizer(rates)
    state, update = made.init(params), jax.jit(made.update)
    plain, wanted = PlainOptimizer(by_name(params), rates), by_name(params)
    draws = np.random.default_rng(9)
    # The first and third gradients are clipped, the others are not; the rate of step 0 is 0.
    for size in (3.0, 1e-3, 1.0, 1e-3, 1e-3):
        gradients = jax.tree.map(
            lambda of, size=size: jnp.asarray(size * draws.standard_normal(of.shape), jnp.float32),
            params,
        )
        changes, state = update(gradients, state, params)
        params = jax.tree.map(jnp.add, params, changes)
        wanted = plain.step(wanted, by_name(gradients))
        for name, found in by_name(params).items():
            np.testing.assert_allclose(found, wanted[name], atol=2e-5, err_msg=name)


def test_a_gradient_near_nothing_moves_a_parameter_little():
    """AdamW divides by the size of the gradient plus 1e-8."""
    rates = dataclasses.replace(RATES, warmup_steps=0)
    made, params = optimizer.optimizer(rates), {"heads": {"bias": jnp.zeros(1)}}
    updates, _ = made.update({"heads": {"bias": jnp.full(1, 1e-8)}}, made.init(params), params)
    assert float(updates["heads"]["bias"][0]) == pytest.approx(-RATES.adam_rate / 2, rel=1e-4)


# Recorded on a CPU. Other instructions of it change the seventh digit.
GOLDEN = {
    "numerical": [1.2746735, 0.5177135, 0.562899, 0.4208817],
    "timestamp": [0.9267973, 0.488106, 0.51726, 0.3745071],
    "boolean": [1.4008931, 1.5726168, 0.5446913, 1.0427574],
    "categorical": [2.4448447, 1.6987424, 2.1116953, 1.6985304],
}


@pytest.fixture(scope="module")
def four_steps():
    """A program, and what makes its batches."""
    settings = config.Config(
        model=MODEL,
        data=config.Data(batch_size=4, sequence_length=34, max_rows=5),
        optimizer=dataclasses.replace(RATES, warmup_steps=0, mean_share=0.5),
    )
    return settings, Program(
        settings, *synthetic.vocabulary_and_tables(), Layout(jax.devices()[:1])
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_the_losses_of_the_first_steps_are_those_that_were_recorded(name, four_steps):
    settings, program = four_steps
    kind = dict(zip(GOLDEN, synthetic.TARGET_TYPES, strict=True))[name]
    layout, draws = Layout(jax.devices()[:1]), np.random.default_rng(4)
    state, found = program.initial(), []
    for _ in range(4):
        one = layout.to_devices(synthetic.batch(settings.data, kind, draws))
        state, metrics = program.step(state, one, layout.flag_to_devices(False))
        found.append(float(metrics.loss))
    assert found == pytest.approx(GOLDEN[name], rel=2e-6)


@pytest.mark.parametrize("attention", ["dense", "structured"])
def test_training_in_bfloat16_learns_a_batch(attention):
    """The default on accelerators."""
    settings = config.Config(
        model=dataclasses.replace(MODEL, compute="bfloat16", attention=attention),
        data=config.Data(batch_size=4, sequence_length=34, max_rows=5),
        optimizer=config.Optimizer(steps=40, warmup_steps=0, adam_rate=3e-3),
    )
    layout = Layout(jax.devices()[:1])
    program = Program(settings, *synthetic.vocabulary_and_tables(), layout)
    draws = np.random.default_rng(0)
    one = layout.to_devices(synthetic.batch(settings.data, batch.CATEGORICAL, draws))
    state, losses = program.initial(), []
    for _ in range(40):
        state, metrics = program.step(state, one, layout.flag_to_devices(False))
        losses.append(float(metrics.loss))
    assert losses[-1] < 0.05 * losses[0]
    assert int(state.skipped) == 0
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {jnp.dtype("float32")}


def test_a_run_in_bfloat16_learns_and_scores(tiny, tmp_path):
    settings = ["model.compute=bfloat16", "data.tasks=products.material", "optimizer.steps=72"]
    finished = run([*tiny, *settings, "optimizer.adam_rate=3e-3"], tmp_path / "run")
    assert finished.returncode == 0, finished.stderr
    losses = [line["loss"] for line in records(tmp_path / "run") if "split" not in line]
    assert len(losses) == 72
    assert np.mean(losses[-12:]) < 0.85 * np.mean(losses[:4])
    scores = results(tmp_path / "run")["tasks"]["demo-shop/products.material"]["test"]
    assert scores["loss"] < np.mean(losses[:4])
