"""Programs for the simulation: small graphs with enough records that snapshots find some on every kind of edge, each with its model.

Together with those of ``tests/programs`` they are the topologies that the simulation draws from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import rayad as rd
from tests.programs import connected, loops, vertices
from tests.programs import model as m
from tests.programs.program import Expected, Program
from tests.programs.totals import first, second

NUMBERS = [[(7 * e + 3 * i) % 23 for i in range(6)] for e in range(6)]
PAIRS = [[(n % 4, n + e) for n in numbers] for e, numbers in enumerate(NUMBERS)]


def pipeline(flow: rd.Dataflow) -> None:
    flow.from_epochs(NUMBERS, parts=2, batch_rows=2).map(_double).rebalance().filter(_is_small).rebalance().map(_less).collect("out")


def _double(n: int) -> int:
    return 2 * n


def _is_small(n: int) -> bool:
    return n < 40


def _less(n: int) -> int:
    return n - 1


def pipeline_expected() -> Expected:
    return {"out": m.mapped(m.filtered(m.mapped(m.epochs(NUMBERS), _double), _is_small), _less)}


def union(flow: rd.Dataflow) -> None:
    a, b = flow.from_epochs(NUMBERS, parts=2, batch_rows=2), flow.from_epochs(NUMBERS[:3], batch_rows=2, name="b")
    a.union(b.map(_double), a.filter(_is_small)).rebalance().map(_less).collect("out")


def union_expected() -> Expected:
    a, b = m.epochs(NUMBERS), m.mapped(m.epochs(NUMBERS[:3]), _double)
    return {"out": m.mapped(a + b + m.filtered(a, _is_small), _less)}


def join(flow: rd.Dataflow) -> None:
    left, right = flow.from_epochs(PAIRS[:4], parts=2, batch_rows=2), flow.from_epochs(PAIRS[2:5], batch_rows=1, name="right")
    left.key_by(second).join(right.key_by(second)).collect("pairs")


def join_expected() -> Expected:
    return {"pairs": m.joined(m.epochs(PAIRS[:4]), m.epochs(PAIRS[2:5]), second, second)}


class Sums(rd.Vertex):
    """Every replica sums everything and says so when a time is complete; only the first one speaks."""

    def __init__(self) -> None:
        self.sums: dict[rd.Timestamp, int] = {}

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time not in self.sums:
            self.notify_at(time)
        self.sums[time] = self.sums.get(time, 0) + sum(batch)

    def on_notify(self, time: rd.Timestamp) -> None:
        self.send_by(0, [(self.replica, self.sums.pop(time))], time)


def broadcast(flow: rd.Dataflow) -> None:
    flow.from_epochs(NUMBERS, parts=2, batch_rows=2).broadcast().vertex(Sums, name="sums").filter(_of_the_first).map(second).collect("sums")


def _of_the_first(pair: tuple[int, int]) -> bool:
    return pair[0] == 0


def broadcast_expected() -> Expected:
    return {"sums": [(rd.Timestamp(e), sum(numbers)) for e, numbers in enumerate(NUMBERS)]}


def keyed(flow: rd.Dataflow) -> None:
    flow.from_epochs(PAIRS, parts=3, batch_rows=1).key_by(first).sum(second, name="sums").collect("sums")


def keyed_expected() -> Expected:
    return {"sums": m.collected(m.epochs(PAIRS), first, second, sum)}


def window(flow: rd.Dataflow) -> None:
    flow.from_epochs(PAIRS, parts=2, batch_rows=1).key_by(first).window(rd.windows.per_epoch()).count().collect("counts")


def window_expected() -> Expected:
    return {"counts": m.per_epoch(m.epochs(PAIRS), first, len)}


STARTS = [[6, 7, 9, 11], [3, 12], [9, 10, 25]]


def loop(flow: rd.Dataflow) -> None:
    """Exchanged at the head, so that batches are on the feedback edge most of the time."""
    begun = flow.from_epochs(STARTS, parts=2, batch_rows=1).map(lambda n: (n, n, 0))

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        stepped = inner.rebalance().filter(loops._open).map(loops._step)
        return stepped, stepped.filter(lambda record: not loops._open(record))

    begun.iterate(body, name="collatz").map(lambda r: (r[0], r[2])).collect("steps")


def loop_expected() -> Expected:
    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        stepped = m.mapped(m.filtered(inner, loops._open), loops._step)
        return stepped, m.filtered(stepped, lambda record: not loops._open(record))

    return {"steps": m.mapped(m.iterated(m.mapped(m.epochs(STARTS), lambda n: (n, n, 0)), body), lambda r: (r[0], r[2]))}


RING = [[(n, (n + 1) % 6) for n in range(6)], [(10, 11), (11, 12), (12, 3)], [(20, 21), (21, 20)]]


def loop_join(flow: rd.Dataflow) -> None:
    """The smallest node that each reaches."""
    edges = flow.from_epochs(RING, parts=2, batch_rows=1).flat_map(loops._both_ways)
    inside = flow.loop("components")
    labels, links = inside.enter(edges.map(lambda e: (e[0], e[0]))), inside.enter(edges)
    back = inside.feedback()
    fresh = labels.union(back).key_by(first).min(second).key_by(first).distinct(second, name="fresh")
    back.connect(fresh.key_by(first).join(links.key_by(first)).map(lambda r: (r[1][1][1], r[1][0][1])))
    inside.leave(fresh).collect("labels")


def loop_join_expected() -> Expected:
    edges = m.flat_mapped(m.epochs(RING), loops._both_ways)
    links = m.entered(edges)

    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        fresh = m.distinct(m.collected(inner, first, second, min), first, second)
        return m.mapped(m.joined(fresh, links, first, first), lambda r: (r[1][1][1], r[1][0][1])), fresh

    return {"labels": m.iterated(m.mapped(edges, lambda e: (e[0], e[0])), body)}


def sources(flow: rd.Dataflow) -> None:
    """Parts that are read one after another, and beside each other, with epochs at their own pace."""
    for name, source in SOURCES.items():
        flow.source(source, name=name).key_by(lambda n: n % 10).sum().collect(f"{name} sums")


SOURCES = {"beside": connected.Counting(3, 6, interleave=True), "in turn": connected.Counting(3, 4, interleave=False)}


def sources_expected() -> Expected:
    return {f"{name} sums": m.collected(source.records(), lambda n: n % 10, lambda n: n, sum) for name, source in SOURCES.items()}


def in_order(flow: rd.Dataflow) -> None:
    """Epochs that arrive out of order wait for their turn."""
    early, late = flow.from_epochs(PAIRS[:3], batch_rows=1), flow.from_epochs([[], *PAIRS[1:]], parts=2, batch_rows=2, name="late")
    early.union(late).key_by(first).stateful_map(_counted, 0).collect("out")


def _counted(count: int, pair: tuple[int, int]) -> tuple[int, int]:
    return count + 1, count + 1


def in_order_expected() -> Expected:
    stream = m.epochs(PAIRS[:3]) + m.epochs([[], *PAIRS[1:]])
    out: m.Timed = []
    counts: dict[int, int] = {}
    for time, pairs in m.by_time(stream):
        for key, _ in pairs:
            counts[key] = counts.get(key, 0) + 1
            out.append((time, (key, counts[key])))
    return {"out": out}


class Changing(rd.Vertex):
    """Running counts whose snapshots are increments: keys that changed since the last one. The ballast makes the whole state large."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.ballast = bytes(4096)
        self.changed: set[int] = set()

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        for key, _ in batch:
            self.counts[key] = self.counts.get(key, 0) + 1
            self.changed.add(key)
            self.send_by(0, [(key, self.counts[key] % 2)], time)

    def checkpoint(self) -> Any:
        return dict(self.counts), self.ballast

    def restore(self, state: Any) -> None:
        self.counts = state[0]

    def take_changes(self) -> Callable[[], Any]:
        changed, self.changed = sorted(self.changed), set()
        return lambda: {key: self.counts[key] for key in changed}

    def restore_changes(self, changes: Any) -> None:
        self.counts.update(changes)


