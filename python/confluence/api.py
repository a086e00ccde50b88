"""Training, evaluation and prediction as functions; `confluence` exports them."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import headwater
from confluence import (
    answers,
    assembly,
    baselines,
    evaluation,
    members,
    memory,
    prediction,
    report,
    time_range,
    training,
)
from confluence.baselines import Baseline
from confluence.config import Config, Data
from confluence.draft import Draft, init
from confluence.feed import open_sampler
from confluence.parallel import Processes
from confluence.prediction import Prediction, Seed
from confluence.results import Results
from confluence.xla_flags import set_deterministic_flags
from headwater.sampler import Split

__all__ = [
    "Baseline",
    "Draft",
    "Prediction",
    "Results",
    "compare_baselines",
    "evaluate",
    "init",
    "predict",
    "train",
]


def train(
    config: Config,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    start_from: str | os.PathLike[str] | None = None,
    processes: Processes | None = None,
    profile: tuple[int, int] | None = None,
) -> Results:
    """Trains a model to its last step; the run is the folder `out`.

    The first Ctrl-C stops after the current step and writes a checkpoint; call it with `resume` to
    continue.

    Args:
        config: The configuration of the run.
        out: The folder of the run; it is created.
        resume: Continue the run in `out` from its newest checkpoint.
        start_from: The folder of another run, whose best checkpoint has the initial parameters; the
            model and the dimension of the stores' embeddings must be the same.
        processes: The processes of the run, and which one this is; default: this one alone.
        profile: The first and the last step to trace into the folder `profile` of the run.

    Returns:
        The metrics of the best checkpoint on the splits val and test, beside the baselines.

    Raises:
        ConfigError, CheckpointError, JoinError, TrainingError: The message says what to do.
        Interrupted: SIGINT or SIGTERM came; the run can be resumed.

    Example:
        >>> config = confluence.load("cpu-small", ["data.stores=shop.store"])  # doctest: +SKIP
        >>> confluence.train(config, "runs/1")  # doctest: +SKIP
    """
    set_deterministic_flags()
    memory.report_missing_tunables()
    if start_from is not None:
        # A run that is resumed keeps the digest: the parameters may have moved, but not changed.
        digest = config.optimizer.start_digest if resume else ""
        start = dataclasses.replace(
            config.optimizer, start_from=os.fspath(start_from), start_digest=digest
        )
        config = dataclasses.replace(config, optimizer=start)
    return training.train(
        config, Path(out), processes or Processes(), resume=resume, profile=profile
    )


def evaluate(
    run: str | os.PathLike[str],
    *,
    splits: Sequence[Split] = ("test",),
    checkpoint: Literal["best", "latest"] = "best",
    stores: Sequence[str] = (),
    visible_until: str | None = None,
    out: str | os.PathLike[str] | None = None,
    by: answers.Period | None = None,
) -> Results:
    """Scores a trained model on whole splits, beside the baselines.

    Args:
        run: The folder of the run.
        splits: Some of "train", "val" and "test".
        checkpoint: The best one by validation loss, or the latest.
        stores: Where the stores are now; default: where they were during training.
        visible_until: Let no context know anything later than this time; default: the run's own.
        out: A .csv or .parquet file to write: key, observation time, prediction and label of each
            seed with a label.
        by: Score the seeds of each "day", "week", "month", "quarter" or "year" of the observation
            times as well.

    Raises:
        CheckpointError: There is no checkpoint, or a store is not the one of the training.
        ConfigError: The file cannot be written.

    Example:
        >>> confluence.evaluate("runs/1", splits=["val", "test"])  # doctest: +SKIP
    """
    set_deterministic_flags()
    if out is not None:
        answers.check_file(Path(out))
    found: list[answers.Answers] = []
    with assembly.open_run(Path(run), checkpoint, stores, visible_until) as (parts, trained):

        def keep(task: evaluation.Task, split: Split, scores: evaluation.Scores) -> None:
            if out is not None or by is not None:
                found.append(answers.of_split(parts, scores, task, split))

        tasks = parts.results(
            [of.params for of in trained],
            splits,
            with_boosting=parts.settings.run.boosting,
            keep=keep,
        )
        if out is not None:
            answers.write(Path(out), parts, found)
        folders, steps = members.folders(Path(run), parts.settings), [of.step for of in trained]
        return Results(
            steps[0] if len(steps) == 1 else None,
            tasks,
            report.training_cpu_seconds(folders),
            report.early_stops(folders),
            steps if len(steps) > 1 else [],
            {
                f"{of.task.name}, {of.split}": answers.by_period(of, by)
                for of in found
                if by is not None
            },
        )


def compare_baselines(
    store: str | os.PathLike[str], task: str, *, visible_until: str | None = None
) -> list[Baseline]:
    """Scores baselines on a task: its labels repeated, and boosting over the seed's row.

    Args:
        store: The folder of the store.
        task: The task, as "task" or "database/task".
        visible_until: Let no seed know anything later than this time.

    Raises:
        ConfigError: There is no such task, a split has no label, or scikit-learn is not installed.

    Example:
        >>> confluence.compare_baselines("shop.store", "churn")  # doctest: +SKIP
    """
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
    stores: Sequence[str] = (),
) -> list[Prediction]:
    """Predicts a task's target for chosen rows and observation times.

    Warns of observation times that are earlier than all seeds, or later than all data.

    Args:
        run: The folder of the run.
        task: The task, as "task" or "database/task".
        seeds: For each prediction the key of the anchor's row, a tuple if the key has several
            columns, and the observation time, such as "2024-05-31 12:00:00". A task that sees
            everything takes None as the time.
        checkpoint: The best one by validation loss, or the latest.
        stores: Where the stores are now; default: where they were during training.

    Returns:
        For each seed the value, in the units of the data, and the probability that it is NULL.

    Raises:
        ConfigError: There is no such task, or a seed lacks the observation time it needs.
        CheckpointError: There is no checkpoint, or a store is not the one of the training.
        HeadwaterError: There is no such row.

    Example:
        >>> confluence.predict("runs/1", "churn", [("17", "2024-05-31")])  # doctest: +SKIP
        [Prediction(value='0.307342', null=0.0012)]
    """
    set_deterministic_flags()
    rows = [Seed(key if isinstance(key, tuple) else (key,), time) for key, time in seeds]
    with assembly.open_run(Path(run), checkpoint, stores) as (parts, trained):
        found = parts.task(task)
        prediction.check_seeds(found, rows)
        warning = time_range.warning(parts, found, [seed.time for seed in rows])
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        return prediction.predict_seeds(parts, [of.params for of in trained], found, rows)
