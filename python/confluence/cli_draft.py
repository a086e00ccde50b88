"""The commands `confluence init` and `presets`, and the part of `train` that drafts.

What imports JAX or headwater is imported in the functions, so that --help is quick.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from confluence.status import StatusLine

if TYPE_CHECKING:
    from confluence.draft import Draft


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds the options of a draft to a verb."""
    verb.add_argument(
        "--task", action="append", default=[], dest="tasks",
        help="task of STORE to train on, as TASK or DATABASE/TASK; repeatable",
    )  # fmt: skip
    verb.add_argument(
        "--minutes", type=float, metavar="M",
        help="how long choosing and training may take on this machine; default: 12",
    )  # fmt: skip


def init(args: argparse.Namespace) -> int:
    """Prints the configuration for a store, or writes it to a new file."""
    from confluence import outputs
    from confluence.config import ConfigError

    if args.out is None:
        print(make_draft(args).to_toml(), end="")
        return 0
    if args.out.exists():
        raise ConfigError(
            f"expected no file at {args.out}, found one; name another --out, or remove it"
        )
    if not args.out.absolute().parent.is_dir():
        raise ConfigError(
            f"expected a folder for {args.out}, found none; create it, or name another --out"
        )
    drafted = make_draft(args)
    outputs.write(args.out, drafted.to_toml().encode())
    print("\n".join(drafted.summary[1:]))
    print(f"next: confluence train --config {shlex.quote(str(args.out))} --out FOLDER")
    return 0


def make_draft(args: argparse.Namespace) -> Draft:
    """Returns the draft for the store."""
    StatusLine().show("starting")
    from confluence import draft

    minutes = draft.MINUTES if args.minutes is None else args.minutes
    return draft.init(args.store, args.tasks, minutes)


def print_presets(args: argparse.Namespace) -> int:
    """Prints the names of the presets, or the text of one."""
    from confluence import config

    names = "".join(f"{name}\n" for name in config.presets())
    print(names if args.name is None else config.preset(args.name), end="")
    return 0


def check_options(args: argparse.Namespace) -> None:
    """Refuses options that contradict STORE, and those that need it.

    Raises:
        ConfigError: The message names the option.
    """
    from confluence.config import ConfigError

    if args.store is None:
        for name, value in (("--task", args.tasks), ("--minutes", args.minutes is not None)):
            if value:
                raise ConfigError(
                    f"expected a STORE with {name}, found none; name the store first, as in "
                    "`confluence train my.db --task churn --minutes 12 --out runs/1`"
                )
        return
    others = {
        "--config": args.config is not None, "--resume": args.resume,
        "--from": args.start_from is not None, "--members": args.members is not None,
        "--processes": (args.processes or 1) > 1,
    }  # fmt: skip
    for name, is_given in others.items():
        if is_given:
            raise ConfigError(
                f"expected either STORE, which chooses the configuration, or {name}, found both; "
                f"leave out {name}, or write the configuration first with `confluence init "
                f"{args.store} --out FILE` and name it with --config FILE"
            )
