"""The parts of random programs: each operator with its meaning in plain Python.

A program is data: sources, and steps that make a stream from earlier ones. Between steps records are small integers, so any stream can
be the input of any step; inside a step keys and values have a type of the step's own. `meaning` does not depend on batches, replicas or
frontiers.
"""

from __future__ import annotations

import datetime as dt
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

import rayad as rd
from tests.programs import model as m
from tests.programs.relations import AsOfRule, after_epochs, joined_as_of, joined_within
from tests.programs.windowed import event_windows, sessions

MODULUS = 97
RECORDS_MAX = 300
DEPTH_MAX = 2


@dataclass(frozen=True)
class Step:
    """``kind`` of the streams ``inputs``; ``number`` and ``type`` are parameters; ``body`` belongs to loops."""

    kind: str
    inputs: tuple[int, ...]
    number: int = 1
    type: str = "int"
    body: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Program:
    """``sources``: kind and epochs of records; stream ``len(sources) + i`` is made by step i. ``exchange``: nothing is fused."""

    sources: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    steps: tuple[Step, ...]
    exchange: bool = False


class TooLarge(Exception):
    """The program makes more records than a run should take."""


# -- types -----------------------------------------------------------------------------------------------------------------
DAY = dt.date(2024, 2, 20)
TYPES: dict[str, tuple[Callable[[int], Any], pa.DataType | None]] = {
    "int": (lambda n: n - 3, pa.int64()),
    "float": (lambda n: n / 4, pa.float64()),
    "str": (lambda n: f"é{n}", pa.string()),
    "bytes": (lambda n: bytes([n, 0]), pa.binary()),
    "decimal": (lambda n: Decimal(n) / 8, pa.decimal128(12, 3)),
    "date": (lambda n: DAY + dt.timedelta(days=n), pa.date32()),
    "datetime": (lambda n: dt.datetime(2024, 2, 28, 23, 59, 58, 999_999) + dt.timedelta(microseconds=n), pa.timestamp("us")),
    "bool": (lambda n: n % 2 == 0, pa.bool_()),
    "null": (lambda n: None if n % 3 == 0 else n, pa.int64()),
    "tuple": (lambda n: (n % 2, f"{n}"), None),
}
"""The form of a small integer in each type, and its Arrow type."""
SUMMED = ("int", "float", "decimal")
ORDERED = ("int", "float", "str", "decimal", "date", "datetime", "tuple")


def typed(kind: str, modulus: int = MODULUS) -> Callable[[int], Any]:
    """The function ``n -> n % modulus`` with results in a type."""
    write = TYPES[kind][0]
    return lambda record: write(record % modulus)


def flat(record: Any) -> int:
    """Any operator's record as a small integer again; equal records give equal ones."""
    return zlib.crc32(_plain(record).encode()) % MODULUS


def _plain(value: Any) -> str:
    if isinstance(value, rd.Window):
        value = ("window", value.start, value.end)
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_plain, value))})"
    if isinstance(value, dict):
        return _plain(list(value.items()))
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return str(Fraction(value))
    return repr(value)


# -- vertices ------------------------------------------------------------------------------------------------------------------
class PerTime(rd.Vertex):
    """Counts the records of each time."""

    def __init__(self) -> None:
        self.counts: dict[rd.Timestamp, int] = {}

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time not in self.counts:
            self.counts[time] = 0
            self.notify_at(time)
        self.counts[time] += len(batch)

    def on_notify(self, time: rd.Timestamp) -> None:
        self.send_by(0, [self.counts.pop(time)], time)


