"""Grain datasets over the samplers, and a random-access source: `pip install grain`."""

from __future__ import annotations

import base64
import difflib
import inspect
import operator
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from headwater._headwater import InvalidArgument, PlanMismatch
from headwater._optional import installed_by
from headwater._streams import Path
from headwater.events import Events
from headwater.sampler import Batch, Sampler, Split

with installed_by("pip install grain"):
    import grain


class SamplerDataset(grain.IterDataset):  # type: ignore[misc]
    """A stream of batches for a grain pipeline; its state is the sampler's cursor.

    Args:
        arguments: The arguments of `headwater.Sampler`, by name.
        split: The split whose stream is read.
        batch_count: The number of batches in the stream; default: the stream is endless.

    Raises:
        InvalidArgument: `arguments` has an unknown name, or no path; or there is no such split, or
            `batch_count` is no number of batches.
    """

    _made: type[Sampler | Events] = Sampler

    def __init__(
        self, arguments: dict[str, Any], split: Split = "train", batch_count: int | None = None
    ) -> None:
        super().__init__()
        _check_names(self._made, arguments)
        if split not in ("train", "val", "test"):
            raise InvalidArgument(f"split: expected train, val or test, found {split!r}")
        is_count = isinstance(batch_count, int) and not isinstance(batch_count, bool)
        if batch_count is not None and not (is_count and batch_count >= 0):
            raise InvalidArgument(
                f"batch_count: expected a number of batches, or None, found {batch_count!r}"
            )
        self._arguments = dict(arguments)
        self._split: Split = split
        self._batch_count = batch_count

    def __iter__(self) -> SamplerIterator:
        named = inspect.signature(self._made).bind(**self._arguments)
        named.apply_defaults()
        batch_size = named.arguments.get("batch_size", named.arguments.get("default_batch_size"))
        sampler = self._made(**self._arguments)
        rows = batch_size * named.arguments["world_size"]
        return SamplerIterator(sampler, self._split, self._batch_count, rows)


class EventsDataset(SamplerDataset):
    """A stream of batches of token rows for a grain pipeline; its state is the cursor.

    The state is the same on every rank, and restores on any number of ranks.

    Args:
        arguments: The arguments of `headwater.Events`, by name.
        split: The split whose stream is read.
        batch_count: The number of batches in the stream; default: the stream is endless.

    Raises:
        HeadwaterError: What `headwater.Events` raises of the same arguments; `InvalidArgument` as
            well for an unknown name, or without a path.
    """

    _made = Events

    def __init__(
        self, arguments: dict[str, Any], split: Split = "train", batch_count: int | None = None
    ) -> None:
        super().__init__(arguments, split, batch_count)
        # Opening an event store takes a millisecond, and checks the values.
        Events(**self._arguments | {"num_prefetch": 0}).shutdown()


class EventsSource:
    """The token rows of an event store as a random-access source of grain, without a state.

    An element is one row: a dict of arrays of [sequence_length]. Shuffling, batching, sharding and
    the state are grain's: `grain.MapDataset.source(source).seed(0).shuffle().batch(8)`.

    Args:
        path: The folder of the event store.
        split: The split whose stream is read.
        epochs: The number of epochs in the source; each has other windows and fillers.
        seed: As `headwater.Events`.
        sequence_length: As `headwater.Events`.
        packing: As `headwater.Events`.

    A process that gets a copy, by a fork or a pickle, opens the store again.

    Raises:
        InvalidArgument: An argument is not valid, or the split has no events.
        PlanMismatch: Of `source[row]`, in a process with a copy: another store is at the path.
    """

    def __init__(
        self,
        path: Path,
        split: Split = "train",
        *,
        epochs: int = 1,
        seed: int = 42,
        sequence_length: int | None = None,
        packing: bool = True,
    ) -> None:
        self._path = os.fspath(path)
        self._open = partial(
            Events,
            self._path,
            seed=seed,
            sequence_length=sequence_length,
            packing=packing,
            batch_size=1,
            num_prefetch=0,
            num_threads=1,
        )
        self._events = self._open()
        self._process: int | None = os.getpid()
        self._split: Split = split
        rows = self._events.row_count(split)
        if not isinstance(epochs, int) or not 1 <= epochs <= 2**31 or rows == 0:
            raise InvalidArgument(
                f"expected at least one row, found {epochs!r} epochs of {rows} rows in the {split} "
                "split; give a whole number of epochs up to 2^31, or take another split"
            )
        self._count = rows * epochs
        self._root = self._events.metadata()["root"]
        # All that changes a row: grain compares it where a state is restored.
        self._text = (
            f"EventsSource(root={self._root}, split={split!r}, rows={self._count}, seed={seed}, "
            f"sequence_length={self._events.sequence_length}, packing={packing})"
        )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        """Returns the row at an index of the stream."""
        row = operator.index(index)
        if not 0 <= row < self._count:
            raise IndexError(f"expected a row from 0 to {self._count - 1}, found {row}")
        if self._process != os.getpid():
            # A forked child has none of the threads, and a pickle no store.
            self._events, self._process = self._opened_again(), os.getpid()
        batch = self._events.rows([row], self._split)
        return {name: array[0] for name, array in batch.items()}

    def __repr__(self) -> str:
        return self._text

    def __getstate__(self) -> dict[str, Any]:
        return {name: of for name, of in vars(self).items() if name != "_events"} | {
            "_process": None
        }

    def _opened_again(self) -> Events:
        events = self._open()
        found = events.metadata()["root"]
        if found != self._root:
            raise PlanMismatch(
                f"{self._path}: expected the store with the root {self._root}, of which this "
                f"EventsSource was made, found the root {found}; the store was replaced since: put "
                "the first one back, or make a new EventsSource and begin anew"
            )
        return events


