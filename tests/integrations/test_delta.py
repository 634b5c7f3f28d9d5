"""``write_delta``: each record is in the table once, by the log that every reader of Delta reads."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import rayad as rd
from rayad.integrations import DeltaSink
from rayad.progress import ConfigError, DataflowError
from rayad.testing import check_sink
from tests.thorough import amount

deltalake = pytest.importorskip("deltalake")


def rows_of(path: Path | str) -> list[Any]:
    """What a reader of Delta sees."""
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return []
    found: list[Any] = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


def numbers(path: Path | str) -> list[int]:
    return sorted(row["a"] for row in rows_of(path))


def write(path: Path, epochs: list[Any], **options: Any) -> Any:
    flow = rd.Dataflow("delta")
    stream = flow.from_epochs(epochs, batch_rows=4).rebalance(name="spread").map_batches(lambda batch: batch)
    stream.write_delta(str(path), name="out", **options)
    return flow.run(runtime="local", parallelism=2)["out"]


def staged_by(sink: DeltaSink, *values: int) -> list[Any]:
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(0), [{"a": value} for value in values])
    return [writer.stage()]


def test_records_are_in_the_table_once(tmp_path: Path) -> None:
    published = write(tmp_path / "t", [[{"a": n, "s": f"{n}"} for n in range(20)], [{"a": n, "s": None} for n in range(20, 30)]])
    assert published.version == 0
    assert numbers(tmp_path / "t") == list(range(30))
    assert sorted(path.name for path in (tmp_path / "t").iterdir() if not path.name.endswith(".parquet")) == ["_delta_log"]
    frame = deltalake.DeltaTable(str(tmp_path / "t")).to_pandas().sort_values("a")
    assert frame["s"].tolist()[:2] == ["0", "1"]
    files = deltalake.DeltaTable(str(tmp_path / "t")).file_uris()
    assert duckdb.read_parquet([uri.removeprefix("file://") for uri in files]).aggregate("count(*), sum(a)").fetchall() == [(30, 435)]


VALUES = {
    "i": (pa.int8(), [1, None]),
    "u": (pa.uint16(), [65_535, None]),
    "w": (pa.uint64(), [2**64 - 1, None]),
    "f": (pa.float32(), [0.5, None]),
    "b": (pa.bool_(), [True, None]),
    "s": (pa.large_string(), ["x", None]),
    "x": (pa.binary(), [b"\xff", None]),
    "d": (pa.date32(), [dt.date(2024, 5, 1), None]),
    "t": (pa.timestamp("ns"), [dt.datetime(2024, 5, 1, 12, 0, 0, 1), None]),
    "z": (pa.timestamp("us", "Europe/Berlin"), [dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), None]),
    "m": (pa.decimal128(38, 9), [Decimal("12345678901234567890.123456789"), None]),
    "l": (pa.list_(pa.int64()), [[1, None], None]),
    "r": (pa.struct([("a", pa.int64()), ("t", pa.list_(pa.string()))]), [{"a": 1, "t": ["y"]}, None]),
    "k": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None]),
}


def test_values_are_equal_in_the_types_of_delta(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), *((name, kind) for name, (kind, _) in VALUES.items())])
    columns = [pa.array([0, 1]), *(pa.array(values, kind) for kind, values in VALUES.values())]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    write(tmp_path / "t", [batch])
    assert sorted(rows_of(tmp_path / "t"), key=lambda row: row["n"]) == [
        {"n": at, **{name: values[at] for name, (_, values) in VALUES.items()}} for at in (0, 1)
    ]
    write(tmp_path / "t", [[{"n": 2, "u": 7, "w": 8, "t": dt.datetime(2024, 5, 2)}]], mode="append")  # in the table's types
    assert {"n": 2, "u": 7, "w": 8, "t": dt.datetime(2024, 5, 2)}.items() <= rows_of_n(tmp_path / "t", 2).items()


def rows_of_n(path: Path, n: int) -> dict[str, Any]:
    (row,) = [row for row in rows_of(path) if row["n"] == n]
    found: dict[str, Any] = row
    return found


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (pa.duration("us"), dt.timedelta(1), "column 'x' is duration.us., for which Delta has none"),
        (pa.time64("us"), dt.time(1), "column 'x' is of type time64.us., for which Spark 3.5 has none"),
        (pa.null(), None, "column 'x' is of type null: nothing but nulls"),
    ],
)
def test_types_that_delta_has_not_are_refused(kind: pa.DataType, value: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(DataflowError, match=told):
        DeltaSink(tmp_path / "declared", schema=pa.schema([("x", kind)]))
    with pytest.raises(DataflowError, match=told):
        write(tmp_path / "t", [pa.record_batch({"n": pa.array([1]), "x": pa.array([value], kind)})])
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_partitions_come_back(tmp_path: Path) -> None:
    rows = [{"a": n, "town": ["Ulm", "a/b %", None][n % 3], "day": dt.date(2024, 5, 1 + n % 2), "n": n % 2} for n in range(24)]
    schema = pa.schema([("a", pa.int64()), ("town", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
    write(tmp_path / "t", [rows[:12], rows[12:]], schema=schema, partition_by=["town", "day", "n"], epoch_column="e")
    found = sorted(rows_of(tmp_path / "t"), key=lambda row: row["a"])
    assert found == [{**row, "e": int(row["a"] >= 12)} for row in rows]
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["town", "day", "n"]
    assert table.to_pyarrow_table(filters=[("town", "=", "a/b %")]).num_rows == 8
    write(tmp_path / "t", [[{**rows[0], "a": 99}]], mode="append", epoch_column="e")  # by the table's own partitions
    assert sorted(row["a"] for row in rows_of(tmp_path / "t")) == [*range(24), 99]
    with pytest.raises(ConfigError, match=r"is partitioned by \['town', 'day', 'n'\], not by \['town'\]"):
        DeltaSink(tmp_path / "t", mode="append", partition_by="town")


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_the_sink_keeps_the_contract(mode: Any, tmp_path: Path) -> None:
    places = itertools.count()

    def make() -> DeltaSink:
        place = tmp_path / str(next(places))
        if mode == "append":  # beside what others wrote
            deltalake.write_deltalake(str(place), pa.table({"batch": [-1], "row": [0], "text": [""]}))
        return DeltaSink(str(place), mode=mode)

    check_sink(make, lambda sink: [row for row in rows_of(sink.path) if row["batch"] >= 0], histories=amount(each_run=8, soak=25), steps=16)  # type: ignore[attr-defined]
    if mode == "append":
        assert sum(row["batch"] == -1 for row in rows_of(tmp_path / "0")) == 1


@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_crash_and_resume_give_each_record_once(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    out = tmp_path / "t"
    expected = [epoch * 100 + i for epoch in range(5) for i in range(20)]
    savepoints: list[str] = []
    resume: str | None = None
    for attempt in range(4):
        flow = rd.Dataflow("job")
        source = flow.from_epochs([[{"a": epoch * 100 + i} for i in range(20)] for epoch in range(5)], batch_rows=3, parts=2)
        source.rebalance().map(lambda row: row).write_delta(str(out), name="out")
        config = rd.RunConfig(storage_path=str(tmp_path / "store"), resume=resume, snapshots=rd.SnapshotConfig(keep=50))
        job = flow.submit(config, runtime="local", parallelism=2, seed=chance.randrange(10**6))
        for _ in range(200 if attempt < 3 else 0):
            if not job.step():
                break
            if chance.random() < 0.1:
                savepoints.append(job.savepoint())
                seen = numbers(out)
                assert len(seen) == len(set(seen))
                assert set(seen) <= set(expected)
            if chance.random() < 0.02:
                job.crash()
        if attempt == 3:
            job.wait()
            assert numbers(out) == expected
            return
        job.cancel()
        resume = chance.choice(["latest", *savepoints[-3:]])
        if resume != "latest":
            del savepoints[savepoints.index(resume) + 1 :]


def test_a_commit_is_recognised_by_its_application_transaction(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "t")
    staged = staged_by(sink, 1, 2)
    assert sink.commit(2, staged) == sink.commit(2, staged)
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert (table.version(), table.transaction_version(f"rayad-{sink.job}")) == (0, 2)
    assert sink.commit(3, []).version == 0  # nothing to say
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"a": [10]}), mode="append")  # somebody else
    again = DeltaSink(tmp_path / "t", mode="append")
    again.adopt(sink.identity())
    again.roll_back(3, 5)
    assert again.commit(3, []).version == 2  # which snapshots are void
    again.commit(5, staged_by(again, 3))
    assert numbers(tmp_path / "t") == [1, 2, 3, 10]
    with pytest.raises(DataflowError, match=r"snapshot 4 cannot be committed to .* resumed from snapshot 3 meanwhile"):
        sink.commit(4, staged_by(sink, 4))
    again.roll_back(2, 7)
    again.commit(2, staged)
    assert numbers(tmp_path / "t") == [1, 2, 10]


def test_a_coordinator_that_died_between_moving_and_committing_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(tmp_path / "t")
    staged = staged_by(sink, 1)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaSink, "transact", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.commit(2, staged)
    assert rows_of(tmp_path / "t") == []
    again = DeltaSink(tmp_path / "t")
    again.adopt(sink.identity())
    again.roll_back(2, 4)
    again.commit(2, staged)
    assert numbers(tmp_path / "t") == [1]


def test_a_roll_back_across_rewritten_files_is_refused(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "t")
    for number in (2, 3, 4):
        sink.commit(number, staged_by(sink, number))
    deltalake.DeltaTable(str(tmp_path / "t")).optimize.compact()
    sink.roll_back(3, 5)
    with pytest.raises(DataflowError, match=r"snapshots 4 to 4 cannot be taken back from .* rewrote its files meanwhile \(OPTIMIZE\)"):
        sink.commit(3, [])
    sink.roll_back(4, 5)
    sink.commit(4, [])
    sink.commit(5, staged_by(sink, 5))
    assert numbers(tmp_path / "t") == [2, 3, 4, 5]


def test_a_roll_back_in_a_table_with_partitions(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "t", partition_by="k")
    for number in (2, 3):
        writer = sink.open(0, 1)
        writer.write(rd.Timestamp(0), [{"a": number * 10 + k, "k": f"{k}/"} for k in range(3)])
        sink.commit(number, [writer.stage()])
    sink.roll_back(2, 4)
    sink.commit(2, [])
    assert numbers(tmp_path / "t") == [20, 21, 22]


def test_two_coordinators_that_commit_at_once_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(tmp_path / "t")
    sink.commit(2, staged_by(sink, 2))
    sink.commit(3, staged_by(sink, 3))
    late = DeltaSink(tmp_path / "t")  # it sees the table as it is now
    late.adopt(sink.identity())
    staged = staged_by(late, 4)
    history = deltalake.DeltaTable(str(tmp_path / "t")).history()
    sink.roll_back(2, 5)
    sink.commit(2, [])
    with monkeypatch.context() as patched:
        patched.setattr(deltalake.DeltaTable, "update_incremental", lambda _: None)
        patched.setattr(deltalake.DeltaTable, "history", lambda _, limit: history[:limit])
        with pytest.raises(DataflowError, match=r"the commit of snapshot 4 to .* failed: .* concurrent"):
            late.commit(4, staged)
    assert numbers(tmp_path / "t") == [2]


def test_modes(tmp_path: Path) -> None:
    write(tmp_path / "t", [[{"a": 1}]])
    with pytest.raises(ConfigError, match=r"there is a table at .* and mode='error'"):
        write(tmp_path / "t", [[{"a": 2}]])
    write(tmp_path / "t", [[{"a": 2}]], mode="append")
    assert numbers(tmp_path / "t") == [1, 2]
    write(tmp_path / "t", [[{"a": 3}]], mode="overwrite")
    assert numbers(tmp_path / "t") == [3]
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    flow = rd.Dataflow("by handle")
    flow.from_items([{"a": 4}]).write_delta(table, mode="append")
    flow.run(runtime="local")
    assert numbers(tmp_path / "t") == [3, 4]
    write(tmp_path / "t", [[]], mode="overwrite")
    assert numbers(tmp_path / "t") == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "w"}, "write_delta: mode is 'w'"),
        ({"row_group_rows": 0}, "write_delta: row_group_rows is 0"),
        ({"partition_by": 3}, "write_delta: partition_by is 3"),
        ({"schema": 3}, "write_delta: schema is 3"),
        ({"schema": pa.schema([("b", pa.int64())]), "mode": "append"}, r"has the columns \{a: int64\}, the records \{b: int64\}"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str, tmp_path: Path) -> None:
    write(tmp_path / "t", [[{"a": 1}]])
    with pytest.raises(ConfigError, match=told):
        DeltaSink(tmp_path / "t", **options)


def test_records_that_do_not_fit_the_table_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", [[{"a": 1}]])
    with pytest.raises(DataflowError, match=r"column 'a' cannot hold 1.5, a float, as int64"):
        write(tmp_path / "t", [[{"a": 1.5}]], mode="append")
    assert numbers(tmp_path / "t") == [1]


def test_nothing_is_staged_where_the_table_is_not(tmp_path: Path) -> None:
    """A folder that had gone away was made again by writers; a snapshot named what was staged there, which was gone later."""
    table, away = tmp_path / "t", tmp_path / "away"
    sink = DeltaSink(str(table))
    sink.run = 1
    sink.check()
    sink.commit(2, staged_by(sink, 1, 2))
    table.rename(away)
    with pytest.raises(OSError, match="_staging"):
        staged_by(sink, 3)
    with pytest.raises((OSError, DataflowError)):
        sink.commit(3, [])
    assert not table.exists()
    away.rename(table)
    sink.result(sink.commit(3, staged_by(sink, 3)))
    again = DeltaSink(str(table))  # the job was over, and goes on
    again.adopt(sink.identity())
    again.run = 4
    again.roll_back(3, 4)
    again.commit(3, [])
    again.commit(5, staged_by(again, 4))
    assert numbers(table) == [1, 2, 3, 4]
