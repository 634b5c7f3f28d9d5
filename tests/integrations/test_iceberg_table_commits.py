"""Commits of Iceberg tables that are kept as a collection is: what dies in between, what others do at the same moment, what is void."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.integrations import IcebergSink, IcebergTable

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.integrations.iceberg_changes import added, changed, degrees, made, twin_of
from tests.integrations.iceberg_server import CatalogServer, serving_catalog
from tests.integrations.iceberg_tables import catalog_in, rows_of, staged_by, table_of
from tests.integrations.test_iceberg_commits import STEPS, Died, dies_after, dies_before, meanwhile
from tests.thorough import by_turns


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return catalog_in(tmp_path / "lake")


def test_a_commit_that_changes_nothing_is_told_too(catalog: dict[str, str]) -> None:
    sink = made(catalog)
    gone = changed(sink, (7, 1, -1))
    sink.commit(3, gone)
    table_of(catalog).append(pa.table({"node": [7], "n": [1]}))
    sink.commit(3, gone)
    assert degrees(catalog) == {7: 1}


def test_a_coordinator_that_was_taken_for_dead_is_refused(catalog: dict[str, str]) -> None:
    sink = made(catalog)
    late = twin_of(sink, catalog)
    sink.commit(1, changed(sink, (1, 1, 1)))
    assert degrees(catalog) == {1: 1}
    sink.roll_back(1, 5)
    with pytest.raises(rd.DataflowError, match=r"snapshot 3 cannot be committed to 'ns.t': the job resumed from snapshot 1 meanwhile"):
        late.commit(3, changed(late, (1, 3, 1)))
    sink.commit(5, changed(sink, (1, 5, 1)))
    assert degrees(catalog) == {1: 5}
    with pytest.raises(
        rd.ConfigError, match=r"resumes from snapshot 3, but 'ns.t' has the rows of snapshot 5, and what they have replaced"
    ):
        sink.roll_back(3, 7)


MORE_STEPS = {
    **STEPS,
    "before files are written": dies_before(IcebergTable, "_written"),
    "when files are written": dies_after(IcebergTable, "_written"),
}


@by_turns(2)
@pytest.mark.parametrize("then", ["again", "back"])
@pytest.mark.parametrize("step", MORE_STEPS)
def test_a_coordinator_that_dies_in_a_commit_is_continued(
    step: str, then: str, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = made(catalog, partition_by="bucket(2, node)")
    earlier = changed(sink, (1, 1, 1), (2, 1, 1))
    sink.commit(2, earlier)
    staged = changed(sink, (1, 3, 1), (2, 1, -1)) + changed(sink, (4, 3, 1))
    with monkeypatch.context() as patched:
        MORE_STEPS[step](patched)
        with pytest.raises(Died):
            sink.commit(3, staged)
    before, after = {1: 1, 2: 1}, {1: 3, 4: 3}
    is_committed = step in ("when the catalog has committed", "when the transaction is over")
    assert degrees(catalog) == (after if is_committed else before)
    again = twin_of(sink, catalog)
    if then == "again":
        again.roll_back(3, 5)
        again.commit(3, staged)
        again.commit(5, changed(again, (1, 5, 1)))
        assert degrees(catalog) == {1: 5, 4: 3}
    elif is_committed:
        with pytest.raises(rd.ConfigError, match=r"what they have replaced is gone: resume from the newest snapshot"):
            again.roll_back(2, 5)
    else:
        again.roll_back(2, 5)
        again.commit(2, earlier)
        with pytest.raises(rd.DataflowError, match=r"snapshot 3 cannot be committed to 'ns.t'"):
            sink.commit(3, staged)
        again.commit(7, changed(again, (2, 7, 1)))
        assert degrees(catalog) == {1: 1, 2: 7}


@pytest.mark.parametrize("who", ["the same job", "another job", "somebody who appends", "a roll-back"])
def test_two_that_commit_at_once(who: str, catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one comes between the look at the table and the commit: nothing of it is lost, nothing is there twice. Not even where the
    table lets ``pyiceberg`` try again."""
    isolation = {f"write.{what}.isolation-level": "snapshot" for what in ("delete", "update")}
    sink = made(catalog, properties={"commit.retry.min-wait-ms": "1", **isolation})
    sink.commit(1, changed(sink, (1, 1, 1), (2, 1, 1), (3, 1, 1)))
    twin = twin_of(sink, catalog)
    other = IcebergTable("ns.t", key="node", catalog=catalog)
    staged = changed(sink, (1, 2, 1), (2, 1, -1))
    acts: dict[str, Callable[[], Any]] = {
        "the same job": lambda: twin.commit(2, staged),
        "another job": lambda: other.commit(1, changed(other, (1, 8, 1), (2, 8, 1), (9, 8, 1))),
        "somebody who appends": lambda: table_of(catalog).append(pa.table({"node": [1, 50], "n": [5, 5]})),
        "a roll-back": lambda: twin.roll_back(1, 4),
    }
    with monkeypatch.context() as patched:
        meanwhile(patched, acts[who])
        if who == "a roll-back":
            with pytest.raises(rd.DataflowError, match=r"snapshot 2 cannot be committed to 'ns.t': the job resumed from snapshot 1"):
                sink.commit(2, staged)
        else:
            sink.commit(2, staged)
    expected = {
        "the same job": {1: 2, 3: 1},
        "another job": {1: 2, 3: 1, 9: 8},
        "somebody who appends": {1: 2, 3: 1, 50: 5},
        "a roll-back": {1: 1, 2: 1, 3: 1},
    }
    assert degrees(catalog) == expected[who]
    data = Path(table_of(catalog).location().removeprefix("file://")) / "data"
    named = {Path(path).name for path in table_of(catalog).inspect.all_files()["file_path"].to_pylist()}
    left = {path.name for path in data.rglob("*.parquet")} - named
    assert len(left) <= (1 if who in ("the same job", "a roll-back") else 0), "what was refused is deleted, if it is known to be refused"


