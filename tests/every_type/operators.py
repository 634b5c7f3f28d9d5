"""Every operator, with a model in plain Python.

A record has ``k`` (a key, 0 to 2), ``t`` (a time), ``v`` (a small number) and ``x``, the column of the type that is tried: as a column that
is passed on, as the key, as the value, or as the event time. A model gives the results of each epoch; where plain Python raises TypeError
(a sum of dates, a list as a key), the operator must refuse.
"""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

import rayad as rd
from tests.every_type.groups import (
    Record,
    Refused,
    average,
    different,
    extreme,
    in_one_order,
    in_time,
    known,
    largest,
    least_by_repr,
    least_so_far,
    number,
    reduced,
    shown,
    total,
    truth,
)

Epochs = list[list[Record]]
Out = Iterable[tuple[int, Any]]
"""Epoch and record."""


@dataclass(frozen=True)
class Operator:
    """``build`` adds it to a stream; ``model`` gives the right result; ``near``: a mean of numbers, equal up to rounding."""

    role: str
    name: str
    build: Callable[[rd.Stream], rd.Stream]
    model: Callable[[Epochs], Out]
    near: bool = False


class Echo(rd.Vertex):
    """Sends each batch on."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


class Echoed(rd.Process):
    """Emits each record."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.emit(record)


class Numbered(rd.Process):
    """Emits how many records a key has had, which a timer at the end tells."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(1000)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(context.state)


@dataclass(frozen=True)
class Instant:
    """A bound of a window: a number, or nanoseconds since 1970 or of a duration."""

    at: fractions.Fraction


# -- models ----------------------------------------------------------------------------------------
def passed_on(epochs: Epochs) -> Out:
    """Every record as it is."""
    return [(epoch, record) for epoch, records in enumerate(epochs) for record in records]


def doubled(epochs: Epochs) -> Out:
    return [entry for entry in passed_on(epochs) for _ in range(2)]


def hashable(value: Any) -> Any:
    """The value as a key; NaN is none."""
    hash(value)
    if value != value:
        raise Refused("NaN")
    return value


def by_key(records: Iterable[Record], key: str) -> dict[Any, list[Record]]:
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(hashable(record[key]), []).append(record)
    return groups


def running(key: str, result: Callable[[list[Record]], Any]) -> Callable[[Epochs], Out]:
    """For each key that an epoch touches, ``result`` of all records of the key so far."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        so_far: dict[Any, list[Record]] = {}
        for epoch, records in enumerate(epochs):
            touched = by_key(records, key)
            for name, new in touched.items():
                so_far.setdefault(name, []).extend(new)
            for name in touched:
                yield epoch, (name, result(so_far[name]))

    return model


def window_of(epoch: int) -> tuple[Instant, Instant]:
    """The window of an epoch."""
    return Instant(fractions.Fraction(epoch)), Instant(fractions.Fraction(epoch + 1))


def of_epoch(key: str, result: Callable[[list[Record]], Any]) -> Callable[[Epochs], Out]:
    """For each key and epoch, ``result`` of the records of that epoch alone, with the window of the epoch."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        for epoch, records in enumerate(epochs):
            for name, group in by_key(records, key).items():
                yield epoch, (name, window_of(epoch), result(group))

    return model


def best_of_epoch(largest: bool) -> Callable[[Epochs], Out]:
    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        for epoch, records in enumerate(epochs):
            for name, group in by_key(records, "k").items():
                known = [record for record in group if record["x"] is not None]
                if known:
                    best = (max if largest else min)(record["x"] for record in known)
                    yield from ((epoch, (name, window_of(epoch), record)) for record in known if record["x"] == best)

    return model


def joined(key: str) -> Callable[[Epochs], Out]:
    """All pairs of records so far of which at least one is new; a null key joins nothing."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        before: list[Record] = []
        for epoch, records in enumerate(epochs):
            pairs = [*itertools.product(records, before + records), *itertools.product(before, records)]
            for left, right in pairs:
                if hashable(left[key]) is not None and left[key] == hashable(right[key]):
                    yield epoch, (left[key], (left, right))
            before += records

    return model


