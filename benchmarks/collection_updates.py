"""Updates of collections in bulk: `python -m benchmarks.collection_updates [--columns] [--keys N] [--changes N] [--epochs N]
[--repetitions N]`.

A vertex without an engine: so many keys are loaded in one epoch, then epochs of so many changes follow; microseconds of a processor a
change, for joins, count, distinct and others, in columns and in rows, beside the bare runs, which search for the keys of an epoch in what
they keep and add its rows. With ``--columns`` that is all, in columns alone.
Then whole programs in one process of the local runtime: counts by key with and without the check that what is removed was there, and what
that check keeps; an edge that is inserted and removed again at the root of ten rounds of reachability. Then what a record takes while in
each epoch as many go as come. All figures are of one process and one run, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks.traced import Traced
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import VertexContext, begin
from rayad.incremental import functions, ranking
from rayad.incremental.columns import ordered
from rayad.incremental.columns.form import changes as changes_of
from rayad.incremental.columns.form import keyed_changes
from rayad.incremental.columns.linear import Counted, Summed
from rayad.incremental.columns.linear import Present as AnyPresent
from rayad.incremental.inputs.sources import Present
from rayad.incremental.joins.join import Join
from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.reducing import Reduce, distinct
from rayad.incremental.steps import Field
from rayad.progress import Timestamp

MICRO = 1e6
Update = Callable[[int, Any], None]
"""Takes the changes of an epoch in."""


class Alone(VertexContext):
    """A vertex's surroundings: what it sends is dropped."""

    name, replica, parallelism, key_groups = "alone", 0, 1, 256

    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        """See there."""

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """See there."""


def of_vertex(make: Callable[[], MomentVertex], *ports: int) -> tuple[Update, Update]:
    """What loads a vertex, by all these ports, and what then takes the changes of an epoch by the first."""
    vertex = make()
    begin(vertex, Alone())

    def load(epoch: int, batch: Any) -> None:
        for port in ports:
            vertex.on_recv(port, batch, Timestamp(epoch))
        vertex.on_notify(Timestamp(epoch))

    def update(epoch: int, batch: Any) -> None:
        vertex.on_recv(ports[0], batch, Timestamp(epoch))
        vertex.on_notify(Timestamp(epoch))

    return load, update


def of_runs() -> tuple[Update, Update]:
    """The bare runs: sorted, searched for the keys that change, and added to."""
    runs = Runs(1)

    def update(epoch: int, batch: pa.RecordBatch) -> None:
        (run,) = runs.arranged(runs.read(batch))
        for found, rows in runs.having(np.unique(run.place)):
            found.rows.take(pa.array(rows))
        runs.add([run])

    return update, update


