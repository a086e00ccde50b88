"""Batches of relational contexts, in a fixed order that resumes at any position."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater._headwater import Cursor, Evaluation, InvalidArgument, SamplerCore, key_text
from headwater._html import table
from headwater._streams import Path, Streams, read_cursor
from headwater.page import Page

Batch = dict[str, npt.NDArray[Any]]
Split = Literal["train", "val", "test"]

# The observation time of a seed that sees every row.
_SEES_EVERYTHING = np.iinfo(np.int64).max


class Sampler(Streams):
    """Makes one rank's share of the batches of one or several stores.

    Each split has an endless stream. The stores and the settings of order, split, tasks, walk and
    context determine the streams, and ranks divide them; threads, prefetching and the form of a
    batch do not change them. A batch is a dict of read-only NumPy arrays. They are views of one
    aligned buffer, which is reused after the last of them is deleted. `sampler/FORMAT.md` gives the
    meaning of each array.

    Args:
        db_path: A store that `headwater.prepare` made, as its folder or as a `Store`, or several
            stores. Stores of one name need aliases: {"eu": "eu.db", "us": "us.db"}. An alias takes
            the place of the store's name in the names of tasks and relations, and in the plan.
        rank: The number of this process, from 0.
        world_size: The number of processes that share the streams.
        split_ratios: The shares of train, val and test, for tasks that record no split.
        split_seed: The random seed of the split. With another than 123, by which stores record the
            splits, and with pools, the first start over many seeds takes longer. It keeps the
            splits in a folder beside the store, `STORE.splits`.
        seed: The random seed of the order and of the walks.
        num_prefetch: The number of batches that each stream makes ahead; with 0, a batch is made
            when it is requested.
        default_batch_size: B, the number of sequences in this rank's batch. A resumed run may have
            another.
        default_sequence_length: S, the number of cells in a sequence.
        sequence_buckets: Lengths below S. A batch is padded to the least of them, or S, that holds
            its longest sequence, so that short contexts cost little on the device. Ranks may get
            different ones in a step, and a resumed run may have others. Default: none, every batch
            has S cells.
        bfs_child_width: The most children that a row brings in through one relation, for walk
            "priority"; default: 16.
        max_rows: R, the most rows of a context.
        tasks: The tasks to serve, as "task" or "database/task"; default: all, and none if `pools`
            are given. A task without a seed in a split is skipped there, with a warning.
        pools: Tables whose rows are seeds without a target, as "table" or "database/table": to
            learn from masked cells, or to encode rows. Each row is observed at its own time, or all
            at the time that a mapping gives: {"orders": None, "customers": "2024-06-01"}. Rows that
            do not exist then are no seeds, and a table of labels of a task, as "churn labels", is
            refused. A pool is served like a task, as "pool:orders", after
            the tasks; its splits go by the rows' keys. Its batches have no target: `target_pos` is
            -1, and `target_stype` 255.
        task_weights: How often each of `tasks` and then of `pools` is served, relative to the
            others; default: equally.
        require_label: Leave out the seeds of tasks whose target is NULL; refused with pools alone.
        walk: "priority" (parents first, then children hop by hop), or "breadth" (breadth first).
        child_widths: Another `bfs_child_width` for single relations, as {"orders.customer_id": 2};
            0 brings in no children. "table.columns" is the table that has the reference, and its
            columns joined by "+", as `headwater inspect` shows them; it means the relation in every
            store that has it, "database/table.columns" in one. Summaries have 1 by default, always
            the latest. For walk "priority" only.
        children: The choice among more children than the width: "uniform" or "latest".
        max_hops: The most links between a row and the seed, for walk "breadth".
        neighbor_budget: The most parents, and the most children, that a row brings in, for walk
            "breadth".
        permutations: Return `col_perm`, `out_perm` and `in_perm`, orders of the cells for models
            that skip empty tiles of their masks; a batch is then larger and takes longer.
        row_order: The order of `out_perm` and `in_perm`, with `permutations`: "walk" or
            "cuthill-mckee".
        aggregates: Which rows have the store's aggregates of their children as cells: "near" is the
            seed and its parents, "all" the seed and every row reached as a parent, "none" no row.
        visible_until: The latest observation time, for evaluations that may know nothing later: a
            seed observed later is observed at this time. A time that NumPy reads as `datetime64`.
        staleness_days: In the train stream, observe each seed earlier, by a random time of up to
            this number of days, another one in each epoch: for predictions from older data.
        keep_future_cells: Keep timestamp cells that are later than the observation time; default:
            they are NULL.
        mask_share: The share of cells to mask beside the target, for pretraining: `is_masked` marks
            them, and `masked_pos` lists them. Their values stay in place as labels, which the model
            must not read. It is a share of the cells that can be masked: never are padding, NULL,
            identifiers, keys, references, aggregates, rows of summaries, the time of a row, labels
            of a task (cells of a column that it predicts or hides, and rows of the table of labels
            of a task with a horizon), and the rows of `sample`.
        mask_most: M, the most masked cells of a sequence, the first ones; default: four
            standard deviations above the mean, which a sequence rarely exceeds.
        mask_texts: Mask texts, too; default: True.
        compact: Return `timestamp_us` in place of `timestamp_values`, and no `fk_adj`.
        texts: "batch" puts the text vectors into the batch, and `text_batch_scales` if they are
            int8; with "global", the caller looks them up in `text_embeddings`.
        text_buckets: The lengths that `text_batch_embeddings` is padded to; each batch takes the
            least that fits. Default: B S and the powers of two from 256 on that are below it; [B S]
            gives one shape. Refused with texts "global".
        num_threads: The number of threads that make batches; default: all cores. At least 32, which
            mostly wait for the disk, if memory does not hold the stores.

    Example:
        >>> with headwater.Sampler("my.db", seed=1) as sampler:  # doctest: +SKIP
        ...     batch = sampler.next_train_batch()
        ...     sampler.save_cursor("my.cursor")
    """

    def __init__(
        self,
        db_path: Path | Sequence[Path] | Mapping[str, Path],
        rank: int = 0,
        world_size: int = 1,
        split_ratios: tuple[float, float, float] = (0.8, 0.1, 0.1),
        split_seed: int = 123,
        seed: int = 42,
        *,
        num_prefetch: int = 3,
        default_batch_size: int = 32,
        default_sequence_length: int = 1024,
        sequence_buckets: Sequence[int] | None = None,
        bfs_child_width: int | None = None,
        max_rows: int = 208,
        tasks: Sequence[str] | None = None,
        pools: Sequence[str] | Mapping[str, Any] | None = None,
        task_weights: Sequence[float] | None = None,
        require_label: bool = False,
        num_threads: int | None = None,
        compact: bool = False,
        walk: Literal["priority", "breadth"] = "priority",
        child_widths: Mapping[str, int] | None = None,
        children: Literal["uniform", "latest"] | None = None,
        max_hops: int | None = None,
        neighbor_budget: int | None = None,
        permutations: bool = False,
        mask_share: float = 0.0,
        mask_most: int | None = None,
        mask_texts: bool | None = None,
        row_order: Literal["walk", "cuthill-mckee"] = "walk",
        aggregates: Literal["none", "near", "all"] = "near",
        visible_until: Any | None = None,
        staleness_days: int = 0,
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
            "sequence_buckets": sequence_buckets,
            "bfs_child_width": bfs_child_width,
            "max_rows": max_rows,
            "tasks": _names("tasks", "task", tasks),
            "pools": _pools(pools),
            "task_weights": task_weights,
            "require_label": require_label,
            "num_threads": num_threads,
            "compact": compact,
            "walk": walk,
            "child_widths": dict(child_widths or {}),
            "children": children,
            "max_hops": max_hops,
            "neighbor_budget": neighbor_budget,
            "permutations": permutations,
            "mask_share": mask_share,
            "mask_most": mask_most,
            "mask_texts": mask_texts,
            "row_order": row_order,
            "aggregates": aggregates,
            "visible_until": _time("visible_until", visible_until, "sets no limit"),
            "staleness_days": staleness_days,
            "keep_future_cells": keep_future_cells,
            "texts": texts,
            "text_buckets": text_buckets,
        }
        aliases = list(db_path) if isinstance(db_path, Mapping) else None
        if isinstance(db_path, Mapping):
            db_path = list(db_path.values())
        paths = [db_path] if isinstance(db_path, str | os.PathLike) else db_path
        self._paths = [os.fspath(path) for path in paths]
        self._aliases = aliases
        self._core: SamplerCore = SamplerCore(
            self._paths,
            aliases=aliases,
            **(self._arguments | {"pools": list(self._arguments["pools"].items())}),
        )
        self._stores = self._core.stores()
        self._unread_splits: set[str] = {"train", "val", "test"}

    def next_train_batch(self) -> Batch:
        """Returns the next batch of the train stream; waits until it is made.

        The first call warns of tasks without a seed in the split, which the stream skips. Ctrl-C
        during the wait consumes no batch: the next call returns it.
        """
        if "train" in self._unread_splits:
            self._warn_of_skipped_tasks("train")
        return self._core.next("train")

    def next_val_batch(self) -> Batch:
        """Returns the next batch of the val stream; waits until it is made."""
        if "val" in self._unread_splits:
            self._warn_of_skipped_tasks("val")
        return self._core.next("val")

    def next_batch(self, split: Split) -> tuple[Batch, Cursor]:
        """Returns the next batch of a split's stream, and the cursor after it."""
        if split in self._unread_splits:
            self._warn_of_skipped_tasks(split)
        return self._core.next_with_cursor(split)

    def _warn_of_skipped_tasks(self, split: Split) -> None:
        self._unread_splits.discard(split)
        counts = self.seed_counts(split)
        if any(counts.values()):
            for task in (task for task, count in counts.items() if count == 0):
                warnings.warn(_skipped(task, split), stacklevel=3)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of the train stream, without end."""
        while True:
            yield self.next_train_batch()

    def evaluate(
        self,
        split: Split,
        tasks: Sequence[str] | None = None,
        *,
        cursor: Path | bytes | Cursor | None = None,
    ) -> Evaluation:
        """Returns batches that have each seed of a split once over all ranks, task by task.

        Sequences with a `seq_weight` of 0 pad the last batch of a task. Warns of tasks without a
        seed in the split, and of tasks without a seed for this rank.

        Args:
            split: The split.
            tasks: The tasks, in the order of the pass; default: all.
            cursor: A cursor of such a pass, of its `cursor` or `save_cursor`: the pass goes on
                after the batches that were taken then, also with another number of ranks.

        Raises:
            PlanMismatch: The cursor is of another pass; the message names every setting that
                differs.
        """
        begin = None if cursor is None else read_cursor(cursor)
        chosen_tasks = None if tasks is None else list(tasks)
        evaluation = self._core.evaluate(split, chosen_tasks, begin)
        own = self.own_seed_counts(split)
        names = self.tasks
        chosen = names if tasks is None else [names[self.task_number(t)] for t in tasks]
        for task, count in self.seed_counts(split).items():
            if task not in chosen:
                continue
            if count == 0:
                warnings.warn(_skipped(task, split), stacklevel=2)
            elif own[task] == 0 and cursor is None:
                warnings.warn(
                    f"task {task!r} has none of its {count} {split} seeds on this rank; its "
                    "batches on this rank are padding, with a seq_weight of 0: use fewer ranks, or "
                    "leave these batches out of the metrics",
                    stacklevel=2,
                )
        return evaluation

    def batches_per_epoch(self, split: Split, tasks: Sequence[str] | None = None) -> int:
        """Returns the number of batches of `evaluate`: those in which each seed comes once."""
        return self._core.batches_per_epoch(split, None if tasks is None else list(tasks))

    def seek(self, split: Split, step: int) -> None:
        """Goes to a step of a split, counted from 0, without a cursor, at once for every step.

        The next batch is that of this step in a run that had this batch size and world size from
        its beginning. After a change of either, a cursor is needed.
        """
        self._core.seek(split, step)

    def sample(
        self, task: str, keys: Sequence[Any], obs_times: Sequence[Any] | npt.NDArray[Any]
    ) -> Batch:
        """Returns the contexts of chosen rows of a task's anchor table at chosen times.

        The batch has B sequences; those after the last key are padding, with a `seq_weight` of 0.
        The target of a derived task is NULL, because it is not known yet; the target of a cell task
        is the cell.

        Args:
            task: The task whose target is predicted.
            keys: The key of each context's row: one value, or a tuple for a composite key.
            obs_times: The observation time of each context: a time that NumPy reads as
                `datetime64`, an integer of microseconds since 1970, or None to see every row.
        """
        for what, given in (("keys", keys), ("obs_times", obs_times)):
            if isinstance(given, str | bytes):
                raise InvalidArgument(
                    f"{what}: expected one for each context, found {given!r}; say [{given!r}]"
                )
        times = [_SEES_EVERYTHING if time is None else micros(time) for time in list(obs_times)]
        if len(times) != len(keys):
            raise InvalidArgument(
                f"expected one observation time for each key, found {len(keys)} keys and "
                f"{len(times)} observation times"
            )
        return self._core.sample(task, [key_text(key) for key in keys], times)

    def draw(self, task: str, seed_index: int, path: Path | None = None) -> Page:
        """Draws the context of a seed as the first epoch has it, with this sampler's settings.

        With `mask_share`, page and text show which cells are masked.

        Args:
            task: The task, as "task" or "database/task".
            seed_index: The number of the seed in the task, counted from 0.
            path: A file to write the page to as well, as `Page.save` does.

        Returns:
            The context as an HTML page, which a notebook shows in a frame, and as text.

        Raises:
            InvalidArgument: There is no such task or seed, or `path` is something else than a page.

        Example:
            >>> sampler.draw("churn", 0)  # doctest: +SKIP
            >>> print(sampler.draw("churn", 0))  # doctest: +SKIP
        """
        page = Page(*self._core.draw(task, seed_index))
        if path is not None:
            page.save(path)
        return page

    def render_context(self, task: str, seed_index: int, path: Path) -> None:
        """Draws the context of a seed and writes the page to a file, as `draw` with a path does."""
        self.draw(task, seed_index, path)

    def column_embeddings(self, database: int = 0) -> npt.NDArray[np.float16]:
        """Returns the vectors of the column names, float16 [C, D_t]."""
        return self._stores[database].column_embeddings()

    def relation_embeddings(self, database: int = 0) -> npt.NDArray[np.float16]:
        """Returns the vectors of the relations' names, float16 [relations, D_t].

        Those of the summaries without parents come last.
        """
        return self._stores[database].relation_embeddings()

    def categorical_embeddings(self, database: int = 0) -> npt.NDArray[np.float16]:
        """Returns the vectors of the categories, float16 [Vc, D_t]."""
        return self._stores[database].categorical_embeddings()

    def text_embeddings(
        self, database: int = 0
    ) -> npt.NDArray[np.float16] | npt.NDArray[np.int8] | None:
        """Returns the vectors of all texts, float16 or int8 [V, D_t]; None if the store has none.

        It is read-only, and a part of the mapped store.
        """
        return self._stores[database].text_embeddings()

    def text_scales(self, database: int = 0) -> npt.NDArray[np.float32] | None:
        """Returns what int8 vectors of texts are multiplied by, float32 [V]; None without any."""
        return self._stores[database].text_scales()

    def database_metadata(self, database: int = 0) -> dict[str, Any]:
        """Returns the store's tables, columns with statistics, relations and tasks."""
        return self._stores[database].metadata()

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks; `task_idx` is a position in this list."""
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

    def __repr__(self) -> str:
        paths = ", ".join(repr(path) for path in self._paths)
        rank, world_size, seed = (self._arguments[n] for n in ("rank", "world_size", "seed"))
        return f"<Sampler of {paths}: rank {rank} of {world_size}, seed {seed}>"

    def _repr_html_(self) -> str:
        splits: tuple[Split, ...] = ("train", "val", "test")
        counts = [self.seed_counts(split) for split in splits]
        rows = [[task, *(f"{count[task]:,}" for count in counts)] for task in self.tasks]
        return table(repr(self), ["task", *(f"{split} seeds" for split in splits)], rows)

    def __reduce__(self) -> tuple[Any, ...]:
        named = dict(zip(self._aliases, self._paths, strict=True)) if self._aliases else None
        return _restored, (named or self._paths, self._arguments, self.cursor())


def _restored(
    stores: list[str] | dict[str, str], arguments: dict[str, Any], cursor: bytes
) -> Sampler:
    sampler = Sampler(stores, **arguments)
    sampler.resume(cursor)
    return sampler


def _skipped(task: str, split: str) -> str:
    return (
        f"task {task!r} has no seed in the {split} split and is skipped; change split_ratios, or "
        "leave the task out of `tasks`"
    )


def micros(time: Any) -> int:
    """Returns a time as microseconds since 1970.

    An integer is microseconds already, and a time without a zone is UTC.

    Raises:
        InvalidArgument: The value is not a time.
    """
    try:
        if isinstance(time, int | np.integer) and not isinstance(time, bool):
            return int(np.int64(time))
        # NumPy takes "today" and "now".
        is_word = isinstance(time, str) and not any(character.isdigit() for character in time)
        if is_word or isinstance(time, bool | np.bool_):
            raise ValueError('not a date such as "2024-01-31"')
        given = np.datetime64(_without_zone(time))
        if np.isnat(given):
            raise ValueError("not a time")
        year = int(given.astype("datetime64[Y]").astype(np.int64)) + 1970
        # Beyond these years microseconds overflow, and NumPy does not report it.
        if abs(year) > 290_000:
            raise ValueError(f'its year would be {year}; write a date as "2024-01-31"')
        return int(given.astype("datetime64[us]").astype(np.int64))
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(f"expected an observation time, found {time!r}: {error}") from None


def _time(what: str, time: Any | None, none: str) -> int | None:
    """Returns a time as `micros` does; an error says what None, which is no time, means."""
    try:
        return None if time is None else micros(time)
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}; None {none}") from None


def _names(what: str, of: str, names: Sequence[str] | None) -> list[str] | None:
    """Returns names as a list; a name by itself is no list of its letters."""
    if names is None:
        return None
    if isinstance(names, str):
        hint = f'; say ["{names}"]' if names else ""
        raise InvalidArgument(f'{what}: expected a list of {of} names, found "{names}"{hint}')
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"{what}: expected a list of {of} names, found {names!r}")
    return list(names)


def _pools(pools: Sequence[str] | Mapping[str, Any] | None) -> dict[str, int | None]:
    """Returns the tables of pools, each with the time at which its rows are observed."""
    if isinstance(pools, Mapping):
        if not all(isinstance(table, str) for table in pools):
            raise InvalidArgument(f"pools: expected table names as keys, found {list(pools)!r}")
        own = "observes each row at its own time"
        return {table: _time(f"pools[{table!r}]", time, own) for table, time in pools.items()}
    names = _names("pools", "table", pools) or []
    if len(set(names)) < len(names):
        raise InvalidArgument(f"pools: expected each table once, found {names}")
    return dict.fromkeys(names)


def _without_zone(time: Any) -> Any:
    """Returns a time with a zone in UTC, because NumPy has no zones; others unchanged."""
    parsed = time
    if isinstance(time, str):
        try:
            parsed = datetime.fromisoformat(time)
        except ValueError:
            return time
    if isinstance(parsed, datetime) and parsed.tzinfo is not None:
        return parsed.astimezone(UTC).replace(tzinfo=None)
    return time
