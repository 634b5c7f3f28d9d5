"""Resuming from a snapshot: the calls of sinks, what a fallback leaves behind, and what a driver is told of its input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import JobState
from rayad.actors.local.local_job import LocalJob
from rayad.dataflow.items import CollectSink
from rayad.progress import SnapshotError
from rayad.snapshots.port import Entry, Port
from rayad.snapshots.store import MANIFEST, SnapshotStore, Superseded
from tests.snapshots import attempts


class Recorded(CollectSink):
    """Commits, and remembers what it was told."""

    commits = True

    def __init__(self, name: str, told: list[tuple[Any, ...]]) -> None:
        super().__init__()
        self.name = name
        self.told = told
        self.fails = 0

    def check(self) -> None:
        self.told.append(("check",))

    def identity(self) -> str:
        return self.name

    def adopt(self, identity: str) -> None:
        self.told.append(("adopt", identity))

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        self.told.append(("commit", snapshot))
        if self.fails:
            self.fails -= 1
            raise OSError("not now")
        return []

    def roll_back(self, last: int, first_new: int) -> None:
        self.told.append(("roll back", last, first_new))


def start(folder: Path, sink: Recorded, **config: Any) -> LocalJob:
    flow = rd.Dataflow("job")
    flow.from_epochs([[n] for n in range(30)], batch_rows=1).key_by(lambda n: n % 3).count().sink(sink, "out")
    failures = rd.FailureConfig(max_failures=2)
    snapshots = rd.SnapshotConfig(keep=3)
    job = flow.submit(rd.RunConfig(storage_path=str(folder), failures=failures, snapshots=snapshots, **config), runtime="local")
    assert isinstance(job, LocalJob)
    return job


def store_of(job: LocalJob) -> SnapshotStore:
    assert job.snapshots is not None
    return job.snapshots.store.store


def test_sinks_are_called_in_order(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    job = start(tmp_path, Recorded("first", told), resume="latest")
    assert told == [("check",)]
    job.savepoint()
    job.crash()
    assert told[1:] == [("commit", 2), ("roll back", 2, 3), ("commit", 2)]
    del told[:]
    again = start(tmp_path, Recorded("second", told), resume="latest")
    assert told == [("adopt", "first"), ("roll back", 2, 4), ("commit", 2)]  # 3 is the claim; it stands for 2
    del told[:]
    start(tmp_path, Recorded("third", told), resume="latest")
    assert told == [("adopt", "first"), ("roll back", 2, 5), ("commit", 2)]
    with pytest.raises(Superseded):
        again.savepoint()


def test_a_sink_that_fails_while_the_job_recovers_is_one_more_failure(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    sink = Recorded("out", told)
    job = start(tmp_path, sink)
    job.savepoint()
    sink.fails = 2
    job.crash()
    assert told.count(("commit", 2)) == 4
    sink.fails = 1
    with pytest.raises(rd.DataflowError, match="failed in commit: OSError: not now"):
        job.crash()


def test_a_fallback_makes_newer_snapshots_void_for_good(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    job = start(tmp_path, Recorded("out", told))
    job.savepoint()
    path = Path(job.savepoint(), MANIFEST)
    content = path.read_text()
    path.write_text("{")
    job.crash()
    assert told[-2:] == [("roll back", 2, 5), ("commit", 2)]
    path.write_text(content)  # somebody mends it
    job.crash()
    assert told[-2:] == [("roll back", 2, 5), ("commit", 2)]
    assert store_of(job).latest()[0] == store_of(job).load(4)
    assert store_of(job).load(4).notes["void"] == [3]
    start(tmp_path, Recorded("other", told), resume="latest")
    with pytest.raises(Superseded):
        job.crash()


def test_an_unreadable_manifest_may_be_of_another_run(tmp_path: Path) -> None:
    """Else the older run would take its own snapshot again, and so supersede the one that superseded it."""
    job = start(tmp_path, Recorded("out", []))
    path = Path(job.savepoint()).parent / f"{3:012d}" / MANIFEST
    start(tmp_path, Recorded("other", []), resume="latest")
    path.write_text("{")
    with pytest.raises(Superseded, match="another run"):
        job.crash()


def test_a_manifest_that_is_there_although_its_writing_failed_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = start(tmp_path, Recorded("out", []))

    def broken(name: str = "") -> None:
        if not name:
            raise OSError("the answer was lost")

    monkeypatch.setattr(store_of(job).port, "sync", broken)
    assert job.savepoint().endswith("2")
    monkeypatch.undo()
    assert job.savepoint().endswith("3")
    job.wait()


def test_a_full_store_costs_an_attempt_and_not_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = start(tmp_path, Recorded("out", []))

    def full(manifest: Any, **_: Any) -> None:
        raise SnapshotError("no space")

    monkeypatch.setattr(store_of(job), "publish", full)
    with pytest.raises(SnapshotError, match="the savepoint was not taken: no space"):
        job.savepoint()
    monkeypatch.undo()
    assert job.savepoint().endswith("2")


class Away(Port):
    """Of which listings fail, deletions too, or only from the given call on."""

    def __init__(self, real: Port, after: int = 0) -> None:
        super().__init__(real.filesystem, real.folder)
        self._left = after

    def _look(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError("the host is down")

    def entries(self, name: str = "", *, recursive: bool = False) -> list[Entry]:
        self._look()
        return super().entries(name, recursive=recursive)

    def files(self, names: Iterable[str]) -> list[Entry | None]:
        self._look()
        return super().files(names)

    def delete(self, name: str) -> None:
        self._look()
        super().delete(name)


def test_a_store_that_cannot_be_listed_costs_an_attempt_and_not_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: only what failed while a file was written was expected, so that a store away a moment later ended the job."""
    job = start(tmp_path, Recorded("out", []))
    store = store_of(job)
    monkeypatch.setattr(store, "port", Away(store.port))
    with pytest.raises(SnapshotError, match=r"the savepoint was not taken: .*cannot be listed: the host is down"):
        job.savepoint()
    monkeypatch.undo()
    assert job.savepoint().endswith("2")
    job.wait()


