"""``write_iceberg``: each record is in the table once, by the catalog that every reader of Iceberg asks."""

from __future__ import annotations

import builtins
import datetime as dt
import itertools
import pickle
import random
import sys
import threading
import uuid
from collections.abc import Callable
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
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tests.integrations.iceberg_tables import catalog_in, numbers, rows_by_polars, rows_of, table_of


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return catalog_in(tmp_path / "lake")


def write(catalog: dict[str, str], epochs: list[Any], parallelism: int = 2, **options: Any) -> Any:
    flow = rd.Dataflow("iceberg")
    stream = flow.from_epochs(epochs, batch_rows=4).rebalance(name="spread").map_batches(lambda batch: batch)
    stream.write_iceberg("ns.t", catalog=catalog, name="out", **options)
    return flow.run(runtime="local", parallelism=parallelism)["out"]


def staged_by(sink: IcebergSink, *values: int) -> list[Any]:
    writer = pickle.loads(pickle.dumps(sink)).open(0, 1)
    writer.write(rd.Timestamp(0), [{"a": value} for value in values])
    return [writer.stage()]


def resumed(sink: IcebergSink, catalog: dict[str, str]) -> IcebergSink:
    """The sink of another coordinator of the same job."""
    again = IcebergSink("ns.t", catalog=catalog, mode=sink.mode)
    again.adopt(sink.identity())
    return again


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

    check_sink(make, seen, histories=12, steps=16)
    if mode == "append":
        assert all(sum(row["batch"] == -1 for row in rows_of(catalog)) == 1 for catalog in made.values())


@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_crash_and_resume_give_each_record_once(seed: int, catalog: dict[str, str], tmp_path: Path) -> None:
    chance = random.Random(seed)
    expected = [epoch * 100 + i for epoch in range(5) for i in range(20)]
    savepoints: list[str] = []
    resume: str | None = None
    for attempt in range(4):
        flow = rd.Dataflow("job")
        source = flow.from_epochs([[{"a": epoch * 100 + i} for i in range(20)] for epoch in range(5)], batch_rows=3, parts=2)
        source.rebalance().map(lambda row: row).write_iceberg("ns.t", catalog=catalog, name="out")
        config = rd.RunConfig(storage_path=str(tmp_path / "store"), resume=resume, snapshots=rd.SnapshotConfig(keep=50))
        job = flow.submit(config, runtime="local", parallelism=chance.choice((1, 2, 3)), seed=chance.randrange(10**6))
        for _ in range(200 if attempt < 3 else 0):
            if not job.step():
                break
            if chance.random() < 0.1:
                savepoints.append(job.savepoint())
                seen = numbers(catalog)
                assert len(seen) == len(set(seen))
                assert set(seen) <= set(expected)
            if chance.random() < 0.02:
                job.crash()
        if attempt == 3:
            job.wait()
            assert numbers(catalog) == expected
            return
        job.cancel()
        resume = chance.choice(["latest", *savepoints[-3:]])
        if resume != "latest":
            del savepoints[savepoints.index(resume) + 1 :]


class Died(BaseException):
    """The process of the coordinator ends here."""


