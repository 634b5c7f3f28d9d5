"""A file of a snapshot that is not what was written: the replica that reads it says so, and the job resumes from the snapshot before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.store.job_store import open_store
from rayad.progress import SnapshotError
from rayad.snapshots.errors import Damaged
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.store import SnapshotStore
from tests.simulation.disk import DAMAGES, FaultyDisk

ROWS = 6_000
EPOCHS = 5


def batch(epoch: int) -> pa.RecordBatch:
    """Enough rows for a run to be a file."""
    return pa.record_batch({"key": [epoch * ROWS + row for row in range(ROWS)], "n": [epoch] * ROWS})


def submitted(folder: Path, **more: Any) -> Any:
    """A join whose sides are files, and a count, of one live input."""
    flow = rd.Dataflow("damaged")
    rows = flow.input("rows")
    keyed = rows.key_by("key")
    keyed.join(rows.key_by("key"), name="pairs").probe("paired").collect("pairs")
    keyed.count(name="counts").probe("counted").collect("counts")
    more = {"snapshots": rd.SnapshotConfig(interval_s=None, keep=5), **more}
    run = rd.RunConfig(storage_path=str(folder), **more)
    return flow.submit(run, runtime="local", parallelism=2)


def bring(job: Any, epochs: range) -> None:
    for epoch in epochs:
        job.input("rows").send(batch(epoch))
        job.input("rows").advance_to(epoch + 1)
        for probe in ("paired", "counted"):
            job.probe(probe).wait(epoch)


def lived(folder: Path) -> tuple[SnapshotStore, Manifest, Manifest]:
    """A job that has taken three snapshots and was cancelled: its store, and what the last two say. The first of these has increments,
    the second is whole, and has files of its own."""
    job = submitted(folder)
    for epochs in (range(1), range(1, 3), range(3, 4)):
        bring(job, epochs)
        job.savepoint()
    job.cancel()
    store = open_store("damaged", rd.RunConfig(storage_path=str(folder)))
    older, newer = (store.load(number) for number in store.numbers()[-2:])
    assert any(part.runs for part in newer.parts), "no run is a file"
    return store, older, newer


def finished(job: Any) -> tuple[int, set[int]]:
    """The job ends: its pairs, and how often keys were counted."""
    resumed = job.input("rows").epoch
    bring(job, range(resumed, EPOCHS))
    job.input("rows").close()
    result = job.wait()
    return len(result["pairs"]), {count for _, (_, count) in result["counts"]}


def own_files(newer: Manifest, older: Manifest) -> list[str]:
    """What the newer one names, and the older one does not."""
    return sorted(file.path for file in newer.files() - older.files() if file.size)


def kinds_of_files(newer: Manifest, older: Manifest) -> dict[str, str]:
    """One file of each kind."""
    own = set(own_files(newer, older))
    found: dict[str, str] = {}
    for part in newer.parts:
        for kind, files in (("state", part.files), ("run", part.runs), ("rest", (part.rest,) if part.rest else ())):
            found.update({f"{kind} of {part.vertex}": file.path for file in files if file.path in own})
    found.update({f"staged of {one.sink}": one.file.path for one in newer.staged if one.file.path in own})
    return found


@pytest.mark.parametrize("how", DAMAGES)
def test_each_file_that_is_damaged_lets_the_job_resume_from_the_snapshot_before(tmp_path: Path, how: str) -> None:
    store, older, newer = lived(tmp_path)
    files = kinds_of_files(newer, older)
    assert {name.split()[0] for name in files} == {"state", "run", "rest", "staged"}
    before = store.numbers()
    for name, path in files.items():
        disk = FaultyDisk(store.folder)
        disk.damage(path, how)
        job = submitted(tmp_path, resume="latest")
        manifest = job.runtime.snapshots.manifest
        assert manifest.notes["stands_for"] == older.number, (name, manifest.notes)
        assert manifest.notes["void"][-1] == manifest.number - 1
        assert path in "; ".join(job.runtime.snapshots.store.remarks), name
        assert job.input("rows").epoch == 3, name
        assert job.runtime.job.failures == 0, "a part that is damaged is no failure of the job"
        job.cancel()
        disk.mend()
        for number in store.numbers():
            if number not in before:
                Path(store.folder, f"{number:012d}", "manifest.json").unlink()
    job = submitted(tmp_path, resume="latest")
    assert job.input("rows").epoch == 4
    assert finished(job) == (EPOCHS * ROWS, {1})


def test_what_was_resumed_from_the_snapshot_before_is_exact(tmp_path: Path) -> None:
    store, older, newer = lived(tmp_path)
    path = next(path for name, path in kinds_of_files(newer, older).items() if name.startswith("run"))
    FaultyDisk(store.folder).damage(path, "flipped")
    assert finished(submitted(tmp_path, resume="latest")) == (EPOCHS * ROWS, {1})


def test_a_snapshot_that_was_asked_for_by_number_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    store, older, newer = lived(tmp_path)
    path = own_files(newer, older)[0]
    FaultyDisk(store.folder).damage(path, "flipped")
    with pytest.raises(SnapshotError, match=path.replace(".", r"\.")):
        submitted(tmp_path, resume=newer.number)


def test_newer_snapshots_are_not_void_where_the_older_one_that_was_asked_for_is_damaged(tmp_path: Path) -> None:
    store, older, newer = lived(tmp_path)
    path = own_files(older, newer)[0]
    FaultyDisk(store.folder).damage(path, "flipped")
    numbers = store.numbers()
    with pytest.raises(SnapshotError, match=path.replace(".", r"\.")):
        submitted(tmp_path, resume=older.number)
    assert store.numbers() == numbers
    assert submitted(tmp_path, resume="latest").input("rows").epoch == 4


def test_a_file_that_no_replica_can_read_although_it_is_whole_is_a_failure_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its word does not make a snapshot void: the coordinator looks itself."""
    _, _, newer = lived(tmp_path)
    path = next(part.runs[0].path for part in newer.parts if part.runs)
    really = SnapshotStore.map_part

    def read(self: Any, file: Any, *args: Any, **options: Any) -> Any:
        if file.path == path:
            raise Damaged(f"part {path} cannot be read on this machine", path=path)
        return really(self, file, *args, **options)

    monkeypatch.setattr(SnapshotStore, "map_part", read)
    with pytest.raises(SnapshotError, match="cannot be read on this machine"):
        submitted(tmp_path, resume="latest")
    monkeypatch.undo()
    job = submitted(tmp_path, resume="latest")
    assert job.runtime.snapshots.manifest.notes["stands_for"] == newer.number
    assert job.input("rows").epoch == 4
