"""Queries of a running job, `job.sql`, over a million running sums: `python -m benchmarks.queries [--keys N] [--replicas N]`.

One query reads the whole table; the others compare its key with literals, and are measured as they are, and with the table read whole, in
turns. Printed are milliseconds, medians, in the local runtime: reads on Ray add a round trip (`python -m benchmarks.reads`).
"""

from __future__ import annotations

import statistics
import time
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa

import rayad as rd
from rayad.dataflow import hooks

QUERIES = (
    "select count(*) as n, sum(sum) as total from sums",
    "select sum from sums where key = 'key-77'",
    "select key, sum from sums where key in ('key-77', 'key-5', 'key-123') and sum > 100",
    "select a.sum, n.name from sums a join names n on n.key = a.key where n.key = 'key-9'",
)


@click.command()
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--replicas", default=2, show_default=True)
@click.option("--repetitions", default=5, show_default=True)
def main(keys: int, replicas: int, repetitions: int) -> None:
    """Measure each."""
    names = [f"key-{at}" for at in range(keys)]
    flow = rd.Dataflow("queries")
    given = flow.input("in").map_batches(lambda batch: batch, schema=pa.schema([("key", pa.string()), ("value", pa.int64())]))
    given.key_by("key").sum("value", name="sums").map_batches(lambda batch: []).collect("none")
    given.with_columns({"name": rd.col("key")}).as_collection(key="key", name="names")
    job = flow.submit(runtime="local", parallelism=replicas)
    job.input("in").send(pa.record_batch({"key": names, "value": np.arange(keys)}))
    job.input("in").advance_to(1)
    for query in QUERIES:
        as_asked: list[float] = []
        whole: list[float] = []
        expected = job.sql(query, fresh=True)  # the first one learns the columns
        for _ in range(repetitions):
            for seconds, is_whole in ((as_asked, False), (whole, True)):
                with patch.dict(hooks._hooks, {"keys_of_query": lambda *_: {}} if is_whole else {}):
                    began_s = time.perf_counter()
                    found = job.sql(query)
                    seconds.append(time.perf_counter() - began_s)
                assert found.equals(expected)
        told = [f"{1e3 * statistics.median(each):8.1f}" for each in (as_asked, whole)]
        click.echo(f"{told[0]} ms, tables read whole {told[1]} ms: {query}")


if __name__ == "__main__":
    main()
