"""The `confluence` command."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_DESCRIPTION = """\
Trains a relational transformer on a store that `headwater prepare` made.

  confluence train --config cpu-small --set data.stores=my.db --out runs/1
  confluence train --out runs/1 --resume        (also after a kill, also with other --processes)
  confluence evaluate runs/1 --split test
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        print("confluence: interrupted", file=sys.stderr)
        return 130


def _main(arguments: Sequence[str] | None) -> int:
    args = _parser().parse_args(arguments)
    _quiet_orbax()
    _same_bits_on_gpus()
    # Imported late, so that --help is quick and needs no JAX.
    import headwater
    from confluence.checkpoint import CheckpointError
    from confluence.config import ConfigError
    from confluence.rollcall import JoinError
    from confluence.train import Interrupted, TrainingError

    refusals = (ConfigError, CheckpointError, JoinError, TrainingError, headwater.HeadwaterError)
    try:
        return int(args.run(args))
    except refusals as error:
        print(f"confluence: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"confluence: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"confluence: {error}", file=sys.stderr)
        return 130


def _same_bits_on_gpus() -> None:
    """Asks XLA for the kernels that add in one order, unless somebody decided already."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_deterministic_ops" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()


def _quiet_orbax() -> None:
    """Leaves out what Orbax's writers say beside the error that is told here.

    It warns of what is meant so, and each of its many tasks shows where a full disk stopped it,
    also when nobody listens any more.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)

    def unraisable(told: sys.UnraisableHookArgs) -> None:
        if str(told.exc_value) != "Event loop is closed":
            sys.__unraisablehook__(told)

    sys.unraisablehook = unraisable


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="confluence",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    train = _verb(verbs, "train", _train, "train a model, or go on with a run")
    _add_config(train)
    train.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="the run's folder")
    train.add_argument(
        "--resume", action="store_true",
        help="go on from the newest checkpoint; the configuration is the run's own",
    )  # fmt: skip
    train.add_argument("--processes", type=int, default=1, metavar="N", help="how many take part")
    train.add_argument("--rank", type=int, default=0, metavar="R", help="which of them this is")
    train.add_argument(
        "--coordinator", metavar="HOST:PORT", help="where rank 0 listens, if there are several"
    )
    train.add_argument(
        "--profile", metavar="A:B", help="trace steps A to B into FOLDER/profile, for xprof"
    )

    evaluate = _verb(verbs, "evaluate", _evaluate, "score a run beside the baselines")
    evaluate.add_argument("run_folder", type=Path, metavar="FOLDER", help="the run's folder")
    evaluate.add_argument(
        "--split", action="append", choices=("train", "val", "test"), help="test if none is named"
    )
    _add_which(evaluate)

    predict = _verb(verbs, "predict", _predict, "predict for rows and times of your choice")
    predict.add_argument("run_folder", type=Path, metavar="FOLDER", help="the run's folder")
    predict.add_argument("--task", required=True, help="whose target is to be predicted")
    predict.add_argument(
        "--seeds", required=True, type=Path, metavar="FILE",
        help="a CSV file with a header: the key of the anchor's row (several columns where it has "
        "several), and last the observation time, or nothing for one that sees everything",
    )  # fmt: skip
    predict.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a CSV file for them; else they are shown",
    )
    _add_which(predict)

    bench = _verb(verbs, "bench", _bench, "measure sampling and computing, apart or together")
    _add_config(bench)
    bench.add_argument("--steps", type=int, default=30, metavar="N", help="steps that are measured")
    apart = bench.add_mutually_exclusive_group()
    apart.add_argument("--no-train", action="store_true", help="only make batches")
    apart.add_argument("--synthetic-data", action="store_true", help="make none; needs no store")

    smoke = _verb(verbs, "smoke", _smoke, "try everything on made-up contexts, in a minute")
    smoke.add_argument("--attention", choices=("dense", "structured"), default="dense")
    return parser


def _verb(verbs: Any, name: str, run: Callable[..., int], words: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=words, description=f"{words[0].upper()}{words[1:]}.", allow_abbrev=False
    )
    verb.set_defaults(run=run)
    return verb


def _add_config(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--config", metavar="FILE", help="a TOML file, or a preset: base, cpu-small")
    verb.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", dest="settings",
        help="change a setting, such as data.cells=96; may be said again",
    )  # fmt: skip


def _add_which(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--store", action="append", default=[], metavar="FOLDER",
        help="where the store is now, if not where it was; for each one, in their order",
    )  # fmt: skip
    verb.add_argument(
        "--checkpoint", choices=("best", "latest"), default="best", help="best is by validation"
    )


def _train(args: argparse.Namespace) -> int:
    from confluence import config, report, rollcall
    from confluence.parallel import Processes
    from confluence.train import train

    own = args.out / "config.toml"
    wanted = own if args.resume and args.config is None and own.exists() else args.config
    settings = config.load(wanted, args.settings)
    if args.processes > 1:
        if args.coordinator is None:
            raise config.ConfigError("expected --coordinator HOST:PORT beside --processes")
        rollcall.address(args.coordinator)
    if not 0 <= args.rank < args.processes:
        raise config.ConfigError(
            f"expected a --rank from 0 to {args.processes - 1}, found {args.rank}"
        )
    processes = Processes(args.processes, args.rank, args.coordinator)
    results = train(settings, args.out, processes, resume=args.resume, profile=_span(args.profile))
    if args.rank == 0:
        print(report.table(results))
        print(f"{args.out / 'report.html'} shows the curves")
    return 0


def _span(text: str | None) -> tuple[int, int] | None:
    from confluence.config import ConfigError

    if text is None:
        return None
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise ConfigError(f"expected two steps such as 100:110 as --profile, found {text!r}")
    return int(first), int(last)


def _evaluate(args: argparse.Namespace) -> int:
    from confluence import report
    from confluence.assembly import trained

    with trained(args.run_folder, args.checkpoint, args.store) as (parts, params, step):
        results = parts.results(params, args.split or ["test"])
        print(f"step {step}")
        print(report.table({"tasks": results}))
    return 0


def _predict(args: argparse.Namespace) -> int:
    from confluence import predict
    from confluence.assembly import trained

    seeds = predict.read_seeds(args.seeds)
    with trained(args.run_folder, args.checkpoint, args.store) as (parts, params, _):
        predict.write(seeds, predict.predict(parts, params, args.task, seeds), args.out)
    return 0


def _bench(args: argparse.Namespace) -> int:
    from confluence import bench, config

    settings = config.load(args.config, args.settings)
    if args.steps < 1:
        raise config.ConfigError(f"expected at least 1 as --steps, found {args.steps}")
    what: bench.What = "batches" if args.no_train else "steps" if args.synthetic_data else "both"
    print(json.dumps(bench.bench(settings, args.steps, what), indent=1))
    return 0


def _smoke(args: argparse.Namespace) -> int:
    from confluence.smoke import SHARE, smoke

    losses = smoke(print, args.attention)
    learnt = {name: last < SHARE * first for name, (first, last) in losses.items()}
    for name, (first, last) in losses.items():
        print(f"{name:<12} {first:.4f} -> {last:.4f}  {'learnt' if learnt[name] else 'NOT LEARNT'}")
    return 0 if all(learnt.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
