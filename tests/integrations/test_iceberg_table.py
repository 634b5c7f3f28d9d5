"""Iceberg tables are as the collection is, with each snapshot; failures and changes of layout strike meanwhile."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayad as rd
from rayad.integrations import IcebergSink, IcebergTable
from rayad.integrations.iceberg import changes as which
from rayad.testing import check_sink
from tests.incremental.programs import Shape, history
from tests.incremental.test_ends import counted, degrees_of, tables
from tests.incremental.test_updating_sinks import run_with_failures
from tests.thorough import amount, by_turns

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.types import LongType, StringType

from tests.integrations.iceberg_changes import SCHEMA, added, changed, degrees, made
from tests.integrations.iceberg_tables import catalog_in, delete_rows, rows_by_polars, rows_of, table_of
from tests.integrations.test_iceberg import VALUES


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return catalog_in(tmp_path / "lake")


@pytest.mark.parametrize("seed", range(amount(each_run=3, soak=40)))
def test_an_iceberg_table_is_as_the_collection_is(seed: int, catalog: dict[str, str], tmp_path: Path) -> None:
    changes = history(Shape(6, 9, 12), seed)
    made(catalog, partition_by=[(), "bucket(2, node)", "truncate(3, n)"][seed % 3])
    added(catalog, {1000: 7, 3: -1})
    flow = rd.Dataflow("degrees")
    rows = counted(rd.Collection(flow.from_epochs(changes, batch_rows=3)))
    rows.updates("node", name="out.table", what="write_iceberg").sink(IcebergTable("ns.t", key="node", catalog=catalog), "out")
    states = []
    published = run_with_failures(flow, tmp_path / "job", seed, lambda: states.append(degrees(catalog)))["out"]
    expected = degrees_of(tables(changes)[-1]) | {1000: 7}
    if 3 not in degrees_of(sum(tables(changes), Counter())):
        expected[3] = -1
    assert degrees(catalog) == expected
    assert {row["node"]: row["n"] for row in rows_by_polars(catalog)} == expected
    assert published.version == table_of(catalog).current_snapshot().snapshot_id
    every = [set(degrees_of(there).items()) for there in tables(changes)]
    for state in states:
        for node, n in state.items():
            assert node in (1000, 3) or any((node, n) in some for some in every)


def test_it_keeps_the_contract_of_sinks(tmp_path: Path) -> None:
    catalogs: list[dict[str, str]] = []

    def make() -> IcebergTable:
        catalogs.append(catalog_in(tmp_path / f"contract-{len(catalogs)}"))
        return IcebergTable("ns.t", key="node", schema=SCHEMA, catalog=catalogs[-1])

    def rows(_: Any) -> list[Any]:
        return [({"node": row["node"], "n": row["n"]}, 1) for row in rows_of(catalogs[-1])]

    check_sink(make, rows, histories=3, steps=6, takes_back=False, batch=lambda n: [({"node": 10 * n + k, "n": k}, 1) for k in range(3)])


def test_a_table_that_is_not_there_is_made_and_follows_through_one_method(catalog: dict[str, str]) -> None:
    full = {"Key of": "a", "day": dt.date(2026, 1, 2), "cost": Decimal("1.50"), "raw": b"\x00", 'a "b"': 1.5}
    null = {**dict.fromkeys(full), "Key of": "a", "day": full["day"]}
    other = {**full, "day": dt.date(2026, 1, 3)}
    kinds = [("Key of", pa.string()), ("day", pa.date32()), ("cost", pa.decimal128(9, 2)), ("raw", pa.binary()), ('a "b"', pa.float64())]
    flow = rd.Dataflow("typed")
    rows = rd.Collection(flow.from_epochs([[(full, 1), (other, 1)], [(full, -1), (null, 1)]]))
    by = ["month(day)", "truncate(1, Key of)"]
    rows.write_iceberg("ns.t", key=("Key of", "day"), schema=pa.schema(kinds), partition_by=by, catalog=catalog, name="out")
    published = flow.run(runtime="local", parallelism=2)["out"]
    assert published.path == "ns.t"
    assert sorted(rows_of(catalog), key=lambda row: row["day"]) == [null, other]
    assert [str(field.transform) for field in table_of(catalog).spec().fields] == ["month", "truncate[1]"]


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int8(), [-1, 0, 7]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1, 5]),
    "text": (pa.large_string(), ["", "x" * 40, "x" * 41]),
    "beyond": (pa.string(), ["\U0010ffff" * 20, "\U0010ffff" * 21, "é"]),
    "bytes": (pa.binary(), [b"", b"\xff" * 20, b"\xff" * 21]),
    "fixed": (pa.binary(2), [b"\x00\xff", b"ab", b"cd"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 1, 1)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999_999), dt.time(12)]),
    "moment": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1969, 12, 31)]),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), [dt.datetime(2026, 1, n, tzinfo=dt.UTC) for n in (1, 2, 3)]),
    "decimal": (pa.decimal128(38, 9), [Decimal("12345678901234567890.123456789"), Decimal("-1.250000000"), Decimal("0.000000000")]),
    "bool": (pa.bool_(), [True, False]),
    "double": (pa.float64(), [0.5, float("inf"), -2.0, 0.0]),
    "uuid": (pa.uuid(), [uuid.UUID(int=5), uuid.UUID(int=2**128 - 1), uuid.UUID(int=2**64)]),
}


@by_turns(3)
@pytest.mark.parametrize(("kind", "by"), [*((kind, by) for kind in KEYS for by in ((), "k")), ("uuid", "bucket(4, k)")])
def test_keys_of_each_type_find_their_rows(kind: str, by: Any, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By what manifests say of files, which cut texts, and by the rows; alone and with another column."""
    monkeypatch.setattr(which, "SMALL_BYTES", 0)  # so that the columns of the key are read first
    made_of, values = KEYS[kind]
    schema = pa.schema([("k", made_of), ("m", pa.int64()), ("v", pa.int64())])
    sink = made(catalog, schema, ["k", "m"], partition_by=by)
    alone = IcebergTable("ns.t", key="k", schema=schema, catalog=catalog) if kind == "text" else None
    table: dict[Any, int] = {}
    chance = random.Random(kind)
    for number in range(1, 4):
        writer = sink.open(0, 1)
        for at, value in enumerate(values):
            if number == 1 or chance.random() < 0.6:
                weight = 1 if number == 1 or chance.random() < 0.6 else -1
                key = -value if kind == "double" and number == 2 and not value else value  # zero has two forms, and is one key
                writer.write(rd.Timestamp(0), [({"k": key, "m": at, "v": number}, weight)])
                table[value] = number
                if weight < 0:
                    del table[value]
        sink.commit(number, [writer.stage()])
        assert {row["k"]: row["v"] for row in rows_of(catalog)} == table
    if alone is not None:
        writer = alone.open(0, 1)
        writer.write(rd.Timestamp(0), [({"k": value, "m": 9, "v": 9}, 1) for value in values])
        alone.commit(1, [writer.stage()])
        assert {row["k"]: row["v"] for row in rows_of(catalog)} == dict.fromkeys(values, 9)


