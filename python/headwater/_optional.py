"""Libraries that a module of this package needs, and the package does not install."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def installed_by(command: str) -> Iterator[None]:
    """Adds to the error of an import the command that installs what is missing.

    Raises:
        ImportError: A library cannot be imported.

    Example:
        >>> with installed_by("pip install numpy"):
        ...     import numpy
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error}; install it: {command}", name=error.name) from error
