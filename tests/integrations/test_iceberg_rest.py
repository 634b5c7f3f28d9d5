"""``write_iceberg`` with a catalog behind the REST protocol, whose answers can be lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import rayad as rd
from rayad.integrations import IcebergSink
from rayad.progress import ConfigError, DataflowError

pytest.importorskip("pyiceberg")
from tests.integrations.iceberg_server import CatalogServer, serving_catalog
from tests.integrations.iceberg_tables import numbers, resumed, rows_by_polars, staged_by, table_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CatalogServer]:
    with serving_catalog(tmp_path / "lake") as one:
        yield one


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_crashes_gives_each_record_once(seed: int, server: CatalogServer, tmp_path: Path) -> None:
    chance = random.Random(seed)
    flow = rd.Dataflow("rest")
    source = flow.from_epochs([[{"a": epoch * 100 + i} for i in range(20)] for epoch in range(5)], batch_rows=1, parts=2)
    source.rebalance().map(lambda row: row).write_iceberg("ns.t", catalog=server.properties, name="out")
    config = rd.RunConfig(storage_path=str(tmp_path / "store"), snapshots=rd.SnapshotConfig(keep=50))
    job = flow.submit(config, runtime="local", parallelism=2, seed=seed)
    for _ in range(200):
        if not job.step():
            break
        if chance.random() < 0.3:
            job.savepoint()
        if chance.random() < 0.1:
            job.crash()
    job.wait()
    wanted = [epoch * 100 + i for epoch in range(5) for i in range(20)]
    assert numbers(server.properties) == wanted
    assert sorted(row["a"] for row in rows_by_polars(server.properties)) == wanted
    assert server.commits > 1


@pytest.mark.parametrize("commit", [1, 2])
def test_an_answer_that_was_lost(commit: int, server: CatalogServer) -> None:
    """The first commit makes the table."""
    sink = IcebergSink("ns.t", catalog=server.properties)
    staged = [staged_by(sink, number) for number in range(3)]
    for number in range(3):
        if number == commit - 1:
            server.lose = 1
            with pytest.raises(DataflowError, match=rf"the commit of snapshot {number} to 'ns.t' failed: .*(closed|aborted)"):
                sink.commit(number, staged[number])
        again = resumed(sink, server.properties)  # as it resumes, which begins with the commit of the last snapshot
        again.commit(number, staged[number])
    assert numbers(server.properties) == [0, 1, 2]
    assert server.commits == 3


def test_a_roll_back_and_a_coordinator_that_was_taken_for_dead(server: CatalogServer) -> None:
    old = IcebergSink("ns.t", catalog=server.properties)
    old.commit(2, staged_by(old, 2))
    old.commit(3, staged_by(old, 3))
    new = resumed(old, server.properties)
    new.roll_back(2, 5)
    new.commit(2, [])
    assert numbers(server.properties) == [2]
    with pytest.raises(DataflowError, match=r"snapshot 4 cannot be committed to 'ns.t': the job resumed from snapshot 2 meanwhile"):
        old.commit(4, staged_by(old, 4))
    new.commit(5, staged_by(new, 5))
    assert numbers(server.properties) == [2, 5]


def test_the_server_says_where_a_new_table_is(server: CatalogServer) -> None:
    """Each time it is asked at another place; files that were staged at one are committed by a sink that was told another."""
    sink = IcebergSink("ns.t", catalog=server.properties)
    staged = staged_by(sink, 1)
    again = resumed(sink, server.properties)
    assert again.path != sink.path
    again.commit(1, staged)
    assert numbers(server.properties) == [1]
    table = table_of(server.properties)
    assert f"{table.location()}/data" == f"file://{again.path}"
    (file,) = table.inspect.files()["file_path"].to_pylist()
    assert file.startswith(f"file://{sink.path}/part-{sink.job}-")
    with pytest.raises(ConfigError, match=r"no namespace 'other'"):
        IcebergSink("other.t", catalog=server.properties)
