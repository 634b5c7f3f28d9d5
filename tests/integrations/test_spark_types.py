"""Arrow columns are brought to the types that Spark reads without losing a value."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rayad.dataflow.operators.results import pair_array, window_array
from rayad.integrations.spark.types import for_spark, for_sparks_files, spark_arrow_type
from rayad.progress import DataflowError

WHEN = datetime.datetime(2024, 3, 31, 1, 30, 0, 123456)


@pytest.mark.parametrize(
    ("values", "given", "expected"),
    [
        ([1, None], pa.uint8(), pa.int16()),
        ([2**32 - 1, None], pa.uint32(), pa.int64()),
        ([0.5, None], pa.float16(), pa.float32()),
        (["a", None], pa.large_string(), pa.string()),
        (["a", None], pa.string_view(), pa.string()),
        (["a", None], pa.dictionary(pa.int8(), pa.string()), pa.string()),
        ([b"ab", None], pa.binary(2), pa.binary()),
        ([b"a", None], pa.large_binary(), pa.binary()),
        ([WHEN, None], pa.timestamp("ns"), pa.timestamp("us")),
        ([WHEN.replace(microsecond=0), None], pa.timestamp("s"), pa.timestamp("us")),
        ([datetime.date(2024, 1, 1), None], pa.date64(), pa.date32()),
        ([Decimal("1.50"), None], pa.decimal256(5, 2), pa.decimal128(5, 2)),
        ([[1, None], None], pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int16()))),
        ([[1, 2], None], pa.list_(pa.int64(), 2), pa.list_(pa.field("element", pa.int64()))),
        ([{"x": "a"}, None], pa.struct([("x", pa.large_string())]), pa.struct([("x", pa.string())])),
        ([[("k", 1)], None], pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.int16())),
    ],
    ids=str,
)  # fmt: skip
def test_values_survive_the_cast(values: list[Any], given: pa.DataType, expected: pa.DataType) -> None:
    column = pa.array(values, pa.string()).cast(given) if pa.types.is_dictionary(given) else pa.array(values, given)
    ready = for_spark(pa.table({"c": column}))
    assert ready.schema.field("c").type == expected
    assert ready.column("c").to_pylist() == values


def test_unsigned_64_bits_become_a_decimal() -> None:
    assert for_spark(pa.table({"c": pa.array([2**64 - 1], pa.uint64())})).column("c").to_pylist() == [Decimal(2**64 - 1)]


def test_instants_keep_their_instant_and_naive_times_stay_naive() -> None:
    rome = pa.array([WHEN], pa.timestamp("us")).cast(pa.timestamp("us", "Europe/Rome"))
    ready = for_spark(pa.table({"z": rome, "n": pa.array([WHEN], pa.timestamp("us"))}))
    assert ready.schema.types == [pa.timestamp("us", "UTC"), pa.timestamp("us")]
    assert ready.column("z").cast(pa.int64()).to_pylist() == rome.cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.month_day_nano_interval(), pa.decimal256(60, 2), pa.list_(pa.time32("s"))], ids=str)
def test_types_that_spark_lacks_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(DataflowError, match=r"column 'c.*Spark 3.5 has none; cast it first"):
        spark_arrow_type(kind, "c")


def test_a_value_that_would_be_lost_is_refused() -> None:
    with pytest.raises(DataflowError, match=r"column 'c' of type timestamp.*does not fit"):
        for_spark(pa.table({"c": pa.array([1], pa.timestamp("ns"))}))


def test_repeated_column_names_are_refused() -> None:
    with pytest.raises(DataflowError, match="column names must differ"):
        for_spark(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))


def test_windows_and_pairs_are_structs_for_spark() -> None:
    windows = window_array(pa.array([0, 10]), pa.array([10, 20]))
    records = pa.record_batch({"n": pa.array([1, 2], pa.uint8()), "window": windows})
    table = for_spark(pa.table({"window": windows, "pair": pair_array(records, records)}))
    assert table.schema.field("window").type == pa.struct([("start", pa.int64()), ("end", pa.int64())])
    side = {"n": 1, "window": {"start": 0, "end": 10}}
    assert table.slice(0, 1).to_pylist() == [{"window": {"start": 0, "end": 10}, "pair": {"left": side, "right": side}}]


def test_null_lists_of_a_fixed_size_have_no_values_in_files() -> None:
    pairs = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    (column,) = for_sparks_files(pa.table({"pairs": pairs})).columns
    assert column.to_pylist() == pairs.to_pylist()
    assert column.combine_chunks().offsets.to_pylist() == [0, 2, 2, 4]
