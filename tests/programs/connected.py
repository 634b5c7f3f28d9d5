"""Programs with sources and sinks of their own, and with live inputs that advance differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rayad as rd
from tests.patience import PATIENCE_S
from tests.programs import model as m
from tests.programs.program import Expected, Program
from tests.programs.totals import first, second


class Counting(rd.Source):
    """Part p counts p, p + 10, p + 20 ...; epochs advance at its own pace, and some calls find nothing there yet."""

    blocks = False

    def __init__(self, parts: int, batches: int, *, interleave: bool) -> None:
        self.parts = parts
        self.batches = batches
        self.interleave = interleave

    def list_parts(self) -> Sequence[Any]:
        return range(self.parts)

    def build_part(self, part: Any, resume: Any | None) -> rd.SourcePart:
        return CountingPart(self, part, resume or 0)

    def records(self) -> m.Timed:
        """Everything that it gives."""
        out: m.Timed = []
        for part in range(self.parts):
            for at in range(self.batches):
                epoch, batch = self.batch(part, at)
                out.extend((rd.Timestamp(epoch), record) for record in batch)
        return out

    def batch(self, part: int, at: int) -> tuple[int, list[int]]:
        """The at-th batch of a part; without interleave, parts are read one after another, so their epochs must be too."""
        epoch = at * (part + 1) if self.interleave else 0
        return epoch, [part + 10 * at] * (part + 1)


class CountingPart(rd.SourcePart):
    def __init__(self, source: Counting, part: int, at: int) -> None:
        self.source = source
        self.part = part
        self.at = at
        self.calls = 0
        self.open = True

    def next_batch(self) -> rd.SourceBatch | None:
        assert self.open
        self.calls += 1
        if self.calls % 3 == 0:
            return rd.SourceBatch(0, [])  # nothing there yet
        if self.at >= self.source.batches:
            return None
        epoch, batch = self.source.batch(self.part, self.at)
        self.at += 1
        return rd.SourceBatch(epoch, batch)

    def epoch_floor(self) -> int:
        return self.source.batch(self.part, self.at)[0]

    def offset(self) -> int:
        return self.at

    def close(self) -> None:
        self.open = False


def sources(flow: rd.Dataflow) -> None:
    for name, source in SOURCES.items():
        stream = flow.source(source, name=name)
        stream.collect(f"{name} read")
        stream.key_by(lambda n: n % 10).sum().collect(f"{name} sums")


SOURCES = {
    "interleaved": Counting(4, 5, interleave=True),
    "in turn": Counting(3, 4, interleave=False),
    "no parts": Counting(0, 4, interleave=True),
    "empty parts": Counting(3, 0, interleave=False),
}


def sources_expected() -> Expected:
    out: Expected = {}
    for name, source in SOURCES.items():
        records = source.records()
        out[f"{name} read"] = records
        out[f"{name} sums"] = m.collected(records, lambda n: n % 10, lambda n: n, sum)
    return out


class Tally(rd.Sink):
    """Publishes how many records each writer had; staged parts may come in any order."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        assert 0 <= replica < parallelism
        return TallyWriter(replica, parallelism)

    def publish(self, staged: Sequence[Any]) -> Any:
        return sorted(staged)

    def result(self, receipt: Any) -> Any:
        return {"writers": sorted({part[:2] for part in receipt}), "records": sorted(r for part in receipt for r in part[2])}


class TallyWriter(rd.SinkWriter):
    def __init__(self, replica: int, parallelism: int) -> None:
        self.number, self.count = replica, parallelism
        self.rows: list[Any] = []

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        self.rows.extend((time.epoch, record) for record in rd.to_rows(batch))

    def stage(self) -> Any:
        rows, self.rows = self.rows, []
        return self.number, self.count, rows


SUNK = [[1, 2, 3], [4], [], [5, 6]]


