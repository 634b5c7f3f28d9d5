"""SparkSource on real Spark: values, epochs, resume, and the errors when something is wrong with Spark."""

from __future__ import annotations

import datetime
import pickle
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rayad.integrations import SparkSource
from rayad.integrations.spark.fit import SparkNeeds, explain_misfit
from rayad.integrations.spark.session import nodes_room, spark_session
from rayad.progress import ConfigError, DataflowError
from tests.cluster.spark_fixtures import TIMES_S, spark
from tests.integrations.driving import check_resume, drain
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
__all__ = ["spark"]

UTC = datetime.UTC
SCHEMA = (
    "b boolean, i8 tinyint, i16 smallint, i32 int, i64 long, f32 float, f64 double, s string, raw binary, day date, at timestamp, "
    "naive timestamp_ntz, amount decimal(20,3), words array<string>, point struct<x:int,y:array<double>>, tags map<string,int>, "
    "nothing void"
)
NAMES = ["b", "i8", "i16", "i32", "i64", "f32", "f64", "s", "raw", "day", "at", "naive", "amount", "words", "point", "tags", "nothing"]
FULL = (
    True, -128, -32768, -(2**31), -(2**63), 0.5, 1e300, "naïve ☃ \x00 end", b"\x00\xff", datetime.date(1969, 12, 31),
    datetime.datetime(2024, 11, 3, 5, 30, 0, 123456, tzinfo=UTC), datetime.datetime(2024, 3, 10, 2, 30, 0, 1),
    Decimal("12345678901234567.891"), ["a", None, ""], {"x": 1, "y": [0.25, None]}, {"k": 1, "n": None}, None,
)  # fmt: skip
EMPTY = (None,) * len(FULL)


def read_here(source: SparkSource) -> list[tuple[int, pa.RecordBatch]]:
    copy = pickle.loads(pickle.dumps(source))
    return [(b.epoch, b.batch) for part in source.list_parts() for b in drain(copy.build_part(part, None))]


def rows_of(source: SparkSource) -> list[dict[str, Any]]:
    return [row for _, batch in read_here(source) for row in batch.to_pylist()]


def test_each_type_of_value_survives_spark_to_arrow(spark: Any) -> None:
    started = time.perf_counter()
    source = SparkSource(spark.createDataFrame([FULL, EMPTY], SCHEMA))
    full, empty = rows_of(source)
    TIMES_S["first from_spark, 2 rows of 17 types"] = time.perf_counter() - started
    assert list(full) == NAMES
    for name, expected in zip(NAMES, FULL, strict=True):
        value = full[name]
        value = dict(value) if name == "tags" else value.astimezone(UTC) if name == "at" else value
        assert value == expected, name
    assert set(empty.values()) == {None}
    assert source.schema.field("naive").type == pa.timestamp("us")
    (_, batch), *_ = read_here(source)
    assert batch.schema.field("at").type.tz == "America/New_York"


def test_partitions_are_parts_and_resume_exactly(spark: Any) -> None:
    source = SparkSource(spark.range(0, 1000, 1, 4), batch_rows=100)
    parts = source.list_parts()
    assert [(p.number, p.rows, p.first_row) for p in parts] == [(0, 250, 0), (1, 250, 250), (2, 250, 500), (3, 250, 750)]
    assert [row["id"] for row in rows_of(source)] == list(range(1000))
    assert not source.interleave
    check_resume(source)


def test_parts_repartitions_and_empty_partitions_are_left_out(spark: Any) -> None:
    assert len(SparkSource(spark.range(0, 100, 1, 1), parts=3).list_parts()) == 3
    assert [p.number for p in SparkSource(spark.range(0, 100, 1, 4).where("id >= 50")).list_parts()] == [2, 3]
    assert rows_of(SparkSource(spark.range(0))) == []


def test_epochs_are_in_order_in_each_partition_and_resume_exactly(spark: Any) -> None:
    frame = spark.range(0, 500, 1, 3).selectExpr("int(pmod(id * 7919, 11)) as e", "id")
    source = SparkSource(frame, epoch="e", batch_rows=20)
    assert source.interleave
    seen = [(epoch, row["e"], row["id"]) for epoch, batch in read_here(source) for row in batch.to_pylist()]
    assert all(epoch == e for epoch, e, _ in seen)
    assert sorted(i for _, _, i in seen) == list(range(500))
    check_resume(source)


def test_epoch_columns_that_cannot_work_are_refused(spark: Any) -> None:
    frame = spark.range(5).selectExpr("id", "string(id) as s", "date '2024-01-01' as d", "if(id = 3, null, id) as n")
    for name, words in (("s", "type string"), ("d", "cast it first"), ("gone", "names 0 columns")):
        with pytest.raises(ConfigError, match=words):
            SparkSource(frame, epoch=name)
    with pytest.raises(DataflowError, match=r"from_spark: partition \d+: 1 of \d+ values of the epoch column 'n' are null"):
        read_here(SparkSource(frame, epoch="n"))


