"""Columnar rows through source, map_batches, key exchange, keyed sum and sink, beside pyarrow doing the same in one process.

It also shows that no Python object is made per row. The same program runs in the local runtime with small and with large
batches, the same number of them and with the same keys. Every call and return of a Python function, and every call of a C
function, is counted, and the blocks of Python's allocator are counted at each. Neither count may grow with the rows. The control is a
program that does make objects per row: with it, both must grow.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from benchmarks.machine import WORKER_NICE, in_process, settle
from benchmarks.measurement import Measurement, Ratio
from benchmarks.sources import Generated, in_one_epoch

TITLE = "A keyed sum over columns"
NEEDS_RAY = True
PARTS = 2
FAR = 1 << 40
"""The first key and value: Python caches small integers, which would hide new objects."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    rows: int = 10_000_000
    keys: int = 1_000
    batch_rows: int = 65_536
    replicas: int = 2
    object_batches: int = 8
    object_rows: tuple[int, int] = (1_000, 64_000)
    control_rows: tuple[int, int] = (500, 4_000)


FULL = Sizes()
QUICK = Sizes(
    repetitions=2, rows=200_000, keys=100, batch_rows=8_192, object_batches=4, object_rows=(500, 8_000), control_rows=(250, 2_000)
)


def batches_of(part: int, sizes: Sizes) -> Iterator[pa.RecordBatch]:
    """The rows of one part: two columns of integers, made on the fly."""
    share = sizes.rows // PARTS
    end = sizes.rows if part == PARTS - 1 else (part + 1) * share
    for start in range(part * share, end, sizes.batch_rows):
        numbers = np.arange(start, min(end, start + sizes.batch_rows), dtype=np.int64)
        yield pa.record_batch({"key": FAR + (numbers * 2_654_435_761) % sizes.keys, "value": FAR + (numbers & 1023)})


def prepare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Some arithmetic on a whole column, the same for all compared systems."""
    return pa.RecordBatch.from_arrays([batch.column(0), pc.subtract(batch.column(1), FAR)], names=["key", "value"])


def columns(sizes: Sizes) -> rd.Source:
    """All parts of the rows."""
    return Generated(PARTS, lambda part: in_one_epoch(batches_of(part, sizes)))


class Adder(rd.Vertex):
    """A user's own keyed sum, in pyarrow."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def on_recv(self, edge: int, batch: Any, at: rd.Timestamp) -> None:
        if not self.batches:
            self.notify_at(at)
        self.batches.append(pa.RecordBatch.from_arrays(sums_of([batch], threads=False).columns, names=["key", "value"]))

    def on_notify(self, at: rd.Timestamp) -> None:
        self.send_by(0, sums_of(self.batches, threads=False), at)


def program(sizes: Sizes, *, combined: bool = True) -> rd.Dataflow:
    """The dataflow: with the operator ``sum``, which adds up each batch before the exchange, or with a vertex to which every row is
    sent."""
    flow = rd.Dataflow("columns")
    rows = flow.source(columns(sizes), name="columns").map_batches(prepare).key_by("key")
    totals = rows.sum("value", name="sum") if combined else rows.vertex(Adder, name="adder")
    totals.collect("totals", columnar=True)
    return flow


def row_program(sizes: Sizes) -> rd.Dataflow:
    """The control: the same with a Python function for each row."""
    flow = rd.Dataflow("columns-as-rows")
    rows = flow.source(columns(sizes), name="columns").map(_as_pair)
    rows.key_by(_key).sum(name="sum").collect("totals")
    return flow


def _as_pair(row: dict[str, int]) -> tuple[int, int]:
    return row["key"], row["value"] - FAR


def _key(pair: tuple[int, int]) -> int:
    return pair[0]


def run_once(sizes: Sizes, *, combined: bool, **options: Any) -> tuple[pa.Table, Any]:
    """The totals, and the statistics of the run."""
    result = program(sizes, combined=combined).run(parallelism=sizes.replicas, **options)
    return result["totals"], result.statistics


def sums_of(batches: list[pa.RecordBatch], *, threads: bool) -> pa.RecordBatch:
    """pyarrow's own keyed sum, as one batch."""
    sums = pa.Table.from_batches(batches).group_by("key", use_threads=threads).aggregate([("value", "sum")])
    return sums.select(["key", "value_sum"]).rename_columns(["key", "value"]).combine_chunks().to_batches()[0]


def plain(sizes: Sizes, *, threads: bool) -> pa.RecordBatch:
    """The same in one process, as a user would write it."""
    return sums_of([prepare(batch) for part in range(PARTS) for batch in batches_of(part, sizes)], threads=threads)


def digest(totals: Any) -> list[int]:
    """Number of keys and one number for all totals; names of columns do not matter."""
    keys, values = (totals.column(i).to_numpy() for i in range(2))
    return [len(keys), int(((keys - FAR + 1) * values).sum())]


# -- no object per row -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Objects:
    """Counts of a run: calls, and the largest number of additional allocator blocks at any of them."""

    calls: int
    blocks_peak: int


