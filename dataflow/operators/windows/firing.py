"""Event-time windows behind the exchange: the vertex merges, and fires what the watermark has passed.

Port 0 takes ``(key, (window, accumulator))`` pairs, the other ports the largest event time of each batch, broadcast: one port, or one for
each side of a union. When epoch e is complete, the watermark is the largest event time of the epochs up to e, over all replicas, less
``max_delay``: a function of data and epochs only. What is late is passed over here; ``late_records`` gives the records.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.keys.keyed import import_group_by
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.operators.state.waiting import Batches, Waiting
from rayad.dataflow.operators.windows.assigning import SENT_ROWS_MAX
from rayad.dataflow.operators.windows.best import BestColumns, BestRecords
from rayad.dataflow.operators.windows.columns import WindowColumns
from rayad.dataflow.operators.windows.open_windows import OpenWindows
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import EndVertex
from rayad.progress import Timestamp


class EventWindows(KeyedVertex, EndVertex):
    """Fires ``(key, window, value)`` when the watermark passes a window's end.

    The state is columns while all partials are; the first rows, and a session whose sum leaves 64 bits, turn it into rows.
    """

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
        self.open = TwoForms(OpenWindows(aggregator, windows), self._columns)

    def _columns(self) -> WindowColumns:
        if isinstance(self.aggregator, BestRecords):
            return BestColumns(self.aggregator, self.windows)
        return WindowColumns(self.aggregator, self.windows)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows, columns = self.pending[time]
        if edge:
            self.marks.see(edge - 1, to_rows(batch), time)
        elif isinstance(batch, pa.RecordBatch):
            self.open.columns.put_by(columns, batch)
        else:
            rows.append(batch)

    def on_notify(self, time: Timestamp) -> None:
        parts, batches = self.pending.pop(time, ((), ()))
        pairs = list(chain.from_iterable(parts))
        rows, columns = self.open.rows, self.open.columns
        if batches and not pairs and not rows.is_used and columns.takes(batches):
            try:
                columns.accept(batches, self.marks.ahead_of(time))
            except OverflowError:
                pairs = self._to_rows(batches)
        elif batches or pairs:
            pairs += self._to_rows(batches)
        if pairs:
            rows.put(pairs, self.marks.ahead_of(time))
        if self.marks.advance(time):
            self._fire(time, self.marks.watermark.now)

    def _to_rows(self, batches: list[pa.RecordBatch]) -> list[Any]:
        """The columnar state becomes rows; gives these batches as pairs."""
        self.open.to_rows()
        return self.open.columns.pairs_of(batches)

    def on_end(self, time: Timestamp) -> None:
        self._fire(time, None)

    def _fire(self, time: Timestamp, mark: Any) -> None:
        """Emit and forget the windows that end at or before ``mark`` (None: all)."""
        if self.open.columns.is_used:
            self._send_columns(self.open.columns.due(mark), time)
        out = self.open.rows.due(mark)
        if out:
            self.send_by(0, out, time)

    def _send_columns(self, results: Any, time: Timestamp) -> None:
        if isinstance(results, pa.RecordBatch):
            for at in range(0, results.num_rows, SENT_ROWS_MAX):
                self.send_by(0, results.slice(at, SENT_ROWS_MAX), time)
        elif results:
            self.send_by(0, results, time)
