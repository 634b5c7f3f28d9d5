"""What joins over event time share: each side has a watermark of its own, what they do goes by the lesser of the two, and which records of
a time are late is known when the time before it is complete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic

import pyarrow as pa

from rayad.dataflow.operators.joins.pairs import NotColumnar
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.two_forms import Columns, Rows, TwoForms
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.windows.assigning import SENT_ROWS_MAX
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import no_rows, to_rows
from rayad.dataflow.vertex import EndVertex
from rayad.progress import Timestamp


class JoinInTime(KeyedVertex, EndVertex, ABC):
    """Ports 0 and 1 take the records of the left and right side, the others the largest event times of each batch. What comes too late
    goes to output port 1: its key, window if there is one, and ``(record, None)``, or ``(None, record)`` from the right.

    Args:
        delays: how late records of each of the other ports' streams may come.
    """

    gives_records = True
    sequential = True
    broadcast_may_repeat = True
    may_change = frozenset({"delays"})

    def __init__(self, delays: tuple[Any, ...]) -> None:
        self.pending = Waiting(self, Batches(), Batches())  # left, right
        self.marks = Marks(delays, self.pending)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending[time]
        if edge < 2:
            waiting[edge].append(batch)
        else:
            self.marks.see(edge - 2, to_rows(batch), time)

    def on_notify(self, time: Timestamp) -> None:
        late: list[Any] = []
        mark = self.marks.ahead_of(time)
        for piece in self.pending.pieces(time):
            for side, batches in enumerate(piece):
                for *place, record in self._put(side, batches, mark, time) if batches else ():
                    late.append((*place, (record, None) if side == 0 else (None, record)))
        if late:
            self.send_by(1, late, time)
        if self.marks.advance(time):
            self._fire(time, self.marks.watermark.now)

    def on_end(self, time: Timestamp) -> None:
        self._fire(time, None)

    @abstractmethod
    def _put(self, side: int, batches: list[Any], mark: Any, time: Timestamp) -> list[Any]:
        """Take records of a time in; gives those that are late at the watermark before it."""

    @abstractmethod
    def _fire(self, time: Timestamp, mark: Any) -> None:
        """Give what is settled at a watermark (None: all)."""

    def send_cut(self, batches: Iterable[Any], time: Timestamp) -> None:
        """Send results, in batches that are not too large."""
        for batch in batches:
            for at in range(0, len(batch), SENT_ROWS_MAX):
                part = batch[at : at + SENT_ROWS_MAX] if isinstance(batch, list) else batch.slice(at, SENT_ROWS_MAX)
                self.send_by(0, part, time)


class JoinInTwoForms(JoinInTime, Generic[Rows, Columns]):
    """A join over event time that keeps records in columns or in rows.

    Args:
        delays: see :class:`JoinInTime`.
        kept: the records that wait for others. Its forms take batches (rows: ``put(side, batch, *told)``; columns: ``check(side,
            batches)``, then ``accept(side, batches, *told)``), which gives what is late, and results; ``due(watermark)`` gives the results
            that are settled; the columns' ``results(left, right)`` makes results of rows that have met.
    """

    @abstractmethod
    def __init__(self, delays: tuple[Any, ...], kept: TwoForms[Rows, Columns]) -> None:
        super().__init__(delays)
        self.open = kept

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        left, right = [None if schema is None else no_rows(schema) for schema in inputs[:2]]
        columns: Any = self.open.columns
        if left is None or right is None:
            return ()
        try:
            columns.check(0, [left])
            columns.check(1, [right])
        except NotColumnar:
            return ()
        return (columns.results(left, right).schema,)

    def _put(self, side: int, batches: list[Any], mark: Any, time: Timestamp) -> list[Any]:
        rows: Any = self.open.rows
        columns: Any = self.open.columns
        if not rows.is_used and all(isinstance(batch, pa.RecordBatch) for batch in batches):
            try:
                columns.check(side, batches)
            except NotColumnar:
                pass
            else:
                return self._late_of(columns.accept(side, batches, *self.told(mark, time)), time)
        self.open.to_rows()
        return [late for batch in batches for late in self._late_of(rows.put(side, batch, *self.told(mark, time)), time)]

    def told(self, mark: Any, time: Timestamp) -> tuple[Any, ...]:
        """What the forms are told with records: the watermark."""
        return (mark,)

    def _late_of(self, taken: tuple[list[Any], list[Any]], time: Timestamp) -> list[Any]:
        """The late ones of what a form gave when it took records in."""
        late, results = taken
        self.send_cut(results, time)
        return late

    def _fire(self, time: Timestamp, mark: Any) -> None:
        columns: Any = self.open.columns
        rows: Any = self.open.rows
        if columns.is_used:
            self.send_cut(columns.due(mark), time)
        self.send_cut(rows.due(mark), time)
