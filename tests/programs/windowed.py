"""Programs with windows: over epochs, and over event time with watermarks, late records and the flush at the end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

import rayad as rd
from tests.programs import model as m
from tests.programs.program import Expected, Program

# (key, event time, value); epoch 2 brings records for windows that the watermark has passed by then.
EVENTS: list[list[tuple[str, int, int]]] = [
    [("a", 1, 1), ("b", 3, 2), ("a", 9, 3), ("a", 4, 4)],
    [("a", 12, 5), ("b", 21, 6), ("b", 22, 7)],
    [("a", 2, 8), ("b", 14, 9), ("a", 30, 10), ("c", 19, 11)],
    [],
    [("c", 33, 12), ("a", 34, 13), ("a", 41, 14)],
]

Assign = Callable[[Any], list[rd.Window]]


def assigner(windows: Any) -> Assign:
    """All windows that hold a time, by looking at every window there is."""

    def assign(time: Any) -> list[rd.Window]:
        slide = getattr(windows, "slide", windows.size)
        return [
            rd.Window(start, start + windows.size)
            for start in range(-100, 101)
            if start % slide == 0 and start <= time < start + windows.size
        ]

    return assign


class BoundAhead:
    """The watermark of a stream, or of a part, with a bound ahead: record by record."""

    def __init__(self, delay: int, ahead: int) -> None:
        self.delay, self.ahead = delay, ahead
        self.largest: int | None = None
        self.doubted: tuple[int, int] | None = None

    @property
    def watermark(self) -> int | None:
        return None if self.largest is None else self.largest - self.delay

    def epoch(self, times: list[int]) -> None:
        times = sorted(time for time in times if self.watermark is None or time > self.watermark)
        if not times:
            return
        if self.doubted is not None and times[0] >= self.doubted[0]:
            self.largest = self.doubted[1] if self.largest is None else max(self.largest, self.doubted[1])
        self.doubted = None
        for n, time in enumerate(times):
            if self.largest is None or time - self.largest > self.ahead:
                if n == 0:
                    last = time
                    for following in times:
                        last = following if following - last <= self.ahead else last
                    self.doubted = (time, last)
                return
            self.largest = max(self.largest, time)


def event_windows(
    epochs: list[list[Any]],
    windows: Any,
    result: Callable[[list[Any]], Any],
    delay: Any,
    assign: Assign,
    end: int | None = None,
    *,
    lateness: Any = None,
    early: bool = False,
    ahead: int | None = None,
    marks: list[Any] | None = None,
) -> tuple[m.Timed, m.Timed]:
    """The model: ``(results, late)``. Records are ``(key, time, value)``, and so are those that are late. What is open at the end comes in
    the epoch ``end`` of the input, by default the last of these that has records. ``marks``: the watermark after each epoch, of a stream
    that is several."""
    kept: dict[Any, list[Any]] = {}
    mark: Any = None
    out: m.Timed = []
    late: m.Timed = []
    last = 0
    bounded = None if ahead is None else BoundAhead(delay, ahead)

    def has_passed(window: rd.Window, watermark: Any) -> bool:
        return watermark is not None and window.end <= watermark

    def is_over(window: rd.Window) -> bool:
        return has_passed(window, mark if mark is None or lateness is None else mark - lateness)

    for epoch, events in enumerate(epochs):
        if not events:
            continue
        last, touched = epoch, set()
        for key, time, value in events:
            for window in assign(time):
                if is_over(window):
                    late.append((rd.Timestamp(epoch), (key, window, (key, time, value))))
                else:
                    kept.setdefault((key, window), []).append(value)
                    touched.add((key, window))
        times = [time for _, time, _ in events]
        before = mark
        if marks is not None:
            mark = marks[epoch]
        elif bounded is None:
            mark = max(times) - delay if mark is None else max(mark, max(times) - delay)
        else:
            bounded.epoch(times)
            mark = bounded.watermark
        for at in list(kept):
            passed = has_passed(at[1], before)
            if (at in touched) if early or passed else has_passed(at[1], mark):
                out.append((rd.Timestamp(epoch), (*at, result(kept[at]))))
            if is_over(at[1]):
                del kept[at]
    last = last if end is None else end
    left = [] if early else [at for at in kept if not has_passed(at[1], mark)]
    return out + [(rd.Timestamp(last), (*at, result(kept[at]))) for at in left], late


def sessions(
    epochs: list[list[Any]], gap: int, result: Callable[[list[Any]], Any], delay: int = 0, end: int | None = None
) -> tuple[m.Timed, m.Timed]:
    """The model of session windows: ``(results, late)``, as :func:`event_windows`. The records of an epoch and the sessions that are open
    go together where they touch; what has ended then, by the watermark before the epoch, is late."""
    kept: dict[Any, list[tuple[int, int, list[Any]]]] = {}
    mark: Any = None
    out: m.Timed = []
    late: m.Timed = []
    last = 0
    for epoch, events in enumerate(epochs):
        if not events:
            continue
        last = epoch
        for key in {key for key, _, _ in events}:
            records = [(time, time + gap, [(key, time, value)]) for of, time, value in events if of == key]
            together: list[tuple[int, int, list[Any]]] = []
            for start, until, some in sorted([*kept.get(key, []), *records], key=lambda one: one[:2]):
                if together and start <= together[-1][1]:
                    before, reach, others = together.pop()
                    start, until, some = before, max(reach, until), [*others, *some]
                together.append((start, until, some))
            over = [one for one in together if mark is not None and one[1] <= mark]
            late += [(rd.Timestamp(epoch), (k, rd.Window(t, t + gap), (k, t, v))) for _, _, some in over for k, t, v in some]
            kept[key] = [one for one in together if one not in over]
        newest = max(time for _, time, _ in events) - delay
        mark = newest if mark is None else max(mark, newest)
        for key, some in kept.items():
            out += [(rd.Timestamp(epoch), fired(key, one, result)) for one in some if one[1] <= mark]
            kept[key] = [one for one in some if one[1] > mark]
    at = rd.Timestamp(last if end is None else end)
    return out + [(at, fired(key, one, result)) for key, some in kept.items() for one in some], late


def fired(key: Any, session: tuple[int, int, list[Any]], result: Callable[[list[Any]], Any]) -> Any:
    """``(key, window, value)``."""
    start, end, records = session
    return key, rd.Window(start, end), result([value for _, _, value in records])


def per_epoch(flow: rd.Dataflow, *, columns: bool) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
    rows = [[{"k": k, "t": t, "v": v} for k, t, v in events] for events in EVENTS]
    stream = flow.from_epochs([pa.RecordBatch.from_pylist(r, schema=schema) for r in rows] if columns else rows, parts=2, batch_rows=2)
    windowed = stream.key_by("k").window(rd.windows.per_epoch())
    windowed.count().collect("count")
    windowed.sum("v").collect("sum")
    windowed.aggregate({"n": "count", "v": ("max", "v")}).collect("several")
    windowed.top_k(1, "v").collect("top")
    stream.window(rd.windows.per_epoch()).count().collect("all")


def per_epoch_expected() -> Expected:
    stream = m.epochs(EVENTS)
    return {
        "count": m.per_epoch(stream, lambda r: r[0], len),
        "sum": m.per_epoch(stream, lambda r: r[0], lambda rs: sum(r[2] for r in rs)),
        "several": m.per_epoch(stream, lambda r: r[0], lambda rs: {"n": len(rs), "v": max(r[2] for r in rs)}),
        "top": m.per_epoch(stream, lambda r: r[0], lambda rs: [max(r[2] for r in rs)]),
        "all": [(t, r[1:]) for t, r in m.per_epoch(stream, lambda r: 0, len)],
    }


def on_event_time(flow: rd.Dataflow, *, windows: Any, delay: int, columns: bool) -> None:
    rows = [[{"k": k, "t": t, "v": v} for k, t, v in events] for events in EVENTS]
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
    source = flow.from_epochs([pa.RecordBatch.from_pylist(r, schema=schema) for r in rows] if columns else rows, parts=2, batch_rows=1)
    stream = source.assign_timestamps("t", max_delay=delay)
    counted = stream.key_by("k").window(windows).count(name="counted")
    counted.collect("count")
    counted.late.map(lambda r: (r[0], r[1], tuple(r[2].values()))).collect("late")
    stream.key_by("k").window(windows).sum("v").collect("sum")
    stream.key_by("k").window(windows).mean("v").collect("mean")
    stream.filter(lambda row: row["v"] > 0).window(windows).max("v").collect("all")


def on_event_time_expected(*, windows: Any, delay: int) -> Expected:
    assign = assigner(windows)
    count, late = event_windows(EVENTS, windows, len, delay, assign)
    everything = [[("", t, v) for _, t, v in events] for events in EVENTS]
    return {
        "count": count,
        "late": late,
        "sum": event_windows(EVENTS, windows, sum, delay, assign)[0],
        "mean": event_windows(EVENTS, windows, lambda vs: sum(vs) / len(vs), delay, assign)[0],
        "all": [(t, r[1:]) for t, r in event_windows(everything, windows, max, delay, assign)[0]],
    }


SESSION_EVENTS = [
    [("a", 1, 1), ("b", 2, 2), ("a", 4, 3)],
    [("a", 7, 4), ("b", 8, 5), ("c", 6, 6)],
    [("c", 20, 7), ("a", 15, 8)],
    [("c", 22, 9), ("c", 25, 10), ("b", 40, 11)],
]


def session(flow: rd.Dataflow, *, columns: bool) -> None:
    if columns:
        epochs = [pa.RecordBatch.from_pylist([{"k": k, "t": t, "v": v} for k, t, v in events]) for events in SESSION_EVENTS]
        windowed = flow.from_epochs(epochs, parts=2, batch_rows=1).assign_timestamps("t").key_by("k").window(rd.windows.session(3))
        windowed.sum("v").collect("sum")
        windowed.max("v").collect("max")
        return
    stream = flow.from_epochs(SESSION_EVENTS, parts=2, batch_rows=1).assign_timestamps(lambda r: r[1])
    stream.key_by(lambda r: r[0]).window(rd.windows.session(3)).sum(lambda r: r[2]).collect("sum")
    stream.key_by(lambda r: r[0]).window(rd.windows.session(3)).reduce(max, lambda r: r[2]).collect("max")


def session_expected() -> Expected:
    return {"sum": sessions(SESSION_EVENTS, 3, sum)[0], "max": sessions(SESSION_EVENTS, 3, max)[0]}


# -- datetimes ----------------------------------------------------------------------------------------------------------------

ZONE = ZoneInfo("America/New_York")
BEGIN = dt.datetime(2024, 3, 9, 20, tzinfo=dt.UTC)  # clocks change within the next day
MOMENTS = [[("a", BEGIN + dt.timedelta(hours=5 * i), i) for i in range(e, e + 6)] for e in range(0, 18, 6)]
DAY = dt.timedelta(days=1)


def datetimes(flow: rd.Dataflow, *, columns: bool, zone: bool) -> None:
    tz = "America/New_York" if zone else None
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("ms", tz)), ("v", pa.int64())])
    rows = [[{"k": k, "t": t.astimezone(ZONE) if zone else t.replace(tzinfo=None), "v": v} for k, t, v in events] for events in MOMENTS]
    source = flow.from_epochs([pa.RecordBatch.from_pylist(r, schema=schema) for r in rows] if columns else rows, batch_rows=2)
    stream = source.assign_timestamps("t", max_delay=dt.timedelta(hours=1)).key_by("k")
    stream.window(rd.windows.tumbling(DAY)).sum("v").map(_plain).collect("days")
    stream.window(rd.windows.tumbling(DAY, dt.timedelta(hours=5))).sum("v").map(_plain).collect("shifted")
    stream.window(rd.windows.sliding(DAY, dt.timedelta(hours=12))).sum("v").map(_plain).collect("sliding")
    stream.window(rd.windows.session(dt.timedelta(hours=4))).count().map(_plain).collect("sessions")


def _plain(record: Any) -> Any:
    """Window bounds as naive UTC datetimes: which class of time zone they carry does not matter."""
    key, window, value = record
    bounds = [b.to_pydatetime() if hasattr(b, "to_pydatetime") else b for b in window]
    return key, tuple((b.astimezone(dt.UTC) if b.tzinfo else b).replace(tzinfo=None) for b in bounds), value


def datetimes_expected() -> Expected:
    def starting(size: dt.timedelta, slide: dt.timedelta, offset: dt.timedelta) -> Assign:
        first = dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + offset
        return lambda time: [rd.Window(s, s + size) for i in range(200) if (s := first + i * slide) <= time < s + size]

    hour = dt.timedelta(hours=1)
    out = {
        name: event_windows(MOMENTS, None, sum, hour, starting(DAY, slide, offset))[0]
        for name, slide, offset in (("days", DAY, 0 * hour), ("shifted", DAY, 5 * hour), ("sliding", 12 * hour, 0 * hour))
    }
    alone = [(time, rd.Window(time, time + 4 * hour)) for events in MOMENTS for _, time, _ in events]
    marks = [max(t for _, t, _ in events) - hour for events in MOMENTS]
    out["sessions"] = [
        (rd.Timestamp(next((e for e, mark in enumerate(marks) if window.end <= mark), len(marks) - 1)), ("a", window, 1))
        for _, window in alone
    ]
    return {name: m.mapped(timed, _plain) for name, timed in out.items()}


# -- updates -------------------------------------------------------------------------------------------------------------------

# One date is wrong; epoch 4 and the last one bring late records.
AHEAD: list[list[tuple[str, int, int]]] = [*EVENTS[:2], [("b", 9000, 99)], *EVENTS[2:], [("b", 44, 15), ("a", 3, 16), ("b", 27, 17)]]
FORMS = ("rows", "columns")
AGAIN: dict[str, Any] = {"lateness": {"lateness": 15}, "early": {"early": True}, "both": {"lateness": 15, "early": True}}


def given_again(flow: rd.Dataflow, *, columns: bool) -> None:
    rows = [[{"k": k, "t": t, "v": v} for k, t, v in events] for events in AHEAD]
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
    source = flow.from_epochs([pa.RecordBatch.from_pylist(r, schema=schema) for r in rows] if columns else rows, parts=2, batch_rows=1)
    stream = source.assign_timestamps("t", max_delay=2, max_ahead=50)
    for name, how in AGAIN.items():
        sums = stream.key_by("k").window(rd.windows.sliding(10, 5), **how).sum("v", name=f"{name}-sums")
        sums.collect(name)
        sums.late.map(lambda r: (r[0], r[1], tuple(r[2].values()))).collect(f"{name}-late")


def given_again_expected() -> Expected:
    windows = rd.windows.sliding(10, 5)
    out: Expected = {}
    for name, how in AGAIN.items():
        found = event_windows(AHEAD, windows, sum, 2, windows.assign, ahead=50, **how)
        out[name], out[f"{name}-late"] = found
    return out


PROGRAMS = [
    *(
        Program(f"given-again-{form}", partial(given_again, columns=form == "columns"), given_again_expected)
        for form in ("rows", "columns")
    ),
    *(Program(f"per-epoch-{form}", partial(per_epoch, columns=form == "columns"), per_epoch_expected) for form in ("rows", "columns")),
    *(
        Program(
            f"{name}-{form}",
            partial(on_event_time, windows=windows, delay=delay, columns=form == "columns"),
            partial(on_event_time_expected, windows=windows, delay=delay),
        )
        for name, windows, delay in (
            ("tumbling", rd.windows.tumbling(10), 0),
            ("tumbling-delayed", rd.windows.tumbling(10), 8),
            ("sliding", rd.windows.sliding(10, 5), 2),
        )
        for form in ("rows", "columns")
    ),
    *(Program(f"session-{form}", partial(session, columns=form == "columns"), session_expected) for form in ("rows", "columns")),
    *(
        Program(f"datetimes-{form}-{zone}", partial(datetimes, columns=form == "columns", zone=zone == "zone"), datetimes_expected)
        for form in ("rows", "columns")
        for zone in ("naive", "zone")
    ),
]