@pytest.mark.parametrize("seed", range(amount(each_run=2, soak=30)))
def test_random_changes_are_those_of_a_dict(seed: int, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Many commits, beside rows of others; files are joined, cut and passed over, and manifests are merged."""
    chance = random.Random(seed)
    monkeypatch.setattr(which, "SMALL_BYTES", chance.choice([0, 1 << 20]))
    monkeypatch.setattr(which, "SMALL_FILES_MAX", chance.choice([2, 16]))
    monkeypatch.setattr("rayad.integrations.iceberg.table.FILE_BYTES", chance.choice([1, 200, 1 << 20]))
    monkeypatch.setattr("rayad.integrations.iceberg.sink.EMPTY_MAX", 3)
    by = chance.choice([(), "bucket(3, node)", "n", ["truncate(10, node)", "bucket(2, n)"]])
    sink = made(catalog, partition_by=by)
    table: dict[int, int] = {}
    for number in range(1, 16):
        if chance.random() < 0.2:  # others add rows, which are rows of the table as any other
            theirs = [n for n in range(40) if n not in table][:2]
            table |= dict.fromkeys(theirs, -number)
            added(catalog, dict.fromkeys(theirs, -number))
        some = chance.sample(range(40), chance.randrange(1, 12))
        changes = [(node, number % 4, 1) if chance.random() < 0.7 else (node, table.get(node, 0), -1) for node in some]
        for node, n, weight in changes:
            table.pop(node, None)
            if weight > 0:
                table[node] = n
        before = len(table_of(catalog).snapshots())
        at = chance.randrange(len(changes))
        sink.commit(number, changed(sink, *changes[:at]) + changed(sink, *changes[at:]))
        assert len(table_of(catalog).snapshots()) - before in (1, 2)
        assert degrees(catalog) == table
    assert {row["node"]: row["n"] for row in rows_by_polars(catalog)} == table


def test_the_last_epoch_of_a_key_counts_whichever_replica_wrote_it(catalog: dict[str, str]) -> None:
    sink = made(catalog)
    staged = changed(sink, (1, 9, 1), (2, 2, -1), epoch=5) + changed(sink, (1, 8, 1), (2, 2, 1), epoch=4)
    first, again = sink.commit(1, staged), sink.commit(1, staged)
    assert first == again
    assert degrees(catalog) == {1: 9}


def exact_rows(catalog: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of the files of a table: ``pyiceberg`` reads lists of structs that are null as empty ones."""
    paths = [task.file.file_path.removeprefix("file://") for task in table_of(catalog).scan().plan_files()]
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_rows_that_are_written_anew_keep_their_values(catalog: dict[str, str]) -> None:
    """Of every type, and where nothing may be null; the row beside them changes."""
    kinds = {name: kind for name, (kind, _) in VALUES.items()}
    columns = {name: pa.array(values, kinds[name]) for name, (_, values) in VALUES.items() if name != "q"}
    columns["q"] = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=5).bytes, None], pa.binary(16)))
    ids = pa.array([1, 2])
    fields = [pa.field("id", pa.int64(), nullable=False), *(pa.field(name, kinds[name]) for name in columns)]
    inner = pa.struct([pa.field("s", pa.string(), nullable=False)])
    fields += [pa.field("inner", inner), pa.field("some", pa.list_(pa.field("element", inner, nullable=False)))]
    more = [pa.array([{"s": "x"}, None], inner), pa.array([[{"s": "y"}], None], pa.list_(inner)).cast(fields[-1].type)]
    whole = pa.record_batch([ids, *columns.values(), *more], schema=pa.schema(fields))
    sink = made(catalog, whole.schema, "id", partition_by=["bucket(1, id)", "truncate(100, i)"])
    beside = IcebergSink("ns.t", catalog=catalog, mode="append")
    writer = beside.open(0, 1)
    writer.write(rd.Timestamp(0), whole)
    beside.commit(1, [writer.stage()])
    before = {row["id"]: row for row in exact_rows(catalog)}
    for number in (1, 2):
        changes = sink.open(0, 1)
        changes.write(rd.Timestamp(0), [({**dict.fromkeys(before[1]), "id": 2, "i": number}, 1), ({**before[1], "id": 9}, 1)])
        sink.commit(number, [changes.stage()])
        after = {row["id"]: row for row in exact_rows(catalog)}
        assert after == {1: before[1], 2: {**dict.fromkeys(before[1]), "id": 2, "i": number}, 9: {**before[1], "id": 9}}
    path = next(task.file.file_path for task in table_of(catalog).scan().plan_files())
    assert pq.read_schema(path.removeprefix("file://")).field("id").nullable is False


