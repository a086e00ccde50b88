"""A deterministic, resumable sampler and reducer.

`prepare` makes a store from somebody's tables, `Store` opens one, and `Sampler` makes batches of
it. `reduce` folds statistics of rows that many processes hold, to the same bits for any number of
them. The same work from a shell are the commands `headwater` and `headwater-reduce`.
"""

from headwater import reduce
from headwater._headwater import (
    Corrupt,
    Cursor,
    DataError,
    Endpoint,
    Evaluation,
    HeadwaterError,
    InvalidArgument,
    IoError,
    LimitExceeded,
    NotOurs,
    PlanMismatch,
    SamplerShutdown,
    SchemaError,
    Store,
    VersionMismatch,
    __version__,
    draft_schema,
    prepare,
)
from headwater.sampler import Sampler

__all__ = [
    "Corrupt",
    "Cursor",
    "DataError",
    "Endpoint",
    "Evaluation",
    "HeadwaterError",
    "InvalidArgument",
    "IoError",
    "LimitExceeded",
    "NotOurs",
    "PlanMismatch",
    "Sampler",
    "SamplerShutdown",
    "SchemaError",
    "Store",
    "VersionMismatch",
    "__version__",
    "draft_schema",
    "prepare",
    "reduce",
]
