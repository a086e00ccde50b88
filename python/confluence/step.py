"""What is compiled: a training step, and the predictions of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from confluence import config, loss, model
from confluence.batch import Batch, Tables, Vocabulary, expand
from confluence.optimizer import optimizer
from confluence.parallel import Layout


class State(NamedTuple):
    """All that training changes."""

    params: Any
    optimizer: Any
    step: jax.Array  # i32 []
    # Steps whose gradient was not finite, and which changed nothing.
    skipped: jax.Array  # i32 []
    # A running mean of the parameters, where one is kept; else nothing.
    mean: Any

    @property
    def learnt(self) -> Any:
        """The parameters to predict with."""
        return self.mean or self.params


class Told(NamedTuple):
    """What a step tells of itself."""

    loss: jax.Array
    gradient_norm: jax.Array
    skipped: jax.Array
    # Whether any process was asked to end.
    asked_to_end: jax.Array


class Said(NamedTuple):
    """Predictions and labels of a batch, as NumPy can score them."""

    loss: jax.Array  # f32 [B]
    weight: jax.Array  # f32 [B]
    null: jax.Array  # f32 [B], the probability of NULL
    # What is predicted: a z-score, a probability, or a category's number within its column.
    value: jax.Array  # f32 [B]
    is_null: jax.Array  # bool [B]
    label: jax.Array  # f32 [B], as `value`, but for a boolean 0 or 1
    row: jax.Array  # u32 [B], the seed's


class Program:
    """The compiled functions of a run."""

    def __init__(
        self, settings: config.Config, vocabulary: Vocabulary, tables: Tables, layout: Layout
    ) -> None:
        self._settings = settings
        self._optimizer = optimizer(settings.optimizer)
        self._text_width = tables.columns.shape[1]
        self._layout = layout
        self._tables = layout.copy_to_all(tables)
        self.shape = model.Shape(
            rows=settings.data.rows,
            target_categories=vocabulary.target_categories,
            has_texts=vocabulary.has_texts,
            compute=compute_type(settings.model.compute),
        )
        whole, batch = layout.replicated, layout.batch
        self._step = jax.jit(
            self._train,
            in_shardings=(whole, batch, layout.shared_out, whole),
            out_shardings=whole,
            donate_argnums=0,
        )
        self._say = jax.jit(self._predict, in_shardings=(whole, batch, whole), out_shardings=whole)

    def initial(self) -> State:
        """Returns the state before the first step."""
        make = jax.jit(self._initial, out_shardings=self._layout.replicated)
        return make()

    def step(self, state: State, batch: Batch, end: jax.Array) -> tuple[State, Told]:
        """Returns the state after a batch; the one that is given is used up."""
        return self._step(state, batch, end, self._tables)

    def say(self, params: Any, batch: Batch) -> Said:
        """Returns the predictions of a batch, on all processes."""
        return self._say(params, batch, self._tables)

    @property
    def compiled_steps(self) -> int:
        """How many forms of batches the step was compiled for."""
        return self._step._cache_size()  # type: ignore[attr-defined]

    def _initial(self) -> State:
        params = model.initial(
            self._settings.model, self._text_width, self._settings.optimizer.seed
        )
        zero = jnp.zeros((), jnp.int32)
        mean = params if self._settings.optimizer.mean_share else {}
        return State(params, self._optimizer.init(params), zero, zero, mean)

    def _train(
        self, state: State, batch: Batch, end: jax.Array, tables: Tables
    ) -> tuple[State, Told]:
        cost, gradients = jax.value_and_grad(self._loss)(state.params, batch, tables)
        norm = optax.tree.norm(gradients)
        is_finite = jnp.isfinite(norm) & jnp.isfinite(cost)
        updates, changed = self._optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        after = (params, changed, self._mean(state, params))
        choose = partial(jnp.where, is_finite)
        before = (state.params, state.optimizer, state.mean)
        params, changed, mean = jax.tree.map(choose, after, before)
        skipped = state.skipped + (1 - is_finite)
        told = Told(cost, norm, skipped, jnp.max(end))
        return State(params, changed, state.step + 1, skipped, mean), told

    def _mean(self, state: State, params: Any) -> Any:
        # At first of fewer steps, so that it forgets where all began.
        step = state.step.astype(jnp.float32)
        share = jnp.minimum(self._settings.optimizer.mean_share, (1 + step) / (10 + step))
        after = params if state.mean else {}
        return jax.tree.map(lambda old, new: share * old + (1 - share) * new, state.mean, after)

    def _loss(self, params: Any, batch: Batch, tables: Tables) -> jax.Array:
        said = model.predict(params, batch, tables, self._settings.model, self.shape)
        truth = loss.labels(expand(batch, tables, self.shape.rows), batch)
        return loss.mean(loss.each(said, truth, batch), batch.weights)

    def _predict(self, params: Any, batch: Batch, tables: Tables) -> Said:
        said = model.predict(params, batch, tables, self._settings.model, self.shape)
        truth = loss.labels(expand(batch, tables, self.shape.rows), batch)
        value, label = loss.comparable(said, truth, batch)
        return Said(
            loss.each(said, truth, batch), batch.weights, jax.nn.sigmoid(said.null),
            value, truth.is_null, label, batch.seed_row,
        )  # fmt: skip


def compute_type(wanted: config.Compute) -> config.Compute:
    """Returns the type that matrices multiply in, here."""
    if wanted != "auto":
        return wanted
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"
