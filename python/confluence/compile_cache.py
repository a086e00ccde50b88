"""The folder in which JAX keeps what it compiled, for later processes; no import of JAX.

Compiling takes longer than many an evaluation. What is compiled depends on the kind of processor
and on the number of cores, which are not part of JAX's own keys, so each combination has its own
folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from confluence.processor import cores, processor

_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# JAX keeps only what took a second to compile, unless told otherwise.
_THRESHOLD = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_KEPT_SECONDS = 30 * 24 * 3600


def use_compile_cache() -> None:
    """Makes JAX keep what it compiles in the user's cache folder, unless it has another folder.

    `JAX_ENABLE_COMPILATION_CACHE=false` in the environment turns it off. It has an effect only
    before JAX is imported.
    """
    if _VARIABLE in os.environ:
        return
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "confluence" / _machine()
        folder.mkdir(parents=True, exist_ok=True)
        _remove_unused(folder)
    except (OSError, RuntimeError):
        # Without a home folder that can be written, each process compiles for itself.
        return
    if os.access(folder, os.W_OK):
        os.environ[_VARIABLE] = str(folder)
        os.environ.setdefault(_THRESHOLD, "0")


def is_used() -> bool:
    """Returns whether JAX keeps what it compiles, by the variables of the environment."""
    is_off = os.environ.get("JAX_ENABLE_COMPILATION_CACHE", "").lower() in ("false", "0")
    return _VARIABLE in os.environ and not is_off


def _remove_unused(folder: Path) -> None:
    """Removes what no process has read for a month."""
    oldest = time.time() - _KEPT_SECONDS
    for entry in folder.iterdir():
        # Another process may remove it at the same time.
        with contextlib.suppress(FileNotFoundError):
            used = entry.stat()
            if max(used.st_atime, used.st_mtime) < oldest:
                entry.unlink()


def _machine() -> str:
    """Returns a name for the kind of processor and the number of cores of this process."""
    return hashlib.sha256(f"{processor()}\n{cores()}".encode()).hexdigest()[:16]
