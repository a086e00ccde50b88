"""The `confluence` command."""

from __future__ import annotations

import argparse
import logging

import sys
from collections.abc import Sequence
from pathlib import Path

_DESCRIPTION = """\
Trains a relational transformer on a store that `headwater prepare` made.

  confluence train --config cpu-small --set data.stores=my.db --out runs/1
  confluence train --out runs/1 --resume        (also after a kill, also with other --processes)
  confluence evaluate runs/1 --split test
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    args = _parser().parse_args(arguments)
    # Orbax warns of what is meant so.
    logging.getLogger("absl").setLevel(logging.ERROR)
    # Imported late, so that --help is quick and needs no JAX.
    import headwater
    from confluence.checkpoint import CheckpointError
    from confluence.config import ConfigError
    from confluence.train import Interrupted, TrainingError

    try:
        args.run(args)
    except (ConfigError, CheckpointError, TrainingError, headwater.HeadwaterError) as error:
        print(f"confluence: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"confluence: {error}", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="confluence",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    train = verbs.add_parser("train", help="train a model, or go on", allow_abbrev=False)
    train.add_argument(
        "--config", metavar="FILE", help="a TOML file, or a preset: base, cpu-small"
    )
    train.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", dest="settings",
        help="change a setting, such as data.cells=96; may be said again",
    )  # fmt: skip
    train.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="the run")
    train.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    train.add_argument("--processes", type=int, default=1, metavar="N", help="how many take part")
    train.add_argument("--rank", type=int, default=0, metavar="R", help="which of them this is")
    train.add_argument(
        "--coordinator", metavar="HOST:PORT", help="where rank 0 listens, where there are several"
    )
    train.set_defaults(run=_train)
    return parser


def _train(args: argparse.Namespace) -> None:
    from confluence import config, report
    from confluence.parallel import Processes
    from confluence.train import train, with_settings_of

    if args.resume and args.config is None:
        settings = with_settings_of(args.out, args.settings)
    else:
        settings = config.load(args.config, args.settings)
    if not settings.data.stores:
        raise config.ConfigError("expected a store: --set data.stores=FOLDER")
    if args.processes > 1 and args.coordinator is None:
        raise config.ConfigError("expected --coordinator HOST:PORT where there are --processes")
    if not 0 <= args.rank < args.processes:
        raise config.ConfigError(
            f"expected a --rank from 0 to {args.processes - 1}, found {args.rank}"
        )
    processes = Processes(args.processes, args.rank, args.coordinator)
    results = train(settings, args.out, processes, resume=args.resume)
    if args.rank == 0:
        print(report.table(results))


if __name__ == "__main__":
    sys.exit(main())
