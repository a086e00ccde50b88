"""Errors of DuckDB that are neither about a query nor about data."""

from __future__ import annotations


def memory_or_interrupt(error: Exception, what: str) -> BaseException | None:
    """Returns the error to raise for lack of memory or for Ctrl-C; None for any other error.

    While rows are read, an error of DuckDB arrives as one of Arrow, and is known by its words.
    """
    words = str(error)
    if "INTERRUPT Error" in words:
        return KeyboardInterrupt()
    if "Out of Memory Error" in words:
        # The other lines advise settings that cannot be changed here.
        return MemoryError(f"{what}: {words.splitlines()[0]}")
    return None
