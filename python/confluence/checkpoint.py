"""Checkpoints: state and cursor of a run together, written whole or not at all."""

from __future__ import annotations

import base64
import errno
import hashlib
import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from confluence import config, orbax_noise
from confluence.patience import Validation
from confluence.step import State
from headwater._headwater import read_file, write_file

# What TensorStore and XLA say of trouble that is not the checkpoint's.
_NO_DAMAGE = ("RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "UNAVAILABLE", "DEADLINE_EXCEEDED")
# Of the system's errors, these alone are damage: a file of the checkpoint is not there.
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
# The part of a checkpoint that has what belongs to the state.
_RUN = "run"


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read, or belongs to another run."""


class DamageError(CheckpointError):
    """A checkpoint is damaged, or in the folder of another step."""

    def __init__(self, damage: str) -> None:
        super().__init__(f"{damage}; remove it, and the one before is used, if there is one")
        self.damage = damage


class StoreIdentity(NamedTuple):
    """What a checkpoint records of a store."""

    # The digest that identifies the data.
    root: str
    # What made the vectors of names, categories and texts.
    embedder: str


class Restored(NamedTuple):
    """The state and the cursor of a checkpoint."""

    step: int
    state: State
    cursor: bytes
    validation: Validation


class Checkpoints:
    """The checkpoints in a folder, to which a run may write at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._passed_over: set[int] = set()

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints, in order; some may be damaged."""
        return steps_in(self._folder)

    @property
    def latest(self) -> int | None:
        """The step of the newest checkpoint, which may be damaged."""
        return max(self.steps, default=None)

    @property
    def best(self) -> int | None:
        """The step of the best checkpoint by validation loss, or of the newest if none has one.

        Damaged ones are passed over with a warning.

        Raises:
            DamageError: All of them are damaged.
        """
        return next(iter(self._in_order("best")), None)

    def restore_chosen(
        self,
        choice: Literal["best", "latest"],
        like: State,
        settings: config.Config,
        stores: Sequence[StoreIdentity],
    ) -> Restored | None:
        """Returns the run after the best or the newest step; None if there is no checkpoint.

        Damaged ones are passed over with a warning.

        Raises:
            CheckpointError: All are damaged, or one belongs to another run.
        """
        damaged = {}
        for step in self._in_order(choice):
            try:
                return self.restore(step, like, settings, stores)
            except DamageError as error:
                self._pass_over(step, error)
                damaged[step] = error
        if damaged:
            raise self._all_damaged(damaged)
        return None

    def restore_newest(
        self, like: State, settings: config.Config, stores: Sequence[StoreIdentity]
    ) -> Restored | None:
        """Returns the run after the newest step whose checkpoint is not damaged, to continue it.

        Damaged checkpoints are moved to the folder `damaged-checkpoints` beside this one, with a
        warning. Otherwise they would count among those to keep, and in place of good ones.

        Raises:
            CheckpointError: All are damaged, or one belongs to another run.
        """
        damaged, good = {}, []
        for step in self.steps:
            try:
                self.restore(step, like, settings, stores)
                good.append(step)
            except DamageError as error:
                damaged[step] = error
        if not good and damaged:
            raise self._all_damaged(damaged)
        self._mend(good, damaged)
        return self.restore(good[-1], like, settings, stores) if good else None

    def restore(
        self, step: int, like: State, settings: config.Config, stores: Sequence[StoreIdentity]
    ) -> Restored:
        """Returns the run after `step`, with the shapes, types and devices of `like`.

        Raises:
            DamageError: The checkpoint is damaged.
            CheckpointError: It belongs to another run; the message names every difference.
        """
        run = self._run_record(step)
        differing = config.differences(settings, run["config"])
        differing += _other_data(settings.data.stores, stores, run)
        if differing:
            raise CheckpointError(
                f"{self._folder / str(step)} belongs to another run: {'; '.join(differing)}; "
                "use the run's own configuration and stores, or start another run in another folder"
            )
        return Restored(
            step,
            self.read_state(step, like),
            base64.b64decode(run["cursor"]),
            # Older checkpoints have none.
            Validation(*run.get("validation", ())),
        )

    def read_state(self, step: int, like: State) -> State:
        """Returns the state of a checkpoint, of any run, with the shapes and devices of `like`.

        Raises:
            DamageError: The checkpoint is damaged.
        """
        form = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        try:
            with ocp.StandardCheckpointer() as reader:
                state = State(*reader.restore(self._folder / str(step) / "state", form))
        except Exception as error:
            orbax_noise.silence()
            trouble = _passing_trouble(error)
            if trouble is not None:
                raise self._read_error(step, trouble) from None
            raise self._damage_error(step, _first_line(error)) from None
        if _digest(state) != self.digest(step):
            raise self._damage_error(step, "its digest does not match its content")
        return state

    def digest(self, step: int) -> str:
        """Returns the digest of a checkpoint's state."""
        digest: str = self._run_record(step)["digest"]
        return digest

    def loss(self, step: int) -> float | None:
        """Returns the validation loss of a checkpoint; None if it has no finite one."""
        loss: float | None = self._run_record(step)["loss"]
        return loss

    def settings(self, step: int) -> dict[str, Any]:
        """Returns the sections of the configuration that a checkpoint was written under."""
        sections: dict[str, Any] = self._run_record(step)["config"]
        return sections

    def embedders(self, step: int) -> list[str] | None:
        """Returns the embedders of a checkpoint's stores; None for one of an older version."""
        return _embedders(self._run_record(step))

    def shapes(self, step: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of a checkpoint's parameters, by name."""
        with ocp.StandardCheckpointer() as reader:
            tree = reader.metadata(self._folder / str(step) / "state").item_metadata.tree
        return {
            ".".join(key.key for key in path): tuple(leaf.shape)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree["params"])
        }

    def _in_order(self, choice: Literal["best", "latest"]) -> list[int]:
        """Returns the steps whose records are whole, the chosen one first."""
        losses, damaged = {}, {}
        for step in reversed(self.steps):
            try:
                losses[step] = self._run_record(step)["loss"]
            except DamageError as error:
                self._pass_over(step, error)
                damaged[step] = error
        if damaged and not losses:
            raise self._all_damaged(damaged)
        if choice == "latest":
            return list(losses)
        best = sorted((loss, -step) for step, loss in losses.items() if loss is not None)
        # The later of two equal ones comes first, and those without a loss come last.
        return [-of for _, of in best] + [step for step, loss in losses.items() if loss is None]

    def _run_record(self, step: int) -> dict[str, Any]:
        """Returns what a checkpoint has beside the state: cursor, configuration, data, loss."""
        try:
            run = json.loads(read_file(self._folder / str(step) / _RUN / "metadata"))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise self._damage_error(step, "it has no record") from None
            reason = os.strerror(error.errno) if error.errno else _first_line(error)
            raise self._read_error(step, reason) from None
        except (ValueError, RecursionError):
            raise self._damage_error(step, "its record is no JSON") from None
        if not isinstance(run, dict) or run.pop("seal", None) != _seal(run):
            raise self._damage_error(step, "its digest does not match its content")
        # Older checkpoints do not have their step.
        found = run.get("step", step)
        if found != step:
            raise DamageError(
                f"expected the checkpoint of step {step} in {self._folder / str(step)}, found that "
                f"of step {found}: its folder was copied or renamed"
            )
        return run

    def _pass_over(self, step: int, error: DamageError) -> None:
        if step not in self._passed_over:
            self._passed_over.add(step)
            _warn(f"{error.damage}; it is passed over")

    def _mend(self, good: list[int], damaged: Mapping[int, DamageError]) -> None:
        """Moves damaged checkpoints, and mends the losses by which Orbax chooses which to keep.

        All processes of a run call it together.
        """
        _wait_for_all("checkpoints are read")
        if jax.process_index() == 0:
            for step in good:
                loss = self._run_record(step)["loss"]
                path = self._folder / str(step) / "metrics/metrics"
                if loss is not None:
                    path.parent.mkdir(exist_ok=True)
                    write_file(path, json.dumps({"loss": loss}).encode())
            for step, error in damaged.items():
                _warn(f"{error.damage}; it is passed over, and now in {self._move(step)}")
        _wait_for_all("checkpoints are mended")

    def _move(self, step: int) -> Path:
        """Moves a damaged checkpoint out of the folder; returns its new place."""
        beside = self._folder.parent / "damaged-checkpoints"
        beside.mkdir(exist_ok=True)
        names = itertools.chain([f"{step}"], (f"{step}-{number}" for number in itertools.count(1)))
        place = next(beside / name for name in names if not (beside / name).exists())
        return (self._folder / str(step)).rename(place)

    def _all_damaged(self, damaged: Mapping[int, DamageError]) -> CheckpointError:
        newest = damaged[max(damaged)].damage
        return CheckpointError(
            f"expected an undamaged checkpoint in {self._folder}, found none: {newest}; without a "
            "copy of one, start another run in another folder"
        )

    def _read_error(self, step: int, reason: str) -> CheckpointError:
        return CheckpointError(
            f"cannot read the checkpoint {self._folder / str(step)}: {reason}; it may be whole: "
            "try again when that is mended"
        )

    def _damage_error(self, step: int, reason: str) -> DamageError:
        return DamageError(f"the checkpoint {self._folder / str(step)} is damaged: {reason}")


class Writer:
    """Writes the checkpoints of a run; keeps the newest ones, and the best by validation loss."""

    def __init__(self, folder: Path, keep: int) -> None:
        """Raises CheckpointError if the folder cannot be used."""
        self._folder = folder
        best = BestN(
            get_metric_fn=lambda found: -found["loss"], n=1, keep_checkpoints_without_metrics=False
        )
        try:
            with _intended_options():
                options = ocp.CheckpointManagerOptions(
                    best_fn=lambda found: found["loss"],
                    best_mode="min",
                    preservation_policy=AnyPreservationPolicy([LatestN(keep), best]),
                    # Removes checkpoints that a kill left half written.
                    cleanup_tmp_directories=True,
                )
                self._manager = ocp.CheckpointManager(
                    folder, options=options, item_names=("state", _RUN)
                )
        except OSError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"cannot read the checkpoints in {folder}: {_first_line(error)}; remove the "
                "damaged one"
            ) from None

    def save(
        self,
        step: int,
        state: State,
        cursor: bytes,
        settings: config.Config,
        stores: Sequence[StoreIdentity],
        validation: Validation,
        loss: float | None = None,
    ) -> None:
        """Starts to write a checkpoint; training may continue meanwhile.

        Raises:
            CheckpointError: This checkpoint, or the one before, could not be written.
        """
        run = {
            "step": step,
            "cursor": base64.b64encode(cursor).decode(),
            "config": settings.to_dict(),
            "stores": [of.root for of in stores],
            "embedders": [of.embedder for of in stores],
            "loss": loss,
            "validation": list(validation),
            "digest": _digest(state),
        }
        run["seal"] = _seal(run)
        items = ocp.args.Composite(state=ocp.args.StandardSave(state), run=ocp.args.JsonSave(run))
        try:
            metrics = None if loss is None else {"loss": loss}
            self._manager.save(step, args=items, metrics=metrics, force=True)
        except Exception as error:
            raise self._write_error(error) from None

    def wait(self) -> None:
        """Waits until all checkpoints are written.

        Raises:
            CheckpointError: A checkpoint could not be written.
        """
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:
            raise self._write_error(error) from None

    def close(self) -> None:
        """Waits until all checkpoints are written, and closes the folder.

        Raises:
            CheckpointError: A checkpoint could not be written.
        """
        try:
            self._manager.close()
        except Exception as error:
            raise self._write_error(error) from None

    def _write_error(self, error: Exception) -> CheckpointError:
        reason = "no space left" if "No space left" in str(error) else _first_line(error)
        latest = max(steps_in(self._folder), default=None)
        newest = f"the newest is of step {latest}" if latest else "there is none yet"
        return CheckpointError(
            f"cannot write a checkpoint to {self._folder}: {reason} ({newest}); free some space, "
            "and continue with --resume"
        )


