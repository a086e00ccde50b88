"""The draft of a configuration, from what contexts hold and how fast this machine is."""

from __future__ import annotations

import dataclasses
import difflib
import html
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

import headwater
from confluence import config, drawing, epochs, evaluation, pace, speed, status, widths
from confluence.config import ConfigError
from confluence.contexts import PARENT
from confluence.feed import open_sampler
from confluence.pace import Pace, SeedCounts
from confluence.parallel import Processes
from confluence.status import StatusLine
from confluence.xla_flags import set_deterministic_flags

# What `minutes` is by default.
MINUTES = 12.0
_LEAST_MINUTES, _MOST_MINUTES = 0.1, 10_080.0
# The cells of a context for which 6 minutes on a CPU are enough. A step takes more than twice as
# long for twice the cells, and longer contexts want more steps.
_CELLS, _CELLS_MINUTES, _CELLS_EXPONENT = 128, 6.0, 0.6
_LEAST_CELLS, _MOST_CELLS = 48, 512
# A step of so many times the cells takes so many times the seconds, to this power.
_SECONDS_EXPONENT = 1.2
_CELLS_ON_ACCELERATOR = 1024
# The most relations without a row that a line of a summary names.
_NAMES_MAX = 12
_ROLES = {
    "history": "the seed's own",
    "detail": "with each row of the seed's own",
    "sibling": "other children of a parent",
    "labels": "labels of a task that this one does not learn",
    "unreached": "not reached",
}


@dataclasses.dataclass(frozen=True, repr=False)
class Draft:
    """A configuration for a store, with what was measured for it.

    Attributes:
        config: The configuration.
        summary: Lines on seeds, epochs, rows, cells and minutes.
        shape: The widths, and the contexts that they make.
        too_short: Why a training of so few steps is not worth its minutes, and what to do; empty if
            it is.
    """

    config: config.Config
    summary: Sequence[str]
    shape: widths.Shape
    too_short: str = ""

    def draw(self, task: str, seed_index: int) -> headwater.Page:
        """Draws the context of a seed as a model of this configuration sees it.

        Args:
            task: The task, as "task" or "database/task".
            seed_index: The number of the seed in the task, counted from 0.

        Returns:
            The context as a page, which a notebook shows in a frame, and as text.

        Raises:
            HeadwaterError: There is no such task or seed.

        Example:
            >>> confluence.init("shop.store", "churn").draw("churn", 0)  # doctest: +SKIP
        """
        return drawing.draw(self.config, task, seed_index)

    def __repr__(self) -> str:
        return "\n".join(self.summary)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.to_toml())}</pre>"

    def to_toml(self) -> str:
        """Returns the text of a file that `load` reads back, with the summary as its first lines.

        Lines with the word "machine" differ from machine to machine, and a little each time.
        """
        defaults = config.Config().to_dict()
        lines = [*(f"# {line}" for line in self.summary), ""]
        for section, fields in self.config.to_dict().items():
            lines.append(f"[{section}]")
            for key, value in fields.items():
                if key != "child_widths" and value != defaults[section][key]:
                    comment = _COMMENTS.get(f"{section}.{key}")
                    lines.append(
                        f"{key} = {config.toml_value(value)}{f'  # {comment}' if comment else ''}"
                    )
            lines.append("")
            if section == "data":
                lines += [*self._child_widths(), ""]
        return "\n".join(lines)

    def _child_widths(self) -> list[str]:
        lines = [
            f"{config.toml_value(of.relation.name)} = {of.width}  # {_ROLES[of.role]}"
            for of in self.shape.widths
        ]
        return ["[data.child_widths]", *lines] if lines else []


_FROM_SPEED = "from the speed of this machine"
_COMMENTS = {
    "optimizer.steps": _FROM_SPEED,
    "optimizer.warmup_steps": _FROM_SPEED,
    "run.evaluate_every": _FROM_SPEED,
    "run.evaluate_batches": _FROM_SPEED,
    "run.checkpoint_every": _FROM_SPEED,
    "model.epochs": "whether the model knows absolute times; the reason is above",
    "optimizer.patience": "evaluations without a better validation loss",
}


def init(
    store: str | os.PathLike[str],
    tasks: str | Sequence[str],
    minutes: float = MINUTES,
) -> Draft:
    """Drafts a configuration that trains in about `minutes` on this machine.

    Counts the contexts of 1,000 train seeds, compiles the model, and measures a few steps. What
    the model learns from (widths, cells, rows, layers) depends on the store, the tasks and the
    minutes; the number of steps depends on the machine, too.

    Args:
        store: The store, a `headwater.Store` or its folder.
        tasks: The task to train on, as "task" or "database/task", or several.
        minutes: How long drafting and training may take, 0.1 to 10,080.

    Returns:
        The configuration, with what was measured for it; `confluence.train` takes it as it is.

    Raises:
        ConfigError: There is no such task, it has no train seeds, or the minutes are out of range.
            Minutes for too few steps are no error: `too_short` of the draft says so.
        HeadwaterError: The store cannot be opened.

    Example:
        >>> draft = confluence.init("shop.store", "churn", minutes=6)  # doctest: +SKIP
        >>> confluence.train(draft, "runs/1")  # doctest: +SKIP
    """
    with status.emptied_at_end():
        return _init(store, [tasks] if isinstance(tasks, str) else tasks, minutes)


