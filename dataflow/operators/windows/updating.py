"""Event-time windows whose results are updates: a window gives its value early, and again when a late record changes it.

*Allowed lateness*: a window fires when the watermark passes its end, as in ``firing.py``, and is kept until the watermark less the
lateness has passed it. Each epoch that brings it records in between gives its new value. *Early*: each epoch gives the new value of each
window that it changed, also of those that are open, and nothing is said when the watermark passes an end, since the last value was said.

Both follow from data and epochs alone, as the watermark does. Within an epoch ``(key, window)`` comes once at the most. The model is Akidau
et al., "The Dataflow Model", VLDB 2015, 2.3 (accumulating panes).

State is in rows: an update looks keys up, and partials in columns become rows here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.keys.keyed import import_group_by
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.windows.columns import WindowColumns
from rayad.dataflow.operators.windows.open_windows import OpenWindows
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.event_times import watermark_less
from rayad.dataflow.vertex import EndVertex
from rayad.dataflow.windows import Window
from rayad.progress import Timestamp

Found = list[tuple[Any, Window, Any]]


class UpdatingWindows(KeyedVertex, EndVertex):
    """``(key, window, value)`` when the watermark passes a window's end, and when an epoch has changed what was given. Ports as of
    ``EventWindows``.

    Args:
        lateness: how far the watermark may have passed a window's end when records still change it; None: not at all.
        early: give windows before their end, too.
    """

    sequential = True
    broadcast_may_repeat = True
    may_change = frozenset({"delays", "columnar"})

    def __init__(
        self, aggregator: Aggregator, windows: Any, delays: tuple[Any, ...], lateness: Any, early: bool, *, columnar: bool = False
    ) -> None:
        if columnar:
            import_group_by()
        self.aggregator = aggregator
        self.windows = windows
        self.lateness = lateness
        self.early = early
        self.pending = Waiting(self, Batches(), Batches())  # rows, columns
        self.marks = Marks(delays, self.pending)
        self.open = OpenWindows(aggregator, windows)
        self.fired = OpenWindows(aggregator, windows)
        """Those that have given what they held at their end."""

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows, columns = self.pending[time]
        if edge:
            self.marks.see(edge - 1, to_rows(batch), time)
        elif isinstance(batch, pa.RecordBatch):
            columns.append(batch)
        else:
            rows.append(batch)

    def on_notify(self, time: Timestamp) -> None:
        before = self.marks.ahead_of(time)
        for rows, columns in self.pending.pieces(time):
            pairs = list(chain.from_iterable(rows))
            if columns:
                pairs += WindowColumns(self.aggregator, self.windows).pairs_of(columns)
            self._send(self._put(pairs, before), time)
        if self.marks.advance(time):
            for out in self._pass(self.marks.watermark.now):
                self._send(out, time)

    def _put(self, pairs: list[tuple[Any, Any]], before: Any) -> Found:
        """Take in ``(key, (window, accumulator))``, and give what windows hold now that are to say so; ``before`` is the watermark that
        was."""
        over = watermark_less(before, self.lateness)
        if self.early:
            self.open.put(pairs, over)
            return self._now(self.open, [(key, window) for key, (window, _) in pairs])
        self.open.put(pairs, before)
        again = [] if before is None else [pair for pair in pairs if _is_between(over, pair[1][0], before)]
        self.fired.put(again, None)
        return self._now(self.fired, [(key, window) for key, (window, _) in again])

    def on_end(self, time: Timestamp) -> None:
        for ended in self.open.ended(None):
            if not self.early:
                self._send(self._given(ended), time)
        self.fired.forget_until(None)

    def _send(self, out: Found, time: Timestamp) -> None:
        if out:
            self.send_by(0, out, time)

    def _now(self, windows: OpenWindows, touched: list[tuple[Any, Window]]) -> Found:
        """What these windows hold, but for those that are over."""
        of = windows.open
        return self._given([(key, window, of[window][key]) for key, window in dict.fromkeys(touched) if key in of.get(window, ())])

    def _given(self, found: Found) -> Found:
        return [(key, window, self.aggregator.emitted(accumulator)) for key, window, accumulator in found]

    def _pass(self, mark: Any) -> Iterator[Found]:
        """The watermark is here now: what gives its value, and is over or waits for late records."""
        over = watermark_less(mark, self.lateness)
        for ended in () if self.early else self.open.ended(mark):
            yield self._given(ended)
            self.fired.put([(key, (window, accumulator)) for key, window, accumulator in ended], over)
        if over is not None:
            (self.open if self.early else self.fired).forget_until(over)


def _is_between(over: Any, window: Window, mark: Any) -> bool:
    return bool(window.end <= mark and (over is None or window.end > over))


__all__ = ["UpdatingWindows"]
