"""The life of a source in one replica: opened, read batch by batch, exhausted or stopped. Its epoch is counted while it is open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rayad.actors.replica.input.pace import Pace
from rayad.actors.replica.input.source_reader import Position, SourceReader
from rayad.actors.replica.progress_changes import ProgressChanges
from rayad.actors.replica.vertex.callbacks import Callbacks
from rayad.dataflow.plan import Stage
from rayad.progress import Timestamp


class SourceLife:
    """This replica's share of a source; in replicas of vertices nothing is ever opened.

    Args:
        stage, replica: which one it is.
        changes: where its epoch is counted.
        callbacks: run the user's source.
        pace: how far it may run ahead.
    """

    def __init__(self, stage: Stage, replica: int, changes: ProgressChanges, callbacks: Callbacks, pace: Pace) -> None:
        self.reader: SourceReader | None = None
        """Reads the parts; None: it is over, or there is none."""
        self.given = -1
        """The last epoch of which it may have given records; -1: none."""
        self._stage, self._replica = stage, replica
        self._changes, self._callbacks, self._pace = changes, callbacks, pace
        self._furthest = 0
        self._amounts = (0.0, 0.0)  # when it ended

    def open(self, rest: Mapping[str, Any] | None) -> None:
        """Open the source, where a part of a snapshot (:meth:`PartRest.plain`) says, or at its beginning."""
        if rest is None or rest["source"] is not None:
            self.reader = self._callbacks.guard("open", partial(self._open, rest["source"] if rest is not None else None))
        if self.reader is None or self.reader.epoch:
            self._changes.at_vertex(Timestamp(0), -1)  # the progress graph begins with every source at epoch 0
            if self.reader is not None:
                self._changes.at_vertex(Timestamp(self.reader.epoch), 1)
        if rest is not None:
            self._furthest = rest.get("furthest", 0)
            self.given = self.reader.epoch if self.reader is not None else self._furthest
        if self.reader is None:
            self._changes.end(self._furthest)

    def _open(self, position: Position | None) -> SourceReader:
        stage = self._stage
        return SourceReader(stage.op, stage.parts[self._replica :: stage.parallelism], stage.name, stage.where, position)

    def position(self) -> Position | None:
        """Where to resume; None: it is over."""
        return self.reader.position() if self.reader is not None else None

    @property
    def furthest(self) -> int:
        """The last epoch that any part has come to."""
        return max(self._furthest, self.reader.furthest if self.reader is not None else 0)

    @property
    def amounts(self) -> tuple[float, float]:
        """How much has been read, and how much there is, in the source's own unit; (0, 0) where that is not known."""
        return self.reader.amounts() if self.reader is not None else self._amounts

    def read(self) -> tuple[int, Any] | bool | None:
        """Read one batch with its epoch. Without one: whether the epoch has advanced, or None when the source is over."""
        reader = self.reader
        if reader is None:
            return None
        before = reader.epoch
        read: tuple[int, Any] | None = self._callbacks.guard("next_batch", self._next)
        if read is not None:
            self.given = max(self.given, read[0])
            self._pace.begins(read[0])
        if reader.exhausted:
            self._end(reader, before)
            return None
        if reader.epoch != before:
            self._pace.begins(reader.epoch)
            self._changes.at_vertex(Timestamp(before), -1)
            self._changes.at_vertex(Timestamp(reader.epoch), 1)
        return reader.epoch != before if read is None else read

    def _next(self) -> tuple[int, Any] | None:
        assert self.reader is not None
        return self.reader.next(self._pace.holds)

    def stop(self) -> None:
        """Stop reading; what has been read is finished."""
        if self.reader is not None:
            self._end(self.reader, self.reader.epoch)

    def _end(self, reader: SourceReader, epoch: int) -> None:
        self._changes.at_vertex(Timestamp(epoch), -1)
        self._amounts = reader.amounts()
        self._furthest = self.furthest
        self._changes.end(self._furthest)
        self._callbacks.guard("close", reader.close)
        self.reader = None
