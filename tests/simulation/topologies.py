"""Programs of the simulation besides the catalogue of ``tests/programs``: its topologies, with enough records that snapshots find some
on every kind of edge, and programs for the simulation alone (epochs out of order, increments, live inputs that look at probes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rayad as rd
from tests.programs import connected, loops, vertices
from tests.programs import model as m
from tests.programs.catalog import TOPOLOGIES as SHARED
from tests.programs.program import Expected, Program
from tests.programs.totals import first

NUMBERS = [[(7 * e + 3 * i) % 23 for i in range(6)] for e in range(6)]
PAIRS = [[(n % 4, n + e) for n in numbers] for e, numbers in enumerate(NUMBERS)]
STARTS = [[4, 5, 7, 9], [1, 10], [7, 8, 23]]
RING = [[(n, (n + 1) % 6) for n in range(6)], [(10, 11), (11, 12), (12, 3)], [(20, 21), (21, 20)]]


def sources(flow: rd.Dataflow) -> None:
    """Parts that are read one after another, and parts that are read side by side, with epochs at their own pace."""
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
    """Check the counts of each parity only: which record of a key comes first depends on timing."""
    got = m.canonical((rd.Timestamp(0), record) for _, record in result["parities"])
    wanted = m.canonical((rd.Timestamp(0), record) for _, record in increments_expected()["parities"])
    assert got == wanted, (got - wanted, wanted - got)


def combined(flow: rd.Dataflow) -> None:
    """Counts behind a keyed exchange whose senders combine."""
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
    SHARED["pipeline"].program("sim pipeline", NUMBERS, batch_rows=2),
    SHARED["union"].program("sim union", NUMBERS, NUMBERS[:3], batch_rows=2),
    SHARED["join"].program("sim join", NUMBERS[:4], NUMBERS[2:5]),
    SHARED["broadcast"].program("sim broadcast", NUMBERS, batch_rows=2),
    SHARED["keyed"].program("sim keyed", NUMBERS, parts=3),
    SHARED["window"].program("sim window", NUMBERS),
    SHARED["loop"].program("sim loop", STARTS),
    SHARED["nested"].program("sim nested loops", [[(2, 2)], [(1, 1), (0, 0)]]),
    SHARED["loop-join"].program("sim loop with join", RING),
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
