"""A context as a model of a configuration sees it."""

from __future__ import annotations

import dataclasses

import headwater
from confluence import choices, config
from confluence.feed import open_sampler
from confluence.parallel import Processes


def draw(settings: config.Config, task: str, seed_index: int) -> headwater.Page:
    """Draws the context of a seed with the configuration's own settings of the sampler.

    Raises:
        ConfigError: The configuration has no store, or there is no such task.
        HeadwaterError: A store cannot be opened, or there is no such seed.
    """
    if not settings.data.stores:
        raise config.ConfigError("expected a store, found none; set data.stores=FOLDER")
    run = dataclasses.replace(settings.run, prefetch=0)
    with open_sampler(settings.data, run, Processes()) as sampler:
        choices.check_task(task, sampler.tasks)
        return sampler.draw(task, seed_index)
