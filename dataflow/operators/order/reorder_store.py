"""Where records wait whose turn has not come: in memory up to a bound, beyond it in temporary files.

A file is unlinked as soon as it is open and closed when nothing in it is waited for any more, so that neither a killed process nor a long
job leaves anything behind. What is on disk pickles as what it holds: a snapshot needs no file.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import weakref
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa

from rayad.dataflow.operators.state.stored_columns import stored, taken_back
from rayad.dataflow.records.batches import batch_rows
from rayad.progress import DataflowError, InternalError, show

SEGMENT_BYTES = 64 * 1024 * 1024
"""A file is given up for a new one at this size; it goes when the last batch in it has gone."""


class Numbered:
    """A batch that knows its place: what became of the records ``start`` to ``start + count`` (exclusive) of its time. Immutable."""

    __slots__ = ("_content", "count", "memory_bytes", "start")

    def __init__(self, start: int, count: int, content: Any, memory_bytes: int = 0) -> None:
        self.start = start
        self.count = count
        self._content = content
        self.memory_bytes = memory_bytes
        """What a :class:`ReorderStore` counts for it."""

    @property
    def is_spilled(self) -> bool:
        """Whether the records are on disk."""
        return isinstance(self._content, Spilled)

    @property
    def batch(self) -> Any:
        """The records, read from disk where they are there."""
        content = self._content
        return content.read() if isinstance(content, Spilled) else content

    def replaced(self, batch: Any) -> Numbered:
        """Other records in the same place."""
        return Numbered(self.start, self.count, batch)

    def split(self, rows: int) -> list[Numbered]:
        """Cut into pieces of at most ``rows`` records each. Only before any record of it was used.

        >>> [(piece.start, piece.count, piece.batch) for piece in Numbered(5, 3, ["a", "b", "c"]).split(2)]
        [(5, 2, ['a', 'b']), (7, 1, ['c'])]
        """
        batch = self.batch
        if self.count <= rows or batch_rows(batch) != self.count:
            return [self]
        pieces = []
        for at in range(0, self.count, rows):
            piece = batch.slice(at, rows) if isinstance(batch, pa.RecordBatch) else batch[at : at + rows]
            pieces.append(Numbered(self.start + at, batch_rows(piece), piece))
        return pieces

    def __reduce__(self) -> Any:
        batch = self.batch
        if isinstance(batch, pa.RecordBatch):
            (stream,) = stored([batch])
            return _of_columns, (self.start, self.count, stream)
        return Numbered, (self.start, self.count, batch)

    def __repr__(self) -> str:
        return f"Numbered({self.start}, {self.count}, {show(self.batch, 60)})"


def _of_columns(start: int, count: int, stream: pa.Buffer) -> Numbered:
    (batch,) = taken_back([stream])
    return Numbered(start, count, batch)


class _Segment:
    """One file; open as long as somebody refers to it."""

    __slots__ = ("__weakref__", "fd", "size")

    def __init__(self, directory: str | None) -> None:
        self.fd, path = tempfile.mkstemp(prefix="rayad-order-", dir=directory)
        os.unlink(path)
        weakref.finalize(self, os.close, self.fd)
        self.size = 0


class Spilled:
    """A batch on disk."""

    __slots__ = ("_at", "_segment", "_size")

    def __init__(self, segment: _Segment, at: int, size: int) -> None:
        self._segment = segment
        self._at = at
        self._size = size

    def read(self) -> Any:
        """The batch. Also in a forked copy of the process, since no position in the file is moved."""
        parts, at, missing = [], self._at, self._size
        while missing:
            part = os.pread(self._segment.fd, missing, at)
            if not part:
                raise InternalError(f"the file of batches that wait for their turn ends at {at}, {missing} bytes too early")
            parts.append(part)
            at, missing = at + len(part), missing - len(part)
        return pickle.loads(b"".join(parts)).batch


class ReorderStore:
    """Holds batches in memory up to a bound and moves further ones to disk.

    Args:
        memory_bytes_max: how much stays in memory, by estimate.
        directory: where the files are; None: the system's place for temporary ones.
    """

    def __init__(self, memory_bytes_max: int, directory: str | None = None) -> None:
        self.memory_bytes_max = memory_bytes_max
        self.memory_bytes = 0
        self.spilled = 0
        self._directory = directory
        self._segment: _Segment | None = None

    def keep(self, item: Numbered) -> Numbered:
        """What to keep in the place of ``item`` until :meth:`let_go`. Raises DataflowError when it cannot be written."""
        if item.memory_bytes or item.is_spilled:
            return item
        size = estimated_bytes(item.batch)
        if self.memory_bytes + size <= self.memory_bytes_max:
            self.memory_bytes += size
            return Numbered(item.start, item.count, item.batch, size)
        return self._spill(item)

    def let_go(self, item: Numbered) -> None:
        """What :meth:`keep` gave waits no longer."""
        self.memory_bytes -= item.memory_bytes

    def _spill(self, item: Numbered) -> Numbered:
        data = cloudpickle.dumps(item)
        try:
            if self._segment is None or self._segment.size >= SEGMENT_BYTES:
                self._segment = _Segment(self._directory)
            segment, at, view = self._segment, self._segment.size, memoryview(data)
            while view:
                view = view[os.pwrite(segment.fd, view, at + len(data) - len(view)) :]
        except OSError as error:
            place = self._directory or tempfile.gettempdir()
            raise DataflowError(
                f"{len(data)} bytes of records that wait for their turn cannot be written to {place!r}: {error.strerror}; "
                "free space there, or give ordered(memory_bytes=..., spill_directory=...)"
            ) from error
        segment.size += len(data)
        self.spilled += 1
        return Numbered(item.start, item.count, Spilled(segment, at, len(data)))


def estimated_bytes(batch: Any) -> int:
    """About how much memory a batch takes, at least 1: exact for columns, from three records for rows."""
    if isinstance(batch, pa.RecordBatch):
        return max(1, int(batch.nbytes))
    count = len(batch)
    if not count:
        return 1
    sample = [_record_bytes(record) for record in (batch[0], batch[count // 2], batch[-1])]
    return count * (8 + sum(sample) // 3)


def _record_bytes(record: Any) -> int:
    parts = record if isinstance(record, (tuple, list)) else record.values() if isinstance(record, dict) else ()
    own = getattr(record, "nbytes", None)
    size = own if isinstance(own, int) else sys.getsizeof(record, 64)
    return size + sum(_record_bytes(part) for part in list(parts)[:8] if part is not record) * max(1, len(parts) // 8)
