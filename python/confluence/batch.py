"""Batches in two forms: compact for the transfer to the device, expanded for the model.

A compact `Batch` has times as days and milliseconds, and references as a list of edges. On the
device `expand` turns it into the `Cells` that the model reads. The frozen vectors of columns,
relations, categories and texts (`Tables`) are transferred once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from confluence.config import ConfigError
from headwater._headwater import split_times

IDENTIFIER, NUMERICAL, TIMESTAMP, BOOLEAN, CATEGORICAL, TEXT = range(6)
TYPE_NAMES = ("identifier", "numerical", "timestamp", "boolean", "categorical", "text")
TIMESTAMP_FEATURES = 15
AGE_FEATURES = 4
# A row's age, and how the walk reached it: as a parent, as a child, in one, two or more hops.
ROW_FEATURES = AGE_FEATURES + 5

# On a CPU, JAX copies an array that does not begin at a multiple of so many bytes.
_ALIGNMENT = 64
# The types of the numbers of a text's vector, by its encoding.
_TYPES: Mapping[str, Any] = {"f16": np.float16, "int8": np.int8}
_DAY_MICROSECONDS = 86_400_000_000
_DAY_MILLISECONDS = 86_400_000
# The observation time of a seed without one, whose context has all rows.
_NO_TIME = np.iinfo(np.int64).max
# The time of a row without one.
_ALWAYS_VISIBLE = np.iinfo(np.int64).min

HostBatch = Mapping[str, npt.NDArray[Any]]
# The statistics of a column, from its store's metadata.
Stats = Mapping[str, Any]


# A NumPy array on the host, a JAX array on the device.
Array = Any


class Tables(NamedTuple):
    """Vectors and statistics of the stores' columns, resident on the device.

    The parts of several stores follow each other; `Vocabulary` has where each store's starts.
    """

    columns: Array  # f16 [C, D_t]
    relations: Array  # f16 [N, D_t]
    categories: Array  # f16 [Vc + K, D_t], so that every slice of K categories lies inside
    texts: Array  # f16 or int8 [V, D_t]; one row of zeros if batches bring their own
    text_scales: Array | None  # f32 [V], of int8 texts
    # For each column: the mean time, as day and millisecond, and 1 / standard deviation in days.
    mean_days: Array  # i32 [C]
    mean_milliseconds: Array  # i32 [C]
    per_deviation: Array  # f32 [C]
    # For each column: where its categories start, and how many of them training knew.
    category_starts: Array  # i32 [C]
    category_counts: Array  # i32 [C]
    # For each column: the column of which its values are means or quantiles; -1 for none.
    sources: Array  # i32 [C]


class Batch(NamedTuple):
    """A batch in its compact form."""

    types: Array  # int8 [B, S]
    columns: Array  # int32 [B, S]
    rows: Array  # uint16 [B, S]
    numbers: Array  # float32 [B, S]
    days: Array  # int32 [B, S], since 1970
    milliseconds: Array  # int32 [B, S] of the day
    booleans: Array  # uint8 [B, S]
    categories: Array  # int32 [B, S]
    texts: Array  # int32 [B, S]
    is_null: Array  # uint8 [B, S]
    is_padding: Array  # uint8 [B, S]
    edges: Array  # uint16 [B, E, 2]: the places of a row and of the row that it refers to
    relations: Array  # int32 [B, E]
    # When each row came to exist; the day is `NO_DAY` for a row that is always visible.
    row_days: Array  # int32 [B, R], since 1970
    row_milliseconds: Array  # int32 [B, R] of the day
    row_hops: Array  # uint16 [B, R]
    row_relations: Array  # int32 [B, R]
    row_directions: Array  # uint8 [B, R]
    target_position: Array  # int32 [B]; -1 for a row of a pool, which has no target
    # The places of the masked cells, those beyond the last are S or more. M is 0 if none is masked.
    masked: Array  # uint16 [B, M]
    weights: Array  # float32 [B]
    # The observation time; without one, the day is `NO_DAY`.
    observed_days: Array  # int32 [B]
    observed_milliseconds: Array  # int32 [B]
    seed_row: Array  # uint32 [B]
    # The vectors of the batch's texts, if `Tables` does not have them.
    text_vectors: Array  # float16 or int8 [U, D_t]
    text_scales: Array | None  # float32 [U], of int8 vectors
    target_type: Array  # int32 []; `NO_TARGET` for a pool
    category_start: Array  # int32 []
    category_count: Array  # int32 []


NO_DAY = -(1 << 31)
NO_TARGET = 255
# The arrays that every process has whole, not as its share of the global batch.
REPLICATED = {"target_type", "category_start", "category_count"}
# The arrays whose first axis is of the batch's texts, not of its contexts.
OF_TEXTS = {"text_vectors", "text_scales"}


class Texts(NamedTuple):
    """Vectors of texts, of which a batch has the places."""

    vectors: Array  # f16 or int8 [V, D_t]
    scales: Array | None  # f32 [V], of int8 vectors

    def at(self, places: jax.Array) -> jax.Array:
        """Returns the vectors at `places`, of which int8 ones become float32 here.

        So the device has the int8 vectors of all texts, and float32 ones of those that it needs.
        """
        found = jnp.asarray(self.vectors)[places]
        if self.scales is None:
            return found
        return found.astype(jnp.float32) * jnp.asarray(self.scales)[places][..., None]


class Cells(NamedTuple):
    """A batch as the model reads it: B contexts of S cells and R rows."""

    types: jax.Array  # i32 [B, S]
    columns: jax.Array  # i32 [B, S]
    rows: jax.Array  # i32 [B, S]
    numbers: jax.Array  # f32 [B, S]
    times: jax.Array  # f32 [B, S, 15]
    ages: jax.Array  # f32 [B, S, 4], of timestamps
    booleans: jax.Array  # i32 [B, S]
    categories: jax.Array  # i32 [B, S]
    texts: jax.Array  # i32 [B, S]
    is_null: jax.Array  # bool [B, S]
    is_target: jax.Array  # bool [B, S]
    # The masked cells, and the cells that would tell their values.
    is_masked: jax.Array  # bool [B, S]
    is_padding: jax.Array  # bool [B, S]
    # The references of each row, K at most: the row that it refers to (R for none), by a relation.
    parents: jax.Array  # i32 [B, K, R]
    relations: jax.Array  # i32 [B, K, R]
    # What is known of each cell's row: its age, and how the walk reached it.
    row_features: jax.Array  # f32 [B, S, 9]

    @property
    def row_count(self) -> int:
        """R, the most rows of a context."""
        return self.parents.shape[-1]


@dataclass(frozen=True)
class Vocabulary:
    """Where the columns, relations, categories and texts of each store start in `Tables`."""

    column_starts: tuple[int, ...]
    relation_starts: tuple[int, ...]
    category_starts: tuple[int, ...]
    text_starts: tuple[int, ...]
    # The largest number of categories of a target, rounded up to a multiple of 32.
    target_categories: int
    has_texts: bool


def vocabulary_and_tables(stores: Sequence[Any], texts: str) -> tuple[Vocabulary, Tables]:
    """Returns the vocabulary and tables of the stores (`headwater.Store`), on the host.

    Raises:
        ConfigError: The vectors of the stores have different dimensions, or those of the texts
            different encodings.
    """
    metadata = [store.metadata() for store in stores]
    widths = [found["embedding"]["dimension"] for found in metadata]
    if len(set(widths)) > 1:
        raise ConfigError(
            f"expected stores with embeddings of one dimension, found {widths}; prepare them again "
            "with the same --dimension"
        )
    column_vectors = [store.column_embeddings() for store in stores]
    relation_vectors = [store.relation_embeddings() for store in stores]
    category_vectors = [store.categorical_embeddings() for store in stores]
    encoding = text_encoding(stores)
    text_vectors = [_text_vectors(store, texts, encoding) for store in stores]
    scales = encoding == "int8" and texts == "global"
    most = max((_target_categories(found) for found in metadata), default=0)
    target_categories = max(32, -(-most // 32) * 32)
    vocabulary = Vocabulary(
        _starts(column_vectors), _starts(relation_vectors), _starts(category_vectors),
        _starts(text_vectors), target_categories, texts == "global",
    )  # fmt: skip
    stats = [column_stats for found in metadata for column_stats in _column_stats(found)]
    means = np.array([column_stats.get("mean_us", 0.0) for column_stats in stats])
    deviations = np.array([column_stats.get("std_us", 0.0) for column_stats in stats])
    column_counts = [len(vectors) for vectors in column_vectors]
    days = np.floor(means / _DAY_MICROSECONDS)
    beyond = np.zeros((target_categories, column_vectors[0].shape[1]), np.float16)
    tables = Tables(
        _joined(column_vectors),
        # One row at least, so that databases without a relation need no case of their own.
        np.concatenate([*relation_vectors, np.zeros((1, widths[0]), np.float16)]),
        np.concatenate([*category_vectors, beyond]),
        _joined(text_vectors),
        _joined([_text_scales(store) for store in stores]) if scales else None,
        days.astype(np.int32),
        ((means - days * _DAY_MICROSECONDS) / 1000).astype(np.int32),
        np.divide(
            _DAY_MICROSECONDS, deviations, out=np.zeros_like(means), where=deviations > 0
        ).astype(np.float32),
        np.array([column_stats.get("cat_emb_start", 0) for column_stats in stats], np.int32)
        + np.repeat(np.array(vocabulary.category_starts, np.int32), column_counts),
        np.array([_known_categories(column_stats) for column_stats in stats], np.int32),
        np.concatenate([
            np.where(of_store < 0, -1, of_store + start)
            for of_store, start in zip(
                map(_sources, metadata), vocabulary.column_starts, strict=True
            )
        ]).astype(np.int32),
    )  # fmt: skip
    return vocabulary, tables


def from_sampler(
    batch: HostBatch, vocabulary: Vocabulary, store: int, rank: int = 0, *, with_masks: bool = False
) -> Batch:
    """Returns the sampler's compact batch of a store in the form of `Batch`; copies little.

    Without masks all cells of a context are there to be seen, but for the target.
    """
    days, milliseconds = split_times(batch["timestamp_us"])
    observed = batch["obs_time"]
    has_time = observed != _NO_TIME
    observed_days, observed_milliseconds = split_times(np.where(has_time, observed, 0))
    vectors = batch.get("text_batch_embeddings")
    if vectors is None:
        vectors = np.zeros((1, 1), np.float16)
    # If batches bring their texts, those of all ranks follow each other.
    text_start = vocabulary.text_starts[store] if vocabulary.has_texts else rank * len(vectors)
    category_start = vocabulary.category_starts[store]
    relation_start = vocabulary.relation_starts[store]
    has_row_time = batch["row_time"] != _ALWAYS_VISIBLE
    row_days, row_milliseconds = split_times(np.where(has_row_time, batch["row_time"], 0))
    nothing = np.zeros((len(observed), 0), np.uint16)
    return Batch(
        types=batch["semantic_types"],
        columns=_shifted(batch["column_ids"], vocabulary.column_starts[store]),
        rows=batch["seq_row_ids"],
        numbers=batch["numeric_values"],
        days=days,
        milliseconds=milliseconds,
        booleans=batch["bool_values"],
        categories=_shifted(batch["categorical_embed_ids"].view(np.int32), category_start),
        texts=_shifted(batch["text_embed_ids"].view(np.int32), text_start),
        is_null=batch["is_null"],
        is_padding=batch["is_padding"],
        edges=batch["fk_edges"],
        relations=_shifted(batch["fk_relations"], relation_start),
        row_days=np.where(has_row_time, row_days, np.int32(NO_DAY)),
        row_milliseconds=row_milliseconds,
        row_hops=batch["row_hop"],
        row_relations=_shifted(batch["row_relation"], relation_start),
        row_directions=batch["row_direction"],
        target_position=batch["target_pos"],
        masked=batch.get("masked_pos", nothing) if with_masks else nothing,
        weights=batch["seq_weight"],
        observed_days=np.where(has_time, observed_days, np.int32(NO_DAY)),
        observed_milliseconds=observed_milliseconds,
        seed_row=batch["seed_row"],
        text_vectors=vectors,
        text_scales=batch.get("text_batch_scales"),
        target_type=batch["target_stype"][0].astype(np.int32),
        category_start=(batch["cat_emb_start"][0] + category_start).astype(np.int32),
        category_count=batch["cat_emb_count"][0].astype(np.int32),
    )


def expand(batch: Batch, tables: Tables, row_count: int) -> Cells:
    """Returns the cells that the model reads; runs on the device."""
    columns = jnp.asarray(batch.columns)
    days, milliseconds = jnp.asarray(batch.days), jnp.asarray(batch.milliseconds)
    from_mean = _days(
        days - tables.mean_days[columns], milliseconds - tables.mean_milliseconds[columns]
    )
    standard_time = from_mean * tables.per_deviation[columns]
    positions = jnp.arange(columns.shape[1])
    parents, relations = _references(batch, row_count)
    rows = batch.rows.astype(jnp.int32)
    return Cells(
        types=batch.types.astype(jnp.int32),
        columns=columns,
        rows=rows,
        numbers=jnp.asarray(batch.numbers),
        times=_time_features(days, milliseconds, standard_time),
        ages=_ages(batch, days, milliseconds),
        booleans=batch.booleans.astype(jnp.int32),
        categories=jnp.asarray(batch.categories),
        texts=jnp.asarray(batch.texts),
        is_null=batch.is_null.astype(bool),
        is_target=positions == jnp.asarray(batch.target_position)[:, None],
        is_masked=_masked(batch, tables),
        is_padding=batch.is_padding.astype(bool),
        parents=parents,
        relations=relations,
        row_features=jnp.take_along_axis(_row_features(batch), rows[..., None], axis=1),
    )


def _masked(batch: Batch, tables: Tables) -> jax.Array:
    """Returns bool [B, S]: the masked cells, and those that are made of values of their columns.

    The mean over a few rows, or over one, would tell the value that is masked in one of them.
    """
    shape = batch.columns.shape
    if not batch.masked.shape[1]:
        return jnp.zeros(shape, bool)

    def of_context(columns: jax.Array, masked: jax.Array) -> jax.Array:
        is_masked = jnp.zeros(shape[1:], bool).at[masked].set(True, mode="drop")
        # A column of none is beyond the last.
        of_cells = jnp.where(is_masked, columns, len(tables.sources))
        columns_of_masked = jnp.zeros(len(tables.sources), bool).at[of_cells].set(True, mode="drop")
        sources = tables.sources[columns]
        return is_masked | ((sources >= 0) & columns_of_masked[sources])

    return jax.vmap(of_context)(jnp.asarray(batch.columns), batch.masked.astype(jnp.int32))


def _references(batch: Batch, row_count: int) -> tuple[jax.Array, jax.Array]:
    """Returns the references of each row as `Cells` has them, from edges in any order."""
    most = max(1, batch.edges.shape[1] // row_count)

    def of_context(edges: jax.Array, relations: jax.Array) -> tuple[jax.Array, jax.Array]:
        order = jnp.argsort(edges[:, 0], stable=True)
        child, parent = edges[order, 0], edges[order, 1]
        number = jnp.arange(len(order)) - jnp.searchsorted(child, child)
        empty = jnp.full((most, row_count), row_count)
        # Unused edges have rows out of range, which are dropped.
        at = (number, child)
        return (
            empty.at[at].set(parent, mode="drop"),
            jnp.zeros_like(empty).at[at].set(relations[order], mode="drop"),
        )

    return jax.vmap(of_context)(batch.edges.astype(jnp.int32), jnp.asarray(batch.relations))


def _days(days: jax.Array, milliseconds: jax.Array) -> jax.Array:
    return days.astype(jnp.float32) + milliseconds.astype(jnp.float32) / _DAY_MILLISECONDS


def _time_features(days: jax.Array, milliseconds: jax.Array, standard: jax.Array) -> jax.Array:
    """Sine and cosine of each time's position in its minute, hour, day, week, month and year.

    The z-score of the time comes last.
    """
    second = milliseconds // 1000
    month, day, day_of_year = _calendar(days)
    positions = [
        (second % 60, 60),
        (second // 60 % 60, 60),
        (second // 3600, 24),
        ((days + 3) % 7, 7),
        (day, 31),
        (month, 12),
        (day_of_year, 366),
    ]
    angles = jnp.stack([position * (2 * np.pi / count) for position, count in positions], axis=-1)
    circles = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return jnp.concatenate([circles.reshape(*days.shape, -1), standard[..., None]], axis=-1)


def _calendar(days: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Month, day of the month and day of the year, each from 0, for days since 1970."""
    # Years are counted from March, so that a leap day comes last; every 400 years are alike.
    since = days + 719_468
    era_day = since % 146_097
    year = (era_day - era_day // 1460 + era_day // 36_524 - era_day // 146_096) // 365
    march_day = era_day - (365 * year + year // 4 - year // 100)
    march_month = (5 * march_day + 2) // 153
    day = march_day - (153 * march_month + 2) // 5
    month = (march_month + 2) % 12
    # From March on, which is when it matters, this is the year of the calendar, modulo 400.
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year == 0))
    day_of_year = jnp.where(march_month >= 10, march_day - 306, march_day + 59 + is_leap)
    return month, day, day_of_year


