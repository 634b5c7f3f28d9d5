"""The coordinator's side of snapshots, over real sockets: replicas are planes that send what a replica sends."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.coordinator.on_ray import on_ray
from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.coordinator.stored.store_thread import StoreThread
from rayad.actors.plane.plane import Frame
from rayad.actors.plane.protocol import COORDINATOR, Kind, replica_name
from rayad.actors.status.journal import JobEvent, Journal
from rayad.actors.store.job_store import JobStore
from rayad.progress import SnapshotError
from rayad.snapshots.attempts import PartReport
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import Manifest, ReplicaPart
from tests.actors.planes import SECRET, new_plane, pump
from tests.patience import PATIENCE_S


def test_a_job_that_is_complete_before_all_replicas_are_connected_takes_its_last_snapshot_with_all(tmp_path: Path) -> None:
    """An input that is closed at once: one replica tells of the end while another is still on its way to the coordinator."""
    flow = rd.Dataflow("short")
    flow.input("numbers").key_by(lambda number: number % 7).count(name="counts").collect("out")
    plan = flow.plan({"counts": 2})
    store = JobStore("short", plan, rd.RunConfig(storage_path=str(tmp_path)), run="first")
    calls = StoreThread(lambda: None)
    snapshots = CoordinatorSnapshots(plan, store, job="job", secret=SECRET, journal=Journal(time.monotonic), calls=calls, around=on_ray())
    address = snapshots.listen("127.0.0.1", 1, "auto")
    names = [replica_name(stage.id, replica) for stage in plan.stages for replica in range(stage.parallelism)]
    *early, late = [new_plane(name) for name in names]

    class Here:
        """The coordinator, as one of those that are polled."""

        name = COORDINATOR

        def poll(self, timeout_s: float) -> list[Frame]:
            assert not snapshots.poll(timeout_s)
            return []

    everybody = [*early, Here()]
    try:
        for plane in early:
            plane.start_connect(COORDINATOR, address)
        pump(everybody, lambda _: all(plane.connected(COORDINATOR) for plane in early), PATIENCE_S)  # type: ignore[arg-type]
        for plane in early:
            plane.send(COORDINATOR, Kind.FINISHED, 0, b"")
        for _ in range(50):
            pump(everybody, lambda _: True)  # type: ignore[arg-type]
            for plane in everybody:
                plane.poll(0.0)
        late.start_connect(COORDINATOR, address)
        begun = pump([late, *everybody], lambda got: all(got[name] for name in names), PATIENCE_S)  # type: ignore[arg-type]
        barriers = [Barrier.unpack(frame.payload) for name in names for frame in begun[name] if frame.kind == Kind.BEGIN]
        assert [barrier.final for barrier in barriers] == [True] * len(names)
    finally:
        for plane in (*early, late):
            plane.close(linger_s=0)
        snapshots.close()


class Commits(rd.Sink, rd.SinkWriter):
    """Its commits wait for the test, and say what they did."""

    commits = True

    def __init__(self) -> None:
        self.log: list[str] = []
        self.may_end = threading.Event()

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return self

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        raise NotImplementedError

    def stage(self) -> Any:
        return None

    def publish(self, staged: Any) -> Any:
        raise NotImplementedError

    def commit(self, number: int, staged: Any) -> None:
        assert self.may_end.wait(PATIENCE_S)
        self.log.append(f"commit {number}")

    def roll_back(self, number: int, first_new: int) -> None:
        self.log.append(f"roll back to {number}")


class Running:
    """A job whose replicas are planes: each gives its part at once."""

    def __init__(self, folder: Path, sink: rd.Sink | None = None, run: str = "first", earlier: tuple[str, ...] = ()) -> None:
        flow = rd.Dataflow("short")
        counts = flow.input("numbers").key_by(lambda number: number % 7).count(name="counts")
        counts.sink(sink, "kept") if sink is not None else counts.collect("out")
        self.plan = flow.plan({"counts": 1})
        config = rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(interval_s=0.001))
        self.store = JobStore("short", self.plan, config, run=run, earlier=earlier)
        self.calls = StoreThread(lambda: self.snapshots.wakeup())
        self.journal = Journal(time.time)
        self.snapshots = CoordinatorSnapshots(
            self.plan, self.store, job="job", secret=SECRET, journal=self.journal, calls=self.calls, around=on_ray()
        )
        self.begun: list[int] = []
        names = {replica_name(stage.id, 0): stage.name for stage in self.plan.stages}
        self.vertices = names
        self.planes = [new_plane(name) for name in names]
        address = self.snapshots.listen("127.0.0.1", 1, "auto")
        for plane in self.planes:
            plane.start_connect(COORDINATOR, address)
        self.until(lambda: all(plane.connected(COORDINATOR) for plane in self.planes), "all are connected")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"not in time: {what}"
            self.turn()

    def turn(self) -> None:
        """All look once; the sources begin an attempt, so all of this job's replicas give their parts of it."""
        self.snapshots.poll(0.001)
        self.calls.serve()
        for plane in self.planes:
            for frame in plane.poll(0.001):
                if frame.kind == Kind.BEGIN:
                    number = Barrier.unpack(frame.payload).number
                    self.begun.append(number)
                    self.give(number)

    def give(self, number: int) -> None:
        for plane in self.planes:
            part = PartReport(number, ReplicaPart(self.vertices[plane.name], 0, ()))
            plane.send(COORDINATOR, Kind.PART, 0, pickle.dumps(part))

    def close(self) -> None:
        for plane in self.planes:
            plane.close(linger_s=0)
        self.snapshots.close()
        assert self.calls.close(PATIENCE_S)


