"""The command `confluence predict`.

What imports JAX or headwater is imported in the functions, so that --help is quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluence.anchors import Anchor
    from confluence.assembly import Assembly
    from confluence.evaluation import Task
    from confluence.intervals import Intervals
    from confluence.prediction import Prediction, Seed

DESCRIPTION = "predict for chosen rows and times, or for all rows at one time"
_EPILOG = """\
The prediction of a number or a time has the ends of an interval that should hold 90 % of the
labels, from the errors on the validation split. A boolean and a category have none.

Seeds whose key the store does not have, or whose row did not exist at their time, are listed on
standard error and left out. The exit status is 0 if there is at least one prediction, and 1 if
there is none.
"""
# More unknown keys are only counted.
_MOST_LISTED = 10


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what is asked for, and where the answers go."""
    verb.epilog = _EPILOG
    verb.add_argument("--task", required=True, help="task to predict, as TASK or DATABASE/TASK")
    asked = verb.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--seeds", type=Path, metavar="FILE",
        help="CSV file with a header: the columns of the anchor's key, then the observation time, "
        "which is empty for a task that sees everything",
    )  # fmt: skip
    asked.add_argument(
        "--at", metavar="TIME",
        help="predict at this time, such as 2026-01-01, for each row of the anchor that is visible "
        "then: that came to exist until then, or has no time of its own; the highest prediction "
        "comes first, categories in the order of the rows",
    )  # fmt: skip
    verb.add_argument(
        "--top", type=int, metavar="N",
        help="with --at: print only the N highest predictions; default: all",
    )  # fmt: skip
    verb.add_argument(
        "--out", type=Path, metavar="FILE", help="CSV file to write; default: standard output"
    )


def predict(args: argparse.Namespace) -> int:
    """Predicts for the seeds of a file, or for the rows that are visible at a time."""
    from confluence import assembly, intervals, outputs, prediction, time_range

    _check_options(args)
    if args.out is not None:
        outputs.check_new(args.out)
        outputs.check_parent(args.out)
    listed = None if args.seeds is None else prediction.read_seeds(args.seeds)
    with assembly.open_run(args.run_folder, args.checkpoint, args.store, needs_task=True) as (
        parts,
        trained,
    ):
        task, models = parts.task(args.task), [of.params for of in trained]
        if listed is not None:
            prediction.check_seeds(task, listed)
        parts.status.show(f"reading the times of the seeds of {task.name}")
        times = [args.at] if listed is None else [seed.time for seed in listed]
        if warning := time_range.warning(parts, task, times):
            _warn(parts, warning)
        found = intervals.of_run(args.run_folder, [of.step for of in trained], task)
        if found.warning:
            _warn(parts, found.warning)
        if listed is None:
            seeds, predictions = _ranked(parts, models, found, args.at, args.top)
        else:
            seeds = _known(parts, task, listed, args.seeds)
            predictions = prediction.predict_seeds(parts, models, found, seeds)
        parts.status.end()
        prediction.write_predictions(task, seeds, predictions, args.out)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    from confluence import prediction
    from confluence.config import ConfigError

    if args.out is not None and args.out.suffix == ".parquet":
        raise ConfigError(
            f"expected a CSV file for --out, found {args.out}; choose a file that ends in .csv"
        )
    if args.top is not None and args.at is None:
        raise ConfigError("expected --at TIME with --top, found none; add it, or leave --top out")
    if args.top is not None and args.top < 1:
        raise ConfigError(f"expected at least 1 for --top, found {args.top}")
    if args.at is not None and not prediction.is_time(args.at):
        raise ConfigError(f"expected a time such as 2026-01-01 for --at, found {args.at!r}")


def _known(parts: Assembly, task: Task, seeds: Sequence[Seed], path: Path) -> Sequence[Seed]:
    """Returns the seeds whose row exists at their time; lists the others on standard error.

    Raises:
        ConfigError: There is no such seed.
    """
    from confluence import anchors
    from confluence.config import ConfigError

    if not seeds:
        raise ConfigError(f"{path}: expected at least one seed after the header, found none")
    anchor = anchors.of_task(parts.stores[task.store], task)
    parts.status.show("looking up the keys")
    found = anchor.look_up([seed.key for seed in seeds], [seed.time for seed in seeds])
    lines = []
    if found.unknown:
        lines.append(_unknown_keys(anchor, seeds, found.unknown))
    if found.absent:
        # The header is line 1 of the file.
        lines.append(anchors.absent_text(found.absent, len(seeds), anchor.table, "line", 2))
    if not found.known:
        raise ConfigError(f"no seed has a prediction: {'; '.join(lines)}")
    for line in lines:
        _warn(parts, f"{line}; they have no prediction")
    return [seeds[number] for number in found.known]


def _unknown_keys(anchor: Anchor, seeds: Sequence[Seed], unknown: Sequence[int]) -> str:
    # The header is line 1 of the file.
    listed = [f'"{"|".join(seeds[at].key)}" (line {at + 2})' for at in unknown[:_MOST_LISTED]]
    if len(unknown) > _MOST_LISTED:
        listed.append(f"and {len(unknown) - _MOST_LISTED:,} more")
    return (
        f'{len(unknown):,} of {len(seeds):,} keys are in no row of table "{anchor.table}": '
        f'{", ".join(listed)}; a key looks like "{anchor.key(0)}"'
    )


def _ranked(
    parts: Assembly, models: Sequence[Any], intervals: Intervals, at: str, top: int | None
) -> tuple[Iterable[Seed], Iterable[Prediction]]:
    """Returns the rows that are visible at a time and their predictions, the highest first."""
    from confluence import prediction, ranking

    found = ranking.predict_visible(parts, models, intervals.task, at, top)
    if found.warning:
        _warn(parts, found.warning)
    rows, values, nulls = found.ranked
    return (
        (prediction.Seed((found.anchor.key(row) or "",), at) for row in rows),
        prediction.as_predictions(parts, intervals, values, nulls),
    )


def _warn(parts: Assembly, message: str) -> None:
    parts.status.end()
    print(f"confluence: {message}", file=sys.stderr)
