"""The configuration of a run: one frozen value, read from TOML and from `--set section.key=value`.

The keys of `[data]` and `[run]` have the names of the sampler's settings in Rust
(`headwater::sampler::Settings`).
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import math
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

import headwater
from headwater._headwater import read_file
from headwater.sampler import micros

Attention = Literal["dense", "structured"]
Compute = Literal["auto", "float32", "bfloat16"]
Epochs = Literal["auto", True, False]
MicrobatchCount = Literal["auto"] | int
Schedule = Literal["cosine", "linear", "constant"]


class ConfigError(ValueError):
    """A configuration is not valid; the message names the key and the expected value."""


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
    # Recompute the layers in the backward pass instead of keeping their outputs in memory.
    rematerialise: bool = True
    # Encode, for each timestamp and each row, how long before the observation time it was.
    ages: bool = True
    # Encode the timestamp as a whole, beside its position in the year, week and day. "auto" is
    # decided from the train labels when a run starts: false if val or test lies after training,
    # unless the target's level moves steadily over the train years. (Outside of a run: true.)
    epochs: Epochs = "auto"


@dataclass(frozen=True)
class Data:
    """The sequence of batches: the settings of the sampler."""

    # The folders that `headwater prepare` made.
    stores: tuple[str, ...] = ()
    # Tasks as "task" or "database/task"; default: all tasks of the stores.
    tasks: tuple[str, ...] = ()
    # How often each of `tasks` and then of `pools` is trained on; default: equally often.
    task_weights: tuple[float, ...] = ()
    # Tables whose rows are seeds without a target, to pretrain on masked cells, each with the time
    # at which its rows are observed, "" for the own time of each row: { orders = "" }. With pools,
    # only the named `tasks` are served.
    pools: Mapping[str, str] = field(default_factory=dict)
    # The share of the cells to mask in training, which the model learns to predict, beside the
    # target; 0 masks none.
    mask_share: float = 0.0
    # The most masked cells of a context; 0: what a context rarely exceeds.
    mask_most: int = 0
    # Mask texts, too.
    mask_texts: bool = True
    # The contexts of a step, over all processes.
    batch_size: int = 32
    # The cells of a context, with padding.
    sequence_length: int = 1024
    # Lengths below sequence_length: a microbatch (or the whole batch, without microbatches) is
    # padded to the least that holds its contexts. The step is compiled for each.
    sequence_buckets: tuple[int, ...] = ()
    # The most rows of a context.
    max_rows: int = 208
    # With walk = "priority": the most children that one row brings in through one relation.
    child_width: int = 16
    # Other widths for single relations: { "orders.customer_id" = 2 } brings in two orders of a
    # customer, 0 none. For walk = "priority" as well.
    # A relation is named after the referring side, as `headwater inspect` does:
    # "table.columns", or "database/table.columns" if several stores have it.
    child_widths: Mapping[str, int] = field(default_factory=dict)
    # Which rows have the store's aggregates of their children as cells: "near" is the seed and its
    # parents, "all" the seed and every row reached as a parent.
    aggregates: Literal["none", "near", "all"] = "near"
    # The latest observation time, such as "2010-01-01": a seed observed later is observed then, so
    # that no context knows anything later. "": none.
    visible_until: str = ""
    # Observe each train seed earlier, by a random time of up to this number of days, another one in
    # each epoch: for predictions from older data.
    staleness_days: int = 0
    # With walk = "priority": which children are taken if there are more than the width.
    children: Literal["uniform", "latest"] = "uniform"
    # What the other walk alone uses must have its default.
    walk: Literal["priority", "breadth"] = "priority"
    # With walk = "breadth": how many links away from the seed a row may be.
    max_hops: int = 3
    # With walk = "breadth": the most rows that one row brings in, in each of the two directions.
    budget: int = 16
    # The random seed of the shuffles and of the walks.
    seed: int = 42
    # The split of rows for tasks that record none: its random seed, and the shares of train, val
    # and test.
    split_seed: int = 123
    split_ratios: tuple[float, float, float] = (0.8, 0.1, 0.1)
    # Where the vectors of texts are. "global": on the device, all of them; "batch": in each batch.
    texts: Literal["global", "batch"] = "global"


@dataclass(frozen=True)
class Optimizer:
    """How the parameters are trained."""

    steps: int = 10_000
    warmup_steps: int = 500
    # The peak learning rates: of Muon, for the blocks' matrices; of AdamW, for all others.
    muon_rate: float = 0.02
    adam_rate: float = 3e-4
    # How the rates fall after the warm-up. "constant": not at all, and final_share is not used.
    schedule: Schedule = "cosine"
    # The rates at the last step, as a share of the peak.
    final_share: float = 0.1
    # How much of the running mean of the gradients each step keeps: in Muon, in AdamW, and in AdamW
    # of their squares.
    muon_beta: float = 0.95
    adam_b1: float = 0.9
    adam_b2: float = 0.95
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    # Evaluate and predict with a running mean of the parameters: each step keeps this share of the
    # mean. 0: no mean, the parameters themselves.
    mean_share: float = 0.0
    # What the mean loss of the masked cells counts, beside the loss of the target.
    mask_weight: float = 1.0
    # Training ends after this many evaluations without a better mean validation loss; 0: never.
    patience: int = 0
    # Each step computes its batch in this number of equal parts, and adds up their gradients in one
    # order: so any number of processes up to it has the same losses and parameters to the last bit.
    # "auto" is the greatest number up to 8 that divides data.batch_size. 0: each process computes
    # its share as a whole; another number of processes has other last digits.
    microbatches: MicrobatchCount = "auto"
    # The random seed of the initial parameters.
    seed: int = 0
    # The folder of a run whose best checkpoint has the initial parameters, and the digest and the
    # step of that checkpoint, which the run records when it starts. "": parameters drawn at random.
    start_from: str = ""
    start_digest: str = ""
    start_step: int = 0


@dataclass(frozen=True)
class Run:
    """Settings that change no parameter. All but the first two may change when a run resumes."""

    # Steps between two evaluations on the validation split; 0: before the first step and after
    # the last alone.
    evaluate_every: int = 1000
    # Batches per task of such an evaluation, which chooses the best step; 0: the whole split. They
    # are the first batches in the order of the store, not a random sample.
    evaluate_batches: int = 0
    # Steps between two checkpoints.
    checkpoint_every: int = 500
    # How many of the newest checkpoints are kept, beside the best one by validation.
    keep: int = 2
    # Runs whose predictions are averaged; they differ in optimizer.seed, one more for each.
    members: int = 1
    # Compare the results with boosting, which takes seconds to minutes of one core at the end.
    boosting: bool = True
    # Steps between two records of the speed.
    log_every: int = 20
    # Where metrics go beside `metrics.jsonl`.
    sinks: tuple[Literal["tensorboard", "wandb"], ...] = ()
    # Batches made ahead: on the device, and by the sampler on the host.
    ahead_on_device: int = 2
    prefetch: int = 3
    # Threads that make batches; 0: all cores.
    threads: int = 0
    # How long the processes of a run wait for each other: to join, to send a sign of life (at most
    # 100 s), to shut down.
    timeout_seconds: int = 600


@dataclass(frozen=True)
class Config:
    """The configuration of a run.

    Example:
        >>> import confluence
        >>> config = confluence.load("cpu-small", ["data.stores=shop.store", "optimizer.steps=50"])
        >>> config.optimizer.steps
        50
    """

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer = field(default_factory=Optimizer)
    run: Run = field(default_factory=Run)

    def to_dict(self) -> dict[str, Any]:
        """Returns the sections as dictionaries, for JSON."""
        return {
            section: {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}
            for section, fields in dataclasses.asdict(self).items()
        }

    def to_toml(self) -> str:
        """Returns the text of a file that `load` reads back."""
        lines: list[str] = []
        for section, fields in self.to_dict().items():
            lines += [
                f"[{section}]",
                *(f"{key} = {toml_value(v)}" for key, v in fields.items()),
                "",
            ]
        return "\n".join(lines)


_SECTIONS: dict[str, Any] = {"model": Model, "data": Data, "optimizer": Optimizer, "run": Run}

_MOST_AUTO_MICROBATCHES = 8

# What runs have that were written before there was a setting.
_OLDER: dict[str, dict[str, Any]] = {"optimizer": {"microbatches": 0}}

# The settings of [data] that only one walk uses.
_OF_WALK = {
    "priority": ("child_width", "child_widths", "children"),
    "breadth": ("max_hops", "budget"),
}

# The settings that only masks use.
_OF_MASKS = {("data", "mask_most"), ("data", "mask_texts"), ("optimizer", "mask_weight")}


def presets() -> list[str]:
    """Returns the names of the presets that `load` takes."""
    files = resources.files("confluence").joinpath("presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files)


def preset(name: str) -> str:
    """Returns the text of a preset.

    Raises:
        ConfigError: There is no such preset.
    """
    if name not in presets():
        raise ConfigError(f"expected a preset ({', '.join(presets())}), found {name!r}")
    return resources.files("confluence").joinpath("presets", f"{name}.toml").read_text()


def load(config: str | os.PathLike[str] | None = None, settings: Sequence[str] = ()) -> Config:
    """Returns the configuration of a file or preset, with single settings changed.

    Args:
        config: A TOML file, or the name of a preset ("base", "cpu-small"); default: all defaults.
        settings: Changes such as "data.sequence_length=96" or "data.tasks=['churn']".

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
    """
    if config is None:
        return _changed({}, settings)
    config = os.fspath(config)
    return _changed(_read(config), settings, is_written=config not in presets())


def load_run(folder: str | os.PathLike[str], settings: Sequence[str] = ()) -> Config:
    """Returns the configuration of the run in a folder, with single settings changed.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
    """
    sections = _read(os.path.join(folder, "config.toml"))
    for section, fields in _OLDER.items():
        sections[section] = {**fields, **sections.get(section, {})}
    return _changed(sections, settings, is_written=False)


def microbatches(config: Config) -> int:
    """Returns the number of microbatches of a step; 0 for a batch that is computed as a whole."""
    found, batch_size = config.optimizer.microbatches, config.data.batch_size
    if found != "auto":
        return found
    most = min(_MOST_AUTO_MICROBATCHES, batch_size)
    return next(number for number in range(most, 0, -1) if batch_size % number == 0)


def changed(config: Config, settings: Sequence[str]) -> Config:
    """Returns the configuration with single settings changed, as `load` changes them.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
    """
    return _changed(config.to_dict(), settings, is_written=False)


def without_masks(data: Data) -> Data:
    """Returns the settings of the tasks alone, without pools and masked cells."""
    defaults = {name: getattr(Data(), name) for name in ("mask_share", "mask_most", "mask_texts")}
    return dataclasses.replace(data, pools={}, **defaults)


def has_tasks(data: Data) -> bool:
    """Returns whether a run trains tasks: the named ones, or all where there are no pools."""
    return bool(data.tasks) or not data.pools


def check_walk(data: Data) -> None:
    """Refuses a setting of the walk that is not chosen, unless it has its default.

    Raises:
        ConfigError: The message names the key.
    """
    for key in _unused_by(data.walk):
        found = getattr(data, key)
        if found != getattr(Data(), key):
            raise ConfigError(
                f'expected no data.{key}, because data.walk = "{data.walk}" does not use it, '
                f"found {found!r}; leave it out"
            )


def _unused_by(walk: str) -> list[str]:
    """Returns the settings of [data] that other walks use, but not this one."""
    return [key for other, keys in _OF_WALK.items() if other != walk for key in keys]


def _changed(
    sections: dict[str, Any], settings: Sequence[str], *, is_written: bool = True
) -> Config:
    """Returns the configuration of the sections, with single settings changed.

    Unless the sections are as the user has written them, a setting that the changes leave without a
    use has its default: what belongs to another walk than the chosen one (presets have some, and so
    do runs from before they were refused), to masks, and to tasks or pools that are left out.
    """
    given = set()
    for setting in settings:
        section, key, value = _parsed(setting)
        given.add((section, key))
        fields = sections.setdefault(section, {})
        # `from_dict` refuses a section that is not a table.
        if isinstance(fields, dict):
            fields[key] = value
    data = sections.get("data")
    if not is_written and isinstance(data, dict):
        unused = {("data", key) for key in _unused_by(data.get("walk", Data.walk))}
        if ("data", "mask_share") in given and data["mask_share"] == 0:
            unused |= _OF_MASKS
        if ("data", "tasks") in given or (("data", "pools") in given and not data["pools"]):
            unused.add(("data", "task_weights"))
        for section, key in unused - given:
            if isinstance(fields := sections.get(section), dict):
                fields.pop(key, None)
    return from_dict(sections)


def from_dict(sections: Mapping[str, Any]) -> Config:
    """Returns the configuration of which `to_dict` returned the sections.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
    """
    config = _of_types(sections)
    _check(config)
    return config


def check_settings(settings: Sequence[str]) -> None:
    """Checks changes before there is the configuration that they change.

    What a configuration contradicts is found when it is changed.

    Raises:
        ConfigError: A key is unknown, or no configuration can have the value.
    """
    sections: dict[str, dict[str, Any]] = {}
    for setting in settings:
        section, key, value = _parsed(setting)
        sections.setdefault(section, {})[key] = value
    _check_least(_of_types(sections))


def _of_types(sections: Mapping[str, Any]) -> Config:
    """Returns the configuration of the sections, whose values may be out of range."""
    _check_keys("", sections, _SECTIONS)
    made = {}
    for name, fields in sections.items():
        if not isinstance(fields, Mapping):
            raise ConfigError(f"expected a section [{name}] with keys, found the value {fields!r}")
        types = typing.get_type_hints(_SECTIONS[name])
        _check_keys(f"{name}.", fields, types)
        values = {key: _typed(f"{name}.{key}", v, types[key]) for key, v in fields.items()}
        made[name] = _SECTIONS[name](**values)
    return Config(**made)


def differences(ours: Config, theirs: Mapping[str, Any]) -> list[str]:
    """Returns the settings that make a checkpoint's configuration `theirs` another run's.

    `theirs` is a result of `to_dict`. The paths of stores and of the run to start from may differ,
    and most of `[run]`. The step to start from belongs to its digest, which is compared. A key that
    `theirs` lacks, since it is older, has its default, or what such runs had. What no walk of the
    two uses does not count: older ones may have any value there.
    """
    defaults = Config().to_dict()
    completed = {
        section: {**fields, **_OLDER.get(section, {}), **theirs.get(section, {})}
        for section, fields in defaults.items()
    }
    walks = (ours.data.walk, completed["data"]["walk"])
    unused = {f"data.{key}" for key in _unused_by(walks[0]) if key in _unused_by(walks[1])}
    return sorted(
        f"{name} is {our!r}, the checkpoint has {their!r}"
        for name, our, their in _unequal(ours.to_dict(), completed)
        if name not in ("optimizer.start_from", "optimizer.start_step")
        and name not in unused
        and (not name.startswith("run.") or name in ("run.evaluate_every", "run.evaluate_batches"))
    )


def process_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Returns the settings that differ between two processes of one run, but must not.

    Both arguments are results of `to_dict`.
    """
    may_differ = {
        "run.threads", "run.prefetch", "run.ahead_on_device", "run.log_every", "run.sinks",
        "run.timeout_seconds",
    }  # fmt: skip
    return [
        f"{name} is {their!r}, expected {our!r}"
        for name, our, their in _unequal(ours, theirs)
        if name not in may_differ
    ]


