"""The loss of predictions, by the type of the target or of the masked cell."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from confluence.batch import (
    BOOLEAN,
    CATEGORICAL,
    NUMERICAL,
    TEXT,
    TIMESTAMP,
    TYPE_NAMES,
    Batch,
    Cells,
    Tables,
    Texts,
)
from confluence.model import Masked, Predictions, unit_length

# The weight of the z-loss, which keeps the logits of the categories small.
_Z_WEIGHT = 1e-4
# Beyond this, in standard deviations, the loss of a number grows with the error and not its square:
# predictions are scored by the mean absolute error.
_SMALL_ERROR = 0.25
# The weights of a time's 14 sines and cosines and of its z-score. They sum to one, so that a
# timestamp weighs as much as a number.
_TIME_WEIGHTS = np.array([1.0] * 14 + [2.0], np.float32) / 16


class Labels(NamedTuple):
    """The target of each context [B], or its masked cells [B, M]."""

    is_null: jax.Array  # bool
    number: jax.Array  # f32, z-score
    boolean: jax.Array  # i32
    time: jax.Array  # f32 [..., 15]
    category: jax.Array  # i32, of a target within its column, of a masked cell among all


class Sums(NamedTuple):
    """The losses of a batch, or of a part of one, summed up, and what they are divided by."""

    # Of weight times loss, of the targets.
    losses: jax.Array  # f32 []
    weights: jax.Array  # f32 []
    # Those of the masked cells, if cells are masked.
    masked: ByType | None

    @property
    def mean(self) -> jax.Array:
        """The weighted mean over the targets."""
        return self.losses / self.divisor

    @property
    def divisor(self) -> jax.Array:
        """What the sum over the targets is divided by."""
        return jnp.maximum(self.weights, 1e-9)


class ByType(NamedTuple):
    """The losses of masked cells, summed up by their types, and how many there are of each."""

    sums: jax.Array  # f32 [6]
    counts: jax.Array  # f32 [6]

    @property
    def mean(self) -> jax.Array:
        """The mean over all cells, each of which weighs alike."""
        return jnp.sum(self.sums) / self.divisor

    @property
    def divisor(self) -> jax.Array:
        """What the sum over all cells is divided by."""
        return jnp.maximum(jnp.sum(self.counts), 1)


def labels(cells: Cells, batch: Batch) -> Labels:
    """Returns the values of the target cells; 0 for NULL, and for every other type."""
    found = _labels(cells, jnp.asarray(batch.target_position)[:, None], batch.target_type)
    found = jax.tree.map(lambda of: of[:, 0], found)
    return found._replace(category=jnp.maximum(found.category - batch.category_start, 0))


def _labels(cells: Cells, at: jax.Array, kinds: jax.Array) -> Labels:
    """Returns the values of the cells `at` [B, P], which are of these types."""
    contexts = jnp.arange(len(at))[:, None]
    is_null = cells.is_null[contexts, at]

    def known(kind: int, values: jax.Array) -> jax.Array:
        found = values[contexts, at]
        is_known = ~is_null & (kinds == kind)
        return jnp.where(is_known.reshape(*at.shape, *[1] * (found.ndim - 2)), found, 0)

    return Labels(
        is_null=is_null,
        number=known(NUMERICAL, cells.numbers),
        boolean=known(BOOLEAN, cells.booleans),
        time=known(TIMESTAMP, cells.times),
        category=known(CATEGORICAL, cells.categories),
    )


def context_losses(predictions: Predictions, truth: Labels, batch: Batch) -> jax.Array:
    """Returns the loss of each context, f32 [B]."""
    null = optax.sigmoid_binary_cross_entropy(predictions.null, truth.is_null.astype(jnp.float32))
    scores = known_categories(predictions.categories, batch.category_count)
    categorical = _categorical(scores, truth.category, truth.category < batch.category_count)
    of_type = _of_type(predictions, truth, batch.target_type, categorical)
    return null + jnp.where(truth.is_null, 0, of_type)


def masked_losses(
    predictions: Masked, cells: Cells, batch: Batch, tables: Tables, texts: Texts
) -> ByType:
    """Returns the losses of the masked cells of a batch; `texts` are the vectors of its texts.

    There is none for NULL: as no such cell is masked, a model would learn that nothing ever is.
    Nor is there one for a category that came after training, which no prediction can name.
    """
    at, kinds, truth, start, count, is_known, of_types = _masked_cells(cells, batch, tables)
    scores = known_categories(predictions.heads.categories, count[..., None], start[..., None])
    categorical = _categorical(scores, truth.category, is_known)
    losses = _of_type(predictions.heads, truth, kinds, categorical)
    if predictions.texts is not None:
        wanted = unit_length(texts.at(cells.texts[jnp.arange(len(at))[:, None], at]))
        cosine = jnp.sum(unit_length(predictions.texts) * wanted, axis=-1)
        losses = jnp.where(kinds == TEXT, 1 - cosine, losses)
    return ByType(
        jnp.sum(losses[..., None] * of_types, axis=(0, 1)), jnp.sum(of_types, axis=(0, 1))
    )


def masked_counts(cells: Cells, batch: Batch, tables: Tables) -> jax.Array:
    """Returns how many masked cells of each type have a loss, f32 [6]; it needs no prediction."""
    return jnp.sum(_masked_cells(cells, batch, tables).of_types, axis=(0, 1))


class _MaskedCells(NamedTuple):
    """The masked cells of a batch [B, M]."""

    at: jax.Array  # i32, their places
    kinds: jax.Array
    truth: Labels
    # Where the categories of their columns start, how many training knew, and whether the cell's is
    # one of them.
    start: jax.Array
    known_count: jax.Array
    is_known: jax.Array
    # 1 at the type of a cell that has a loss.
    of_types: jax.Array  # f32 [B, M, 6]


def _masked_cells(cells: Cells, batch: Batch, tables: Tables) -> _MaskedCells:
    cell_count = cells.types.shape[1]
    masked = batch.masked.astype(jnp.int32)
    at, contexts = jnp.minimum(masked, cell_count - 1), jnp.arange(len(masked))[:, None]
    kinds, columns = cells.types[contexts, at], cells.columns[contexts, at]
    truth = _labels(cells, at, kinds)
    start, count = (of[columns] for of in (tables.category_starts, tables.category_counts))
    is_known = truth.category < start + count
    is_counted = (masked < cell_count) & (batch.weights > 0)[:, None]
    is_counted &= is_known | (kinds != CATEGORICAL)
    of_types = jax.nn.one_hot(kinds, len(TYPE_NAMES)) * is_counted[..., None]
    return _MaskedCells(at, kinds, truth, start, count, is_known, of_types)


def _of_type(
    predictions: Predictions, truth: Labels, kinds: jax.Array, categorical: jax.Array
) -> jax.Array:
    """Returns the loss of the head of each value's type; `categorical` is that of categories."""
    by_type = {
        NUMERICAL: 2 * optax.huber_loss(predictions.numerical, truth.number, delta=_SMALL_ERROR),
        BOOLEAN: optax.sigmoid_binary_cross_entropy(
            predictions.boolean, truth.boolean.astype(jnp.float32)
        ),
        TIMESTAMP: optax.huber_loss(predictions.timestamp, truth.time) @ _TIME_WEIGHTS,
        CATEGORICAL: categorical,
    }
    of_type = jnp.zeros_like(predictions.numerical)
    for kind, loss in by_type.items():
        of_type = jnp.where(kinds == kind, loss, of_type)
    return of_type


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


def weighted_sums(losses: jax.Array, weights: jax.Array, masked: ByType | None = None) -> Sums:
    """Returns the sums over the contexts of a batch."""
    return Sums(jnp.sum(losses * weights), jnp.sum(weights), masked)


def known_categories(scores: jax.Array, count: jax.Array, start: jax.Array | int = 0) -> jax.Array:
    """Returns the logits with -1e9 in place of those that are none of `count` from `start` on."""
    place = jnp.arange(scores.shape[-1]) - start
    return jnp.where((place >= 0) & (place < count), scores, -1e9)


def _categorical(scores: jax.Array, category: jax.Array, is_known: jax.Array) -> jax.Array:
    """Returns the loss of categories by the logits of those that training knew.

    A label that came after training is beyond the known ones: no prediction can be right, and none
    is the better one.
    """
    size = jax.nn.logsumexp(scores, axis=-1)
    chosen = jnp.take_along_axis(scores, jnp.where(is_known, category, 0)[..., None], axis=-1)
    # A column without categories has logits of -1e9 alone, whose squares would overflow.
    small = _Z_WEIGHT * jnp.square(jnp.maximum(size, -1e3))
    return jnp.where(is_known, size - chosen[..., 0], 0) + small
