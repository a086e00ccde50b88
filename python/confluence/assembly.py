"""The parts of a run, put together once for training, evaluation, prediction and benchmarks."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import headwater
from confluence import (
    baselines,
    calibration,
    choices,
    config,
    evaluation,
    hiding,
    intervals,
    masked,
    members,
    times,
)
from confluence.batch import HostBatch, text_encoding, vocabulary_and_tables
from confluence.checkpoint import CheckpointError, Checkpoints, StoreIdentity
from confluence.feed import DeviceTransfer, Samplers, open_samplers
from confluence.intervals import Intervals
from confluence.parallel import Layout, Processes
from confluence.status import StatusLine
from confluence.step import Program, State
from headwater.sampler import Split

Keep = Callable[[evaluation.Task, Split, evaluation.Scores, Intervals], None]


def _nothing(_: HostBatch) -> Sequence[HostBatch]:
    return ()


@dataclass(frozen=True)
class Assembly:
    """A run's stores, compiled functions, sampler and tasks."""

    settings: config.Config
    stores: list[headwater.Store]
    layout: Layout
    program: Program
    samplers: Samplers
    transfer: DeviceTransfer
    tasks: list[evaluation.Task]
    pools: list[masked.Pool]
    status: StatusLine

    @property
    def sampler(self) -> headwater.Sampler:
        """A sampler, for what is the same for all microbatches."""
        return self.samplers.first

    @property
    def identities(self) -> list[StoreIdentity]:
        """What checkpoints record of the stores."""
        return [StoreIdentity(store.root, embedder_of(store)) for store in self.stores]

    @property
    def streams(self) -> list[str]:
        """The names of what is trained on, by their numbers: the tasks, then the pools."""
        return [task.name for task in self.tasks] + [pool.name for pool in self.pools]

    def task(self, name: str) -> evaluation.Task:
        """Returns a task by its short or full name.

        Raises:
            ConfigError: There is no such task.
            HeadwaterError: There are several.
        """
        choices.check_task(name, [task.name for task in self.tasks])
        return self.tasks[self.sampler.task_number(name)]

    def score(
        self,
        models: Sequence[Any],
        split: Split,
        task: evaluation.Task,
        *,
        batch_limit: int = 0,
        after_batch: Callable[[], None] = lambda: None,
        hide: Callable[[HostBatch], Sequence[HostBatch]] = _nothing,
    ) -> list[evaluation.Scores]:
        """Scores the seeds of a split, or of its first batches; calls `after_batch` after each.

        The first of several scores is that of the models' mean. Those of the batches that `hide`
        makes of each batch come last.
        """
        return evaluation.score_split(
            self.program,
            models,
            self.samplers,
            self.transfer,
            split,
            task,
            batch_limit=batch_limit,
            after_batch=self._shown(f"scoring {split} of {task.name}", split, task.name,
                                    batch_limit, after_batch),
            hide=hide,
        )  # fmt: skip

    def score_masked(
        self,
        models: Sequence[Any],
        split: Split,
        stream: str,
        *,
        batch_limit: int = 0,
        after_batch: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Returns the losses at the masked cells of a split of a task or a pool."""
        what = f"scoring masked cells of {split} of {stream}"
        return masked.score(
            self.program,
            models,
            self.samplers,
            self.transfer,
            split,
            stream,
            batch_limit=batch_limit,
            after_batch=self._shown(what, split, stream, batch_limit, after_batch),
        )

    def masked_results(
        self,
        models: Sequence[Any],
        splits: Sequence[Split],
        *,
        after_batch: Callable[[], None] = lambda: None,
    ) -> dict[str, dict[str, Any]]:
        """Scores the masked cells of splits, for each task and pool; none without masks.

        A pool may be a table of millions of rows: so these are the batches of each evaluation.
        """
        limit = self.settings.run.evaluate_batches
        if not self.settings.data.mask_share:
            return {}
        return {
            stream: {
                split: self.score_masked(
                    models, split, stream, batch_limit=limit, after_batch=after_batch
                )
                for split in splits
            }
            for stream in self.streams
        }

    def _shown(
        self,
        what: str,
        split: Split,
        stream: str,
        batch_limit: int,
        after_batch: Callable[[], None],
    ) -> Callable[[], None]:
        """Returns what shows the progress of a pass after each batch, and goes on."""
        seeds = self.sampler.seed_counts(split)[stream]
        batches = -(-seeds // self.settings.data.batch_size)
        numbers = itertools.count(1)

        def show_and_go_on() -> None:
            number, last = next(numbers), min(batches, batch_limit or batches)
            self.status.show_sometimes(f"{what}: batch {number} of {last}", number / last)
            after_batch()

        return show_and_go_on

    def results(
        self,
        models: Sequence[Any],
        splits: Sequence[Split],
        *,
        after_batch: Callable[[], None] = lambda: None,
        with_boosting: bool,
        with_relations: bool = False,
        recorded: Callable[[evaluation.Task], Intervals] = Intervals,
        keep: Keep = lambda *_: None,
    ) -> dict[str, Any]:
        """Scores whole splits, for each task, beside the baselines.

        Several models are scored by their mean, which has no loss. `with_relations` scores them
        with each relation hidden, too. `recorded` has the intervals of a task, unless its
        validation split is scored. `keep` is called with the scores of each task and split, and the
        intervals of its predictions.
        """
        results = {}
        for task in self.tasks:
            self.status.show(f"comparing with the baselines of {task.name}")
            others = baselines.of_task(
                self.settings, self.stores, task, splits, with_boosting=with_boosting
            )
            of_task: dict[str, Any] = {
                "leading": task.leading,
                "boosting": others.boosting,
                "cpu_seconds": others.seconds,
            }
            if task.pairs is not None:
                of_task["drawn"] = task.pairs.drawn
            found = recorded(task)
            # The validation split comes first: it gives the intervals of the others.
            for split in sorted(splits, key=lambda split: split != "val"):
                hider = hiding.Hider(self.stores[task.store].metadata()) if with_relations else None
                hide = _nothing if hider is None else hider.hide
                scores, *more = self.score(models, split, task, after_batch=after_batch, hide=hide)
                count = len(models) if len(models) > 1 else 0
                record = _record(task, scores, more[:count])
                if split == "val":
                    found = intervals.of_scores(task, scores)
                    record |= found.record()
                elif scores.metrics:
                    record |= found.coverage(scores.values, scores.labels)
                if hider is not None and scores.metrics:
                    record["relations"] = hider.records(task, scores, more[count:])
                keep(task, split, scores, found)
                of_task[split] = {**record, "baselines": others.metrics[split]}
            of_task["no_intervals"] = found.missing
            results[task.name] = of_task
        return results


def _record(
    task: evaluation.Task, scores: evaluation.Scores, each: Sequence[evaluation.Scores]
) -> dict[str, Any]:
    """Returns the metrics of a split, for a line of JSON; `each` has those of the members."""
    record = scores.record()
    if scores.metrics:
        # A list, as JSON has it.
        record["interval"] = list(task.interval(scores.rows, scores.values, scores.labels))
        bins = calibration.calibration(task.kind, scores.values, scores.labels)
        if bins is not None:
            record["calibration"] = bins
    if each:
        del record["loss"]
        record["members"] = [of.metrics[task.leading] for of in each if of.metrics]
    return record


@contextmanager
def assemble(settings: config.Config, processes: Processes) -> Iterator[Assembly]:
    """Opens the stores of a run; shuts its sampler down at the end of the `with` block.

    Shows on a terminal what is being done.

    Raises:
        ConfigError: There is no store, or the number of processes does not suit the batch.
        HeadwaterError: A store cannot be opened.
    """
    status = StatusLine(is_leader=processes.rank == 0)
    status.show("reading the store")
    stores = open_stores(settings)
    masked.check_texts(settings.data, stores)
    vocabulary, tables = vocabulary_and_tables(stores, settings.data.texts)
    layout = Layout()
    with ExitStack() as open_resources:
        samplers = open_samplers(settings, processes, open_resources)
        names = samplers.first.tasks
        tasks, pools = evaluation.find_tasks(names, stores), masked.find_pools(names, stores)
        transfer = DeviceTransfer(
            vocabulary,
            [task.store for task in tasks] + [pool.store for pool in pools],
            layout,
            processes.rank,
            in_microbatches=config.microbatches(settings) > 0,
        )
        program = Program(settings, vocabulary, tables, layout)
        status.show("compiling")
        try:
            yield Assembly(
                settings, stores, layout, program, samplers, transfer, tasks, pools, status
            )
        finally:
            status.end()


def open_stores(settings: config.Config) -> list[headwater.Store]:
    """Opens the stores of a run.

    Raises:
        ConfigError: There is no store, or the stores do not go together.
        HeadwaterError: A store cannot be opened.
    """
    if not settings.data.stores:
        raise config.ConfigError("expected a store, found none; set data.stores=FOLDER")
    for path in settings.data.stores:
        if not Path(path).exists():
            raise config.ConfigError(
                f"expected a store at {path}, found nothing; if it was moved, name its new place: "
                "--store FOLDER (evaluate, predict) or --set data.stores=FOLDER (train, bench)"
            )
    stores = [headwater.Store(path) for path in settings.data.stores]
    names = [store.metadata()["database"] for store in stores]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise config.ConfigError(
            f"data.stores: two stores have the name {twice!r}, which their tasks would share; "
            "prepare one of them from a schema with another name"
        )
    # Before a sampler of these stores refuses them, which has other advice.
    text_encoding(stores)
    return stores


def embedder_of(store: headwater.Store) -> str:
    """Returns the name of what made a store's vectors."""
    name: str = store.metadata()["embedding"]["embedder"]
    return name


def check_embedders(settings: config.Config, stores: Sequence[headwater.Store]) -> None:
    """Checks that the vectors of all stores come from one embedder, so that alike mean alike.

    A run that was trained on others before this was checked goes on: call it for new ones.

    Raises:
        ConfigError: Two stores have different embedders.
    """
    first, *others = zip(settings.data.stores, map(embedder_of, stores), strict=True)
    for path, embedder in others:
        if embedder != first[1]:
            raise config.ConfigError(
                f"expected stores with vectors of one embedder, found {first[1]!r} in {first[0]} "
                f"and {embedder!r} in {path}: vectors of different embedders cannot be compared; "
                "prepare one of the stores again with the embedder of the other, or train on one "
                "store"
            )


class Trained(NamedTuple):
    """The parameters of a checkpoint, and its step."""

    params: Any
    step: int


@contextmanager
def open_run(
    out: Path,
    checkpoint: Literal["best", "latest"],
    stores: Sequence[str | os.PathLike[str]] = (),
    visible_until: str | None = None,
    processes: Processes | None = None,
    *,
    needs_task: bool = False,
) -> Iterator[tuple[Assembly, list[Trained]]]:
    """Opens the run in a folder: its parts, and what it trained, of each member if it has some.

    The stores are where they were during training, or at `stores`. `visible_until` replaces the
    run's own. `needs_task` refuses a run of pools alone.

    Raises:
        CheckpointError: There is no checkpoint, or a store is not the one of the training.
        ConfigError: `checkpoint` is neither "best" nor "latest", `visible_until` is no time, or the
            run has no task, but needs one.
    """
    choices.check("checkpoint", checkpoint, ("best", "latest"))
    if visible_until is not None:
        times.check_given("visible_until", visible_until)
    if not (out / "config.toml").exists():
        raise CheckpointError(
            f"expected the folder of a run, found no config.toml in {out}; name the folder that "
            "was --out of `confluence train`"
        )
    settings = config.load_run(out)
    if needs_task and not config.has_tasks(settings.data):
        raise config.ConfigError(
            f"expected a run that learnt a task, found {out}, which learnt masked cells of pools "
            f"alone ({', '.join(settings.data.pools)}); learn a task from there with `confluence "
            f"train --from {shlex.quote(str(out))} --set data.pools={{}} --set data.mask_share=0 "
            "--set data.visible_until= --set data.tasks=TASK --out FOLDER`"
        )
    if stores:
        data = dataclasses.replace(
            settings.data, stores=tuple(os.fspath(store) for store in stores)
        )
        settings = dataclasses.replace(settings, data=data)
    used = settings
    if visible_until is not None:
        data = dataclasses.replace(settings.data, visible_until=visible_until)
        used = dataclasses.replace(settings, data=data)
    with assemble(used, processes or Processes()) as parts:
        like = parts.program.abstract_state()
        each = zip(members.folders(out, settings), members.settings_of(settings), strict=True)
        yield parts, [_trained(parts, folder, own, checkpoint, like) for folder, own in each]


def _trained(
    parts: Assembly,
    out: Path,
    settings: config.Config,
    checkpoint: Literal["best", "latest"],
    like: State,
) -> Trained:
    checkpoints = Checkpoints(out.absolute() / "checkpoints")
    found = checkpoints.restore_chosen(checkpoint, like, settings, parts.identities)
    if found is None:
        raise CheckpointError(f"{out} has no checkpoint yet; train until the first one")
    return Trained(found.state.inference_params, found.step)
