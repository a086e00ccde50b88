"""The `confluence` command."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from confluence import cli_draft, cli_inspect, cli_predict
from confluence.compile_cache import use_compile_cache
from confluence.memory import restart_with_tunables
from confluence.status import StatusLine
from confluence.xla_flags import set_deterministic_flags

if TYPE_CHECKING:
    from confluence.config import Config
    from confluence.parallel import Processes

_DESCRIPTION = """\
Trains a relational transformer on a store that `headwater prepare` made.

  confluence train my.db --task churn --minutes 12 --out runs/0     (chooses the configuration)
  confluence init my.db --task churn --minutes 12 --out my.toml     (writes it, to be changed)
  confluence train --config cpu-small --set data.stores=my.db --out runs/1
  confluence train --out runs/1 --resume     (also after a kill, or with another --processes)
  confluence train --from runs/1 --set data.tasks=other --out runs/2    (starts with its parameters)
  confluence train --config cpu-small --set data.stores=my.db --members 3 --out runs/3     (a mean)
  confluence evaluate runs/1 --split test
  confluence inspect my.toml --task churn --seed-index 0     (a context as the model sees it)

On Linux the command starts itself anew with GLIBC_TUNABLES for huge pages, which make steps on a
CPU faster and change no number; an empty GLIBC_TUNABLES in the environment turns that off. What it
compiles is kept in the user's cache folder; JAX_ENABLE_COMPILATION_CACHE=false turns that off.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    if arguments is None:
        signal.signal(signal.SIGINT, _exit_interrupted)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        print("confluence: interrupted", file=sys.stderr)
        return 130


def _exit_interrupted(*_: Any) -> NoReturn:
    """Ends the process at once; `train` replaces this while it has something to write.

    An exception is no way out: JAX swallows it in its callbacks, or aborts when it is raised while
    JAX is imported, and a regular exit waits for its threads or crashes in them.
    """
    print("confluence: interrupted", file=sys.stderr, flush=True)
    os._exit(130)


