"""Settings of the C library's memory, for XLA's buffers; no import of JAX, which is slow.

XLA gives its buffers back in each step and takes them anew. By default glibc returns such memory to
the kernel, which clears every page again: a quarter of the time of a step on a CPU. These settings
keep it, in huge pages. They change no number. glibc reads them only when a process starts.
"""

from __future__ import annotations

import os
import platform
import signal
import sys

_VARIABLE = "GLIBC_TUNABLES"
TUNABLES = ":".join(
    [
        "glibc.malloc.hugetlb=1",
        f"glibc.malloc.trim_threshold={8 << 30}",
        f"glibc.malloc.mmap_threshold={32 << 20}",
    ]
)


def restart_with_tunables() -> None:
    """Starts this program anew with `TUNABLES`, in the same process; else returns.

    It returns where glibc is not the C library, and where the environment has settings of its own,
    be they empty. It prints nothing: no number changes, and `confluence --help` tells of it.
    """
    if not _lacks_tunables():
        return
    os.environ[_VARIABLE] = TUNABLES
    # A Ctrl-C meanwhile waits until the program handles it again.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def report_missing_tunables() -> None:
    """Tells the user of a terminal how steps take less time, where `TUNABLES` are not set."""
    if _lacks_tunables() and sys.stderr.isatty():
        print(
            f"confluence: steps on a CPU take less time with {_VARIABLE}={TUNABLES} in the "
            "environment when Python starts; the command confluence sets it",
            file=sys.stderr,
        )


def _lacks_tunables() -> bool:
    """Whether glibc is the C library, and the environment says nothing of its tunables."""
    return (
        sys.platform == "linux"
        and platform.libc_ver()[0] == "glibc"
        and _VARIABLE not in os.environ
    )
