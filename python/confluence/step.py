"""What is compiled: a training step, and the predictions of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from confluence import config, loss, model
from confluence.batch import NO_TARGET, Batch, Tables, Vocabulary, expand
from confluence.optimizer import Length, optimizer
from confluence.parallel import Layout


class State(NamedTuple):
    """Everything that training changes."""

    params: Any
    optimizer: Any
    step: jax.Array  # i32 []
    # The number of steps whose gradient was not finite, and which changed nothing.
    skipped: jax.Array  # i32 []
    # A running mean of the parameters if `optimizer.mean_share` asks for it, else empty.
    mean: Any

    @property
    def inference_params(self) -> Any:
        """The parameters to evaluate and predict with."""
        return self.mean or self.params


class StepMetrics(NamedTuple):
    """The metrics of one step."""

    loss: jax.Array
    gradient_norm: jax.Array
    skipped: jax.Array
    # Whether a signal asked any process to stop.
    stop_requested: jax.Array
    # The losses of the masked cells, if cells are masked.
    masked: loss.ByType | None = None


class Outputs(NamedTuple):
    """Predictions and labels of a batch, as NumPy can score them."""

    loss: jax.Array  # f32 [B]
    weight: jax.Array  # f32 [B]
    null: jax.Array  # f32 [B], the probability of NULL
    # The prediction: a z-score, a probability, or a category's number within its column.
    value: jax.Array  # f32 [B]
    categories: jax.Array  # f32 [B, K], the probabilities of a categorical target
    is_null: jax.Array  # bool [B]
    label: jax.Array  # f32 [B], in the unit of `value`; 0 or 1 for a boolean
    row: jax.Array  # u32 [B], the row of the seed


class Program:
    """The compiled functions of a run."""

    def __init__(
        self, settings: config.Config, vocabulary: Vocabulary, tables: Tables, layout: Layout
    ) -> None:
        self._settings = settings
        self._text_width = tables.columns.shape[1]
        self._layout = layout
        self._tables = layout.copy_to_all(tables)
        # An argument of the step, not a part of it: runs of all lengths share what is compiled.
        length = Length.of(settings.optimizer)
        self._length = layout.copy_to_all(jax.tree.map(np.float32, length))
        self.shape = model.Shape(
            max_rows=settings.data.max_rows,
            target_categories=vocabulary.target_categories,
            has_texts=vocabulary.has_texts,
            compute=compute_type(settings.model.compute),
        )
        masks = settings.data.mask_share > 0
        self._learns_texts = masks and settings.data.mask_texts
        replicated, batch = layout.replicated, layout.batch
        self._step = jax.jit(
            self._train,
            in_shardings=(replicated, batch, layout.sharded, replicated, replicated),
            out_shardings=replicated,
            donate_argnums=0,
        )
        self._predict = jax.jit(
            self._outputs, in_shardings=(replicated, batch, replicated), out_shardings=replicated
        )
        self._score_masked = jax.jit(
            lambda *given: self._masked(*given)[1],
            in_shardings=(replicated, batch, replicated),
            out_shardings=replicated,
        )

    def initial(self, *, with_texts: bool | None = None) -> State:
        """Returns the state before the first step.

        `with_texts` is whether the model has a head for texts; by default as the settings say.
        """
        if with_texts is None:
            with_texts = self._learns_texts
        make = jax.jit(partial(self._initial, with_texts), out_shardings=self._layout.replicated)
        return make()

    def step(self, state: State, batch: Batch, stop: jax.Array) -> tuple[State, StepMetrics]:
        """Returns the state after a batch, and consumes the buffers of the given state."""
        return self._step(state, batch, stop, self._tables, self._length)

    def compiled_step(self, state: State, batch: Batch, stop: jax.Array) -> jax.stages.Compiled:
        """Returns the step as it is compiled for such a batch, for its text and its costs."""
        return self._step.lower(state, batch, stop, self._tables, self._length).compile()

    def predict(self, params: Any, batch: Batch) -> Outputs:
        """Returns the predictions of a global batch, on all processes."""
        return self._predict(params, batch, self._tables)

    def score_masked(self, params: Any, batch: Batch) -> loss.ByType:
        """Returns the losses of the masked cells of a global batch, on all processes."""
        return self._score_masked(params, batch, self._tables)

    @property
    def compiled_steps(self) -> int:
        """The number of batch shapes that the step was compiled for."""
        return self._step._cache_size()  # type: ignore[attr-defined]

    def _initial(self, with_texts: bool) -> State:
        params = model.initial_params(
            self._settings.model,
            self._text_width,
            self._settings.optimizer.seed,
            with_texts=with_texts,
        )
        zero = jnp.zeros((), jnp.int32)
        mean = params if self._settings.optimizer.mean_share else {}
        changed = optimizer(self._settings.optimizer).init(params)
        return State(params, changed, zero, zero, mean)

    def _train(
        self, state: State, batch: Batch, stop: jax.Array, tables: Tables, length: Length
    ) -> tuple[State, StepMetrics]:
        of_params = jax.value_and_grad(self._loss, has_aux=True)
        (cost, masked), gradients = of_params(state.params, batch, tables)
        norm = optax.tree.norm(gradients)
        is_finite = jnp.isfinite(norm) & jnp.isfinite(cost)
        made = optimizer(self._settings.optimizer, length)
        updates, changed = made.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        after = (params, changed, self._mean(state, params))
        choose = partial(jnp.where, is_finite)
        before = (state.params, state.optimizer, state.mean)
        params, changed, mean = jax.tree.map(choose, after, before)
        skipped = state.skipped + (1 - is_finite)
        metrics = StepMetrics(cost, norm, skipped, jnp.max(stop), masked)
        return State(params, changed, state.step + 1, skipped, mean), metrics

    def _mean(self, state: State, params: Any) -> Any:
        # The first steps average over fewer steps, so that the mean forgets the initial parameters.
        step = state.step.astype(jnp.float32)
        share = jnp.minimum(self._settings.optimizer.mean_share, (1 + step) / (10 + step))
        after = params if state.mean else {}
        return jax.tree.map(lambda old, new: share * old + (1 - share) * new, state.mean, after)

    def _loss(
        self, params: Any, batch: Batch, tables: Tables
    ) -> tuple[jax.Array, loss.ByType | None]:
        """Returns the loss of a batch, and of its masked cells if there are some."""
        if not batch.masked.shape[1]:
            predictions = model.predict(params, batch, tables, self._settings.model, self.shape)
            return self._target_loss(predictions, batch, tables), None
        predictions, masked = self._masked(params, batch, tables)
        of_target = self._target_loss(predictions, batch, tables)
        of_target = jnp.where(batch.target_type == NO_TARGET, 0, of_target)
        return of_target + self._settings.optimizer.mask_weight * masked.mean, masked

    def _target_loss(
        self, predictions: model.Predictions, batch: Batch, tables: Tables
    ) -> jax.Array:
        labels = loss.labels(expand(batch, tables, self.shape.max_rows), batch)
        return loss.weighted_mean(loss.context_losses(predictions, labels, batch), batch.weights)

    def _masked(
        self, params: Any, batch: Batch, tables: Tables
    ) -> tuple[model.Predictions, loss.ByType]:
        """Returns the predictions of the targets, and the losses of the masked cells."""
        settings, shape = self._settings.model, self.shape
        predictions, masked = model.predict_masked(params, batch, tables, settings, shape)
        cells = expand(batch, tables, shape.max_rows)
        texts = model.text_vectors(batch, tables, shape)
        return predictions, loss.masked_losses(masked, cells, batch, tables, texts)

    def _outputs(self, params: Any, batch: Batch, tables: Tables) -> Outputs:
        predictions = model.predict(params, batch, tables, self._settings.model, self.shape)
        labels = loss.labels(expand(batch, tables, self.shape.max_rows), batch)
        value, label = loss.values_and_labels(predictions, labels, batch)
        known = loss.known_categories(predictions.categories, batch.category_count)
        return Outputs(
            loss.context_losses(predictions, labels, batch), batch.weights,
            jax.nn.sigmoid(predictions.null), value, jax.nn.softmax(known), labels.is_null, label,
            batch.seed_row,
        )  # fmt: skip


def compute_type(wanted: config.Compute) -> config.Compute:
    """Returns the type that matrices are multiplied in, on this machine's devices."""
    if wanted != "auto":
        return wanted
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"
