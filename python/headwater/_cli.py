"""The console scripts: the same commands as the Rust binaries; to `headwater`, SQL is added."""

import sys

from headwater import _headwater


def main() -> int:
    """Runs `headwater` with this process's arguments.

    Returns:
        The exit status.
    """
    return _headwater.main(["headwater", *sys.argv[1:]])


def reduce() -> int:
    """Runs `headwater-reduce` with this process's arguments.

    Returns:
        The exit status.
    """
    return _headwater.reduce_main(["headwater-reduce", *sys.argv[1:]])
