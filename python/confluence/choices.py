"""Words that an argument accepts: a word that is none of them is refused, with the nearest one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import headwater
from confluence.config import ConfigError


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that looks most like this one; None if none does."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def check(argument: str, found: Any, accepted: Sequence[str]) -> None:
    """Checks that an argument is one of the accepted words.

    Raises:
        ConfigError: It is another one; the message lists those that are accepted.
    """
    if found in accepted:
        return
    near = nearest(str(found), accepted)
    raise ConfigError(
        f"expected one of {', '.join(map(repr, accepted))} for {argument}, found {found!r}"
        + (f"; did you mean {near!r}?" if near else "")
    )


def check_splits(found: Sequence[str]) -> None:
    """Checks that these are names of splits.

    Raises:
        ConfigError: A name is none; a single name is no list.
    """
    if isinstance(found, str):
        raise ConfigError(f"expected a list of splits, found {found!r}; write [{found!r}]")
    for split in found:
        check("splits", split, ("train", "val", "test"))


def check_task(name: str, known: Sequence[str]) -> None:
    """Checks that a task has this name, as "task" or "database/task".

    Raises:
        ConfigError: No task has it; the message has the nearest name, or lists all.
    """
    short = [of.partition("/")[2] for of in known]
    if name in known or name in short:
        return
    near = nearest(name, [*short, *known])
    hint = f"did you mean {near!r}?" if near else f"name one of {', '.join(known) or 'none'}"
    raise ConfigError(f"no task is called {name!r}; {hint}")


def check_tasks_of_stores(names: Sequence[str], stores: Sequence[Any]) -> None:
    """Checks that each name is that of a task of these stores, given by their folders.

    Raises:
        ConfigError: No task has the name.
        HeadwaterError: A store cannot be opened.
    """
    known = []
    for store in stores:
        opened = headwater.Store(store)
        known += [f"{opened.metadata()['database']}/{task}" for task in opened.tasks]
    for name in names:
        check_task(name, known)
