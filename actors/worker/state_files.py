"""Files of the runs that do not fit in memory: without a name, so nothing is left behind whatever ends the process, and mapped."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.actors.plane.positioned import open_unnamed
from rayad.actors.plane.spilling_queue import SpillError

_PREFIX = "rayad-state-"
_PROT_READ_WRITE, _MAP_PRIVATE = 1 | 2, 2


class StateFiles:
    """See :class:`rayad.dataflow.operators.state.runs.disk.RunFiles`.

    Args:
        vertex: whose state it is, for messages.
        directory: the folder; None: the system's temporary one.
    """

    def __init__(self, vertex: str, directory: str | None) -> None:
        self._vertex = vertex
        self._directory = directory

    def mapped(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
        """Write a batch, and map what was written. Raises SpillError where the disk does not take it."""
        try:
            fd = open_unnamed(self._directory, _PREFIX)
            try:
                with os.fdopen(fd, "wb", closefd=False) as file, pa.ipc.new_file(pa.PythonFile(file), batch.schema) as writer:
                    writer.write_batch(batch)
                return _mapped(fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)
        except OSError as error:
            place = self._directory or tempfile.gettempdir()
            raise SpillError(
                f"cannot put {batch.nbytes} bytes of the state of {self._vertex!r} on disk, in {place!r}: {error.strerror or error}; free "
                "space there, or give another folder by RunConfig(spill_directory=...), or more memory by state_memory_bytes"
            ) from error


def _mapped(fd: int, size: int) -> npt.NDArray[np.uint8]:
    """The content of a file, which may be closed then. What is changed of it is changed in memory alone."""
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


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


__all__ = ["StateFiles"]
