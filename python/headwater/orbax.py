"""The sampler's cursor in an Orbax checkpoint, beside the model: `pip install orbax-checkpoint`.

Example::

    manager.save(step, args=ocp.args.Composite(
        state=ocp.args.StandardSave(state), sampler=headwater.orbax.save_args(sampler, step)))
    restored = manager.restore(step, args=ocp.args.Composite(
        state=ocp.args.StandardRestore(state), sampler=headwater.orbax.restore_args()))
    headwater.orbax.resume(sampler, restored.sampler, step)
"""

from __future__ import annotations

import base64
from typing import Any

from headwater._headwater import InvalidArgument, PlanMismatch
from headwater._optional import installed_by
from headwater.events import Events
from headwater.sampler import Sampler

with installed_by("pip install orbax-checkpoint"):
    import orbax.checkpoint as ocp


def save_args(sampler: Sampler | Events, step: int | None = None) -> ocp.args.JsonSave:
    """Returns the arguments that save the sampler's present cursor, and the step that it is of."""
    cursor = base64.b64encode(sampler.cursor()).decode()
    return ocp.args.JsonSave({"cursor": cursor, "step": step})


def restore_args() -> ocp.args.JsonRestore:
    """Returns the arguments that restore a cursor."""
    return ocp.args.JsonRestore()


def resume(sampler: Sampler | Events, restored: dict[str, Any], step: int | None = None) -> None:
    """Resumes the sampler from a restored cursor.

    Raises:
        PlanMismatch: The cursor is of another plan, or was saved at another step than `step`: the
            folder of the checkpoint was copied or renamed.
    """
    try:
        cursor = base64.b64decode(restored["cursor"], validate=True)
        saved = restored.get("step")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"expected a dict with a base64 cursor, found {restored!r:.200} ({error!r}); "
            "restore it with restore_args"
        ) from None
    if step is not None and saved is not None and saved != step:
        raise PlanMismatch(
            f"expected the cursor of step {step}, found that of step {saved}; the folder of the "
            f"checkpoint was copied or renamed: remove it, or restore step {saved}"
        )
    sampler.resume(cursor)
