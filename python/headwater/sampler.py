"""Batches of relational contexts, in an order that anybody can come back to."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from headwater._headwater import Cursor, Evaluation, InvalidArgument, SamplerCore, key_text
from headwater._html import table

Batch = dict[str, npt.NDArray[Any]]
Split = Literal["train", "val", "test"]
Path = str | os.PathLike[str]

# An observation time that nothing lies after.
_SEES_EVERYTHING = np.iinfo(np.int64).max


class Sampler:
    """Endless streams of batches from a store, one for each split; a rank's share of them.

    The streams are a function of the store and of the arguments up to `keep_future_cells`. Ranks
    share them out; threads, prefetching and the form of a batch change nothing else. A batch is a
    dict of read-only NumPy arrays that look into one aligned buffer, which is used again when the
    last of them is gone; what each means is said in `sampler/FORMAT.md`.

    Args:
        db_path: A store that `headwater.prepare` made, or several, of different names.
        rank: Which of the processes this is.
        world_size: How many processes share the streams.
        split_ratios: The parts of train, val and test, where a task does not record its split.
        split_seed: The seed of the split.
        seed: The seed of the order and of the walks.
        num_prefetch: How many batches of a stream are made ahead; with 0 each is made when it is
            asked for.
        default_batch_size: B, the sequences of this rank's batch. May differ when a run goes on.
        default_sequence_length: S, the cells of a sequence.
        bfs_child_width: The most children that a row brings in through one relation.
        max_rows: R, the most rows of a context.
        tasks: The tasks to serve, as "task" or "database/task"; all where it is None. One that has
            no seed in a split is passed over there, with a warning.
        task_weights: How often each of `tasks` is served; all alike where it is None.
        walk: "priority" (parents first, then children hop by hop), or "breadth".
        child_widths: Of some relations another `bfs_child_width`, as {"orders.customer_id": 2};
            with 0 no child is brought in that way. A relation is "table.columns", after who refers
            and as `headwater inspect` names it (columns of one key joined by "+"), in every store
            that has it, or "database/table.columns" ("priority").
        children: Which children where there are more than the width: "uniform" or "latest".
        max_hops: How many links away from the seed a row may be ("breadth").
        neighbor_budget: The most rows that a row brings in, each way ("breadth").
        row_order: The order of `out_perm` and `in_perm`: "walk" or "cuthill-mckee".
        keep_future_cells: Keep timestamp cells that lie after the observation time, and not NULL.
        compact: `timestamp_us` and `fk_edges` in place of `timestamp_values` and `fk_adj`.
        texts: Where the vectors of the texts are: in the "batch", or with the caller ("global").
        text_buckets: The numbers of texts that `text_batch_embeddings` is filled up to, the least
            that fits: 256, 1024, 4096, 16384 and all cells where it is None; one number of B S for
            one shape. Without a meaning where texts are "global".
        num_threads: How many threads make batches; all cores where it is None.

    Example:
        >>> with headwater.Sampler("my.db", seed=1) as sampler:  # doctest: +SKIP
        ...     batch = sampler.next_train_batch()
        ...     sampler.save_cursor("my.cursor")
    """

    def __init__(
        self,
        db_path: Path | Sequence[Path],
        rank: int = 0,
        world_size: int = 1,
        split_ratios: tuple[float, float, float] = (0.8, 0.1, 0.1),
        split_seed: int = 123,
        seed: int = 42,
        *,
        num_prefetch: int = 3,
        default_batch_size: int = 32,
        default_sequence_length: int = 1024,
        bfs_child_width: int = 16,
        max_rows: int = 208,
        tasks: Sequence[str] | None = None,
        task_weights: Sequence[float] | None = None,
        num_threads: int | None = None,
        compact: bool = False,
        walk: Literal["priority", "breadth"] = "priority",
        child_widths: Mapping[str, int] | None = None,
        children: Literal["uniform", "latest"] = "uniform",
        max_hops: int = 3,
        neighbor_budget: int = 16,
        row_order: Literal["walk", "cuthill-mckee"] = "walk",
        keep_future_cells: bool = False,
        texts: Literal["batch", "global"] = "batch",
        text_buckets: Sequence[int] | None = None,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "rank": rank,
            "world_size": world_size,
            "split_ratios": split_ratios,
            "split_seed": split_seed,
            "seed": seed,
            "num_prefetch": num_prefetch,
            "default_batch_size": default_batch_size,
            "default_sequence_length": default_sequence_length,
            "bfs_child_width": bfs_child_width,
            "max_rows": max_rows,
            "tasks": tasks,
            "task_weights": task_weights,
            "num_threads": num_threads,
            "compact": compact,
            "walk": walk,
            "child_widths": dict(child_widths or {}),
            "children": children,
            "max_hops": max_hops,
            "neighbor_budget": neighbor_budget,
            "row_order": row_order,
            "keep_future_cells": keep_future_cells,
            "texts": texts,
            "text_buckets": text_buckets,
        }
        paths = [db_path] if isinstance(db_path, str | os.PathLike) else db_path
        self._paths = [os.fspath(path) for path in paths]
        self._core = SamplerCore(self._paths, **self._arguments)
        self._stores = self._core.stores()
        self._unasked: set[str] = {"train", "val", "test"}

    def next_train_batch(self) -> Batch:
        """Returns the next batch of the train stream; waits until it is made.

        The first call warns of tasks without a seed in the split, which the stream passes over.
        Ctrl-C while it waits consumes nothing: the batch is the next one.
        """
        if "train" in self._unasked:
            self._warn_of_tasks_passed_over("train")
        return self._core.next("train")

    def next_val_batch(self) -> Batch:
        """Returns the next batch of the val stream; waits until it is made."""
        if "val" in self._unasked:
            self._warn_of_tasks_passed_over("val")
        return self._core.next("val")

    def next_batch(self, split: Split) -> tuple[Batch, Cursor]:
        """Returns the next batch of a stream, and the cursor that follows it."""
        if split in self._unasked:
            self._warn_of_tasks_passed_over(split)
        return self._core.next_with_cursor(split)

    def _warn_of_tasks_passed_over(self, split: Split) -> None:
        self._unasked.discard(split)
        counts = self.seed_counts(split)
        if any(counts.values()):
            for task in (task for task, count in counts.items() if count == 0):
                warnings.warn(_passed_over(task, split), stacklevel=3)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the train stream, without end."""
        while True:
            yield self.next_train_batch()

    def evaluate(self, split: Split, tasks: Sequence[str] | None = None) -> Evaluation:
        """Yields every seed of a split exactly once over all ranks, one task after the other.

        The last batch of a task is filled up with sequences whose `seq_weight` is 0. Warns of tasks
        that have no seed in the split, or none for this rank.
        """
        evaluation = self._core.evaluate(split, None if tasks is None else list(tasks))
        own = self.own_seed_counts(split)
        names = self.tasks
        chosen = names if tasks is None else [names[self.task_number(t)] for t in tasks]
        for task, count in self.seed_counts(split).items():
            if task not in chosen:
                continue
            if count == 0:
                warnings.warn(_passed_over(task, split), stacklevel=2)
            elif own[task] == 0:
                warnings.warn(
                    f"task {task!r} has too few {split} seeds ({count}) for this rank to have any; "
                    "its batches here are padding, with a seq_weight of 0",
                    stacklevel=2,
                )
        return evaluation

    def sample(
        self, task: str, keys: Sequence[Any], obs_times: Sequence[Any] | npt.NDArray[Any]
    ) -> Batch:
        """Returns the contexts of chosen rows of a task's anchor table at chosen times.

        The batch has as many sequences as every other, those after the last key with a `seq_weight`
        of 0. The target of a derived task is NULL in it, as for what is still to come; that of a
        cell task is the cell.

        Args:
            task: The task, whose target is to be predicted.
            keys: For each context the key of its row: one value, or a tuple for a composite key.
            obs_times: For each context a time that NumPy can read as `datetime64`, a whole number
                of microseconds since 1970, or None for one that sees everything.
        """
        times = [_SEES_EVERYTHING if time is None else micros(time) for time in list(obs_times)]
        if len(times) != len(keys):
            raise InvalidArgument(f"found {len(keys)} keys and {len(times)} observation times")
        return self._core.sample(task, [key_text(key) for key in keys], times)

    def render_context(self, task: str, seed_index: int, path: Path) -> None:
        """Draws the context of a seed, as this sampler has it, on a page for any browser.

        Replaces an earlier page at `path`, and no other file.
        """
        self._core.render_context(task, seed_index, path)

    def column_embeddings(self, database: int = 0) -> npt.NDArray[np.float16]:
        """Returns the vectors of the column names, float16 [C, D_t]."""
        return self._stores[database].column_embeddings()

    def categorical_embeddings(self, database: int = 0) -> npt.NDArray[np.float16]:
        """Returns the vectors of the categories, float16 [Vc, D_t]."""
        return self._stores[database].categorical_embeddings()

    def text_embeddings(self, database: int = 0) -> npt.NDArray[np.float16] | None:
        """Returns the vectors of all texts, float16 [V, D_t]; None where texts have none."""
        return self._stores[database].text_embeddings()

    def database_metadata(self, database: int = 0) -> dict[str, Any]:
        """Returns what the store holds: tables, columns with statistics, relations, tasks."""
        return self._stores[database].metadata()

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, by their number in `task_idx`."""
        return self._core.tasks()

    def task_number(self, name: str) -> int:
        """Returns the number of a task in `task_idx`, by its short or full name.

        Raises:
            InvalidArgument: No task has the name, or several have.
        """
        return self._core.task_number(name)

    def seed_counts(self, split: Split) -> dict[str, int]:
        """Returns how many seeds each task has in a split."""
        return dict(zip(self.tasks, self._core.seed_counts(split), strict=True))

    def own_seed_counts(self, split: Split) -> dict[str, int]:
        """Returns how many seeds of each task `evaluate(split)` gives to this rank."""
        return dict(zip(self.tasks, self._core.own_seed_counts(split), strict=True))

    def cursor(self) -> bytes:
        """Returns where the caller stands in all streams, to go on from later.

        It tells what was consumed, not what was made ahead, and is the same on every rank.
        """
        return self._core.cursor().encode()

    def save_cursor(self, path: Path) -> None:
        """Writes the cursor to a file, wholly or not at all."""
        self._core.save_cursor(path)

    def resume(self, cursor: Path | bytes | Cursor) -> None:
        """Goes on from a cursor, given as its file, its bytes, or itself.

        Raises:
            PlanMismatch: The cursor is of another plan; the message names every field that differs.
            Corrupt: It is damaged.
        """
        if isinstance(cursor, bytes):
            cursor = Cursor.decode(cursor)
        elif not isinstance(cursor, Cursor):
            cursor = Cursor.read(cursor)
        self._core.resume(cursor)

    def shutdown(self) -> None:
        """Ends the threads; batches that are asked for afterwards raise SamplerShutdown."""
        self._core.shutdown()

    def __repr__(self) -> str:
        paths = ", ".join(repr(path) for path in self._paths)
        rank, world_size, seed = (self._arguments[n] for n in ("rank", "world_size", "seed"))
        return f"<Sampler of {paths}: rank {rank} of {world_size}, seed {seed}>"

    def _repr_html_(self) -> str:
        splits: tuple[Split, ...] = ("train", "val", "test")
        counts = [self.seed_counts(split) for split in splits]
        rows = [[task, *(f"{count[task]:,}" for count in counts)] for task in self.tasks]
        return table(repr(self), ["task", *(f"{split} seeds" for split in splits)], rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._paths, self._arguments, self.cursor())


def _restored(paths: list[str], arguments: dict[str, Any], cursor: bytes) -> Sampler:
    sampler = Sampler(paths, **arguments)
    sampler.resume(cursor)
    return sampler


def _passed_over(task: str, split: str) -> str:
    return (
        f"task {task!r} has no seed in the {split} split and is passed over; change "
        "split_ratios, or name in `tasks` only those that have some"
    )


def micros(time: Any) -> int:
    """Returns microseconds since 1970; whole numbers are taken for such, and no zone for UTC.

    Raises:
        InvalidArgument: It is no time.
    """
    try:
        if isinstance(time, int | np.integer) and not isinstance(time, bool):
            return int(np.int64(time))
        given = np.datetime64(_without_zone(time))
        year = int(given.astype("datetime64[Y]").astype(np.int64)) + 1970
        # Farther away, microseconds overflow, and NumPy does not tell.
        if isinstance(time, bool) or np.isnat(given) or abs(year) > 290_000:
            raise ValueError("it is no time that microseconds can tell")
        return int(given.astype("datetime64[us]").astype(np.int64))
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(f"expected an observation time, found {time!r}: {error}") from None


def _without_zone(time: Any) -> Any:
    """The time in UTC; NumPy knows no zones."""
    known = time
    if isinstance(time, str):
        try:
            known = datetime.fromisoformat(time)
        except ValueError:
            return time
    if isinstance(known, datetime) and known.tzinfo is not None:
        return known.astimezone(UTC).replace(tzinfo=None)
    return time