def test_files_of_an_earlier_schema_are_written_anew(catalog: dict[str, str]) -> None:
    """Renamed columns, one that was added, and one of an old name; where that would change values it is refused."""
    inner = pa.struct([("s", pa.string())])
    for name, more, wider in (("ns.t", [], True), ("ns.v", [], False), ("ns.u", [pa.field("many", pa.list_(inner))], False)):
        table = load_catalog(**catalog).create_table(name, pa.schema([("a", pa.int64()), ("b", pa.int32()), ("c", pa.string()), *more]))
        nulls = {field.name: pa.nulls(2, field.type) for field in more}
        table.append(pa.table({"a": [1, 2], "b": pa.array([3, 4], pa.int32()), "c": ["x", "y"], **nulls}))
        row = {"old": 7, "b": "new", "c": "new"}
        with table.update_schema() as update:
            update.rename_column("b", "old")
            update.delete_column("c")
        with table.update_schema() as update:
            update.add_column("b", StringType())
            update.add_column("c", StringType())
            if wider:
                update.update_column("old", LongType())
                row["old"] = 2**40
        sink = IcebergTable(name, key="a", catalog=catalog)
        writer = sink.open(0, 1)
        writer.write(rd.Timestamp(0), [({"a": 1, **row, **{f.name: None for f in more}}, 1)])
        staged = [writer.stage()]
        if more:
            with pytest.raises(rd.DataflowError, match=r"the file .* has to be written anew, and has deleted rows or an earlier"):
                sink.commit(1, staged)
        else:
            sink.commit(1, staged)
            assert sorted(rows_of(catalog, name), key=lambda one: one["a"]) == [{"a": 1, **row}, {"a": 2, "old": 4, "b": None, "c": None}]


def test_rows_that_others_have_deleted_do_not_come_back(catalog: dict[str, str]) -> None:
    """By files of positions, which another program has written beside a data file."""
    sink = made(catalog)
    table_of(catalog).append(pa.table({"node": [1, 2, 3, 4], "n": [1, 1, 1, 1]}))
    table_of(catalog).append(pa.table({"node": [11, 12], "n": [1, 1]}))
    path = next(task.file.file_path for task in table_of(catalog).scan().plan_files() if task.file.record_count == 4)
    delete_rows(catalog, path, [1, 3])
    assert degrees(catalog) == {1: 1, 3: 1, 11: 1, 12: 1}
    sink.commit(1, changed(sink, (11, 2, 1)))
    sink.commit(2, changed(sink, (1, 2, 1), (4, 0, -1)))
    assert degrees(catalog) == {1: 2, 3: 1, 11: 2, 12: 1}
    sink.commit(3, changed(sink, (2, 3, 1)))
    assert degrees(catalog) == {1: 2, 2: 3, 3: 1, 11: 2, 12: 1}


