"""Reading the parts of a source in one replica: in order, or interleaved by epoch. Pure apart from what the user's source does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from rayad.dataflow.records.batches import require_distinct
from rayad.dataflow.source import Source, SourcePart
from rayad.progress import DataflowError, arguments

_log = logging.getLogger(__name__)
Position = tuple[int, list[int], list[tuple[int, int, Any]]]


class _OpenPart:
    """A part being read. ``last``: the epoch that it gave last; ``floor``: the lowest that it may still give, at the last look."""

    def __init__(self, part: SourcePart, last: int, number: int) -> None:
        self.part = part
        self.last = last
        self.number = number
        self.floor = -1  # nobody has looked

    def look(self, told: str) -> None:
        """Ask for the floor, which never goes back."""
        floor = self.part.epoch_floor()
        if type(floor) is not int or floor > self.last:
            self.last = arguments.epoch(max(self.last, floor), told)
        self.floor = self.last


_FLOOR = attrgetter("floor")


def no_epoch(epoch: int) -> bool:
    """Of sources before which nothing paces them."""
    return False


class SourceReader:
    """The parts of one replica. ``epoch`` is the lowest epoch that may still come; it never goes back. ``furthest`` is the largest to which
    any part has come.

    ``position``: what an earlier reader of the same parts gave as :meth:`position`. It may name several open parts of a source that is read
    in order, when several replicas read them before: then all but the first wait for their turn, at their offsets.
    """

    def __init__(self, source: Source, parts: Sequence[Any], name: str, where: str, position: Position | None = None) -> None:
        self.name = name
        self.where = where
        self.epoch = self.furthest = 0
        self.exhausted = False
        self._source = source
        self._parts = list(parts)
        self._waiting = list(range(len(self._parts)))
        self._open: list[_OpenPart] = []
        self._told = f"epoch_floor() of a part of source {name!r} ({where})"
        self._sizes: Sequence[float] | None = None  # of the parts, once somebody has asked
        self._stopped: dict[int, tuple[int, Any]] = {}  # epoch and offset of waiting parts that have been read in part
        if position is not None:
            self.epoch = self.furthest = position[0]
            self._stopped = {number: (last, offset) for number, last, offset in position[2]}
            if source.interleave:
                self._waiting = list(position[1])
                self._open = [self._build(number) for number in list(self._stopped)]
            else:
                self._waiting = sorted([*position[1], *self._stopped])
                if self._waiting and self._waiting[0] in self._stopped:
                    self._open = [self._build(self._waiting.pop(0))]
        elif source.interleave:
            self._open = [_OpenPart(source.build_part(part, None), 0, number) for number, part in enumerate(self._parts)]
            self._waiting = []

    def position(self) -> Position:
        """The position to resume from: the epoch, the parts not yet opened, and for each open part its number, epoch and offset."""
        opened = [(reading.number, reading.last, reading.part.offset()) for reading in self._open]
        opened.extend((number, *where) for number, where in self._stopped.items())
        return self.epoch, [number for number in self._waiting if number not in self._stopped], opened

    def _build(self, number: int) -> _OpenPart:
        last, offset = self._stopped.pop(number, (0, None))
        return _OpenPart(self._source.build_part(self._parts[number], offset), max(last, self.epoch), number)

    def next(self, holds: Callable[[int], bool] = no_epoch) -> tuple[int, Any] | None:
        """The next ``(epoch, batch)``; None: nothing is there yet, or ``exhausted``. ``holds``: whether a part in an epoch must wait."""
        while True:
            if not self._open:
                if not self._waiting:
                    self.exhausted = True
                    return None
                self._open.append(self._build(self._waiting.pop(0)))
            accepted = self._read_one(holds)
            if self._open:
                for part in self._open:
                    part.look(self._told)
                lasts = [part.last for part in self._open]
                self.epoch = max(self.epoch, min(lasts))
                self.furthest = max(self.furthest, *lasts)
                return accepted
            if accepted is not None:
                return accepted

    def _read_one(self, holds: Callable[[int], bool]) -> tuple[int, Any] | None:
        """Read from the part with the lowest epoch that has something, so that an idle part does not block the others."""
        if self._open[-1].floor < 0:  # of parts that were opened together, nobody has looked at any
            for reading in self._open:
                reading.floor = max(reading.last, reading.part.epoch_floor())
        for reading in sorted(self._open, key=_FLOOR) if len(self._open) > 1 else self._open[:1]:
            if holds(reading.last):
                continue
            read = reading.part.next_batch()
            self._open.remove(reading)
            if read is None:
                reading.part.close()
                continue
            self._open.append(reading)  # among parts of one epoch: in turn
            accepted = self._accept(read, reading)
            if accepted is not None:
                return accepted
        return None

    def _accept(self, read: Any, reading: _OpenPart) -> tuple[int, Any] | None:
        epoch, batch = read if isinstance(read, tuple) and len(read) == 2 else (reading.last, read)
        if type(epoch) is not int or not 0 <= epoch <= arguments.EPOCH_MAX:
            epoch = arguments.epoch(epoch, f"an epoch that source {self.name!r} ({self.where}) gave")
        if not isinstance(batch, (list, pa.RecordBatch)):
            raise DataflowError(f"source {self.name!r} ({self.where}) gave a {type(batch).__name__}: a batch is a list or a RecordBatch")
        if isinstance(batch, pa.RecordBatch):
            require_distinct(batch.schema, f"a batch of source {self.name!r} ({self.where})")
        if not (batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)):
            return None
        if epoch < reading.last:
            raise DataflowError(
                f"source {self.name!r} ({self.where}) gave epoch {epoch} after epoch {reading.last}: input time may not go back; "
                "sort the input by epoch, or set interleave on the source when it is only the parts that overlap"
            )
        reading.last = epoch
        return epoch, batch

    def backlog(self) -> int | None:
        """The backlog of all parts together; None if it is not known for one of them."""
        waiting = [reading.part.backlog() for reading in self._open]
        known = [count for count in waiting if count is not None]
        return sum(known) if known and len(known) == len(waiting) and not self._waiting else None

    def amounts(self) -> tuple[float, float]:
        """How much of the parts has been read, and how much they hold, in the unit of ``Source.part_sizes``. Of a part whose share is not
        known nothing counts until its end."""
        try:
            return self._amounts()
        except Exception:  # it is only shown: a source that cannot tell is no reason to end the job
            _log.debug("source %r (%s) could not tell how much has been read", self.name, self.where, exc_info=True)
            return 0.0, 0.0

    def _amounts(self) -> tuple[float, float]:
        if self._sizes is None:
            self._sizes = list(self._source.part_sizes(self._parts))
        sizes, total = self._sizes, float(sum(self._sizes))
        left = sum(sizes[number] for number in self._waiting)
        for reading in self._open:
            share = reading.part.share_read() or 0.0
            left += sizes[reading.number] * (1.0 - min(1.0, max(0.0, share)))
        return total - left, total

    def close(self) -> None:
        """Close every part that is still open."""
        for reading in self._open:
            reading.part.close()
        self._open.clear()
