"""Checkpoints: state and cursor of a run together, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from confluence import config
from confluence.patience import Validation
from confluence.step import State


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read, or belongs to another run."""


class Restored(NamedTuple):
    """The state and the cursor of a checkpoint."""

    state: State
    cursor: bytes
    validation: Validation


class Checkpoints:
    """The checkpoints of a run: the newest ones, and the best one by validation loss."""

    def __init__(self, folder: Path, keep: int, *, is_read_only: bool = False) -> None:
        """With `is_read_only`, a run may write to the folder at the same time."""
        self._folder = folder
        best = BestN(
            get_metric_fn=lambda found: -found["loss"], n=1, keep_checkpoints_without_metrics=False
        )
        with _intended_options():
            options = ocp.CheckpointManagerOptions(
                best_fn=lambda found: found["loss"],
                best_mode="min",
                preservation_policy=AnyPreservationPolicy([LatestN(keep), best]),
                # Removes checkpoints that a kill left half written.
                cleanup_tmp_directories=not is_read_only,
                read_only=is_read_only,
            )
        try:
            with _intended_options():
                self._manager = ocp.CheckpointManager(
                    folder, options=options, item_names=("state", "run")
                )
        except OSError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"cannot read the checkpoints in {folder}: {_first_line(error)}; remove the "
                "damaged one"
            ) from error

    @property
    def latest(self) -> int | None:
        """The step of the newest checkpoint."""
        return self._manager.latest_step()

    @property
    def best(self) -> int | None:
        """The step of the best checkpoint by validation loss, or of the newest if none has one.

        Raises:
            CheckpointError: A checkpoint is damaged.
        """
        losses = {step: self._run_record(step)["loss"] for step in self._manager.all_steps()}
        validated = [step for step, loss in losses.items() if loss is not None]
        return min(validated, key=lambda step: (losses[step], -step)) if validated else self.latest

    def save(
        self,
        step: int,
        state: State,
        cursor: bytes,
        settings: config.Config,
        roots: Sequence[str],
        validation: Validation,
        loss: float | None = None,
    ) -> None:
        """Starts to write a checkpoint; training may continue meanwhile.

        Raises:
            CheckpointError: This checkpoint, or the one before, could not be written.
        """
        run = {
            "cursor": base64.b64encode(cursor).decode(),
            "config": settings.to_dict(),
            "stores": list(roots),
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
            raise self._write_error(error) from error

    def wait(self) -> None:
        """Waits until all checkpoints are written.

        Raises:
            CheckpointError: A checkpoint could not be written.
        """
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:
            raise self._write_error(error) from error

    def restore(
        self, step: int, like: State, settings: config.Config, roots: Sequence[str]
    ) -> Restored:
        """Returns the run after `step`, with the shapes, types and devices of `like`.

        Raises:
            CheckpointError: The checkpoint is damaged, or belongs to another run; the message
                names every difference.
        """
        run = self._run_record(step)
        differing = config.differences(settings, run["config"])
        differing += _other_data(settings.data.stores, roots, run["stores"])
        if differing:
            raise CheckpointError(
                f"{self._folder / str(step)} belongs to another run: {'; '.join(differing)}; "
                "use the run's own configuration and stores, or start another run in another folder"
            )
        return Restored(
            self.read_state(step, like),
            base64.b64decode(run["cursor"]),
            # Older checkpoints have none.
            Validation(*run.get("validation", ())),
        )

    def read_state(self, step: int, like: State) -> State:
        """Returns the state of a checkpoint, of any run, with the shapes and devices of `like`.

        Raises:
            CheckpointError: The checkpoint is damaged.
        """
        form = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        state = State(*self._read(step, state=ocp.args.StandardRestore(form)).state)
        if _digest(state) != self.digest(step):
            raise self._damage_error(step)
        return state

    def digest(self, step: int) -> str:
        """Returns the digest of a checkpoint's state."""
        digest: str = self._run_record(step)["digest"]
        return digest

    def settings(self, step: int) -> dict[str, Any]:
        """Returns the sections of the configuration that a checkpoint was written under."""
        sections: dict[str, Any] = self._run_record(step)["config"]
        return sections

    def shapes(self, step: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of a checkpoint's parameters, by name."""
        with ocp.StandardCheckpointer() as reader:
            tree = reader.metadata(self._folder / str(step) / "state").item_metadata.tree
        return {
            ".".join(key.key for key in path): tuple(leaf.shape)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree["params"])
        }

    def close(self) -> None:
        """Waits until all checkpoints are written, and closes the folder.

        Raises:
            CheckpointError: A checkpoint could not be written.
        """
        try:
            self._manager.close()
        except Exception as error:
            raise self._write_error(error) from error

    def _run_record(self, step: int) -> dict[str, Any]:
        """Returns what a checkpoint has beside the state: cursor, configuration, data, loss."""
        run: dict[str, Any] = self._read(step, run=ocp.args.JsonRestore()).run
        if not isinstance(run, dict) or run.pop("seal", None) != _seal(run):
            raise self._damage_error(step)
        return run

    def _read(self, step: int, **items: Any) -> Any:
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as error:
            raise CheckpointError(
                f"cannot read the checkpoint {self._folder / str(step)}: {error}; remove it to "
                "resume from the one before"
            ) from error

    def _damage_error(self, step: int) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint {self._folder / str(step)} is damaged: its digest does not match its "
            "content; remove it to resume from the one before"
        )

    def _write_error(self, error: Exception) -> CheckpointError:
        reason = "no space left" if "No space left" in str(error) else _first_line(error)
        newest = f"the newest is of step {self.latest}" if self.latest else "there is none yet"
        return CheckpointError(
            f"cannot write a checkpoint to {self._folder}: {reason} ({newest}); free some space, "
            "and continue with --resume"
        )


def _other_data(stores: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    if len(ours) != len(theirs):
        return [f"data.stores has {len(ours)} stores, the checkpoint has {len(theirs)}"]
    return [
        f"the store {store} has the root {our}, the checkpoint has {their}"
        for store, our, their in zip(stores, ours, theirs, strict=True)
        if our != their
    ]


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


def _first_line(error: Exception) -> str:
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
