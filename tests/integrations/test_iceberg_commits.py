"""Commits of ``write_iceberg``: what dies in between, what others do at the same moment, what goes back."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.integrations import IcebergSink
from rayad.integrations.file_output import tables
from rayad.progress import ConfigError, DataflowError
from rayad.snapshots.port import Port

pytest.importorskip("pyiceberg")
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo

from tests.integrations.iceberg_tables import catalog_in, numbers, resumed, rows_by_polars, staged_by, table_of
from tests.thorough import by_turns


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return catalog_in(tmp_path / "lake")


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
    "when files are moved and not yet safe": dies_before(Port, "sync"),
    "before the transaction": dies_before(IcebergSink, "transact"),
    "before footers are read": dies_before(IcebergSink, "_data_file"),
    "when the manifests are written": dies_before(SqlCatalog, "commit_table"),
    "when the metadata are written": dies_after(SqlCatalog, "_write_metadata", static=True),
    "when the catalog has committed": dies_after(SqlCatalog, "commit_table"),
    "when the transaction is over": dies_after(IcebergSink, "transact"),
}


@by_turns(3)
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


def test_a_roll_back_where_the_history_is_gone_is_refused(catalog: dict[str, str]) -> None:
    sink = IcebergSink("ns.t", catalog=catalog)
    for number in (2, 3, 4):
        sink.commit(number, staged_by(sink, number, number * 10))
    old = [one.snapshot_id for one in table_of(catalog).snapshots()][:2]
    table_of(catalog).delete(EqualTo("a", 30))  # the other record of snapshot 3 is in a file of another name
    table_of(catalog).maintenance.expire_snapshots().by_ids(old).commit()
    sink.roll_back(2, 5)
    with pytest.raises(DataflowError, match=r"snapshots 3 to 4 cannot be taken back from 'ns.t': the history of the table has expired"):
        sink.commit(2, [])
    assert numbers(catalog) == [2, 3, 4, 20, 40]


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
