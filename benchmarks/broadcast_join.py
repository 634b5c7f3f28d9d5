"""A join with a small side, with and without ``broadcast=True``: a large side in columns whose keys are all alike, and one of which one key
has nine of ten records.

Seconds, on Ray, by the clock of :mod:`benchmarks.clock`. Pairs are counted where they come out, so that nothing but the join is measured.
Without it both sides are exchanged by key: then one replica gets nine of ten records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks.clock import timed
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import compare, ours, ratios_of
from benchmarks.sources import Generated, in_one_epoch

TITLE = "Joins with a small side"
NEEDS_RAY = True
PARTS = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    rows: int = 4_000_000
    small_rows: int = 1_000
    batch_rows: int = 65_536
    replicas: int = 2
    timeout_s: float = 120.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=100_000, small_rows=100, batch_rows=8_192, timeout_s=60.0)


def batches_of(part: int, rows: int, small_rows: int, batch_rows: int, skewed: bool) -> Iterator[pa.RecordBatch]:
    """The large side; every key is in the small one."""
    for start in range(part * batch_rows, rows, PARTS * batch_rows):
        numbers = np.arange(start, min(rows, start + batch_rows))
        keys = (numbers * 2_654_435_761) % small_rows
        yield pa.record_batch({"key": np.where(numbers % 10 > 0, 0, keys) if skewed else keys, "n": numbers})


def counted(batch: Any) -> pa.RecordBatch:
    """How many pairs a batch has, and the sum of what both sides hold."""
    pairs = batch.column("pair").storage
    left, right = (pairs.field(side).field(name).to_numpy() for side, name in enumerate(("n", "value")))
    return pa.record_batch({"pairs": [len(left)], "sum": [int((left * right).sum() % (1 << 40))]})


def program(rows: int, small_rows: int, batch_rows: int, skewed: bool, broadcast: bool) -> rd.Dataflow:
    """The dataflow."""
    flow = rd.Dataflow("broadcast-join")
    large = flow.source(Generated(PARTS, lambda part: in_one_epoch(batches_of(part, rows, small_rows, batch_rows, skewed))), name="large")
    small = flow.from_arrow(pa.table({"key": np.arange(small_rows), "value": np.arange(small_rows) * 3 + 1}), name="small")
    joined = large.key_by("key").join(small.key_by("key"), broadcast=broadcast, name="joined")
    joined.map_batches(counted).collect("counts", columnar=True)
    return flow


def one(rows: int, small_rows: int, batch_rows: int, skewed: bool, broadcast: bool, replicas: int, **options: Any) -> dict[str, Any]:
    """One run."""

    def form(result: Any) -> list[int]:
        table = result["counts"]
        return [sum(table.column("pairs").to_pylist()), sum(table.column("sum").to_pylist()) % (1 << 40)]

    done = timed(lambda: program(rows, small_rows, batch_rows, skewed, broadcast), form, parallelism=replicas, **options)
    return {"seconds": done.seconds, "digest": done.value, "start_s": done.start_s}


def run(sizes: Sizes) -> Measurement:
    """Keys that are all alike, then a frequent one."""
    out = Measurement("broadcast_join", TITLE, asdict(sizes))
    aims = []
    for keys, skewed in (("keys all alike", False), ("one frequent key", True)):
        names = {broadcast: f"{'broadcast' if broadcast else 'by key'}, {keys}" for broadcast in (False, True)}
        shared = {name: getattr(sizes, name) for name in ("rows", "small_rows", "batch_rows", "replicas")}
        systems = [
            ours(name, "broadcast_join", {**shared, "skewed": skewed, "broadcast": broadcast}, timeout_s=sizes.timeout_s)
            for broadcast, name in names.items()
        ]
        compare(out, systems, repetitions=sizes.repetitions, what=f"both gave the same pairs, {keys}")
        aims.append((names[False], names[True], ""))
    out.ratios = ratios_of(out, aims)
    out.notes.append(f"Ray's workers and Rayad's driver run at nice {WORKER_NICE}, this process at {os.nice(0)}.")
    return out
