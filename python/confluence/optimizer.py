"""The optimiser: Muon for the blocks' matrices, AdamW for all other parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from confluence import config

MUON, ADAM = "muon", "adam"


def optimizer(settings: config.Optimizer) -> optax.GradientTransformation:
    """Returns the optimiser: clips by the global norm, then updates each group of parameters."""
    decay = optax.add_decayed_weights(settings.weight_decay, mask=_matrices)
    muon = optax.chain(
        # The last two axes are a matrix; the leading axes number independent matrices.
        contrib.scale_by_muon(weight_dimension_numbers=_dimensions),
        optax.stateless(lambda updates, _: jax.tree.map(_scaled_for_shape, updates)),
        decay,
        optax.scale_by_learning_rate(learning_rate(settings, settings.muon_rate)),
    )
    adam = optax.chain(
        optax.scale_by_adam(b1=0.9, b2=0.95, eps=1e-8),
        decay,
        optax.scale_by_learning_rate(learning_rate(settings, settings.adam_rate)),
    )
    return optax.chain(
        optax.clip_by_global_norm(settings.clip_norm),
        optax.partition({MUON: muon, ADAM: adam}, parameter_groups),
    )


def learning_rate(settings: config.Optimizer, peak: float) -> Callable[[Any], Any]:
    """Returns the learning rate by step: a linear warm-up, then a cosine decay."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=peak,
        warmup_steps=settings.warmup_steps,
        decay_steps=max(settings.steps, settings.warmup_steps + 1),
        end_value=peak * settings.final_share,
    )


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