def increments(flow: rd.Dataflow) -> None:
    flow.from_epochs(PAIRS, parts=2, batch_rows=1).key_by(first).vertex(Changing, name="changing").collect("parities")


def increments_expected() -> Expected:
    out: m.Timed = []
    counts: dict[int, int] = {}
    for time, (key, _) in m.epochs(PAIRS):
        counts[key] = counts.get(key, 0) + 1
        out.append((time, (key, counts[key] % 2)))
    return {"parities": out}


def check_increments(result: Any) -> None:
    """Which record of a key comes first depends on timing, so only how many of each parity there are is certain."""
    got = m.canonical((rd.Timestamp(0), record) for _, record in result["parities"])
    wanted = m.canonical((rd.Timestamp(0), record) for _, record in increments_expected()["parities"])
    assert got == wanted, (got - wanted, wanted - got)


def combined(flow: rd.Dataflow) -> None:
    """Counts behind a keyed exchange, of which senders combine what waits."""
    flow.from_epochs(NUMBERS, parts=2, batch_rows=1).flat_map(lambda n: [n % 3, n % 5]).key_by(lambda n: n).count().collect("counts")


def combined_expected() -> Expected:
    stream = m.flat_mapped(m.epochs(NUMBERS), lambda n: [n % 3, n % 5])
    return {"counts": m.collected(stream, lambda n: n, lambda n: n, len)}