def test_a_streaming_frame_is_refused_with_the_way_in(spark: Any) -> None:
    with pytest.raises(ConfigError, match=r"SparkSource: this is a streaming DataFrame; use flow.from_spark\(df, checkpoint=...\)"):
        SparkSource(spark.readStream.format("rate").load())


def test_what_is_no_frame_or_lacks_an_arrow_type_or_repeats_a_name_is_refused(spark: Any) -> None:
    with pytest.raises(ConfigError, match=r"got a builtins.list; give a pyspark.sql.DataFrame"):
        SparkSource([1, 2])
    with pytest.raises(ConfigError, match=r"a type that PySpark does not know: .*interval"):
        SparkSource(spark.sql("select make_interval(1) as c"))
    with pytest.raises(ConfigError, match=r"column 'c' is of type interval year to month, which Arrow lacks"):
        SparkSource(spark.sql("select interval '1-2' year to month as c"))
    with pytest.raises(ConfigError, match=r"column names must differ, got \['id', 'id'\]"):
        SparkSource(spark.range(1).selectExpr("id", "id"))
    with pytest.raises(ConfigError, match="parts=0"):
        SparkSource(spark.range(1), parts=0)


def test_an_error_inside_spark_is_the_users(spark: Any) -> None:
    with pytest.raises(DataflowError, match="Spark could not compute the DataFrame"):
        SparkSource(spark.range(3).selectExpr("raise_error('boom')")).list_parts()


def test_a_partition_of_nothing_but_nulls_arrives(spark: Any) -> None:
    """Regression: Ray cannot serialize the table that Spark writes for it, because an empty list of strings has no offsets."""
    source = SparkSource(spark.createDataFrame([EMPTY], SCHEMA).coalesce(1))
    assert [set(row.values()) for row in rows_of(source)] == [{None}]


def test_a_lost_block_names_its_partition(spark: Any) -> None:
    import ray

    class Owner:
        def put(self) -> list[Any]:
            return [ray.put(pa.table({"id": list(range(1_000_000))}))]

    owner = ray.remote(num_cpus=0)(Owner).remote()
    (lost,) = ray.get(owner.put.remote(), timeout=PATIENCE_S)
    ray.kill(owner)
    for _ in range(200):  # until Ray knows here that the owner is dead
        try:
            ray.get(lost, timeout=PATIENCE_S)
        except ray.exceptions.OwnerDiedError:
            break
        time.sleep(0.1)
    source = SparkSource(spark.range(0, 100, 1, 2))
    with pytest.raises(
        DataflowError, match=r"from_spark: partition 1 \(rows 50 to 100\) is lost: OwnerDiedError: .*Spark stopped too early"
    ):
        source.build_part(source.list_parts()[1]._replace(ref=lost), None).next_batch()


def test_an_executor_that_dies_does_not_take_blocks_along(spark: Any) -> None:
    import ray

    source = SparkSource(spark.range(0, 100, 1, 2))
    source.list_parts()
    ray.kill(ray.get_actor("raydp-executor-0"), no_restart=False)
    assert [row["id"] for row in rows_of(source)] == list(range(100))
    assert [row["id"] for row in rows_of(SparkSource(spark.range(0, 100, 1, 2)))] == list(range(100))


def test_a_million_rows_arrive_without_python_rows(spark: Any) -> None:
    frame = spark.range(0, 1_000_000, 1, 2).selectExpr("id", "double(id) as x", "string(id) as s")
    source = SparkSource(frame)
    started = time.perf_counter()
    source.list_parts()
    TIMES_S["list_parts, 1e6 rows of 3 columns"] = time.perf_counter() - started
    started = time.perf_counter()
    assert sum(batch.num_rows for _, batch in read_here(source)) == 1_000_000
    TIMES_S["reading those by reference"] = time.perf_counter() - started


def test_a_second_session_is_the_first_or_refused(spark: Any) -> None:
    configs = {"spark.sql.session.timeZone": "America/New_York", "spark.ui.enabled": "false"}
    assert spark_session("rayad-tests", configs=configs) is spark
    with pytest.raises(ConfigError, match=r"Spark already runs in this process as 'rayad-tests' with other arguments"):
        spark_session("rayad-tests", num_executors=2)


@pytest.mark.usefixtures("spark")
def test_room_on_the_real_cluster_counts_what_spark_holds() -> None:
    started = time.perf_counter()
    assert "CPUs are short" in str(explain_misfit(SparkNeeds(100, 1, 1), nodes_room()))
    assert "memory is short" in str(explain_misfit(SparkNeeds(1, 1, 1 << 50), nodes_room()))
    (room,) = nodes_room()
    assert room.free_cpus <= room.cpus - 1
    assert time.perf_counter() - started < 2
