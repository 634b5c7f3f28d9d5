"""A sink writer that keeps much is asked to stage it before a snapshot; what it staged waits on disk, and is committed once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.output import sinks
from rayad.actors.replica.parts.part_files import SetAside, StagedValues, loaded, write_staged
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.store import SnapshotStore
from tests.snapshots import attempts

ROW_BYTES = 10


class Kept(SinkWriter):
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        self.rows += batch

    def kept_bytes(self) -> int:
        return ROW_BYTES * len(self.rows)

    def stage(self) -> list[Any]:
        rows, self.rows = self.rows, []
        return rows


class Table(Sink):
    """Rows by snapshot; each commit also notes how many values it got."""

    commits = True

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.values: list[int] = []

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return Kept()

    def commit(self, snapshot: int, staged: Sequence[Any]) -> int:
        self.values.append(len(staged))
        self.rows[snapshot] = [row for rows in staged for row in rows]
        return len(self.rows)

    def roll_back(self, last: int, first_new: int) -> None:
        for snapshot in [number for number in self.rows if number > last]:
            del self.rows[snapshot]

    def publish(self, staged: Sequence[Any]) -> int:
        return self.commit(1, staged)


def savepoint(job: Any) -> None:
    """Take one; an attempt that was given up while it was published may be in its place: the next one is taken then."""
    try:
        job.savepoint()
    except rd.SnapshotError as error:
        if "take the next" not in str(error):
            raise
        job.savepoint()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rows_kept", [1, 3, 1000])
def test_every_row_is_committed_once_whatever_is_given_up_and_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, rows_kept: int
) -> None:
    monkeypatch.setattr(sinks, "STAGE_BYTES", rows_kept * ROW_BYTES)
    flow, table, numbers = rd.Dataflow("early"), Table(), list(range(150))
    rows = flow.from_epochs([[number] for number in numbers], batch_rows=1)
    rows.key_by(lambda number: number).count(name="pass").sink(table, "out")
    failures, snapshots = rd.FailureConfig(max_failures=9), rd.SnapshotConfig(interval_s=None)
    config = rd.RunConfig(storage_path=str(tmp_path), snapshots=snapshots, failures=failures)
    job: Any = flow.submit(config, runtime="local", parallelism=2, seed=seed)
    for turn in range(12):
        for _ in range(23 + seed):
            job.step()
        if turn % 4 == 3:
            job.crash()
        elif turn % 4 == 1:
            job.snapshots.ask_savepoint()
            for _ in range(2 + seed):
                job.step()
            attempts.give_up(job, "the test wants it")
        elif turn == 6:
            job.rescale("pass", 1 + seed % 3)
        else:
            savepoint(job)
    job.wait()
    assert sorted(row for rows in table.rows.values() for row in rows) == [(number, 1) for number in numbers]
    if rows_kept == 1:
        assert max(table.values) > 2, "values that were staged early"


def test_what_is_set_aside_is_not_in_memory_and_comes_back_in_order(tmp_path: Path) -> None:
    """Ten times 4 MB, read a file at a time."""
    store, disk = SnapshotStore(str(tmp_path)), SpillFile(str(tmp_path))
    flow = rd.Dataflow("aside")
    flow.from_items([1], name="items").collect("out")
    size = 4 << 20
    tracemalloc.start()
    values: list[Any] = ["first", *(SetAside(disk, "out", bytes([n]) * size) for n in range(10)), "last"]
    assert tracemalloc.get_traced_memory()[0] < size, "they are on disk"
    parts = write_staged(store, flow.plan().stages[0], 0, 1, Barrier(1, 1), [("out", value) for value in values])
    staged = StagedValues(store, parts)
    assert len(staged) == 12
    found = [(value[:1], len(value)) for value in staged]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [("f", 5), *((bytes([n]), size) for n in range(10)), ("l", 4)]
    assert peak < 5 * size, "of 10 values a few copies of one are in memory"
    assert [value.load()[:1] for value in values[1:-1]] == [bytes([n]) for n in range(10)]
    for value in values[1:-1]:
        value.free()
    disk.close()
    assert loaded(store.read_part(parts[1].file)) == bytes(size)
