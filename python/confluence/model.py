"""The relational transformer: reads the cells of a context, predicts one of them, or several.

Parameters are a plain tree of float32 arrays; every function here is pure. Matrices are multiplied
in the compute type; norms, softmax and logits are float32.

Each timestamp is encoded with its value and with how long before the observation it was (`ages`).
Each cell has the age of its row, too, and how the walk reached the row.
Each reference has the encoded name of its relation, which the attentions OUT and IN add.
The output of the last block is normalised once more before the heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from confluence import config
from confluence.attention import (
    COL,
    IN,
    OUT,
    WAYS,
    Attention,
    Dense,
    RelationVectors,
    column_attention,
)
from confluence.batch import (
    AGE_FEATURES,
    BOOLEAN,
    CATEGORICAL,
    IDENTIFIER,
    NUMERICAL,
    ROW_FEATURES,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_FEATURES,
    Batch,
    Cells,
    Tables,
    Texts,
    expand,
)
from confluence.structured import Structured

Params = Mapping[str, Any]

_NORM_EPSILON = 1e-6
_MAX_SCALE = 30.0


_ATTENTION: Mapping[str, Callable[[Cells], Attention]] = {"dense": Dense, "structured": Structured}


class Predictions(NamedTuple):
    """The prediction of each head in float32: [B] for targets, [B, M] for masked cells."""

    null: jax.Array  # the logit of NULL
    numerical: jax.Array  # z-score
    boolean: jax.Array  # logit
    timestamp: jax.Array  # [..., 15]
    # Logits [..., K]: of a target those of its column, of a masked cell those of all columns.
    categories: jax.Array


class Masked(NamedTuple):
    """The predictions for the masked cells of each context."""

    heads: Predictions
    # f32 [B, M, D_t], the vector of a text; None for a model that learns none.
    texts: jax.Array | None


def initial_params(
    settings: config.Model, text_width: int, seed: int, *, with_texts: bool
) -> Params:
    """Returns initial parameters for vectors of columns, categories and texts of `text_width`.

    Only models that predict masked texts have a head for texts: no target is a text.
    """
    draw = _Initializer(seed)
    width, hidden, layers = settings.width, settings.hidden, settings.layers
    blocks, heads = (layers, WAYS), settings.heads
    # The more residual branches there are, the smaller each one starts.
    small = 1 / math.sqrt(4 * layers)
    params: dict[str, Any] = {
        "encoder": {
            "column": draw.linear(text_width, width),
            "identifier": draw.vector(width),
            "numerical": draw.linear(1, width),
            "timestamp": draw.linear(TIMESTAMP_FEATURES, width),
            "age": draw.linear(AGE_FEATURES, width),
            "boolean": draw.vector(2, width),
            "categorical": draw.linear(text_width, width),
            "text": draw.linear(text_width, width),
            "null": draw.vector(width),
            "mask": draw.vector(width),
            "norm": jnp.zeros(width),
            "relation_norm": jnp.zeros(width),
        },
        "blocks": {
            "attention": {
                "norm": jnp.zeros((*blocks, width)),
                "query": draw.matrix(*blocks, width, width),
                "key": draw.matrix(*blocks, width, width),
                "value": draw.matrix(*blocks, width, width),
                "out": draw.matrix(*blocks, width, width) * small,
                "gate": draw.matrix(*blocks, width, width),
                "scale": jnp.full((*blocks, heads), math.sqrt(width // heads), jnp.float32),
            },
            "feed": {
                "norm": jnp.zeros((layers, width)),
                "gate": draw.matrix(layers, width, hidden),
                "up": draw.matrix(layers, width, hidden),
                "down": draw.matrix(layers, hidden, width) * small,
            },
        },
        "norm": jnp.zeros(width),
        "heads": {
            "null": draw.linear(width, 1),
            "numerical": draw.linear(width, 1),
            "boolean": draw.linear(width, 1),
            "timestamp": draw.linear(width, TIMESTAMP_FEATURES),
            "categorical": draw.linear(width, width),
        },
    }
    params["encoder"]["relation"] = draw.linear(text_width, width)
    params["encoder"]["row"] = draw.linear(ROW_FEATURES, width)
    # OUT and IN; COL has no relations. They start without effect: otherwise some seeds of the demo
    # shop never find its signal (benches/record/2026-11-23-relations.json).
    ways = (layers, WAYS - 1)
    params["blocks"]["relation"] = {
        "key": draw.matrix(*ways, width, width),
        "key_scale": jnp.zeros((*ways, heads)),
        "value": jnp.zeros((*ways, width, width)),
    }
    if with_texts:
        # Drawn last, so that all others are the same without it.
        params["heads"]["text"] = draw.linear(width, text_width)
    return params


def predict(
    params: Params, batch: Batch, tables: Tables, settings: config.Model, shape: Shape
) -> Predictions:
    """Returns the predictions of all heads for each context's target."""
    at = jnp.asarray(batch.target_position)[:, None]
    outputs = _outputs(params, batch, tables, settings, shape, at)
    # Taken out before the norm, which keeps the bits of the losses that earlier versions had.
    target = rms_norm(outputs[:, 0], params["norm"])
    return _target_heads(params, target, batch, tables, shape)


