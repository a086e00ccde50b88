"""The loss of predictions, by the type of the target."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from confluence.batch import BOOLEAN, CATEGORICAL, NUMERICAL, TIMESTAMP, Batch, Cells
from confluence.model import Predictions

# The weight of the z-loss, which keeps the logits of the categories small.
_Z_WEIGHT = 1e-4
# Beyond this, in standard deviations, the loss of a number grows with the error and not its square:
# predictions are scored by the mean absolute error.
_SMALL_ERROR = 0.25
# The weights of a time's 14 sines and cosines and of its z-score. They sum to one, so that a
# timestamp weighs as much as a number.
_TIME_WEIGHTS = np.array([1.0] * 14 + [2.0], np.float32) / 16


class Labels(NamedTuple):
    """The target of each context."""

    is_null: jax.Array  # bool [B]
    number: jax.Array  # f32 [B], z-score
    boolean: jax.Array  # i32 [B]
    time: jax.Array  # f32 [B, 15]
    category: jax.Array  # i32 [B], within the column


def labels(cells: Cells, batch: Batch) -> Labels:
    """Returns the values of the target cells; 0 for NULL, and for every other type."""

    def at_target(values: jax.Array) -> jax.Array:
        return values[jnp.arange(values.shape[0]), batch.target_position]

    is_null = at_target(cells.is_null)

    def known(kind: int, values: jax.Array) -> jax.Array:
        found = at_target(values)
        is_known = ~is_null & (batch.target_type == kind)
        return jnp.where(is_known.reshape(-1, *[1] * (found.ndim - 1)), found, 0)

    category = known(CATEGORICAL, cells.categories) - batch.category_start
    return Labels(
        is_null=is_null,
        number=known(NUMERICAL, cells.numbers),
        boolean=known(BOOLEAN, cells.booleans),
        time=known(TIMESTAMP, cells.times),
        category=jnp.maximum(category, 0),
    )


def context_losses(predictions: Predictions, truth: Labels, batch: Batch) -> jax.Array:
    """Returns the loss of each context, f32 [B]."""
    null = optax.sigmoid_binary_cross_entropy(predictions.null, truth.is_null.astype(jnp.float32))
    by_type = {
        NUMERICAL: 2 * optax.huber_loss(predictions.numerical, truth.number, delta=_SMALL_ERROR),
        BOOLEAN: optax.sigmoid_binary_cross_entropy(
            predictions.boolean, truth.boolean.astype(jnp.float32)
        ),
        TIMESTAMP: optax.huber_loss(predictions.timestamp, truth.time) @ _TIME_WEIGHTS,
        CATEGORICAL: _categorical(predictions.categories, truth.category, batch.category_count),
    }
    of_type = jnp.zeros_like(null)
    for kind, loss in by_type.items():
        of_type = jnp.where(batch.target_type == kind, loss, of_type)
    return null + jnp.where(truth.is_null, 0, of_type)


def values_and_labels(
    predictions: Predictions, truth: Labels, batch: Batch
) -> tuple[jax.Array, jax.Array]:
    """Returns the prediction and the label of each context, as one number for every type."""
    known = known_categories(predictions.categories, batch.category_count)
    by_type = {
        NUMERICAL: (predictions.numerical, truth.number),
        BOOLEAN: (jax.nn.sigmoid(predictions.boolean), truth.boolean),
        TIMESTAMP: (predictions.timestamp[:, -1], truth.time[:, -1]),
        CATEGORICAL: (jnp.argmax(known, axis=-1), truth.category),
    }
    value = label = jnp.zeros_like(predictions.null)
    for kind, (predicted, true) in by_type.items():
        value = jnp.where(batch.target_type == kind, predicted, value)
        label = jnp.where(batch.target_type == kind, true, label)
    return value, label


def weighted_mean(losses: jax.Array, weights: jax.Array) -> jax.Array:
    """Returns the weighted mean over the global batch."""
    return jnp.sum(losses * weights) / jnp.maximum(jnp.sum(weights), 1e-9)


def known_categories(scores: jax.Array, count: jax.Array) -> jax.Array:
    """Returns the logits with -1e9 in place of those beyond the column's categories."""
    return jnp.where(jnp.arange(scores.shape[-1]) < count, scores, -1e9)


def _categorical(scores: jax.Array, category: jax.Array, count: jax.Array) -> jax.Array:
    scores = known_categories(scores, count)
    size = jax.nn.logsumexp(scores, axis=-1)
    # A label that came after training is beyond the known ones: no prediction can be right, and
    # none is the better one.
    is_known = category < count
    chosen = jnp.take_along_axis(scores, jnp.where(is_known, category, 0)[:, None], axis=-1)[:, 0]
    # A column without categories has logits of -1e9 alone, whose squares would overflow.
    return jnp.where(is_known, size - chosen, 0) + _Z_WEIGHT * jnp.square(jnp.maximum(size, -1e3))
