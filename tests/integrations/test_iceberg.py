"""``write_iceberg``: each record is in the table once, by the catalog that every reader of Iceberg asks."""

from __future__ import annotations

import builtins
import datetime as dt
import itertools
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.integrations import IcebergSink
from rayad.integrations.file_output import tables
from rayad.progress import ConfigError, DataflowError
from rayad.testing import check_sink

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tests.integrations.iceberg_tables import catalog_in, numbers, rows_by_polars, rows_of, staged_by, table_of
from tests.thorough import amount, by_turns


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return catalog_in(tmp_path / "lake")


def write(catalog: dict[str, str], epochs: list[Any], parallelism: int = 2, **options: Any) -> Any:
    flow = rd.Dataflow("iceberg")
    stream = flow.from_epochs(epochs, batch_rows=4).rebalance(name="spread").map_batches(lambda batch: batch)
    stream.write_iceberg("ns.t", catalog=catalog, name="out", **options)
    return flow.run(runtime="local", parallelism=parallelism)["out"]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_records_are_in_the_table_once(parallelism: int, catalog: dict[str, str], tmp_path: Path) -> None:
    epochs = [[{"a": n, "s": f"{n}"} for n in range(20)], [{"a": n, "s": None} for n in range(20, 30)]]
    published = write(catalog, epochs, parallelism)
    table = table_of(catalog)
    assert published == tables.PublishedTable("ns.t", table.current_snapshot().snapshot_id, published.job)
    in_order = sorted(rows_of(catalog), key=lambda row: row["a"])
    assert in_order == [row for rows in epochs for row in rows]
    assert sorted(rows_by_polars(catalog), key=lambda row: row["a"]) == in_order
    assert table.scan(row_filter=EqualTo("a", 7)).to_arrow().to_pylist() == [{"a": 7, "s": "7"}]
    assert table.scan(row_filter=IsNull("s")).to_arrow().num_rows == 10
    names = {path.name for path in (tmp_path / "lake" / "warehouse" / "ns" / "t" / "data").iterdir()}
    assert names == {Path(file).name for file in table.inspect.files()["file_path"].to_pylist()}
    assert all(name.startswith(f"part-{published.job}-") for name in names)


VALUES = {
    "i": (pa.int8(), [1, None]),
    "u": (pa.uint16(), [65_535, None]),
    "v": (pa.uint32(), [2**32 - 1, None]),
    "w": (pa.uint64(), [2**64 - 1, None]),
    "h": (pa.float16(), [0.5, None]),
    "f": (pa.float32(), [0.5, None]),
    "g": (pa.float64(), [float("inf"), -0.0]),
    "b": (pa.bool_(), [True, None]),
    "s": (pa.large_string(), ["x" * 40, "\U0010ffff" * 20]),
    "x": (pa.binary(), [b"\xff" * 30, None]),
    "y": (pa.binary(2), [b"\x00\xff", None]),
    "d": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "o": (pa.time64("us"), [dt.time(23, 59, 59, 999_999), None]),
    "t": (pa.timestamp("ns"), [dt.datetime(2024, 5, 1, 12, 0, 0, 1), None]),
    "e": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    "z": (pa.timestamp("us", "Europe/Berlin"), [dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), None]),
    "m": (pa.decimal128(38, 9), [Decimal("12345678901234567890.123456789"), None]),
    "n": (pa.decimal64(9, 2), [Decimal("-1.25"), None]),
    "q": (pa.uuid(), [uuid.UUID(int=5), None]),
    "c": (pa.dictionary(pa.int8(), pa.string()), ["k", None]),
    "l": (pa.list_(pa.int64()), [[1, None], None]),
    "r": (pa.struct([("a", pa.int16()), ("t", pa.list_(pa.string()))]), [{"a": 1, "t": ["y"]}, None]),
    "k": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None]),
}