def distinct(key: str, value: str) -> Callable[[Epochs], Out]:
    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        seen: list[Any] = []
        for epoch, records in enumerate(epochs):
            for record in records:
                pair = hashable(record[key]), record[value]
                if pair not in seen:
                    seen.append(pair)
                    yield epoch, pair

    return model


def each(key: str, value: str) -> Callable[[Epochs], Out]:
    """One pair for each record."""
    return lambda epochs: [(epoch, (hashable(record[key]), record[value])) for epoch, record in passed_on(epochs)]


def windowed(size: Any, slide: Any, key: str, time: str, result: Callable[[list[Record]], Any]) -> Callable[[Epochs], Out]:
    """Every window [start, start + size) with ``start`` a multiple of ``slide``: exact, by Fractions. The epoch is not compared."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        groups: dict[Any, list[Record]] = {}
        for _, record in passed_on(epochs):
            at = instant(record[time])
            step, length = instant_length(slide, record[time]), instant_length(size, record[time])
            last = at // step
            start = last
            while start * step > at - length:
                groups.setdefault((hashable(record[key]), start * step, start * step + length), []).append(record)
                start -= 1
        for (name, start, end), records in groups.items():
            yield -1, (name, (Instant(start), Instant(end)), result(records))

    return model


def of_count(size: int, result: Callable[[list[Record]], Any]) -> Callable[[Epochs], Out]:
    """Each so many records of a key, epoch after epoch and in the order of ``t``."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        ordered = [record for records in epochs for record in sorted(records, key=lambda record: record["t"])]
        for name, records in by_key(ordered, "k").items():
            for at in range(0, len(records), size):
                some = records[at : at + size]
                yield -1, (name, (Instant(instant(at)), Instant(instant(at + len(some)))), result(some))

    return model


def at_the_end(key: str, result: Callable[[list[Record]], Any]) -> Callable[[Epochs], Out]:
    return lambda epochs: [(len(epochs) - 1, (name, result(some))) for name, some in by_key((r for _, r in passed_on(epochs)), key).items()]


def session(gap: Any, key: str, time: str, result: Callable[[list[Record]], Any]) -> Callable[[Epochs], Out]:
    """A window holds a chain of records of one key, each at most ``gap`` after the one before; it ends ``gap`` after the last."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        for name, records in by_key((record for _, record in passed_on(epochs)), key).items():
            inorder = sorted(records, key=lambda record: instant(record[time]))
            chain: list[Record] = []
            for record in inorder:
                if chain and instant(record[time]) > instant(chain[-1][time]) + instant_length(gap, record[time]):
                    yield -1, session_of(name, chain, gap, time, result)
                    chain = []
                chain.append(record)
            yield -1, session_of(name, chain, gap, time, result)

    return model


def session_of(name: Any, chain: list[Record], gap: Any, time: str, result: Callable[[list[Record]], Any]) -> Any:
    start, end = instant(chain[0][time]), instant(chain[-1][time]) + instant_length(gap, chain[-1][time])
    return name, (Instant(start), Instant(end)), result(chain)


EPOCH = dt.datetime(1970, 1, 1)


def instant(value: Any) -> fractions.Fraction:
    """An event time as a number: itself, or its nanoseconds since 1970. Raises Refused for what is no time."""
    if value is None or isinstance(value, bool):
        raise Refused("no time")
    if isinstance(value, (int, float, decimal.Decimal)):
        if value != value:
            raise Refused("NaN")
        return fractions.Fraction(str(value)) if isinstance(value, float) else fractions.Fraction(value)
    nanoseconds = getattr(value, "nanosecond", 0)
    if isinstance(value, dt.datetime):
        plain = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
        return fractions.Fraction(
            (dt.datetime(*plain.timetuple()[:6], plain.microsecond) - EPOCH) // dt.timedelta(microseconds=1) * 1000 + nanoseconds
        )
    if isinstance(value, dt.timedelta):
        return fractions.Fraction(value // dt.timedelta(microseconds=1) * 1000 + getattr(value, "nanoseconds", 0))
    if isinstance(value, dt.date):
        return fractions.Fraction((value - EPOCH.date()).days * 86_400 * 10**9)
    raise Refused(f"{type(value).__name__} is no time")


def instant_length(length: Any, beside: Any) -> fractions.Fraction:
    """A size in the unit of :func:`instant` of ``beside``."""
    if isinstance(length, dt.timedelta):
        if not isinstance(beside, (dt.date, dt.timedelta)):
            raise Refused("a number of time units")
        return fractions.Fraction(length // dt.timedelta(microseconds=1) * 1000)
    if isinstance(beside, (dt.date, dt.timedelta)):
        raise Refused("a timedelta beside dates")
    return instant(length)


def each_in_tuple(key: str, value: str) -> Callable[[Epochs], Out]:
    return lambda epochs: [(epoch, (hashable(record[key]), (record[value],))) for epoch, record in passed_on(epochs)]


GIVEN = rd.windows.given("t", "until")


def given(stream: rd.Stream) -> rd.Stream:
    """Records that bring a window of three along."""
    return stream.assign_timestamps("t")


def windows_given(key: str, result: Callable[[list[Record]], Any]) -> Callable[[Epochs], Out]:
    """Every record in the window that it brought."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        groups: dict[Any, list[Record]] = {}
        for _, record in passed_on(epochs):
            bounds = Instant(instant(record["t"])), Instant(instant(record["until"]))
            groups.setdefault((hashable(record[key]), bounds), []).append(record)
        return iter([(-1, (name, bounds, result(records))) for (name, bounds), records in groups.items()])

    return model


