"""Errors of DuckDB that are neither about a query nor about data."""

from __future__ import annotations


def outer(error: Exception, what: str) -> BaseException | None:
    """Returns the error for lack of memory or for Ctrl-C; None for one of another cause.

    While rows are read, an error of DuckDB arrives as one of Arrow, and is known by its words.
    """
    words = str(error)
    if "INTERRUPT Error" in words:
        return KeyboardInterrupt()
    if "Out of Memory Error" in words:
        # The other lines tell of settings that cannot be changed here.
        return MemoryError(f"{what}: {words.partition(chr(10))[0]}")
    return None