def _main(arguments: Sequence[str] | None) -> int:
    parser, verbs = _parser()
    given = sys.argv[1:] if arguments is None else arguments
    verb = next((of for of in given if not of.startswith("-")), None)
    if verb is not None and verb not in verbs:
        parser.error(_unknown_verb(verb, list(verbs)))
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        args.verb.error(_unknown_options(args.verb, unknown))
    if arguments is None:
        restart_with_tunables()
    _silence_orbax()
    set_deterministic_flags()
    use_compile_cache()
    # Tracing makes a million objects that stay; looking for cycles among them after each 700, as is
    # the default, took a tenth of the start.
    gc.set_threshold(50_000)
    # Imported here, so that --help is quick and needs no JAX.
    import headwater
    from confluence.checkpoint import CheckpointError
    from confluence.config import ConfigError
    from confluence.rollcall import JoinError
    from confluence.training import Interrupted, TrainingError

    expected = (ConfigError, CheckpointError, JoinError, TrainingError, headwater.HeadwaterError)
    try:
        return int(args.run(args))
    except BrokenPipeError:
        # Who reads the output wants no more of it: `confluence predict ... | head`. What is left in
        # the buffer would be written at the exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (*expected, OSError) as error:
        StatusLine().end()
        print(f"confluence: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"confluence: {error}", file=sys.stderr)
        return 130


def _unknown_options(verb: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Returns a message about options that a verb does not have, with the nearest that it has."""
    from confluence import choices

    known = [name for action in verb._actions for name in action.option_strings]
    hints = {of: choices.nearest(of.partition("=")[0], known) for of in unknown}
    meant = [f"did you mean {near} for {of}?" for of, near in hints.items() if near]
    return "; ".join([f"unrecognized arguments: {' '.join(unknown)}", *meant])


def _unknown_verb(found: str, known: Sequence[str]) -> str:
    """Returns a message about a word that is no verb, with the nearest one."""
    from confluence import choices

    near = choices.nearest(found, known)
    hint = f"; did you mean {near}?" if near else ""
    return f"expected a VERB, one of {', '.join(known)}, found {found!r}{hint}"


class _Version(argparse.Action):
    """Prints the version that `headwater --version` does, which has the name of its kernels."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        command = [sys.executable, "-m", "headwater", "--version"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        print(shown.replace("headwater", parser.prog, 1), end="")
        parser.exit()


def _silence_orbax() -> None:
    """Silences Orbax's log and warnings: an error is printed once, by this command.

    Orbax warns of options that are intended, and each of its tasks prints a traceback of its own
    when the disk is full, some of them after the error was raised.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)

    def unraisable(event: sys.UnraisableHookArgs) -> None:
        if str(event.exc_value) != "Event loop is closed":
            sys.__unraisablehook__(event)

    sys.unraisablehook = unraisable


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Returns the parser of the command, and those of its verbs."""
    parser = argparse.ArgumentParser(
        prog="confluence",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-V", "--version", action=_Version, nargs=0,
        help="show the version, and the kernels that this processor runs",
    )  # fmt: skip
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    init = _verb(
        verbs, "init", cli_draft.init,
        "write a configuration for a store, from its contexts and the speed of this machine",
    )  # fmt: skip
    init.add_argument("store", metavar="STORE", help="the store")
    cli_draft.add_options(init)
    init.add_argument(
        "--out", type=Path, metavar="FILE", help="TOML file to write; default: standard output"
    )

    presets = _verb(
        verbs, "presets", cli_draft.print_presets, "print the names of the presets, or one preset"
    )
    presets.add_argument("name", nargs="?", metavar="NAME", help="the preset to print")

    train = _verb(verbs, "train", _train, "train a model, or resume a run")
    train.add_argument(
        "store", nargs="?", metavar="STORE",
        help="a store to choose the configuration for, as `confluence init` does; default: the "
        "configuration of --config",
    )  # fmt: skip
    cli_draft.add_options(train)
    _add_config(train)
    train.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="the run's folder")
    train.add_argument(
        "--resume", action="store_true",
        help="continue from the newest checkpoint; default configuration: the run's own",
    )  # fmt: skip
    train.add_argument(
        "--from", type=Path, metavar="RUN", dest="start_from",
        help="start from the parameters of the best checkpoint of another run: to train it on, or "
        "on another task or store; default configuration: that run's",
    )  # fmt: skip
    train.add_argument(
        "--members", type=int, metavar="N",
        help="train N runs that differ in optimizer.seed, in FOLDER/member-0, FOLDER/member-1 and "
        "so on, one after the other, and average their predictions; evaluate and predict take "
        "FOLDER; default: one run, in FOLDER itself",
    )  # fmt: skip
    train.add_argument(
        "--processes", type=int, metavar="N",
        help="number of processes; default: those that mpirun, srun or torchrun started, or else 1",
    )  # fmt: skip
    train.add_argument(
        "--rank", type=int, metavar="R",
        help="rank of this process; default: that of the launcher, or else 0",
    )  # fmt: skip
    train.add_argument(
        "--coordinator", metavar="HOST:PORT",
        help="where rank 0 listens; required for several processes without a launcher",
    )  # fmt: skip
    train.add_argument(
        "--profile", metavar="A:B", help="trace the steps A to B into FOLDER/profile, for xprof"
    )

    evaluate = _verb(
        verbs, "evaluate", _evaluate, "score a run beside the baselines, boosting among them"
    )
    evaluate.add_argument("run_folder", type=Path, metavar="FOLDER", help="the run's folder")
    evaluate.add_argument(
        "--split", action="append", choices=("train", "val", "test"),
        help="split to score; repeatable; default: test",
    )  # fmt: skip
    evaluate.add_argument(
        "--out", type=Path, metavar="FILE",
        help=".csv or .parquet file to write: key, observation time, prediction and label of each "
        "seed; for a number or a time the ends of an interval that should hold 90 %% of the "
        "labels, too",
    )  # fmt: skip
    evaluate.add_argument(
        "--by", choices=("day", "week", "month", "quarter", "year"),
        help="score the seeds of each such period of the observation times as well",
    )  # fmt: skip
    evaluate.add_argument(
        "--relations", action="store_true",
        help="score the split again with each relation hidden from the contexts, which tells what "
        "the model uses; each relation takes as long as the split; the table is kept in "
        "results.json and report.html, too",
    )  # fmt: skip
    _add_checkpoint(evaluate)
    _add_visible_until(evaluate)

    predict = _verb(verbs, "predict", cli_predict.predict, cli_predict.DESCRIPTION)
    predict.add_argument("run_folder", type=Path, metavar="FOLDER", help="the run's folder")
    cli_predict.add_options(predict)
    _add_checkpoint(predict)

    inspect = _verb(verbs, "inspect", cli_inspect.inspect, cli_inspect.DESCRIPTION)
    cli_inspect.add_options(inspect)

    baselines = _verb(
        verbs, "baselines", _baselines,
        "score baselines on a task: labels repeated, and boosting over the seed's row, its "
        "aggregates and its last labels",
    )  # fmt: skip
    baselines.add_argument("store", type=Path, metavar="STORE", help="the store")
    baselines.add_argument(
        "--task", required=True, help="task to predict, as TASK or DATABASE/TASK"
    )
    _add_visible_until(baselines)

    bench = _verb(verbs, "bench", _bench, "measure sampling and computing, alone or together")
    _add_config(bench)
    bench.add_argument(
        "--steps", type=int, default=30, metavar="N", help="steps to measure; default: 30"
    )
    part = bench.add_mutually_exclusive_group()
    part.add_argument("--no-train", action="store_true", help="measure sampling alone")
    part.add_argument(
        "--synthetic-data", action="store_true", help="measure computing alone; needs no store"
    )

    smoke = _verb(verbs, "smoke", _smoke, "train on synthetic contexts for a minute, as a test")
    smoke.add_argument(
        "--attention", choices=("dense", "structured"), default="dense", help="default: dense"
    )
    return parser, verbs.choices


def _verb(verbs: Any, name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
    )
    verb.set_defaults(run=run, verb=verb)
    return verb


def _add_config(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--config", metavar="FILE", help="a TOML file, or a preset: base, cpu-small")
    verb.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", dest="settings",
        help="change a setting, such as data.sequence_length=96; repeatable",
    )  # fmt: skip


def _add_checkpoint(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--store", action="append", default=[], metavar="FOLDER",
        help="where the store is now; repeat it for several, in their order; default: where it was "
        "during training",
    )  # fmt: skip
    verb.add_argument(
        "--checkpoint", choices=("best", "latest"), default="best",
        help="best by validation loss, or latest; default: best",
    )  # fmt: skip


def _add_visible_until(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--visible-until", metavar="TIME",
        help="let no context know anything later than this, such as 2010-01-01",
    )  # fmt: skip


def _train(args: argparse.Namespace) -> int:
    from headwater._headwater import launched

    found = launched() if args.rank is None else None
    StatusLine(is_leader=(found[1] if found else args.rank or 0) == 0).show("starting")
    from confluence import api, config, run_folder, tables

    cli_draft.check_options(args)
    processes = _processes(args)
    if args.store is not None:
        api.check_is_alone(processes, args.store)
    profile = _steps_to_profile(args.profile)
    if args.store is None:
        settings = _loaded(args)
        if processes.rank == 0 and (advice := _inherited_limit(args, settings)):
            print(f"confluence: advice: {advice}", file=sys.stderr)
    else:
        config.check_settings(args.settings)
        run_folder.check_folder(args.out, resume=False)
        drafted = cli_draft.make_draft(args)
        changed = {_key_of(setting) for setting in args.settings}
        if drafted.too_short and "optimizer.steps" not in changed:
            raise config.ConfigError(drafted.too_short)
        print("\n".join(f"confluence: {line}" for line in drafted.summary[1:]), file=sys.stderr)
        settings = config.changed(drafted.config, args.settings)
    run = api.train(
        settings,
        args.out,
        resume=args.resume,
        start_from=args.start_from,
        processes=processes,
        profile=profile,
    )
    if processes.rank == 0:
        assert run.results is not None, "a training that ended has results"
        print(run.results.table(tables.terminal_width()))
        print(f"curves and contexts: {args.out / 'report.html'}")
    return 0


def _processes(args: argparse.Namespace) -> Processes:
    """Returns the processes that the options name, or else those that a launcher started."""
    from confluence import config, rollcall
    from confluence.parallel import Processes

    found = Processes()
    if args.processes != 1 and None in (args.processes, args.rank, args.coordinator):
        found = Processes.launched()
    count = found.count if args.processes is None else args.processes
    rank = found.rank if args.rank is None else args.rank
    if found.count not in (1, count):
        raise config.ConfigError(
            f"expected --processes {found.count}, as many as {found.launcher} started, or 1 to "
            f"train alone, found {count}"
        )
    if count > 1 == found.count:
        needed = {"--rank R": args.rank, "--coordinator HOST:PORT": args.coordinator}
        missing = [option for option, given in needed.items() if given is None]
        if missing:
            raise config.ConfigError(
                f"expected {' and '.join(missing)} with --processes {count}, because no launcher "
                "started this process, found none"
            )
    if args.coordinator is not None:
        rollcall.address(args.coordinator)
    if not 0 <= rank < count:
        raise config.ConfigError(f"expected a --rank from 0 to {count - 1}, found {rank}")
    return dataclasses.replace(found, count=count, rank=rank, coordinator=args.coordinator)


def _loaded(args: argparse.Namespace) -> Config:
    """Returns the configuration that is named, or that of the run to continue or start from."""
    from confluence import config

    defaults = [args.out] if args.resume else [args.start_from] if args.start_from else []
    of_runs = [run for run in defaults if (run / "config.toml").exists()]
    more = [] if args.members is None else [f"run.members={args.members}"]
    if of_runs and args.config is None:
        return config.load_run(of_runs[0], [*args.settings, *more])
    return config.load(args.config, [*args.settings, *more])


def _inherited_limit(args: argparse.Namespace, settings: Config) -> str | None:
    """Returns a line if tasks get the limit in time of the run to start from; None if they do not.

    A run that learns from masked cells has such a limit for the sake of later scores.
    """
    from confluence.config import has_tasks, toml_value

    limit = settings.data.visible_until
    is_given = any(_key_of(setting) == "data.visible_until" for setting in args.settings)
    is_inherited = args.start_from is not None and args.config is None and not args.resume
    if not (limit and has_tasks(settings.data) and is_inherited) or is_given:
        return None
    return (
        f"data.visible_until = {toml_value(limit)} is taken over from {args.start_from}: "
        "contexts show nothing later, and val and test seeds are scored as of that time; lift it "
        "with --set data.visible_until="
    )


def _key_of(setting: str) -> str:
    """Returns the key that a `--set` changes."""
    return setting.partition("=")[0].strip()


def _steps_to_profile(text: str | None) -> tuple[int, int] | None:
    from confluence.config import ConfigError

    if text is None:
        return None
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise ConfigError(f"expected two steps such as 100:110 for --profile, found {text!r}")
    return int(first), int(last)


def _evaluate(args: argparse.Namespace) -> int:
    from confluence import answers, api, calibration, hiding

    results = api.evaluate(
        args.run_folder,
        splits=args.split or ("test",),
        checkpoint=args.checkpoint,
        stores=args.store,
        visible_until=args.visible_until,
        out=args.out,
        by=args.by,
        relations=args.relations,
    )
    print(results)
    for more in (calibration.text(results.tasks), hiding.text(results.tasks)):
        if more:
            print(f"\n{more}")
    if results.periods:
        print(f"\n{answers.table(results.periods)}")
    return 0


def _baselines(args: argparse.Namespace) -> int:
    from confluence import api, baselines

    found = api.compare_baselines(args.store, args.task, visible_until=args.visible_until)
    print(baselines.table(found))
    return 0


def _bench(args: argparse.Namespace) -> int:
    from confluence import bench, config

    settings = config.load(args.config, args.settings)
    if args.steps < 1:
        raise config.ConfigError(f"expected at least 1 for --steps, found {args.steps}")
    subject: bench.Subject = (
        "batches" if args.no_train else "steps" if args.synthetic_data else "both"
    )
    print(json.dumps(bench.bench(settings, args.steps, subject), indent=1))
    return 0


def _smoke(args: argparse.Namespace) -> int:
    from confluence.smoke import LEARNT_SHARE, smoke

    losses = smoke(report=print, attention=args.attention)
    learnt = {name: last < LEARNT_SHARE * first for name, (first, last) in losses.items()}
    for name, (first, last) in losses.items():
        print(f"{name:<12} {first:.4f} -> {last:.4f}  {'learnt' if learnt[name] else 'NOT LEARNT'}")
    return 0 if all(learnt.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