def test_another_that_commits_again_and_again(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.file_output.tables.DECISIONS_MAX", 4)
    sink = made(catalog, properties={"commit.retry.min-wait-ms": "1"})
    staged = changed(sink, (1, 2, 1))
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: table_of(catalog).append(pa.table({"node": [50], "n": [5]})), 3)
        sink.commit(1, staged)
    assert len(rows_of(catalog)) == 4
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: table_of(catalog).append(pa.table({"node": [50], "n": [5]})), 4)
        with pytest.raises(rd.DataflowError, match=r"the commit of snapshot 2 to 'ns.t' failed 4 times, as others committed to the table"):
            sink.commit(2, changed(sink, (1, 3, 1)))
    sink.commit(2, changed(sink, (1, 3, 1)))
    assert {row["node"]: row["n"] for row in rows_of(catalog)} == {1: 3, 50: 5}


def test_appending_jobs_beside_it_roll_back_on_their_own(catalog: dict[str, str]) -> None:
    load_catalog(**catalog).create_table("ns.t", pa.schema([("a", pa.int64())]))
    kept = IcebergTable("ns.t", key="a", catalog=catalog)
    beside = IcebergSink("ns.t", catalog=catalog, mode="append")
    beside.commit(1, staged_by(beside, 100))
    writer = kept.open(0, 1)
    writer.write(rd.Timestamp(0), [({"a": 1}, 1)])
    kept.commit(1, [writer.stage()])
    beside.commit(2, staged_by(beside, 200))
    writer.write(rd.Timestamp(0), [({"a": 2}, 1)])
    kept.commit(2, [writer.stage()])
    beside.roll_back(1, 3)
    beside.commit(1, [])
    assert sorted(row["a"] for row in rows_of(catalog)) == [1, 2, 100]
    writer.write(rd.Timestamp(0), [({"a": 100}, -1)])
    kept.commit(3, [writer.stage()])
    beside.roll_back(0, 5)
    with pytest.raises(rd.DataflowError, match=r"snapshots 1 to 4 cannot be taken back from 'ns.t': of the 1 files they added 0 are left"):
        beside.commit(0, [])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CatalogServer]:
    with serving_catalog(tmp_path / "rest") as one:
        yield one


def test_an_answer_that_was_lost(server: CatalogServer) -> None:
    sink = made(server.properties, partition_by="bucket(2, node)")
    assert [str(field.transform) for field in table_of(server.properties).spec().fields] == ["bucket[2]"]
    sink.commit(1, changed(sink, (1, 1, 1), (2, 1, 1)))
    staged = changed(sink, (1, 2, 1), (2, 1, -1), (3, 2, 1))
    server.lose = 1
    with pytest.raises(rd.DataflowError, match=r"the commit of snapshot 2 to 'ns.t' failed: .*(closed|aborted)"):
        sink.commit(2, staged)
    added(server.properties, {2: 7})
    again = twin_of(sink, server.properties)
    again.roll_back(2, 4)
    again.commit(2, staged)
    assert degrees(server.properties) == {1: 2, 2: 7, 3: 2}


def test_a_commit_that_fails_inside_of_the_catalog_leaves_the_table(catalog: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sink = made(catalog)
    sink.commit(1, changed(sink, (1, 1, 1)))
    with monkeypatch.context() as patched:

        def broken(*_: Any, **__: Any) -> Any:
            raise ConnectionError("away")

        patched.setattr(SqlCatalog, "commit_table", broken)
        with pytest.raises(rd.DataflowError, match=r"the commit of snapshot 2 to 'ns.t' failed: away"):
            sink.commit(2, changed(sink, (1, 2, 1)))
    assert degrees(catalog) == {1: 1}
    sink.commit(2, changed(sink, (1, 2, 1)))
    assert degrees(catalog) == {1: 2}
