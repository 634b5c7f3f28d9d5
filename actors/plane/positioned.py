"""Reading and writing a file at a position, and files that nobody finds: one system call on Linux and macOS, two on Windows.

Where the system has no call for it the position is set before; so a descriptor belongs to one thread there, as those of spilled batches do.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Sequence
from typing import Any


def write_at(fd: int, parts: Sequence[memoryview], at: int) -> int:
    """Write these buffers at a position; gives how many bytes have been written, which may be fewer."""
    if hasattr(os, "pwritev"):
        return os.pwritev(fd, parts, at)
    os.lseek(fd, at, os.SEEK_SET)
    return os.write(fd, parts[0])


def read_at(fd: int, count: int, at: int) -> bytes:
    """Read at a position; fewer bytes where the file ends, or the system reads no more at once."""
    if hasattr(os, "pread"):
        return os.pread(fd, count, at)
    os.lseek(fd, at, os.SEEK_SET)
    return os.read(fd, count)


def open_unnamed(directory: str | None, prefix: str) -> int:
    """Open a new file without a name: whatever ends the process, nothing is left behind."""
    flags: Any = {name: getattr(os, name, 0) for name in ("O_TMPFILE", "O_TEMPORARY", "O_BINARY")}
    folder = directory or tempfile.gettempdir()
    if flags["O_TMPFILE"]:
        with contextlib.suppress(OSError):  # not every file system has files without a name
            return os.open(folder, flags["O_TMPFILE"] | os.O_RDWR | os.O_EXCL, 0o600)
    if flags["O_TEMPORARY"]:  # Windows, where an open file cannot be unlinked, but deletes itself
        path = os.path.join(folder, f"{prefix}{secrets.token_hex(8)}")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags["O_TEMPORARY"] | flags["O_BINARY"], 0o600)
    fd, path = tempfile.mkstemp(prefix=prefix, dir=directory)
    with contextlib.suppress(PermissionError):  # a system that has neither keeps the file's name until it is closed
        os.unlink(path)
    return fd


__all__ = ["open_unnamed", "read_at", "write_at"]
