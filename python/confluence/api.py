"""Training, evaluation and prediction as functions; `confluence` exports them."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard

import headwater
from confluence import (
    anchors,
    assembly,
    baselines,
    evaluation,
    intervals,
    memory,
    prediction,
    run_folder,
    status,
    time_range,
    times,
    training,
)
from confluence.baselines import Baseline
from confluence.config import Config, ConfigError, Data, load
from confluence.draft import MINUTES, Draft, init
from confluence.feed import open_sampler
from confluence.parallel import Processes as Processes
from confluence.prediction import Prediction, Seed
from confluence.results import Results
from confluence.run import Run
from confluence.scoring import evaluate
from confluence.training import Interrupted
from confluence.xla_flags import set_deterministic_flags

__all__ = [
    "Baseline",
    "Draft",
    "Interrupted",
    "Prediction",
    "Results",
    "Run",
    "compare_baselines",
    "evaluate",
    "init",
    "open",
    "predict",
    "train",
]


def train(
    config: Config | Draft | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tasks: str | Sequence[str] = (),
    minutes: float | None = None,
    resume: bool = False,
    start_from: str | os.PathLike[str] | None = None,
    processes: Processes | None = None,
    profile: tuple[int, int] | None = None,
) -> Run:
    """Trains a model to its last step; the run is the folder `out`.

    The first Ctrl-C, or the stop button of a notebook, stops after the current step and writes a
    checkpoint; call it with `resume`, or call `confluence.open(out).resume()`, to continue. A
    terminal has a line that says what is being done, a notebook a bar.

    Args:
        config: The configuration of the run; or what `init` returned; or a store, a `Store` or its
            folder, for which the configuration is chosen first, as `init` does; or a TOML file.
        out: The folder of the run; it is created.
        tasks: With a store: the task, or the tasks, to train on.
        minutes: With a store: how long choosing and training may take; default: 12.
        resume: Continue the run in `out` from its newest checkpoint.
        start_from: Another run, whose best checkpoint has the initial parameters; the model and the
            dimension of the stores' embeddings must be the same.
        processes: The processes of the run, and which one this is; default: those that mpirun,
            srun or torchrun started, or else this one alone.
        profile: The first and the last step to trace into the folder `profile` of the run.

    Returns:
        The run, with the metrics of the best checkpoint on the splits val and test.

    Raises:
        ConfigError, CheckpointError, JoinError, TrainingError: The message says what to do.
        Interrupted: SIGINT or SIGTERM came; the run can be resumed.

    Example:
        >>> run = confluence.train("shop.db", "runs/1", tasks="churn", minutes=6)  # doctest: +SKIP
        >>> run.metrics  # doctest: +SKIP
        >>> draft = confluence.init("shop.db", "churn", minutes=6)  # doctest: +SKIP
        >>> run = confluence.train(draft, "runs/2")  # doctest: +SKIP
    """
    set_deterministic_flags()
    with status.emptied_at_end():
        processes = processes or Processes.launched()
        if _is_store(config, tasks, minutes):
            check_is_alone(processes, config)
        settings = _settings(config, Path(out), tasks, minutes, resume=resume)
        memory.report_missing_tunables()
        if start_from is not None:
            start = dataclasses.replace(settings.optimizer, start_from=os.fspath(start_from))
            if not resume:
                # A resumed run keeps what it has recorded: the parameters may have moved, not
                # changed.
                start = dataclasses.replace(start, start_digest="", start_step=0)
            settings = dataclasses.replace(settings, optimizer=start)
        training.train(settings, Path(out), processes, resume=resume, profile=profile)
    return Run(out)


def check_is_alone(processes: Processes, store: Any) -> None:
    """Refuses a store in place of a configuration for several processes.

    Raises:
        ConfigError: There are several.
    """
    if processes.count > 1:
        raise ConfigError(
            f"expected a configuration for {processes.count} processes, found a store: each "
            f"would choose another configuration; write one with `confluence init {store} --out "
            "FILE`, and name it with --config FILE"
        )


def _is_store(
    config: Any, tasks: str | Sequence[str], minutes: float | None
) -> TypeGuard[str | os.PathLike[str]]:
    """Returns whether `train` was called with a store, for which it chooses the configuration."""
    if isinstance(config, Config | Draft):
        return False
    is_chosen = bool(tasks) or minutes is not None
    return is_chosen or (Path(config) / "metadata.json").exists()


def _settings(
    config: Config | Draft | str | os.PathLike[str],
    out: Path,
    tasks: str | Sequence[str],
    minutes: float | None,
    *,
    resume: bool,
) -> Config:
    """Returns the configuration that `train` was called with, or the one for its store."""
    if _is_store(config, tasks, minutes):
        if resume:
            raise ConfigError(
                "expected the configuration of the run with resume=True, found a store, for which "
                f"another would be chosen; use confluence.open({str(out)!r}).resume()"
            )
        run_folder.check_folder(out, resume=False)
        drafted = init(config, tasks, MINUTES if minutes is None else minutes)
        if drafted.too_short:
            raise ConfigError(drafted.too_short)
        return drafted.config
    for name, is_given in (("tasks", bool(tasks)), ("minutes", minutes is not None)):
        if is_given:
            raise ConfigError(
                f"expected a store with {name}, found a configuration, which has its own; leave "
                f"{name} out, or call init with it"
            )
    if isinstance(config, Draft):
        return config.config
    return config if isinstance(config, Config) else load(os.fspath(config))


def open(run: str | os.PathLike[str]) -> Run:  # noqa: A001
    """Opens a run, finished or not.

    Args:
        run: The folder of the run.

    Raises:
        CheckpointError: The folder holds no run.

    Example:
        >>> confluence.open("runs/1").metrics  # doctest: +SKIP
    """
    return Run(run)


def compare_baselines(
    store: str | os.PathLike[str], task: str, *, visible_until: str | None = None
) -> list[Baseline]:
    """Scores baselines on a task: its labels repeated, and boosting over the seed's row.

    Args:
        store: The store, or its folder.
        task: The task, as "task" or "database/task".
        visible_until: Let no seed know anything later than this time.

    Returns:
        The metrics of each baseline on the splits val and test.

    Raises:
        ConfigError: There is no such task, a split has no label, or scikit-learn is not installed.

    Example:
        >>> confluence.compare_baselines("shop.store", "churn")  # doctest: +SKIP
    """
    if visible_until is not None:
        times.check_given("visible_until", visible_until)
    data = Data(stores=(os.fspath(store),), tasks=(task,), visible_until=visible_until or "")
    settings = Config(data=data)
    with open_sampler(data, settings.run, Processes()) as sampler:
        names = sampler.tasks
    stores = [headwater.Store(store)]
    (found,) = evaluation.find_tasks(names, stores)
    return baselines.compare(settings, stores, found)


def predict(
    run: str | os.PathLike[str],
    task: str,
    seeds: Sequence[tuple[str | tuple[str, ...], str | None]],
    *,
    checkpoint: Literal["best", "latest"] = "best",
    stores: Sequence[str | os.PathLike[str]] = (),
) -> list[Prediction]:
    """Predicts a task's target for chosen rows and observation times; for frames see `Run.predict`.

    Warns of observation times that are earlier than all seeds, or later than all data.

    Args:
        run: The run, or its folder.
        task: The task, as "task" or "database/task".
        seeds: For each prediction the key of the anchor's row, a tuple if the key has several
            columns, and the observation time, such as "2024-05-31 12:00:00". A task that sees
            everything takes None as the time.
        checkpoint: The best one by validation loss, or the latest.
        stores: The stores, or their folders; default: where they were during training.

    Returns:
        For each seed the value, in the units of the data, and the probability that it is NULL; for
        a number or a time the ends of an interval that should hold 90 % of the labels, too.

    Raises:
        ConfigError: There is no such task, a seed lacks the observation time it needs, or its row
            did not exist then.
        CheckpointError: There is no checkpoint, or a store is not the one of the training.
        HeadwaterError: There is no such row.

    Example:
        >>> confluence.predict("runs/1", "churn", [("17", "2024-05-31")])  # doctest: +SKIP
        [Prediction(value='0.307342', null=0.0012, low=None, high=None)]
    """
    set_deterministic_flags()
    rows = [Seed(key if isinstance(key, tuple) else (key,), time) for key, time in seeds]
    with (
        status.emptied_at_end(),
        assembly.open_run(Path(run), checkpoint, stores, needs_task=True) as (parts, trained),
    ):
        found = parts.task(task)
        prediction.check_seeds(found, rows)
        prediction.check_rows(anchors.of_task(parts.stores[found.store], found), rows)
        warning = time_range.warning(parts, found, [seed.time for seed in rows])
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        ends = intervals.of_run(Path(run), [of.step for of in trained], found)
        if ends.warning is not None:
            warnings.warn(ends.warning, stacklevel=2)
        return prediction.predict_seeds(parts, [of.params for of in trained], ends, rows)