def count_objects(run_program: Callable[[], Any]) -> Objects:
    """Run a program; count calls, and allocator blocks at each."""
    calls = peak = 0
    allocated = sys.getallocatedblocks

    def look(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls, peak
        if event in ("call", "c_call"):
            calls += 1
            return
        blocks = allocated()
        if blocks > peak:
            peak = blocks

    gc.collect()
    gc.disable()
    before = allocated()
    sys.setprofile(look)
    try:
        run_program()
    finally:
        sys.setprofile(None)
        gc.enable()
    return Objects(calls, max(0, peak - before))


def measure_objects(sizes: Sizes, out: Measurement) -> dict[str, tuple[Objects, Objects]]:
    """The columnar program and the control, with small and with large batches; a first run of each lets Python fill its caches."""
    programs: dict[str, tuple[Callable[[Sizes], rd.Dataflow], tuple[int, int]]] = {
        "columns": (program, sizes.object_rows),
        "control: a function for each row": (row_program, sizes.control_rows),
    }
    table = out.new_table("Python objects in the local runtime", "program", "rows", "batches", "calls", "blocks at most", "blocks a row")
    found: dict[str, tuple[Objects, Objects]] = {}
    for name, (make, by_batch) in programs.items():
        counted = []
        for batch_rows in by_batch:
            rows = batch_rows * sizes.object_batches
            here = replace(sizes, rows=rows, batch_rows=batch_rows)
            make(here).run(runtime="local", parallelism=sizes.replicas)
            flow = make(here)
            objects = count_objects(lambda flow=flow: flow.run(runtime="local", parallelism=sizes.replicas))  # type: ignore[misc]
            table.add(name, rows, sizes.object_batches, objects.calls, objects.blocks_peak, round(objects.blocks_peak / rows, 5))
            counted.append(objects)
        found[name] = (counted[0], counted[1])
    check_objects(found, sizes, out)
    return found


def check_objects(found: dict[str, tuple[Objects, Objects]], sizes: Sizes, out: Measurement) -> None:
    """Check the growth from small to large batches: less than one object or call for a hundred more rows, except in the control."""
    for name, (small, large) in found.items():
        by_batch = sizes.object_rows if name == "columns" else sizes.control_rows
        rows = sizes.object_batches * (by_batch[1] - by_batch[0])
        grows_calls, grows_blocks = large.calls - small.calls > rows / 100, large.blocks_peak - small.blocks_peak > rows / 100
        if name == "columns":
            out.check("columns: neither calls nor objects grow with the rows", (grows_calls, grows_blocks), (False, False))
        else:
            out.check("the control's objects and calls do grow with the rows", (grows_calls, grows_blocks), (True, True))


# -- time ----------------------------------------------------------------------------------------------
def run(sizes: Sizes) -> Measurement:
    """Both programs and pyarrow, with one thread and with its default number, at two priorities, interleaved."""
    out = Measurement("columns", TITLE, asdict(sizes))
    own = os.nice(0)
    peers = {
        (threads, nice): out.new_series(f"pyarrow, {'all threads' if threads else 'one thread'}, nice {nice}", "rows/s", str(nice))
        for threads in (False, True)
        for nice in dict.fromkeys((own, WORKER_NICE))
    }
    operator = out.new_series(f"Rayad sum, {sizes.replicas} replicas", "rows/s", str(WORKER_NICE))
    vertex = out.new_series(f"Rayad every row exchanged, {sizes.replicas} replicas", "rows/s", str(WORKER_NICE))
    few = out.new_series("Rayad sum, two batches only: what a run costs however few rows", "s", str(WORKER_NICE))
    wanted = digest(plain(sizes, threads=True))

    def peer(threads: bool, nice: int) -> tuple[list[int], float]:
        told = in_process("columns", json.dumps(asdict(sizes)), json.dumps(threads), nice=nice)
        return told["digest"], told["seconds"]

    def rayad(combined: bool) -> tuple[list[int], float]:
        totals, statistics = run_once(sizes, combined=combined)
        return digest(totals), statistics.run_s

    todo = [(series, partial(peer, threads, nice)) for (threads, nice), series in peers.items()]
    todo += [(operator, partial(rayad, True)), (vertex, partial(rayad, False))]
    for repetition in range(sizes.repetitions):
        for series, measure in todo if repetition % 2 == 0 else reversed(todo):
            settle()
            found, seconds = measure()
            out.check("pyarrow and both programs gave the same totals", found, wanted)
            series.add(sizes.rows / seconds)
        settle()
        few.add(run_once(replace(sizes, rows=2 * sizes.batch_rows), combined=True)[1].run_s)
    out.ratios = [Ratio(ours.name, series.name) for ours in (operator, vertex) for series in peers.values()]
    measure_objects(sizes, out)
    return out


def main() -> None:
    """The pyarrow peer: sizes and threads as JSON in, seconds and digest as JSON out."""
    sizes = Sizes(**json.loads(sys.argv[1]))
    plain(replace(sizes, rows=2 * sizes.batch_rows), threads=True)  # what pyarrow loads at first use does not count
    began = time.perf_counter()
    totals = plain(sizes, threads=json.loads(sys.argv[2]))
    print(json.dumps({"seconds": time.perf_counter() - began, "digest": digest(totals)}))


if __name__ == "__main__":
    main()
