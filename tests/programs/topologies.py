"""Dataflows between sources and one stream of results, and what they must give, by the model of ``programs/model.py``.

They say nothing of how their input comes. The simulation reads a few epochs (:meth:`Topology.program`), ``make chaos`` draws many and
paces them, so that there is time to disturb the job (:meth:`Topology.flow`).
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import rayad as rd
from tests.programs import model as m
from tests.programs.loops import _level, collatz, nested_expected
from tests.programs.program import Program
from tests.programs.vertices import DistinctCount
from tests.programs.windowed import event_windows

Lists = list[list[Any]]


@dataclass(frozen=True)
class Topology:
    """A dataflow between sources and one stream of results.

    Args:
        data: makes the epochs of each source, given a seeded random number generator and how many.
        build: gives the stream of results, of the streams of the sources.
        expected: the same, by the model.
        parallelism: of vertices by name.
    """

    name: str
    data: Callable[[random.Random, int], list[Lists]]
    build: Callable[..., rd.Stream]
    expected: Callable[..., m.Timed]
    parallelism: dict[str, int]

    def epochs(self, seed: int, count: int) -> list[Lists]:
        """The input."""
        return self.data(random.Random(f"{self.name}/{seed}"), count)

    def flow(self, name: str, lists: Sequence[Lists], source: Callable[[Lists], rd.Source]) -> tuple[rd.Dataflow, rd.Stream]:
        """The dataflow without its end; ``source`` makes one of the epochs of each."""
        flow = rd.Dataflow(name)
        return flow, self.build(*(flow.source(source(epochs), name=f"source{i}") for i, epochs in enumerate(lists)))

    def model(self, lists: Sequence[Lists]) -> m.Timed:
        """What it gives for the epochs of each source."""
        return self.expected(*map(m.epochs, lists))

    def program(self, name: str, *lists: Lists, parts: int = 2, batch_rows: int = 1) -> Program:
        """A test program of it: sources of these epochs; its results are collected as "out"."""

        def build(flow: rd.Dataflow) -> None:
            self.build(*(flow.from_epochs(epochs, parts=parts, batch_rows=batch_rows) for epochs in lists)).collect("out")

        return Program(name, build, lambda: {"out": self.model(lists)})


def numbers(high: int, each: int = 4, sources: int = 1) -> Callable[[random.Random, int], list[Lists]]:
    """Sources of numbers below ``high``, ``each`` in an epoch."""

    def data(rng: random.Random, count: int) -> list[Lists]:
        return [[[rng.randrange(high) for _ in range(each)] for _ in range(count)] for _ in range(sources)]

    return data


def key(record: Any) -> Any:
    return record[0]


def value(record: Any) -> Any:
    return record[1]


def by_seven(n: int) -> int:
    return n % 7


# -- without loops -------------------------------------------------------------------------------------------------------------------


def pipeline(stream: rd.Stream) -> rd.Stream:
    return stream.map(lambda n: n + 1).rebalance().filter(lambda n: n % 3).rebalance().flat_map(lambda n: [n, -n], name="op")


def pipeline_model(stream: m.Timed) -> m.Timed:
    return m.flat_mapped(m.filtered(m.mapped(stream, lambda n: n + 1), lambda n: n % 3), lambda n: [n, -n])


def union(left: rd.Stream, right: rd.Stream) -> rd.Stream:
    """One stream enters twice, whole and in part."""
    both = left.union(right.map(lambda n: n + 5), left.filter(lambda n: n % 2))
    distinct, counts = both.key_by(lambda n: n).vertex(DistinctCount, outputs=2, name="op")
    return distinct.map(lambda n: ("first", n)).union(counts)


def union_model(left: m.Timed, right: m.Timed) -> m.Timed:
    both = left + m.mapped(right, lambda n: n + 5) + m.filtered(left, lambda n: n % 2)
    counted = [(t, (n, records.count(n))) for t, records in m.by_time(both) for n in dict.fromkeys(records)]
    return counted + [(t, ("first", n)) for t, (n, _) in counted]


def join(left: rd.Stream, right: rd.Stream) -> rd.Stream:
    return left.key_by(lambda n: n % 50).join(right.key_by(lambda n: n % 50), name="op")


def join_model(left: m.Timed, right: m.Timed) -> m.Timed:
    return m.joined(left, right, lambda n: n % 50, lambda n: n % 50)


class Sums(rd.Vertex):
    """Every replica sums everything and says so when a time is complete; only the first one is listened to."""

    def __init__(self) -> None:
        self.sums: dict[rd.Timestamp, int] = {}

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time not in self.sums:
            self.notify_at(time)
        self.sums[time] = self.sums.get(time, 0) + sum(batch)

    def on_notify(self, time: rd.Timestamp) -> None:
        self.send_by(0, [(self.replica, self.sums.pop(time))], time)


def broadcast(stream: rd.Stream) -> rd.Stream:
    sums = stream.broadcast().vertex(Sums, name="copies").filter(lambda pair: pair[0] == 0).map(value)
    return sums.key_by(by_seven).sum(name="op")  # type: ignore[no-any-return]


def broadcast_model(stream: m.Timed) -> m.Timed:
    return m.collected([(time, sum(numbers)) for time, numbers in m.by_time(stream)], by_seven, lambda n: n, sum)


def keyed(stream: rd.Stream) -> rd.Stream:
    return stream.key_by(by_seven).sum(name="op").as_records().key_by(value).count(name="op2")


def keyed_model(stream: m.Timed) -> m.Timed:
    return m.collected(m.collected(stream, by_seven, lambda n: n, sum), value, value, len)


def windows(stream: rd.Stream) -> rd.Stream:
    return stream.key_by(by_seven).window(rd.windows.per_epoch()).sum(name="op")


def windows_model(stream: m.Timed) -> m.Timed:
    return m.per_epoch(stream, by_seven, sum)


def stateful(stream: rd.Stream) -> rd.Stream:
    return stream.key_by(by_seven).stateful_map(lambda state, n: (state + n, (n, state + n)), 0, name="op")


def stateful_model(stream: m.Timed) -> m.Timed:
    state: dict[int, int] = {}
    out: m.Timed = []
    for time, n in stream:
        state[n % 7] = state.get(n % 7, 0) + n
        out.append((time, (n % 7, (n, state[n % 7]))))
    return out


def session_data(rng: random.Random, count: int) -> list[Lists]:
    return [[[(rng.randrange(5), 3 * epoch + rng.randrange(3), rng.randrange(100)) for _ in range(4)] for epoch in range(count)]]


def tumbling(stream: rd.Stream) -> rd.Stream:
    return stream.assign_timestamps(value).key_by(key).window(rd.windows.tumbling(10)).sum(lambda r: r[2], name="op")


def tumbling_model(stream: m.Timed) -> m.Timed:
    """Event times grow with the epochs and never run behind them, so that no record is late."""
    kept: dict[tuple[int, int], int] = {}
    out: m.Timed = []
    mark = last = 0
    for time, records in m.by_time(stream):
        for at, when, amount in records:
            kept[at, when // 10 * 10] = kept.get((at, when // 10 * 10), 0) + amount
            mark, last = max(mark, when), time.epoch
        for at, start in [one for one in kept if one[1] + 10 <= mark]:
            out.append((time, (at, rd.Window(start, start + 10), kept.pop((at, start)))))
    out.extend((rd.Timestamp(last), (at, rd.Window(start, start + 10), total)) for (at, start), total in kept.items())
    return out


def tables(stream: rd.Stream) -> rd.Stream:
    """Of totals, what each update changes, the table every two epochs, and that at the end: the last is of a vertex that speaks at the end
    and has no state before its first record."""
    counts = stream.key_by(by_seven).count()
    changes = counts.changes().map(lambda change: ("change", *change))
    every, end = counts.latest(every=2, name="op"), counts.latest(name="at-end")
    return changes.union(every.map(lambda pair: ("table", *pair)), end.map(lambda pair: ("end", *pair)))


def tables_model(stream: m.Timed) -> m.Timed:
    counts: collections.Counter[int] = collections.Counter()
    shown: dict[int, dict[int, int]] = {}
    out: m.Timed = []
    for time, records in m.by_time(stream):
        fresh = collections.Counter(map(by_seven, records))
        out.extend((time, ("change", at, (counts[at] or None, counts[at] + more))) for at, more in fresh.items())
        counts.update(fresh)
        shown[time.epoch | 1] = dict(counts)
    out.extend((rd.Timestamp(epoch), ("table", *pair)) for epoch, table in shown.items() for pair in table.items())
    return out + [(rd.Timestamp(max(time.epoch for time, _ in stream)), ("end", *pair)) for pair in counts.items()]


def delayed_data(rng: random.Random, count: int) -> list[Lists]:
    """A few records are late, and a few are of another year."""
    apart = (0, 0, 0, 0, 0, 0, 0, -12, -25, 5000)
    return [[[(rng.randrange(5), max(0, 3 * epoch + rng.choice(apart)), rng.randrange(100)) for _ in range(4)] for epoch in range(count)]]


def updates(stream: rd.Stream) -> rd.Stream:
    timed = stream.assign_timestamps(value, max_delay=2, max_ahead=100)
    return timed.key_by(key).window(rd.windows.tumbling(10), lateness=15).sum(lambda r: r[2], name="op")


def updates_model(stream: m.Timed) -> m.Timed:
    epochs: list[list[Any]] = [[] for _ in range(1 + max((time.epoch for time, _ in stream), default=-1))]
    for time, record in stream:
        epochs[time.epoch].append(record)
    windows = rd.windows.tumbling(10)
    return event_windows(epochs, windows, sum, 2, windows.assign, lateness=15, ahead=100)[0]


# -- with loops ----------------------------------------------------------------------------------------------------------------------


def loop(stream: rd.Stream) -> rd.Stream:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        stepped = inner.rebalance().filter(lambda r: r[1] > 1).map(lambda r: (r[0], collatz(r[1]), r[2] + 1), name="op")
        return stepped, stepped.filter(lambda r: r[1] == 1)

    return stream.map(lambda n: (n, n + 2, 0)).iterate(body, name="collatz")


def loop_model(stream: m.Timed) -> m.Timed:
    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        stepped = m.mapped(m.filtered(inner, lambda r: r[1] > 1), lambda r: (r[0], collatz(r[1]), r[2] + 1))
        return stepped, m.filtered(stepped, lambda r: r[1] == 1)

    known = {n: m.iterated([(rd.Timestamp(0), (n, n + 2, 0))], body) for n in {n for _, n in stream}}
    return [(time, out) for time, n in stream for _, out in known[n]]


def nested_data(rng: random.Random, count: int) -> list[Lists]:
    return [[[(rng.randrange(3), rng.randrange(3))] for _ in range(count)]]


def nested(stream: rd.Stream) -> rd.Stream:
    return _level(stream, 0, 2, keyed=True)


def nested_model(stream: m.Timed) -> m.Timed:
    """Epochs do not meet inside: what one record gives, for each."""
    known = {pair: nested_expected(depth=2, keyed=True, epochs=[[pair]])["out"] for pair in {record for _, record in stream}}
    return [(time, out) for time, record in stream for _, out in known[record]]


def edge_data(rng: random.Random, count: int) -> list[Lists]:
    return [[[(rng.randrange(120), rng.randrange(120))] if epoch % 5 == 0 else [] for epoch in range(count)]]


def components(edges: rd.Stream) -> rd.Stream:
    both = edges.flat_map(lambda edge: [edge, edge[::-1]])
    loop = edges.flow.loop("components")
    labels, links = loop.enter(both.map(lambda e: (e[0], e[0]))), loop.enter(both)
    back = loop.feedback()
    fresh = labels.union(back).key_by(key).min(value, name="op").key_by(key).distinct(value, name="fresh")
    back.connect(fresh.key_by(key).join(links.key_by(key), name="op2").map(lambda r: (r[1][1][1], r[1][0][1])))
    return loop.leave(fresh)


def components_model(stream: m.Timed) -> m.Timed:
    both = m.flat_mapped(stream, lambda edge: [edge, edge[::-1]])
    links = m.entered(both)

    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        fresh = m.distinct(m.collected(inner, key, value, min), key, value)
        return m.mapped(m.joined(fresh, links, key, key), lambda r: (r[1][1][1], r[1][0][1])), fresh

    return m.iterated(m.mapped(both, lambda e: (e[0], e[0])), body)


def totals(stream: rd.Stream) -> rd.Stream:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        counted = inner.key_by(lambda n: n % 5).count(name="op")
        return counted.filter(lambda r: r[1] % 4 != 0).map(lambda r: r[0] + 1), counted

    return stream.iterate(body, max_rounds=6, name="totals")


def totals_model(stream: m.Timed) -> m.Timed:
    """Times in lexicographic order: what the rounds of an epoch have counted is what the next epoch begins with."""
    counts: collections.Counter[int] = collections.Counter()
    out: m.Timed = []
    for time, records in m.by_time(stream):
        for _ in range(6):
            fresh = collections.Counter(n % 5 for n in records)
            counts.update(fresh)
            out.extend((time, (at, counts[at])) for at in fresh)
            records = [at + 1 for at in fresh if counts[at] % 4 != 0]
    return out


TOPOLOGIES = {
    topology.name: topology
    for topology in (
        Topology("pipeline", numbers(1000), pipeline, pipeline_model, {}),
        Topology("union", numbers(30, 3, 2), union, union_model, {}),
        Topology("join", numbers(1000, 2, 2), join, join_model, {}),
        Topology("broadcast", numbers(1000), broadcast, broadcast_model, {"copies": 2}),
        Topology("keyed", numbers(1000), keyed, keyed_model, {"op": 2}),
        Topology("window", numbers(1000), windows, windows_model, {"op": 2}),
        Topology("stateful_map", numbers(1000, 1), stateful, stateful_model, {}),
        Topology("tumbling", session_data, tumbling, tumbling_model, {}),
        Topology("tables", numbers(1000), tables, tables_model, {}),
        Topology("updates", delayed_data, updates, updates_model, {}),
        Topology("loop", numbers(100, 1), loop, loop_model, {"rebalance": 2}),
        Topology("nested", nested_data, nested, nested_model, {}),
        Topology("loop-join", edge_data, components, components_model, {}),
        Topology("loop-totals", numbers(1000, 2), totals, totals_model, {}),
    )
}
