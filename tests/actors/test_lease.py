"""A coordinator's lease, on a real store: it ends when another run claims that, and for nothing else."""

from __future__ import annotations

import threading
import time as clock
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rayad as rd
from rayad.actors.coordinator.lease import Lease
from rayad.actors.coordinator.told_outcome import ToldOutcome
from rayad.actors.job import JobState
from rayad.progress import SnapshotError
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.resume_point import begin_run
from rayad.snapshots.store import SnapshotStore
from tests.patience import PATIENCE_S

GRAPH: dict[str, Any] = {"vertices": {}, "edges": [], "sinks": {}}


class Job:
    """A coordinator's job, as far as a lease looks at it: of run "mine", which has claimed the store."""

    def __init__(self, folder: Path) -> None:
        self.name = "j"
        self.config = rd.RunConfig(failures=rd.FailureConfig(heartbeat_timeout_s=0.04))  # a look each 10 ms
        self.store = SnapshotStore(str(folder))
        self.superseded, self.is_deposed = "", False
        begun, _ = begin_run(self.store, None, job="j", graph=GRAPH, key_groups=8, run="mine")
        self.snapshots: Any = SimpleNamespace(store=SimpleNamespace(store=self.store, run="mine"), manifest=begun)

    def publish(self, number: int, run: str) -> None:
        self.store.publish(Manifest(number, "j", GRAPH, 8, (), run=run), after=self.store.numbers()[-1])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def lease(job: Any, ended: list[int] | None = None, *earlier: str) -> Lease:
    return Lease(job, ToldOutcome(), earlier, end=(ended if ended is not None else []).append, heard_s=0.01)


def test_it_lasts_through_snapshots_of_its_own_and_of_those_before_it(job: Job) -> None:
    mine = lease(job, None, "before")
    assert mine.look() == ""
    job.publish(2, "mine")  # in this moment, by the supervising thread
    assert mine.look() == ""
    job.publish(3, "before")
    assert mine.look() == ""
    job.snapshots = None  # the store has not been opened yet
    assert mine.look() == ""


def test_it_is_over_when_another_run_has_claimed_the_store(job: Job) -> None:
    begin_run(job.store, "latest", job="j", graph=GRAPH, key_groups=8, run="theirs")
    assert lease(job).look() == f"another run of job 'j' has claimed {job.store.folder!r} (snapshot 2)"


def test_what_cannot_be_read_proves_nothing(job: Job, tmp_path: Path) -> None:
    mine = lease(job)
    job.publish(2, "theirs")
    (tmp_path / f"{2:012d}" / "manifest.json").write_text("{")
    with pytest.raises(SnapshotError):
        mine.look()
    (tmp_path / f"{2:012d}" / "manifest.json").unlink()
    (tmp_path / f"{1:012d}" / "manifest.json").unlink()
    assert mine.look() == ""


def test_where_the_jobs_thread_ends_in_order_it_tells_the_outcome_and_then_the_process_ends(job: Job) -> None:
    ended: list[int] = []
    mine = lease(job, ended)
    job.publish(2, "theirs")
    mine.stop()
    mine._depose(mine.look())
    assert job.superseded == f"another run of job 'j' has claimed {job.store.folder!r} (snapshot 2)"
    assert (ended, job.is_deposed) == ([1], False)


def test_where_it_hangs_the_owner_is_told_by_the_heartbeat_and_then_the_process_ends(job: Job) -> None:
    ended: list[int] = []
    mine = lease(job, ended)
    job.publish(2, "theirs")
    mine._run()  # ends with the lease
    assert (ended, job.is_deposed) == ([1], True)
    outcome = mine._told.wait()
    assert outcome is not None
    assert outcome.failure is not None
    told = f"Superseded: another run of job 'j' has claimed {job.store.folder!r} (snapshot 2)"
    assert (outcome.state, outcome.failure.message) == (JobState.FAILED, told)


def test_the_end_of_the_job_does_not_wait_for_a_look_into_a_store_that_hangs(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, released = threading.Event(), threading.Event()

    def hang(store: SnapshotStore) -> list[int]:
        looks.set()
        released.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(SnapshotStore, "numbers", hang)
    mine = lease(job)
    mine.start()
    try:
        assert looks.wait(PATIENCE_S)
        began_s = clock.monotonic()
        mine.stop()
        assert clock.monotonic() - began_s < PATIENCE_S / 2
    finally:
        released.set()
