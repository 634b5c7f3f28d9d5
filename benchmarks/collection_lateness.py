"""What collections take that forget by a lateness: `python -m benchmarks.collection_lateness [--keys N] [--changes N] [--epochs N]
[--lateness N] [--repetitions N]`.

Each is a vertex without an engine, in rows and in columns, in turns in one process. In each epoch so many records come at the next event
time, of random ones of so many keys, and event time goes on; so what is over goes in each. Prints microseconds of a processor a change, the
mean of the epochs in which as much goes as comes, and how many rows are kept in the end.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.collection_updates import MICRO, Alone
from rayad.dataflow import windows
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.values import tuple_array, windows_of
from rayad.dataflow.vertex import begin
from rayad.incremental import functions
from rayad.incremental.columns.form import keyed_changes
from rayad.incremental.columns.linear import Summed
from rayad.incremental.event_time import columns, limits
from rayad.incremental.event_time.ending import EndingJoin, EndingReduce, KeysEnd, NeedingReduce, window_end
from rayad.incremental.event_time.functions import Latest, Sessions
from rayad.incremental.event_time.operators import LastMeeting
from rayad.incremental.event_time.telling import OnTime, key_of_each_group
from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.records import as_record
from rayad.incremental.steps import Field
from rayad.progress import Timestamp

SIZE = 10
"""Of windows, in epochs."""
AT = Field("at")
ASOF, GAP, WITHIN = windows.AsOf(None, True), windows.session(1), windows.between(-SIZE, 0)
ADDED = functions.total, functions.Added(Field("v"))


def vertices(lateness: int) -> dict[str, tuple[Callable[[], MomentVertex], Callable[[], MomentVertex], str]]:
    """By name: in rows alone, in columns, and what changes are like."""
    ends = [LastMeeting(AT, WITHIN.upper, 1), LastMeeting(AT, WITHIN.lower, -1)]
    in_columns = [limits.LastMeeting("at", WITHIN, is_left) for is_left in (True, False)]
    rule, latest, sessions = KeysEnd(lateness, window_end, limits.window_ends), Latest(ASOF, AT, AT, False), Sessions(GAP, AT)
    of: dict[str, tuple[Any, tuple[Any, ...], Any, str]] = {
        "on time": (OnTime, (lateness, AT), limits.TimeOf("at"), "plain"),
        "sum of windows": (EndingReduce, (rule, *ADDED), Summed("v"), "windows"),
        "interval join": (EndingJoin, ("inner", lateness, ends), in_columns, "plain"),
        "as-of join": (NeedingReduce, (lateness, latest), columns.Latest(ASOF, ("at", "at"), False), "sides"),
        "sessions": (NeedingReduce, (lateness, sessions), columns.Sessions(GAP, "at"), "plain"),
    }
    return {name: (partial(cls, *given), partial(cls, *given, more), kind) for name, (cls, given, more, kind) in of.items()}


def changes_of(kind: str, keys: int, changes: int, epochs: int) -> list[pa.RecordBatch]:
    """By epoch."""
    chance, out = np.random.default_rng(7), []
    for epoch in range(epochs):
        key, at = chance.integers(0, keys, changes), np.full(changes, epoch)
        record = pa.StructArray.from_arrays([pa.array(at), pa.array(np.arange(changes))], names=["at", "v"])
        of: Any = pa.array(key)
        if kind == "windows":
            start = at // SIZE * SIZE
            of = tuple_array([of, windows_of(pa.array(start), pa.array(start + SIZE))])
        if kind == "sides":
            sides = (record.take(pa.array(np.arange(changes), mask=np.arange(changes) % 2 == other)) for other in (1, 0))
            record = tuple_array(list(sides))
        out.append(keyed_changes(of, record, np.ones(changes, np.int64)))
    return out


def measured(make: Callable[[], MomentVertex], given: list[Any], changes: int, settled: int) -> tuple[float, int]:
    """Microseconds of a processor a change behind so many epochs, and what is kept in the end."""
    vertex: Any = make()
    begin(vertex, Alone())
    groups, seconds = key_of_each_group(Alone.key_groups), []
    *ports, told = range(vertex.inputs)
    for epoch, some in enumerate(given):
        began = time.process_time()
        for port in ports:
            vertex.on_recv(port, some, Timestamp(epoch))
        vertex.on_recv(told, [(key, epoch, 1) for key in groups], Timestamp(epoch))
        vertex.on_notify(Timestamp(epoch))
        seconds.append(time.process_time() - began)
    if isinstance(given[0], list):
        kept = sum(len(values) for part in vertex.kept().values() for values in part.before.kept.values())
    else:
        kept = sum(count for name, count in vertex.figures().items() if name.startswith("rows of"))
    return statistics.mean(seconds[settled:]) / changes / len(ports) * MICRO, kept


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description="Collections that forget by a lateness")
    for name, default in (("keys", 100_000), ("changes", 10_000), ("epochs", 60), ("lateness", 20), ("repetitions", 2)):
        asked.add_argument(f"--{name}", type=int, default=default)
    given = asked.parse_args()
    settled = min(given.epochs - 1, given.lateness + 2 * SIZE)
    print(
        f"{given.changes:,} changes an epoch of {given.keys:,} keys, lateness {given.lateness} epochs; microseconds of a processor a change"
    )
    for name, (of_rows, of_columns, kind) in vertices(given.lateness).items():
        batches = changes_of(kind, given.keys, given.changes, given.epochs)
        rows = [[tuple(map(as_record, row)) for row in to_rows(batch)] for batch in batches]
        found: dict[str, list[tuple[float, int]]] = {"rows": [], "columns": []}
        for _ in range(given.repetitions):
            found["rows"].append(measured(of_rows, rows, given.changes, settled))
            found["columns"].append(measured(of_columns, batches, given.changes, settled))
        (in_rows, kept), (in_columns, kept_rows) = (sorted(found[form])[len(found[form]) // 2] for form in ("rows", "columns"))
        ratio = in_rows / in_columns
        print(
            f"  {name:16} rows {in_rows:7.2f}   columns {in_columns:6.2f}   {ratio:5.1f} times   kept {kept:,} and {kept_rows:,}",
            flush=True,
        )


if __name__ == "__main__":
    main()
