"""A deterministic, resumable sampler for relational data.

`prepare` makes a store from somebody's tables; `Store` opens one. The same work from a shell is
the command `headwater`.
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
    SchemaError,
    Store,
    VersionMismatch,
    __version__,
    draft_schema,
    prepare,
)

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
    "SchemaError",
    "Store",
    "VersionMismatch",
    "__version__",
    "draft_schema",
    "prepare",
]