def test_several_rows_of_a_key_become_one(catalog: dict[str, str]) -> None:
    """Others may have written a key twice, into one file or two."""
    sink = made(catalog)
    table_of(catalog).append(pa.table({"node": [1, 1, 2, 2, 3], "n": [1, 2, 3, 4, 5]}))
    table_of(catalog).append(pa.table({"node": [1, 2], "n": [6, 7]}))
    sink.commit(1, changed(sink, (1, 9, 1), (2, 0, -1)))
    assert degrees(catalog) == {1: 9, 3: 5}


def test_rows_of_others_with_null_in_the_key_stay(catalog: dict[str, str]) -> None:
    sink = made(catalog, partition_by="node")
    table_of(catalog).append(pa.table({"node": [None, 1], "n": [1, 2]}, schema=SCHEMA))
    sink.commit(1, changed(sink, (1, 9, 1)))
    assert sorted(rows_of(catalog), key=str) == [{"node": 1, "n": 9}, {"node": None, "n": 1}]
    flow = rd.Dataflow("null")
    rd.Collection(flow.from_epochs([[({"node": None, "n": 1}, 1)]])).write_iceberg("ns.t", key="node", catalog=catalog)
    with pytest.raises(rd.DataflowError, match=r"write_iceberg: .* has the key None in epoch 0: a record without a key"):
        flow.run(runtime="local")


def test_many_changes_are_quick_and_files_without_them_stay(catalog: dict[str, str]) -> None:
    """Of files whose keys lie apart only those with changes are written anew; and one snapshot of Iceberg has it all."""
    sink = made(catalog)
    for part in range(4):
        ids = range(1000 * part, 1000 * part + 1000)
        table_of(catalog).append(pa.table({"node": ids, "n": [0] * 1000}))
    before = {task.file.file_path for task in table_of(catalog).scan().plan_files()}
    sink.commit(1, changed(sink, *((node, 1, 1) for node in range(1500, 1600)), (5000, 1, 1)))
    table = table_of(catalog)
    after = {task.file.file_path for task in table.scan().plan_files()}
    assert len(before & after) == 3
    assert table.current_snapshot().summary.additional_properties["deleted-records"] == "1000"
    assert len(table.snapshots()) == 5
    assert table.scan(row_filter=EqualTo("n", 1)).to_arrow().num_rows == 101


def test_manifests_do_not_grow_without_end(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.iceberg.sink.EMPTY_MAX", 4)
    sink = made(catalog)
    for number in range(1, 14):
        sink.commit(number, changed(sink, (1, number, 1)))
    table = table_of(catalog)
    assert len(table.current_snapshot().manifests(table.io)) <= 6
    assert degrees(catalog) == {1: 13}


def test_what_it_is_given_is_checked(catalog: dict[str, str]) -> None:
    with pytest.raises(rd.ConfigError, match=r"write_iceberg: there is no table at 'ns.t' yet: give schema="):
        IcebergTable("ns.t", key="node", catalog=catalog)
    with pytest.raises(rd.ConfigError, match=r"write_iceberg: key is \['no'\], and the schema has the columns \['node', 'n'\]"):
        IcebergTable("ns.t", key="no", schema=SCHEMA, catalog=catalog)
    with pytest.raises(rd.ConfigError, match=r"write_iceberg: a column cannot be called 'rayad_there' here"):
        IcebergTable("ns.t", key="node", schema=SCHEMA.append(pa.field("rayad_there", pa.bool_())), catalog=catalog)
    flow = rd.Dataflow("bare")
    bare = IcebergTable("ns.t", key="node", schema=SCHEMA, catalog=catalog)
    flow.from_items([("a", 1)]).as_collection().updates(lambda pair: pair[0]).sink(bare)
    with pytest.raises(rd.ConfigError, match=r"write_iceberg: the record \('a', 1\) has no fields"):
        flow.run(runtime="local")
    with pytest.raises(rd.ConfigError, match=r"has the columns"):
        IcebergTable("ns.t", key="node", schema=pa.schema([("node", pa.int64()), ("other", pa.string())]), catalog=catalog)
    sink = IcebergTable("ns.t", key="node", catalog=catalog)
    staged = changed(sink, (1, 1, 1))
    load_catalog(**catalog).drop_table("ns.t")
    with pytest.raises(rd.DataflowError, match=r"write_iceberg: the table at 'ns.t' is gone; write to another place, or make it again"):
        sink.commit(1, staged)
