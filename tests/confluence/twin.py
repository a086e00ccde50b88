"""The whole forward pass in plain NumPy, in 64 bits: one context, one cell, one pair at a time.

It is written from the description of the model, for the tests to compare with: no array of pairs,
no masks, no layout, no trick of the compiled model.
"""

import math
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

IDENTIFIER, NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL, TEXT = range(6)
PARENT, CHILD = 1, 2
NO_DAY = -(1 << 31)
DAY_MILLISECONDS = 86_400_000


class Reference(NamedTuple):
    child: int
    parent: int
    relation: int


def predictions(params, batch, tables, settings, target_categories):
    """Returns the predictions of all heads, by name, for each context of a compact batch."""
    params, vectors = _wide(params), _vectors(tables)
    start = int(batch.category_start)
    known = vectors["categories"][start : start + target_categories]
    found = [
        _heads(params, cells[batch.target_position[b]], known)
        for b, cells in enumerate(_outputs(params, batch, tables, vectors, settings))
    ]
    return {name: np.array([of[name] for of in found]) for name in found[0]}


def masked_predictions(params, batch, tables, settings):
    """Returns the predictions by name, for each masked cell as context and place."""
    params, vectors = _wide(params), _vectors(tables)
    cells = _outputs(params, batch, tables, vectors, settings)
    return {
        (b, int(at)): _heads(params, cells[b][at], vectors["categories"])
        | {"texts": _linear(params["heads"]["text"], cells[b][at])}
        for b, places in enumerate(batch.masked)
        for at in places
        if at < batch.types.shape[1]
    }


def _vectors(tables):
    return {
        name: np.asarray(getattr(tables, name), np.float64)
        for name in ("columns", "relations", "categories", "texts")
    }


def _outputs(params, batch, tables, vectors, settings):
    """Returns all cells of each context after all blocks, normalised."""
    relations = [
        _norm(_linear(params["encoder"]["relation"], of), params["encoder"]["relation_norm"])
        for of in vectors["relations"]
    ]
    found = []
    for b in range(len(batch.types)):
        cells = np.array(
            [_cell(params["encoder"], batch, tables, vectors, settings, b, s)
             for s in range(batch.types.shape[1])]
        )  # fmt: skip
        cells = _blocks(params["blocks"], cells, relations, batch, settings, b)
        found.append([_norm(cell, params["norm"]) for cell in cells])
    return found


def _wide(tree):
    if isinstance(tree, dict):
        return {name: _wide(of) for name, of in tree.items()}
    return np.asarray(tree, np.float64)


def _linear(layer, x):
    return x @ layer["weight"] + layer["bias"]


def _norm(x, gain):
    return x / math.sqrt(np.mean(x**2) + 1e-6) * (1 + gain)


def _unit(x):
    return x / math.sqrt(np.sum(x**2) + 1e-6)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _cell(encoder, batch, tables, vectors, settings, b, s):
    """Column, value and row of a cell, each encoded, added and normalised."""
    column = _linear(encoder["column"], vectors["columns"][batch.columns[b, s]])
    if s == batch.target_position[b] or _is_masked(batch, tables, b, s):
        value = encoder["mask"]
    elif batch.is_null[b, s]:
        value = encoder["null"]
    else:
        value = _value(encoder, batch, tables, vectors, settings, b, s)
    row = _linear(encoder["row"], _row_features(batch, settings, b, batch.rows[b, s]))
    return _norm(column + value + row, encoder["norm"])


def _is_masked(batch, tables, b, s):
    """A masked cell, or one that is made of values of a column with a masked cell."""
    places = [at for at in batch.masked[b] if at < batch.types.shape[1]]
    columns = {batch.columns[b, at] for at in places}
    return s in places or tables.sources[batch.columns[b, s]] in columns


def _value(encoder, batch, tables, vectors, settings, b, s):
    kind = batch.types[b, s]
    if kind == IDENTIFIER:
        return encoder["identifier"]
    if kind == NUMERICAL:
        return _linear(encoder["numerical"], np.array([float(batch.numbers[b, s])]))
    if kind == BOOLEAN:
        return encoder["boolean"][batch.booleans[b, s]]
    if kind == CATEGORICAL:
        return _linear(encoder["categorical"], vectors["categories"][batch.categories[b, s]])
    if kind == TEXT:
        return _linear(encoder["text"], vectors["texts"][batch.texts[b, s]])
    days, milliseconds = int(batch.days[b, s]), int(batch.milliseconds[b, s])
    features = _circles(days, milliseconds)
    at = batch.columns[b, s]
    mean = tables.mean_days[at] + tables.mean_milliseconds[at] / DAY_MILLISECONDS
    time = days + milliseconds / DAY_MILLISECONDS
    z_score = (time - mean) * float(tables.per_deviation[at]) if settings.epochs else 0.0
    value = _linear(encoder["timestamp"], np.array([*features, z_score]))
    if settings.ages:
        value = value + _linear(encoder["age"], _age(batch, b, days, milliseconds))
    return value