def dies_before(owner: Any, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(patched: pytest.MonkeyPatch) -> None:
        def end(*_: Any, **__: Any) -> Any:
            raise Died(name)

        patched.setattr(owner, name, end)

    return patch


def dies_after(owner: Any, name: str, *, static: bool = False) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(patched: pytest.MonkeyPatch) -> None:
        real = getattr(owner, name)

        def end(*given: Any, **named: Any) -> Any:
            real(*given, **named)
            raise Died(name)

        patched.setattr(owner, name, staticmethod(end) if static else end)

    return patch


STEPS = {
    "before files are moved": dies_before(tables.TableSink, "_moved"),
    "when files are moved and not yet safe": dies_before(tables, "sync"),
    "before the transaction": dies_before(IcebergSink, "transact"),
    "before footers are read": dies_before(IcebergSink, "_data_file"),
    "when the manifests are written": dies_before(SqlCatalog, "commit_table"),
    "when the metadata are written": dies_after(SqlCatalog, "_write_metadata", static=True),
    "when the catalog has committed": dies_after(SqlCatalog, "commit_table"),
    "when the transaction is over": dies_after(IcebergSink, "transact"),
}


@pytest.mark.parametrize("there_is_a_table", [False, True])
@pytest.mark.parametrize("then", ["again", "back", "back and again"])
@pytest.mark.parametrize("step", STEPS)
def test_a_coordinator_that_dies_in_a_commit_is_continued(
    step: str, then: str, there_is_a_table: bool, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = IcebergSink("ns.t", catalog=catalog)
    earlier = staged_by(sink, 1, 2) if there_is_a_table else []
    sink.commit(2, earlier)
    writers = [pickle.loads(pickle.dumps(sink)).open(replica, 2) for replica in range(2)]
    for replica, writer in enumerate(writers):
        writer.write(rd.Timestamp(0), [{"a": 3 + replica}])
    staged = [writer.stage() for writer in writers]
    with monkeypatch.context() as patched:
        STEPS[step](patched)
        with pytest.raises(Died):
            sink.commit(3, staged)
    before = [1, 2] if there_is_a_table else []
    assert numbers(catalog) in (before, [*before, 3, 4])
    again = resumed(sink, catalog)
    if then == "again":
        again.roll_back(3, 5)
        again.commit(3, staged)
        again.commit(5, staged_by(again, 5))
        assert numbers(catalog) == [*before, 3, 4, 5]
        return
    again.roll_back(2, 5)
    if then == "back and again":
        with monkeypatch.context() as patched:
            STEPS[step](patched)
            try:
                again.commit(2, earlier)
            except Died:
                pass  # some of the steps have nothing to do here
        again = resumed(sink, catalog)
        again.roll_back(2, 6)
    again.commit(2, earlier)
    assert numbers(catalog) == before
    with pytest.raises(DataflowError, match=r"snapshot 3 cannot be committed to 'ns.t': the job resumed from snapshot 2 meanwhile"):
        sink.commit(3, staged)
    again.commit(7, staged_by(again, 7))
    assert numbers(catalog) == [*before, 7]
    assert sorted(row["a"] for row in rows_by_polars(catalog)) == [*before, 7]


def test_a_commit_is_recognised_by_the_property_of_the_table(catalog: dict[str, str]) -> None:
    sink = IcebergSink("ns.t", catalog=catalog)
    staged = staged_by(sink, 1, 2)
    assert sink.commit(2, staged) == sink.commit(2, staged)
    assert sink.commit(3, []).version == sink.commit(2, staged).version  # nothing to say
    assert '"shown": 2' in table_of(catalog).properties[f"rayad.{sink.job}"]
    summary = table_of(catalog).current_snapshot().summary.additional_properties
    assert (summary["rayad.job"], summary["rayad.snapshot"]) == (sink.job, "2")
    table_of(catalog).append(pa.table({"a": [10]}))  # somebody else
    table = table_of(catalog)
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.snapshots()][:-1]).commit()
    again = resumed(sink, catalog)
    again.commit(2, staged)
    assert numbers(catalog) == [1, 2, 10]
    again.roll_back(1, 4)
    with pytest.raises(DataflowError, match=r"snapshots 2 to 3 cannot be taken back from 'ns.t': the history of the table has expired"):
        again.commit(1, [])
    table = table_of(catalog)
    with table.transaction() as broken:
        broken.set_properties({f"rayad.{sink.job}": "7"})
    with pytest.raises(DataflowError, match=r"the property 'rayad.\w+' of the table 'ns.t' is '7', which is not what this job has written"):
        sink.commit(3, staged)


def test_a_roll_back_beside_other_jobs(catalog: dict[str, str]) -> None:
    one, other = IcebergSink("ns.t", catalog=catalog), None
    one.commit(1, staged_by(one, 1))
    other = IcebergSink("ns.t", catalog=catalog, mode="append")
    for number in (2, 3, 4):
        one.commit(number, staged_by(one, number))
        other.commit(number, staged_by(other, number * 10))
    one.roll_back(2, 5)
    one.commit(2, [])
    assert numbers(catalog) == [1, 2, 20, 30, 40]
    other.roll_back(3, 6)
    other.commit(3, [])
    assert numbers(catalog) == [1, 2, 20, 30]
    one.roll_back(1, 6)
    one.commit(1, [])
    assert numbers(catalog) == [1, 20, 30]


def test_a_roll_back_across_rewritten_files_is_refused(catalog: dict[str, str]) -> None:
    sink = IcebergSink("ns.t", catalog=catalog)
    for number in (2, 3, 4):
        sink.commit(number, staged_by(sink, number, number * 10))
    table_of(catalog).delete(EqualTo("a", 40))
    sink.roll_back(3, 5)
    told = r"snapshots 4 to 4 cannot be taken back from 'ns.t': of the 1 files they added 0 are left, so their rows may be in other files"
    with pytest.raises(DataflowError, match=told):
        sink.commit(3, [])
    sink.roll_back(4, 5)
    sink.commit(4, [])
    sink.commit(5, staged_by(sink, 5))
    assert numbers(catalog) == [2, 3, 4, 5, 20, 30]


