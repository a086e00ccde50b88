"""The memory of read-only arrays for libraries that take writable arrays only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class _Writable:
    """Describes the memory of an array as writable, and keeps the array."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        address = array.ctypes.data
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def alias(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns an array of the same memory that says that it is writable; nobody may write to it.

    NumPy exports no read-only array through DLPack's first version, which JAX asks for, and PyTorch
    warns of one. The memory stays as long as the alias, or what another library made of it.
    """
    return np.asarray(_Writable(array))
