"""A FIFO queue of bytes that keeps a bounded part in memory and the rest in a temporary file.

For feedback edges: they have no credits, because a cycle of bounded buffers can deadlock; so their receiver must take any amount.

The file is unlinked as soon as it is open: when the process is killed, nothing is left behind.  Its order is

    front (memory)  <-  file  <-  (push, while the file is not empty)

An item goes to memory while it fits and nothing is in the file, else to the end of the file.  When memory is empty, a stretch of the file
is read back with one read.  When the file is drained it is truncated, which gives its space back; while it is not, the
space before the read position is given back by punching holes, where the system can.

Invariant: items come out in the order in which they went in; at most `memory_bytes_max` bytes plus one item are in memory.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
import tempfile
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from rayad.actors.plane.positioned import open_unnamed, read_at, write_at
from rayad.progress import ConfigError, InternalError, RayadError

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = struct.Struct("<Q")
_PREFIX = "rayad-spill-"
READ_BYTES = 1024 * 1024
PUNCH_BYTES = 64 * 1024 * 1024
"""Space is given back in steps of this size while the file is in use."""
BLOCK_BYTES = 4096
"""Punching a smaller hole gives no space back."""
_KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02


class SpillError(RayadError):
    """The queue could not write to its disk: it is full, or failing.  Nothing that was pushed before is lost."""


def _spill_error(directory: str | None, size: int, there_bytes: int, error: OSError) -> SpillError:
    place = directory or tempfile.gettempdir()
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return SpillError(
            f"cannot spill an item of {size} bytes to {place!r}, where this queue has {there_bytes} bytes already: {reason}; "
            "free space there, or give a spill directory on a larger disk",
            errno=error.errno,
        )
    return SpillError(f"cannot spill to {place!r}: {reason}; give a directory that exists and can be written", errno=error.errno)


class SpillingQueue:
    """FIFO of bytes; up to `memory_bytes_max` in memory, then in an unlinked file in `directory` (None: the system's temporary one).

    Give a directory on a disk: /tmp is memory on some systems.
    """

    def __init__(self, memory_bytes_max: int, directory: str | None = None) -> None:
        if memory_bytes_max < 0:
            raise ConfigError(f"memory_bytes_max={memory_bytes_max}: it must be 0 or more")
        self.memory_bytes_max = memory_bytes_max
        self._directory = directory
        self._front: deque[bytes | bytearray | memoryview] = deque()
        self._front_bytes = 0
        self._fd = -1
        self._read_at = 0
        self._write_at = 0
        self._punched_to = 0
        self._file_items = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._front) + self._file_items

    @property
    def memory_bytes(self) -> int:
        """Bytes of the items in memory."""
        return self._front_bytes

    @property
    def disk_bytes(self) -> int:
        """Bytes in the file that were not read back, with 8 bytes for each item."""
        return self._write_at - self._read_at

    def push(self, item: bytes | bytearray | memoryview) -> None:
        """Append an item; a memoryview is kept as it is.  Raises SpillError, and has not taken the item, when the disk is full."""
        if self._closed:
            raise InternalError("push on a SpillingQueue that is closed")
        size = item.nbytes if isinstance(item, memoryview) else len(item)
        if not self._file_items and self._front_bytes + size <= self.memory_bytes_max:
            self._front.append(item)
            self._front_bytes += size
            return
        self._append(item, size)

    def pop(self) -> bytes | bytearray | memoryview:
        """Remove and give the oldest item.  Raises IndexError when the queue is empty."""
        if not self._front:
            if not self._file_items:
                raise IndexError("pop from an empty SpillingQueue")
            self._refill()
        item = self._front.popleft()
        self._front_bytes -= item.nbytes if isinstance(item, memoryview) else len(item)
        return item

    def close(self) -> None:
        """Drop everything and give the disk space back.  Repeating it does nothing."""
        self._closed = True
        self._front.clear()
        self._front_bytes = self._file_items = self._read_at = self._write_at = 0
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def check_invariants(self) -> None:
        """Raise InternalError when the counts contradict each other."""
        real = sum(item.nbytes if isinstance(item, memoryview) else len(item) for item in self._front)
        if real != self._front_bytes or (self._file_items == 0) != (self._read_at == self._write_at):
            raise InternalError(f"{self!r}: {real} bytes are in memory, file positions are {self._read_at} and {self._write_at}")

    def __repr__(self) -> str:
        return f"SpillingQueue({len(self)} items, {self.memory_bytes} bytes in memory, {self.disk_bytes} on disk)"

    def _append(self, item: bytes | bytearray | memoryview, size: int) -> None:
        try:
            if self._fd < 0:
                self._fd = open_unnamed(self._directory, _PREFIX)
            parts: list[Any] = [memoryview(_SIZE.pack(size)), memoryview(item).cast("B") if size else memoryview(b"")]
            at = self._write_at
            while parts:
                written = write_at(self._fd, parts, at)
                at += written
                while parts and written >= len(parts[0]):
                    written -= len(parts.pop(0))
                if parts:
                    parts[0] = parts[0][written:]
        except OSError as error:
            raise _spill_error(self._directory, size, self.disk_bytes, error) from error
        self._write_at = at  # only now: what a failed write left behind it is written over
        self._file_items += 1

    def _refill(self) -> None:
        """Read a stretch of the file into memory: as many whole items as the bound and one read allow, at least one."""
        wanted = max(_SIZE.size, min(READ_BYTES, self.memory_bytes_max, self.disk_bytes))
        data = memoryview(self._read(self._read_at, wanted))
        at = 0
        while len(data) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, at)
            end = at + _SIZE.size + size
            if end > len(data):
                if not at:
                    self._take(self._read(self._read_at + _SIZE.size, size))
                    at = end
                break
            self._take(bytes(data[at + _SIZE.size : end]))
            at = end
        self._read_at += at
        self._give_space_back()

    def _take(self, item: bytes) -> None:
        self._front.append(item)
        self._front_bytes += len(item)
        self._file_items -= 1

    def _read(self, at: int, count: int) -> bytes:
        data = read_at(self._fd, count, at)
        if len(data) == count:
            return data
        parts = [data]  # a single read gives at most 2 GiB
        while (missing := count - sum(map(len, parts))) > 0:
            data = read_at(self._fd, missing, at + count - missing)
            if not data:
                raise InternalError(f"{self!r}: the spill file ends at {at + count - missing}, item bytes up to {at + count} were written")
            parts.append(data)
        return b"".join(parts)

    def _give_space_back(self) -> None:
        if not self._file_items:
            os.ftruncate(self._fd, 0)
            self._read_at = self._write_at = self._punched_to = 0
        elif self._read_at - self._punched_to >= PUNCH_BYTES:
            _punch_hole(self._fd, self._punched_to, self._read_at - self._punched_to)
            self._punched_to = self._read_at


class SpillFile:
    """Bytes in an unlinked file in `directory`, taken out in any order; the space of what is freed is given back, where the system can.

    When it is empty, writing starts again at its beginning. It is closed when nothing refers to it any more, at the latest.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        try:
            self._fd = open_unnamed(directory, _PREFIX)
        except OSError as error:
            raise _spill_error(directory, 0, 0, error) from error
        self._write_at = 0
        self._items = 0
        self.disk_bytes = 0
        """Bytes of the items that are in it."""

    def write(self, item: bytes) -> tuple[int, int]:
        """Write an item; gives its place. Raises SpillError, and has not taken it, when the disk is full."""
        place = (self._write_at, len(item))
        rest, at = memoryview(item), self._write_at
        try:
            while rest:
                written = write_at(self._fd, [rest], at)
                rest, at = rest[written:], at + written
        except OSError as error:
            raise _spill_error(self._directory, len(item), self.disk_bytes, error) from error
        self._write_at = at
        self._items += 1
        self.disk_bytes += place[1]
        return place

    def read(self, place: tuple[int, int]) -> bytes:
        """What was written there."""
        at, size = place
        data = read_at(self._fd, size, at)
        while len(data) < size:  # a single read gives at most 2 GiB
            more = read_at(self._fd, size - len(data), at + len(data))
            if not more:
                raise InternalError(f"the spill file ends at {at + len(data)}, an item of {size} bytes was written at {at}")
            data += more
        return data

    def free(self, place: tuple[int, int]) -> None:
        """Free the space of an item that is not needed any more. A file that is closed has given it back."""
        if self._fd < 0:
            return
        self._items -= 1
        self.disk_bytes -= place[1]
        if not self._items:
            os.ftruncate(self._fd, 0)
            self._write_at = 0
        elif place[1] >= BLOCK_BYTES:
            _punch_hole(self._fd, *place)

    def close(self) -> None:
        """Give the disk space back. Repeating it does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if hasattr(self, "_fd"):  # it could be opened
            self.close()


@cache
def _fallocate() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


def _punch_hole(fd: int, start: int, size: int) -> None:
    """Give the disk space of a stretch back, if the file system can; the queue works without it, too."""
    function = _fallocate()
    if function is not None:
        function(fd, _KEEP_SIZE_AND_PUNCH_HOLE, start, size)
