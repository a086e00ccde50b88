"""The sampler's cursor in an Orbax checkpoint, beside the model: `pip install orbax-checkpoint`.

Example:
    manager.save(step, args=ocp.args.Composite(
        state=ocp.args.StandardSave(state), sampler=headwater.orbax.save_args(sampler)))
    restored = manager.restore(step, args=ocp.args.Composite(
        state=ocp.args.StandardRestore(state), sampler=headwater.orbax.restore_args()))
    headwater.orbax.resume(sampler, restored.sampler)
"""

from __future__ import annotations

import base64
from typing import Any

import orbax.checkpoint as ocp

from headwater._headwater import InvalidArgument
from headwater.sampler import Sampler


def save_args(sampler: Sampler) -> ocp.args.JsonSave:
    """Returns the arguments that save the sampler's present cursor."""
    return ocp.args.JsonSave({"cursor": base64.b64encode(sampler.cursor()).decode()})


def restore_args() -> ocp.args.JsonRestore:
    """Returns the arguments that restore a cursor."""
    return ocp.args.JsonRestore()


def resume(sampler: Sampler, restored: dict[str, Any]) -> None:
    """Resumes the sampler from a restored cursor; a cursor of another plan is refused."""
    try:
        cursor = base64.b64decode(restored["cursor"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"expected a dict with a base64 cursor, found {restored!r} ({error!r}); "
            "restore it with restore_args"
        ) from None
    sampler.resume(cursor)
