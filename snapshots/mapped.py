"""Files of this machine as memory: a private map, whose pages the system drops and reads again as it likes."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

_PROT_READ_WRITE, _MAP_PRIVATE = 1 | 2, 2


def mapped(fd: int, size: int) -> npt.NDArray[np.uint8]:
    """The content of a file, which may be closed then. What is changed of it is changed in memory alone. Raises OSError.

    It must not become shorter while it is used: its pages could not be read again. Where it is deleted, it stays until nothing refers to
    it, on file systems of this machine; so only there files are mapped that somebody else may delete.
    """
    if not size:
        return np.zeros(0, np.uint8)  # nothing cannot be mapped
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_COPY), np.uint8)
    # Python's own maps keep the file open, one descriptor each: a large state would use up all that a process may have.
    libc = _libc()
    address = libc.mmap(None, size, _PROT_READ_WRITE, _MAP_PRIVATE, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    content = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(content, libc.munmap, address, size).atexit = False
    return np.frombuffer(memoryview(content).cast("B"), np.uint8)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


__all__ = ["mapped"]
