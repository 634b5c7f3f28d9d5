"""Batches that came round a loop, waiting to be consumed: in memory up to a bound, then on disk.

Feedback edges have no credits, so that a loop never waits for itself; their backlog must therefore be stored. FIFO.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

from rayad.actors.plane.batch_codec import batch_bytes, decode_batch, encode_batch
from rayad.actors.plane.spilling_queue import SpillingQueue
from rayad.progress import Timestamp

_EDGE = struct.Struct("<II")
"""Header of an item on disk: the edge, and the source replica, with _MARK for a mark."""
_MARK = 1 << 31
FeedbackEntry = tuple[int, int, Timestamp | None, Any]
"""An edge, the sending replica, a time and a batch; without a time it is a mark: a barrier, or the marker of a change of layout."""


class FeedbackQueue:
    """FIFO of ``(edge, source replica, time, batch)``: objects while they fit into memory, bytes on disk beyond. A mark has no time.

    Batches from other replicas arrive encoded and are decoded when taken out; a replica's own are kept as they are.
    """

    def __init__(self, memory_bytes_max: int, directory: str | None) -> None:
        self.memory_bytes_max = memory_bytes_max
        self.memory_bytes = 0
        self.memory_bytes_peak = 0
        self.spilled_batches = 0
        self._memory: deque[tuple[int, int, Timestamp | None, Any, int]] = deque()
        self._directory = directory
        self._disk: SpillingQueue | None = None
        self._blocked: FeedbackEntry | None = None
        self._first: FeedbackEntry | None = None

    def __len__(self) -> int:
        taken_out = (self._first is not None) + (self._blocked is not None)
        return taken_out + len(self._memory) + (len(self._disk) if self._disk is not None else 0)

    @property
    def disk_bytes(self) -> int:
        """What waits on disk."""
        return self._disk.disk_bytes if self._disk is not None else 0

    def has_next(self) -> bool:
        """Whether something may be consumed."""
        return self._blocked is None and (self._first is not None or bool(self._memory) or (self._disk is not None and len(self._disk) > 0))

    def block(self, entry: FeedbackEntry) -> None:
        """Put back the item just taken out: it waits for a barrier on other channels, and so does everything behind it."""
        self._blocked = entry

    def unblock(self) -> None:
        """The barrier has come on all channels: the blocked item comes next."""
        self._first, self._blocked = self._blocked or self._first, None

    def push(self, edge: int, source: int, time: Timestamp, batch: Any, size_bytes: int | None = None) -> None:
        """Add a batch that is not encoded: this replica sent it to itself, or it came within one process; its size, if it is known."""
        size = batch_bytes(batch) if size_bytes is None else size_bytes
        if self._room_for(size):
            self._note(size)
            self._memory.append((edge, source, time, batch, size))
        else:
            self._spill(edge, source, b"".join(encode_batch(time, batch)))

    def push_mark(self, edge: int, source: int, mark: bytes) -> None:
        """Add a barrier or marker, behind the batches before it."""
        source |= _MARK
        if self._room_for(len(mark)):
            self._note(len(mark))
            self._memory.append((edge, source, None, mark, len(mark)))
        else:
            self._spill(edge, source, mark)

    def push_encoded(self, edge: int, source: int, payload: Any) -> None:
        """Add an encoded batch, as it came over the plane."""
        size = len(payload)
        if self._room_for(size):
            self._note(size)
            self._memory.append((edge, source, None, payload, size))
        else:
            self._spill(edge, source, payload)

    def pop(self) -> FeedbackEntry:
        """Remove and give the oldest item; call it only when :meth:`has_next` is true."""
        assert self._blocked is None, "what was blocked comes first"
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._memory:
            edge, source, time, batch, size = self._memory.popleft()
            self.memory_bytes -= size
        else:
            assert self._disk is not None
            item = memoryview(self._disk.pop())
            edge, source = _EDGE.unpack_from(item)
            time, batch = None, item[_EDGE.size :]
        if source & _MARK:
            return edge, source ^ _MARK, None, batch
        if time is None:
            time, batch = decode_batch(batch)
        return edge, source, time, batch

    def _note(self, size: int) -> None:
        self.memory_bytes += size
        self.memory_bytes_peak = max(self.memory_bytes_peak, self.memory_bytes)

    def _room_for(self, size: int) -> bool:
        """FIFO: once something is on disk, everything goes there until the disk is drained."""
        if self._disk is not None and len(self._disk):
            return False
        return self.memory_bytes + size <= self.memory_bytes_max or not self._memory

    def _spill(self, edge: int, source: int, payload: Any) -> None:
        if self._disk is None:
            self._disk = SpillingQueue(0, self._directory)
        self.spilled_batches += 1
        self._disk.push(_EDGE.pack(edge, source) + bytes(payload))

    def close(self) -> None:
        """Give up the disk space."""
        if self._disk is not None:
            self._disk.close()
