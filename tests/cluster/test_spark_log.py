"""Committed output as a stream of Spark's own file source: each row once, while the job runs, crashes and resumes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.cluster.spark_fixtures import spark
from tests.integrations.sparks_reader import names_listed

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
__all__ = ["spark"]

EPOCHS = [[(f"shop {(epoch * 31 + i * 3) % 5}", (epoch + i) % 90) for i in range(6)] for epoch in range(14)]


def sales(out: Path) -> rd.Dataflow:
    flow = rd.Dataflow("sales")
    totals = flow.input("orders").key_by(lambda order: order[0]).sum(lambda order: order[1], name="totals")
    rows = totals.map(lambda total: {"shop": total[0], "sold": total[1]})
    rows.write_parquet(str(out), spark_log=True, partition_by_epoch=True)
    return flow


def expected() -> Counter[tuple[str, int, int]]:
    sold: Counter[str] = Counter()
    out: Counter[tuple[str, int, int]] = Counter()
    for epoch, orders in enumerate(EPOCHS):
        for shop, amount in orders:
            sold[shop] += amount
        out.update((shop, sold[shop], epoch) for shop in {shop for shop, _ in orders})
    return out


def committed(out: Path) -> Counter[tuple[str, int, int]]:
    return Counter((row["shop"], row["sold"], row["epoch"]) for row in rd.read_committed(out).to_table().to_pylist())


def in_frame(frame: Any) -> Counter[tuple[str, int, int]]:
    return Counter((row["shop"], row["sold"], row["epoch"]) for row in frame.collect())


def test_a_spark_stream_and_a_query_read_what_is_committed_once(spark: Any, tmp_path: Path) -> None:
    out, copy = tmp_path / "out of Rayad", tmp_path / "copy"
    config = rd.RunConfig(storage_path=str(tmp_path / "jobs"), snapshots=rd.SnapshotConfig(interval_s=None))
    job = sales(out).submit(config, runtime="local", seed=3, parallelism=2)

    def follow() -> Any:
        stream = spark.readStream.schema("shop string, sold bigint, epoch int").parquet(str(out))
        return stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check")).start(str(copy))

    out.mkdir(exist_ok=True)
    query = follow()  # before there is any output
    live = job.input("orders")
    for commit, orders in enumerate(EPOCHS):
        live.send(orders)
        live.advance_to(commit + 1)
        while job.step():
            pass  # until all input is processed
        job.savepoint()
        if commit % 5 == 3:
            job.crash()
        if commit == 4:
            query.processAllAvailable()
            assert in_frame(spark.read.parquet(str(copy))) == committed(out)
            query.stop()
        if commit == 7:
            query = follow()
    first = out / names_listed(out)[0]
    shutil.copy(first, first.with_name("part-moved-but-not-committed.parquet"))
    assert in_frame(spark.read.parquet(str(out))) == committed(out)
    live.close()
    job.wait()
    query.processAllAvailable()
    query.stop()
    assert committed(out) == expected()
    assert in_frame(spark.read.parquet(str(copy))) == expected()
    whole = spark.read.parquet(str(out))
    assert in_frame(whole) == expected()
    assert sorted(Path(name).name for name in whole.inputFiles()) == sorted(Path(name).name for name in names_listed(out))
    assert (out / "_spark_metadata" / "9.compact").is_file()
