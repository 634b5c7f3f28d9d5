"""Event-time windows behind the exchange: the vertex merges, and fires what the watermark has passed.

Port 0 takes ``(key, (window, accumulator))`` pairs, the other ports the largest event time of each batch, broadcast: one port, or one for
each side of a union. When epoch e is complete, the watermark is the largest event time of the epochs up to e, over all replicas, less
``max_delay``: a function of data and epochs only. What is late is passed over here; ``late_records`` gives the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.keys.keyed import import_group_by
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.windows.assigning import SENT_ROWS_MAX
from rayad.dataflow.operators.windows.kept_windows import KeptWindows
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import EndVertex
from rayad.progress import Timestamp


class EventWindows(KeyedVertex, EndVertex):
    """Fires ``(key, window, value)`` when the watermark passes a window's end."""

    sequential = True
    broadcast_may_repeat = True
    may_change = frozenset({"delays", "columnar"})

    def __init__(self, aggregator: Aggregator, windows: Any, delays: tuple[Any, ...], *, columnar: bool = False) -> None:
        if columnar:
            import_group_by()
        self.aggregator = aggregator
        self.windows = windows
        self.pending = Waiting(self, Batches(), Batches())  # rows, columns
        self.marks = Marks(delays, self.pending)
        self.open = KeptWindows(aggregator, windows)

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        return () if inputs[0] is None else (self.open.columns.schema_of(inputs[0]),)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows, columns = self.pending[time]
        if edge:
            self.marks.see(edge - 1, to_rows(batch), time)
        elif isinstance(batch, pa.RecordBatch):
            self.open.columns.put_by(columns, batch)
        else:
            rows.append(batch)

    def on_notify(self, time: Timestamp) -> None:
        mark = self.marks.ahead_of(time)
        for rows, columns in self.pending.pieces(time):
            self.open.accept(rows, columns, mark)
        if self.marks.advance(time):
            self._fire(time, self.marks.watermark.now)

    def on_end(self, time: Timestamp) -> None:
        self._fire(time, None)

    def _fire(self, time: Timestamp, mark: Any) -> None:
        """Emit and forget the windows that end at or before ``mark`` (None: all)."""
        for fired in self.open.fired(mark):
            if isinstance(fired, pa.RecordBatch):
                for at in range(0, fired.num_rows, SENT_ROWS_MAX):
                    self.send_by(0, fired.slice(at, SENT_ROWS_MAX), time)
            elif fired:
                self.send_by(0, fired, time)
