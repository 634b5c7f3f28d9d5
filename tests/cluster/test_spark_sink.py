"""SparkSink on real Spark: values from Arrow to Spark and back."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rayad.integrations import RayDatasetSink, RayDatasetSource, SparkSink, SparkSource
from rayad.integrations.spark.types import for_spark
from rayad.progress import ConfigError, DataflowError
from tests.cluster.spark_fixtures import TIMES_S, spark
from tests.cluster.test_spark_source import EMPTY, FULL, NAMES, SCHEMA, read_here, rows_of
from tests.every_type.arrays import COLUMNS, ROWS
from tests.every_type.combinations import INEXACT, as_spark_has_it, batch_of
from tests.every_type.exact import counted
from tests.integrations.driving import check_resume, run_sink

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
__all__ = ["spark"]


def plain(row: Any) -> dict[str, Any]:
    """A Spark row as Python values."""
    values: dict[str, Any] = row.asDict(recursive=True)
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in values.items()}


@pytest.mark.parametrize("staged", [False, True], ids=["arrow", "parquet"])
def test_each_type_of_value_survives_spark_to_arrow_to_spark(spark: Any, tmp_path: Path, staged: bool) -> None:
    names = NAMES[:-1] if staged else NAMES  # Parquet has no type for a column of nulls
    frame = spark.createDataFrame([FULL, EMPTY], SCHEMA).select(*names)
    batches = read_here(SparkSource(frame))
    sink = SparkSink(spark, staging_path=str(tmp_path / "staging") if staged else None)
    back = run_sink(sink, [batches])
    assert [(f.name, f.dataType) for f in back.schema] == [(f.name, f.dataType) for f in frame.schema]
    assert [plain(row) for row in back.collect()] == [plain(row) for row in frame.collect()]
    # instants and naive times are the same in any time zone of the session
    shown = "string(at) as a", "string(naive) as n", "unix_micros(at) as u"
    assert frame.selectExpr(*shown).collect() == back.selectExpr(*shown).collect()


def wide(kinds: Sequence[str]) -> pa.RecordBatch:
    """A table with a column of each type, and the row's number."""
    return pa.record_batch({"t": pa.array(range(ROWS)), **{kind: COLUMNS[kind] for kind in kinds}})


def values_of(batches: Sequence[tuple[int, pa.RecordBatch]], kind: str) -> Any:
    """The values of one column, in order of the row's number."""
    return counted(row for _, batch in batches for row in zip(batch.column("t").to_pylist(), batch.column(kind).to_pylist(), strict=True))


def fits_spark(kind: str) -> bool:
    try:
        for_spark(pa.Table.from_batches([batch_of(kind)]))
    except DataflowError:
        return False
    return True


@pytest.mark.parametrize("staged", [False, True], ids=["arrow", "parquet"])
def test_every_arrow_type_goes_to_spark_and_comes_back_exactly_or_is_refused(spark: Any, tmp_path: Path, staged: bool) -> None:
    def sink(name: str) -> SparkSink:
        return SparkSink(spark, staging_path=str(tmp_path / name) if staged else None)

    fitting = [kind for kind in COLUMNS if fits_spark(kind) and not (staged and kind == "null")]
    assert len(fitting) >= 40
    for number, kind in enumerate(COLUMNS.keys() - set(fitting)):
        with pytest.raises(DataflowError, match="'x'"):
            run_sink(sink(str(number)), [[(0, batch_of(kind))]])
    back = read_here(SparkSource(run_sink(sink("all"), [[(0, wide(fitting))]])))
    for kind in fitting:
        expected = as_spark_has_it(batch_of(kind), in_rows=False)
        assert values_of(back, kind) == counted(zip(range(ROWS), expected.column("x").to_pylist(), strict=True)), kind


def test_python_records_become_columns_that_spark_can_query(spark: Any) -> None:
    rows = [("a", 1), ("b", 2), ("a", 3)]
    frame = run_sink(SparkSink(spark, epoch_column="_epoch"), [[(0, rows[:2])], [(4, rows[2:])], []])
    assert sorted(map(tuple, frame.collect())) == [("a", 1, 0), ("a", 3, 4), ("b", 2, 0)]
    frame.createOrReplaceTempView("counts")
    assert spark.sql("select key, sum(value) from counts group by key order by key").collect()[0][1] == 4


