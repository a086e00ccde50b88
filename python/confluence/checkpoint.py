"""What a run is taken up from: state and cursor in one checkpoint, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from confluence import config
from confluence.step import State


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or is not of this run."""


class Restored(NamedTuple):
    """A run where it stood."""

    state: State
    cursor: bytes


class Checkpoints:
    """The checkpoints of a run: the newest ones, and the best by validation."""

    def __init__(self, folder: Path, keep: int, *, is_read_only: bool = False) -> None:
        """Where it only reads, a run may go on writing meanwhile."""
        self._folder = folder
        best = BestN(
            get_metric_fn=lambda found: -found["loss"], n=1, keep_checkpoints_without_metrics=False
        )
        options = ocp.CheckpointManagerOptions(
            best_fn=lambda found: found["loss"],
            best_mode="min",
            preservation_policy=AnyPreservationPolicy([LatestN(keep), best]),
            # What a kill has left half written.
            cleanup_tmp_directories=not is_read_only,
            read_only=is_read_only,
        )
        try:
            self._manager = ocp.CheckpointManager(
                folder, options=options, item_names=("state", "run")
            )
        except OSError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"the checkpoints in {folder} cannot be read: {_first_line(error)}; take away the "
                "one that is damaged"
            ) from error

    @property
    def latest(self) -> int | None:
        """The step of the newest checkpoint."""
        return self._manager.latest_step()

    @property
    def best(self) -> int | None:
        """The step of the best by validation; where none was validated, of the newest.

        Raises:
            CheckpointError: One of them is damaged.
        """
        losses = {step: self._run(step)["loss"] for step in self._manager.all_steps()}
        validated = [step for step, loss in losses.items() if loss is not None]
        return min(validated, key=lambda step: (losses[step], -step)) if validated else self.latest

    def save(
        self,
        step: int,
        state: State,
        cursor: bytes,
        settings: config.Config,
        roots: Sequence[str],
        loss: float | None = None,
    ) -> None:
        """Begins to write a checkpoint; training may go on meanwhile.

        Raises:
            CheckpointError: It, or the one before, could not be written.
        """
        run = {
            "cursor": base64.b64encode(cursor).decode(),
            "config": settings.to_dict(),
            "stores": list(roots),
            "loss": loss,
            "digest": _digest(state),
        }
        run["seal"] = _seal(run)
        items = ocp.args.Composite(state=ocp.args.StandardSave(state), run=ocp.args.JsonSave(run))
        try:
            metrics = None if loss is None else {"loss": loss}
            self._manager.save(step, args=items, metrics=metrics, force=True)
        except Exception as error:
            raise self._unwritten(error) from error

    def wait(self) -> None:
        """Waits until what was begun is written."""
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:
            raise self._unwritten(error) from error

    def restore(
        self, step: int, like: State, settings: config.Config, roots: Sequence[str]
    ) -> Restored:
        """Returns the run as it stood after `step`, in the form and places of `like`.

        Raises:
            CheckpointError: The checkpoint is damaged, or of another run; what differs is named.
        """
        run = self._run(step)
        differing = config.differences(settings, run["config"])
        differing += _other_data(settings.data.stores, roots, run["stores"])
        if differing:
            raise CheckpointError(
                f"{self._folder / str(step)} is of another run: {'; '.join(differing)}; go on with "
                "the run's own configuration, or begin another run in another folder"
            )
        form = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        state = State(*self._restored(step, state=ocp.args.StandardRestore(form)).state)
        if _digest(state) != run["digest"]:
            raise self._damaged(step)
        return Restored(state, base64.b64decode(run["cursor"]))

    def close(self) -> None:
        """Lets go of the folder.

        Raises:
            CheckpointError: What was begun could not be written.
        """
        try:
            self._manager.close()
        except Exception as error:
            raise self._unwritten(error) from error

    def _run(self, step: int) -> dict[str, Any]:
        """What a checkpoint tells beside the state."""
        run: dict[str, Any] = self._restored(step, run=ocp.args.JsonRestore()).run
        if not isinstance(run, dict) or run.pop("seal", None) != _seal(run):
            raise self._damaged(step)
        return run

    def _restored(self, step: int, **items: Any) -> Any:
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as error:
            raise CheckpointError(
                f"the checkpoint {self._folder / str(step)} cannot be read: {error}; take it away "
                "to go on from the one before"
            ) from error

    def _damaged(self, step: int) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint {self._folder / str(step)} is damaged: it is not what was written; "
            "take it away to go on from the one before"
        )

    def _unwritten(self, error: Exception) -> CheckpointError:
        reason = "no space is left" if "No space left" in str(error) else _first_line(error)
        kept = (
            f"the last whole one is of step {self.latest}" if self.latest else "there is none yet"
        )
        return CheckpointError(
            f"a checkpoint could not be written to {self._folder}: {reason}; {kept}; make room, "
            "and go on with --resume"
        )


def _other_data(stores: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    if len(ours) != len(theirs):
        return [f"there are {len(ours)} stores, and were {len(theirs)}"]
    return [
        f"the data of {store} have the root {our}, and had {their}"
        for store, our, their in zip(stores, ours, theirs, strict=True)
        if our != their
    ]


def _first_line(error: Exception) -> str:
    """What Orbax says; it tells of its own inside over pages."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]


def _seal(run: dict[str, Any]) -> str:
    """Tells what stands beside the state from what was written; all of it, in any order."""
    text = json.dumps(run, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest(state: State) -> str:
    """Tells states apart: what Orbax writes has no checksum of its own."""
    digest = hashlib.blake2b(digest_size=16)
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(state)):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
