"""What one call of a vertex sends beyond a bound: it waits on disk until there is credit for it.

Back-pressure comes between calls, so all that a call sends has to wait somewhere. Where a replica's state is within a bound
(``RunConfig.state_memory_bytes``), this is, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.actors.plane.batch_codec import batch_bytes, encode_batch
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.progress import DataflowError, Timestamp


class SpilledBatch:
    """A batch on disk, encoded with its time. Its space is given back when nothing refers to it any more."""

    __slots__ = ("_file", "_place", "_records", "size")

    def __init__(self, file: SpillFile, data: bytes, records: int) -> None:
        self._file, self._place = file, file.write(data)
        self._records = records
        self.size = len(data)
        """Bytes, encoded; for its credit."""

    def __len__(self) -> int:
        """How many records it has, as those in memory tell it."""
        return self._records

    def read(self) -> bytes:
        """The encoded batch."""
        return self._file.read(self._place)

    def __del__(self) -> None:
        if hasattr(self, "_place"):  # the disk was not full
            self._file.free(self._place)


class OutgoingBound:
    """How much of what one call sends waits in memory.

    Args:
        bytes_max: so many bytes, as :func:`batch_bytes` estimates them.
        disk: makes the place for the rest, when it is needed.
    """

    def __init__(self, bytes_max: int, disk: Callable[[], SpillFile]) -> None:
        self.bytes_max = bytes_max
        self.spilled_batches = 0
        self._make_disk = disk
        self._disk: SpillFile | None = None
        self._bytes = 0

    def is_passed_with(self, batch: Any) -> bool:
        """Count a batch; gives whether what is in memory is too much now."""
        self._bytes += batch_bytes(batch)
        return self._bytes > self.bytes_max

    def put(self, time: Timestamp, batch: Any, records: int) -> Any:
        """Put a batch on disk; gives a :class:`SpilledBatch`, or the batch itself where it cannot be pickled: within a process it need not
        be. Raises SpillError where the disk is full."""
        try:
            data = b"".join(encode_batch(time, batch))
        except DataflowError:
            return batch
        if self._disk is None:
            self._disk = self._make_disk()
        self.spilled_batches += 1
        return SpilledBatch(self._disk, data, records)

    @property
    def disk_bytes(self) -> int:
        """What is on disk."""
        return self._disk.disk_bytes if self._disk is not None else 0

    def begin(self) -> None:
        """Nothing is in memory now."""
        self._bytes = 0


__all__ = ["OutgoingBound", "SpilledBatch"]