def _circles(days, milliseconds):
    """The place of a time in its minute, hour, day, week, month, year and year of days."""
    then = date(1970, 1, 1) + timedelta(days=days)
    second = milliseconds // 1000
    places = [
        (second % 60, 60), (second // 60 % 60, 60), (second // 3600, 24), (then.weekday(), 7),
        (then.day - 1, 31), (then.month - 1, 12), (then.timetuple().tm_yday - 1, 366),
    ]  # fmt: skip
    angles = [2 * math.pi * place / count for place, count in places]
    return [of(angle) for angle in angles for of in (math.sin, math.cos)]


def _age(batch, b, days, milliseconds):
    """How long before the observation a time is: 0 if one of the two is unknown."""
    if batch.observed_days[b] == NO_DAY or days == NO_DAY:
        return np.zeros(4)
    age = int(batch.observed_days[b]) - days
    age += (int(batch.observed_milliseconds[b]) - milliseconds) / DAY_MILLISECONDS
    size = abs(age)
    return np.array(
        [math.copysign(math.log1p(size), age) / 5, math.exp(-size / 30), math.exp(-size / 365), 1]
    )


def _row_features(batch, settings, b, row):
    hops, direction = batch.row_hops[b, row], batch.row_directions[b, row]
    reached = [direction == PARENT, direction == CHILD, hops == 1, hops == 2, hops > 2]
    age = np.zeros(4)
    if settings.ages:
        age = _age(batch, b, int(batch.row_days[b, row]), int(batch.row_milliseconds[b, row]))
    return np.array([*age, *map(float, reached)])


def _blocks(blocks, hidden, relations, batch, settings, b):
    """Returns all cells after all blocks."""
    row_count = batch.row_days.shape[1]
    references = [
        Reference(int(child), int(parent), int(relation))
        for (child, parent), relation in zip(batch.edges[b], batch.relations[b], strict=True)
        if child < row_count
    ]
    entries = [
        [_entries(way, batch, references, b, i) for i in range(len(hidden))] for way in range(3)
    ]
    for layer in range(settings.layers):
        for way in range(3):
            own = {name: of[layer, way] for name, of in blocks["attention"].items()}
            added = None
            if way < 2:
                added = {name: of[layer, way] for name, of in blocks["relation"].items()}
            hidden = hidden + _attention(own, added, hidden, relations, entries[way], settings)
        feed = {name: of[layer] for name, of in blocks["feed"].items()}
        hidden = np.array([x + _swiglu(feed, _norm(x, feed["norm"])) for x in hidden])
    return hidden


def _entries(way, batch, references, b, i):
    """Returns the cells that cell i attends to, each with the relation that leads there, or None.

    OUT: the cells of its own row, and for each reference of its row those of the row referred to.
    IN: itself, and for each reference to its row the cells of the row that refers.
    COL: the cells of its column.
    """
    if batch.is_padding[b, i]:
        return [(i, None)]
    cells = np.flatnonzero(batch.is_padding[b] == 0)
    row, column = batch.rows[b, i], batch.columns[b, i]
    if way == 2:
        return [(j, None) for j in cells if batch.columns[b, j] == column]
    if way == 0:
        found = [(j, None) for j in cells if batch.rows[b, j] == row]
        led = [(of.parent, of.relation) for of in references if of.child == row]
    else:
        found = [(i, None)]
        led = [(of.child, of.relation) for of in references if of.parent == row]
    return found + [(j, n) for other, n in led for j in cells if batch.rows[b, j] == other]


def _attention(own, added, hidden, relations, entries, settings):
    """Returns what an attention adds to each cell: gated, and summed over the heads' values."""
    normed = [_norm(x, own["norm"]) for x in hidden]
    heads, depth = settings.heads, settings.width // settings.heads

    def split(vector):
        return vector.reshape(heads, depth)

    queries, keys, values = (
        [split(x @ own[name]) for x in normed] for name in ("query", "key", "value")
    )
    relation_keys = relation_values = {}
    if added is not None:
        relation_keys = {n: split(of @ added["key"]) for n, of in enumerate(relations)}
        relation_values = {n: split(of @ added["value"]) for n, of in enumerate(relations)}
    scale = np.clip(own["scale"], -30, 30)
    found = []
    for i, x in enumerate(normed):
        attended = np.zeros((heads, depth))
        for h in range(heads):
            query = _unit(queries[i][h]) * scale[h]
            logits, led = [], []
            for j, n in entries[i]:
                key, value = _unit(keys[j][h]), values[j][h]
                if n is not None:
                    key = key + _unit(relation_keys[n][h]) * np.clip(added["key_scale"][h], -1, 1)
                    value = value + relation_values[n][h]
                logits.append(query @ key)
                led.append(value)
            weights = np.exp(np.array(logits) - max(logits))
            attended[h] = weights / weights.sum() @ np.array(led)
        found.append((attended.reshape(-1) @ own["out"]) * _sigmoid(x @ own["gate"]))
    return np.array(found)


def _swiglu(feed, x):
    gate = x @ feed["gate"]
    return (gate * _sigmoid(gate) * (x @ feed["up"])) @ feed["down"]


def _heads(params, target, categories):
    heads = params["heads"]
    query = _linear(heads["categorical"], target)
    known = [_linear(params["encoder"]["categorical"], of) for of in categories]
    return {
        "null": _linear(heads["null"], target)[0],
        "numerical": _linear(heads["numerical"], target)[0],
        "boolean": _linear(heads["boolean"], target)[0],
        "timestamp": _linear(heads["timestamp"], target),
        "categories": np.array([query @ of for of in known]) / math.sqrt(len(target)),
    }
