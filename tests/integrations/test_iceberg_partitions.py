"""Partitioned Iceberg tables: each row is in a file whose partition, as the manifest has it, is that of the row."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayad as rd
from rayad.integrations import IcebergSink, IcebergTable
from rayad.integrations.iceberg.partitions import Field, fields_of, outcomes
from rayad.progress import ConfigError, DataflowError

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.integrations.iceberg_tables import catalog_in, resumed, rows_by_polars, rows_of, table_of
from tests.thorough import amount, by_turns


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return catalog_in(tmp_path / "lake")


DAY = dt.date(1970, 1, 1)
CHANCE = random.Random(7)
LONGS = [0, 1, -1, 34, -17, 2**31 - 1, -(2**31), 2**40 + 5, -(2**40) - 5, *(CHANCE.randrange(-(2**62), 2**62) for _ in range(50))]
INTS = [n for n in LONGS if -(2**31) + 100 <= n < 2**31]
DAYS = [dt.date(1, 1, 1), dt.date(9999, 12, 31), *(DAY + dt.timedelta(n) for n in (-800, -1, 0, 1, 17_501, 30, 31, 365))]
MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    *(dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=n) for n in (-1, 0, 1, -3_600_000_000, -3_600_000_001, 1_510_871_468_000_000)),
]
TEXTS = ["", "a", "iceberg", "Köln", "\U0001f600 emoji", "x" * 50]
BYTES = [b"", b"\x00", b"\x00\x01\x02\x03", b"\xff" * 20]
NUMBERS = [Decimal("14.20"), Decimal("-0.01"), Decimal("0.00"), Decimal("9999999.99"), Decimal("-10.65")]
SOURCES: dict[str, tuple[pa.DataType, Any, list[Any], list[str]]] = {
    "int": (pa.int32(), IntegerType(), INTS, ["identity", "bucket[16]", "truncate[10]"]),
    "long": (pa.int64(), LongType(), LONGS, ["identity", "bucket[7]", "truncate[1000]"]),
    "date": (pa.date32(), DateType(), DAYS, ["identity", "bucket[16]", "year", "month", "day"]),
    "time": (pa.time64("us"), TimeType(), [dt.time(0), dt.time(22, 31, 8, 1)], ["identity", "bucket[16]"]),
    "moment": (pa.timestamp("us"), TimestampType(), MOMENTS, ["identity", "bucket[16]", "year", "month", "day", "hour"]),
    "zoned": (
        pa.timestamp("us", "UTC"),
        TimestamptzType(),
        [m.replace(tzinfo=dt.UTC) for m in MOMENTS],
        ["identity", "bucket[5]", "year", "month", "day", "hour"],
    ),
    "text": (pa.string(), StringType(), TEXTS, ["identity", "bucket[16]", "truncate[3]"]),
    "bytes": (pa.binary(), BinaryType(), BYTES, ["identity", "bucket[16]", "truncate[2]"]),
    "fixed": (pa.binary(4), FixedType(4), [b"\x00\x01\x02\x03", b"abcd"], ["identity", "bucket[16]"]),
    "decimal": (pa.decimal128(9, 2), DecimalType(9, 2), NUMBERS, ["identity", "bucket[16]", "truncate[50]"]),
    "wide": (
        pa.decimal128(38, 3),
        DecimalType(38, 3),
        [Decimal("12345678901234567890123456789012345.678"), Decimal("-1.001")],
        ["identity", "bucket[16]", "truncate[10]"],
    ),
    "uuid": (pa.uuid(), UUIDType(), [uuid.UUID(int=5), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")], ["identity", "bucket[16]"]),
    "bool": (pa.bool_(), None, [True, False], ["identity"]),
    "double": (pa.float64(), None, [0.5, -0.25, float("inf")], ["identity"]),
}
CASES = [(name, transform) for name, (_, _, _, transforms) in SOURCES.items() for transform in transforms]
WRITTEN = amount(
    each_run=[
        *((name, "identity") for name in ("text", "uuid", "wide", "double", "bool", "zoned")),
        *(("date", "year"), ("moment", "month"), ("zoned", "day"), ("date", "day"), ("moment", "hour")),
        *(("uuid", "bucket[16]"), ("wide", "bucket[16]"), ("long", "truncate[1000]"), ("text", "truncate[3]"), ("bytes", "truncate[2]")),
        ("decimal", "truncate[50]"),
    ],
    soak=CASES,
)


def plain(value: Any) -> Any:
    """A value as Iceberg computes with it."""
    if isinstance(value, dt.datetime):
        return round((value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) / dt.timedelta(microseconds=1))
    if isinstance(value, dt.date):
        return (value - DAY).days
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value.bytes if isinstance(value, uuid.UUID) else value


def expected(name: str, transform: str, value: Any) -> Any:
    """What ``pyiceberg`` makes of one value."""
    if value is None:
        return None
    kind = SOURCES[name][1]
    exact = plain(value)
    if name in ("moment", "zoned"):  # by whole numbers: floats of so many microseconds are not exact
        exact = (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    return exact if transform == "identity" else parse_transform(transform).transform(kind)(exact)


@pytest.mark.parametrize(("name", "transform"), [case for case in CASES if case[1] != "identity"])
def test_outcomes_are_those_of_pyiceberg(name: str, transform: str) -> None:
    kind, _, values, _ = SOURCES[name]
    storage = pa.array([plain(value) for value in values] + [None], pa.binary(16)) if name == "uuid" else pa.array([*values, None], kind)
    made = outcomes(storage, Field(("x",), transform), "test").to_pylist()
    assert made == [expected(name, transform, value) for value in (*values, None)]


def as_column(name: str, values: Sequence[Any]) -> pa.Array:
    if name == "uuid":
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value and value.bytes for value in values], pa.binary(16)))
    return pa.array(values, SOURCES[name][0])


def in_call(transform: str) -> str:
    kind, _, size = transform.partition("[")
    return "x" if kind == "identity" else f"{kind}({size.rstrip(']')}, x)" if size else f"{kind}(x)"


def files_with_partitions(catalog: dict[str, str]) -> list[tuple[str, list[Any]]]:
    table = table_of(catalog)
    found = [task.file for task in table.scan().plan_files()]
    return [(file.file_path.removeprefix("file://"), [as_bytes(file.partition[at]) for at in range(len(file.partition))]) for file in found]


def as_bytes(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


@by_turns(2)
@pytest.mark.parametrize(("name", "transform"), WRITTEN)
def test_rows_are_in_files_of_their_partition(name: str, transform: str, catalog: dict[str, str]) -> None:
    """Written, found by a filter that reads partitions alone, updated, and taken back."""
    values = [*SOURCES[name][2][:12], None]
    kinds = pa.schema([("a", pa.int64()), ("x", SOURCES[name][0])])
    sink = IcebergSink("ns.t", catalog=catalog, partition_by=in_call(transform))
    for number in (1, 2):
        writer = pickle.loads(pickle.dumps(sink)).open(0, 1)
        numbers = [100 * number + at for at in range(len(values))]
        for some in (slice(0, 5), slice(5, None)):
            writer.write(rd.Timestamp(0), pa.record_batch([pa.array(numbers[some]), as_column(name, values[some])], schema=kinds))
        sink.commit(number, [writer.stage()])
    partitions: set[Any] = set()
    for path, (partition,) in files_with_partitions(catalog):
        column = pq.read_table(path).column("x")
        assert {expected(name, transform, value) for value in column.to_pylist()} == {partition}
        partitions.add(partition)
    assert partitions == {expected(name, transform, value) for value in values}
    wanted = [{"a": 100 * number + at, "x": value} for number in (1, 2) for at, value in enumerate(values)]
    assert sorted(rows_of(catalog), key=lambda row: row["a"]) == wanted
    if name != "uuid":
        assert sorted(rows_by_polars(catalog), key=lambda row: row["a"]) == wanted
        for value in values[:-1][:: amount(5, 1)]:
            found = table_of(catalog).scan(row_filter=EqualTo("x", value)).to_arrow().column("a").to_pylist()
            assert sorted(found) == [row["a"] for row in wanted if row["x"] == value]
    sink.roll_back(1, 3)
    sink.commit(1, [])
    assert sorted(row["a"] for row in rows_of(catalog)) == [row["a"] for row in wanted if row["a"] < 200]
    kept = IcebergTable("ns.t", key="a", catalog=catalog)
    changes = kept.open(0, 1)
    changes.write(rd.Timestamp(0), [({"a": 100 + at, "x": value}, 1) for at, value in enumerate(values[::-1])])
    kept.commit(1, [changes.stage()])
    assert sorted(rows_of(catalog), key=lambda row: row["a"]) == [{"a": 100 + at, "x": value} for at, value in enumerate(values[::-1])]
    for path, (partition,) in files_with_partitions(catalog):
        assert {expected(name, transform, value) for value in pq.read_table(path).column("x").to_pylist()} == {partition}


def test_a_stream_into_a_new_table_of_several_fields(catalog: dict[str, str]) -> None:
    rows = [{"id": n, "at": dt.datetime(2026, 1, 1 + n % 3, n % 24), "town": ["Ulm", "Köln", None][n % 3]} for n in range(60)]
    by = ["town", "day(at)", "bucket(4, id)"]
    for mode in ("error", "append"):
        flow = rd.Dataflow("partitioned")
        stream = flow.from_epochs([rows[:30], rows[30:]], batch_rows=7).rebalance(name="spread").map_batches(lambda batch: batch)
        stream.write_iceberg("ns.t", catalog=catalog, partition_by=by, mode=mode, epoch_column="epoch", name="out")
        flow.run(runtime="local", parallelism=2)
    table = table_of(catalog)
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [
        ("town", "identity"),
        ("at_day", "day"),
        ("id_bucket", "bucket[4]"),
    ]
    found = rows_of(catalog)
    assert len(found) == 120
    assert sorted(found, key=str) == sorted(rows_by_polars(catalog), key=str)
    one_day = table.scan(row_filter="town = 'Köln' and at >= '2026-01-02T00:00:00' and at < '2026-01-03T00:00:00'")
    assert len(one_day.to_arrow()) == 2 * sum(row["town"] == "Köln" and row["at"].day == 2 for row in rows)  # type: ignore[attr-defined]
    assert 0 < len(list(one_day.plan_files())) < len(files_with_partitions(catalog)) / 2


def partitioned(catalog: dict[str, str]) -> Any:
    """A table that somebody else has made: by a field of a struct, one that was given up, and buckets."""
    place = StructType(NestedField(4, "town", StringType()), NestedField(5, "zip", StringType()))
    schema = Schema(NestedField(1, "a", LongType(), required=True), NestedField(2, "b", LongType()), NestedField(3, "place", place))
    spec = PartitionSpec(
        PartitionField(source_id=4, field_id=1000, transform=IdentityTransform(), name="town"),
        PartitionField(source_id=2, field_id=1001, transform=VoidTransform(), name="b"),
        PartitionField(source_id=1, field_id=1002, transform=BucketTransform(num_buckets=3), name="parts"),
    )
    return load_catalog(**catalog).create_table("ns.t", schema, partition_spec=spec)


def test_a_table_that_is_there_is_written_by_its_own_spec(catalog: dict[str, str]) -> None:
    partitioned(catalog)
    rows = [{"a": n, "b": n, "place": {"town": f"t{n % 2}", "zip": "x"} if n % 5 else None} for n in range(20)]
    flow = rd.Dataflow("theirs")
    flow.from_items(rows).write_iceberg("ns.t", catalog=catalog, mode="append")
    flow.run(runtime="local")
    assert sorted(rows_of(catalog), key=lambda row: row["a"]) == rows
    for path, partition in files_with_partitions(catalog):
        for row in pq.read_table(path).to_pylist():
            town = row["place"] and row["place"]["town"]
            assert partition == [town, None, BucketTransform(num_buckets=3).transform(LongType())(row["a"])]
    again = rd.Dataflow("updated")
    changed = [({**row, "place": {"town": "t0", "zip": "y"}}, 1) for row in rows[::2]]
    collection = rd.Collection(again.from_epochs([[*changed, ({"a": 100, "b": 0, "place": None}, 1)]]))
    collection.write_iceberg("ns.t", key="a", catalog=catalog)
    again.run(runtime="local")
    found = {row["a"]: row for row in rows_of(catalog)}
    assert found == {row["a"]: row for row in rows} | {row["a"]: row for row, _ in changed} | {100: {"a": 100, "b": 0, "place": None}}


@pytest.mark.parametrize("made", ["sink", "collection"])
def test_a_partition_spec_that_has_changed(made: str, catalog: dict[str, str]) -> None:
    """Files of the old spec are read and replaced; what was staged by it is not added by another one."""
    load_catalog(**catalog).create_table("ns.t", pa.schema([("a", pa.int64()), ("s", pa.string())]))
    old = IcebergSink("ns.t", catalog=catalog, mode="append")
    writer = old.open(0, 1)
    writer.write(rd.Timestamp(0), [{"a": n, "s": f"{n}"} for n in range(10)])
    old.commit(1, [writer.stage()])
    writer.write(rd.Timestamp(0), [{"a": 10, "s": "10"}])
    staged = [writer.stage()]
    kept = IcebergTable("ns.t", key="a", catalog=catalog)
    with table_of(catalog).update_spec() as update:
        update.add_field("a", BucketTransform(num_buckets=2), "a_bucket")
    told = r"the table 'ns.t' is partitioned by bucket\(2, a\), and what is to be added to it was written when it was by nothing: put that"
    with pytest.raises(ConfigError, match=told):
        old.commit(2, staged)
    if made == "sink":
        new = IcebergSink("ns.t", catalog=catalog, mode="append")
        writer = new.open(0, 1)
        writer.write(rd.Timestamp(0), [{"a": n, "s": "new"} for n in range(10, 14)])
        new.commit(1, [writer.stage()])
        assert {row["a"] for row in rows_of(catalog)} == set(range(14))
        assert {len(partition) for _, partition in files_with_partitions(catalog)} == {0, 1}
        return
    changes = kept.open(0, 1)
    changes.write(rd.Timestamp(0), [({"a": 3, "s": "new"}, 1), ({"a": 4, "s": "4"}, -1)])
    kept.commit(1, [changes.stage()])
    assert {row["a"]: row["s"] for row in rows_of(catalog)} == {n: "new" if n == 3 else f"{n}" for n in range(10) if n != 4}
    assert {len(partition) for _, partition in files_with_partitions(catalog)} == {1}


def test_a_job_that_resumes_keeps_the_partitions_of_its_table(catalog: dict[str, str]) -> None:
    sink = IcebergSink("ns.t", catalog=catalog, partition_by="truncate(1, s)")
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(0), [{"s": "ab"}, {"s": "ac"}, {"s": "b"}])
    staged = [writer.stage()]
    again = resumed(sink, catalog)
    again.fields = sink.fields
    again.commit(1, staged)
    assert sorted(partition for _, (partition,) in files_with_partitions(catalog)) == ["a", "b"]
    assert resumed(sink, catalog).fields == sink.fields


@pytest.mark.parametrize(
    ("by", "told"),
    [
        (3, "write_iceberg: partition_by is 3: give the name of a column, or a list of names"),
        ([3], "write_iceberg: a name in partition_by is 3"),
        (["day(a)", "a"], r"write_iceberg: partition_by=\['day\(a\)', 'a'\] names a column twice"),
        ("week(a)", r"write_iceberg: partition_by has 'week\(a\)': give a column, 'bucket\(16, column\)', "),
        ("bucket(a)", r"write_iceberg: partition_by has 'bucket\(a\)': give a column"),
        ("bucket(0, a)", r"write_iceberg: partition_by has 'bucket\(0, a\)': the number must be at least 1"),
        ("b", r"write_iceberg: partition_by has 'b': there is no column 'b' in \['a', 'l', 'a_day', 'f', 'd'\]"),
        ("l", r"write_iceberg: partition_by has 'l': 'l' is list<.*>, of which Iceberg has no identity"),
        ("day(a)", r"write_iceberg: partition_by has 'day\(a\)': 'a' is int64, of which Iceberg has no day"),
        ("bucket(4, f)", r"write_iceberg: partition_by has 'bucket\(4, f\)': 'f' is double, of which Iceberg has no bucket"),
        ("hour(d)", r"'d' is date32\[day\], of which Iceberg has no hour"),
    ],
)
def test_what_cannot_partition_is_refused(by: Any, told: str, catalog: dict[str, str]) -> None:
    kinds: list[Any] = [("a", pa.int64()), ("l", pa.list_(pa.int64())), ("a_day", pa.int64()), ("f", pa.float64()), ("d", pa.date32())]
    with pytest.raises((ConfigError, DataflowError), match=told):
        IcebergSink("ns.t", catalog=catalog, partition_by=by, schema=pa.schema(kinds))
    if isinstance(by, str) and "has no" in told:
        batch = pa.schema(kinds).empty_table().to_batches() or [pa.RecordBatch.from_pylist([{"a": 1}], schema=pa.schema(kinds))]
        writer = IcebergSink("ns.t", catalog=catalog, partition_by=by).open(0, 1)
        with pytest.raises(DataflowError, match=told):
            writer.write(rd.Timestamp(0), pa.RecordBatch.from_pylist([{"a": 1}], schema=batch[0].schema))


def test_a_name_that_the_spec_takes_and_another_spec_are_refused(catalog: dict[str, str]) -> None:
    kinds = pa.schema([("a", pa.date32()), ("a_day", pa.int64())])
    with pytest.raises(DataflowError, match=r"partition_by has 'day\(a\)', which Iceberg calls 'a_day': the records have that column, too"):
        IcebergSink("ns.t", catalog=catalog, partition_by="day(a)", schema=kinds)
    partitioned(catalog)
    with pytest.raises(ConfigError, match=r"is partitioned by \['place.town', 'void\(b\)', 'bucket\(3, a\)'\], not by \['a'\]"):
        IcebergSink("ns.t", catalog=catalog, mode="append", partition_by="a")
    assert [str(field) for field in fields_of("bucket(3,a)", "x")] == ["bucket(3, a)"]