def predict_masked(
    params: Params, batch: Batch, tables: Tables, settings: config.Model, shape: Shape
) -> tuple[Predictions, Masked]:
    """Returns the predictions for each context's target, and those for its masked cells.

    Both mean nothing where there is none: a row of a pool has no target.
    """
    masked = jnp.minimum(batch.masked.astype(jnp.int32), batch.types.shape[1] - 1)
    target = jnp.maximum(jnp.asarray(batch.target_position), 0)
    at = jnp.concatenate([target[:, None], masked], axis=1)
    outputs = rms_norm(_outputs(params, batch, tables, settings, shape, at), params["norm"])
    of_target = _target_heads(params, outputs[:, 0], batch, tables, shape)
    of_masked, heads = outputs[:, 1:], params["heads"]
    # One product with all categories: to gather those of each cell's column would take D times the
    # memory, and its gradient would scatter.
    predictions = _heads(heads, of_masked, _categories(params, tables.categories, shape))
    texts = None
    if "text" in heads:
        texts = _linear(heads["text"], of_masked).astype(jnp.float32)
    return of_target, Masked(predictions, texts)


def _outputs(
    params: Params,
    batch: Batch,
    tables: Tables,
    settings: config.Model,
    shape: Shape,
    at: jax.Array,
) -> jax.Array:
    """Returns the output [B, P, D] of the last block for the cells `at` [B, P]."""
    compute = jnp.dtype(shape.compute)
    cells = expand(batch, tables, shape.max_rows)
    texts = text_vectors(batch, tables, shape)
    hidden = _encode(params["encoder"], cells, tables, texts, settings, compute)
    relations = _linear(params["encoder"]["relation"], tables.relations.astype(compute))
    relations = rms_norm(relations, params["encoder"]["relation_norm"])
    attention = _ATTENTION[settings.attention](cells)
    return _blocks(params["blocks"], hidden, relations, attention, cells, at, settings)


def _target_heads(
    params: Params, target: jax.Array, batch: Batch, tables: Tables, shape: Shape
) -> Predictions:
    known = jax.lax.dynamic_slice_in_dim(
        tables.categories, batch.category_start, shape.target_categories
    )
    return _heads(params["heads"], target, _categories(params, known, shape))


def _categories(params: Params, vectors: jax.Array, shape: Shape) -> jax.Array:
    return _linear(params["encoder"]["categorical"], vectors.astype(jnp.dtype(shape.compute)))


class Shape(NamedTuple):
    """The sizes that all batches of a run share, beside the shapes of their arrays."""

    max_rows: int
    target_categories: int
    has_texts: bool
    compute: str


def text_vectors(batch: Batch, tables: Tables, shape: Shape) -> Texts:
    """Returns the vectors that the texts of a batch have their places in."""
    if shape.has_texts:
        return Texts(tables.texts, tables.text_scales)
    return Texts(batch.text_vectors, batch.text_scales)