def batches(keys: int, changes: int, epochs: int, *, by_record: bool) -> Iterator[pa.RecordBatch]:
    """All keys, then in each epoch the removal of what half as many random keys have, and an insertion for each."""
    chance = np.random.default_rng(7)
    values = np.zeros(keys, np.int64)
    numbers = np.arange(keys)

    def batch(of: Any, value: Any, weights: Any) -> pa.RecordBatch:
        if by_record:
            record = pa.StructArray.from_arrays([pa.array(of), pa.array(value)], names=["k", "v"])
            return keyed_changes(record, pa.nulls(len(of)), weights)
        return keyed_changes(pa.array(of), pa.StructArray.from_arrays([pa.array(of), pa.array(value)], names=["k", "v"]), weights)

    yield batch(numbers, values.copy(), np.ones(keys, np.int64))  # Arrow does not copy, and values change below
    for _ in range(epochs):
        some = chance.choice(keys, changes // 2, replace=False)
        before = values[some].copy()
        values[some] += 1
        weights = np.repeat([-1, 1], changes // 2)
        yield batch(np.concatenate([some, some]), np.concatenate([before, values[some]]), weights)


def of_floats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same changes, the values tenths."""
    keys, record, weights = batch.columns
    value = pa.array(record.field(1).to_numpy() + 0.1)
    return keyed_changes(keys, pa.StructArray.from_arrays([record.field(0), value], names=["k", "v"]), weights)


def counted_batches(keys: int, changes: int, epochs: int) -> Iterator[pa.RecordBatch]:
    """All keys, then in each epoch a record more of so many of them."""
    chance = np.random.default_rng(7)
    for some in (np.arange(keys), *(chance.choice(keys, changes, replace=False) for _ in range(epochs))):
        record = pa.StructArray.from_arrays([pa.array(some)], names=["k"])
        yield keyed_changes(pa.array(some), record, np.ones(len(some), np.int64))


def measured(load: Update, update: Update, some: list[Any]) -> tuple[float, float]:
    """Seconds of a processor of loading, and of an epoch, the mean: merges of runs count."""
    began = time.process_time()
    load(0, some[0])
    loaded = time.process_time() - began
    times = []
    for epoch, batch in enumerate(some[1:], 1):
        began = time.process_time()
        update(epoch, batch)
        times.append(time.process_time() - began)
    return loaded, statistics.mean(times)


def bulk(keys: int, changes: int, epochs: int, repetitions: int, *, in_rows: bool = True) -> None:
    """Print microseconds of a processor a change; ``in_rows``: of rows, too."""
    replaced = list(batches(keys, changes, epochs, by_record=False))
    records = list(batches(keys, changes, epochs, by_record=True))
    counted = list(counted_batches(keys, changes, epochs))
    tenths = list(map(of_floats, replaced))
    summed = functions.total, functions.Added(Field("v"))
    function, in_columns = ranking.numbered("v", False, "row_number")
    numbered = function, None, in_columns
    makers: list[tuple[str, Callable[[], tuple[Update, Update]], list[Any]]] = [
        ("bare runs", of_runs, replaced),
        ("join, columns", lambda: of_vertex(Join, 0, 1), replaced),
        ("count, columns", lambda: of_vertex(lambda: Reduce(functions.count, functions.one, Counted()), 0), counted),
        ("distinct, columns", lambda: of_vertex(lambda: Reduce(distinct, None, AnyPresent()), 0), records),
        ("check, columns", lambda: of_vertex(Present, 0), records),
        ("left join, columns", lambda: of_vertex(lambda: Join("left"), 0, 1, 2), replaced),
        ("semi join, columns", lambda: of_vertex(lambda: Join("semi"), 0, 1), replaced),
        ("sum, columns", lambda: of_vertex(lambda: Reduce(*summed, Summed("v")), 0), replaced),
        ("sum of floats, columns", lambda: of_vertex(lambda: Reduce(*summed, Summed("v")), 0), tenths),
        ("min, columns", lambda: of_vertex(lambda: Reduce(functions.Best(min, Field("v")), None, ordered.Best(False, "v")), 0), replaced),
        ("row_number, columns", lambda: of_vertex(lambda: Reduce(*numbered), 0), replaced),
        ("sum of floats, rows", lambda: of_vertex(lambda: Reduce(*summed), 0), list(map(to_rows, tenths)) if in_rows else []),
        ("join, rows", lambda: of_vertex(Join, 0, 1), [to_rows(batch) for batch in replaced]),
        ("count, rows", lambda: of_vertex(lambda: Reduce(functions.count, functions.one), 0), [to_rows(batch) for batch in counted]),
        ("distinct, rows", lambda: of_vertex(lambda: Reduce(distinct), 0), [to_rows(batch) for batch in records]),
        ("check, rows", lambda: of_vertex(Present, 0), [to_rows(batch) for batch in records]),
    ]
    makers = [maker for maker in makers if in_rows or not maker[0].endswith("rows") or maker[0] == "bare runs"]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in makers}
    for _ in range(repetitions):
        for name, make, some in makers:
            found[name].append(measured(*make(), some))
    bare = statistics.median(update for _, update in found["bare runs"])
    said = f"microseconds of a processor a change, median of {repetitions} runs in turns"
    print(f"{keys:,} keys loaded, then {epochs} epochs of {changes:,} changes; {said}")
    for name, times in found.items():
        loaded, update = (statistics.median(some) for some in zip(*times, strict=True))
        each = update / changes * MICRO
        print(f"  {name:22} load {loaded / keys * MICRO:6.2f}   update {each:6.2f}   {update / bare:6.2f} times the bare runs")


def checking(keys: int, changes: int, epochs: int, repetitions: int) -> None:
    """Print how much longer a program takes that counts by key where each removal is looked up."""
    records = list(batches(keys, changes, epochs, by_record=True))
    for form in ("columns", "rows"):
        given = [changed(batch) if form == "columns" else to_rows(changed(batch)) for batch in records]
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(repetitions):
            for checked, times in seconds.items():
                flow = rd.Dataflow("checking")
                rd.Collection(flow.input("changes"), checked=checked).select("k").key_by("k").count().changes().probe("seen").collect("out")
                job = flow.submit(runtime="local", parallelism=1)
                for epoch, some in enumerate(given):
                    if epoch == 1:
                        began = time.perf_counter()
                    job.input("changes").send(some)
                    job.input("changes").advance_to(epoch + 1)
                    job.probe("seen").wait(epoch)
                times.append(time.perf_counter() - began)
                job.input("changes").close()
                job.wait()
        plain, checked_s = (statistics.median(seconds[checked]) / epochs / changes * MICRO for checked in (False, True))
        print(f"  counts by key, {form:8} {plain:6.2f} us a change, with removals checked {checked_s:6.2f}: {checked_s / plain:5.2f} times")


def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records that came as keys, as a stream of changes has them."""
    return changes_of(batch.column(0), batch.column(2))


def rounds(edges: int, epochs: int) -> None:
    """Print how long an epoch takes in which an edge comes or goes that ten rounds of reachability follow from."""
    for form in ("columns", "rows"):
        times = sorted(_reach(edges, epochs, form))
        middle = statistics.median(times)
        print(f"  reachability through ten rounds, one edge, {form:8} {middle * 1e3:6.2f} ms in the median, {times[-1] * 1e3:6.2f} at most")


def _reach(edges: int, epochs: int, form: str) -> list[float]:
    chance = np.random.default_rng(5)
    chain = [{"src": -i, "dst": -i - 1, "diff": 1} for i in range(1, 10)]
    sources, targets = chance.integers(1, edges, edges), chance.integers(1, edges, edges)
    first = [*chain, *({"src": s, "dst": d, "diff": 1} for s, d in zip(sources.tolist(), targets.tolist(), strict=True))]
    flow = rd.Dataflow(f"reach-{form}")
    graph = flow.input("edges").as_collection(diff="diff")
    roots = flow.from_items([{"node": 0}]).as_collection() if form == "rows" else flow.from_arrow(pa.table({"node": [0]})).as_collection()

    def further(inner: rd.Collection) -> rd.Collection:
        ends = inner.key_by("node").join(graph.key_by("src")).select({"node": rd.col("1", "1", "dst")})
        return ends.concat(roots).distinct()

    roots.iterate(further).changes().probe("seen").collect("reached")
    job = flow.submit(runtime="local", parallelism=1)
    given = job.input("edges")

    def send(rows: list[dict[str, int]]) -> None:
        given.send(pa.RecordBatch.from_pylist(rows) if form == "columns" else rows)

    times = []
    send([*first, {"src": 0, "dst": -1, "diff": 1}])
    for epoch in range(epochs + 1):
        began = time.perf_counter()
        given.advance_to(epoch + 1)
        job.probe("seen").wait(epoch)
        times.append(time.perf_counter() - began)
        send([{"src": 0, "dst": -1, "diff": 1 if epoch % 2 else -1}])
    given.close()
    job.wait()
    return times[1:]


def flat(keys: int, epochs: int) -> None:
    """Print what a record takes: when all are loaded, and while in each epoch as many go as come."""
    with Traced() as traced:
        for name, make, by_record in (
            ("join, one side", Join, False),
            ("distinct", lambda: Reduce(distinct, None, AnyPresent()), True),
            ("check", Present, True),
        ):
            vertex: Any = make()
            begin(vertex, Alone())
            some = enumerate(batches(keys, keys // 50, epochs, by_record=by_record))
            sizes = []
            batch = None
            traced.begin()
            for epoch, batch in some:
                vertex.on_recv(0, batch, Timestamp(epoch))
                vertex.on_notify(Timestamp(epoch))
                batch = None
                if epoch % max(1, epochs // 5) == 0:
                    sizes.append(traced.bytes() / keys)
            told = ", ".join(f"{size:.0f}" for size in sizes)
            print(f"  {name:18} {keys:,} records, {epochs:,} epochs of {keys // 50:,} changes: bytes a record, from time to time: {told}")


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description="Updates of collections in bulk")
    for name, default in (("keys", 1_000_000), ("changes", 20_000), ("epochs", 20), ("repetitions", 3), ("edges", 100_000)):
        asked.add_argument(f"--{name}", type=int, default=default)
    asked.add_argument("--columns", action="store_true", help="updates in bulk, in columns alone")
    given = asked.parse_args()
    bulk(given.keys, given.changes, given.epochs, given.repetitions, in_rows=not given.columns)
    if given.columns:
        return
    checking(given.keys // 10, given.changes // 10, given.epochs, given.repetitions)
    rounds(given.edges, 40)
    flat(given.keys // 10, 1_000)


if __name__ == "__main__":
    main()
