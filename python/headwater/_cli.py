"""The console scripts: the commands of the Rust binaries; `headwater` also runs SQL of tasks."""

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