def test_a_commit_that_hangs_stops_no_poll_and_the_next_snapshot_waits_for_it(tmp_path: Path) -> None:
    sink = Commits()
    job = Running(tmp_path, sink)
    try:
        job.snapshots.go()
        job.until(lambda: job.calls.under_way() is not None and "committing" in job.calls.under_way()[0], "it commits")  # type: ignore[index]
        first = job.snapshots.newest
        assert first is not None
        what = f"committing snapshot {first.number} and deleting older ones"
        for _ in range(20):  # frames are heard, the clock goes
            job.turn()
        assert (job.begun, job.calls.under_way()[0], sink.log) == ([1], what, [])  # type: ignore[index]
        assert not job.snapshots.leader.may_begin
        told: list[str] = []
        job.snapshots.hold_back(lambda: told.append("a change may begin"))
        for _ in range(20):
            job.turn()
        assert told == []
        sink.may_end.set()
        job.until(lambda: bool(told), "a change may begin")
        assert (sink.log, job.begun) == ([f"commit {first.number}"], [1])
        job.snapshots.end_change()
        job.until(lambda: len(sink.log) >= 3, "three snapshots")
        assert sink.log[:3] == [f"commit {first.number + further}" for further in range(3)]
    finally:
        sink.may_end.set()
        job.close()


def test_a_publication_that_fails_is_given_up_and_told_until_one_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Running(tmp_path)
    publish, fails = job.store.publish, [True]

    def full(*arguments: Any) -> Manifest:
        if fails[0]:
            raise SnapshotError("cannot publish: No space left on device")
        return publish(*arguments)

    monkeypatch.setattr(job.store, "publish", full)
    began_s = time.time()
    try:
        assert (job.snapshots.late.given_up, job.snapshots.late.newest, job.snapshots.late.awaited_s) == (0, None, None)
        job.snapshots.go()
        assert job.snapshots.late.awaited_s is not None
        job.until(lambda: job.snapshots.late.given_up >= 3, "three attempts have failed")
        late = job.snapshots.late
        assert (late.why, late.newest, late.interval_s) == ("cannot publish: No space left on device", None, 0.001)
        assert late.since_s is not None
        assert began_s - 1.0 <= late.since_s <= time.time() + 1.0
        fails[0] = False
        job.until(lambda: job.snapshots.newest is not None, "a snapshot")
        assert job.snapshots.newest is not None
        assert (job.snapshots.late.given_up, job.snapshots.late.newest) == (0, job.snapshots.newest.number)
    finally:
        job.close()


def test_an_attempt_that_lacks_parts_names_them_with_its_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Running(tmp_path)
    monkeypatch.setattr(job, "give", lambda number: None)
    try:
        job.snapshots.go()
        job.until(lambda: bool(job.begun), "an attempt begins")
        late = job.snapshots.late
        assert late.doing == "snapshot 2, which lacks the parts of 'counts'[0], 'numbers'[0],"
        assert late.doing_s is not None
        assert 0.0 <= late.doing_s < PATIENCE_S
    finally:
        job.close()


def test_a_coordinator_that_succeeds_another_knows_how_old_the_newest_snapshot_is(tmp_path: Path) -> None:
    """It has published none itself; the journal of the job knows when that was."""
    first, told, path = Running(tmp_path), [], tmp_path / "short" / "journal.jsonl"  # type: ignore[var-annotated]
    try:
        first.snapshots.go()
        first.until(lambda: len(first.snapshots.taken) >= 2, "two snapshots")
        first.snapshots.hold_back(lambda: told.append("no other one is under way"))
        first.until(lambda: bool(told), "no other one is under way")
        events = [JobEvent(event.at_s - 3600.0, event.kind, event.what, event.facts) for event in first.journal.events]
        first.until(lambda: path.exists() and path.read_text().count("\n") == len(events), "the journal is written")
    finally:
        first.close()
    newest = first.snapshots.taken[-1].number
    path.write_text("".join(f"{event.as_line()}\n" for event in events))
    second = Running(tmp_path, run="second", earlier=("first",))
    try:
        late = second.snapshots.late
        assert (late.newest, second.snapshots.newest) == (newest, None)
        assert late.age_s is not None
        assert 3600.0 <= late.age_s <= 3600.0 + PATIENCE_S
    finally:
        second.close()