def rms_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    """Returns x divided by its root mean square, times 1 + gain; computed in float32."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + _NORM_EPSILON)
    return (wide * scale * (1 + gain)).astype(x.dtype)


def unit_length(x: jax.Array) -> jax.Array:
    """Returns x divided by its length, in float32; its gradient is finite at 0."""
    wide = x.astype(jnp.float32)
    return wide * jax.lax.rsqrt(jnp.sum(wide * wide, axis=-1, keepdims=True) + _NORM_EPSILON)


def _encode(
    encoder: Params,
    cells: Cells,
    tables: Tables,
    texts: Texts,
    settings: config.Model,
    compute: jnp.dtype,
) -> jax.Array:
    """Returns [B, S, D]: of each cell the encoded name of the column, value and row, added."""
    vectors = {
        name: encoder[name].astype(compute) for name in ("identifier", "boolean", "null", "mask")
    }
    is_mask = cells.is_target | cells.is_masked
    hidden = cells.is_null | is_mask

    def of_type(kind: int, values: jax.Array) -> jax.Array:
        """Returns the values of a type's visible cells, 0 elsewhere: no NaN reaches a gradient."""
        visible = (cells.types == kind) & ~hidden
        return jnp.where(visible[..., None], values, 0).astype(compute)

    column = _linear(encoder["column"], tables.columns.astype(compute))[cells.columns]
    categories = _linear(encoder["categorical"], tables.categories.astype(compute))
    times = cells.times if settings.epochs else cells.times.at[..., -1].set(0)
    time = _linear(encoder["timestamp"], of_type(TIMESTAMP, times))
    if settings.ages:
        time += _linear(encoder["age"], of_type(TIMESTAMP, cells.ages))
    by_type = {
        IDENTIFIER: vectors["identifier"],
        NUMERICAL: _linear(encoder["numerical"], of_type(NUMERICAL, cells.numbers[..., None])),
        TIMESTAMP: time,
        BOOLEAN: vectors["boolean"][cells.booleans],
        CATEGORICAL: categories[cells.categories],
        TEXT: _linear(encoder["text"], texts.at(cells.texts).astype(compute)),
    }
    # `where`, not a product with a mask: NaN times 0 is NaN.
    value = jnp.zeros_like(column)
    for kind, encoded in by_type.items():
        value = jnp.where((cells.types == kind)[..., None], encoded, value)
    value = jnp.where(cells.is_null[..., None], vectors["null"], value)
    value = jnp.where(is_mask[..., None], vectors["mask"], value)
    row_features = (
        cells.row_features if settings.ages else cells.row_features.at[..., :AGE_FEATURES].set(0)
    )
    row = _linear(encoder["row"], row_features.astype(compute))
    return rms_norm(column + value + row, encoder["norm"])


def _blocks(
    blocks: Params,
    hidden: jax.Array,
    relations: jax.Array,
    attention: Attention,
    cells: Cells,
    at: jax.Array,
    settings: config.Model,
) -> jax.Array:
    """Returns the output [B, P, D] of all blocks for the cells `at` [B, P] of each context."""

    def references(hidden: jax.Array, block: Params) -> jax.Array:
        for way in (OUT, IN):
            own = _of_way(block["attention"], way)
            vectors = _relation_vectors(_of_way(block["relation"], way), relations, settings.heads)
            q, k, v = _projected(own, hidden, settings.heads)
            hidden += _gated(own, hidden, attention(way, q, k, v, vectors))
        return hidden

    def feed(hidden: jax.Array, own: Params) -> jax.Array:
        x = rms_norm(hidden, own["norm"])
        gated = jax.nn.silu(_matmul(x, own["gate"])) * _matmul(x, own["up"])
        return hidden + _matmul(gated, own["down"])

    def block_of_all(hidden: jax.Array, block: Params) -> tuple[jax.Array, None]:
        hidden = references(hidden, block)
        own = _of_way(block["attention"], COL)
        q, k, v = _projected(own, hidden, settings.heads)
        hidden += _gated(own, hidden, attention(COL, q, k, v, None))
        return feed(hidden, block["feed"]), None

    def block_of_chosen(hidden: jax.Array, block: Params) -> jax.Array:
        """The last block: after its references, other cells are keys and values alone."""
        hidden = references(hidden, block)
        own = _of_way(block["attention"], COL)
        chosen = jnp.take_along_axis(hidden, at[..., None], axis=1)
        q, _, _ = _projected(own, chosen, settings.heads)
        _, k, v = _projected(own, hidden, settings.heads)
        chosen += _gated(own, chosen, column_attention(cells, at, q, k, v))
        return feed(chosen, block["feed"])

    first = jax.tree.map(lambda leaf: leaf[:-1], blocks)
    last = jax.tree.map(lambda leaf: leaf[-1], blocks)
    if settings.rematerialise:
        hidden, _ = jax.lax.scan(jax.checkpoint(block_of_all), hidden, first)
        return jax.checkpoint(block_of_chosen)(hidden, last)
    # Unrolled, so that the backward pass need not gather its inputs from a loop.
    hidden, _ = jax.lax.scan(block_of_all, hidden, first, unroll=max(settings.layers - 1, 1))
    return block_of_chosen(hidden, last)


