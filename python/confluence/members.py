"""Members: runs that differ in the seed of their initial parameters, and predict together.

A run with `run.members` above 1 has its members in the folders member-0, member-1 and so on, each a
run of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from confluence import config
from confluence.batch import CATEGORICAL


def folders(out: Path, settings: config.Config) -> list[Path]:
    """Returns the folders of a run's members; that of the run itself if it has none."""
    count = settings.run.members
    return [out] if count == 1 else [out / f"member-{number}" for number in range(count)]


def settings_of(settings: config.Config) -> list[config.Config]:
    """Returns the settings of each member, in the order of their folders."""
    count = settings.run.members
    if count == 1:
        return [settings]
    # Boosting is the same beside each member.
    run = dataclasses.replace(settings.run, members=1, boosting=False)
    seed = settings.optimizer.seed
    return [
        dataclasses.replace(
            settings, run=run, optimizer=dataclasses.replace(settings.optimizer, seed=seed + number)
        )
        for number in range(count)
    ]


def check(out: Path, settings: config.Config) -> None:
    """Refuses members beside a run without members, the other way round, and starts from members.

    Raises:
        ConfigError: The folder holds the other kind, or all members would be equal.
    """
    start = settings.optimizer.start_from
    if start and (Path(start) / "member-0").is_dir():
        raise config.ConfigError(
            f"expected one run to start from, found the members of {start}; start from one of "
            f"them: --from {Path(start) / 'member-0'}"
        )
    found = len(list(out.glob("member-*")))
    if settings.run.members == 1:
        if found:
            raise config.ConfigError(
                f"expected --members N for {out}, which holds a run of members, found none; it has "
                f"{found} so far: add --members {found} or more"
            )
        return
    if found > settings.run.members:
        raise config.ConfigError(
            f"expected no more than {settings.run.members} members in {out}, found {found}; add "
            f"--members {found}, or name another folder"
        )
    if (out / "checkpoints").exists():
        raise config.ConfigError(
            f"expected a folder for members, found a run without members in {out}; name another "
            "folder"
        )
    if start:
        raise config.ConfigError(
            "expected --from or --members, found both: members differ in their initial parameters, "
            "and would all start from the same ones"
        )


def mean(outputs: Sequence[Any], kind: int) -> Any:
    """Returns the mean of several models' `Outputs` of one batch, which are arrays of NumPy.

    Numbers, times and probabilities are averaged; the category is that of the greatest mean
    probability.
    """
    first = outputs[0]
    value, null, loss, categories = (
        np.mean([getattr(of, name) for of in outputs], axis=0, dtype=np.float64)
        for name in ("value", "null", "loss", "categories")
    )
    if kind == CATEGORICAL:
        value = np.argmax(categories, axis=-1).astype(np.float64)
    return first._replace(value=value, null=null, loss=loss, categories=categories)
