"""Runs of a state that is resumed are the files of the snapshot, where the store is on a disk of this machine: they take no memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.replica import migration
from rayad.actors.replica.parts import part_files
from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.state.keyed_state import KeyedState, KeyedVertex
from rayad.dataflow.operators.state.runs.disk import FILE_BYTES_MIN, MemoryBound
from rayad.dataflow.operators.state.runs.run import Run
from rayad.progress import SnapshotError
from rayad.snapshots import port
from rayad.snapshots.errors import Damaged
from rayad.snapshots.manifest import Manifest, PartFile
from rayad.snapshots.store import SnapshotStore
from tests.snapshots.test_damaged_parts import EPOCHS, ROWS, bring, finished, lived, submitted

LOCAL = frozenset({"ext4", "tmpfs", "overlay", "xfs", "btrfs"})


class Counting(StateFiles):
    """Counts what is written."""

    def __init__(self) -> None:
        super().__init__("state", None)
        self.written = 0

    def mapped(self, batch: pa.RecordBatch) -> Any:
        self.written += 1
        return super().mapped(batch)


def states(job: Any) -> Iterator[KeyedState]:
    """Of the join."""
    for host in job.runtime.processes.hosts():
        if isinstance(host.core.vertex, KeyedVertex) and host.place.stage.name == "pairs":
            yield from host.core.vertex.states().values()


def named_by(manifest: Manifest) -> set[PartFile]:
    return {file for part in manifest.parts if part.vertex == "pairs" for file in part.runs}


def runs_of(job: Any) -> list[Run]:
    return [run for state in states(job) for runs in state.runs() for run in runs.all()]


@pytest.mark.parametrize("kinds", [LOCAL, frozenset()], ids=["of this machine", "of a network"])
def test_runs_are_mapped_where_the_store_is_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: frozenset[str]) -> None:
    monkeypatch.setattr(port, "ON_DISK", kinds)
    _, _, newer = lived(tmp_path)
    named = named_by(newer)
    job = submitted(tmp_path, resume="latest")
    there = [run for run in runs_of(job) if run.file is not None]
    assert {run.file.name for run in there if run.file is not None} == named
    assert {run.is_mapped for run in there} == {bool(kinds)}
    assert not any(run.on_disk for run in there), "without a bound nothing is different"
    job.savepoint()
    assert named_by(job.runtime.snapshots.manifest) == named, "nothing is written again"
    assert finished(job) == (EPOCHS * ROWS, {1})


@pytest.mark.parametrize("kinds", [LOCAL, frozenset()], ids=["of this machine", "of a network"])
def test_a_run_that_is_mapped_goes_to_disk_without_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: frozenset[str]) -> None:
    monkeypatch.setattr(port, "ON_DISK", kinds)
    lived(tmp_path)
    job = submitted(tmp_path, resume="latest")
    large = [run for run in runs_of(job) if run.nbytes >= FILE_BYTES_MIN]
    rows, counting = [run.rows for run in large], Counting()
    MemoryBound(FILE_BYTES_MIN, counting).hold(states(job))
    assert large
    assert all(run.on_disk for run in large)
    assert counting.written == (0 if kinds else len(large))
    assert [run.rows for run in large] == rows
    assert finished(job) == (EPOCHS * ROWS, {1})


@pytest.mark.parametrize("kinds", [LOCAL, frozenset()], ids=["of this machine", "of a network"])
def test_what_a_snapshot_has_written_of_a_run_on_disk_is_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: frozenset[str]
) -> None:
    monkeypatch.setattr(port, "ON_DISK", kinds)
    monkeypatch.setattr(part_files, "CHAIN_MAX", 0)  # each snapshot is whole
    job = submitted(tmp_path, state_memory_bytes=1 << 20, spill_directory=str(tmp_path))
    bring(job, range(EPOCHS - 1))
    rows = {id(run): run.rows for run in runs_of(job) if run.on_disk}
    assert rows, "nothing is on disk"
    job.savepoint()
    assert not any(run.is_mapped for run in runs_of(job)), "it is asked when the next one lists the files"
    job.savepoint()
    there = [run for run in runs_of(job) if run.on_disk and run.file is not None]
    assert {run.is_mapped for run in there} == {bool(kinds)}
    assert all(run.rows == rows[id(run)] for run in there)
    job.crash()
    assert finished(job) == (EPOCHS * ROWS, {1})


def test_a_store_that_is_gone_ends_no_job_whose_runs_could_be_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "ON_DISK", LOCAL)
    monkeypatch.setattr(part_files, "CHAIN_MAX", 0)
    job = submitted(tmp_path, state_memory_bytes=1 << 20, spill_directory=str(tmp_path))
    bring(job, range(EPOCHS - 1))
    job.savepoint()
    store = tmp_path / "damaged"
    store.rename(store.with_suffix(".away"))
    with pytest.raises(SnapshotError):
        job.savepoint()
    assert not any(run.is_mapped for run in runs_of(job))
    store.with_suffix(".away").rename(store)
    job.savepoint()
    assert any(run.is_mapped for run in runs_of(job))
    assert finished(job) == (EPOCHS * ROWS, {1})


@pytest.mark.parametrize("secret", [None, b"s" * 32], ids=["trusted", "signed"])
def test_files_of_a_store_that_is_signed_are_not_used_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: bytes | None
) -> None:
    monkeypatch.setattr(port, "ON_DISK", LOCAL)
    monkeypatch.setattr(part_files, "CHAIN_MAX", 0)
    named: list[bool] = []
    dumped = migration.dumped

    def watched(state: Any, **by_name: bool) -> Any:
        named.append(by_name["by_name"])
        return dumped(state, **by_name)

    monkeypatch.setattr(migration, "dumped", watched)
    signed = rd.SnapshotConfig(interval_s=None, keep=5, secret=secret)
    job = submitted(tmp_path, snapshots=signed, state_memory_bytes=1 << 20, spill_directory=str(tmp_path))
    bring(job, range(EPOCHS - 1))
    for _ in range(2):
        job.savepoint()
    assert any(run.is_mapped for run in runs_of(job)) is (secret is None)
    job.rescale("pairs", 3)
    assert set(named) == {secret is None}
    assert finished(job) == (EPOCHS * ROWS, {1})


def test_a_file_that_is_mapped_by_its_name_has_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "ON_DISK", LOCAL)
    store = SnapshotStore(str(tmp_path))
    file = store.write_part(1, "v", 0, [b"what was written"])
    assert bytes(store.map_named(file)) == b"what was written"
    Path(tmp_path, file.path).write_bytes(b"short")
    with pytest.raises(Damaged):
        store.map_named(file)
