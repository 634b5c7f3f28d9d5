"""A left join of collections that is loaded, beside Polars and DuckDB, and what is kept: `python -m benchmarks.collection_joins [--left N]
[--right N] [--repetitions N] [--epochs N]`.

Each left record has a key among twice as many as the right side has, so about half of them have a match. Nanoseconds of a processor for
each left record, threads included, in turns in one process, and how often those of the fastest. Rayad runs in its local runtime with one
replica, gets both sides in one epoch, and would follow changes from then on; the others see two tables. All give one digest. Then what a
record takes while in each of so many epochs one goes and one comes.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from benchmarks.collection_updates import Alone
from benchmarks.traced import Traced
from rayad.dataflow.vertex import begin
from rayad.incremental.columns.form import keyed_changes
from rayad.incremental.joins.join import Join
from rayad.progress import Timestamp

NANO = 1e9
Digest = tuple[int, int, int]
"""Rows, those with a match, and the sum of the right values."""


def tables(left: int, right: int) -> tuple[pa.Table, pa.Table]:
    """Records ``{"k", "v"}`` and ``{"k", "w"}``."""
    chance = np.random.default_rng(11)
    return (
        pa.table({"k": chance.integers(0, 2 * right, left), "v": np.arange(left)}),
        pa.table({"k": chance.permutation(2 * right)[:right], "w": np.arange(right)}),
    )


def by_rayad(left: pa.Table, right: pa.Table) -> Digest:
    """The program."""
    flow = rd.Dataflow("left-join")
    sides = [flow.input(name) for name in ("left", "right")]
    found: list[Digest] = []

    def keep(batch: Any) -> list[Any]:
        record = batch.column("record")
        weights = batch.column("diff").to_numpy()
        price = pc.fill_null(record.field("w"), 0).to_numpy()
        there = record.field("w").is_valid().to_numpy(zero_copy_only=False)
        found.append((int(weights.sum()), int(weights[there].sum()), int((weights * price).sum())))
        return []

    one, other = (side.as_collection() for side in sides)
    met = one.key_by("k").join(other.key_by("k"), "left").select({"w": rd.col("1", "1", "w")})
    met.stream.map_batches(keep).collect("nothing")
    job = flow.submit(runtime="local", parallelism=1)
    for name, table in (("right", right), ("left", left)):
        for batch in table.to_batches(max_chunksize=1 << 18):
            job.input(name).send(batch)
    for name in ("right", "left"):
        job.input(name).close()
    job.wait()
    return tuple(map(sum, zip(*found, strict=True)))  # type: ignore[return-value]


def by_polars(left: pa.Table, right: pa.Table) -> Digest:
    """``join``."""
    met = pl.from_arrow(left).join(pl.from_arrow(right), on="k", how="left")  # type: ignore[union-attr,arg-type]
    return met.height, met.height - met["w"].null_count(), int(met["w"].sum())


def by_duckdb(left: pa.Table, right: pa.Table) -> Digest:
    """SQL, of which all rows come out."""
    with duckdb.connect() as base:
        base.register("a", left)
        base.register("b", right)
        met = base.sql("select a.k, a.v, b.w from a left join b using (k)").to_arrow_table()
    there = met.column("w")
    return met.num_rows, met.num_rows - there.null_count, int(pc.sum(there).as_py())


def loaded(left: int, right: int, repetitions: int) -> None:
    """Print processor times."""
    some = tables(left, right)
    systems: dict[str, Callable[[pa.Table, pa.Table], Digest]] = {"Rayad": by_rayad, "Polars": by_polars, "DuckDB": by_duckdb}
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(repetitions):
        digests = {}
        for name, run in systems.items():
            gc.collect()
            began = time.process_time()
            digests[name] = run(*some)
            times[name].append(time.process_time() - began)
        assert len(set(digests.values())) == 1, digests
    print(
        f"{left:,} records left-joined with {right:,}, loaded; nanoseconds of a processor a left record, median of {repetitions} in turns"
    )
    medians = {name: statistics.median(of) for name, of in times.items()}
    for name, median in medians.items():
        print(f"  {name:8} {median / left * NANO:8.0f} ns   {median / min(medians.values()):6.1f} times the fastest")


def flat(records: int, epochs: int) -> list[float]:
    """Bytes a record of both sides of a left join, from time to time, while in each epoch one record of a side goes and one comes."""
    with Traced() as traced:
        vertex = Join("left")
        begin(vertex, Alone())
        traced.begin()
        keys = np.arange(records)

        def changes(some: Any, values: Any, weights: Any) -> pa.RecordBatch:
            record = pa.StructArray.from_arrays([pa.array(some), pa.array(values)], names=["k", "v"])
            return keyed_changes(pa.array(some), record, np.array(weights))

        def send(epoch: int, *batches: tuple[int, pa.RecordBatch]) -> None:
            for port, batch in batches:
                vertex.on_recv(port, batch, Timestamp(epoch))
            vertex.on_notify(Timestamp(epoch))

        first = [changes(keys, keys * 0, np.ones(records, np.int64)) for _ in range(2)]
        there = keyed_changes(pa.array(keys), pa.nulls(records), np.ones(records, np.int64))
        send(0, (0, first[0]), (1, first[1]), (2, there))
        del first, there
        sizes = [traced.bytes() / (2 * records)]
        values = np.zeros((2, records), np.int64)
        for epoch in range(1, epochs + 1):
            side, key = epoch % 2, epoch % records
            was = int(values[side, key])
            values[side, key] = epoch
            send(epoch, (side, changes([key, key], [was, epoch], [-1, 1])))
            if epoch % max(1, epochs // 10) == 0:
                sizes.append(traced.bytes() / (2 * records))
    return sizes


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description="Left joins of collections")
    for name, default in (("left", 10_000_000), ("right", 1_000_000), ("repetitions", 3), ("records", 10_000), ("epochs", 100_000)):
        asked.add_argument(f"--{name}", type=int, default=default)
    given = asked.parse_args()
    if given.repetitions:
        loaded(given.left, given.right, given.repetitions)
    flat(100, 100)  # what is imported once is no record's
    told = ", ".join(f"{size:.0f}" for size in flat(given.records, given.epochs))
    print(f"{given.epochs:,} epochs of one removal and one insertion, both sides of a left join of {given.records:,} records each: bytes a")
    print(f"  record, with the keys of the right side, when loaded and then ten times: {told}")


if __name__ == "__main__":
    main()