@by_turns(2)
@pytest.mark.parametrize("name", VALUES)
def test_values_are_equal_in_the_types_of_iceberg(name: str, catalog: dict[str, str]) -> None:
    kind, values = VALUES[name]
    column = pa.ExtensionArray.from_storage(kind, pa.array([v and v.bytes for v in values], pa.binary(16))) if name == "q" else None
    batch = pa.record_batch({"a": pa.array([0, 1]), name: pa.array(values, kind) if column is None else column})
    write(catalog, [batch])
    wanted = [{"a": at, name: values[at]} for at in (0, 1)]
    assert sorted(rows_of(catalog), key=lambda row: row["a"]) == wanted
    by_polars = sorted(rows_by_polars(catalog), key=lambda row: row["a"])
    if name not in ("q", "k"):  # Polars has neither UUIDs nor maps: it reads their bytes and their entries
        assert by_polars == wanted
    write(catalog, [[{"a": 2, name: None}]], mode="append")  # in the table's types
    assert table_of(catalog).scan(row_filter=EqualTo("a", 2)).to_arrow().to_pylist() == [{"a": 2, name: None}]
    if name not in ("q", "l", "r", "k"):  # by which pyarrow filters no rows
        found = table_of(catalog).scan(row_filter=EqualTo(name, values[0])).to_arrow().to_pylist()  # the bounds of files
        assert wanted[0] in found


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (pa.duration("us"), dt.timedelta(1), "column 'x' is of type duration.us., for which Iceberg has none; cast it first"),
        (pa.decimal256(76, 20), Decimal(1), "column 'x' is of type decimal256.76, 20., for which Iceberg has none"),
        (pa.list_(pa.duration("us")), [dt.timedelta(1)], r"column 'x\[\]' is of type duration.us., for which Iceberg has none"),
        (pa.null(), None, "column 'x' is of type null: nothing but nulls"),
    ],
)
def test_types_that_iceberg_has_not_are_refused(kind: pa.DataType, value: Any, told: str, catalog: dict[str, str]) -> None:
    with pytest.raises(DataflowError, match=told):
        IcebergSink("ns.t", catalog=catalog, schema=pa.schema([("x", kind)]))
    with pytest.raises(DataflowError, match=told):
        write(catalog, [pa.record_batch({"n": pa.array([1]), "x": pa.array([value], kind)})])
    assert table_of(catalog) is None


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (
            pa.array([1], pa.timestamp("ns")),
            "column 'x' of type timestamp.ns. does not fit Iceberg's timestamp.us.: .* would lose data: 1",
        ),
        (
            pa.array([2**62]).cast(pa.timestamp("us")),
            "column 'x' of type timestamp.us. holds the number .* no moment of the years 1 to 9999",
        ),
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), "holds the number 2147483647, .*: pyiceberg, which keeps the least"),
    ],
)
def test_values_that_would_change_are_refused(column: pa.Array, told: str, catalog: dict[str, str]) -> None:
    with pytest.raises(DataflowError, match=told):
        write(catalog, [pa.record_batch({"n": pa.array([1]), "x": column})])
    assert table_of(catalog) is None


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_the_sink_keeps_the_contract(mode: Any, tmp_path: Path) -> None:
    places = itertools.count()
    made: dict[str, dict[str, str]] = {}

    def make() -> IcebergSink:
        catalog = catalog_in(tmp_path / str(next(places)))
        if mode == "append":  # beside what others wrote
            load_catalog(**catalog).create_table("ns.t", pa.schema([("batch", pa.int64()), ("row", pa.int64()), ("text", pa.string())]))
            table_of(catalog).append(pa.table({"batch": [-1], "row": [0], "text": [""]}))
        sink = IcebergSink("ns.t", catalog=catalog, mode=mode)
        made[sink.path] = catalog
        return sink

    def seen(sink: Any) -> list[Any]:
        return [row for row in rows_of(made[sink.path]) if row["batch"] >= 0]

    check_sink(make, seen, histories=amount(each_run=4, soak=12), steps=16)
    if mode == "append":
        assert all(sum(row["batch"] == -1 for row in rows_of(catalog)) == 1 for catalog in made.values())


def test_modes_and_columns_of_epochs(catalog: dict[str, str]) -> None:
    write(catalog, [[{"a": 1}]], epoch_column="e", properties={"owner": "x"})
    assert table_of(catalog).properties["owner"] == "x"
    with pytest.raises(ConfigError, match=r"there is a table at 'ns.t' and mode='error'; give mode='append' or mode='overwrite'"):
        write(catalog, [[{"a": 2}]], epoch_column="e")
    write(catalog, [[], [{"a": 2}]], mode="append", epoch_column="e")
    assert sorted(rows_of(catalog), key=lambda row: row["a"]) == [{"a": 1, "e": 0}, {"a": 2, "e": 1}]
    write(catalog, [[{"a": 3}]], mode="overwrite", epoch_column="e")
    assert rows_of(catalog) == [{"a": 3, "e": 0}]
    write(catalog, [[]], mode="overwrite", epoch_column="e")
    assert rows_of(catalog) == []