def test_arrow_types_that_spark_lacks_are_widened_or_refused(spark: Any) -> None:
    batch = pa.record_batch({
        "u32": pa.array([2**32 - 1, None], pa.uint32()), "u64": pa.array([2**64 - 1, None], pa.uint64()),
        "ns": pa.array([datetime.datetime(2024, 1, 1), None], pa.timestamp("ns")),
        "ls": pa.array([["a"], None], pa.large_list(pa.large_string())),
        "wait": pa.array([datetime.timedelta(days=1, microseconds=1), None], pa.duration("us")),
    })  # fmt: skip
    first, second = run_sink(SparkSink(spark), [[(0, batch)]]).collect()
    assert tuple(first) == (2**32 - 1, Decimal(2**64 - 1), datetime.datetime(2024, 1, 1), ["a"], datetime.timedelta(days=1, microseconds=1))
    assert set(second) == {None}
    with pytest.raises(DataflowError, match=r"column 'c' is of type time64\[us\], for which Spark 3.5 has none"):
        run_sink(SparkSink(spark), [[(0, [{"c": datetime.time(1)}])]])


def test_no_records_need_a_schema(spark: Any) -> None:
    with pytest.raises(DataflowError, match="there are no records, so the columns are not known"):
        run_sink(SparkSink(spark), [[]])
    frame = run_sink(SparkSink(spark, schema=pa.schema([("a", pa.int64())])), [[]])
    assert (frame.columns, frame.count()) == (["a"], 0)


def test_many_rows_are_spread_over_partitions_and_stay_after_the_replicas(spark: Any) -> None:
    batch = pa.record_batch({"i": pa.array(range(300_000), pa.int64()), "s": [f"row number {i} of many" for i in range(300_000)]})
    started = time.perf_counter()
    frame = run_sink(SparkSink(spark), [[(0, batch)], [(0, batch)]])
    TIMES_S["to_spark, 6e5 rows of 2 columns"] = time.perf_counter() - started
    assert frame.selectExpr("count(*)", "sum(i)", "max(length(s))").collect()[0][:2] == (600_000, 300_000 * 299_999)


def test_staging_that_has_nothing_to_write_gives_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    assert run_sink(SparkSink(spark, schema=schema, staging_path=str(tmp_path / "s")), [[]]).count() == 0


def test_a_sink_needs_a_session(spark: Any) -> None:
    with pytest.raises(ConfigError, match="got a str; give the SparkSession"):
        SparkSink("spark")


@pytest.mark.usefixtures("spark")
def test_ray_data_sets_go_in_and_out_by_reference() -> None:
    import ray.data

    dataset = ray.data.from_arrow([pa.table({"e": [1, 0], "x": ["a", "b"]}), pa.table({"e": [0, 2], "x": ["c", None]})])
    source = RayDatasetSource(dataset, epoch="e")
    assert [(p.number, p.rows, p.first_row) for p in source.list_parts()] == [(0, 2, 0), (1, 2, 2)]
    batches = read_here(source)  # type: ignore[arg-type]
    assert [(epoch, batch.column("x").to_pylist()) for epoch, batch in batches] == [(0, ["b"]), (1, ["a"]), (0, ["c"]), (2, [None])]
    check_resume(source)
    back = run_sink(RayDatasetSink(), [batches[:2], batches[2:], []])
    assert sorted(row["e"] for row in back.take_all()) == [0, 0, 1, 2]
    assert rows_of(RayDatasetSource(back)) == [{"e": 0, "x": "b"}, {"e": 1, "x": "a"}, {"e": 0, "x": "c"}, {"e": 2, "x": None}]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"got a list; give a ray.data.Dataset"):
        RayDatasetSource([1])
    computed = ray.data.range(10, override_num_blocks=2).map_batches(lambda batch: {"y": batch["id"] * 2})
    assert sorted(row["y"] for row in rows_of(RayDatasetSource(computed))) == list(range(0, 20, 2))  # type: ignore[arg-type]


@pytest.mark.usefixtures("spark")
def test_every_arrow_type_goes_to_ray_data_and_comes_back_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # Ray sends some types another way, but in tests refuses to
    kinds = list(COLUMNS)
    back = read_here(RayDatasetSource(run_sink(RayDatasetSink(), [[(0, wide(kinds))]])))  # type: ignore[arg-type]
    for kind in kinds:
        if kind in INEXACT:  # no Python value has its digits
            assert pa.chunked_array([batch.column(kind) for _, batch in back]).equals(pa.chunked_array([COLUMNS[kind]]))
        else:
            assert values_of(back, kind) == counted(zip(range(ROWS), COLUMNS[kind].to_pylist(), strict=True)), kind