def sinks(flow: rd.Dataflow) -> None:
    """Two stages and several paths write to one sink: every writer has a number of its own, and nothing is written twice."""
    numbers = flow.from_epochs(SUNK, parts=3, batch_rows=1)
    even = numbers.map(lambda n: 2 * n)
    counted = numbers.key_by(lambda n: n).count().map(lambda pair: -pair[0])
    numbers.union(even, counted, numbers).sink(Tally(), "tally")
    numbers.sink(Tally(), "direct")


def check_sinks(result: Any) -> None:
    stream = [(e, n) for e, numbers in enumerate(SUNK) for n in numbers]
    tally = result["tally"]
    assert tally["records"] == sorted(stream + stream + [(e, 2 * n) for e, n in stream] + [(e, -n) for e, n in stream])
    count = tally["writers"][0][1]
    assert tally["writers"] == [(number, count) for number in range(count)], tally["writers"]
    assert result["direct"]["records"] == sorted(stream)


# -- live inputs --------------------------------------------------------------------------------------------------------------


def live(flow: rd.Dataflow) -> None:
    left, right = flow.input("left"), flow.input("right")
    left.key_by(first).count(name="left counts").probe("left seen").collect("left")
    left.key_by(first).join(right.key_by(first)).probe("both seen").collect("join")
    right.map(second).collect("right")


def feed_live(job: Any) -> None:
    left, right = job.input("left"), job.input("right")
    left.send([("a", 1), ("b", 2)])
    right.send([("a", 10)])
    left.advance_to(2)
    assert job.probe("left seen").wait(1, timeout_s=PATIENCE_S)  # nothing of the other input is needed for that
    assert not job.probe("both seen").complete(0)
    assert job.probe("both seen").less_equal(rd.Timestamp(0))
    left.send([("a", 3)])
    right.advance_to(1)
    assert job.probe("both seen").wait(0, timeout_s=PATIENCE_S)
    right.send([("b", 20), ("b", 21)])
    left.advance_to(7)
    left.advance_to(7)
    right.advance_to(4)
    with right:
        right.send([("a", 30)])
    left.close()
    left.close()
    assert job.probe("both seen").wait(99, timeout_s=PATIENCE_S)
    assert job.probe("both seen").done()


def live_expected() -> Expected:
    t = rd.Timestamp
    left = [(t(0), ("a", 1)), (t(0), ("b", 2)), (t(2), ("a", 3))]
    right = [(t(0), ("a", 10)), (t(1), ("b", 20)), (t(1), ("b", 21)), (t(4), ("a", 30))]
    return {
        "left": m.collected(left, first, first, len),
        "join": m.joined(left, right, first, first),
        "right": m.mapped(right, second),
    }


def live_loop(flow: rd.Dataflow) -> None:
    numbers = flow.input("numbers")
    numbers.iterate(lambda inner: (inner.filter(lambda n: n > 1).map(lambda n: n // 2), inner.key_by(lambda n: n % 3).count())).probe(
        "out"
    ).collect("out")


def feed_live_loop(job: Any) -> None:
    numbers = job.input("numbers")
    for epoch in range(5):
        numbers.send([epoch + 5, 2 * epoch])
        numbers.advance_to(epoch + 1)
        if epoch % 2:
            assert job.probe("out").wait(epoch, timeout_s=PATIENCE_S)
    numbers.close()


def live_loop_expected() -> Expected:
    def body(inner: m.Timed) -> tuple[m.Timed, m.Timed]:
        again = m.mapped(m.filtered(inner, lambda n: n > 1), lambda n: n // 2)
        return again, m.collected(inner, lambda n: n % 3, lambda n: n, len)

    return {"out": m.iterated(m.epochs([[e + 5, 2 * e] for e in range(5)]), body)}


def unfed(flow: rd.Dataflow) -> None:
    flow.input("quiet").key_by(first).count().collect("out")


PROGRAMS = [
    Program("sources", sources, sources_expected),
    Program("sinks", sinks, check=check_sinks),
    Program("live", live, live_expected, feed=feed_live),
    Program("live-loop", live_loop, live_loop_expected, feed=feed_live_loop),
    Program("live-unfed", unfed, lambda: {"out": []}, feed=lambda job: job.input("quiet").close()),
]