def test_a_location_of_its_own_and_one_for_data(catalog: dict[str, str], tmp_path: Path) -> None:
    write(catalog, [[{"a": 1}]], location=f"file://{tmp_path}/else where", properties={"write.data.path": f"file://{tmp_path}/data"})
    assert numbers(catalog) == [1]
    assert table_of(catalog).location() == f"file://{tmp_path}/else where"
    assert [path.suffix for path in (tmp_path / "data").iterdir()] == [".parquet"]


@pytest.mark.parametrize("version", ["1", "2"])
def test_versions_of_the_format(version: str, catalog: dict[str, str]) -> None:
    write(catalog, [[{"a": 1}]], properties={"format-version": version})
    assert table_of(catalog).format_version == int(version)
    write(catalog, [[{"a": 2}]], mode="append")
    assert numbers(catalog) == [1, 2]


def test_version_3_of_the_format_is_refused(catalog: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"properties has 'format-version': '3', pyiceberg writes 1 and 2"):
        IcebergSink("ns.t", catalog=catalog, properties={"format-version": "3"})
    table = table_of(catalog) or load_catalog(**catalog).create_table("ns.t", pa.schema([("a", pa.int64())]))
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_text(path.read_text().replace('"format-version":2', '"format-version":3,"next-row-id":0'))
    with pytest.raises(ConfigError, match=r"the table 'ns.t' is of version 3 of Iceberg's format, pyiceberg writes 1 and 2: write to a"):
        IcebergSink("ns.t", catalog=catalog, mode="append")


def test_columns_that_are_required(catalog: dict[str, str]) -> None:
    inner = StructType(NestedField(4, "s", StringType(), required=True))
    schema = Schema(
        NestedField(1, "a", LongType(), required=True),
        NestedField(2, "l", ListType(3, LongType(), element_required=True)),
        NestedField(5, "r", inner),
        NestedField(6, "k", MapType(7, StringType(), 8, LongType(), value_required=True)),
    )
    load_catalog(**catalog).create_table("ns.t", schema)
    full = {"a": 1, "l": [1], "r": {"s": "x"}, "k": [("x", 1)]}
    write(catalog, [[full, {"a": 2, "l": None, "r": None, "k": None}]], mode="append")
    assert numbers(catalog) == [1, 2]
    kinds = {"a": pa.int64(), "l": pa.list_(pa.int64()), "r": pa.struct([("s", pa.string())]), "k": pa.map_(pa.string(), pa.int64())}
    for wrong, column in [({"a": None}, "a"), ({"l": [None]}, "l"), ({"r": {"s": None}}, "r"), ({"k": [("x", None)]}, "k")]:
        row = {**full, **wrong}
        for batch in ([row], pa.record_batch({name: pa.array([row[name]], kind) for name, kind in kinds.items()})):
            for schema in (None, pa.schema(kinds.items())):
                with pytest.raises(DataflowError, match=rf"column '{column}.* null"):
                    write(catalog, [batch], mode="append", schema=schema)
    assert numbers(catalog) == [1, 2]


def test_records_that_do_not_fit_the_table_are_refused(catalog: dict[str, str]) -> None:
    write(catalog, [[{"a": 1}]])
    with pytest.raises(DataflowError, match=r"column 'a' cannot hold 1.5, a float, as int64"):
        write(catalog, [[{"a": 1.5}]], mode="append")
    sink = IcebergSink("ns.t", catalog=catalog, mode="append")
    staged = staged_by(sink, 2)
    with table_of(catalog).update_schema() as update:
        update.add_column("b", StringType())
    with pytest.raises(
        ConfigError, match=r"'ns.t' has the columns \{a: int64, b: string\}, the records \{a: int64\}: they have to be the same"
    ):
        sink.commit(1, staged)
    assert numbers(catalog) == [1]


def test_a_transform_that_is_not_known_is_refused(catalog: dict[str, str]) -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "town", StringType()))
    by_town = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="town"))
    table = load_catalog(**catalog).create_table("ns.t", schema, partition_spec=by_town)
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_text(path.read_text().replace('"transform":"identity"', '"transform":"initials"'))
    told = r"the table is partitioned by 'town', which is UnknownTransform\(transform='initials'\) of 'town': only columns, bucket"
    with pytest.raises(ConfigError, match=told):
        IcebergSink("ns.t", catalog=catalog, mode="append")


