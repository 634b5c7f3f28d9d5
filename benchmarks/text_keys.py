"""Totals by keys that are texts, beside keys that are numbers, and Polars: ``python -m benchmarks.text_keys``.

A million keys, 200,000 rows an epoch of which 180,000 have different ones, 20 epochs. Rayad runs the whole dataflow in the local runtime
and gives the totals that change in each epoch; Polars, one thread, groups the rows of an epoch and joins them with the totals so far.
Printed are seconds, in turns, and the ratios of the medians.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import click
import numpy as np
import pyarrow as pa

KEYS = {"numbers": ["number"], "texts": ["user"], "a text and a number": ["user", "shop"]}


def table_of(keys: int, rows: int, epochs: int) -> pa.Table:
    """Rows of all epochs."""
    chance, parts = np.random.default_rng(1), []
    for epoch in range(epochs):
        numbers = chance.integers(0, keys, rows)
        columns = {"epoch": np.full(rows, epoch), "number": numbers, "user": [f"user-{number:08d}" for number in numbers.tolist()]}
        parts.append(pa.table({**columns, "shop": (numbers % 97).astype(np.int32), "v": chance.integers(0, 100, rows)}))
    return pa.concat_tables(parts)


def ours(table: pa.Table, by: list[str]) -> tuple[float, int]:
    """Seconds, and how many totals were given."""
    import rayad as rd

    given = [0]

    def count(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        given[0] += batch.num_rows
        return []

    flow = rd.Dataflow("text-keys")
    flow.from_arrow(table, epoch="epoch").key_by(by if len(by) > 1 else by[0]).sum("v").map_batches(count).collect("none")
    began_s = time.perf_counter()
    flow.run(runtime="local")
    return time.perf_counter() - began_s, given[0]


def theirs(table: pa.Table, by: list[str]) -> tuple[float, int]:
    """The same with Polars."""
    import polars as pl

    rows, given = pl.from_arrow(table), 0
    assert isinstance(rows, pl.DataFrame)
    epochs = rows.partition_by("epoch", maintain_order=True)
    began_s = time.perf_counter()
    totals = epochs[0].group_by(by).agg(pl.col("v").sum())
    given += len(totals)
    for epoch in epochs[1:]:
        come = epoch.group_by(by).agg(pl.col("v").sum())
        totals = totals.join(come, on=by, how="full", coalesce=True, suffix="_come")
        totals = totals.select(*by, (pl.col("v").fill_null(0) + pl.col("v_come").fill_null(0)).alias("v"))
        given += len(totals.join(come, on=by, how="semi"))
    return time.perf_counter() - began_s, given


@click.command()
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--rows", default=200_000, show_default=True, help="Of an epoch.")
@click.option("--epochs", default=20, show_default=True)
@click.option("--repetitions", default=3, show_default=True)
def main(keys: int, rows: int, epochs: int, repetitions: int) -> None:
    """Measure both, in turns."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    table = table_of(keys, rows, epochs)
    systems: dict[str, Callable[[pa.Table, list[str]], tuple[float, int]]] = {"Rayad": ours, "Polars": theirs}
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(repetitions):
        for kind, by in KEYS.items():
            given = set()
            for name, run in systems.items():
                seconds, totals = run(table, by)
                found.setdefault((kind, name), []).append(seconds)
                given.add(totals)
            assert len(given) == 1, f"the systems give different numbers of totals by {by}: {given}"
    for kind in KEYS:
        mine, others = (statistics.median(found[kind, name]) for name in systems)
        click.echo(f"{kind}: Rayad {mine:.2f} s, Polars {others:.2f} s: {mine / others:.2f} times as long")


if __name__ == "__main__":
    main()
