"""The optimiser: Muon for the blocks' matrices, AdamW for all other parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from confluence import config

MUON, ADAM = "muon", "adam"


class Length(NamedTuple):
    """How long a run is: numbers, or traced arrays so that runs of all lengths compile alike."""

    steps: Any
    warmup_steps: Any

    @classmethod
    def of(cls, settings: config.Optimizer) -> Length:
        """Returns the length that the settings say."""
        return cls(settings.steps, settings.warmup_steps)


def optimizer(
    settings: config.Optimizer, length: Length | None = None
) -> optax.GradientTransformation:
    """Returns the optimiser: clips by the global norm, then updates each group of parameters.

    `length` is that of the settings by default.
    """
    length = length or Length.of(settings)
    decay = optax.add_decayed_weights(settings.weight_decay, mask=_matrices)
    muon = optax.chain(
        # The last two axes are a matrix; the leading axes number independent matrices.
        contrib.scale_by_muon(beta=settings.muon_beta, weight_dimension_numbers=_dimensions),
        optax.stateless(lambda updates, _: jax.tree.map(_scaled_for_shape, updates)),
        decay,
        optax.scale_by_learning_rate(learning_rate(settings, settings.muon_rate, length)),
    )
    adam = optax.chain(
        optax.scale_by_adam(b1=settings.adam_b1, b2=settings.adam_b2, eps=1e-8),
        decay,
        optax.scale_by_learning_rate(learning_rate(settings, settings.adam_rate, length)),
    )
    return optax.chain(
        optax.clip_by_global_norm(settings.clip_norm),
        optax.partition({MUON: muon, ADAM: adam}, parameter_groups),
    )


def learning_rate(
    settings: config.Optimizer, peak: float, length: Length
) -> Callable[[Any], jax.Array]:
    """Returns the learning rate by step: a linear warm-up, then what the schedule says."""
    warmup = length.warmup_steps
    decay = jnp.maximum(length.steps - warmup, 1)
    last = 1.0 if settings.schedule == "constant" else settings.final_share

    def rate(step: Any) -> jax.Array:
        share = jnp.clip((step - warmup) / decay, 0, 1)
        left = 1 - share if settings.schedule == "linear" else 0.5 * (1 + jnp.cos(jnp.pi * share))
        decayed = (1 - last) * left + last
        return peak * jnp.where(step < warmup, step / jnp.maximum(warmup, 1), decayed)

    return rate


def parameter_groups(params: Any) -> Any:
    """Returns the optimiser of each parameter, `MUON` or `ADAM`."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: MUON if path[0].key == "blocks" and _is_matrix(path) else ADAM, params
    )


def _is_matrix(path: tuple[Any, ...]) -> bool:
    matrices = ("weight", "query", "key", "value", "out", "gate", "up", "down")
    return path[-1].key in matrices


def _matrices(params: Any) -> Any:
    return jax.tree_util.tree_map_with_path(lambda path, _: _is_matrix(path), params)


def _dimensions(params: Any) -> Any:
    def of(leaf: jax.Array) -> contrib.MuonDimensionNumbers:
        return contrib.MuonDimensionNumbers(
            reduction_axis=(leaf.ndim - 2,), output_axis=(leaf.ndim - 1,)
        )

    return jax.tree.map(of, params)


def _scaled_for_shape(update: jax.Array) -> jax.Array:
    """Scales the update of a wide matrix, whose rows are orthogonal, to that of a square one."""
    inputs, outputs = update.shape[-2:]
    return update * jnp.sqrt(max(1.0, outputs / inputs))
