"""Sinks for metrics beside the run's own log: TensorBoard, Weights & Biases."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from confluence import config
from headwater._headwater import read_file


class Sink(Protocol):
    """Receives the metrics of each step."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Receives the numbers of a step, by name."""

    def flush(self) -> None:
        """Writes out all received numbers, so that a later kill loses none of them."""

    def close(self) -> None:
        """Flushes, and closes the sink."""


def open_sinks(settings: config.Config, out: Path, step: int) -> list[Sink]:
    """Opens the sinks of a run that continues after `step`.

    Raises:
        ConfigError: The package of a sink cannot be imported.
    """
    kinds: dict[str, Callable[[config.Config, Path, int], Sink]]
    kinds = {"tensorboard": _TensorBoard, "wandb": _Wandb}
    return [kinds[name](settings, out, step) for name in settings.run.sinks]


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of a line of the log, named `split/task/metric` or `speed/metric`."""
    prefix = [str(record[key]) for key in ("split", "task") if key in record]
    if "split" not in record and "task" in record:
        prefix.insert(0, "train")
    return {"/".join([*prefix, name]): number for name, number in _leaves(record)}


def _leaves(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", number) for name, number in _leaves(value))
        elif isinstance(value, int | float) and key != "step":
            yield key, value


class _TensorBoard:
    def __init__(self, _: config.Config, out: Path, step: int) -> None:
        # `purge_step` hides what a killed run wrote after its checkpoint.
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
    """Reads the project and other options from environment variables such as `WANDB_PROJECT`."""

    def __init__(self, settings: config.Config, out: Path, _: int) -> None:
        id_file = out / "wandb-run"
        if not id_file.exists():
            id_file.write_text(uuid.uuid4().hex)
        self._run = _package("wandb", "wandb").init(
            id=read_file(id_file).decode(), resume="allow", dir=out, config=settings.to_dict()
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def flush(self) -> None:
        """Does nothing: wandb's own process has the numbers already."""

    def close(self) -> None:
        self._run.finish()


def _package(name: str, sink: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise config.ConfigError(
            f"run.sinks has {sink!r}, but {name} cannot be imported ({error}); pip install {name}"
        ) from None
