"""Programs on the low level: `on_recv`, `on_notify`, guarantees and capabilities, several outputs, a last word at the end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from tests.programs import model as m
from tests.programs.program import Expected, Program
from tests.programs.totals import first, second

WORDS = [["to", "be", "or", "not", "to", "be"], [], ["be", "be"], ["to"]]


class DistinctCount(rd.Vertex):
    """Naiad's figure 4: distinct records at once on output 0, their counts on output 1 when the time is complete."""

    def __init__(self) -> None:
        self.counts: dict[rd.Timestamp, dict[Any, int]] = {}

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time not in self.counts:
            self.counts[time] = {}
            self.notify_at(time)
        counts = self.counts[time]
        for record in batch:
            if record not in counts:
                counts[record] = 0
                self.send_by(0, [record], time)
            counts[record] += 1

    def on_notify(self, time: rd.Timestamp) -> None:
        self.send_by(1, list(self.counts.pop(time).items()), time)

    def give(self, groups: frozenset[int]) -> dict[rd.Timestamp, dict[Any, int]]:
        given = {}
        for time, counts in self.counts.items():
            given[time] = {r: counts.pop(r) for r in list(counts) if rd.key_group(r, self.key_groups) in groups}
        return {time: counts for time, counts in given.items() if counts}

    def take(self, state: dict[rd.Timestamp, dict[Any, int]]) -> None:
        for time, counts in state.items():
            if time not in self.counts:
                self.counts[time] = {}
                self.notify_at(time)
            self.counts[time].update(counts)


def distinct_count(flow: rd.Dataflow) -> None:
    words = flow.from_epochs(WORDS, parts=2, batch_rows=1).key_by(lambda w: w)
    distinct, counts = words.vertex(DistinctCount, outputs=2, name="naiad")
    distinct.collect("distinct")
    counts.collect("counts")


def distinct_count_expected() -> Expected:
    counted = [(rd.Timestamp(e), Counter(words)) for e, words in enumerate(WORDS)]
    return {
        "distinct": [(t, word) for t, counts in counted for word in counts],
        "counts": [(t, item) for t, counts in counted for item in counts.items()],
    }