def window_join(stream: rd.Stream, key: str = "x") -> rd.Stream:
    """With itself, in windows of five."""
    sides = [stream.assign_timestamps("t").key_by(key) for _ in range(2)]
    return sides[0].window(rd.windows.tumbling(5)).join(sides[1])


def window_joined(epochs: Epochs, key: str = "x") -> Iterator[tuple[int, Any]]:
    """Every pair of records with one key in one window; a null key joins nothing."""
    for name, records in by_key((record for _, record in passed_on(epochs)), key).items():
        for left, right in itertools.product(records, records):
            start = left["t"] // 5 * 5
            if name is not None and right["t"] // 5 * 5 == start:
                yield -1, (name, (Instant(fractions.Fraction(start)), Instant(fractions.Fraction(start + 5))), (left, right))


def asof_join(stream: rd.Stream, key: str, time: str = "t") -> rd.Stream:
    """With itself: the record before it."""
    sides = [stream.assign_timestamps(time).key_by(key) for _ in range(2)]
    return sides[0].join_asof(sides[1], allow_exact_matches=False)


def asof_joined(key: str, time: str = "t") -> Callable[[Epochs], Out]:
    """Every record with the last earlier one of its key, of several with one time that of the later epoch; a null key joins nothing."""

    def model(epochs: Epochs) -> Iterator[tuple[int, Any]]:
        records = [(instant(record[time]), epoch, repr(record), record) for epoch, record in passed_on(epochs)]
        for at, _, _, left in records:
            name = hashable(left[key])
            earlier = [other for other in records if name is not None and other[3][key] == name and other[0] < at]
            yield -1, (name, (left, max(earlier, key=lambda one: one[:3])[3] if earlier else None))

    return model


def several(stream: rd.Stream) -> rd.Stream:
    """Several aggregations at once."""
    return stream.key_by("k").aggregate({"n": "count", "low": ("min", "x"), "high": ("max", "x"), "v": ("sum", "v")})


def several_of(records: list[Record]) -> dict[str, Any]:
    """The same."""
    return {"n": len(records), "low": extreme("x", min)(records), "high": extreme("x", max)(records), "v": total("v")(records)}


WINDOWS = {"number": (10, 4), "length": (dt.timedelta(hours=7), dt.timedelta(hours=2)), "day": (dt.timedelta(2), dt.timedelta(1))}


