"""Batches that wait for their time: before a vertex that takes times in order, or until a time is complete.

Their credit goes back at once: a smaller time, for which they wait, may be behind them on the same channel, or be blocked further
upstream for lack of credit; if they kept their credit, it could never arrive. So they must be stored, like what comes round a loop: in
memory up to a bound, then on disk. The batches of one time keep their order.

Of each batch on disk its place stays in memory: some hundred bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

from rayad.actors.plane.batch_codec import batch_bytes, decode_batch, encode_batch
from rayad.progress import InternalError, Timestamp, WaitingTimes


class Disk(Protocol):
    """Where bytes are kept that are taken out in any order: see :class:`rayad.actors.plane.spilling_queue.SpillFile`."""

    def write(self, item: bytes) -> tuple[int, int]:
        """Write an item; gives its place."""

    def read(self, place: tuple[int, int]) -> bytes:
        """What was written there."""

    def free(self, place: tuple[int, int]) -> None:
        """Free the space of an item that is not needed any more."""

    def close(self) -> None:
        """Nothing is."""


Entry = tuple[int, Any, int]
"""The edge, the batch and its size; or, where the size is negative, its place on disk."""


class Parked:
    """Batches by time.

    Args:
        memory_bytes_max: what is kept in memory; None: everything.
        disk: makes the place for what is beyond that, when it is needed.

    >>> parked = Parked()
    >>> parked.add(Timestamp(2), 7, ["late"]); parked.add(Timestamp(1), 7, ["early"])
    >>> parked.times(), list(parked.take(Timestamp(1))), len(parked)
    ([Timestamp(1), Timestamp(2)], [(7, ['early'])], 1)
    """

    def __init__(self, memory_bytes_max: int | None = None, disk: Callable[[], Disk] | None = None) -> None:
        self._memory_bytes_max = memory_bytes_max if disk is not None else None
        self._make_disk = disk
        self._disk: Disk | None = None
        self._waiting: dict[Timestamp, deque[Entry]] = {}
        self._times = WaitingTimes()
        self._count = 0
        self.memory_bytes = 0
        self.memory_bytes_peak = 0
        self.spilled_batches = 0

    def __len__(self) -> int:
        return self._count

    def add(self, time: Timestamp, edge: int, batch: Any) -> None:
        """Add a batch, behind those of the same time."""
        size = batch_bytes(batch)
        most = self._memory_bytes_max
        if most is not None and self.memory_bytes and self.memory_bytes + size > most:
            entry = (edge, self._write(time, batch), -1)
        else:
            entry = (edge, batch, size)
            self.memory_bytes += size
            self.memory_bytes_peak = max(self.memory_bytes_peak, self.memory_bytes)
        self._waiting.setdefault(time, deque()).append(entry)
        self._times.add(time)
        self._count += 1

    def _write(self, time: Timestamp, batch: Any) -> tuple[int, int]:
        if self._disk is None:
            assert self._make_disk is not None
            self._disk = self._make_disk()
        place = self._disk.write(b"".join(encode_batch(time, batch)))
        self.spilled_batches += 1
        return place

    def times(self) -> list[Timestamp]:
        """The times of what waits, in their total order."""
        return sorted(self._waiting, key=Timestamp.sort_key)

    def first(self) -> Timestamp | None:
        """The first of these times."""
        return self._times.first()

    def take(self, time: Timestamp) -> Iterator[tuple[int, Any]]:
        """Take out what waits for a time: ``(edge, batch)``."""
        self._times.discard(time)
        for entry in self._waiting.pop(time):
            yield entry[0], self._out(entry)

    def take_below(self, frontier: Collection[Timestamp]) -> Iterator[tuple[Timestamp, int, Any]]:
        """Take out, in the order of times, what waits for a time that is not at or beyond a frontier: ``(time, edge, batch)``."""
        for time in self._times.take_below(frontier):
            for edge, batch in self.take(time):
                yield time, edge, batch

    def _out(self, entry: Entry) -> Any:
        _, batch, size = entry
        self._count -= 1
        if size >= 0:
            self.memory_bytes -= size
            return batch
        assert self._disk is not None
        data = self._disk.read(batch)
        self._disk.free(batch)
        return decode_batch(data)[1]

    def drop(self, edges: Collection[int]) -> list[Timestamp]:
        """Drop what came on these edges; gives the time of each batch."""
        gone = []
        for time in list(self._waiting):
            kept: deque[Entry] = deque()
            for entry in self._waiting[time]:
                if entry[0] not in edges:
                    kept.append(entry)
                    continue
                gone.append(time)
                self._count -= 1
                if entry[2] >= 0:
                    self.memory_bytes -= entry[2]
                elif self._disk is not None:
                    self._disk.free(entry[1])
            if kept:
                self._waiting[time] = kept
            else:
                del self._waiting[time]
                self._times.discard(time)
        return gone

    def take_all(self) -> Iterator[tuple[Timestamp, int, Any]]:
        """Take everything out that is there now: ``(time, edge, batch)``. What is added meanwhile stays."""
        waiting, self._waiting, self._times = self._waiting, {}, WaitingTimes()
        for time, entries in waiting.items():
            for entry in entries:
                yield time, entry[0], self._out(entry)

    def frozen(self) -> Iterator[tuple[int, bytes]]:
        """Everything, encoded, as it stays here: ``(edge, time and batch)``."""
        for time, entries in self._waiting.items():
            for edge, batch, size in entries:
                if size >= 0:
                    yield edge, b"".join(encode_batch(time, batch))
                else:
                    assert self._disk is not None
                    yield edge, self._disk.read(batch)

    def close(self) -> None:
        """Give up the disk space."""
        if self._disk is not None:
            self._disk.close()

    def check_invariants(self) -> None:
        """Raise InternalError when the counts contradict each other."""
        entries = [entry for waiting in self._waiting.values() for entry in waiting]
        size = sum(entry[2] for entry in entries if entry[2] >= 0)
        if len(entries) != self._count or size != self.memory_bytes or not all(self._waiting.values()):
            raise InternalError(f"{len(entries)} batches of {size} bytes wait, counted are {self._count} of {self.memory_bytes}")
        self._times.check_invariants()
        if list(self._times) != self.times():
            raise InternalError(f"batches wait for {self.times()}, but {list(self._times)} are in order")
