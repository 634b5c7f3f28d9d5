"""What collections keep over many epochs of as many insertions as removals: `python -m benchmarks.collection_memory [OPERATOR ...]
[--form rows|columns|both] [--records N] [--epochs N] [--changes N]`.

Whole programs in the local runtime, each in a process of its own. So many records are loaded; then in each epoch some go, the oldest first,
and as many come, with keys and values that have never been there. Printed are bytes a record of Python, numpy and Arrow (traced, less what
the process had before the job), and the megabytes of the process, when loaded and then ten times; and the most of the second half less
the most of the first, as bytes an epoch. All that a program keeps is in the bytes: the check of removals, the operator and the engine, but
not the caches of what was worked out for keys, which fill and are cleared again (``dataflow/records/remembered.py``): they are emptied
before each measurement.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from benchmarks.traced import Traced

GROUP = 4
"""Records of a key."""
PAGE_BYTES, MEBIBYTE = 4096, 1 << 20


def _keyed(records: rd.Collection) -> rd.KeyedCollection:
    return records.key_by("k")


def _reduced(key: Any, values: list[Any]) -> list[int]:
    return [sum(value["v"] for value in values)]


def _at(record: Any) -> Any:
    return record["k"]


def _turned(records: rd.Collection) -> rd.Collection:
    return records.select({"k": rd.col("v"), "v": rd.col("k")})


OPERATORS: dict[str, Callable[[rd.Collection], rd.Collection]] = {
    "join": lambda records: _keyed(records).join(_keyed(records.with_columns({"w": rd.col("v") + 1}))),
    "left join": lambda records: _keyed(records).join(_keyed(records.filter(pc.bit_wise_and(rd.col("v"), 1) == 0)), "left"),
    "count": lambda records: _keyed(records).count(),
    "sum": lambda records: _keyed(records).sum("v"),
    "distinct": lambda records: records.select("k").distinct(),
    "min": lambda records: _keyed(records).min("v"),
    "max": lambda records: _keyed(records).max("v"),
    "top_k": lambda records: _keyed(records).top_k(2, "v"),
    "reduce": lambda records: _keyed(records).reduce(_reduced),
    "window": lambda records: records.key_by("g").window(rd.windows.tumbling(8), "k").sum("v"),
    "window, lateness": lambda records: records.key_by("g").window(rd.windows.tumbling(8), "k", lateness=8).sum("v"),
    "as-of join, lateness": lambda records: records.key_by("g").join_asof(records.key_by("g"), "k", lateness=8),
    "iterate": lambda records: records.select("k", "v").iterate(lambda inner: inner.concat(_turned(inner)).distinct()),
}


class Sizes(NamedTuple):
    """What was measured, when loaded and then ten times."""

    bytes_a_record: list[float]
    process_mb: list[float]
    bytes_an_epoch: float
    took_s: float


def _batch(first: int, records: int, form: str) -> Any:
    numbers = np.arange(first, first + records)
    batch = pa.record_batch({"k": pa.array(numbers // GROUP), "g": pa.array(numbers // GROUP % 8), "v": pa.array(numbers)})
    return batch if form == "columns" else batch.to_pylist()


def measured(operator: str, form: str, records: int, epochs: int, changes: int) -> Sizes:
    """Run one operator, in one form."""
    sizes: list[float] = []
    process: list[float] = []
    with Traced(forgets=True) as traced:
        run(operator, form, 10, 3, 1, lambda epoch: None)  # what is imported and made once is no record's
        traced.begin()
        began = time.process_time()

        def measure(epoch: int) -> None:
            if epoch % (epochs // 10) == 0:
                sizes.append(traced.bytes() / records)
                process.append(int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES / MEBIBYTE)

        run(operator, form, records, epochs, changes, measure)
    grown = (max(sizes[6:]) - max(sizes[1:6])) * records / (epochs / 2)
    return Sizes(sizes, process, grown, time.process_time() - began)


def run(operator: str, form: str, records: int, epochs: int, changes: int, ended: Callable[[int], None]) -> None:
    """A program of one operator; ``ended`` is told of each epoch that is complete."""
    flow = rd.Dataflow("memory")
    OPERATORS[operator](flow.collection("records")).subscribe(_nothing, name="seen").changes().probe("probe")
    job = flow.submit(runtime="local", parallelism=1)
    given, probe = job.collection("records"), job.probe("probe")
    given.insert(_batch(0, records, form))
    for epoch in range(epochs + 1):
        if epoch:
            at = (epoch - 1) * changes
            given.remove(_batch(at, changes, form))
            given.insert(_batch(at + records, changes, form))
        given.advance_to(epoch + 1)
        probe.wait(epoch)
        ended(epoch)
    given.close()
    job.wait()


def _quiet() -> None:
    logging.getLogger("rayad").setLevel(logging.ERROR)


def _nothing(epoch: int, changes: Any) -> None:
    """The callback of a subscription."""


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.collection_memory", description="Memory of collections over many epochs")
    asked.add_argument("operators", nargs="*", metavar="OPERATOR", help=f"of {', '.join(OPERATORS)}; by default all")
    asked.add_argument("--form", choices=["rows", "columns", "both"], default="both")
    for name, default in (("records", 2_000), ("epochs", 100_000), ("changes", 1)):
        asked.add_argument(f"--{name}", type=int, default=default)
    given = asked.parse_args()
    unknown = [name for name in given.operators if name not in OPERATORS]
    if unknown or given.epochs < 10:
        asked.error(f"there are no operators {unknown}: give some of {', '.join(OPERATORS)}" if unknown else "give at least 10 --epochs")
    print(f"{given.records:,} records, {given.epochs:,} epochs of {given.changes:,} removals and as many insertions")
    print("operator (form): bytes a record, when loaded and then ten times | MiB of the process | bytes an epoch that it grows")
    spawned = multiprocessing.get_context("spawn")
    for operator in given.operators or OPERATORS:
        for form in ("rows", "columns") if given.form == "both" else (given.form,):
            with ProcessPoolExecutor(1, spawned, _quiet) as alone:
                sizes = alone.submit(measured, operator, form, given.records, given.epochs, given.changes).result()
            record, process = (" ".join(f"{size:.0f}" for size in some) for some in sizes[:2])
            print(f"{operator} ({form}): {record} | {process} | {sizes.bytes_an_epoch:+.2f}, {sizes.took_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
