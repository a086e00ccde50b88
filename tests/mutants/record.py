"""The record of survivors with their reasons, and the choice of a share of all mutants."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path


def accepted(record: Path) -> dict[tuple[str, str], str]:
    """Returns the reasons of the survivors that are recorded, by file and name."""
    lines = record.read_text().splitlines()
    found = [re.fullmatch(r"- `([^`]+)` `` (.+) ``: (.+)", line) for line in lines]
    return {(of[1], of[2]): of[3] for of in found if of}


def check(record: Path, names: set[tuple[str, str]]) -> None:
    """Ends the program if the record has a change of these files that there no longer is."""
    files = {file for file, _ in names}
    gone = [of for of in accepted(record) if of[0] in files and of not in names]
    if gone:
        sys.exit(
            "\n".join(
                f"remove from {record.name}, for it is no change: {' '.join(of)}" for of in gone
            )
        )


def is_chosen(file: str, name: str, share: int) -> bool:
    """Returns whether a mutant is among each `share`-th, by a digest of its name."""
    digest = hashlib.blake2b(f"{file} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % share == 0


def report(tried: int, survived: int, new: int) -> int:
    """Prints what came of the mutants; returns the exit status, 1 if survivors are not recorded."""
    print(
        f"{tried} mutants: {tried - survived} noticed, {survived - new} known to survive, "
        f"{new} survived"
    )
    return 1 if new else 0