def _of_way(params: Params, way: int) -> Params:
    return {name: leaf[way] for name, leaf in params.items()}


def _relation_vectors(own: Params, relations: jax.Array, heads: int) -> RelationVectors:
    keys, values = (
        _matmul(relations, own[name]).reshape(len(relations), heads, -1)
        for name in ("key", "value")
    )
    # No longer than the keys of cells, so that logits stay bounded.
    scale = jnp.clip(own["key_scale"], -1, 1)[:, None]
    return RelationVectors((unit_length(keys) * scale).astype(values.dtype), values)


def _projected(
    own: Params, hidden: jax.Array, heads: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns queries, keys and values [B, S, H, d]; products of the first two are logits."""
    x = rms_norm(hidden, own["norm"])
    q, k, v = (
        _matmul(x, own[name]).reshape(*x.shape[:2], heads, -1) for name in ("query", "key", "value")
    )
    scale = jnp.clip(own["scale"], -_MAX_SCALE, _MAX_SCALE)
    q, k = unit_length(q) * scale[:, None], unit_length(k)
    return q.astype(v.dtype), k.astype(v.dtype), v


def _gated(own: Params, hidden: jax.Array, attended: jax.Array) -> jax.Array:
    """Returns what an attention adds to the cells `hidden`."""
    out = _matmul(attended.reshape(hidden.shape), own["out"])
    return out * jax.nn.sigmoid(_matmul(rms_norm(hidden, own["norm"]), own["gate"]))


def _heads(heads: Params, outputs: jax.Array, categories: jax.Array) -> Predictions:
    def head(name: str) -> jax.Array:
        return _linear(heads[name], outputs).astype(jnp.float32)

    scores = jnp.einsum(
        "...d,kd->...k",
        _linear(heads["categorical"], outputs),
        categories,
        preferred_element_type=jnp.float32,
    )
    return Predictions(
        null=head("null")[..., 0],
        numerical=head("numerical")[..., 0],
        boolean=head("boolean")[..., 0],
        timestamp=head("timestamp"),
        categories=scores / math.sqrt(outputs.shape[-1]),
    )


def _linear(layer: Params, x: jax.Array) -> jax.Array:
    return _matmul(x, layer["weight"]) + layer["bias"].astype(x.dtype)


def _matmul(x: jax.Array, matrix: jax.Array) -> jax.Array:
    # Reshaped to one matrix: on a CPU, the gradient of a batched product is slow.
    flat = x.reshape(-1, x.shape[-1]) @ matrix.astype(x.dtype)
    return flat.reshape(*x.shape[:-1], -1)


class _Initializer:
    """Draws initial values, each with a random key of its own."""

    def __init__(self, seed: int) -> None:
        self._key = jax.random.key(seed)

    def matrix(self, *shape: int) -> jax.Array:
        """Draws Xavier uniform values; the leading axes number independent matrices."""
        bound = math.sqrt(6 / (shape[-2] + shape[-1]))
        return jax.random.uniform(self._next_key(), shape, jnp.float32, -bound, bound)

    def linear(self, inputs: int, outputs: int) -> dict[str, jax.Array]:
        return {"weight": self.matrix(inputs, outputs), "bias": jnp.zeros(outputs)}

    def vector(self, *shape: int) -> jax.Array:
        return 0.02 * jax.random.normal(self._next_key(), shape)

    def _next_key(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key
