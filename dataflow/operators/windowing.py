"""Event-time windows. Senders assign windows and combine; the vertex merges, and fires what the watermark has passed.

Port 0 takes ``(key, (window, accumulator))`` pairs, port 1 the largest event time of each batch, broadcast. When epoch e is complete,
the watermark is the largest event time of the epochs up to e, over all replicas, less ``max_delay``: a function of data and epochs only.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.columnar import to_rows
from rayad.dataflow.elements import Element
from rayad.dataflow.graph import KeySelector
from rayad.dataflow.operators.aggregates import Aggregator, Count, Several
from rayad.dataflow.operators.keyed import ValueSelector, group, may_overflow, numeric_column, require_columns, require_hashable
from rayad.dataflow.vertex import EndVertex
from rayad.dataflow.windows import Session, Sliding, Tumbling, Window
from rayad.progress import DataflowError, Timestamp


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where a record's event time is, and how late a record may come."""

    selector: ValueSelector
    max_delay: Any


@dataclass(slots=True)
class AssignWindows(Element):
    """``(key, (window, accumulator))``: combined per key and window within the batch (sessions: one per record)."""

    key: KeySelector
    value: ValueSelector
    aggregator: Aggregator
    times: ValueSelector
    windows: Any

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch):
            out = self._columnar(batch)
            if out is not None:
                return out
        rows = to_rows(batch)
        try:
            return self._sessions(rows) if isinstance(self.windows, Session) else self._windows(rows)
        except TypeError:
            key = self.key.row_key()
            for row in rows:
                require_hashable(key(row))
            raise

    def _selectors(self) -> tuple[Any, Any, Any]:
        value = _none if isinstance(self.aggregator, Count) else self.value.row_value()
        return self.key.row_key(), value, self.times.row_value()

    def _sessions(self, rows: list[Any]) -> list[Any]:
        key, value, time_of = self._selectors()
        gap, create = self.windows.gap, self.aggregator.create
        out = []
        for row in rows:
            time = event_time(time_of(row), row)
            out.append((key(row), (Window(time, time + gap), create(value(row)))))
        return out

    def _windows(self, rows: list[Any]) -> list[Any]:
        key, value, time_of = self._selectors()
        create, add, assign = self.aggregator.create, self.aggregator.add, self.windows.assign
        combined: dict[Any, Any] = {}
        memo: dict[Any, list[Window]] = {}
        for row in rows:
            time = event_time(time_of(row), row)
            windows = memo.get(time)
            if windows is None:
                windows = memo[time] = assign(time)
            for window in windows:
                at = (key(row), window)
                combined[at] = add(combined[at], value(row)) if at in combined else create(value(row))
        return [(k, (window, accumulator)) for (k, window), accumulator in combined.items()]

    def _columnar(self, batch: pa.RecordBatch) -> Any:
        """Group by key and window in Arrow; Python sees one object per group. None where that does not apply."""
        if not (self.key.columns and self.times.column and isinstance(self.windows, Tumbling) and self.aggregator.partials):
            return None
        names = list(self.key.columns)
        require_columns(batch, (*names, self.times.column))
        columns = {f"key{i}": batch.column(name) for i, name in enumerate(names)}
        wanted: list[Any] = [([], "count_all")]
        if not isinstance(self.aggregator, Count):
            column = None if isinstance(self.aggregator, Several) else numeric_column(batch, self.value, (*names, self.times.column))
            if column is None or may_overflow(batch.column(column)):
                return None
            columns["value"] = batch.column(column)
            wanted = [("value", function) for function, _ in self.aggregator.partials]
        starts = tumbling_starts(batch.column(self.times.column), self.windows)
        if starts is None:
            return None
        keys = [*(name for name in columns if name != "value"), "start"]
        out = group(pa.table({**columns, "start": starts}), keys, wanted, [function for _, function in wanted])
        lists = [column.to_pylist() for column in out.columns]
        found = lists[0] if len(names) == 1 else zip(*lists[: len(names)], strict=True)
        starting, size = lists[len(names)], self.windows.size
        values = map(self.aggregator.accumulator, zip(*lists[len(names) + 1 :], strict=True))
        return [(k, (Window(s, s + size), v)) for k, s, v in zip(found, starting, values, strict=True)]


def _none(row: Any) -> None:
    return None


def event_time(time: Any, row: Any) -> Any:
    """A checked event time. Datetimes with a time zone are brought to UTC: windows are stretches of real time, also where clocks "
    "are changed."""
    if time is None or time != time:
        raise DataflowError(f"the event time of {row!r:.80} is {time!r}: every record needs one; filter such records out first")
    return _utc(time)