def test_a_snapshot_that_was_published_without_an_answer_uses_up_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest is written, then the store is gone: whether there is a snapshot is not known, and its attempt is given up."""
    told: list[tuple[Any, ...]] = []
    job = start(tmp_path, Recorded("out", told))
    store = store_of(job)
    monkeypatch.setattr(store, "port", Away(store.port, after=5))
    with pytest.raises(SnapshotError, match=r"the savepoint was not taken: .*cannot be listed"):
        job.savepoint()
    monkeypatch.undo()
    assert store.numbers() == [1, 2]
    with pytest.raises(SnapshotError, match="snapshot 2 is there, of an attempt that was given up"):
        job.savepoint()
    assert job.savepoint().endswith("3")
    assert ("commit", 2) not in told
    job.wait()


def test_old_snapshots_that_cannot_be_deleted_are_deleted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = start(tmp_path, Recorded("out", []))
    store = store_of(job)
    assert job.snapshots is not None
    job.savepoint()
    with monkeypatch.context() as patched:
        patched.setattr(store, "port", Away(store.port))
        assert not job.snapshots.store.retain()
    assert job.snapshots.store.retain()
    job.wait()


def test_an_attempt_given_up_before_a_source_has_begun_blocks_no_channel(tmp_path: Path) -> None:
    """Its barrier comes on one channel and never on the other."""
    for seed in range(30):
        flow = rd.Dataflow("job")
        left, right = flow.from_epochs([[1], [2]], batch_rows=1), flow.from_epochs([[3], [4]], batch_rows=1)
        left.key_by(lambda n: n).join(right.key_by(lambda n: n - 2)).collect("out")
        job = flow.submit(rd.RunConfig(storage_path=str(tmp_path / str(seed))), runtime="local", seed=seed, parallelism=2)
        assert isinstance(job, LocalJob)
        assert job.snapshots is not None
        attempts.begin(job)
        for _ in range(seed):
            job.step()
        attempts.give_up(job, "enough")
        assert len(job.wait()["out"]) == 2


def test_a_job_ends_although_one_snapshot_follows_another(tmp_path: Path) -> None:
    flow = rd.Dataflow("job")
    flow.from_epochs([[1, 2]] * 3, parts=2, batch_rows=1).key_by(lambda n: n).count().collect("out")
    config = rd.RunConfig(storage_path=str(tmp_path), resume="never", snapshots=rd.SnapshotConfig(interval_s=1e-9))
    for seed in range(5):
        job = flow.submit(config, runtime="local", seed=seed, parallelism=3)
        assert len(job.wait(timeout_s=60)["out"]) == 6
        assert job.snapshots.leader.snapshots.attempts > 1


def test_a_driver_is_told_what_of_its_input_the_snapshot_holds(tmp_path: Path) -> None:
    def started() -> LocalJob:
        flow = rd.Dataflow("job")
        flow.input("numbers").key_by(lambda n: n % 2).count().probe("seen").collect("out")
        job = flow.submit(rd.RunConfig(storage_path=str(tmp_path), resume="latest"), runtime="local")
        assert isinstance(job, LocalJob)
        return job

    job = started()
    numbers = job.input("numbers")
    assert (numbers.sent, numbers.epoch, numbers.closed) == (0, 0, False)
    numbers.send([1, 2])
    numbers.send([3])
    numbers.advance_to(5)
    assert job.probe("seen").wait(4)
    job.savepoint()
    numbers.send([4])
    assert numbers.sent == 3
    job = started()
    numbers = job.input("numbers")
    assert (numbers.sent, numbers.epoch, numbers.closed) == (2, 5, False)
    numbers.send([4])
    numbers.close()
    zero, five = rd.Timestamp(0), rd.Timestamp(5)
    assert sorted(job.wait()["out"]) == [(zero, (0, 1)), (zero, (1, 2)), (five, (0, 2))]
    numbers = started().input("numbers")
    assert (numbers.sent, numbers.closed) == (3, True)


def test_a_recovery_that_somebody_interrupts_goes_on_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a notebook while the code of a user runs in it."""
    interrupts = [KeyboardInterrupt()]
    job = start(tmp_path, Recorded("first", []))
    for _ in range(30):
        job.step()
    job.savepoint()
    open_writer = Recorded.open

    def interrupted(sink: Recorded, replica: int, parallelism: int) -> Any:
        if interrupts:
            raise interrupts.pop()
        return open_writer(sink, replica, parallelism)

    monkeypatch.setattr(Recorded, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        job.crash()
    while job.step():
        pass
    job.wait()
    assert (job.status().state, interrupts) == (JobState.COMPLETE, [])
