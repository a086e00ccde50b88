"""A deterministic, resumable sampler for relational data.

`prepare` makes a store from somebody's tables, `Store` opens one, and `Sampler` makes batches of
it. The same work from a shell is the command `headwater`.
"""

from headwater._headwater import (
    Corrupt,
    Cursor,
    DataError,
    Endpoint,
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
]