def test_a_mapping_of_names_that_lacks_a_column_is_refused(catalog: dict[str, str]) -> None:
    write(catalog, [[{"a": 1, "b": 2}]])
    with table_of(catalog).transaction() as change:
        change.set_properties({"schema.name-mapping.default": '[{"names":["a"],"field-id":1}]'})
    with pytest.raises(ConfigError, match=r"the property 'schema.name-mapping.default' of the table 'ns.t' does not have the column 'b'"):
        write(catalog, [[{"a": 2, "b": 3}]], mode="append")


def test_a_renamed_column_is_read_by_its_new_name(catalog: dict[str, str]) -> None:
    write(catalog, [[{"a": 1, "b": 2}]])
    with table_of(catalog).update_schema() as update:
        update.rename_column("b", "c")
    write(catalog, [[{"a": 2, "c": 3}]], mode="append")
    wanted = [{"a": 1, "c": 2}, {"a": 2, "c": 3}]
    assert sorted(rows_of(catalog), key=lambda row: row["a"]) == wanted


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "w"}, "write_iceberg: mode is 'w'"),
        ({"row_group_rows": 0}, "write_iceberg: row_group_rows is 0"),
        ({"compression": "zip"}, "write_iceberg: compression is 'zip'"),
        ({"schema": 3}, "write_iceberg: schema is 3"),
        ({"properties": {"a": 1}}, "write_iceberg: properties is .* it must be a dict from names to texts"),
        ({"location": 3}, "write_iceberg: location is 3"),
        ({"filesystem": 3}, "write_iceberg: filesystem is 3"),
        ({"catalog": 3}, "write_iceberg: catalog is of type int: it must be a name in the configuration of pyiceberg"),
        ({"catalog": "nowhere"}, "write_iceberg: the catalog 'nowhere' cannot be opened: .*; catalog= is a name"),
        ({"table": "t"}, "write_iceberg: table is 't': it must be an identifier with its namespace"),
        ({"table": "other.t"}, r"has no namespace 'other' for the table 'other.t': make it, as by catalog.create_namespace\('other'\)"),
        ({"schema": pa.schema([("b", pa.int64())]), "mode": "append"}, r"has the columns \{a: int64\}, the records \{b: int64\}"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str, catalog: dict[str, str]) -> None:
    write(catalog, [[{"a": 1}]])
    given = {"table": "ns.t", "catalog": catalog, **options}
    with pytest.raises(ConfigError, match=told):
        IcebergSink(given.pop("table"), **given)


def test_a_catalog_that_does_not_answer(catalog: dict[str, str], tmp_path: Path) -> None:
    away = {**catalog, "uri": f"sqlite:///{tmp_path}/nowhere/catalog.db"}
    with pytest.raises(ConfigError, match=r"write_iceberg: the catalog 'here' cannot be opened: .*unable to open database file"):
        IcebergSink("ns.t", catalog=away)
    with pytest.raises(ConfigError, match=r"write_iceberg: the catalog 'rest' cannot be opened: .*Connection refused"):
        IcebergSink("ns.t", catalog={"name": "rest", "type": "rest", "uri": "http://127.0.0.1:9"})
    sink = IcebergSink("ns.t", catalog=catalog)
    staged = staged_by(sink, 1)
    there, gone = tmp_path / "lake" / "catalog.db", tmp_path / "lake" / "gone.db"
    sink._catalog().engine.dispose()
    there.rename(gone)
    there.mkdir()  # so that it cannot be opened
    with pytest.raises(DataflowError, match=r"write_iceberg: the table 'ns.t' cannot be read from the catalog 'here': .*unable to open"):
        sink.commit(1, staged)
    there.rmdir()
    gone.rename(there)
    sink.commit(1, staged)
    assert numbers(catalog) == [1]


def test_a_secret_is_not_in_messages(catalog: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        IcebergSink("ns.t", catalog={"name": "x", "type": "no such", "password": "hidden"})
    assert "hidden" not in str(caught.value)


def test_without_pyiceberg_it_says_what_to_install(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **named: Any) -> Any:
        if name.startswith("pyiceberg"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *given, **named)

    for name in [name for name in sys.modules if name.startswith("pyiceberg")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    flow = rd.Dataflow("without")
    with pytest.raises(ConfigError, match=r"^write_iceberg needs the package pyiceberg: pip install 'rayad\[iceberg\]' \(No module named"):
        flow.from_items([{"a": 1}]).write_iceberg("ns.t", catalog=catalog)