def _utc(time: Any) -> Any:
    return time.astimezone(dt.UTC) if isinstance(time, dt.datetime) and time.tzinfo is not None else time


def tumbling_starts(times: pa.Array, windows: Tumbling) -> pa.Array | None:
    """Window starts of a column of event times, vectorised; None where the types do not allow it."""
    if times.null_count:
        raise DataflowError(f"{times.null_count} event times are null: every record needs one; filter such records out first")
    aligned = isinstance(windows.offset, (dt.timedelta, type(None)))
    if pa.types.is_timestamp(times.type) and isinstance(windows.size, dt.timedelta) and aligned:
        units = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[times.type.unit]
        micros = units // 1_000 if per_second == 1_000_000_000 else units * (1_000_000 // per_second)
        size = windows.size // dt.timedelta(microseconds=1)
        offset = (windows.offset or dt.timedelta(0)) // dt.timedelta(microseconds=1)
        return pa.array((micros - offset) // size * size + offset).cast(pa.timestamp("us", tz="UTC" if times.type.tz else None))
    if pa.types.is_integer(times.type) and isinstance(windows.size, int) and isinstance(windows.offset, (int, type(None))):
        values = times.to_numpy(zero_copy_only=False).astype(np.int64)
        offset = windows.offset or 0
        return pa.array((values - offset) // windows.size * windows.size + offset)
    return None


@dataclass(slots=True)
class LargestTime(Element):
    """The largest event time of a batch, as a batch of one."""

    times: ValueSelector

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch) and self.times.column:
            require_columns(batch, (self.times.column,))
            return [_utc(pc.max(batch.column(self.times.column)).as_py())] if batch.num_rows else []
        rows = to_rows(batch)
        return [_utc(max(map(self.times.row_value(), rows)))] if rows else []


class EventWindows(EndVertex):
    """Fires ``(key, window, value)`` when the watermark passes a window's end; records for windows that have fired go to output port 1."""

    sequential = True

    def __init__(self, aggregator: Aggregator, windows: Tumbling | Sliding | Session, max_delay: Any) -> None:
        self.aggregator = aggregator
        self.windows = windows
        self.max_delay = max_delay
        self.pending: dict[Timestamp, list[Any]] = {}
        self.largest: dict[Timestamp, Any] = {}
        self.open: dict[Window, dict[Any, Any]] = {}
        self.sessions: dict[Any, list[list[Any]]] = {}
        self.watermark: Any = None

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if time not in self.pending and time not in self.largest:
            self.notify_at(time)
        if edge == 0:
            self.pending.setdefault(time, []).extend(to_rows(batch))
        else:
            seen = max(to_rows(batch))
            before = self.largest.get(time)
            self.largest[time] = seen if before is None or seen > before else before

    def on_notify(self, time: Timestamp) -> None:
        late: list[Any] = []
        for key, (window, accumulator) in self.pending.pop(time, ()):
            if self.watermark is not None and window.end <= self.watermark:
                late.append((key, window, self.aggregator.result(accumulator)))
            elif isinstance(self.windows, Session):
                self._into_session(key, window, accumulator)
            else:
                of_window = self.open.setdefault(window, {})
                of_window[key] = self.aggregator.merge(of_window[key], accumulator) if key in of_window else accumulator
        if late:
            self.send_by(1, late, time)
        largest = self.largest.pop(time, None)
        if largest is not None:
            mark = largest if self.max_delay is None else largest - self.max_delay
            if self.watermark is None or mark > self.watermark:
                self.watermark = mark
                self._fire(time, mark)

    def on_end(self, time: Timestamp) -> None:
        self._fire(time, None)

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

    def _fire(self, time: Timestamp, mark: Any) -> None:
        """Emit and forget the windows that end at or before ``mark`` (None: all)."""
        result = self.aggregator.result
        done = sorted(window for window in self.open if mark is None or window.end <= mark)
        out = [(key, window, result(a)) for window in done for key, a in self.open.pop(window).items()]
        for key in list(self.sessions):
            finished = [s for s in self.sessions[key] if mark is None or s[1] <= mark]
            if finished:
                out.extend((key, Window(s[0], s[1]), result(s[2])) for s in sorted(finished, key=lambda s: (s[0], s[1])))
                rest = [s for s in self.sessions[key] if s not in finished]
                if rest:
                    self.sessions[key] = rest
                else:
                    del self.sessions[key]
        self.send_by(0, out, time)
