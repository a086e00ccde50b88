"""What a run is: one frozen value, read from TOML and from `--set a.b=c`."""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

Attention = Literal["dense", "structured"]
Compute = Literal["auto", "float32", "bfloat16"]


class ConfigError(ValueError):
    """A configuration that cannot be; the message says which key, and what it may be."""


@dataclass(frozen=True)
class Model:
    """The network."""

    width: int = 256
    heads: int = 4
    layers: int = 6
    # The width inside SwiGLU.
    hidden: int = 768
    attention: Attention = "dense"
    # "auto" is bfloat16 on an accelerator and float32 on a CPU.
    compute: Compute = "auto"
    # Recompute layers in the backward pass in place of keeping what they made.
    rematerialise: bool = True
    # Tell the model of each time how long before the observation it was.
    ages: bool = True
    # Tell it when each time was, and not only its place in the year, week and day. Better not where
    # what is asked about lies after all training.
    epochs: bool = True


@dataclass(frozen=True)
class Data:
    """The sequence of batches."""

    stores: tuple[str, ...] = ()
    # Empty: all tasks of the stores.
    tasks: tuple[str, ...] = ()
    task_weights: tuple[float, ...] = ()
    # Sequences of a step, over all processes.
    batch_size: int = 32
    cells: int = 1024
    rows: int = 208
    child_width: int = 16
    # Of some relations another width, as { "orders.customer_id" = 2 }: how many orders a customer
    # brings in. With 0 none comes that way. A relation is "table.columns", after who refers, as
    # `headwater inspect` names it, or "database/table.columns" where several stores have one.
    child_widths: Mapping[str, int] = field(default_factory=dict)
    children: Literal["uniform", "latest"] = "uniform"
    walk: Literal["priority", "breadth"] = "priority"
    max_hops: int = 3
    neighbor_budget: int = 16
    seed: int = 42
    split_seed: int = 123
    split_ratios: tuple[float, float, float] = (0.8, 0.1, 0.1)
    # "global": all texts' vectors stay on the device; "batch": each batch brings its own.
    texts: Literal["global", "batch"] = "global"


@dataclass(frozen=True)
class Optimizer:
    """How the parameters change."""

    steps: int = 10_000
    warmup_steps: int = 500
    # The peak rates: of Muon, for the blocks' matrices, and of AdamW, for all else.
    muon_rate: float = 0.02
    adam_rate: float = 3e-4
    # What is left of the rates at the end.
    final_share: float = 0.1
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    # What is scored and predicted with is a running mean of the parameters, of which a step keeps
    # this share; 0: they themselves.
    mean_share: float = 0.0
    # The seed of the initial parameters.
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """What changes no parameter; but for the first two, it may differ when a run goes on."""

    # Steps from one evaluation on the validation split to the next; 0: only first and last.
    evaluate_every: int = 1000
    # Batches of an evaluation, for each task; 0: the whole split. By them the best step is chosen.
    # They are the first in the order of the store, and no sample of it.
    evaluate_batches: int = 0
    checkpoint_every: int = 500
    # The newest checkpoints that are kept, beside the best by validation.
    keep: int = 2
    log_every: int = 20
    # Where metrics go beside `metrics.jsonl`.
    sinks: tuple[Literal["tensorboard", "wandb"], ...] = ()
    # Batches that wait on the device, and those that wait for it.
    ahead_on_device: int = 2
    prefetch: int = 3
    # Threads that make batches; 0: all cores.
    threads: int = 0
    # Seconds that several processes wait for each other: to come together, to be heard of again
    # (100 at most), to leave.
    timeout_seconds: int = 600


@dataclass(frozen=True)
class Config:
    """A run."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer = field(default_factory=Optimizer)
    run: Run = field(default_factory=Run)

    def to_dict(self) -> dict[str, Any]:
        """Returns the sections as dictionaries that JSON can hold."""
        return {
            section: {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}
            for section, fields in dataclasses.asdict(self).items()
        }

    def to_toml(self) -> str:
        """Returns the file that `load` reads back."""
        lines: list[str] = []
        for section, fields in self.to_dict().items():
            lines += [f"[{section}]", *(f"{key} = {_toml(v)}" for key, v in fields.items()), ""]
        return "\n".join(lines)


def presets() -> list[str]:
    """Returns the names of the presets."""
    files = resources.files("confluence").joinpath("presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files)


def load(config: str | os.PathLike[str] | None = None, settings: Sequence[str] = ()) -> Config:
    """Returns the configuration of a file or preset, changed by settings such as "data.cells=96".

    Raises:
        ConfigError: A key that is not there, or a value of another type.
    """
    sections = {} if config is None else _read(os.fspath(config))
    for setting in settings:
        section, key, value = _parsed(setting)
        fields = sections.setdefault(section, {})
        # What is no section is told below.
        if isinstance(fields, dict):
            fields[key] = value
    return from_dict(sections)


def from_dict(sections: Mapping[str, Any]) -> Config:
    """Returns the configuration that `to_dict` gave."""
    kinds = {"model": Model, "data": Data, "optimizer": Optimizer, "run": Run}
    _check_keys("", sections, kinds)
    made = {}
    for name, fields in sections.items():
        if not isinstance(fields, Mapping):
            raise ConfigError(f"expected a section [{name}], found the value {fields!r}")
        types = typing.get_type_hints(kinds[name])
        _check_keys(f"{name}.", fields, types)
        values = {key: _typed(f"{name}.{key}", v, types[key]) for key, v in fields.items()}
        made[name] = kinds[name](**values)
    config = Config(**made)
    _check(config)
    return config


def differences(ours: Config, theirs: Mapping[str, Any]) -> list[str]:
    """Names what makes `theirs`, as `to_dict` gave it, another run than `ours`.

    Where the data are does not; what was no setting yet was as it is by default.
    """
    defaults = Config().to_dict()
    were = {section: {**of, **theirs.get(section, {})} for section, of in defaults.items()}
    return sorted(
        f"{name} is {our!r}, and was {their!r}"
        for name, our, their in _unequal(ours.to_dict(), were)
        if not name.startswith("run.") or name in ("run.evaluate_every", "run.evaluate_batches")
    )


def unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Names what two processes of one run may not have each for itself, of what `to_dict` gave."""
    own = {
        "run.threads", "run.prefetch", "run.ahead_on_device", "run.log_every", "run.sinks",
        "run.timeout_seconds",
    }  # fmt: skip
    return [
        f"{name} is {their!r} and not {our!r}"
        for name, our, their in _unequal(ours, theirs)
        if name not in own
    ]


