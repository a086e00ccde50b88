"""All parts of a run, put together once for training, evaluation, prediction and measuring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headwater
from confluence import config, evaluate
from confluence.batch import vocabulary_and_tables
from confluence.checkpoint import CheckpointError, Checkpoints
from confluence.feed import Form, sampler
from confluence.metrics import LEADING
from confluence.parallel import Layout, Processes
from confluence.step import Program
from headwater.sampler import Split


@dataclass(frozen=True)
class Assembly:
    """A run's stores, compiled functions, sampler and tasks."""

    settings: config.Config
    stores: list[headwater.Store]
    layout: Layout
    program: Program
    sampler: headwater.Sampler
    form: Form
    tasks: list[evaluate.Task]

    @property
    def roots(self) -> list[str]:
        """The identities of the data."""
        return [store.root for store in self.stores]

    def score(
        self,
        params: Any,
        split: Split,
        task: evaluate.Task,
        batch_limit: int = 0,
        between: Callable[[], None] = lambda: None,
    ) -> evaluate.Scored:
        """Scores the seeds of a split, or those of the first batches; `between` after each."""
        return evaluate.evaluate(
            self.program, params, self.sampler, self.form, split, task, batch_limit, between
        )

    def results(
        self, params: Any, splits: Sequence[Split], between: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Scores whole splits, for each task, beside the baselines."""
        results = {}
        for task in self.tasks:
            of_task: dict[str, Any] = {"leading": LEADING[task.kind]}
            labels = evaluate.train_labels(self.settings, self.stores, task)
            for split in splits:
                scored = self.score(params, split, task, between=between)
                others = evaluate.baselines(labels, split, task, scored)
                of_task[split] = {**scored.record(), "baselines": others}
            results[task.name] = of_task
        return results


@contextmanager
def assembled(settings: config.Config, processes: Processes) -> Iterator[Assembly]:
    """Opens the stores of a run, and ends its sampler in the end.

    Raises:
        ConfigError: There is no store, or the batch cannot be shared out.
        HeadwaterError: A store cannot be opened.
    """
    if not settings.data.stores:
        raise config.ConfigError("expected a store: --set data.stores=FOLDER")
    stores = [headwater.Store(path) for path in settings.data.stores]
    vocabulary, tables = vocabulary_and_tables(stores, settings.data.texts)
    layout = Layout()
    with sampler(settings.data, settings.run, processes) as made:
        tasks = evaluate.tasks_of(made.tasks, stores)
        form = Form(vocabulary, [task.store for task in tasks], layout, processes.rank)
        program = Program(settings, vocabulary, tables, layout)
        yield Assembly(settings, stores, layout, program, made, form, tasks)


@contextmanager
def trained(
    out: Path, which: str, stores: Sequence[str] = ()
) -> Iterator[tuple[Assembly, Any, int]]:
    """Opens the run in a folder: its parts, its "best" or "latest" parameters, and their step.

    Its stores are where they were, or at `stores`.

    Raises:
        CheckpointError: There is no checkpoint, or the store is not what it was trained on.
    """
    if not (out / "config.toml").exists():
        raise CheckpointError(f"{out} holds no run; name the folder that was --out of its training")
    settings = config.load(out / "config.toml")
    if stores:
        data = dataclasses.replace(settings.data, stores=tuple(stores))
        settings = dataclasses.replace(settings, data=data)
    with assembled(settings, Processes()) as parts:
        checkpoints = Checkpoints(
            out.absolute() / "checkpoints", settings.run.keep, is_read_only=True
        )
        step = checkpoints.best if which == "best" else checkpoints.latest
        if step is None:
            raise CheckpointError(f"{out} has no checkpoint yet; train it first")
        like = parts.program.initial()
        found = checkpoints.restore(step, like, settings, parts.roots)
        checkpoints.close()
        yield parts, found.state.learnt, step
