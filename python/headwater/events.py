"""Token rows from a log of events, in a fixed order that resumes at any position."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater._headwater import Cursor, EventPass, EventsCore, InvalidArgument
from headwater._html import table
from headwater._streams import Path, Streams
from headwater.page import Page
from headwater.sampler import Batch, Split


class Events(Streams):
    """Makes one rank's share of the token rows of an event store.

    Each split has an endless stream of rows; row d of a stream is a function of d. The store,
    `seed`, `sequence_length` and `packing` determine the streams, and ranks divide them; threads,
    prefetching and the form of a batch do not change them. A batch is a dict of read-only NumPy
    arrays, named as MaxText names them: `inputs`, `targets`, `inputs_position`, `targets_position`,
    `inputs_segmentation` and `targets_segmentation` of [batch_size, sequence_length], and `entity`
    and `weight` of [batch_size]. `events/FORMAT.md` gives the meaning of each.

    Args:
        path: The folder of a store that `headwater.prepare` made of a schema with `[events]`.
        rank: The number of this process, from 0.
        world_size: The number of processes that share the streams.
        seed: The random seed of order, windows, times and fillers.
        batch_size: B, the number of rows in this rank's batch. A resumed run may have another.
        sequence_length: T, the number of tokens in a row, at most 32,768; any event must fit.
            Default: 1,024, or what the longest event needs, if that is more.
        packing: Whether further contexts fill a row behind its own; then fewer tokens are padding
            than the longest event has.
        dtype: The type of the arrays, "int32", or "uint16" with half the bytes.
        num_prefetch: The number of batches that each stream makes ahead; with 0, a batch is made
            when it is requested.
        num_threads: The number of threads that make batches; default: all cores. At least 32, which
            mostly wait for the disk, if memory does not hold the store.

    Example:
        >>> with headwater.Events("pings.db", seed=1) as events:  # doctest: +SKIP
        ...     batch = next(events)
        ...     events.save_cursor("my.cursor")
    """

    def __init__(
        self,
        path: Path,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 42,
        *,
        batch_size: int = 128,
        sequence_length: int | None = None,
        packing: bool = True,
        dtype: Literal["int32", "uint16"] = "int32",
        num_prefetch: int = 3,
        num_threads: int | None = None,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "rank": rank,
            "world_size": world_size,
            "seed": seed,
            "batch_size": batch_size,
            "sequence_length": sequence_length,
            "packing": packing,
            "dtype": dtype,
            "num_prefetch": num_prefetch,
            "num_threads": num_threads,
        }
        self._path = os.fspath(path)
        self._core: EventsCore = EventsCore(self._path, **self._arguments)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of the train stream, without end."""
        return self

    def __next__(self) -> Batch:
        """Returns the next batch of the train stream; waits until it is made.

        Ctrl-C during the wait consumes no batch: the next call returns it.
        """
        return self._core.next("train")

    def next_batch(self, split: Split) -> tuple[Batch, Cursor]:
        """Returns the next batch of a split's stream, and the cursor after it."""
        return self._core.next_with_cursor(split)

    def rows(self, indices: Iterable[int], split: Split = "train") -> Batch:
        """Returns rows of a split's stream by their indices, whatever the rank.

        It moves no stream. The batch has `batch_size` rows; those after the last index are padding,
        with a `weight` of 0.
        """
        return self._core.rows(split, _whole_numbers("indices", indices))

    def evaluate(self, split: Split) -> EventPass:
        """Returns batches that have a context of each item of a split once over all ranks.

        Each context is alone in its row, whatever `packing` is, and the same for any number of
        ranks. Rows with a `weight` of 0 pad the last batch.
        """
        return self._core.evaluate(split)

    def seek(self, row: int, split: Split = "train") -> None:
        """Moves a split's stream: the next global batch begins at `row`, at no cost for any row."""
        self._core.seek(split, row)

    def draw(self, index: int, path: Path | None = None, *, split: Split = "train") -> Page:
        """Draws one row of a split's stream: its segments and events, and their tokens.

        Args:
            index: The place of the row in the stream, counted from 0.
            path: A file to write the page to as well, as `Page.save` does.
            split: The split.

        Returns:
            The row as an HTML page, which a notebook shows in a frame, and as text.
        """
        page = Page(*self._core.draw(split, index))
        if path is not None:
            page.save(path)
        return page

    def decode(self, tokens: Iterable[int]) -> list[dict[str, Any]]:
        """Returns the events of a context's tokens, as they are or as a model wrote them.

        Each event has `fields` in the order of the tokens, each with its `name` and `value`. The
        field `time` is the event's own: `{"absolute": s}` since 1970, or `{"since": s}` the timed
        event before. A field without a value has no tokens.

        Padding is no part of a context: take the tokens of one segment.

        Raises:
            headwater.DataError: The tokens are no whole events; the message names the first that
                does not fit.
            headwater.InvalidArgument: A token is no number of 16 bits.
        """
        events: list[dict[str, Any]] = self._core.decode(_whole_numbers("tokens", tokens))
        return events

    def latest(
        self,
        entity: str | int | tuple[str | int, ...],
        *,
        before: int | str | date | np.datetime64 | None = None,
        length: int | None = None,
    ) -> npt.NDArray[np.uint16]:
        r"""Returns the tokens of an entity's latest events: what a model continues.

        They are in the order of time, each with its time; the order of the fields is that of
        `seed`. Unlike the contexts of a row, none is left out between the first and the last.

        Args:
            entity: The entity: the value of its column, or a tuple of the values of several. It is
                also the text that `entity(number)` returns, which has | between several values,
                and \ before a | or \ in a value.
            before: Only events before this time (UTC if it has no zone): a datetime or date of
                Python or NumPy, a text such as "2025-07-01 12:30", or an integer of microseconds
                since 1970; default: all.
            length: The most tokens; default: `sequence_length`. Leave room for what the model
                adds.

        Returns:
            The tokens; none if there is no event before that time.

        Raises:
            headwater.InvalidArgument: The store has no such entity, or its last event has more
                tokens than `length`; or `before` is an integer before all events of the store,
                as seconds would be.
        """
        before_us = None if before is None else self._microseconds(before)
        return self._core.latest(_name_of(entity), before_us=before_us, length=length)

    def _microseconds(self, before: int | str | date | np.datetime64) -> int:
        if isinstance(before, (int, np.integer)) and not isinstance(before, bool):
            first = self._first_us
            if before < first:
                raise InvalidArgument(
                    f"before: expected microseconds since 1970, found {before}, which is before "
                    f"the first event of the store ({first}); multiply seconds by 1,000,000, or "
                    "give a datetime"
                )
            return int(before)
        if isinstance(before, datetime) and before.tzinfo is not None:
            before = before.astimezone(UTC).replace(tzinfo=None)
        try:
            time = before if isinstance(before, np.datetime64) else np.datetime64(str(before))
        except ValueError:
            time = np.datetime64("NaT")
        if np.isnat(time):
            raise InvalidArgument(
                "before: expected a datetime, a date, a text such as 2025-07-01 12:30, or an "
                f"integer of microseconds since 1970, found {before!r:.80}"
            )
        return int(time.astype("datetime64[us]").astype(np.int64))

    @cached_property
    def _first_us(self) -> int:
        return int(self.metadata()["first_us"])

    def entity(self, number: int) -> str:
        """Returns the text that names an entity, by its number in a batch's `entity`."""
        return self._core.entity(number)

    def row_count(self, split: Split) -> int:
        """Returns how many rows an epoch of a split's stream has; 0 if the split has no events."""
        return self._core.row_count(split)

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens."""
        return self._core.vocabulary()

    @property
    def sequence_length(self) -> int:
        """The number of tokens in a row."""
        return self._core.sequence_length()

    @property
    def room(self) -> int:
        """The shortest `sequence_length`: the most tokens of an event, with its time."""
        return self._core.room()

    def metadata(self) -> dict[str, Any]:
        """Returns the store's metadata: codec, counts and root."""
        return self._core.metadata()

    def __repr__(self) -> str:
        rank, world_size, seed = (self._arguments[n] for n in ("rank", "world_size", "seed"))
        return f"<Events of {self._path!r}: rank {rank} of {world_size}, seed {seed}>"

    def _repr_html_(self) -> str:
        splits: tuple[Split, ...] = ("train", "val", "test")
        rows = [[split, f"{self.row_count(split):,}"] for split in splits]
        return table(repr(self), ["split", "rows an epoch"], rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._path, self._arguments, self.cursor())


def _restored(path: str, arguments: dict[str, Any], cursor: bytes) -> Events:
    events = Events(path, **arguments)
    events.resume(cursor)
    return events


def _name_of(entity: str | int | tuple[str | int, ...]) -> str:
    """Returns the text that names an entity in a store."""
    if isinstance(entity, tuple):
        parts = (_name_of(part) for part in entity)
        return "|".join(part.replace("\\", "\\\\").replace("|", "\\|") for part in parts)
    if isinstance(entity, (int, np.integer)) and not isinstance(entity, bool):
        return str(entity)
    if isinstance(entity, str):
        return entity
    raise InvalidArgument(
        "entity: expected a text or a whole number, or a tuple of those, found "
        f"{type(entity).__name__}"
    )


def _whole_numbers(name: str, values: Iterable[int]) -> list[int]:
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise InvalidArgument(
            f"{name}: expected a list of whole numbers, found {values!r:.80}"
        ) from None