def _ages(batch: Batch, days: jax.Array, milliseconds: jax.Array) -> jax.Array:
    """Encodes how long before the observation each time was; 0 where either is unknown."""
    observed = jnp.asarray(batch.observed_days)[:, None]
    before = jnp.asarray(batch.observed_milliseconds)[:, None] - milliseconds
    is_known = (observed != NO_DAY) & (days != NO_DAY)
    age = _days(jnp.where(is_known, observed - days, 0), before)
    size = jnp.log1p(jnp.abs(age))
    features = jnp.stack(
        [jnp.sign(age) * size / 5, jnp.exp(-jnp.abs(age) / 30), jnp.exp(-jnp.abs(age) / 365),
         jnp.ones_like(age)], axis=-1,
    )  # fmt: skip
    return jnp.where(is_known[..., None], features, 0)


def _row_features(batch: Batch) -> jax.Array:
    """Returns what is known of each row, f32 [B, R, 9]."""
    ages = _ages(batch, jnp.asarray(batch.row_days), jnp.asarray(batch.row_milliseconds))
    hops = jnp.asarray(batch.row_hops)
    direction = jnp.asarray(batch.row_directions)
    reached = [direction == 1, direction == 2, hops == 1, hops == 2, hops > 2]
    return jnp.concatenate([ages, jnp.stack(reached, axis=-1).astype(jnp.float32)], axis=-1)


