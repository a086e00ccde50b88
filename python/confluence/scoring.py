"""The evaluation of a run: whole splits beside the baselines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from confluence import (
    answers,
    assembly,
    choices,
    evaluation,
    intervals,
    members,
    report,
    run_folder,
    status,
)
from confluence.intervals import Intervals
from confluence.results import Results
from confluence.xla_flags import set_deterministic_flags
from headwater._headwater import read_file
from headwater.sampler import Split


def evaluate(
    run: str | os.PathLike[str],
    *,
    splits: Sequence[Split] = ("test",),
    checkpoint: Literal["best", "latest"] = "best",
    stores: Sequence[str | os.PathLike[str]] = (),
    visible_until: str | None = None,
    out: str | os.PathLike[str] | None = None,
    by: answers.Period | None = None,
    relations: bool = False,
) -> Results:
    """Scores a trained model on whole splits, beside the baselines.

    Args:
        run: The run, or its folder.
        splits: Some of "train", "val" and "test".
        checkpoint: The best one by validation loss, or the latest.
        stores: The stores, or their folders, in their order; default: where they were during
            training.
        visible_until: Let no context know anything later than this time; default: the run's own.
        out: A .csv or .parquet file to write: key, observation time, prediction and label of each
            seed with a label, and the interval around the prediction of a number or a time.
        by: Score the seeds of each "day", "week", "month", "quarter" or "year" of the observation
            times as well.
        relations: Score the splits again with each relation hidden from the contexts, which tells
            what the model uses. The results and the report of the run keep it, if the checkpoint
            and the contexts are theirs.

    Returns:
        The metrics of each task and split, beside the baselines; a notebook shows them as a table.

    Raises:
        CheckpointError: There is no checkpoint, or a store is not the one of the training.
        ConfigError: The file cannot be written, a word is none of those that are accepted, or the
            run has no task for `out`, `by` or `relations`.

    Example:
        >>> confluence.evaluate("runs/1", splits=["val", "test"])  # doctest: +SKIP
    """
    set_deterministic_flags()
    choices.check_splits(splits)
    if by is not None:
        choices.check("by", by, answers.PERIODS)
    if out is not None:
        answers.check_file(Path(out))
    given: list[answers.Answers] = []
    needs_task = out is not None or by is not None or relations
    with (
        status.emptied_at_end(),
        assembly.open_run(Path(run), checkpoint, stores, visible_until, needs_task=needs_task) as (
            parts,
            trained,
        ),
    ):

        def keep(
            task: evaluation.Task, split: Split, scores: evaluation.Scores, found: Intervals
        ) -> None:
            if out is not None or by is not None:
                given.append(answers.of_split(parts, scores, task, split, found))

        steps = [of.step for of in trained]
        tasks = parts.results(
            [of.params for of in trained],
            splits,
            with_boosting=parts.settings.run.boosting,
            with_relations=relations,
            recorded=lambda task: intervals.of_run(Path(run), steps, task),
            keep=keep,
        )
        if out is not None:
            answers.write(Path(out), parts, given)
        masked = parts.masked_results([of.params for of in trained], splits)
        folders = members.folders(Path(run), parts.settings)
        results = Results(
            steps[0] if len(steps) == 1 else None,
            tasks,
            report.training_cpu_seconds(folders),
            report.early_stops(folders),
            steps if len(steps) > 1 else [],
            {
                f"{of.task.name}, {of.split}": answers.by_period(of, by)
                for of in given
                if by is not None
            },
            masked,
        )
        if visible_until is None:
            names = [task.name for task in parts.tasks]
            _add_to_run(Path(run), results, names, folders)
        return results


def _add_to_run(run: Path, results: Results, tasks: Sequence[str], folders: Sequence[Path]) -> None:
    """Adds to the results and the report of a run what its evaluation found beyond them."""
    path = run / "results.json"
    if not path.exists():
        return
    more = Results.from_dict(json.loads(read_file(path))).with_more(results)
    if more is None:
        return
    try:
        report.write(run, more, tasks, folders)
        run_folder.write_json(path, more.to_dict())
    except OSError as error:
        print(f"confluence: the results of {run} stay as they are: {error}", file=sys.stderr)
