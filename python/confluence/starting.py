"""Starting a run from the parameters of another run's best checkpoint.

The run records where they came from, and the digest and the step of that checkpoint. So it starts
again from the same numbers, or not at all, until it has a checkpoint of its own.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from confluence import config
from confluence.checkpoint import CheckpointError, Checkpoints
from confluence.step import Program, State

# The settings of [model] that change neither the parameters nor what is computed of them.
_MAY_DIFFER = ("attention", "compute", "rematerialise")
# The head that only a model of masked texts has: a run may start from one with it or without.
_TEXT_HEAD = "heads.text."


def requirement(model: config.Model) -> str:
    """Returns a line on what a run that starts from one of this model must have, too."""
    fixed = [
        f"{name} = {config.toml_value(value)}"
        for name, value in dataclasses.asdict(model).items()
        if name not in _MAY_DIFFER
    ]
    return f"a run that starts --from this one must have the same [model]: {', '.join(fixed)}"


def resolve(settings: config.Config) -> config.Config:
    """Returns the settings with digest and step of the checkpoint to start from, if there is one.

    "auto" for `model.epochs` becomes the value that the parameters were trained with.

    Raises:
        CheckpointError: There is no such run, or it has no checkpoint.
    """
    start, model = settings.optimizer, settings.model
    if not start.start_from:
        return settings
    start = dataclasses.replace(start, start_from=os.path.abspath(start.start_from))
    if not start.start_digest or model.epochs == "auto":
        checkpoints, step = _open(Path(start.start_from))
        trained = checkpoints.settings(step)["model"]
        if not start.start_digest:
            digest = checkpoints.digest(step)
            start = dataclasses.replace(start, start_digest=digest, start_step=step)
        if model.epochs == "auto":
            model = dataclasses.replace(model, epochs=trained["epochs"])
    return dataclasses.replace(settings, model=model, optimizer=start)


def load(settings: config.Config, program: Program, embedders: Sequence[str]) -> State:
    """Returns the initial state with the parameters of the run to start from; prints their step.

    A head for texts that only one of the two runs has is left out, or drawn at random. `embedders`
    has the name of that of each store.

    Raises:
        CheckpointError: The run is gone, has changed, or has parameters that this model cannot use;
            the message names every difference.
    """
    run, digest = Path(settings.optimizer.start_from), settings.optimizer.start_digest
    checkpoints, step = _open(run)
    found = checkpoints.digest(step)
    if found != digest:
        raise CheckpointError(
            f"expected the best checkpoint of {run} to have the digest {digest}, as when this "
            f"run started from it, found {found} after step {step}: it has changed since; "
            "start another run in another folder"
        )
    _check_embedders(run, checkpoints.embedders(step), settings.data.stores, embedders)
    trained, shapes = checkpoints.settings(step), checkpoints.shapes(step)
    differing, remedy = _differences(settings.model, trained["model"]), "set them as that run has"
    if not differing:
        differing, remedy = _other_shapes(program.abstract_state().params, shapes)
    if differing:
        raise CheckpointError(
            f"expected a model that can start from the parameters of {run}, found differences: "
            f"{'; '.join(differing)}; {remedy}, or start from another run"
        )
    initial = program.initial()
    has_mean = trained["optimizer"]["mean_share"] > 0
    like = program.abstract_state(with_texts=any(name.startswith(_TEXT_HEAD) for name in shapes))
    like = like._replace(mean=like.params if has_mean else {})
    params = checkpoints.read_state(step, like).inference_params
    if jax.process_index() == 0:
        print(
            f"confluence: starting from the parameters of {run} after step {step}, "
            f"{_reason(checkpoints, step)}",
            file=sys.stderr,
        )
    heads = initial.params["heads"] | params["heads"]
    params = params | {"heads": {name: heads[name] for name in initial.params["heads"]}}
    # A copy, since a step consumes the buffers of both.
    mean = jax.tree.map(jnp.copy, params) if initial.mean else {}
    return initial._replace(params=params, mean=mean)


def _reason(checkpoints: Checkpoints, step: int) -> str:
    """Returns why the checkpoint of a step is the one to start from."""
    if checkpoints.loss(step) is None:
        return "its newest checkpoint, because none has a validation loss"
    return "its best checkpoint by validation loss"


def _open(run: Path) -> tuple[Checkpoints, int]:
    """Returns the checkpoints of a run, and the step of the best one."""
    if not (run / "checkpoints").is_dir():
        raise CheckpointError(
            f"expected the folder of a run to start from, found no checkpoints in {run}; name "
            "the folder of a trained run, or where it is now: --from FOLDER"
        )
    checkpoints = Checkpoints(run.absolute() / "checkpoints")
    step = checkpoints.best
    if step is None:
        raise CheckpointError(
            f"expected a checkpoint to start from in {run}, found none; train that run first"
        )
    return checkpoints, step


def _check_embedders(
    run: Path, theirs: Sequence[str] | None, stores: Sequence[str], ours: Sequence[str]
) -> None:
    # A run of an older version has no record of its embedders: from it others start as before.
    if theirs is None:
        return
    known = " and ".join(map(repr, dict.fromkeys(theirs)))
    for store, embedder in zip(stores, ours, strict=True):
        if embedder not in theirs:
            raise CheckpointError(
                f"expected vectors of the embedder that {run} was trained with, {known}, found "
                f"those of {embedder!r} in {store}: vectors of different embedders cannot be "
                "compared; prepare the store again with the embedder of that run, or start from "
                "another run"
            )


def _differences(ours: config.Model, theirs: dict[str, Any]) -> list[str]:
    defaults = dataclasses.asdict(config.Model())
    return [
        f"model.{name} is {our!r}, that run has {theirs.get(name, defaults[name])!r}"
        for name, our in dataclasses.asdict(ours).items()
        if name not in _MAY_DIFFER and our != theirs.get(name, defaults[name])
    ]


def _other_shapes(params: Any, theirs: dict[str, tuple[int, ...]]) -> tuple[list[str], str]:
    """Returns the parameters of other shapes, and what to do about them."""
    ours = {
        ".".join(key.key for key in path): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    column = "encoder.column.weight"
    if column in theirs and ours[column][0] != theirs[column][0]:
        found = (
            f"the stores have embeddings of dimension {ours[column][0]}, those of that run have "
            f"{theirs[column][0]}"
        )
        return [found], f"prepare the stores again with --dimension {theirs[column][0]}"
    differing = [
        f"the parameter {name} has the shape {ours.get(name)}, in that run {theirs.get(name)}"
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name) and not name.startswith(_TEXT_HEAD)
    ]
    return differing, "use stores like those of that run"