def _unequal(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields what is not equal, by name; but for where the data are, which says nothing of them."""
    for section, fields in ours.items():
        others = theirs.get(section, {})
        # In an order of their own, those that one side alone has, too.
        for key in {**fields, **others}:
            our, their = fields.get(key), others.get(key)
            if our != their and (section, key) != ("data", "stores"):
                yield f"{section}.{key}", our, their


def _read(config: str) -> dict[str, Any]:
    if config in presets():
        text = resources.files("confluence").joinpath("presets", f"{config}.toml").read_text()
    else:
        try:
            text = Path(config).read_text()
        except OSError as error:
            raise ConfigError(
                f"expected a file or one of the presets {', '.join(presets())}, found {config!r}: "
                f"{error.strerror}"
            ) from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{config} is not TOML: {error}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{config} is not TOML: {error}") from None


def _parsed(setting: str) -> tuple[str, str, Any]:
    name, equals, text = setting.partition("=")
    section, dot, key = name.partition(".")
    if not equals or not dot:
        raise ConfigError(f"expected section.key=value, such as data.cells=96, found {setting!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        # A word needs no quotes.
        value = text
    return section.strip(), key.strip(), value


def _check_keys(prefix: str, found: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key in found:
        if key not in known:
            names = ", ".join(prefix + name for name in known)
            raise ConfigError(f"there is no {prefix}{key}; there are {names}")


def _typed(name: str, value: Any, kind: Any) -> Any:
    """The value as its field has it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if value in arguments:
            return value
        kind_name = " or ".join(map(repr, arguments))
    elif origin is tuple:
        values = value if isinstance(value, list | tuple) else [value]
        repeated = arguments[-1] is Ellipsis
        if repeated or len(values) == len(arguments):
            kinds = [arguments[0]] * len(values) if repeated else arguments
            return tuple(_typed(name, v, k) for v, k in zip(values, kinds, strict=True))
        kind_name = f"{len(arguments)} values"
    elif origin is Mapping:
        if isinstance(value, Mapping):
            of = arguments[1]
            for key, inner in value.items():
                if isinstance(inner, Mapping):
                    example = f'"{key}.{next(iter(inner), "column")}"'
                    raise ConfigError(
                        f"a name with a dot in {name} must be in quotes: {{ {example} = 1 }}"
                    )
            return {key: _typed(f"{name}[{key!r}]", v, of) for key, v in value.items()}
        kind_name = 'a table such as { "a.b" = 1 }'
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ConfigError(f"expected a finite number as {name}, found {value}")
        return float(value)
    elif type(value) is kind:
        return value
    else:
        kind_name = kind.__name__
    raise ConfigError(f"expected {kind_name} as {name}, found {value!r}")


def _check(config: Config) -> None:
    """Refuses what no run can be of."""
    at_least: dict[str, dict[str, float]] = {
        "model": {"width": 1, "heads": 1, "layers": 1, "hidden": 1},
        "data": {"batch_size": 1, "cells": 2, "rows": 1, "child_width": 1},
        "optimizer": {
            "steps": 1, "warmup_steps": 0, "muon_rate": 0, "adam_rate": 0, "final_share": 0,
            "weight_decay": 0, "clip_norm": 1e-12, "mean_share": 0,
        },
        "run": {
            "evaluate_every": 0, "evaluate_batches": 0, "checkpoint_every": 1, "keep": 1,
            "log_every": 1, "ahead_on_device": 1, "prefetch": 0, "threads": 0, "timeout_seconds": 1,
        },
    }  # fmt: skip
    sections = config.to_dict()
    for section, limits in at_least.items():
        for key, least in limits.items():
            if sections[section][key] < least:
                found = sections[section][key]
                raise ConfigError(f"expected at least {least} as {section}.{key}, found {found}")
    model, data = config.model, config.data
    if config.optimizer.mean_share >= 1:
        raise ConfigError(
            "expected less than 1 as optimizer.mean_share, of which nothing is left for the new "
            f"parameters, found {config.optimizer.mean_share}"
        )
    if model.width % model.heads:
        raise ConfigError(
            f"expected a model.width that model.heads divides, found {model.width} and "
            f"{model.heads}"
        )
    if data.task_weights and len(data.task_weights) != len(data.tasks):
        raise ConfigError(
            f"expected a weight for each of data.tasks, found {len(data.tasks)} tasks and "
            f"{len(data.task_weights)} weights"
        )


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml(k)} = {_toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