def _init(store: str | os.PathLike[str], tasks: Sequence[str], minutes: float) -> Draft:
    start = time.perf_counter()
    set_deterministic_flags()
    line = StatusLine()
    _check_minutes(minutes)
    line.show("reading the store")
    opened = _open(store)
    metadata = opened.metadata()
    _check_tasks(tasks, metadata)
    is_cpu = jax.default_backend() == "cpu"
    settings = config.load("cpu-small" if is_cpu else "base")
    data = dataclasses.replace(
        settings.data, stores=(os.fspath(store),), tasks=tuple(tasks), children="latest"
    )
    counts = _seed_counts(data, metadata)
    shape = widths.choose(data, metadata, _most_cells(minutes, is_cpu), line.show)
    line.show("reading the labels")
    advice = epochs.advise(dataclasses.replace(settings, data=shape.data), [opened])
    # Decided here, so that a run of this configuration needs nothing else compiled.
    model = dataclasses.replace(settings.model, epochs=epochs.decide(advice))
    settings = dataclasses.replace(settings, model=model, data=shape.data)
    found = speed.measure(settings)
    spent, batch_size = time.perf_counter() - start, settings.data.batch_size
    chosen = pace.choose(minutes * 60, spent, found, counts, batch_size)
    settings = dataclasses.replace(
        settings,
        optimizer=dataclasses.replace(
            settings.optimizer, steps=chosen.steps, warmup_steps=chosen.warmup_steps,
            patience=chosen.patience,
        ),
        run=dataclasses.replace(
            settings.run, evaluate_every=chosen.evaluate_every,
            evaluate_batches=chosen.evaluate_batches, checkpoint_every=chosen.checkpoint_every,
        ),
    )  # fmt: skip
    summary = [
        f"Written by: {_command(store, tasks, minutes)}",
        *_seed_lines(counts),
        *_context_lines(shape, metadata),
        epochs.decision(advice),
        *chosen.lines(found),
    ]
    too_short = ""
    if chosen.is_too_short:

        def choose_for(more: float) -> Pace:
            # More minutes have longer contexts, too, if the rows want them.
            limit = _most_cells(minutes, is_cpu)
            is_limited = shape.data.sequence_length >= limit
            longer = _most_cells(more, is_cpu) / limit if is_limited else 1.0
            return pace.choose(
                more * 60, spent, found.slower(longer**_SECONDS_EXPONENT), counts, batch_size
            )

        enough = pace.enough_minutes(minutes, choose_for, _MOST_MINUTES)
        too_short = _too_short(chosen, list(counts), minutes, enough)
        summary.append(f"Too few minutes on this machine: {too_short}.")
    return Draft(settings, summary, shape, too_short)


def _too_short(chosen: Pace, tasks: Sequence[str], minutes: float, enough: float) -> str:
    return (
        f"expected minutes for at least {chosen.sensible_steps:,} steps of {', '.join(tasks)}, "
        f"found {pace.in_minutes(minutes, 'g')}, time for {chosen.steps} steps "
        f"({chosen.epochs:.2g} epochs) on this machine; set about "
        f"{pace.in_minutes(enough, ',g')}, or train so few steps all the same with "
        f"--set optimizer.steps={chosen.steps}, in Python with train(init(...), ...)"
    )


def _check_minutes(minutes: float) -> None:
    if not _LEAST_MINUTES <= minutes <= _MOST_MINUTES:
        raise ConfigError(
            f"expected {_LEAST_MINUTES:g} to {_MOST_MINUTES:,.0f} minutes (a week), found "
            f"{minutes:g}; set --minutes"
        )


def _open(store: str | os.PathLike[str]) -> headwater.Store:
    if not Path(store).exists():
        raise ConfigError(
            f"expected a store at {os.fspath(store)}, found nothing; make a store with `headwater "
            "prepare`"
        )
    if (Path(store) / "config.toml").exists():
        run = shlex.quote(os.fspath(store))
        raise ConfigError(
            f"expected a store, found the run {run}; name a store, or start from the run with "
            f"`confluence train --from {run} --out FOLDER`"
        )
    return headwater.Store(store)


