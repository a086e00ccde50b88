"""Trains a small decoder on the token rows of an event store, and compares it with a bigram.

    python examples/orders/decoder.py orders.db --steps 900

The bigram knows how often each token follows each other one: after the token of a field, how often
each value occurs. What the decoder does better it has from the events before, and from the fields
of the same event. Both are measured on rows of the test split, whose entities neither has seen; if
it has no events, on val, or else on train. At last the decoder continues a history of this split.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import headwater
from headwater.sampler import Split

WIDTH, LAYERS, HEADS = 64, 2, 4
BATCH_TOKENS = 4096
SMOOTHING = (1.0, 0.1, 0.01)
# What is measured: so many epochs of the split, but no more batches.
MOST_EPOCHS, MOST_BATCHES = 4, 64
# The tokens that are drawn until they are an event.
MOST_SAMPLED = 1000

Params = Mapping[str, Any]
Batch = Mapping[str, np.ndarray]


def initial_params(vocabulary: int, seed: int) -> Params:
    """Returns initial parameters: an embedding, which is the output layer as well, and blocks."""
    keys = iter(jax.random.split(jax.random.key(seed), 1 + 4 * LAYERS))

    def matrix(rows: int, columns: int, scale: float = 1.0) -> jax.Array:
        return scale * rows**-0.5 * jax.random.normal(next(keys), (rows, columns))

    blocks = [
        {
            "qkv": matrix(WIDTH, 3 * WIDTH),
            "out": matrix(WIDTH, WIDTH, 0.5),
            "up": matrix(WIDTH, 4 * WIDTH),
            "down": matrix(4 * WIDTH, WIDTH, 0.5),
        }
        for _ in range(LAYERS)
    ]
    embedding = 0.02 * jax.random.normal(next(keys), (vocabulary, WIDTH))
    return {"embedding": embedding, "blocks": blocks}


def normed(x: jax.Array) -> jax.Array:
    """Returns vectors of mean square 1."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def rotated(x: jax.Array, position: jax.Array) -> jax.Array:
    """Turns pairs of [batch, length, heads, features] by angles that grow with the position."""
    half = x.shape[-1] // 2
    angle = position[..., None, None] * 10_000.0 ** (-jnp.arange(half) / half)
    left, right = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def logits(params: Params, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Returns the logits of the next token, [batch, length, vocabulary]."""
    position, segment = batch["inputs_position"], batch["inputs_segmentation"]
    length = position.shape[1]
    # A token sees those before it of its own segment.
    sees = segment[:, :, None] == segment[:, None, :]
    sees = sees & jnp.tril(jnp.ones((length, length), bool))
    x = params["embedding"][batch["inputs"]]
    for block in params["blocks"]:
        q, k, v = jnp.split(normed(x) @ block["qkv"], 3, axis=-1)
        q, k, v = (y.reshape(*y.shape[:2], HEADS, -1) for y in (q, k, v))
        q, k = rotated(normed(q), position), rotated(normed(k), position)
        scores = jnp.einsum("bqhf,bkhf->bhqk", q, k) * q.shape[-1] ** 0.5
        weights = jax.nn.softmax(jnp.where(sees[:, None], scores, -1e9), axis=-1)
        x = x + jnp.einsum("bhqk,bkhf->bqhf", weights, v).reshape(x.shape) @ block["out"]
        x = x + jax.nn.gelu(normed(x) @ block["up"]) @ block["down"]
    return normed(x) @ params["embedding"].T * WIDTH**0.5


def losses(params: Params, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Returns the loss of each target, in nats, [batch, length]."""
    log = jax.nn.log_softmax(logits(params, batch))
    return -jnp.take_along_axis(log, batch["targets"][..., None], axis=-1)[..., 0]


def is_target(batch: Mapping[str, Any]) -> Any:
    """Returns where a target is; the last token of a segment and padding have none."""
    return batch["targets_segmentation"] > 0


def optimizer(steps: int) -> optax.GradientTransformation:
    """Returns AdamW with a warm-up and a cosine."""
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, min(20, steps // 4), steps, 1e-4)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))


@partial(jax.jit, static_argnames="steps", donate_argnums=(0, 1))
def step(
    params: Params, state: optax.OptState, batch: Mapping[str, jax.Array], steps: int
) -> tuple[Params, optax.OptState, jax.Array]:
    """Returns parameters and state after one step, and the mean loss of the batch before it."""

    def loss(params: Params) -> jax.Array:
        return jnp.mean(losses(params, batch), where=is_target(batch))

    value, gradient = jax.value_and_grad(loss)(params)
    updates, state = optimizer(steps).update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value


class Bigram:
    """How often each token followed each other one; only pairs that occurred take memory."""

    def __init__(self, vocabulary: int) -> None:
        self.totals = np.zeros(vocabulary)
        # Sorted; the last one is behind all pairs.
        self.pairs, self.counts = np.array([vocabulary**2]), np.zeros(1)

    def see(self, batch: Batch) -> None:
        """Counts the pairs of a batch."""
        where = is_target(batch)
        seen, counts = np.unique(self._pairs(batch)[where], return_counts=True)
        self.pairs, places = np.unique(np.append(self.pairs, seen), return_inverse=True)
        self.counts = np.bincount(places, np.append(self.counts, counts))
        np.add.at(self.totals, batch["inputs"][where], 1)

    def losses(self, batch: Batch, smoothing: float) -> np.ndarray:
        """Returns the loss of each target, in nats; `smoothing` is added to each count."""
        wanted = self._pairs(batch)
        places = np.searchsorted(self.pairs, wanted)
        counts = np.where(self.pairs[places] == wanted, self.counts[places], 0) + smoothing
        totals = self.totals + smoothing * len(self.totals)
        return np.log(totals[batch["inputs"]]) - np.log(counts)

    def _pairs(self, batch: Batch) -> np.ndarray:
        return batch["inputs"].astype(np.int64) * len(self.totals) + batch["targets"]


def measured_split(events: headwater.Events) -> Split:
    """Returns the split to measure on: the first of test, val and train that has events."""
    splits: tuple[Split, ...] = ("test", "val", "train")
    split = next(name for name in splits if events.row_count(name))
    if split != "test":
        seen = ", whose entities both have seen" if split == "train" else ""
        print(f"test has no events: measured on {split}{seen}")
        print("for a test, prepare more entities, or give it a larger share in the schema")
    return split


def categories(events: headwater.Events) -> Iterator[tuple[str, int, int]]:
    """Yields the name of each category, with its first token and the end of its tokens."""
    for field in events.metadata().get("fields", []):
        kind = field["kind"]
        if kind["type"] == "category":
            yield field["name"], kind["first"], kind["first"] + len(kind["values"])


def compared(
    events: headwater.Events, split: Split, params: Params, bigram: Bigram, batch_size: int
) -> dict[str, list[float]]:
    """Returns the mean losses of decoder and bigram: of all tokens, and of each category.

    The bigram is smoothed by what is best for it on the same tokens. A category without a value
    among the tokens has no mean, and is left out.
    """
    decoder = jax.jit(losses)
    parts = []
    row_count = min(MOST_EPOCHS * events.row_count(split), MOST_BATCHES * batch_size)
    for first in range(0, row_count, batch_size):
        batch = events.rows(range(first, min(first + batch_size, row_count)), split)
        own = {name: array for name, array in batch.items() if array.ndim == 2}
        rows = [np.asarray(decoder(params, own)), *(bigram.losses(own, s) for s in SMOOTHING)]
        where = is_target(own)
        parts.append(np.stack([row[where] for row in (own["targets"], *rows)]))
    targets, *rows = np.concatenate(parts, axis=1)
    found = {}
    for name, first, end in [("all tokens", 0, events.vocabulary_size), *categories(events)]:
        where = (first <= targets) & (targets < end)
        if where.any():
            decoder_mean, *bigrams = (float(np.mean(row, where=where)) for row in rows)
            found[name] = [decoder_mean, min(bigrams), int(where.sum())]
    return found


def continued(
    events: headwater.Events, split: Split, params: Params, length: int, most: int, seed: int
) -> list[dict[str, Any]] | None:
    """Samples an event of at most `most` tokens behind the latest ones of an entity; prints it.

    Nothing keeps the decoder from tokens that are no event: then it draws again. Returns the
    fields, or None if there was no event among many tokens.
    """
    whose = events.entity(int(events.rows([0], split)["entity"][0]))
    # In training, contexts were no longer than a row.
    prompt = events.latest(whose, length=max(length - most, most)).tolist()
    following, random = jax.jit(logits), np.random.default_rng(seed)
    print(f"sampled for {whose}, after the last {prompt.count(0)} events:")
    sampled = failed = 0
    while sampled < MOST_SAMPLED:
        event = [0]
        while len(event) < most:
            written = prompt + event
            inputs = np.zeros((1, -(-len(written) // 256) * 256), int)  # few shapes to compile
            inputs[0, : len(written)] = written
            position = np.arange(inputs.size)[None]
            row = {"inputs": inputs, "inputs_position": position, "inputs_segmentation": inputs * 0}
            scores = following(params, row)[0, len(written) - 1]
            token = int(np.argmax(scores + random.gumbel(size=len(scores))))
            sampled += 1
            if token == 0:  # which begins another event
                break
            event.append(token)
        try:
            fields: list[dict[str, Any]] = events.decode(prompt + event)[-1]["fields"]
        except headwater.DataError:
            fields = []
        if fields:
            if failed:
                print(f"  (attempts before that were no events: {failed})")
            for field in fields:
                print(f"  {field['name']:20}{field['value']}")
            return fields
        failed += 1
    print(f"  no event (attempts: {failed}): train for more steps")
    return None


def positive(text: str) -> int:
    """Returns a whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text}")
    return number


def main() -> None:
    """Trains, and prints the comparison and a sampled event; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path, help="an event store")
    parser.add_argument("--steps", type=positive, default=900, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--length", type=int, help="tokens of a row (default: 256, or two of the longest events)"
    )
    args = parser.parse_args()
    try:
        with headwater.Events(args.store, num_prefetch=0) as events:
            most = events.room
            length = max(256, min(2 * most, 32_768)) if args.length is None else args.length
            batch_size = max(1, BATCH_TOKENS // length)
            if events.row_count("train") == 0:
                parser.error("expected events in train, found none; prepare more entities")
            split = measured_split(events)
        events = headwater.Events(
            args.store, seed=args.seed, batch_size=batch_size, sequence_length=length
        )
    except headwater.HeadwaterError as error:
        parser.error(str(error))
    print(f"each step has {batch_size} x {length:,} tokens", flush=True)
    with events:
        bigram = Bigram(events.vocabulary_size)
        params = initial_params(events.vocabulary_size, args.seed)
        state = optimizer(args.steps).init(params)
        began, shown = time.perf_counter(), []
        for number in range(1, args.steps + 1):
            batch = next(events)
            bigram.see(batch)
            own = {name: array for name, array in batch.items() if array.ndim == 2}
            params, state, loss = step(params, state, own, args.steps)
            shown.append(float(loss))
            if number % max(1, args.steps // 8) == 0:
                mean = np.mean(shown[-max(1, args.steps // 8) :])
                seconds = time.perf_counter() - began
                print(f"step {number}: loss {mean:.3f}, {seconds:.0f} s", flush=True)
        found = compared(events, split, params, bigram, batch_size)
        print(f"{split + ', nats a token':22}{'decoder':>9}{'bigram':>9}{'tokens':>9}")
        for name, (decoder, other, count) in found.items():
            print(f"{name:22}{decoder:9.3f}{other:9.3f}{count:9,}")
        for name in [name for name, _, _ in categories(events) if name not in found]:
            print(f"{name:22}left out: no value that is a token of its own in {split}")
        fields = continued(events, split, params, length, most, args.seed)
    result = {"first": shown[0], "last": np.mean(shown[-10:]), split: found, "sampled": fields}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