def steps_in(folder: Path) -> list[int]:
    """Returns the steps of the checkpoints in a folder, in order; Orbax names them by number."""
    try:
        names = [path.name for path in folder.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if re.fullmatch(r"0|[1-9][0-9]*", name))


def _wait_for_all(place: str) -> None:
    """Returns when all processes of the run are here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)


def _warn(warning: str) -> None:
    if jax.process_index() == 0:
        print(f"confluence: warning: {warning}", file=sys.stderr)


def _embedders(run: Mapping[str, Any]) -> list[str] | None:
    # Records of older versions lack them: such a run goes on, by the roots of its stores alone.
    found: list[str] | None = run.get("embedders")
    return found


def _other_data(
    paths: Sequence[str], ours: Sequence[StoreIdentity], run: Mapping[str, Any]
) -> list[str]:
    roots = run["stores"]
    if len(ours) != len(roots):
        return [f"data.stores has {len(ours)} stores, the checkpoint has {len(roots)}"]
    embedders = _embedders(run) or [our.embedder for our in ours]
    differing = []
    for path, our, root, embedder in zip(paths, ours, roots, embedders, strict=True):
        if our.embedder != embedder:
            differing.append(
                f"the store {path} has vectors of the embedder {our.embedder!r}, the checkpoint "
                f"was trained on those of {embedder!r}: prepare the store again with that embedder"
            )
        elif our.root != root:
            differing.append(f"the store {path} has the root {our.root}, the checkpoint has {root}")
    return differing


def _passing_trouble(error: BaseException) -> str | None:
    """Returns why a checkpoint that may be whole could not be read; None if it is damaged.

    It may be whole after an error of the system, such as one of the disk, unless a file is missing.
    """
    text = str(error)
    codes = [int(code) for code in re.findall(r"os_error_code='(\d+)'", text)]  # TensorStore's
    if isinstance(error, OSError) and error.errno is not None:
        codes.append(error.errno)
    for code in codes:
        if code not in _ABSENT:
            return os.strerror(code)
    if isinstance(error, MemoryError | TimeoutError) or text.startswith(_NO_DAMAGE):
        return _first_line(error)
    cause = error.__cause__ or error.__context__
    return None if cause is None else _passing_trouble(cause)


@contextmanager
def _intended_options() -> Iterator[None]:
    """Silences what Orbax logs of options that are intended."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _first_line(error: BaseException) -> str:
    """Returns the first line of Orbax's message, which may be pages long."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]


def _seal(run: dict[str, Any]) -> str:
    """Returns a digest of what a checkpoint has beside the state, in any order of its keys."""
    text = json.dumps(run, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest(state: State) -> str:
    """Returns a digest of a state: Orbax writes no checksum of its own."""
    digest = hashlib.blake2b(digest_size=16)
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(state)):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
