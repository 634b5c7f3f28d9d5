"""Sinks keep values exactly or refuse them; the types of columns follow the records until something is written."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayad as rd
from rayad.dataflow.windows import Window
from rayad.integrations import ArrowSink, ParquetSink
from rayad.progress import ConfigError, DataflowError, Timestamp

DAY, NOON = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 12)


def write(path: Path, epochs: Any, **options: Any) -> list[Any]:
    flow = rd.Dataflow("x")
    flow.from_epochs(epochs).write_parquet(str(path / "out"), **options)
    flow.run(runtime="local")
    rows: list[Any] = rd.read_committed(path / "out").to_table().to_pylist()
    return rows


WIDER: dict[str, tuple[list[Any], list[Any]]] = {
    "a float after an int": ([1, 1.5], [1.0, 1.5]),
    "a decimal after an int": ([1, Decimal("1.5")], [Decimal("1.0"), Decimal("1.5")]),
    "a longer decimal": ([Decimal("1.5"), Decimal("123.456")], [Decimal("1.500"), Decimal("123.456")]),
    "lists of floats after lists of ints": ([[1], [1.5]], [[1.0], [1.5]]),
    "a nested field that comes later": ([{"x": 1}, {"x": 1, "y": {"z": 2}}], [{"x": 1, "y": None}, {"x": 1, "y": {"z": 2}}]),
    "a datetime after a date": ([DAY, NOON], [dt.datetime(2020, 1, 1), NOON]),
    "values after nulls": ([None, [], ["a"]], [None, [], ["a"]]),
}


@pytest.mark.parametrize("case", WIDER)
@pytest.mark.parametrize("partitioned", [False, True])
def test_parquet_follows_the_types_of_later_records(tmp_path: Path, case: str, partitioned: bool) -> None:
    values, back = WIDER[case]
    rows = write(tmp_path, [[{"a": value}] for value in values], partition_by_epoch=partitioned, epoch_column="e")
    if partitioned:
        rows = sorted(({**row, "e": row.get("e")} for row in rows), key=lambda row: row["e"])
    assert [row["a"] for row in rows] == back
    assert [row["e"] for row in rows] == list(range(len(values)))


@pytest.mark.parametrize("case", WIDER)
def test_collected_columns_and_arrow_sinks_follow_them_too(case: str) -> None:
    values, back = WIDER[case]
    for parallelism in (1, 2):
        flow = rd.Dataflow("x")
        stream = flow.from_epochs([[{"a": value}] for value in values], parts=parallelism)
        stream.collect("columns", columnar=True)
        stream.sink(ArrowSink(), "arrow")
        result = flow.run(runtime="local", parallelism=parallelism)
        assert result["columns"].column("a").to_pylist() == back
        tables = result["arrow"]
        assert [value for table in tables for value in table.column("a").to_pylist()] in (back, back[1:] + back[:1])


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (1, "x", "column 'a' cannot hold 'x', a str, as int64: Could not convert 'x' with type str: tried to convert to int64"),
        ("x", b"x", "column 'a' cannot hold b'x', a bytes, as string: it would become 'x'"),
        (2**53 + 1, 0.5, "a later record needs {a: double}, but column 'a' of type int64 cannot become double: Integer value"),
        (NOON, NOON.replace(tzinfo=dt.UTC), "tzinfo=datetime.timezone.utc), a datetime, as timestamp[us]: it would become"),
        (Decimal("0.1"), 0.1, "column 'a' cannot hold 0.1, a float, as decimal128(1, 1)"),
    ],
    ids=str,
)
def test_what_has_no_type_in_common_is_refused_with_value_and_types(tmp_path: Path, first: Any, second: Any, says: str) -> None:
    with pytest.raises(DataflowError) as caught:
        write(tmp_path, [[{"a": first}], [{"a": second}]])
    assert says in str(caught.value)
    assert "write of sink 'parquet'" in str(caught.value)
    assert "give schema=" in str(caught.value)


def test_types_are_fixed_once_something_is_written(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out", row_group_rows=2)
    writer = sink.open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    writer.write(Timestamp(0), [{"a": None}])  # the row group is full: int64 is written
    writer.write(Timestamp(1), [{"a": 2.0}])
    with pytest.raises(DataflowError) as caught:
        writer.write(Timestamp(1), [{"a": 1.5}])
    assert str(caught.value) == (
        "write_parquet: 1 records do not fit the schema 'a: int64': column 'a' cannot hold 1.5, a float, as int64: it would become 1; "
        "first record: {'a': 1.5}; convert them with map() before this step, or give a schema that holds them; the types are those of "
        "earlier records: give schema="
    )
    out = sink.publish([writer.stage()])
    assert pq.read_table(tmp_path / "out" / out.files[0]).to_pydict() == {"a": [1, None, 2]}


def test_a_given_schema_is_kept_exactly(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.decimal128(20, 3))])
    assert write(tmp_path, [[{"a": 1}], [{"a": Decimal("1.5")}]], schema=schema) == [{"a": Decimal("1.000")}, {"a": Decimal("1.500")}]
    with pytest.raises(DataflowError, match=r"cannot hold Decimal\('0.0001'\), a Decimal, as decimal128\(20, 3\)"):
        write(tmp_path / "b", [[{"a": Decimal("0.0001")}]], schema=schema)
    with pytest.raises(DataflowError, match="column 'a' may hold no nulls, 1 records have none or null there"):
        write(tmp_path / "c", [[{}, {"a": 1}]], schema=pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    with pytest.raises(DataflowError, match=r"column 'a' of type double cannot become float: 0\.1 would be 0.10000000149011612"):
        write(tmp_path / "d", [pa.table({"a": [0.1]})], schema=pa.schema([("a", pa.float32())]))


def test_a_writer_that_replaces_another_keeps_the_types_that_are_committed(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out", epoch_column="e")
    writer = sink.open(0, 1)
    writer.write(Timestamp(0), [{"a": 1.5}])
    sink.commit(1, [writer.stage()])
    again = ParquetSink(tmp_path / "out", epoch_column="e")
    again.adopt(sink.identity())
    again.roll_back(1, 2)
    writer = again.open(0, 1)
    writer.write(Timestamp(1), [{"a": 2}])
    again.commit(2, [writer.stage()])
    assert rd.read_committed(tmp_path / "out").to_table().sort_by("e").to_pydict() == {"a": [1.5, 2.0], "e": [0, 1]}


def test_collected_columns_hold_every_batch() -> None:
    """Batches of rows were dropped: all results of ``max`` of dates or strings, the rows of a union of rows and columns, and the latest
    totals of a sum beyond 64 bits."""
    dates = pa.table({"k": ["a", "b"], "d": [DAY, DAY + dt.timedelta(1)]})
    flow = rd.Dataflow("x")
    flow.from_items(dates).key_by("k").max("d").collect("max", columnar=True)
    flow.from_items(pa.table({"a": [1, 2]})).union(flow.from_items([{"a": 1.5}])).collect("union", columnar=True)
    flow.from_items([1, 2]).collect("plain", columnar=True)
    flow.from_items([]).collect("nothing", columnar=True)
    result = flow.run(runtime="local")
    assert sorted(zip(*result["max"].to_pydict().values(), strict=True)) == [("a", DAY), ("b", DAY + dt.timedelta(1))]
    assert sorted(result["union"].column("a").to_pylist()) == [1.0, 1.5, 2.0]
    assert result["plain"].to_pydict() == {"value": [1, 2]}
    assert result["nothing"] is None
    flow = rd.Dataflow("x")
    flow.from_epochs([pa.table({"k": ["a"], "v": [2**62]})] * 3).key_by("k").sum("v").collect("sum", columnar=True)
    with pytest.raises(DataflowError, match=r"column 'sum\(v\)' of type uint64 cannot become int64.*: collect\(\) rows instead"):
        flow.run(runtime="local")


def test_windows_of_rows_are_windows_in_columns(tmp_path: Path) -> None:
    epochs = [[{"k": "a", "t": 1, "v": "x"}, {"k": "a", "t": 12, "v": "y"}]]
    flow = rd.Dataflow("x")
    windowed = flow.from_epochs(epochs).assign_timestamps("t").key_by("k").window(rd.windows.tumbling(10)).max("v")
    windowed.collect("out", columnar=True)
    windowed.write_parquet(str(tmp_path / "out"))
    table = flow.run(runtime="local")["out"]
    assert table.column("window").combine_chunks().to_pylist() == [Window(0, 10), Window(10, 20)]
    assert pq.read_table(tmp_path / "out").column("window").to_pylist() == [Window(0, 10), Window(10, 20)]


def test_reading_before_the_first_commit_gives_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no job writes there: is the path right"):
        rd.read_committed(tmp_path / "out")
    sink = ParquetSink(tmp_path / "out", schema=pa.schema([("a", pa.int64())]), epoch_column="e")
    sink.check()
    assert rd.read_committed(tmp_path / "out").to_table().to_pydict() == {"a": [], "e": []}
    assert rd.committed_files(tmp_path / "out")[1:] == ((), 0, sink.identity())
    ParquetSink(tmp_path / "untyped").check()
    assert rd.read_committed(tmp_path / "untyped").count_rows() == 0
    writer = sink.open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    sink.commit(1, [writer.stage()])
    assert rd.read_committed(tmp_path / "out").to_table().to_pydict() == {"a": [1], "e": [0]}


def test_the_error_on_differing_columns_at_a_sink_says_what_to_do(tmp_path: Path) -> None:
    flow = rd.Dataflow("x")
    left, right = flow.from_arrow(pa.table({"a": [1]})), flow.from_arrow(pa.table({"b": [1]}))
    left.union(right.rebalance().map_batches(lambda batch: batch)).write_parquet(str(tmp_path / "out"))
    with pytest.raises(DataflowError) as caught:
        flow.run(runtime="local")
    assert str(caught.value).endswith("give schema= to the sink, or convert them with map()")
    writer = ArrowSink().open(0, 1)
    writer.write(Timestamp(0), pa.record_batch({"a": [1]}))
    with pytest.raises(DataflowError) as caught:
        writer.write(Timestamp(0), pa.record_batch({"b": [1]}))
    assert str(caught.value) == (
        "to_arrow: schema drift in a batch: column 'a' is missing; column 'b' is extra. Expected {a: int64}, got {b: int64}; convert it "
        "with map(); the types are those of earlier records: give schema="
    )
