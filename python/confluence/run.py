"""A run, finished or not: its metrics and curves, and what can be asked of its model."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import headwater
from confluence import (
    answers,
    assembly,
    config,
    drawing,
    frames,
    intervals,
    members,
    report,
    scoring,
    status,
    training,
)
from confluence.checkpoint import CheckpointError
from confluence.config import ConfigError
from confluence.parallel import Processes
from confluence.results import Results
from confluence.xla_flags import set_deterministic_flags
from headwater._headwater import read_file
from headwater.sampler import Split


class Run:
    """A run in its folder; `confluence.train` returns one, and `confluence.open` opens one.

    A run is also a path: what takes its folder takes the run itself. A notebook shows its metrics
    beside the baselines.

    Args:
        path: The folder of the run.

    Attributes:
        path: The folder of the run.
        config: The configuration of the run.

    Raises:
        CheckpointError: The folder holds no run.

    Example:
        >>> run = confluence.open("runs/1")  # doctest: +SKIP
        >>> pandas.DataFrame(run.metrics)  # doctest: +SKIP
        >>> run.predict(customers, at="2024-05-31")  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        file = self.path / "config.toml"
        if not file.exists():
            raise CheckpointError(
                f"expected the folder of a run, found no config.toml in {self.path}; name the "
                "folder that was `out` of the training"
            )
        self.config: config.Config = config.load_run(self.path)

    @property
    def results(self) -> Results | None:
        """The results of the training, with everything in `results.json`; None before its end."""
        path = self.path / "results.json"
        return Results.from_dict(json.loads(read_file(path))) if path.exists() else None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A row for each metric, for any library of frames: `pandas.DataFrame(run.metrics)`.

        The keys of a row are task, split, model ("confluence" or a baseline), metric and value.
        There is no row before the training has ended.
        """
        found = self.results
        return [] if found is None else found.records

    @property
    def history(self) -> list[dict[str, Any]]:
        """A row for each step and each evaluation of the validation split: the loss curve.

        The keys of a row are member (from 0, always 0 for a run without members), step, task,
        split and loss.
        """
        folders = members.folders(self.path, self.config)
        return [
            {
                "member": number,
                "step": record["step"],
                "task": record["task"],
                "split": record.get("split", "train"),
                "loss": math.nan if record["loss"] is None else record["loss"],
            }
            for number, folder in enumerate(folders)
            for record in report.read_log(folder)
            if "loss" in record
        ]

    @cached_property
    def tasks(self) -> list[str]:
        """The names of the tasks, as "database/task"."""
        names = list(self.config.data.tasks)
        stores = assembly.open_stores(self.config)
        known = [
            f"{store.metadata()['database']}/{task}" for store in stores for task in store.tasks
        ]
        wanted = [name for name in known if name in names or name.partition("/")[2] in names]
        return wanted if names or self.config.data.pools else known

    @property
    def report(self) -> Path:
        """The page with metrics, curves and contexts, written when the training ends."""
        return self.path / "report.html"

    def resume(self) -> Run:
        """Continues the training from the newest checkpoint, with the run's own configuration.

        Returns:
            The run itself, whose training has ended.

        Raises:
            CheckpointError, TrainingError: The message says what to do.
            Interrupted: SIGINT or SIGTERM came; the run can be resumed.

        Example:
            >>> confluence.open("runs/1").resume()  # doctest: +SKIP
        """
        set_deterministic_flags()
        with status.emptied_at_end():
            training.train(self.config, self.path, Processes.launched(), resume=True)
        return self

    def evaluate(
        self,
        splits: Sequence[Split] = ("test",),
        *,
        checkpoint: Literal["best", "latest"] = "best",
        stores: Sequence[str | os.PathLike[str]] = (),
        visible_until: str | None = None,
        out: str | os.PathLike[str] | None = None,
        by: answers.Period | None = None,
        relations: bool = False,
    ) -> Results:
        """Scores whole splits beside the baselines, as `confluence.evaluate` does.

        Args:
            splits: Some of "train", "val" and "test".
            checkpoint: The best one by validation loss, or the latest.
            stores: The stores, or their folders, in their order; default: where they were during
                training.
            visible_until: Let no context know anything later than this time; default: the run's
                own.
            out: A .csv or .parquet file to write, with the prediction and the label of each seed.
            by: Score the seeds of each "day", "week", "month", "quarter" or "year" as well.
            relations: Score the splits again with each relation hidden, which tells what the model
                uses: `pandas.DataFrame(results.tasks["shop/churn"]["test"]["relations"])`.

        Returns:
            The metrics of each task and split; a notebook shows them as a table.

        Raises:
            CheckpointError: There is no checkpoint, or a store is not the one of the training.
            ConfigError: The file cannot be written, or a word is none of those that are accepted.

        Example:
            >>> run.evaluate(["val", "test"]).tasks  # doctest: +SKIP
        """
        return scoring.evaluate(
            self.path, splits=splits, checkpoint=checkpoint, stores=stores,
            visible_until=visible_until, out=out, by=by, relations=relations,
        )  # fmt: skip

    def predict(
        self,
        frame: Any,
        task: str | None = None,
        *,
        key: str | Sequence[str] = (),
        time: str | None = None,
        at: Any | None = None,
        checkpoint: Literal["best", "latest"] = "best",
        stores: Sequence[str | os.PathLike[str]] = (),
    ) -> Any:
        """Predicts a task's target for each row of a frame.

        Warns of keys that the store does not have, of rows that did not exist at their observation
        time, and of observation times that are earlier than all seeds, or later than all data.

        Args:
            frame: A frame of pandas or Polars, or a table with an Arrow stream, as pyarrow's. One
                row is one question: the key of a row of the task's anchor, and an observation time.
                Further columns are kept.
            task: The task, as "task" or "database/task"; default: the only one.
            key: The column of the key, or the columns of a composite one; default: the names of the
                anchor's key.
            time: The column of the observation times, which are UTC; default: "obs_time".
            at: One observation time for all rows, such as "2024-05-31", in place of a column. An
                integer, here or in the column, is microseconds since 1970; one before 1980 is
                refused, since 2023 is rather a year.
            checkpoint: The best one by validation loss, or the latest.
            stores: The stores, or their folders; default: where they were during training.

        Returns:
            The same kind of frame with the same rows in the same order. Its further columns are
            `prediction` (a probability for a boolean, a number, the name of a category, or a time)
            and `null_probability`. For a number or a time, `prediction_low` and `prediction_high`
            are the ends of an interval that should hold 90 % of the labels, NULL if the run has no
            intervals. All are NULL where the store does not have the key, or the row did not exist
            at its time. A predicted time beyond the year 290,000 is NULL, too.

        Raises:
            ConfigError: There is no such task, the run has none, or a column is missing or there
                already.
            CheckpointError: There is no checkpoint, or a store is not the one of the training.

        Example:
            >>> run.predict(pandas.DataFrame({"id": [17, 4]}), at="2024-05-31")  # doctest: +SKIP
               id  prediction  null_probability
            0  17    0.307342            0.0012
            1   4    0.811020            0.0009
        """
        wanted = frames.Wanted((key,) if isinstance(key, str) else tuple(key), time, at)
        set_deterministic_flags()
        with (
            status.emptied_at_end(),
            assembly.open_run(self.path, checkpoint, stores, needs_task=True) as (parts, trained),
        ):
            names = [of.name for of in parts.tasks]
            if task is None and len(names) != 1:
                raise ConfigError(
                    "expected the task to predict, found none; set task to one of "
                    f"{', '.join(names)}"
                )
            asked = parts.tasks[0] if task is None else parts.task(task)
            found = intervals.of_run(self.path, [of.step for of in trained], asked)
            return frames.predict(parts, [of.params for of in trained], found, frame, wanted)

    def draw(self, task: str, seed_index: int) -> headwater.Page:
        """Draws the context of a seed as the model sees it, with the run's own settings.

        Args:
            task: The task, as "task" or "database/task".
            seed_index: The number of the seed in the task, counted from 0.

        Returns:
            The context as a page, which a notebook shows in a frame, and as text.

        Raises:
            HeadwaterError: There is no such task or seed.

        Example:
            >>> run.draw("churn", 0)  # doctest: +SKIP
        """
        return drawing.draw(self.config, task, seed_index)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __repr__(self) -> str:
        found = self.results
        return f"<run {self.path}: {self._state()}>" + ("" if found is None else f"\n{found}")

    def _repr_html_(self) -> str:
        found = self.results
        title = f"<p><b>{html.escape(str(self.path))}</b>: {html.escape(self._state())}"
        if found is None:
            return f"{title}; continue with <code>run.resume()</code></p>"
        link = html.escape(self.report.as_posix(), quote=True)
        return f'{title}, <a href="{link}">report</a></p>\n{found._repr_html_()}'

    def _state(self) -> str:
        if self.results is not None:
            return "finished"
        step = max((record["step"] for record in self.history), default=0)
        return f"not finished, step {step} of {self.config.optimizer.steps}"