def operators(kind: str) -> list[Operator]:
    """All, for a column whose times, if it has any, are numbers (``kind`` "number"), moments and lengths ("length") or dates ("day")."""
    size, slide = WINDOWS[kind]
    rows, out = rd.windows, []

    def add(role: str, name: str, build: Callable[[rd.Stream], rd.Stream], model: Callable[[Epochs], Out], *, near: bool = False) -> None:
        out.append(Operator(role, name, build, model, near))

    add("passed on", "map", lambda s: s.map(lambda r: r), passed_on)
    add("passed on", "filter", lambda s: s.filter(lambda r: True), passed_on)
    add("passed on", "flat_map", lambda s: s.flat_map(lambda r: [r, r]), doubled)
    add("passed on", "map_batches", lambda s: s.map_batches(lambda b: b), passed_on)
    add("passed on", "filter by columns", lambda s: s.filter(pc.field("v") >= 0), passed_on)
    add("passed on", "select", lambda s: s.select("x", "k", "t", "until", "v"), passed_on)
    add("passed on", "with_columns", lambda s: s.with_columns({"n": pc.field("v") + 1}).rename({"n": "m"}).drop("m"), passed_on)
    add("passed on", "inspect", lambda s: s.inspect(lambda r: None), passed_on)
    add("passed on", "union", lambda s: s.union(s), doubled)
    add("passed on", "rebalance", lambda s: s.rebalance().map_batches(lambda b: b), passed_on)
    add("passed on", "single", lambda s: s.single().map_batches(lambda b: b), passed_on)
    add("passed on", "ordered", lambda s: s.rebalance().map_batches(lambda b: b).ordered(), passed_on)
    add("passed on", "vertex", lambda s: s.vertex(Echo), passed_on)
    add("passed on", "keyed vertex", lambda s: s.key_by("k").vertex(Echo), passed_on)
    add("passed on", "process", lambda s: s.assign_timestamps("t").key_by("k").process(Echoed).map(lambda pair: pair[1]), passed_on)
    add("passed on", "iterate", lambda s: s.iterate(lambda i: (i.filter(lambda r: False), i)), passed_on)
    add("passed on", "join", lambda s: s.key_by("k").join(s.key_by("k")), joined("k"))
    for key, value, role in (("x", "v", "key"), ("k", "x", "value")):
        add(role, "distinct", lambda s, k=key, v=value: s.key_by(k).distinct(v), distinct(key, value))
        add(
            role,
            "fold",
            lambda s, k=key, v=value: s.key_by(k).fold((), least_so_far, v),
            running(key, lambda records, v=value: (reduced(v)(records),)),
        )
        add(role, "reduce", lambda s, k=key, v=value: s.key_by(k).reduce(least_by_repr, v), running(key, reduced(value)))
        add(
            role,
            "stateful_map",
            lambda s, k=key, v=value: s.key_by(k).stateful_map(lambda n, x: (1, (x,)), 0, v),
            each_in_tuple(key, value),
        )
        for name, result in (("sum", total(value)), ("min", extreme(value, min)), ("max", extreme(value, max)), ("mean", average(value))):
            add(role, name, lambda s, k=key, v=value, n=name: getattr(s.key_by(k), n)(v), running(key, result), near=name == "mean")
            add(
                role,
                f"{name} of epochs",
                lambda s, k=key, v=value, n=name: getattr(s.key_by(k).window(rows.per_epoch()), n)(v),
                of_epoch(key, result),
                near=name == "mean",
            )
        add(role, "top_k", lambda s, k=key, v=value: s.key_by(k).top_k(2, v), running(key, largest(value, 2)))
    add("key", "count", lambda s: s.key_by("x").count(), running("x", number))
    add("key", "count of epochs", lambda s: s.key_by("x").window(rows.per_epoch()).count(), of_epoch("x", number))
    add("key", "join", lambda s: s.key_by("x").join(s.key_by("x")), joined("x"))
    add(
        "key",
        "tumbling",
        lambda s: s.assign_timestamps("t").key_by("x").window(rows.tumbling(5)).sum("v"),
        windowed(5, 5, "x", "t", total("v")),
    )
    add("key", "session", lambda s: s.assign_timestamps("t").key_by("x").window(rows.session(3)).count(), session(3, "x", "t", number))
    add(
        "key",
        "vertex",
        lambda s: s.key_by("x").vertex(Echo),
        lambda epochs: [(e, r) for e, r in passed_on(epochs) if hash(hashable(r["x"])) is not None],
    )
    add("value", "max_by of epochs", lambda s: s.key_by("k").window(rows.per_epoch()).max_by("x"), best_of_epoch(True))
    add("value", "min_by of epochs", lambda s: s.key_by("k").window(rows.per_epoch()).min_by("x"), best_of_epoch(False))
    add(
        "value",
        "sum in windows",
        lambda s: s.assign_timestamps("t").key_by("k").window(rows.tumbling(5)).sum("x"),
        windowed(5, 5, "k", "t", total("x")),
    )
    add(
        "value",
        "max in windows",
        lambda s: s.assign_timestamps("t").key_by("k").window(rows.sliding(5, 2)).max("x"),
        windowed(5, 2, "k", "t", extreme("x", max)),
    )
    add("key", "window join", window_join, window_joined)
    add("key", "as-of join", lambda s: asof_join(s, "x"), asof_joined("x"))
    add("value", "as-of join", lambda s: asof_join(s, "k"), asof_joined("k"))
    add("time", "as-of join", lambda s: asof_join(s, "k", "x"), asof_joined("k", "x"))
    add("key", "broadcast join", lambda s: s.key_by("x").join(s.key_by("x"), broadcast=True), joined("x"))
    add("key", "count with ttl", lambda s: s.assign_timestamps("t").key_by("x").ttl(1000).count(), running("x", number))
    add("key", "join with ttl", lambda s: (keyed := s.assign_timestamps("t").key_by("x").ttl(1000)).join(keyed), joined("x"))

    def ending(s: rd.Stream, key: str) -> rd.KeyedStream:
        return s.assign_timestamps("t").key_by(key).ttl(1000, of="records")

    add("key", "join of records that end", lambda s: ending(s, "x").join(ending(s, "x")), joined("x"))
    add("value", "distinct of records that end", lambda s: ending(s, "k").distinct("x"), distinct("k", "x"))
    add("key", "process", lambda s: s.assign_timestamps("t").key_by("x").process(Numbered), at_the_end("x", number))
    add("value", "max with ttl", lambda s: s.assign_timestamps("t").key_by("k").ttl(1000).max("x"), running("k", extreme("x", max)))
    add(
        "value",
        "min in windows of two",
        lambda s: s.assign_timestamps("t").key_by("k").window(rows.count(2)).min("x"),
        of_count(2, extreme("x", min)),
    )
    add("key", "given windows", lambda s: given(s).key_by("x").window(GIVEN).count(), windows_given("x", number))
    add("value", "given windows", lambda s: given(s).key_by("k").window(GIVEN).min("x"), windows_given("k", extreme("x", min)))
    for name, result in (("any", truth("x", any)), ("all", truth("x", all)), ("count_distinct", different("x"))):
        add("value", name, lambda s, n=name: getattr(s.key_by("k"), n)("x"), running("k", result))
    add("value", "first", lambda s: s.key_by("k").first("x", by="t"), running("k", in_time("x", 0)))
    add("value", "last of epochs", lambda s: s.key_by("k").window(rows.per_epoch()).last("x", by="t"), of_epoch("k", in_time("x", -1)))
    add(
        "value",
        "last in windows",
        lambda s: s.assign_timestamps("t").key_by("k").window(rows.sliding(5, 2)).last("x"),
        windowed(5, 2, "k", "t", in_time("x", -1)),
    )
    add(
        "value",
        "any in windows",
        lambda s: s.assign_timestamps("t").key_by("k").window(rows.session(3)).any("x"),
        session(3, "k", "t", truth("x", any)),
    )
    add(
        "value",
        "collect_list",
        lambda s: s.key_by("k").collect_list("x").as_records().map(in_one_order),
        running("k", lambda records: sorted(known(records, "x"), key=shown)),
    )
    add("value", "several", several, running("k", several_of))
    add("value", "window join", lambda s: window_join(s, "k"), lambda epochs: window_joined(epochs, "k"))
    add(
        "time",
        "tumbling",
        lambda s: s.assign_timestamps("x").key_by("k").window(rows.tumbling(size)).count(),
        windowed(size, size, "k", "x", number),
    )
    add(
        "time",
        "sliding",
        lambda s: s.assign_timestamps("x").key_by("k").window(rows.sliding(size, slide)).sum("v"),
        windowed(size, slide, "k", "x", total("v")),
    )
    add(
        "time",
        "session",
        lambda s: s.assign_timestamps("x").key_by("k").window(rows.session(size)).count(),
        session(size, "k", "x", number),
    )
    return out
