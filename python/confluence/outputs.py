"""A file that a command writes for its user, as --out names it: whole, or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

from confluence.config import ConfigError
from headwater._headwater import write_file


def check_new(out: Path) -> None:
    """Checks that there is no file or folder of this name.

    Raises:
        ConfigError: There is one.
    """
    if out.is_file() or out.is_dir():
        raise ConfigError(f"{out} is there already; remove it, or choose another file")


def check_parent(out: Path) -> None:
    """Checks that the folder of a file to write exists, before the work that the file is for.

    Raises:
        ConfigError: There is no such folder.
    """
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"expected the folder {out.absolute().parent}, found none; create it")


def write(out: Path, content: bytes) -> None:
    """Writes a new file; a pipe or a device gets the bytes as they are.

    Raises:
        ConfigError: There is a file by now, or the disk is full; then there is no part of the file,
            which would be in the way of the next attempt.
    """
    check_new(out)
    try:
        if out.exists():
            out.write_bytes(content)
        else:
            write_file(out, content)
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise ConfigError(
            f"writing {out}: no space left on the device; nothing was written; free some space "
            "there"
        ) from None


def is_full_disk(error: OSError) -> bool:
    """Returns whether a disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