def meanwhile(patched: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> None:
    """Do this between the moment at which a commit looks at the table, and the one at which the catalog gets it."""
    real, left = SqlCatalog.commit_table, [times]

    def commit(self: Any, *given: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            kept, left[0] = left[0], 0
            act()
            left[0] = kept
        return real(self, *given)

    patched.setattr(SqlCatalog, "commit_table", commit)


@pytest.mark.parametrize("times", [1, 7])
def test_commits_of_others_at_the_same_moment_are_no_obstacle(times: int, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sink = IcebergSink("ns.t", catalog=catalog, properties={"commit.retry.min-wait-ms": "1"})
    sink.commit(1, staged_by(sink, 1))
    staged = staged_by(sink, 2)
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: table_of(catalog).append(pa.table({"a": [10]})), times)
        sink.commit(2, staged)
    assert numbers(catalog) == [1, 2, *([10] * times)]
    sink.roll_back(1, 3)
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: table_of(catalog).append(pa.table({"a": [11]})), 2)
        sink.commit(1, [])
    assert numbers(catalog) == [1, *([10] * times), 11, 11]


def test_two_jobs_that_make_one_table_at_once(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (IcebergSink("ns.t", catalog=catalog, mode="append") for _ in range(2))
    late = IcebergSink("ns.t", catalog=catalog)
    staged = [staged_by(sink, number) for number, sink in enumerate((one, other, late))]
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: str(other.commit(1, staged[1])))  # type: ignore[arg-type, return-value]
        one.commit(1, staged[0])
    assert numbers(catalog) == [0, 1]
    with pytest.raises(ConfigError, match=r"there is a table at 'ns.t' and mode='error'"):
        late.commit(1, staged[2])


def test_a_coordinator_that_was_taken_for_dead_is_refused_in_its_commit(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    late = IcebergSink("ns.t", catalog=catalog)
    for number in (2, 3):
        late.commit(number, staged_by(late, number))
    staged = staged_by(late, 4)
    new = resumed(late, catalog)
    new.roll_back(2, 5)
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: str(new.commit(2, [])))  # type: ignore[arg-type, return-value]
        with pytest.raises(DataflowError, match=r"snapshot 4 cannot be committed to 'ns.t': the job resumed from snapshot 2 meanwhile"):
            late.commit(4, staged)
    assert numbers(catalog) == [2]


def test_the_same_commit_by_two_coordinators_at_once_is_one(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    one = IcebergSink("ns.t", catalog=catalog)
    one.commit(1, staged_by(one, 1))
    other, staged = resumed(one, catalog), staged_by(one, 2)
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: str(other.commit(2, staged)))  # type: ignore[arg-type, return-value]
        one.commit(2, staged)
    assert numbers(catalog) == [1, 2]


@pytest.mark.parametrize("error", [CommitFailedException("lost"), ConnectionError("lost")])
def test_an_answer_that_was_lost(error: Exception, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sink = IcebergSink("ns.t", catalog=catalog, properties={"commit.retry.min-wait-ms": "1"})
    sink.commit(1, staged_by(sink, 1))
    staged = staged_by(sink, 2)
    with monkeypatch.context() as patched:
        real = SqlCatalog.commit_table

        def commit(self: Any, *given: Any) -> Any:
            real(self, *given)
            patched.undo()
            raise error

        patched.setattr(SqlCatalog, "commit_table", commit)
        if isinstance(error, ConnectionError):
            with pytest.raises(DataflowError, match=r"the commit of snapshot 2 to 'ns.t' failed: lost"):
                sink.commit(2, staged)
        else:
            sink.commit(2, staged)
    sink.commit(2, staged)
    assert numbers(catalog) == [1, 2]


def test_several_jobs_in_threads(catalog: dict[str, str]) -> None:
    first = IcebergSink("ns.t", catalog=catalog, properties={"commit.retry.min-wait-ms": "1"})
    first.commit(1, staged_by(first, -1))
    failed: list[BaseException] = []

    def run(at: int) -> None:
        try:
            sink = IcebergSink("ns.t", catalog=catalog, mode="append")
            for number in range(1, 7):
                staged = staged_by(sink, 100 * at + number)
                sink.commit(number, staged)
                sink.commit(number, staged)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert numbers(catalog) == [-1, *(100 * at + number for at in range(3) for number in range(1, 7))]


def test_manifests_of_many_commits_are_merged(catalog: dict[str, str]) -> None:
    sink = IcebergSink("ns.t", catalog=catalog, properties={"commit.manifest.min-count-to-merge": "3"})
    for number in range(12):
        sink.commit(number, staged_by(sink, number))
    table = table_of(catalog)
    assert len(table.current_snapshot().manifests(table.io)) <= 4
    sink.roll_back(3, 20)
    sink.commit(3, [])
    assert numbers(catalog) == [0, 1, 2, 3]
    assert sorted(row["a"] for row in rows_by_polars(catalog)) == [0, 1, 2, 3]


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


def test_a_table_with_partitions_is_refused(catalog: dict[str, str]) -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "town", StringType()))
    by_town = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="town"))
    load_catalog(**catalog).create_table("ns.t", schema, partition_spec=by_town)
    with pytest.raises(ConfigError, match=r"the table 'ns.t' is partitioned \(1000: town: identity\(2\)\): only tables without partitions"):
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