class SamplerIterator(grain.DatasetIterator):  # type: ignore[misc]
    """One pass over a `SamplerDataset` or `EventsDataset`; a saved state restores its position.

    `rows` is the number of rows in a batch of all ranks together.
    """

    def __init__(
        self, sampler: Sampler | Events, split: Split, batch_count: int | None, rows: int
    ) -> None:
        super().__init__()
        self._sampler = sampler
        self._split: Split = split
        self._batch_count = batch_count
        self._rows = rows
        self._taken = 0

    def __next__(self) -> Batch:
        self._assert_not_closed()
        if self._batch_count is not None and self._taken >= self._batch_count:
            raise StopIteration
        batch, _ = self._sampler.next_batch(self._split)
        self._taken += 1
        return batch

    def get_state(self) -> dict[str, Any]:
        """Returns the cursor as base64 text, and what was taken of which split."""
        cursor = base64.b64encode(self._sampler.cursor()).decode()
        return {
            "cursor": cursor,
            "split": self._split,
            "taken": self._taken,
            "batch_rows": self._rows,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Resumes from a state; a state of another plan is refused."""
        try:
            cursor = base64.b64decode(state["cursor"], validate=True)
            split, taken, rows = state["split"], state["taken"], state["batch_rows"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                "expected a state of get_state, a dictionary with a cursor in base64, a split, and "
                f"numbers of batches and rows taken, found {state!r:.200}: {error}"
            ) from None
        if not (isinstance(taken, int) and isinstance(rows, int) and taken >= 0 and rows > 0):
            raise InvalidArgument(
                f"expected numbers of batches and of their rows, found {taken!r} and {rows!r}"
            )
        if split != self._split:
            raise PlanMismatch(
                f"expected a state of the {self._split} split, found one of the {split} split; "
                "restore it into a dataset of that split"
            )
        batches = self._batches(taken, rows)
        self._sampler.resume(cursor)
        # A cursor that was refused changes nothing.
        self._taken = batches

    def _batches(self, taken: int, rows: int) -> int:
        """Returns how many batches of this dataset the rows are that were taken."""
        if self._batch_count is None:
            return taken
        batches, rest = divmod(taken * rows, self._rows)
        if rest or batches > self._batch_count:
            raise InvalidArgument(
                f"expected a state of at most {self._batch_count} batches of {self._rows} rows, "
                f"found {taken} batches of {rows} rows; restore it into a dataset with a greater "
                "batch_count, and with batches whose rows divide those that were taken"
            )
        return batches

    def close(self) -> None:
        """Stops the sampler's threads."""
        super().close()
        self._sampler.shutdown()


def _check_names(made: type[Sampler | Events], arguments: dict[str, Any]) -> None:
    """Checks the names of arguments, since an iterator is often made much later."""
    what = f"headwater.{made.__name__}"
    if not isinstance(arguments, Mapping):
        raise InvalidArgument(
            f"expected a dict of the arguments of {what}, found {arguments!r:.200}"
        )
    known = list(inspect.signature(made).parameters)
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of: {', '.join(known)}"
            raise InvalidArgument(f"{what} has no argument {name!r}; {hint}")
    if known[0] not in arguments:
        raise InvalidArgument(
            f"expected {known[0]!r} among the arguments of {what}, because it names the store, "
            f"found {', '.join(arguments) or 'none'}"
        )
