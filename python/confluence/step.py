"""What is compiled: a training step, and the predictions of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import SingleDeviceSharding

from confluence import config, loss, model
from confluence.batch import NO_TARGET, Batch, Tables, Vocabulary, expand
from confluence.microbatches import Exchange, Microbatches, in_order
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
    """The compiled functions of a run.

    They take a batch as a whole, over the devices of all processes, or the microbatches of this
    process; then they are compiled for one device, and know nothing of other processes.
    """

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
        self._exchange = Exchange(layout, max(config.microbatches(settings), 1))
        self._part_of_step = jax.jit(self._part)
        self._counts_of_part = jax.jit(self._counts)
        self._ratio_of_sums = jax.jit(self._ratio)
        self._end_of_step = jax.jit(self._after_parts, donate_argnums=0)
        self._predict_part = jax.jit(self._outputs)
        self._score_part = jax.jit(lambda *given: self._masked(*given)[1])
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

    def initial(self) -> State:
        """Returns the state before the first step."""
        device = SingleDeviceSharding(self._layout.device)
        make = jax.jit(partial(self._initial, self._learns_texts), out_shardings=device)
        state: State = self._layout.everywhere(make())
        return state

    def abstract_state(self, *, with_texts: bool | None = None) -> State:
        """Returns the shapes, types and devices of a state, to read one from a checkpoint.

        `with_texts` is whether the model has a head for texts; by default as the settings say.
        """
        if with_texts is None:
            with_texts = self._learns_texts
        shapes = jax.eval_shape(partial(self._initial, with_texts))
        state: State = jax.tree.map(lambda of: of.update(sharding=self._layout.replicated), shapes)
        return state

    def step(
        self, state: State, batch: Batch | Microbatches, stop: jax.Array
    ) -> tuple[State, StepMetrics]:
        """Returns the state after a batch, and consumes the buffers of the given state."""
        if not isinstance(batch, Microbatches):
            return self._step(state, batch, stop, self._tables, self._length)
        own: State = self._layout.local(state)
        tables, length = self._layout.local((self._tables, self._length))
        ratio: Any = np.float32(0)
        if batch[0].masked.shape[1]:
            counts, _ = self._exchange.sum(
                (self._counts_of_part(part, tables) for part in batch), stop
            )
            ratio = self._ratio_of_sums(counts)
        sums, any_stop = self._exchange.sum(
            (self._part_of_step(own.params, part, tables, ratio) for part in batch), stop
        )
        own, metrics = self._end_of_step(own, sums, any_stop, length)
        return self._layout.everywhere(own), metrics

    def compiled_step(self, state: State, batch: Batch, stop: jax.Array) -> jax.stages.Compiled:
        """Returns the step as it is compiled for such a batch, for its text and its costs."""
        return self._step.lower(state, batch, stop, self._tables, self._length).compile()

    def predict(self, params: Any, batch: Batch | Microbatches) -> Outputs:
        """Returns the predictions of a global batch, on all processes."""
        if not isinstance(batch, Microbatches):
            return self._predict(params, batch, self._tables)
        params, tables = self._layout.local((params, self._tables))
        parts = [self._predict_part(params, part, tables) for part in batch]
        outputs: Outputs = in_order(self._exchange.gather(parts))
        return outputs

    def score_masked(self, params: Any, batch: Batch | Microbatches) -> loss.ByType:
        """Returns the losses of the masked cells of a global batch, on all processes."""
        if not isinstance(batch, Microbatches):
            return self._score_masked(params, batch, self._tables)
        params, tables = self._layout.local((params, self._tables))
        parts = [self._score_part(params, part, tables) for part in batch]
        # In the order of the microbatches.
        return jax.tree.map(lambda *of: sum(of), *self._exchange.gather(parts))

    @property
    def compiled_steps(self) -> int:
        """The number of batch shapes that the step was compiled for."""
        steps = (self._step, self._part_of_step)
        return sum(of._cache_size() for of in steps)  # type: ignore[attr-defined]

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
        """Returns the state after a batch that is computed as a whole."""

        def cost(params: Any) -> tuple[jax.Array, loss.Sums]:
            sums = self._sums(params, batch, tables)
            return self._cost(sums), sums

        gradients, sums = jax.grad(cost, has_aux=True)(state.params)
        return self._updated(state, gradients, sums, jnp.max(stop), length)

    def _part(
        self, params: Any, batch: Batch, tables: Tables, ratio: jax.Array
    ) -> tuple[Any, loss.Sums]:
        """Returns the gradients and losses of a microbatch, whose sums over all are a step's.

        The gradients are those of the cost times the divisor of the targets' losses. `ratio` is the
        share of the masked cells in that, which the whole batch decides.
        """

        def cost(params: Any) -> tuple[jax.Array, loss.Sums]:
            sums = self._sums(params, batch, tables)
            whole = sums.losses
            if sums.masked is not None:
                whole += ratio * jnp.sum(sums.masked.sums)
            return whole, sums

        gradients, sums = jax.grad(cost, has_aux=True)(params)
        return gradients, sums

    def _counts(self, batch: Batch, tables: Tables) -> loss.Sums:
        """Returns what the losses of a microbatch are divided by, without losses."""
        counts = loss.masked_counts(expand(batch, tables, self.shape.max_rows), batch, tables)
        none = loss.ByType(jnp.zeros_like(counts), counts)
        return loss.weighted_sums(jnp.zeros_like(batch.weights), batch.weights, none)

    def _ratio(self, sums: loss.Sums) -> jax.Array:
        """Returns the `ratio` of `_part`."""
        assert sums.masked is not None
        return self._settings.optimizer.mask_weight * sums.divisor / sums.masked.divisor

    def _after_parts(
        self, state: State, parts: tuple[Any, loss.Sums], stop: jax.Array, length: Length
    ) -> tuple[State, StepMetrics]:
        """Returns the state after a batch, given the sums over its microbatches."""
        gradients, sums = parts
        gradients = jax.tree.map(lambda of: of / sums.divisor, gradients)
        return self._updated(state, gradients, sums, jnp.max(stop), length)

    def _updated(
        self, state: State, gradients: Any, sums: loss.Sums, stop: jax.Array, length: Length
    ) -> tuple[State, StepMetrics]:
        cost = self._cost(sums)
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
        metrics = StepMetrics(cost, norm, skipped, stop, sums.masked)
        return State(params, changed, state.step + 1, skipped, mean), metrics

    def _mean(self, state: State, params: Any) -> Any:
        # The first steps average over fewer steps, so that the mean forgets the initial parameters.
        step = state.step.astype(jnp.float32)
        share = jnp.minimum(self._settings.optimizer.mean_share, (1 + step) / (10 + step))
        after = params if state.mean else {}
        return jax.tree.map(lambda old, new: share * old + (1 - share) * new, state.mean, after)

    def _cost(self, sums: loss.Sums) -> jax.Array:
        """Returns what a step makes less, of the losses of a batch."""
        if sums.masked is None:
            return sums.mean
        return sums.mean + self._settings.optimizer.mask_weight * sums.masked.mean

    def _sums(self, params: Any, batch: Batch, tables: Tables) -> loss.Sums:
        """Returns the losses of a batch."""
        if not batch.masked.shape[1]:
            predictions = model.predict(params, batch, tables, self._settings.model, self.shape)
            return self._target_sums(predictions, batch, tables)
        predictions, masked = self._masked(params, batch, tables)
        of_target = self._target_sums(predictions, batch, tables)
        losses = jnp.where(batch.target_type == NO_TARGET, 0, of_target.losses)
        return of_target._replace(losses=losses, masked=masked)

    def _target_sums(
        self, predictions: model.Predictions, batch: Batch, tables: Tables
    ) -> loss.Sums:
        labels = loss.labels(expand(batch, tables, self.shape.max_rows), batch)
        return loss.weighted_sums(loss.context_losses(predictions, labels, batch), batch.weights)

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