class Halves(rd.Vertex):
    """In a loop: emits each record, and sends half of it round."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, [record // 2 for record in batch if record > 0], time)
        self.send_by(1, batch, time)

    def give(self, groups: frozenset[int]) -> None:
        """There is no state."""

    def take(self, state: Any) -> None:
        """There is no state."""


REENTRANT = {bound: type(f"Halves{bound}", (Halves,), {"reentrancy": bound, "__module__": __name__}) for bound in range(6)}


def _halved(record: int) -> list[int]:
    out = [record]
    while out[-1] > 0:
        out.append(out[-1] // 2)
    return out


# -- operators: how each is built, and its meaning ---------------------------------------------------------------------------------
Build = Callable[[Step, Sequence[rd.Stream]], rd.Stream]
Mean = Callable[[Step, Sequence[m.Timed]], m.Timed]


def _key(made: Step) -> Callable[[int], Any]:
    return typed(made.type, made.number + 1)


def _value(made: Step, among: Sequence[str]) -> Callable[[int], Any]:
    return typed(among[made.number % len(among)])


def _updates(method: str, among: Sequence[str], total: Callable[[list[Any]], Any]) -> tuple[Build, Mean]:
    """A running total of typed values by typed key."""

    def build(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
        keyed = streams[0].key_by(_key(made))
        updates = getattr(keyed, method)() if method == "count" else getattr(keyed, method)(_value(made, among))
        return updates.as_records().map(flat)  # type: ignore[no-any-return]

    def mean(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
        return m.mapped(m.collected(streams[0], _key(made), _value(made, among), total), flat)

    return build, mean


def _in_columns(method: str, total: Callable[[list[int]], Any]) -> tuple[Build, Mean]:
    """The same over record batches with a key column of the step's type."""

    def build(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
        key, kind = _key(made), TYPES[made.type][1]
        if kind is None:
            key, kind = typed("int", made.number + 1), pa.int64()
        schema = pa.schema([("k", kind), ("v", pa.int64())])

        def columns(batch: Any) -> pa.RecordBatch:
            return pa.RecordBatch.from_pylist([{"k": key(record), "v": record} for record in batch], schema=schema)

        keyed = streams[0].map_batches(columns).key_by("k")
        updates = keyed.count() if method == "count" else getattr(keyed, method)("v")
        return updates.as_records().map(flat)  # type: ignore[no-any-return]

    def mean(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
        key = _key(made) if TYPES[made.type][1] is not None else typed("int", made.number + 1)
        return m.mapped(m.collected(streams[0], key, lambda record: record, total), flat)

    return build, mean


def _windows(made: Step) -> tuple[Any, Callable[[int], list[rd.Window]]]:
    size = made.number + 2
    slide = size if made.number % 2 else 2
    windows = rd.windows.tumbling(size) if slide == size else rd.windows.sliding(size, slide)
    starts = range(-(MODULUS // slide + 2) * slide, MODULUS + size, slide)
    return windows, lambda time: [rd.Window(start, start + size) for start in starts if start <= time < start + size]


def _events(made: Step, stream: m.Timed) -> list[list[tuple[Any, int, int]]]:
    key = _key(made)
    epochs: list[list[tuple[Any, int, int]]] = [[] for _ in range(1 + max((time.epoch for time, _ in stream), default=-1))]
    for time, record in stream:
        epochs[time.epoch].append((key(record), record, record))
    return epochs


def _build_windows(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    stamped = streams[0].assign_timestamps(lambda record: record, max_delay=10 * made.number)
    return _and_late(stamped.key_by(_key(made)).window(_windows(made)[0]).sum(lambda record: record))


def _given_again(made: Step) -> dict[str, Any]:
    """Which of lateness and early results, or both."""
    return {"lateness": None if made.number % 3 == 0 else 8 * made.number, "early": made.number % 3 != 1}


def _build_updating(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    stamped = streams[0].assign_timestamps(lambda record: record, max_delay=3 * made.number)
    sums = stamped.key_by(_key(made)).window(_windows(made)[0], **_given_again(made)).sum(lambda record: record)
    return sums.as_records().map(flat).union(sums.late.map(flat))


def _mean_updating(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    windows, assign = _windows(made)
    events = _events(made, streams[0])
    return _flat_and_late(*event_windows(events, windows, sum, 3 * made.number, assign, end_of(streams), **_given_again(made)))


def _and_late(results: Any) -> rd.Stream:
    return results.map(flat).union(results.late.map(flat))  # type: ignore[no-any-return]


def _flat_and_late(results: m.Timed, late: m.Timed) -> m.Timed:
    return m.mapped(results, flat) + m.mapped(late, lambda r: flat((r[0], r[1], r[2][2])))


def _mean_windows(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    windows, assign = _windows(made)
    return _flat_and_late(*event_windows(_events(made, streams[0]), windows, sum, 10 * made.number, assign, end_of(streams)))


def _build_sessions(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    stamped = streams[0].assign_timestamps(lambda record: record, max_delay=3 * made.number)
    return _and_late(stamped.key_by(_key(made)).window(rd.windows.session(made.number)).count())


def _mean_sessions(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    return _flat_and_late(*sessions(_events(made, streams[0]), made.number, len, 3 * made.number, end_of(streams)))


def _scored(record: int) -> int:
    return record % 7


def _best(results: list[int], of: Callable[..., Any]) -> list[int]:
    score = of(map(_scored, results))
    return [record for record in results if _scored(record) == score]


def _each(stream: m.Timed) -> m.Timed:
    """``(key, window, [records])`` as a record for each."""
    return m.flat_mapped(stream, lambda found: [flat((*found[:-1], record)) for record in found[-1]])


def _best_per_epoch(method: str, of: Callable[..., Any]) -> tuple[Build, Mean]:
    """The records with the largest or smallest score, of each epoch."""

    def build(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
        windowed = streams[0].key_by(_key(made)).window(rd.windows.per_epoch())
        return getattr(windowed, method)(_scored).map(flat)  # type: ignore[no-any-return]

    return build, lambda made, streams: _each(m.per_epoch(streams[0], _key(made), lambda found: _best(found, of)))


def _best_of_windows(method: str, of: Callable[..., Any]) -> tuple[Build, Mean]:
    """The same for windows over event time, with late records."""

    def build(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
        stamped = streams[0].assign_timestamps(lambda record: record, max_delay=10 * made.number)
        best = getattr(stamped.key_by(_key(made)).window(_windows(made)[0]), method)(_scored)
        return _and_late(best)

    def mean(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
        windows, assign = _windows(made)
        events, end = _events(made, streams[0]), end_of(streams)
        results, late = event_windows(events, windows, lambda found: _best(found, of), 10 * made.number, assign, end)
        return _each(results) + m.mapped(late, lambda r: flat((r[0], r[1], r[2][2])))

    return build, mean


def _build_window_join(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    timed = [stream.assign_timestamps(lambda record: record, max_delay=MODULUS).key_by(_key(made)) for stream in streams]
    joined = timed[0].window(_windows(made)[0]).join(timed[1])  # nothing is late, all fire at the end
    return joined.map(flat).filter(lambda record: record % 3 == 0)


def _mean_window_join(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    key, assign = _key(made), _windows(made)[1]
    pairs = [
        flat((key(left), window, (left, right)))
        for _, left in streams[0]
        for _, right in streams[1]
        if key(left) is not None and key(left) == key(right)
        for window in assign(left)
        if window in assign(right)
    ]
    return [(rd.Timestamp(end_of(streams)), record) for record in pairs if record % 3 == 0]


def _in_time(made: Step, streams: Sequence[rd.Stream]) -> list[Any]:
    return [stream.assign_timestamps(lambda record: record, max_delay=MODULUS).key_by(_key(made)) for stream in streams]  # nothing is late


def _build_interval_join(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    left, right = _in_time(made, streams)
    return left.join(right, within=_within(made)).map(flat)  # type: ignore[no-any-return]


def _within(made: Step) -> Any:
    return rd.between(-made.number, 2 * made.number)


def _mean_interval_join(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    pairs = m.joined(streams[0], streams[1], _key(made), _key(made))
    return m.mapped(m.filtered(pairs, lambda pair: -made.number <= pair[1][1] - pair[1][0] <= 2 * made.number), flat)


DIRECTIONS = ("backward", "forward", "nearest")


def _direction(made: Step) -> dict[str, Any]:
    return {"direction": DIRECTIONS[made.number % 3]}


def _build_asof_join(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    left, right = _in_time(made, streams)
    options = {**_direction(made), "allow_exact_matches": made.number < 4}
    return left.join_asof(right, how="inner", tolerance=3 * made.number, **options).map(flat)  # type: ignore[no-any-return]


def _mean_asof_join(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    """All are answered at the end. An event time is the record itself, so the order of records with one time does not matter."""
    key = _key(made)
    rule = AsOfRule("inner", 3 * made.number, made.number < 4, DIRECTIONS[made.number % 3])
    out = []
    for _, left in streams[0]:
        others = [(time.epoch, {"t": right}) for time, right in streams[1] if key(left) is not None and key(left) == key(right)]
        best = rule.best(left, others)
        if best is not None:
            out.append((rd.Timestamp(end_of(streams)), flat((key(left), (left, best["t"])))))
    return out


def _delays(made: Step) -> tuple[int, int]:
    return 8 * made.number, 4 * made.number


def _idle(made: Step) -> int:
    return 1 + made.number % 3


def _build_idle(join: Callable[[Step, Any, Any], Any]) -> Build:
    """An operator with two sides that may be silent, with what is late."""

    def build(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
        each = zip(streams, _delays(made), strict=True)
        out = join(made, *(s.assign_timestamps(lambda record: record, max_delay=delay, idle_epochs=_idle(made)) for s, delay in each))
        return out.map(flat).union(out.late.map(flat)).filter(lambda record: record % 3 == 0)  # type: ignore[no-any-return]

    return build


def _mean_idle(results: Callable[..., tuple[m.Timed, m.Timed]]) -> Mean:
    """``results`` makes ``(results, late)`` of the step, the epochs of both sides, and what :class:`InTime` takes besides."""

    def mean(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
        key, last = _key(made), end_of(streams)
        sides: list[list[list[Any]]] = [[[] for _ in range(last + 1)] for _ in streams]
        for side, stream in zip(sides, streams, strict=True):
            for time, record in stream:
                side[time.epoch].append({"k": key(record), "t": record})
        found, late = results(made, *sides, idle=_idle(made), last=last)
        return m.filtered(m.mapped(found + late, lambda record: flat(_without_keys(record))), lambda record: record % 3 == 0)

    return mean


def _without_keys(value: Any) -> Any:
    """Records as numbers again."""
    if isinstance(value, dict):
        return value["t"]
    return tuple(map(_without_keys, value)) if type(value) is tuple else value


def _idle_intervals(made: Step, left: Any, right: Any, **ends: Any) -> tuple[m.Timed, m.Timed]:
    return joined_within(left, right, ("k", "k"), (-made.number, 2 * made.number), _delays(made), "full", **ends)


def _idle_asof(made: Step, left: Any, right: Any, **ends: Any) -> tuple[m.Timed, m.Timed]:
    rule = AsOfRule("left", 3 * made.number, direction=DIRECTIONS[made.number % 3])
    return joined_as_of(left, right, ("k", "k"), _delays(made), rule, **ends)


def _idle_window_join(made: Step, left: Any, right: Any, idle: int, last: int) -> tuple[m.Timed, m.Timed]:
    windows, assign = _windows(made)
    sides = [[[(r["k"], r["t"], (at, r["t"])) for r in records] for records in side] for at, side in enumerate((left, right))]
    marks = after_epochs([[[time for _, time, _ in records] for records in side] for side in sides], _delays(made), idle)
    together = [[*a, *b] for a, b in zip(*sides, strict=True)]
    found, late = event_windows(together, windows, list, 0, assign, last, marks=marks)
    pairs = [
        (time, (key, window, (a, b)))
        for time, (key, window, some) in found
        if key is not None
        for a in [value for at, value in some if at == 0]
        for b in [value for at, value in some if at == 1]
    ]
    keyed = [(time, key, window, *value) for time, (key, window, (_, _, value)) in late if key is not None]
    return pairs, [(time, (key, window, (value, None) if at == 0 else (None, value))) for time, key, window, at, value in keyed]


def _idle_windows(made: Step, left: Any, right: Any, idle: int, last: int) -> tuple[m.Timed, m.Timed]:
    windows, assign = _windows(made)
    times = [[[r["t"] for r in records] for records in side] for side in (left, right)]
    together = [[(r["k"], r["t"], r["t"]) for r in (*a, *b)] for a, b in zip(left, right, strict=True)]
    found, late = event_windows(together, windows, sum, 0, assign, last, marks=after_epochs(times, _delays(made), idle))
    return found, [(time, (key, window, value)) for time, (key, window, (_, _, value)) in late]


def _build_several(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    value = _value(made, SUMMED)
    found = streams[0].key_by(_key(made)).aggregate({"n": "count", "sum": ("sum", value), "most": ("max", value)})
    return found.as_records().map(flat)


def _mean_several(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    def several(values: list[Any]) -> dict[str, Any]:
        return {"n": len(values), "sum": sum(values), "most": max(values)}

    return m.mapped(m.collected(streams[0], _key(made), _value(made, SUMMED), several), flat)


def _build_loop(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        made_so_far = [inner]
        for each in made.body:
            made_so_far.append(OPERATORS[each.kind][0](each, [made_so_far[i] for i in each.inputs]))
        return made_so_far[-1].filter(lambda record: record % 2 == 0).map(lambda record: record // 2), made_so_far[-1]

    return streams[0].iterate(body, max_rounds=made.number + 1)


def _mean_loop(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        made_so_far = [inner]
        for each in made.body:
            made_so_far.append(meaning(each, made_so_far))
        return m.mapped(m.filtered(made_so_far[-1], lambda r: r % 2 == 0), lambda r: r // 2), made_so_far[-1]

    return m.iterated(streams[0], body, max_rounds=made.number + 1)


def _build_reentrant(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        again, out = inner.key_by(lambda record: record % 3).vertex(REENTRANT[made.number], outputs=2)
        return again, out

    return streams[0].iterate(body)


def _joined(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    pairs = m.joined(streams[0], streams[1], _key(made), _key(made))
    return m.mapped(m.filtered(pairs, lambda pair: flat(pair) % 3 == 0), flat)


def _numbered(state: int, record: int) -> tuple[int, int]:
    return state + 1, state + 1


def _build_numbered(made: Step, streams: Sequence[rd.Stream]) -> rd.Stream:
    return streams[0].key_by(_key(made)).stateful_map(_numbered, initial=int).map(flat)


def _mean_numbered(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    seen: dict[Any, int] = {}
    out: m.Timed = []
    for time, records in m.by_time(streams[0]):
        for key in map(_key(made), records):
            seen[key] = seen.get(key, 0) + 1
            out.append((time, flat((key, seen[key]))))
    return out


def _counted(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    return m.collected(streams[0], _key(made), lambda r: r, len)


def _mean_changes(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    before: dict[Any, int] = {}
    out: m.Timed = []
    for time, (key, count) in _counted(made, streams):
        out.append((time, flat((key, before.get(key, 0), count))))
        before[key] = count
    return out


def _tables(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    """The table of counts at the end of every few epochs."""
    every = made.number + 1
    counts = [(time.epoch, pair) for time, pair in _counted(made, streams)]
    out: m.Timed = []
    for shown in sorted({epoch - epoch % every + every - 1 for epoch, _ in counts}):
        table = dict(pair for epoch, pair in counts if epoch <= shown)
        out.extend((rd.Timestamp(shown), flat(pair)) for pair in table.items())
    return out


def _table_at_end(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    return [(rd.Timestamp(end_of(streams)), flat(pair)) for pair in dict(pair for _, pair in _counted(made, streams)).items()]


OPERATORS: dict[str, tuple[Build, Mean]] = {
    "same": (lambda made, s: s[0].map(lambda r: r), lambda made, s: s[0]),
    "map": (lambda made, s: s[0].map(lambda r: flat((r, made.number))), lambda made, s: m.mapped(s[0], lambda r: flat((r, made.number)))),
    "filter": (
        lambda made, s: s[0].filter(lambda r: r % (made.number + 1) != 0),
        lambda made, s: m.filtered(s[0], lambda r: r % (made.number + 1) != 0),
    ),
    "flat_map": (lambda made, s: s[0].flat_map(lambda r: [r] * (r % 3)), lambda made, s: m.flat_mapped(s[0], lambda r: [r] * (r % 3))),
    "map_batches": (
        lambda made, s: s[0].map_batches(lambda batch: [r // 2 for r in batch]),
        lambda made, s: m.mapped(s[0], lambda r: r // 2),
    ),
    "rebalance": (lambda made, s: s[0].rebalance().map(flat), lambda made, s: m.mapped(s[0], flat)),
    "broadcast": (lambda made, s: s[0].broadcast().single().map(flat), lambda made, s: m.mapped(s[0], flat)),
    "union": (lambda made, s: s[0].union(s[1]), lambda made, s: s[0] + s[1]),
    "join": (
        lambda made, s: s[0].key_by(_key(made)).join(s[1].key_by(_key(made))).filter(lambda pair: flat(pair) % 3 == 0).map(flat),
        _joined,
    ),
    "broadcast join": (
        lambda made, s: s[0].key_by(_key(made)).join(s[1].key_by(_key(made)), broadcast=True).filter(lambda p: flat(p) % 3 == 0).map(flat),
        _joined,
    ),
    "interval join": (_build_interval_join, _mean_interval_join),
    "as-of join": (_build_asof_join, _mean_asof_join),
    "idle interval join": (
        _build_idle(lambda made, a, b: a.key_by(_key(made)).join(b.key_by(_key(made)), within=_within(made), how="full")),
        _mean_idle(_idle_intervals),
    ),
    "idle as-of join": (
        _build_idle(lambda made, a, b: a.key_by(_key(made)).join_asof(b.key_by(_key(made)), tolerance=3 * made.number, **_direction(made))),
        _mean_idle(_idle_asof),
    ),
    "idle window join": (
        _build_idle(lambda made, a, b: a.key_by(_key(made)).window(_windows(made)[0]).join(b.key_by(_key(made)))),
        _mean_idle(_idle_window_join),
    ),
    "idle windows": (
        _build_idle(lambda made, a, b: a.union(b).key_by(_key(made)).window(_windows(made)[0]).sum(lambda record: record)),
        _mean_idle(_idle_windows),
    ),
    "count": _updates("count", ("int",), len),
    "sum": _updates("sum", SUMMED, sum),
    "min": _updates("min", ORDERED, min),
    "max": _updates("max", ORDERED, max),
    "mean": _updates("mean", ("int",), lambda values: sum(values) / len(values)),
    "reduce": (
        lambda made, s: s[0].key_by(_key(made)).reduce(max).as_records().map(flat),
        lambda made, s: m.mapped(m.collected(s[0], _key(made), lambda r: r, max), flat),
    ),
    "fold": (
        lambda made, s: s[0].key_by(_key(made)).fold(0, lambda total, r: total + r).as_records().map(flat),
        lambda made, s: m.mapped(m.collected(s[0], _key(made), lambda r: r, sum), flat),
    ),
    "top_k": (
        lambda made, s: s[0].key_by(_key(made)).top_k(2).as_records().map(flat),
        lambda made, s: m.mapped(m.collected(s[0], _key(made), lambda r: r, lambda rs: sorted(rs, reverse=True)[:2]), flat),
    ),
    "distinct": (
        lambda made, s: s[0].key_by(_key(made)).distinct().map(flat),
        lambda made, s: m.mapped(m.distinct(s[0], _key(made)), flat),
    ),
    "stateful_map": (_build_numbered, _mean_numbered),
    "changes": (
        lambda made, s: s[0].key_by(_key(made)).count().changes().map(lambda c: flat((c[0], c[1][0] or 0, c[1][1]))),
        _mean_changes,
    ),
    "table": (lambda made, s: s[0].key_by(_key(made)).count().latest().map(flat), _table_at_end),
    "tables": (lambda made, s: s[0].key_by(_key(made)).count().latest(every=made.number + 1).map(flat), _tables),
    "columns count": _in_columns("count", len),
    "columns sum": _in_columns("sum", sum),
    "columns max": _in_columns("max", max),
    "per_epoch": (
        lambda made, s: s[0].key_by(_key(made)).window(rd.windows.per_epoch()).count().map(flat),
        lambda made, s: m.mapped(m.per_epoch(s[0], _key(made), len), flat),
    ),
    "aggregate": (_build_several, _mean_several),
    "max_by": _best_per_epoch("max_by", max),
    "min_by": _best_per_epoch("min_by", min),
    "windows": (_build_windows, _mean_windows),
    "windows max_by": _best_of_windows("max_by", max),
    "windows min_by": _best_of_windows("min_by", min),
    "window join": (_build_window_join, _mean_window_join),
    "sessions": (_build_sessions, _mean_sessions),
    "updating windows": (_build_updating, _mean_updating),
    "vertex": (
        lambda made, s: s[0].key_by(lambda r: 0).vertex(PerTime),
        lambda made, s: [(time, len(records)) for time, records in m.by_time(s[0])],
    ),
    "reentrant": (_build_reentrant, lambda made, s: m.flat_mapped(s[0], _halved)),
    "loop": (_build_loop, _mean_loop),
}
WITH_SILENT_SIDES = ("idle interval join", "idle as-of join", "idle window join", "idle windows")
JOINS_OUTSIDE_LOOPS = ("window join", "interval join", "as-of join", "broadcast join", *WITH_SILENT_SIDES)
OUTSIDE_LOOPS = ("windows", "windows max_by", "windows min_by", "sessions", "updating windows", "table", "tables", *JOINS_OUTSIDE_LOOPS)
TWO_INPUTS = ("union", "join", *JOINS_OUTSIDE_LOOPS)


class Ending(list[Any]):
    """A stream, and the epoch in which the last input before it ends; windows that are still open then fire at that time."""

    def __init__(self, stream: m.Timed, end: int) -> None:
        super().__init__(stream)
        self.end = end


def end_of(streams: Sequence[m.Timed]) -> int:
    """The last epoch of several streams; streams inside loops have none, and do not need it. Tables are shown later than that, perhaps."""
    inputs = [stream.end for stream in streams if isinstance(stream, Ending)]
    return max([*inputs, *(time.epoch for stream in streams for time, _ in stream)], default=0)


def meaning(made: Step, streams: Sequence[m.Timed]) -> m.Timed:
    """The stream that a step makes. Raises TooLarge."""
    given = [streams[i] for i in made.inputs]
    out = OPERATORS[made.kind][1](made, given)
    if len(out) > RECORDS_MAX:
        raise TooLarge
    return Ending(out, max((stream.end for stream in given if isinstance(stream, Ending)), default=0))


def evaluate(program: Program) -> dict[str, m.Timed]:
    """The records of every stream."""
    streams: list[m.Timed] = []
    for kind, epochs in program.sources:
        end = max((epoch for epoch, records in enumerate(epochs) if records and kind != "items"), default=0)
        streams.append(Ending(m.epochs(epochs), end))
    for made in program.steps:
        streams.append(meaning(made, streams))
    return {f"s{i}": stream for i, stream in enumerate(streams)}


def build(program: Program) -> rd.Dataflow:
    """The program as a dataflow; every stream is collected."""
    flow = rd.Dataflow("fuzz")
    streams: list[rd.Stream] = []
    for kind, epochs in program.sources:
        if kind == "columns":
            batches = [pa.record_batch({"n": pa.array(epoch, pa.int64())}) for epoch in epochs]
            streams.append(flow.from_epochs(batches, parts=2, batch_rows=2).map(lambda row: row["n"]))
        elif kind == "live":
            streams.append(flow.input(f"live {len(streams)}"))
        elif kind == "items":
            streams.append(flow.from_items([record for epoch in epochs for record in epoch]))
        else:
            streams.append(flow.from_epochs(epochs, parts=2, batch_rows=2))
    for made in program.steps:
        given = [streams[i].rebalance() if program.exchange else streams[i] for i in made.inputs]
        streams.append(OPERATORS[made.kind][0](made, given))
    for i, stream in enumerate(streams):
        stream.collect(f"s{i}")
    return flow


# -- drawing ---------------------------------------------------------------------------------------------------------------------
def draw_step(draw: random.Random, streams: int, depth: int) -> Step:
    """A step over the last of ``streams`` streams."""
    kinds = [kind for kind in OPERATORS if kind != "same" and not (depth and kind in OUTSIDE_LOOPS)]
    kind = draw.choice([*kinds, "union", "join", *["loop"] * 3])
    if kind in ("loop", "reentrant") and depth >= DEPTH_MAX:
        kind = "map"
    inputs = tuple(draw.randint(max(0, streams - 3), streams - 1) for _ in range(2 if kind in TWO_INPUTS else 1))
    body: list[Step] = []
    for _ in range(draw.randint(0, 3) if kind == "loop" else 0):
        body.append(draw_step(draw, 1 + len(body), depth + 1))
    return Step(kind, inputs, draw.randint(1, 5), draw.choice(list(TYPES)), tuple(body))


def draw_program(draw: random.Random) -> tuple[Program, dict[str, m.Timed]]:
    """A program that is not too large, and its right results."""
    while True:
        sources = []
        for _ in range(2):
            kind = draw.choice(("rows", "rows", "columns", "items", "live"))
            most = 1 if kind == "items" else draw.choice((4, 4, 10))  # epochs in which a side may be silent
            epochs = tuple(tuple(draw.randrange(MODULUS) for _ in range(draw.randint(0, 5))) for _ in range(draw.randint(1, most)))
            sources.append((kind, epochs))
        steps: list[Step] = []
        for _ in range(draw.randint(1, 5)):
            steps.append(draw_step(draw, 2 + len(steps), 0))
        program = Program(tuple(sources), tuple(steps), draw.random() < 0.3)
        try:
            return program, evaluate(program)
        except TooLarge:
            continue


def draw_silent_sides(draw: random.Random) -> Program:
    """Two live inputs with few records, so that a side is silent for some epochs, and one operator over both."""
    while True:
        lengths = [[draw.choice((0, 0, 1, 1)) for _ in range(draw.randint(3, 10))] for _ in range(2)]
        sides = [tuple(tuple(draw.randrange(MODULUS) for _ in range(length)) for length in side) for side in lengths]
        made = Step(draw.choice(WITH_SILENT_SIDES), (0, 1), draw.randint(1, 5), draw.choice(list(TYPES)))
        program = Program(tuple(("live", side) for side in sides), (made,))
        try:
            evaluate(program)
        except TooLarge:
            continue
        return program
