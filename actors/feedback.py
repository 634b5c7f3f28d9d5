"""Batches that came round a loop, waiting to be consumed: in memory up to a bound, then on disk.

Feedback edges have no credits, so that a loop never waits for itself; their backlog must therefore fit somewhere. FIFO.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

from rayad.actors.batches import batch_bytes, decode_batch, encode_batch
from rayad.actors.spill import SpillingQueue
from rayad.progress import Timestamp

_EDGE = struct.Struct("<I4x")


class MutableFeedbackQueue:
    """FIFO of ``(edge, time, batch)``: objects while they fit into memory, bytes on disk beyond.

    Batches from other replicas arrive encoded and are decoded when taken out; a replica's own are kept as they are.
    """

    def __init__(self, memory_bytes_max: int, directory: str | None) -> None:
        self.memory_bytes_max = memory_bytes_max
        self.memory_bytes = 0
        self.memory_bytes_peak = 0
        self.spilled_batches = 0
        self._memory: deque[tuple[int, Timestamp | None, Any, int]] = deque()
        self._directory = directory
        self._disk: SpillingQueue | None = None

    def __len__(self) -> int:
        return len(self._memory) + (len(self._disk) if self._disk is not None else 0)

    def push_own(self, edge: int, time: Timestamp, batch: Any) -> None:
        """A batch that this replica sends to itself."""
        size = batch_bytes(batch)
        if self._room_for(size):
            self._note(size)
            self._memory.append((edge, time, batch, size))
        else:
            self._spill(edge, b"".join(encode_batch(time, batch)))

    def push_encoded(self, edge: int, payload: Any) -> None:
        """A batch as it came over the plane."""
        size = len(payload)
        if self._room_for(size):
            self._note(size)
            self._memory.append((edge, None, payload, size))
        else:
            self._spill(edge, payload)

    def pop(self) -> tuple[int, Timestamp, Any]:
        """The oldest batch."""
        if self._memory:
            edge, time, batch, size = self._memory.popleft()
            self.memory_bytes -= size
            if time is None:
                time, batch = decode_batch(batch)
            return edge, time, batch
        assert self._disk is not None
        item = self._disk.pop()
        time, batch = decode_batch(memoryview(item)[_EDGE.size :])
        return _EDGE.unpack_from(item)[0], time, batch

    def _note(self, size: int) -> None:
        self.memory_bytes += size
        self.memory_bytes_peak = max(self.memory_bytes_peak, self.memory_bytes)

    def _room_for(self, size: int) -> bool:
        """FIFO: once something is on disk, everything goes there until the disk is drained."""
        if self._disk is not None and len(self._disk):
            return False
        return self.memory_bytes + size <= self.memory_bytes_max or not self._memory

    def _spill(self, edge: int, payload: Any) -> None:
        if self._disk is None:
            self._disk = SpillingQueue(0, self._directory)
        self.spilled_batches += 1
        self._disk.push(_EDGE.pack(edge) + bytes(payload))

    def close(self) -> None:
        """Give up the disk space."""
        if self._disk is not None:
            self._disk.close()
