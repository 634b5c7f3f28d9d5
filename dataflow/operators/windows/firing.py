"""Event-time windows behind the exchange: the vertex merges, and fires what the watermark has passed.

Port 0 takes ``(key, (window, accumulator))`` pairs, the other ports the largest event time of each batch, broadcast: one port, or one for
each side of a union. When epoch e is complete, the watermark is the largest event time of the epochs up to e, over all replicas, less
``max_delay``: a function of data and epochs only. What is late is passed over here; ``late_records`` gives the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.keys.keyed import import_group_by
from rayad.dataflow.operators.state.key_groups import Kept, MovingVertex
from rayad.dataflow.operators.state.stored_columns import stored_by_time, taken_back_by_time
from rayad.dataflow.operators.state.touched_keys import TouchedKeys
from rayad.dataflow.operators.windows.assigning import SENT_ROWS_MAX
from rayad.dataflow.operators.windows.best import BestColumns, BestRecords
from rayad.dataflow.operators.windows.columns import Pairs, WindowColumns
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import EndVertex
from rayad.dataflow.windows import Session, Window
from rayad.progress import Timestamp


def _key_alone(pair: Any) -> Any:
    return pair[0]


def _key_and_window(pair: Any) -> Any:
    return pair[0], pair[1][0]


class EventWindows(MovingVertex, EndVertex):
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
        self.pending: dict[Timestamp, list[Any]] = {}
        self.pending_columns: dict[Timestamp, list[pa.RecordBatch]] = {}
        self.open: dict[Window, dict[Any, Any]] = {}
        self.sessions: dict[Any, list[list[Any]]] = {}
        self.columns = self._no_columns()
        self.marks = Marks(delays)
        self._touched = TouchedKeys(_key_alone if isinstance(windows, Session) else _key_and_window)

    def _no_columns(self) -> WindowColumns:
        if isinstance(self.aggregator, BestRecords):
            return BestColumns(self.aggregator, self.windows)
        return WindowColumns(self.aggregator, self.windows)

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return {**self._pending(), "open": self.open, "sessions": self.sessions, "columns": self.columns.checkpoint()}

    def restore(self, state: Any) -> None:
        self._restore_pending(state)
        self.open, self.sessions = state["open"], state["sessions"]
        self.columns.restore(state["columns"])

    def take_changes(self) -> Callable[[], Any] | None:
        if self.marks.watermark.uneven:
            self._forget_changes()
        if self.columns.rows:
            self._touched.forget()
            changed = self.columns.take_changes()
            return None if changed is None else lambda: {**self._pending(), "columns": changed()}
        touched = self._touched.take()
        return None if touched is None else lambda: {**self._pending(), **self._rows_of(touched())}

    def restore_changes(self, changes: Any) -> None:
        self._restore_pending(changes)
        if "columns" in changes:
            self.columns.restore_changes(changes["columns"])
            return
        self.open = {window: self.open.get(window, {}) for window in changes["windows"]}
        for window, now in changes["open"].items():
            self.open[window].update(now)
        now = self.marks.watermark.now
        for key in [*self.sessions]:
            self._keep_sessions(key, [s for s in self.sessions[key] if now is None or s[1] > now])
        for key, sessions in changes["sessions"].items():
            self._keep_sessions(key, sessions)

    def _pending(self) -> dict[str, Any]:
        columns = stored_by_time(self.pending_columns)
        return {"pending": self.pending, "pending_columns": columns, "marks": self.marks.checkpoint()}

    def _restore_pending(self, state: Any) -> None:
        self.pending = state["pending"]
        self.marks.restore(state["marks"])
        self.pending_columns = taken_back_by_time(state["pending_columns"])

    def _rows_of(self, touched: set[Any]) -> dict[str, Any]:
        """What touched keys hold now; which windows are open tells what is gone, of sessions the watermark does."""
        sessions: dict[Any, Any] = {}
        some: dict[Window, dict[Any, Any]] = {}
        if isinstance(self.windows, Session):
            sessions = {key: self.sessions.get(key, []) for key in touched}
        else:
            for key, window in touched:
                if key in self.open.get(window, ()):
                    some.setdefault(window, {})[key] = self.open[window][key]
        return {"windows": list(self.open), "open": some, "sessions": sessions}

    # -- to other replicas -----------------------------------------------------------
    def kept_by_key(self) -> Iterable[Kept]:
        return [self.columns, self.sessions, *self.open.values()]

    def gave(self) -> None:
        super().gave()
        self.columns.forget_groups()

    def give(self, groups: frozenset[int]) -> Any:
        """The state of the groups, with the watermark and the largest event times of all times that wait: a new replica has not seen what
        was broadcast before it came, and one that has handled a time already fires, at that time, what comes to it for that time. See
        ``operators.watermarks`` for why results stay as they were.
        """
        leaving = self.leaving()
        pending = {time: leaving.out_of_pairs(pairs, groups) for time, pairs in self.pending.items()}
        batches = {time: leaving.out_of_batches(some, groups) for time, some in self.pending_columns.items()}
        self.pending = {time: pairs for time, pairs in self.pending.items() if pairs}
        self.pending_columns = {time: some for time, some in self.pending_columns.items() if some}
        windows = {window: leaving.out_of(kept, groups) for window, kept in self.open.items()}
        self.open = {window: kept for window, kept in self.open.items() if kept}
        self._forget_changes()
        return {
            "pending": {time: pairs for time, pairs in pending.items() if pairs},
            "pending_columns": {time: some for time, some in batches.items() if some},
            "marks": self.marks.give(),
            "open": {window: kept for window, kept in windows.items() if kept},
            "sessions": leaving.out_of(self.sessions, groups),
            "columns": self.columns.give(groups, self.key_groups),
        }

    def take(self, state: Any) -> None:
        self.columns.forget_groups()
        for time in sorted({*state["pending"], *state["pending_columns"], *chain(*state["marks"][0])}, key=Timestamp.sort_key):
            if not self._waits(time):
                self.notify_at(time)
            if time in state["pending"]:
                self.pending.setdefault(time, []).extend(state["pending"][time])
            if time in state["pending_columns"]:
                self.pending_columns.setdefault(time, []).extend(state["pending_columns"][time])
        self.marks.take(state["marks"])
        pairs: Pairs = []
        if state["columns"] is not None and (self.open or self.sessions or not self.columns.take(state["columns"])):
            columns = self._no_columns()
            columns.take(state["columns"])
            pairs = columns.taken_as_pairs()
        if pairs or state["open"] or state["sessions"]:
            self._to_rows([])
        for key, (window, accumulator) in pairs:
            self._came_back(self.open.get(window, self.sessions), (key,))
            self._keep(key, window, accumulator)
        for window, kept in state["open"].items():  # of keys that are not here
            self._came_back(self.open.setdefault(window, {}), kept)
            self.open[window].update(kept)
        self._came_back(self.sessions, state["sessions"])
        self.sessions.update(state["sessions"])
        self._forget_changes()

    def _forget_changes(self) -> None:
        self._touched.forget()
        self.columns.forget_changes()

    def _waits(self, time: Timestamp) -> bool:
        return time in self.pending or time in self.pending_columns or self.marks.waits(time)

    # -- times -----------------------------------------------------------------------
    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if not self._waits(time):
            self.notify_at(time)
        if edge:
            self.marks.see(edge - 1, to_rows(batch), time)
        elif isinstance(batch, pa.RecordBatch):
            self.columns.put_by(self.pending_columns.setdefault(time, []), batch)
        else:
            self.pending.setdefault(time, []).extend(batch)

    def on_notify(self, time: Timestamp) -> None:
        rows, batches = self.pending.pop(time, []), self.pending_columns.pop(time, [])
        if batches and not (rows or self.open or self.sessions) and self.columns.takes(batches):
            try:
                self.columns.accept(batches, self.marks.ahead_of(time))
            except OverflowError:
                rows = self._to_rows(batches)
        elif batches or (rows and self.columns.rows):
            rows += self._to_rows(batches)
        if rows:
            self._take_rows(rows, time)
        if self.marks.advance(time):
            self._fire(time, self.marks.watermark.now)

    def on_end(self, time: Timestamp) -> None:
        self._fire(time, None)

    def _to_rows(self, batches: list[pa.RecordBatch]) -> list[Any]:
        """The columnar state as rows of state; these batches as pairs."""
        for key, (window, accumulator) in self.columns.taken_as_pairs():
            self._keep(key, window, accumulator)
        self._touched.forget()
        return self.columns.pairs_of(batches)

    def _take_rows(self, pairs: list[Any], time: Timestamp) -> None:
        mark = self.marks.ahead_of(time)
        for key, (window, accumulator) in pairs:
            if mark is None or window.end > mark:
                self._keep(key, window, accumulator)
        self._touched.note(pairs, len(self.sessions) or sum(map(len, self.open.values())))

    def _keep(self, key: Any, window: Window, accumulator: Any) -> None:
        if isinstance(self.windows, Session):
            self._into_session(key, window, accumulator)
            return
        of_window = self.open.setdefault(window, {})
        of_window[key] = self.aggregator.merge(of_window[key], accumulator) if key in of_window else accumulator

    def _into_session(self, key: Any, window: Window, accumulator: Any) -> None:
        kept = self.sessions.setdefault(key, [])
        start, end = window
        apart = []
        for session in kept:
            if session[1] >= start and session[0] <= end:
                start, end = min(start, session[0]), max(end, session[1])
                accumulator = self.aggregator.merge(session[2], accumulator)
            else:
                apart.append(session)
        apart.append([start, end, accumulator])
        self.sessions[key] = apart

    def _keep_sessions(self, key: Any, sessions: list[list[Any]]) -> None:
        if sessions:
            self.sessions[key] = sessions
        elif self.sessions.pop(key, None) is not None and self._leaving is not None:
            self._leaving.removed(self.sessions, key)

    def _fire(self, time: Timestamp, mark: Any) -> None:
        """Emit and forget the windows that end at or before ``mark`` (None: all)."""
        if self.columns.rows:
            self._send_columns(self.columns.due(mark), time)
        result = self.aggregator.result
        done = sorted(window for window in self.open if mark is None or window.end <= mark)
        out = [(key, window, result(a)) for window in done for key, a in self.open.pop(window).items()]
        for key in list(self.sessions):
            finished = [s for s in self.sessions[key] if mark is None or s[1] <= mark]
            if finished:
                out.extend([(key, Window(s[0], s[1]), result(s[2])) for s in sorted(finished, key=lambda s: (s[0], s[1]))])
                self._keep_sessions(key, [s for s in self.sessions[key] if s not in finished])
        if mark is None:
            self._touched.forget()
        if out:
            self.send_by(0, out, time)

    def _send_columns(self, results: Any, time: Timestamp) -> None:
        if isinstance(results, pa.RecordBatch):
            for at in range(0, results.num_rows, SENT_ROWS_MAX):
                self.send_by(0, results.slice(at, SENT_ROWS_MAX), time)
        elif results:
            self.send_by(0, results, time)
