"""The command `confluence inspect`.

What imports JAX or headwater is imported in the functions, so that --help is quick.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

DESCRIPTION = "show a context as the model of a configuration, or of a run, sees it"


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what is shown, and where it goes."""
    verb.add_argument(
        "config", metavar="CONFIG", help="a TOML file, a preset, or the folder of a run"
    )
    verb.add_argument("--task", required=True, help="task of the seed, as TASK or DATABASE/TASK")
    verb.add_argument(
        "--seed-index", type=int, required=True, metavar="N",
        help="number of the seed in the task, counted from 0",
    )  # fmt: skip
    verb.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", dest="settings",
        help="change a setting, such as data.stores=my.db; repeatable",
    )  # fmt: skip
    verb.add_argument(
        "--html", type=Path, metavar="FILE",
        help="write the context to an HTML page instead; an existing page is replaced",
    )  # fmt: skip


def inspect(args: argparse.Namespace) -> int:
    """Prints a context, or writes it to a page."""
    from confluence import config, drawing

    is_run = (Path(args.config) / "config.toml").exists()
    settings = (config.load_run if is_run else config.load)(args.config, args.settings)
    page = drawing.draw(settings, args.task, args.seed_index)
    if args.html is None:
        print(page)
        return 0
    page.save(args.html)
    print(f"{shlex.quote(str(args.html))}: {page!r}; open it in a browser")
    return 0