def _unequal(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields name and values of settings that differ, except the paths of the stores."""
    for section, fields in ours.items():
        others = theirs.get(section, {})
        # A dict, not a set, for a fixed order; with the keys that only one side has.
        for key in {**fields, **others}:
            our, their = fields.get(key), others.get(key)
            if our != their and (section, key) != ("data", "stores"):
                yield f"{section}.{key}", our, their


def _read(config: str) -> dict[str, Any]:
    if config in presets():
        text = preset(config)
    else:
        try:
            text = read_file(config).decode()
        except OSError as error:
            raise ConfigError(
                f"expected a file or one of the presets {', '.join(presets())}, found {config!r}: "
                f"{error.strerror or error}"
            ) from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{config} is not a TOML file: {error}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{config} is not a TOML file: {error}") from None


def _parsed(setting: str) -> tuple[str, str, Any]:
    name, equals, text = setting.partition("=")
    section, dot, key = name.partition(".")
    if not equals or not dot:
        raise ConfigError(
            f"expected section.key=value, such as data.sequence_length=96, found {setting!r}"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        if text.lstrip().startswith(("{", "[")):
            reason = str(error).partition(" (at ")[0]
            raise ConfigError(
                f"expected a table or a list of TOML for {name}, found {text!r}: {reason}; put "
                "double quotes around texts and around names with a slash, and single quotes "
                f"around the whole: --set '{name}=...'"
            ) from None
        # A string may come without quotes.
        value = text
    return section.strip(), key.strip(), value


def _check_keys(prefix: str, found: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key in found:
        if key not in known:
            raise ConfigError(f"unknown key {prefix}{key}; {_hint(prefix, key, known)}")


def _hint(prefix: str, key: str, known: Mapping[str, Any]) -> str:
    """Returns what may be meant by a key that is unknown in its section."""
    elsewhere = [
        section for section, kind in _SECTIONS.items() if key in typing.get_type_hints(kind)
    ]
    if prefix and elsewhere:
        return f"did you mean {elsewhere[0]}.{key}?"
    table, dot, name = key.partition(".")
    if dot and typing.get_origin(known.get(table)) is Mapping:
        return f"set the whole table: --set '{prefix}{table}={{ {_toml_key(name)} = ... }}'"
    near = difflib.get_close_matches(key, known, n=1)
    names = ", ".join(prefix + name for name in known)
    return f"did you mean {prefix}{near[0]}?" if near else f"expected one of {names}"


def _typed(name: str, value: Any, kind: Any) -> Any:
    """Returns the value in the type of its field."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        # A word or a number.
        words, number = arguments
        if isinstance(value, str):
            return _typed(name, value, words)
        origin, kind = None, number
    if origin is Literal:
        if any(value == a and type(value) is type(a) for a in arguments):
            return value
        kind_name = " or ".join(
            toml_value(a) if isinstance(a, bool) else repr(a) for a in arguments
        )
    elif origin is tuple:
        values = value if isinstance(value, list | tuple) else [value]
        repeated = arguments[-1] is Ellipsis
        if value == "" and repeated:
            raise ConfigError(f"expected a list for {name}, found ''; write {name}=[] for none")
        of_numbers = _LISTS.get(arguments)
        if of_numbers and isinstance(value, str):
            raise ConfigError(f"expected {of_numbers} for {name}, found {value!r}")
        if repeated or len(values) == len(arguments):
            kinds = [arguments[0]] * len(values) if repeated else arguments
            return tuple(_typed(name, v, k) for v, k in zip(values, kinds, strict=True))
        kind_name = f"{len(arguments)} values"
    elif origin is Mapping:
        if isinstance(value, Mapping):
            of = arguments[1]
            for key, inner in value.items():
                if isinstance(inner, Mapping):
                    dotted = f'"{key}.{next(iter(inner), "column")}"'
                    one = "1" if of is int else '""'
                    raise ConfigError(
                        f"expected quotes around names with a dot in {name}: {{ {dotted} = {one} }}"
                    )
                if not isinstance(key, str):
                    raise ConfigError(f"expected a string for each name in {name}, found {key!r}")
                if of is str and not isinstance(inner, str | datetime.date):
                    table = f'{{ {_toml_key(key)} = "2024-06-01" }}'
                    raise ConfigError(
                        f"expected a time in quotes for {name}[{key!r}], found {toml_value(inner)}"
                        f"; write {table}, on the command line --set '{name}={table}'; \"\" is the "
                        "own time of each row"
                    )
            return {key: _typed(f"{name}[{key!r}]", v, of) for key, v in value.items()}
        of_pools = arguments[1] is str
        example = _example_of_pools(value) if of_pools else '{ "a.b" = 1 }'
        none = f"; write {name}={{}} for none" if value == "" else ""
        more = '; "" is the own time of each row, "2024-06-01" one for all rows' if of_pools else ""
        raise ConfigError(
            f"expected a table such as {example} for {name}, found {value!r}{none}{more}"
        )
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ConfigError(f"expected a finite number for {name}, found {value}")
        return float(value)
    elif type(value) is kind:
        return value
    elif kind is str and isinstance(value, datetime.date):
        return value.isoformat()  # TOML has dates without quotes
    else:
        kind_name = _TYPE_NAMES[kind]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    hint = ""
    if kind is str and is_number:
        key = name.partition(".")[2]
        hint = f'; write {key} = "{value}", on the command line --set \'{name}="{value}"\''
    raise ConfigError(f"expected {kind_name} for {name}, found {value!r}{hint}")


_TYPE_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
# Lists of numbers, by the types of their items.
_LISTS: dict[tuple[Any, ...], str] = {
    (int, ...): "a list of integers such as [32,64]",
    (float, ...): "a list of numbers such as [1,0.5]",
    (float, float, float): "a list of 3 numbers such as [0.8,0.1,0.1]",
}


_MOST_STALE_DAYS = 36_525


def _check_least(config: Config) -> None:
    """Refuses values below the least of their key."""
    at_least: dict[str, dict[str, float]] = {
        "model": {"width": 1, "heads": 1, "layers": 1, "hidden": 1},
        "data": {
            "batch_size": 1, "sequence_length": 2, "max_rows": 1, "child_width": 1,
            "staleness_days": 0,
        },
        "optimizer": {
            "steps": 1, "warmup_steps": 0, "muon_rate": 0, "adam_rate": 0, "final_share": 0,
            "weight_decay": 0, "clip_norm": 1e-12, "mean_share": 0, "mask_weight": 0, "patience": 0,
            "muon_beta": 0, "adam_b1": 0, "adam_b2": 0, "start_step": 0,
        },
        "run": {
            "evaluate_every": 0, "evaluate_batches": 0, "checkpoint_every": 1, "keep": 1,
            "members": 1,
            "log_every": 1, "ahead_on_device": 1, "prefetch": 0, "threads": 0, "timeout_seconds": 1,
        },
    }  # fmt: skip
    sections = config.to_dict()
    for section, limits in at_least.items():
        for key, least in limits.items():
            if sections[section][key] < least:
                found = sections[section][key]
                raise ConfigError(f"expected at least {least} for {section}.{key}, found {found}")


def _check(config: Config) -> None:
    """Refuses values out of range, and values that contradict each other."""
    _check_least(config)
    model, data = config.model, config.data
    check_walk(data)
    if data.staleness_days > _MOST_STALE_DAYS:
        raise ConfigError(
            f"expected at most {_MOST_STALE_DAYS} (100 years) for data.staleness_days, found "
            f"{data.staleness_days}"
        )
    for name in ("mean_share", "muon_beta", "adam_b1", "adam_b2"):
        found = getattr(config.optimizer, name)
        if found >= 1:
            raise ConfigError(
                f"expected less than 1 for optimizer.{name}, found {found}: the running mean "
                "would never change"
            )
    if config.optimizer.schedule == "constant" and (
        config.optimizer.final_share != Optimizer.final_share
    ):
        raise ConfigError(
            "expected no optimizer.final_share with optimizer.schedule='constant', whose rates do "
            f"not fall, found {config.optimizer.final_share}; leave one of them out"
        )
    if config.optimizer.start_step and not config.optimizer.start_digest:
        raise ConfigError(
            "expected no optimizer.start_step, which a run records when it starts from the best "
            f"checkpoint of another one, found {config.optimizer.start_step}; leave it out"
        )
    _check_microbatches(config)
    if config.optimizer.patience and not config.run.evaluate_every:
        raise ConfigError(
            "expected at least 1 for run.evaluate_every with optimizer.patience, which counts "
            "evaluations, found 0"
        )
    if model.width % model.heads:
        raise ConfigError(
            f"expected a model.width that model.heads divides, found {model.width} and "
            f"{model.heads}"
        )
    _check_time("data.visible_until", data.visible_until, "sets no limit")
    for table, time in data.pools.items():
        _check_time(f"data.pools[{table!r}]", time, "is the own time of each row")
    _check_masks(config)
    for length in data.sequence_buckets:
        if not 1 <= length <= data.sequence_length:
            raise ConfigError(
                f"expected lengths of 1 to data.sequence_length = {data.sequence_length} in "
                f"data.sequence_buckets, found {length}; leave it out"
            )
    if data.task_weights and len(data.task_weights) != len(data.tasks) + len(data.pools):
        raise ConfigError(
            "expected one number in data.task_weights per task in data.tasks, and then per pool in "
            f"data.pools, {len(data.tasks) + len(data.pools)} in all, found "
            f"{len(data.task_weights)}; set them anew, or leave them out with --set "
            "data.task_weights=[]"
        )


def _check_microbatches(config: Config) -> None:
    """Refuses a number of microbatches that does not divide the batch."""
    found, batch_size = config.optimizer.microbatches, config.data.batch_size
    if found == "auto":
        return
    if found < 0:
        raise ConfigError(f"expected at least 0 for optimizer.microbatches, found {found}")
    if found and batch_size % found:
        less = next(number for number in range(found, 0, -1) if batch_size % number == 0)
        raise ConfigError(
            f"expected a data.batch_size that optimizer.microbatches divides, found {batch_size} "
            f"and {found}; set optimizer.microbatches={less}, or another batch size"
        )


def _check_time(name: str, time: str, none: str) -> None:
    """Refuses what is no time; `none` says what no time means, which is an empty text."""
    if time:
        try:
            micros(time)
        except headwater.InvalidArgument as error:
            raise ConfigError(f'{name}: {error}; "" {none}') from None


def _check_masks(config: Config) -> None:
    """Refuses masks of all cells, pools without masks, and settings of masks without masks."""
    data, weight = config.data, config.optimizer.mask_weight
    if not 0 <= data.mask_share < 1:
        raise ConfigError(
            f"expected at least 0 and less than 1 for data.mask_share, found {data.mask_share}; "
            "0.15 masks about every seventh cell, and 0 none"
        )
    if not 0 <= data.mask_most <= data.sequence_length:
        raise ConfigError(
            f"expected at least 0 and at most {data.sequence_length} for data.mask_most, found "
            f"{data.mask_most}, because data.sequence_length gives a context "
            f"{data.sequence_length} cells; 0 is what contexts rarely exceed"
        )
    if data.pools and data.mask_share and weight == 0:
        raise ConfigError(
            "expected an optimizer.mask_weight above 0 with data.pools, whose rows have no target "
            "to learn, found 0; set optimizer.mask_weight=1, or leave data.pools out"
        )
    if data.mask_share:
        return
    if data.pools:
        raise ConfigError(
            "expected a data.mask_share above 0 with data.pools, whose rows have no target to "
            "learn, found 0; set data.mask_share=0.15, or leave data.pools out"
        )
    unused = {
        "data.mask_most": (data.mask_most, Data.mask_most),
        "data.mask_texts": (data.mask_texts, Data.mask_texts),
        "optimizer.mask_weight": (weight, Optimizer.mask_weight),
    }
    for name, (found, default) in unused.items():
        if found != default:
            raise ConfigError(
                f"expected no {name}, because data.mask_share is 0, found {toml_value(found)}; "
                "leave it out, or set data.mask_share"
            )


def _example_of_pools(found: Any) -> str:
    """Returns a table of pools: of the names that were found, or of one that may be."""
    names = [of for of in (found if isinstance(found, list) else [found]) if of]
    keys = [_toml_key(of) for of in names if isinstance(of, str)] or ["orders"]
    pairs = ", ".join(f'{key} = ""' for key in keys)
    return f"{{ {pairs} }}"


def _toml_key(key: str) -> str:
    """Returns a key as TOML has it: bare where it may be."""
    is_bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if is_bare else toml_value(key)


def toml_value(value: Any) -> str:
    """Returns a value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_value(k)} = {toml_value(v)}' for k, v in value.items())} }}"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
