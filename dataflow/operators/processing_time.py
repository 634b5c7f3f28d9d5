"""Processing time: the moment at which an epoch is complete is the event time of its records (docs/decisions/078-processing-time.md).

:class:`EpochClock` is one replica that sees nothing of the stream but its frontier. When the frontier moves beyond an epoch, it reads the
clock and tells the reading to all replicas, in that epoch. :class:`StampRecords` holds the records of an epoch until the epoch is
complete, and then gives them the latest reading. Its readings are also the watermark of the stream, so windows and timers fire in
epochs without records, no record is late, and replicas agree on all of it, whatever their own clocks say.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.keys.keyed import TAGS, distinct_names
from rayad.dataflow.operators.projections import OfFields, WithArrivalTime, require_free
from rayad.dataflow.operators.state.keyed_state import Everywhere, KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.batches import ROWS_KEY, mark_keyed, no_rows
from rayad.dataflow.vertex import EndVertex
from rayad.progress import InternalError, Timestamp

NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class DropAll(Element):
    """Nothing of any batch: an edge that carries progress alone."""

    def apply(self, batch: Any) -> list[Any]:
        return []


class EpochClock(EndVertex):
    """Tells the moment at which an epoch is complete, in that epoch.

    Every epoch has a reading at it or before it, since this vertex may send from epoch 0 on until its frontier moves.
    """

    not_repeatable = "the clock of its machine"

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        """Batches carry nothing (:class:`DropAll`)."""

    def on_advance(self, time: Timestamp) -> None:
        self.send_by(0, [self.now()], time)

    def on_end(self, time: Timestamp) -> None:
        self.send_by(0, [self.now()], time)


class TagBatches(OfFields):
    """Batches of named fields, each with the next tag before its records. Batches with one tag are at one replica, and move together."""

    base = "with_processing_time"

    def __init__(self, column: str) -> None:
        super().__init__([])
        self.column = column
        self.turn = 0

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_free(self.base, self.column, batch.schema.names)
        tag = distinct_names(batch.schema.names, ["tag"])[-1]
        schema = pa.schema([pa.field(tag, pa.int64()), *batch.schema], batch.schema.metadata)
        tags = pa.array(np.full(batch.num_rows, self._next(), np.int64))
        return mark_keyed(pa.RecordBatch.from_arrays([tags, *batch.columns], schema=schema), 1, named=True)

    def of_rows(self, rows: list[dict[str, Any]]) -> list[Any]:
        tag = self._next()
        for row in rows:
            require_free(self.base, self.column, row)
        return [(tag, row) for row in rows]

    def _next(self) -> int:
        self.turn = (self.turn + 1) % TAGS
        return self.turn


def untagged(batch: Any) -> Any:
    """A batch as :class:`TagBatches` got it."""
    if not isinstance(batch, pa.RecordBatch):
        return [record for _, record in batch]
    metadata = {name: value for name, value in batch.schema.metadata.items() if name != ROWS_KEY}
    return pa.RecordBatch.from_arrays(batch.columns[1:], schema=pa.schema(list(batch.schema)[1:], metadata or None))


class Readings(Everywhere):
    """The clock, as every replica knows it: readings of epochs that are not complete, and the latest of all others.

    Args:
        pending: what waits at the same vertex.
    """

    is_in_flight = True

    def __init__(self, pending: Waiting) -> None:
        self._pending = pending
        self.told: dict[Timestamp, dt.datetime] = {}
        self.latest: dt.datetime | None = None

    def tell(self, time: Timestamp, readings: Iterable[dt.datetime]) -> None:
        """The clock was read when ``time`` was complete before this vertex."""
        self.told[time] = max([*readings, *self._at(time)])

    def _at(self, time: Timestamp) -> list[dt.datetime]:
        return [self.told[time]] if time in self.told else []

    def at(self, time: Timestamp) -> dt.datetime:
        """The moment of a time that is complete; those come in order. A clock that is set back stands still."""
        known = [*self._at(time), *([] if self.latest is None else [self.latest])]
        if not known:
            raise InternalError(f"with_processing_time: epoch {time} is complete, but the clock was not read in it or before")
        self.told.pop(time, None)
        self.latest = max(known)
        return self.latest

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return dict(self.told), self.latest

    def restore(self, stored: Any) -> None:
        self.told, self.latest = stored

    # -- to other replicas -----------------------------------------------------------
    def take(self, given: Any) -> None:
        told, latest = given
        for time, reading in told.items():
            self.tell(time, [reading])
            self._pending[time]
        self.latest = max((one for one in (self.latest, latest) if one is not None), default=None)


class StampRecords(KeyedVertex):
    """Records with the moment at which their epoch was complete. Port 0 takes tagged batches, port 1 readings of the clock.

    Args:
        column: that the moment is in.
    """

    sequential = True
    broadcast_may_repeat = True

    def __init__(self, column: str) -> None:
        self.column = column
        self.pending = Waiting(self, Batches())
        self.readings = Readings(self.pending)

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        nothing = None if inputs[0] is None else no_rows(inputs[0])
        return () if nothing is None else (self._stamped(nothing, NEVER).schema,)

    def _stamped(self, batch: Any, moment: dt.datetime) -> Any:
        return WithArrivalTime(self.column, lambda: moment).apply(untagged(batch))

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending[time]
        if edge == 0:
            waiting.append(batch)
        else:
            self.readings.tell(time, batch)

    def on_notify(self, time: Timestamp) -> None:
        moment = self.readings.at(time)
        for batches in self.pending.pieces(time):
            for batch in batches:
                self.send_by(0, self._stamped(batch, moment), time)


__all__ = ["DropAll", "EpochClock", "StampRecords", "TagBatches"]