def _check_tasks(tasks: Sequence[str], metadata: Mapping[str, Any]) -> None:
    database = metadata["database"]
    known = [task["name"] for task in metadata["tasks"]]
    if not known:
        raise ConfigError(
            f"expected a store with a task, found none in {database}; add a [[task]] to its "
            "schema and prepare it again; without a task, data.pools and data.mask_share of a "
            "configuration train on masked cells"
        )
    if not tasks:
        raise ConfigError(
            f"expected the task to train on, found none; set --task to one of {', '.join(known)}"
        )
    for task in tasks:
        if task.removeprefix(f"{database}/") not in known:
            near = difflib.get_close_matches(task, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
            raise ConfigError(f"unknown task {task!r} in {database}; {hint}")


def _seed_counts(data: config.Data, metadata: Mapping[str, Any]) -> SeedCounts:
    """Returns the seeds of each task in each split."""
    with open_sampler(data, config.Run(prefetch=0), Processes()) as sampler:
        evaluation.find_tasks(sampler.tasks, [headwater.Store(data.stores[0])])
        counts = {split: sampler.seed_counts(split) for split in pace.SPLITS}
    found = {
        name: {split: counts[split][name] for split in pace.SPLITS} for name in counts["train"]
    }
    for name, of_task in found.items():
        if not of_task["train"]:
            raise ConfigError(
                f"expected train seeds of the task {name}, found none ({of_task['val']:,} val, "
                f"{of_task['test']:,} test); add train seeds to its source, or name another task"
            )
    return found


def _most_cells(minutes: float, is_cpu: bool) -> int:
    if not is_cpu:
        return _CELLS_ON_ACCELERATOR
    cells = _CELLS * (minutes / _CELLS_MINUTES) ** _CELLS_EXPONENT
    return round(min(max(cells, _LEAST_CELLS), _MOST_CELLS) / 8) * 8


def _command(store: str | os.PathLike[str], tasks: Sequence[str], minutes: float) -> str:
    options = [part for task in tasks for part in ("--task", task)]
    return shlex.join(
        ["confluence", "init", os.fspath(store), *options, "--minutes", f"{minutes:g}"]
    )


def _seed_lines(counts: SeedCounts) -> list[str]:
    return [
        f"{name}: {of['train']:,} train, {of['val']:,} val and {of['test']:,} test seeds."
        for name, of in counts.items()
    ]


def _context_lines(shape: widths.Shape, metadata: Mapping[str, Any]) -> list[str]:
    held, cells = shape.contexts, shape.data.sequence_length
    lines = [
        f"A context has at most {cells} cells and {shape.data.max_rows} rows, by the contexts of "
        f"{len(held.rows):,} train seeds.",
        f"Cut: {shape.cut:.0%} of the contexts. Padding: {1 - held.cells.mean() / cells:.0%} of "
        "the cells.",
        "Rows of a context, in the mean:",
    ]
    for number, of in enumerate(shape.widths):
        if of.width:
            rows = held.children[:, number].sum(axis=1).mean()
            lines.append(f"  {rows:.1f} by {of.relation.name} (width {of.width})")
    parents = held.reached[:, :, PARENT].sum(axis=2).mean(axis=0)
    lines += [
        f"  {rows:.1f} of {table['name']} as parents"
        for table, rows in zip(metadata["tables"], parents, strict=True)
        if rows >= 0.05
    ]
    others = [of.relation.name for of in shape.widths if of.role == "labels"]
    named = {*shape.without_room, *others}
    left_out = [
        of.relation.name for of in shape.widths if not of.width and of.relation.name not in named
    ]
    return [
        *lines,
        *left_out_lines(left_out),
        *without_room_lines(shape.without_room, cells),
        *other_labels_lines(others),
    ]


def without_room_lines(relations: Sequence[str], cells: int) -> list[str]:
    """Names the relations of the seed's own history of which no row fits into a context."""
    if not relations:
        return []
    names = ", ".join(relations[:_NAMES_MAX])
    more = len(relations) - _NAMES_MAX
    return [
        f"Cut: {names}{f' and {more} more' if more > 0 else ''}: {cells} cells have no room for a "
        "row of each table of the seed's own history; set more minutes, or widths in "
        "data.child_widths."
    ]


def other_labels_lines(relations: Sequence[str]) -> list[str]:
    """Names the labels of other tasks, which bring no row."""
    if not relations:
        return []
    return [
        f"Left out: {', '.join(relations)}, the labels of tasks that this configuration does not "
        "train; set widths in data.child_widths to show them."
    ]


def left_out_lines(relations: Sequence[str]) -> list[str]:
    """Names the relations that bring no row, or counts them where their names fill a screen."""
    if not relations:
        return []
    if len(relations) <= _NAMES_MAX:
        return [f"  none by {', '.join(relations)}"]
    return [f"  none by {len(relations)} other relations (width 0 in data.child_widths)"]
