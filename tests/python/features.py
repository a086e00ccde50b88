"""What this build of headwater has."""

from __future__ import annotations

import functools
import tempfile
import tomllib
from pathlib import Path

import pytest

import headwater
from pings import SCHEMA


@functools.cache
def has_arrayrecord() -> bool:
    """Whether the build has the feature `arrayrecord`."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "pings.arrayrecord"
        empty.write_bytes(b"")
        with pytest.raises(headwater.HeadwaterError) as error:
            headwater.prepare(empty, tomllib.loads(SCHEMA), Path(folder) / "pings.db")
    return "expected a build with ArrayRecord" not in str(error.value)
