"""Where the metrics go beside the run's own log: TensorBoard, Weights & Biases."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from confluence import config


class Sink(Protocol):
    """Takes the numbers of a step."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Takes numbers by name."""

    def flush(self) -> None:
        """Writes out what was taken: what comes after a kill begins after it."""

    def close(self) -> None:
        """Flushes, and ends."""


def opened(settings: config.Config, out: Path, step: int) -> list[Sink]:
    """Returns the sinks of a run that stands after `step`.

    Raises:
        ConfigError: The package of one is not installed.
    """
    kinds: dict[str, Callable[[config.Config, Path, int], Sink]]
    kinds = {"tensorboard": _TensorBoard, "wandb": _Wandb}
    return [kinds[name](settings, out, step) for name in settings.run.sinks]


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Returns what a line of the log counts, named by what it is of."""
    of = [str(record[key]) for key in ("split", "task") if key in record]
    if "split" not in record and "task" in record:
        of.insert(0, "train")
    return {"/".join([*of, name]): number for name, number in _leaves(record)}


def _leaves(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", number) for name, number in _leaves(value))
        elif isinstance(value, int | float) and key != "step":
            yield key, value


class _TensorBoard:
    def __init__(self, _: config.Config, out: Path, step: int) -> None:
        # What a killed run wrote after its checkpoint is taken back.
        self._writer = _package("tensorboardX", "tensorboard").SummaryWriter(
            str(out / "tensorboard"), purge_step=step + 1
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """The project and all else are as `WANDB_PROJECT` and its like say."""

    def __init__(self, settings: config.Config, out: Path, _: int) -> None:
        named = out / "wandb-run"
        if not named.exists():
            named.write_text(uuid.uuid4().hex)
        self._run = _package("wandb", "wandb").init(
            id=named.read_text(), resume="allow", dir=out, config=settings.to_dict()
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def flush(self) -> None:
        """Its own process has it already."""

    def close(self) -> None:
        self._run.finish()


def _package(name: str, sink: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise config.ConfigError(
            f"run.sinks has {sink!r}, for which {name} cannot be imported ({error}); pip install "
            f"{name}"
        ) from None