def live(flow: rd.Dataflow) -> None:
    left, right = flow.input("left"), flow.input("right")
    left.key_by(first).count(name="left counts").probe("left seen").collect("left")
    left.key_by(first).join(right.key_by(first)).probe("both seen").collect("join")


def feed_live(job: Any) -> None:
    left, right = job.input("left"), job.input("right")
    for epoch, pairs in enumerate(PAIRS):
        left.send(pairs[:3])
        left.send(pairs[3:])
        left.advance_to(epoch + 1)
        if epoch % 2:
            right.send(pairs[:2])
            right.advance_to(epoch + 1)
            assert job.probe("both seen").wait(epoch - 1, timeout_s=60)
    left.close()
    right.close()


def live_expected() -> Expected:
    left = m.epochs(PAIRS)
    right = m.epochs([PAIRS[epoch + 1][:2] if epoch % 2 == 0 else [] for epoch in range(len(PAIRS) - 1)])
    return {"left": m.collected(left, first, first, len), "join": m.joined(left, right, first, first)}


def live_loop(flow: rd.Dataflow) -> None:
    connected.live_loop(flow)


TOPOLOGIES = [
    Program("sim pipeline", pipeline, pipeline_expected),
    Program("sim union", union, union_expected),
    Program("sim join", join, join_expected),
    Program("sim broadcast", broadcast, broadcast_expected),
    Program("sim keyed", keyed, keyed_expected),
    Program("sim window", window, window_expected),
    Program("sim loop", loop, loop_expected),
    Program("sim nested loops", partial(loops.nested, depth=2, keyed=True), partial(loops.nested_expected, depth=2, keyed=True)),
    Program("sim loop with join", loop_join, loop_join_expected),
    Program("sim totals in loop", loops.totals_in_order, loops.totals_in_order_expected),
    Program("sim several sources", sources, sources_expected),
    Program("sim in order", in_order, in_order_expected),
    Program("sim end vertex", vertices.end_vertex, vertices.end_vertex_expected),
    Program("sim capabilities", vertices.capabilities, vertices.capabilities_expected),
    Program("sim two inputs", vertices.two_inputs, vertices.two_inputs_expected),
    Program("sim increments", increments, dict, check_increments),
    Program("sim combined", combined, combined_expected),
    Program("sim live", live, live_expected, feed=feed_live),
    Program("sim live loop", live_loop, connected.live_loop_expected, feed=connected.feed_live_loop),
]