def _shifted(ids: npt.NDArray[np.int32], start: int) -> npt.NDArray[np.int32]:
    return ids + np.int32(start) if start else ids


def _starts(tables: Sequence[npt.NDArray[Any]]) -> tuple[int, ...]:
    lengths = [0, *(len(table) for table in tables)]
    return tuple(int(start) for start in np.cumsum(lengths)[:-1])


def _column_stats(metadata: Mapping[str, Any]) -> list[Stats]:
    """Returns the statistics of a store's columns, in the order of their vectors."""
    found = {
        column["index"]: column["stats"]
        for table in metadata["tables"]
        for column in table["columns"]
    }
    for task in metadata["tasks"]:
        if "derived" in task["target"]:
            column = task["target"]["derived"]["column"]
            found[column["index"]] = column["stats"]
    return [found.get(index, {}) for index in range(metadata["embedding"]["column_count"])]


def _known_categories(stats: Stats) -> int:
    """Returns how many categories of a column training knew; later ones follow them."""
    return int(stats.get("known_count", stats.get("cat_emb_count", 0)))


def _sources(metadata: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    """Returns for each column of a store the column of which its values are made, -1 for none."""
    tables = metadata["tables"]
    found = np.full(metadata["embedding"]["column_count"], -1)

    def index_of(table: int, column: int) -> int:
        return int(tables[table]["columns"][column]["index"])

    for aggregate in metadata["aggregates"]:
        if isinstance(aggregate["value"], Mapping):
            child = metadata["relations"][aggregate["relation"]]["child"]
            source = index_of(child, aggregate["value"]["mean"]["column"])
            found[aggregate["index"]] = source
    for summary in metadata.get("summaries", ()):
        named = {tables[summary["of"]]["columns"][at]["name"]: at for at in summary["columns"]}
        for column in tables[summary["table"]]["columns"]:
            at = named.get(column["name"].rpartition(": ")[0])
            if at is not None:
                found[column["index"]] = index_of(summary["of"], at)
    return found


def target_stats(metadata: Mapping[str, Any], task: Mapping[str, Any]) -> Stats:
    """Returns the statistics of the column that a task predicts."""
    target = task["target"]
    if "derived" in target:
        return target["derived"]["column"]["stats"]
    return metadata["tables"][task["anchor"]]["columns"][target["cell"]["column"]]["stats"]


def _target_categories(metadata: Mapping[str, Any]) -> int:
    targets = [target_stats(metadata, task) for task in metadata["tasks"]]
    return max((stats.get("cat_emb_count", 0) for stats in targets), default=0)


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Returns the rows of all parts as one array, which JAX on a CPU uses without a copy.

    A single part is returned as it is: a view of the mapped store.
    """
    if len(parts) == 1:
        return parts[0]
    size = sum(part.nbytes for part in parts)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    whole = memory[start : start + size].view(parts[0].dtype).reshape(-1, *parts[0].shape[1:])
    np.concatenate(parts, out=whole)
    whole.flags.writeable = False
    return whole


def lacks_text_vectors(store: Any) -> bool:
    """Returns whether a store has texts, but no vectors of them."""
    embedding = store.metadata()["embedding"]
    return bool(embedding["text_count"]) and not embedding["text_vectors"]


def notes_on_texts(paths: Sequence[str], stores: Sequence[Any]) -> list[str]:
    """Returns a line for each store whose texts are alike to a model: all have the vector 0."""
    return [
        f"{path} has no vectors of its {store.metadata()['embedding']['text_count']:,} texts, so "
        "the model does not read them: of a text it sees the column, and whether it is NULL; for "
        "their words prepare the store again, without --no-text-vectors (in Python: "
        "text_vectors=True)"
        for path, store in zip(paths, stores, strict=True)
        if lacks_text_vectors(store)
    ]


def text_encoding(stores: Sequence[Any]) -> str:
    """Returns the encoding of the vectors of texts, "f16" or "int8", which is that of all stores.

    Raises:
        ConfigError: Two stores have different ones.
    """
    found: dict[str, Any] = {}
    for store in stores:
        embedding = store.metadata()["embedding"]
        # A store without vectors of texts goes with any encoding.
        if embedding["text_vectors"]:
            found.setdefault(embedding.get("text_encoding", "f16"), store)
    if len(found) > 1:
        (encoding, one), (another, other) = found.items()
        raise ConfigError(
            f"expected stores with text vectors of one encoding, found {encoding} in {one.path} "
            f"and {another} in {other.path}; prepare {other.path} again with --text-vectors "
            f"{encoding}"
        )
    return next(iter(found), "f16")


def _text_vectors(store: Any, texts: str, encoding: str) -> npt.NDArray[Any]:
    vectors = store.text_embeddings() if texts == "global" else None
    if vectors is None or not len(vectors):
        # A store without text vectors gets a row of zeros for each text, so that the text indexes
        # of the next store stay right.
        texts_count = store.metadata()["embedding"]["text_count"] if texts == "global" else 0
        vectors = np.zeros(
            (max(texts_count, 1), store.column_embeddings().shape[1]), _TYPES[encoding]
        )
    return vectors


def _text_scales(store: Any) -> npt.NDArray[np.float32]:
    """Returns the scales of the rows of `_text_vectors`."""
    scales = store.text_scales()
    if scales is None or not len(scales):
        return np.zeros(max(store.metadata()["embedding"]["text_count"], 1), np.float32)
    return scales
