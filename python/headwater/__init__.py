"""A deterministic, resumable sampler and reducer.

`prepare` makes a store from tables, `audit` looks for leaks in it, `stage` copies it to a node's
own disk, `Store` opens it, and `Sampler` makes batches from it. From a log of events `prepare`
makes a store for `Events`, which makes token rows.
`reduce` folds statistics of rows that several processes hold, with the same bits for any number of
processes. The commands `headwater` and `headwater-reduce` do the same from a shell.
"""

from headwater import reduce
from headwater._headwater import (
    Corrupt,
    Cursor,
    DataError,
    Endpoint,
    Evaluation,
    EventPass,
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
    audit,
    draft_schema,
    prepare,
    prepare_part,
    stage,
)
from headwater.events import Events
from headwater.page import Page
from headwater.sampler import Sampler
from headwater.tables import Table, Task

__all__ = [
    "Corrupt",
    "Cursor",
    "DataError",
    "Endpoint",
    "Evaluation",
    "EventPass",
    "Events",
    "HeadwaterError",
    "InvalidArgument",
    "IoError",
    "LimitExceeded",
    "NotOurs",
    "Page",
    "PlanMismatch",
    "Sampler",
    "SamplerShutdown",
    "SchemaError",
    "Store",
    "Table",
    "Task",
    "VersionMismatch",
    "__version__",
    "audit",
    "draft_schema",
    "prepare",
    "prepare_part",
    "reduce",
    "stage",
]
