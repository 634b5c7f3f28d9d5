"""A job submitted over a store that holds snapshots says what it wants: nothing is deleted in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import rayad as rd
from rayad.actors.store.job_store import JobStore
from rayad.snapshots.store import SnapshotStore


def numbers(epochs: list[list[int]], out: Path | None = None, *, mode: str = "overwrite") -> rd.Dataflow:
    flow = rd.Dataflow("afresh")
    rows = flow.from_epochs(epochs, name="lines").map(lambda n: {"n": n}, name="rows")
    if out is None:
        rows.collect("out")
    else:
        rows.write_parquet(str(out), mode=mode, name="out")
    return flow


def config(folder: Path, **options: Any) -> rd.RunConfig:
    return rd.RunConfig(storage_path=str(folder), **options)


def refused(folder: Path, what: str) -> str:
    return (
        f"'{folder}/afresh/snapshots' has snapshots of this job, the latest is {what}; without resume= it would begin afresh, delete "
        "them, and replace what its sinks have committed. Resume from the latest: resume='latest'; keep them: another RunConfig(name=...) "
        "or storage_path=...; begin afresh all the same: resume='never'"
    )


def test_a_store_that_holds_snapshots_is_not_begun_afresh_unless_asked(tmp_path: Path) -> None:
    out, store = tmp_path / "out", SnapshotStore(str(tmp_path / "afresh" / "snapshots"))
    job = numbers([[1], [2], [3]], out).submit(config(tmp_path), runtime="local")
    while not store.numbers() or store.numbers() == [1]:
        assert job.step()
        if job.steps == 3:
            job.savepoint()
    job.cancel()
    before, published = store.numbers(), sorted(path.name for path in out.glob("*.parquet"))
    with pytest.raises(rd.SnapshotError) as caught:
        numbers([[4]], out).run(config(tmp_path), runtime="local")
    assert str(caught.value) == refused(tmp_path, f"snapshot {before[-1]}, of kind 'savepoint'")
    assert store.numbers() == before
    assert sorted(path.name for path in out.glob("*.parquet")) == published


def test_the_output_of_a_complete_job_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    numbers([[1], [2]], out).run(config(tmp_path), runtime="local")
    with pytest.raises(rd.SnapshotError) as caught:
        numbers([[3]], out).run(config(tmp_path), runtime="local")
    assert str(caught.value) == refused(tmp_path, "snapshot 2, of the complete job")
    assert pq.read_table(out)["n"].to_pylist() == [1, 2]
    numbers([[3]], out).run(config(tmp_path, resume="never"), runtime="local")
    assert pq.read_table(out)["n"].to_pylist() == [3]


def test_the_settings_that_the_message_offers_work(tmp_path: Path) -> None:
    first = numbers([[1], [2]]).run(config(tmp_path), runtime="local")["out"]
    with pytest.raises(rd.SnapshotError, match="has snapshots of this job"):
        numbers([[1], [2]]).run(config(tmp_path), runtime="local")
    assert numbers([[1], [2]]).run(config(tmp_path, resume="latest"), runtime="local")["out"] == first
    assert numbers([[5]]).run(config(tmp_path, name="other"), runtime="local")["out"] == [(rd.Timestamp(0), {"n": 5})]
    assert numbers([[5]]).run(config(tmp_path, resume="never"), runtime="local")["out"] == [(rd.Timestamp(0), {"n": 5})]


def test_a_run_that_took_no_snapshot_may_be_begun_afresh(tmp_path: Path) -> None:
    numbers([[1], [2]]).submit(config(tmp_path), runtime="local").cancel()
    assert len(numbers([[1], [2]]).run(config(tmp_path), runtime="local")["out"]) == 2


def test_savepoints_stay_when_a_job_begins_afresh(tmp_path: Path) -> None:
    job = numbers([[1], [2]]).submit(config(tmp_path), runtime="local")
    path = Path(job.savepoint())
    job.wait()
    numbers([[1], [2], [3]]).run(config(tmp_path, resume="never", snapshots=rd.SnapshotConfig(keep=1)), runtime="local")
    assert (path / "manifest.json").exists()


def test_a_store_with_an_unreadable_manifest_is_not_begun_afresh_unless_asked(tmp_path: Path) -> None:
    numbers([[1]]).run(config(tmp_path), runtime="local")
    manifest = tmp_path / "afresh" / "snapshots" / "000000000002" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("afresh", "a-fresh"))
    with pytest.raises(rd.SnapshotError, match=r"the latest is snapshot 2, which cannot be read: .* is not what was written"):
        numbers([[1]]).run(config(tmp_path), runtime="local")


@pytest.mark.parametrize("resume", [None, "never", "latest"])
def test_a_coordinator_that_replaces_another_resumes_from_its_snapshot(tmp_path: Path, resume: str | None) -> None:
    if resume is not None:
        numbers([[9]]).run(config(tmp_path), runtime="local")
    plan = numbers([[1], [2]]).plan(fingerprints=True)
    run = config(tmp_path, resume="never" if resume == "latest" else resume)
    before = JobStore("afresh", plan, run, run="first").begin()
    after = JobStore("afresh", plan, run, run="second", earlier=["first"]).begin()
    assert (after.number, after.kind, after.notes["stands_for"]) == (before.number + 1, "start", before.number)


def test_a_coordinator_that_replaces_one_that_had_not_begun_does_not_resume_from_another_run(tmp_path: Path) -> None:
    numbers([[9]]).run(config(tmp_path), runtime="local")
    plan = numbers([[1], [2]]).plan(fingerprints=True)
    with pytest.raises(rd.SnapshotError, match="has snapshots of this job"):
        JobStore("afresh", plan, config(tmp_path), run="second", earlier=["first"]).begin()
    begun = JobStore("afresh", plan, config(tmp_path, resume="never"), run="second", earlier=["first"]).begin()
    assert "stands_for" not in begun.notes
