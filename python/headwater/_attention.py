"""What masks of attention are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater._headwater import InvalidArgument

_NEEDED = ("seq_row_ids", "column_ids", "is_padding", "row_hop", "fk_edges")


def check_batch(batch: Mapping[str, Any]) -> None:
    """Checks that a batch has the arrays of which masks of attention are made.

    Raises:
        InvalidArgument: It lacks some; the message names them.
    """
    missing = [name for name in _NEEDED if name not in batch]
    if missing:
        raise InvalidArgument(
            f"batch: expected {', '.join(map(repr, _NEEDED))}, found no "
            f"{', '.join(map(repr, missing))}; give a whole batch of headwater.Sampler, which has "
            "them with any settings; batches of Events have no cells"
        )
