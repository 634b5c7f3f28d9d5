"""What the local runtime itself costs: small work, so that events, reports and channels are most of it.

Processor time of this process, since the runtime uses one core and waits for nothing. The best of a few runs in a row: the first ones load
code and fill caches. For another revision's: ``python -m benchmarks.versus REVISION local``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

import rayad as rd
from benchmarks.measurement import Measurement

TITLE = "What the local runtime costs"
NEEDS_RAY = False
WORDS = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    rows: int = 200_000
    epochs: int = 1_500
    stateful_epochs: int = 20
    chained_epochs: int = 200
    rounds: int = 300
    replicas: tuple[int, ...] = (1, 2, 4)
    runs: int = 5
    """In a row, of which the best counts."""


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=1_000, epochs=10, stateful_epochs=2, chained_epochs=3, rounds=5, replicas=(2,), runs=1)


class OneARound(rd.Vertex):
    """Counts numbers down, one notification a round."""

    def __init__(self) -> None:
        self.kept: dict[rd.Timestamp, list[int]] = {}

    def on_recv(self, edge: int, batch: Any, at: rd.Timestamp) -> None:
        if at not in self.kept:
            self.notify_at(at)
        self.kept.setdefault(at, []).extend(batch)

    def on_notify(self, at: rd.Timestamp) -> None:
        self.send_by(0, [number - 1 for number in self.kept.pop(at) if number > 0], at)


def sum_of_rows(sizes: Sizes) -> rd.Dataflow:
    """Python rows, one epoch."""
    flow = rd.Dataflow("rows")
    items = flow.from_items([f"w{i % WORDS}" for i in range(sizes.rows)]).map(lambda word: (word, 1))
    items.key_by(lambda pair: pair[0]).sum(lambda pair: pair[1]).collect("out")
    return flow


def sum_of_columns(sizes: Sizes) -> rd.Dataflow:
    """The same in columns."""
    flow = rd.Dataflow("columns")
    table = pa.table({"word": [f"w{i % WORDS}" for i in range(sizes.rows)], "one": [1] * sizes.rows})
    flow.from_arrow(table).key_by("word").sum("one").collect("out", columnar=True)
    return flow


def many_epochs(sizes: Sizes) -> rd.Dataflow:
    """Two records an epoch."""
    flow = rd.Dataflow("epochs")
    flow.from_epochs([[i % 7, i % 5] for i in range(sizes.epochs)]).key_by(lambda number: number).count().collect("out")
    return flow


def stateful(sizes: Sizes) -> rd.Dataflow:
    """A function and a state for each record."""
    flow = rd.Dataflow("stateful")
    words = [f"w{i % WORDS}" for i in range(2 * WORDS)]
    flow.from_epochs([words] * sizes.stateful_epochs).key_by(str).stateful_map(lambda n, word: (n + 1, word), 0).collect("out")
    return flow


def chain(sizes: Sizes) -> rd.Dataflow:
    """Eight exchanges, one record an epoch."""
    flow = rd.Dataflow("chain")
    stream: Any = flow.from_epochs([[i] for i in range(sizes.chained_epochs)])
    for _ in range(8):
        stream = stream.key_by(lambda number: number).stateful_map(lambda state, number: (0, number), 0)
    stream.collect("out")
    return flow


def loop(sizes: Sizes) -> rd.Dataflow:
    """A notification a round."""

    def body(inner: Any) -> tuple[Any, Any]:
        out = inner.rebalance().vertex(OneARound, name="each")
        return out, out.filter(lambda number: number == 0)

    flow = rd.Dataflow("loop")
    flow.from_items([sizes.rounds] * 4).iterate(body).collect("out")
    return flow


def tiny(sizes: Sizes) -> rd.Dataflow:
    """Three records: the beginning and the end of a job."""
    flow = rd.Dataflow("tiny")
    flow.from_items([1, 2, 3]).key_by(lambda number: number).count().collect("out")
    return flow


WORK: dict[str, Callable[[Sizes], rd.Dataflow]] = {
    "sum of rows": sum_of_rows,
    "sum of columns": sum_of_columns,
    "many epochs": many_epochs,
    "stateful_map": stateful,
    "chain of 8 exchanges": chain,
    "loop with a notification a round": loop,
    "a job of three records": tiny,
}


def once(build: Callable[[Sizes], rd.Dataflow], sizes: Sizes, replicas: int) -> float:
    """Milliseconds of the processor, the best of some runs."""
    best_s = float("inf")
    for _ in range(sizes.runs):
        flow, began_s = build(sizes), time.process_time()
        flow.run(runtime="local", parallelism=replicas, progress=False)
        best_s = min(best_s, time.process_time() - began_s)
    return 1e3 * best_s


def run(sizes: Sizes) -> Measurement:
    """All work with all numbers of replicas, in turn."""
    out = Measurement("local", TITLE, asdict(sizes))
    series = {(name, n): out.new_series(f"{name}, {n} replicas", "ms", "0") for name in WORK for n in sizes.replicas}
    for _ in range(sizes.repetitions):
        for (name, n), one in series.items():
            one.add(once(WORK[name], sizes, n))
    return out
