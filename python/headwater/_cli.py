"""The console script `headwater`: the same command as the Rust binary, with SQL added."""

import sys

from headwater import _headwater


def main() -> int:
    """Runs the command with this process's arguments.

    Returns:
        The exit status.
    """
    return _headwater.main(["headwater", *sys.argv[1:]])
