"""The coordinator's snapshots on Ray: its plane to the replicas, the bookkeeping, the store. Used by the coordinator's thread alone."""

from __future__ import annotations

import logging
import pickle
import threading
import time as clock
from collections import deque
from typing import Any

from rayad.actors.lead import layout_steps
from rayad.actors.plane.plane import Address, Frame, Plane
from rayad.actors.plane.protocol import COORDINATOR, Kind, replica_name, stage_of
from rayad.actors.process.mailbox import Mailbox
from rayad.actors.replica.part_files import write_staged
from rayad.actors.store.job_store import JobStore, describe_snapshot
from rayad.dataflow.plan import Plan
from rayad.progress import ProtocolError, SnapshotError
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.coordination import TAKEN_MAX, MutableSnapshots, PartReport, SnapshotStatistics
from rayad.snapshots.store import Manifest

_log = logging.getLogger(__name__)


class SnapshotKeeper:
    """Takes snapshots of a running job.

    Args:
        plan: the dataflow.
        store: of the job.
        job, secret: of the plane.
    """

    def __init__(self, plan: Plan, store: JobStore, *, job: str, secret: bytes) -> None:
        self.plan = plan
        self.store = store
        self.config = store.config.snapshots
        self.taken: deque[SnapshotStatistics] = deque(maxlen=TAKEN_MAX)
        self.final: Manifest | None = None
        self._identity: dict[str, Any] = {"job": job, "secret": secret}
        self._plane: Plane | None = None
        self._wanted = False
        self._savepoint: _Savepoint | None = None
        self._savepoints: list[_Savepoint] = []
        self._lock = threading.Lock()
        self._names = _names(plan)
        self.asked = layout_steps.asked_of(plan)
        self._mailbox = Mailbox()
        self._mailbox.open(self.wakeup)
        self._is_changing = False
        self._left = 0
        self._starts = [replica_name(s.id, r) for s in plan.stages if not s.inputs for r in range(s.parallelism)]
        self._finally = [sink.key for sink in plan.sinks if not getattr(sink.sink, "commits", False)]
        self._is_live = self._is_connected = False
        self.saved_inputs: dict[str, int] = {}
        """Frames of live inputs that need not be sent again, whichever of the kept snapshots is gone on from."""
        self.manifest = store.begin()
        self._inputs = {self.manifest.number: self.manifest.notes.get("inputs", {})}
        for remark in store.remarks:
            _log.warning("job %r: %s", store.job, remark)
        self.snapshots = self._bookkeeping(1)

    def _bookkeeping(self, first_attempt: int) -> MutableSnapshots:
        numbers = self.store.store.numbers()
        return MutableSnapshots(
            self._names.values(),
            interval_s=self.config.interval_s,
            timeout_s=self.config.timeout_s,
            published=numbers[-1] if numbers else 0,
            first_attempt=first_attempt,
            finally_published=self._finally,
            staged=self.manifest.staged,
            now_s=clock.monotonic(),
        )

    @property
    def newest(self) -> SnapshotStatistics | None:
        """Of the snapshot that was published last."""
        return self.taken[-1] if self.taken else None

    # -- life --------------------------------------------------------------------------------------
    def listen(self, host: str, incarnation: int, unix: str) -> Address:
        """Open the plane of an incarnation; gives the address for the replicas."""
        self.close()
        self._plane = Plane(name=COORDINATOR, incarnation=incarnation, **self._identity)
        return self._plane.listen(host, unix=unix)

    def go(self) -> None:
        """All replicas are running: time counts."""
        self._is_live = True

    def recover(self) -> Manifest:
        """Everything of this incarnation is void: what the next one goes on from."""
        self.close()
        self.snapshots.on_time(clock.monotonic())
        attempts, estimator = self.snapshots.attempts, self.snapshots.estimator
        if self._savepoint is not None:
            self._savepoint.fail("the job failed meanwhile; it goes on from its last snapshot: ask again")
            self._savepoint = None
        self.manifest = manifest = self.store.recover()
        self._inputs = {number: inputs for number, inputs in self._inputs.items() if number < manifest.number}
        self._inputs[manifest.number] = manifest.notes.get("inputs", {})
        self.snapshots = self._bookkeeping(attempts + 1)
        self.snapshots.estimator = estimator
        return self.manifest

    def recover_upstream(self, names: list[str], incarnation: int) -> int | None:
        """These replicas begin anew from :attr:`manifest`; the others live on. Gives the void attempt; None: all must begin anew."""
        assert self._plane is not None
        self.snapshots.on_time(clock.monotonic())
        pending = self.snapshots.pending
        void = self.snapshots.attempts
        if pending is not None:
            self._give_up(pending.number, "a replica failed")
        numbers = self.store.store.numbers()
        self.manifest = self.store.recover()
        if self.manifest.number != numbers[-1]:
            return None  # the newest is damaged: those that live have gone on from it
        for name in names:
            self._plane.expect(name, incarnation)
        self._is_live = self._is_connected = False
        return void

    @property
    def is_ending(self) -> bool:
        """Whether the last snapshot has begun."""
        pending = self.snapshots.pending
        return self.final is not None or (pending is not None and pending.final)

    # -- changes of layout, from other threads -------------------------------------------------------
    def begin_change(self) -> bool:
        """No snapshot begins from now on; true when none is under way."""

        def begin() -> bool:
            self._is_changing = self.snapshots.pending is None
            return self._is_changing

        return bool(self._mailbox.ask(begin, timeout_s=60.0))

    def end_change(self) -> None:
        """Snapshots may begin again, and one does: it keeps the new layout."""
        self.snapshots.hasten()
        self._is_changing = False
        self.wakeup()

    def hasten(self) -> None:
        """The next snapshot begins as soon as it can. From any thread."""
        self._mailbox.post(self.snapshots.hasten)
        self.wakeup()

    def welcome(self, names: list[str], incarnation: int, plan: Plan) -> None:
        """These will come into the running job."""

        def welcome() -> None:
            assert self._plane is not None
            for name in names:
                self._plane.expect(name, incarnation)
            self.lay_out(plan)

        self._mailbox.ask(welcome)

    def base(self) -> int:
        """The attempt that was published last."""
        return int(self._mailbox.ask(lambda: self.snapshots.base))

    def part(self, names: list[str], plan: Plan, left: dict[str, dict[Any, tuple[str, Any]]]) -> None:
        """These have gone, or do not come; what their sink writers had staged goes with the next snapshot."""

        def part() -> None:
            for name, staged in left.items():
                self._left += 1
                barrier = Barrier(-self._left, self.snapshots.published + 1, 0)
                stage = plan.stage(stage_of(name))
                where = (self.store.store, stage, int(name.split(".")[1]), self._incarnation, barrier)
                self.snapshots.leave_behind(write_staged(*where, staged.values()))
            self.plan = plan
            self._names = {name: replica for name, replica in self._names.items() if name not in names}
            if self.snapshots.pending is None:
                self.snapshots.lay_out(self._names.values())

        self._mailbox.ask(part, timeout_s=60.0)

    def lay_out(self, plan: Plan) -> None:
        """These replicas there are; in the coordinator's thread, or while it does not look."""
        self.plan = plan
        self._names = _names(plan)
        self._is_connected = False
        if self.snapshots.pending is None:
            self.snapshots.lay_out(self._names.values())

    def recovered(self, restart_s: float) -> None:
        """The job is back at work."""
        self.snapshots.estimator.on_failure(restart_s)

    def close(self) -> None:
        """Close the plane."""
        self._is_live = self._is_connected = self._is_changing = False
        if self._plane is not None:
            self._plane.close(linger_s=0.0)
            self._plane = None

    # -- the loop ----------------------------------------------------------------------------------
    def poll(self, timeout_s: float) -> bool:
        """Wait for frames, act on them, and on the clock; true when the job is complete and its last snapshot is published."""
        assert self._plane is not None
        due_in_s = self.snapshots.due_in_s(clock.monotonic())
        for frame in self._plane.poll(timeout_s if due_in_s is None else min(timeout_s, due_in_s)):
            self._on_frame(frame)
        self._plane.take_lost()
        self._mailbox.serve()
        if self._is_live and self.final is None:
            self._look_at_clock()
        return self.final is not None

    def serve(self) -> None:
        """Answer what other threads have asked."""
        self._mailbox.serve()

    def wakeup(self) -> None:
        """From any thread: look again."""
        plane = self._plane
        if plane is not None:
            plane.wakeup()

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == Kind.PART:
            self._on_part(pickle.loads(frame.payload))
        elif frame.kind == Kind.PART_FAILED:
            number, _, why = bytes(frame.payload).decode().partition(" ")
            self._give_up(int(number), why)
        elif frame.kind == Kind.FINISHED:
            self._begin_final()
        else:
            raise ProtocolError(f"the coordinator got a frame of kind {frame.kind} from {frame.peer!r}")

    def _on_part(self, report: PartReport) -> None:
        self.snapshots.on_report(report)
        if not self.snapshots.is_complete:
            return
        try:
            notes = {"layout": layout_steps.layout_notes(self.plan, self.asked)}
            manifest = self.store.publish(self.snapshots, self._incarnation, notes)
        except SnapshotError as error:
            if type(error) is not SnapshotError:
                raise  # superseded
            self._give_up(report.number, str(error))
            return
        statistics = self.snapshots.on_published(clock.monotonic())
        self.store.note(manifest)
        self.manifest = manifest
        self._inputs[manifest.number] = manifest.notes["inputs"]
        self.taken.append(statistics)
        _log.info("job %r: %s", self.store.job, describe_snapshot(statistics))
        if manifest.kind == "final":
            self.final = manifest
            return
        self.store.let_sinks_publish(manifest)
        self._retain()
        if manifest.kind == "savepoint" and self._savepoint is not None:
            self._savepoint.succeed(self.store.path_of(manifest.number))
            self._savepoint = None

    def _retain(self) -> None:
        self.store.retain()
        kept = sorted(self._inputs)[-self.config.keep :]
        self._inputs = {number: self._inputs[number] for number in kept}
        if len(kept) == self.config.keep:
            names = {name for inputs in self._inputs.values() for name in inputs}
            self.saved_inputs = {name: min(inputs.get(name, 0) for inputs in self._inputs.values()) for name in names}

    @property
    def _incarnation(self) -> int:
        assert self._plane is not None
        return self._plane.incarnation

    def _look_at_clock(self) -> None:
        now_s = clock.monotonic()
        snapshots = self.snapshots
        snapshots.on_time(now_s)
        if snapshots.expired(now_s):
            pending = snapshots.pending
            assert pending is not None
            missing = ", ".join(f"{name!r}[{replica}]" for name, replica in snapshots.missing[:5])
            self._give_up(pending.number, f"it took longer than {snapshots.timeout_s} s; missing: {missing}")
        if snapshots.pending is not None or self._is_changing or not self._all_connected():
            return
        with self._lock:
            if self._savepoints and self._savepoint is None:
                self._savepoint = self._savepoints.pop(0)
                self._begin("savepoint")
                return
        if snapshots.due(now_s):
            self._begin("snapshot")

    def _all_connected(self) -> bool:
        """Whether all replicas have found each other, after which they connect here."""
        assert self._plane is not None
        if not self._is_connected:
            self._is_connected = all(self._plane.connected(name) for name in self._names)
        return self._is_connected

    def _begin(self, kind: str) -> None:
        barrier = self.snapshots.begin(clock.monotonic(), kind=kind, unaligned=self.config.alignment_timeout_s == 0)
        self._tell(self._starts, Kind.BEGIN, barrier.pack())

    def _begin_final(self) -> None:
        pending = self.snapshots.pending
        if pending is not None and pending.final:
            return
        if pending is not None:
            self.snapshots.on_failed(pending.number, "the job is complete")
            if self._savepoint is not None:
                self._savepoint.fail("the job completed before")
                self._savepoint = None
        barrier: Barrier = self.snapshots.begin(clock.monotonic(), kind="final")
        self._tell(list(self._names), Kind.BEGIN, barrier.pack())

    def _give_up(self, number: int, why: str) -> None:
        pending = self.snapshots.pending
        if not self.snapshots.on_failed(number, why):
            return
        assert pending is not None
        _log.warning("job %r: attempt %d at a snapshot was given up: %s", self.store.job, number, why)
        if pending.final:
            raise SnapshotError(f"the results of job {self.store.job!r} could not be stored: {why}")
        if self._savepoint is not None:
            self._savepoint.fail(why)
            self._savepoint = None
        limit = self.config.failures_max
        if limit is not None and self.snapshots.given_up_in_a_row >= limit:
            raise SnapshotError(f"{limit} attempts at a snapshot in a row were given up, the last because {why}")
        self._tell(list(self._names), Kind.GIVE_UP, number.to_bytes(8, "little"))

    def _tell(self, names: list[str], kind: Kind, payload: bytes) -> None:
        assert self._plane is not None
        for name in names:
            if self._plane.connected(name):
                self._plane.send(name, kind, 0, payload)

    # -- from other threads ------------------------------------------------------------------------
    def savepoint(self, timeout_s: float | None) -> str:
        """Take a snapshot that stays; gives its path."""
        wanted = _Savepoint()
        with self._lock:
            self._savepoints.append(wanted)
        self.wakeup()
        if not wanted.settled.wait(timeout_s):
            raise SnapshotError(f"the savepoint was not taken within {timeout_s} s")
        if wanted.why:
            raise SnapshotError(f"the savepoint was not taken: {wanted.why}")
        return wanted.path

    def end(self, why: str) -> None:
        """The job is over: nobody waits in vain."""
        with self._lock:
            waiting, self._savepoints = [*self._savepoints, *([self._savepoint] if self._savepoint else [])], []
        for savepoint in waiting:
            savepoint.fail(why)


def _names(plan: Plan) -> dict[str, tuple[str, int]]:
    return {replica_name(s.id, r): (s.name, r) for s in plan.stages for r in range(s.parallelism)}


class _Savepoint:
    def __init__(self) -> None:
        self.settled = threading.Event()
        self.path = ""
        self.why = ""

    def succeed(self, path: str) -> None:
        self.path = path
        self.settled.set()

    def fail(self, why: str) -> None:
        self.why = why
        self.settled.set()