class Capable(rd.Vertex):
    """Asks for notifications whose capability is not the time that they wait for."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.silent = 0

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.heard.append(time.epoch)
        if time.epoch == 0:
            self.notify_at(rd.Timestamp(2), capability=time)  # wait for more, answer at the time of the question
            self.notify_at(rd.Timestamp(2), capability=time)  # the same again: once is enough
        elif time.epoch == 1:
            self.notify_at(time, capability=rd.Timestamp(6))  # answer later
        elif time.epoch == 3:
            self.notify_at(time, capability=None)  # tidy up without answering
            self.notify_at(rd.Timestamp(9), capability=rd.Timestamp(9))
            self.notify_at(time)

    def on_notify(self, time: rd.Timestamp) -> None:
        heard = sorted({epoch for epoch in self.heard if epoch <= time.epoch})  # later ones may have come as well
        if time.epoch == 2:
            self.send_by(0, [("waited", heard)], rd.Timestamp(0))
            self.send_by(0, [("waited", "and on")], rd.Timestamp(8))
        elif time.epoch == 1:
            self.send_by(0, [("later", heard)], rd.Timestamp(6))
        elif time.epoch == 3:
            try:
                self.send_by(0, [("once", 3)], rd.Timestamp(3))
            except rd.DataflowError as error:
                self.silent += "there is no right to send or ask now" in str(error)
        else:
            self.send_by(0, [("silent", self.silent)], time)


def capabilities(flow: rd.Dataflow) -> None:
    out = flow.from_epochs([[1], [2], [3], [4]]).single().vertex(Capable, name="capable")
    out.collect("out")
    out.key_by(first).count().collect("counted")


def capabilities_expected() -> Expected:
    t = rd.Timestamp
    out: m.Timed = [
        (t(0), ("waited", [0, 1, 2])),
        (t(8), ("waited", "and on")),
        (t(6), ("later", [0, 1])),
        (t(3), ("once", 3)),
        (t(9), ("silent", 1)),
    ]
    return {"out": out, "counted": m.collected(out, first, first, len)}


class LastWord(rd.EndVertex):
    """Passes records on and says at the end how many there were."""

    def __init__(self) -> None:
        self.count = 0

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.count += len(batch)
        self.send_by(0, batch, time)

    def on_end(self, time: rd.Timestamp) -> None:
        self.send_by(1, [("end", self.count)], time)


def end_vertex(flow: rd.Dataflow) -> None:
    passed, ends = flow.from_epochs(WORDS, batch_rows=1).single().vertex(LastWord, outputs=2, name="last")
    passed.key_by(lambda w: w).count().collect("counts")
    ends.collect("ends")


def end_vertex_expected() -> Expected:
    return {
        "counts": m.collected(m.epochs(WORDS), lambda w: w, lambda w: w, len),
        "ends": [(rd.Timestamp(3), ("end", sum(map(len, WORDS))))],
    }


class Reuses(rd.Vertex):
    """Sends its own list and goes on changing it: what was sent stays as it was sent."""

    def __init__(self) -> None:
        self.mine: list[Any] = []

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        for record in batch:
            self.mine.append(record)
            self.send_by(0, self.mine, time)
            self.mine.clear()
        self.send_by(0, (record for record in batch), time)  # any iterable of records
        self.send_by(0, [], time)


def reuses(flow: rd.Dataflow) -> None:
    flow.from_epochs(WORDS).vertex(Reuses).collect("out")


def reuses_expected() -> Expected:
    return {"out": m.epochs(WORDS) * 2}


class Merge(rd.Vertex):
    """Two keyed inputs; answers per time, with what each side brought."""

    def __init__(self) -> None:
        self.sides: dict[rd.Timestamp, tuple[list[Any], list[Any]]] = {}

    def setup(self) -> None:
        assert 0 <= self.replica < self.parallelism <= self.key_groups
        assert self.name == "merge"

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time not in self.sides:
            self.sides[time] = ([], [])
            self.notify_at(time)
        self.sides[time][edge].extend(rd.to_rows(batch))

    def give(self, groups: frozenset[int]) -> dict[rd.Timestamp, tuple[list[Any], list[Any]]]:
        given = {}
        for time, sides in self.sides.items():
            leaving = [[r for r in side if rd.key_group(first(r), self.key_groups) in groups] for side in sides]
            self.sides[time] = ([r for r in sides[0] if r not in leaving[0]], [r for r in sides[1] if r not in leaving[1]])
            if any(leaving):
                given[time] = (leaving[0], leaving[1])
        return given

    def take(self, state: dict[rd.Timestamp, tuple[list[Any], list[Any]]]) -> None:
        for time, sides in state.items():
            for edge in (0, 1):
                self.on_recv(edge, sides[edge], time)

    def on_notify(self, time: rd.Timestamp) -> None:
        left, right = self.sides.pop(time)
        for key in {first(r) for r in left + right}:
            sides = [sorted(second(r) for r in side if first(r) == key) for side in (left, right)]
            self.send_by(0, [(key, *sides)], time)


LEFT = [[(1, 5), (2, 6)], [(1, 7)], [(3, 8)]]
RIGHT = [[(1, 50)], [], [(3, 80), (3, 81)], [(2, 90)]]


def two_inputs(flow: rd.Dataflow) -> None:
    left, right = flow.from_epochs(LEFT, batch_rows=1), flow.from_epochs(RIGHT, parts=2)
    merged = flow.vertex(Merge, inputs=[left.key_by(first), right.key_by(first)], name="merge")
    merged.collect("merged")


def two_inputs_expected() -> Expected:
    out: m.Timed = []
    for epoch in range(4):
        left, right = (side[epoch] if epoch < len(side) else [] for side in (LEFT, RIGHT))
        for key in {first(r) for r in left + right}:
            out.append(
                (
                    rd.Timestamp(epoch),
                    (key, sorted(second(r) for r in left if first(r) == key), sorted(second(r) for r in right if first(r) == key)),
                )
            )
    return {"merged": out}


def columnar(flow: rd.Dataflow) -> None:
    """Columns through map_batches, to rows, and back."""
    batches = [pa.record_batch({"k": ["a", "b", "a"], "v": [1, 2, 3]}), pa.record_batch({"k": ["b"], "v": [5]})]
    source = flow.from_epochs(batches, batch_rows=2)
    doubled = source.map_batches(lambda b: b.set_column(1, "v", pc.multiply(b.column("v"), 2)))
    doubled.collect("table", columnar=True)
    doubled.map_batches(lambda b: pa.Table.from_batches([b, b])).key_by("k").sum("v").collect("sums")
    doubled.map(lambda row: {"k": row["k"].upper(), "v": row["v"] + 1}).map_batches(rd.to_record_batch).key_by("k").max().collect("back")
    source.map_batches(lambda b: [row for row in rd.to_rows(b) if row["k"] == "a"]).collect("rows")


def check_columnar(result: Any) -> None:
    table = result["table"]
    assert isinstance(table, pa.Table)
    assert table.to_pydict() == {"k": ["a", "b", "a", "b"], "v": [2, 4, 6, 10]}


def columnar_expected() -> Expected:
    stream = m.epochs([[("a", 1), ("b", 2), ("a", 3)], [("b", 5)]])
    return {
        "sums": m.collected(stream, first, second, lambda vs: 4 * sum(vs)),
        "back": m.collected(stream, lambda r: r[0].upper(), lambda r: 2 * r[1] + 1, max),
        "rows": [(t, {"k": k, "v": v}) for t, (k, v) in stream if k == "a"],
    }


PROGRAMS = [
    Program("vertex-distinct-count", distinct_count, distinct_count_expected),
    Program("vertex-capabilities", capabilities, capabilities_expected),
    Program("vertex-end", end_vertex, end_vertex_expected),
    Program("vertex-reuses-lists", reuses, reuses_expected),
    Program("vertex-two-inputs", two_inputs, two_inputs_expected),
    Program("columnar", columnar, columnar_expected, check_columnar),
]
