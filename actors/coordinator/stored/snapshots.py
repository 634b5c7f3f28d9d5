"""The coordinator's snapshots on Ray: its plane to the replicas, and the store; what is to be done is decided by :class:`SnapshotLeader`.

Used by the coordinator's thread alone, but for the calls that say otherwise. That thread never waits for the store or a sink: snapshots are
published and committed in the :class:`StoreThread`, whose answers are events.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from rayad.actors.coordinator.stored.found import Found
from rayad.actors.coordinator.stored.store_thread import Returned, StoreThread
from rayad.actors.coordinator.surroundings import CoordinatorLink, StoreSurroundings
from rayad.actors.lead import layouts
from rayad.actors.lead import snapshot_leader as lead
from rayad.actors.lead.saved_inputs import SavedEpochs
from rayad.actors.lead.told_by_workers import event_of
from rayad.actors.plane.address import Address
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR, Kind, replica_name, stage_of
from rayad.actors.process.mailbox import Mailbox
from rayad.actors.replica.parts.part_files import write_staged
from rayad.actors.replica.places import Places
from rayad.actors.status.journal import Journal
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.actors.store.job_store import JobStore, describe_snapshot
from rayad.dataflow.plan import Plan
from rayad.progress import ProtocolError, SnapshotError
from rayad.snapshots.attempts import ReplicaName, SnapshotAttempts, SnapshotStatistics
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.store import Superseded

if TYPE_CHECKING:
    from concurrent.futures import Future

JOURNAL_S = 1.0
"""How long the end of a job waits for its journal to be written."""
_log = logging.getLogger(__name__)


class CoordinatorSnapshots:
    """Takes snapshots of a running job. Making one begins the run in the store, so it is made in the thread of the store.

    Args:
        plan: the dataflow.
        store: of the job.
        job, secret: of the plane.
        journal: of the job; it is kept beside the snapshots from now on.
        calls: the thread that calls the store.
        around: the clock, and what makes its plane.
    """

    def __init__(
        self,
        plan: Plan,
        store: JobStore,
        *,
        job: str,
        secret: bytes,
        journal: Journal,
        calls: StoreThread,
        around: StoreSurroundings,
        places: Places | None = None,
    ) -> None:
        self.plan = plan
        self._around, self._clock = around, around.clock
        self._places = places or Places()
        self._journal = journal
        self._calls = calls
        self.store = store
        self.asked = layouts.asked_of(plan)
        self.final: Manifest | None = None
        """The last snapshot, when it is published."""
        self._working: dict[str, str] = {}  # by replica of a vertex whose processes have ended: the step that runs, as it last told
        self.on_published: Callable[[Manifest], None] = lambda manifest: None
        """Called when a snapshot is in the store."""
        self.notes: Callable[[], dict[str, Any]] = dict
        """Gives what else each snapshot notes."""
        self._identity: dict[str, Any] = {"job": job, "secret": secret}
        self._plane: CoordinatorLink | None = None
        self._names = _names(plan, self._places)
        self._mailbox = Mailbox()
        self._mailbox.open(self.wakeup)
        self._left = 0
        self._free_for_change: Callable[[], None] | None = None
        self._tickets = count()
        self._savepoints: dict[int, Future[str]] = {}
        self._over = ""
        self._newest: int | None = None  # number of the newest snapshot, also of an earlier run that this one resumes from
        self._newest_s = self._live_s = self._clock.monotonic()
        self._is_live = self._is_connected = False
        self._is_finished = False
        self._saved = threading.Condition()
        self.manifest = store.begin()
        """What a recovery resumes from."""
        for remark in store.remarks:
            _log.warning("job %r: %s", store.job, remark)
        self._journal_file = around.lines(store.store.filesystem, store.journal_path)
        journal.keep(self._journal_file.read(), self._journal_file.append)
        self._look_back()
        self.leader = lead.SnapshotLeader(
            store.job,
            store.config.snapshots,
            finally_published=[sink.key for sink in plan.sinks if not getattr(sink.sink, "commits", False)],
            replicas=layouts.names_of(plan),
            starts=layouts.starts_of(plan),
            begun=self.manifest,
            published=self.store.newest,
            now_s=self._clock.monotonic(),
        )

    # -- what others look at, from any thread ----------------------------------------------------------
    @property
    def newest(self) -> SnapshotStatistics | None:
        """Of the snapshot that was published last."""
        return self.leader.newest

    @property
    def age_s(self) -> float:
        """Seconds since the newest snapshot was published; where there is none, since the run began."""
        return self._clock.monotonic() - self._newest_s

    @property
    def taken(self) -> Sequence[SnapshotStatistics]:
        """In all incarnations, the newest last."""
        return self.leader.taken

    @property
    def committed(self) -> dict[str, int]:
        """By vertex the last epoch that a snapshot of this incarnation holds."""
        return dict(self.leader.snapshots.committed)

    @property
    def saved_inputs(self) -> dict[str, int]:
        """Frames of live inputs that need not be sent again, whichever of the kept snapshots is resumed from."""
        return self.leader.saved_inputs

    @property
    def saved_epochs(self) -> dict[str, SavedEpochs]:
        """Which epochs of live inputs are in snapshots."""
        return self.leader.saved_epochs

    def wait_saved(self, name: str, epoch: int, hold_s: float) -> bool:
        """Whether the newest snapshot holds an epoch of a live input; waits for that, not longer than ``hold_s``."""
        with self._saved:
            return self._saved.wait_for(lambda: self.leader.saved(name).newest > epoch, timeout=hold_s)

    @property
    def late(self) -> SnapshotsLate:
        """How old the newest snapshot is, which attempts have failed since, and what the one under way lacks."""
        now_s, failing = self._clock.monotonic(), self.leader.failing
        is_awaited = self._is_live and self.final is None
        awaited_s = now_s - max(self._live_s, self._newest_s) if is_awaited else None
        known = SnapshotsLate(newest=self._newest, age_s=self.age_s, awaited_s=awaited_s, interval_s=self.interval_s)
        if failing is not None:
            since_s = self._clock.time() - (now_s - failing.since_s)
            known = replace(known, given_up=failing.attempts, since_s=since_s, why=failing.why)
        lacks = self.leader.snapshots.lacks(now_s)
        return known if lacks is None else replace(known, doing=lacks[0], doing_s=lacks[1])

    @property
    def interval_s(self) -> float | None:
        """Seconds between two snapshots, as they stand now."""
        return self.leader.snapshots.interval_s

    @property
    def is_ending(self) -> bool:
        """Whether the last snapshot has begun."""
        return self.leader.is_ending

    # -- life --------------------------------------------------------------------------------------
    def listen(self, host: str, incarnation: int, unix: str) -> Address:
        """Open the plane of an incarnation; gives the address for the replicas."""
        self.close()
        self._plane = self._around.plane(name=COORDINATOR, incarnation=incarnation, seals=bool(self.store.config.encrypt), **self._identity)
        return self._plane.listen(host, unix=unix)

    def go(self) -> None:
        """All replicas run: the interval to the next snapshot begins."""
        self._is_live, self._live_s = True, self._clock.monotonic()
        self.store.on_running()

    def find_newest(self, suspected: Collection[str] = ()) -> Found:
        """In the thread of the store: what a recovery resumes from. Sinks are brought to that: nothing of theirs may be under way.
        ``suspected``: files of snapshots that replicas could not read."""
        before, begun = self.store.newest, self.store.begun
        return Found(self.store.recover(suspected), before, self.store.newest, self.store.begun is not begun)

    def recover(self, found: Found) -> None:
        """Everything of the last incarnation is void; the next one resumes from what has been found."""
        self.manifest = found.manifest
        self.carry_out(self.leader.begin_anew(found.manifest, found.after, self._clock.monotonic()))

    def fail_region(self) -> int | None:
        """Some replicas have failed, and the others may live on: gives the attempt that is void; None: ALL_OR_NONE."""
        self._is_live = self._is_connected = False
        if not self.leader.may_live_on:
            return None
        self.tell(lead.RegionFailed())
        return self.leader.snapshots.attempts

    def recover_upstream(self, found: Found) -> str:
        """The failed replicas begin anew from what has been found; the others live on. Gives why all must begin anew, "" if not: those
        that live on know of the snapshots that were accepted here, and the sinks have just got all of the one that has been found."""
        accepted, self.manifest = self.manifest.number, found.manifest
        if found.manifest.number != found.before:
            return lead.NEWEST_DAMAGED
        return "" if found.manifest.number == accepted else lead.NEWEST_UNTOLD

    def expect(self, names: Sequence[str], incarnation: int) -> None:
        """These replicas begin anew, in this incarnation."""
        assert self._plane is not None
        for name in names:
            self._plane.expect(name, incarnation)

    def recovered(self, restart_s: float) -> None:
        """The job is back at work."""
        self.leader.on_restarted(restart_s)

    def found_complete(self, found: Manifest) -> bool:
        """Whether nothing is left to do: what was found is the last snapshot, of the run that is resumed, or of this one, which was then
        published though nobody was told."""
        if found.kind == "final":
            self.manifest = self.final = found
        return self.final is not None

    def close(self) -> None:
        """Close the plane."""
        self._is_live = self._is_connected = self._is_finished = False
        if self._plane is not None:
            self._plane.close(linger_s=0.0)
            self._plane = None

    def _look_back(self) -> None:
        """Learn from which snapshot the run resumes, and how old that is, which only the journal knows: else it counts from now."""
        self._newest = self.manifest.notes.get("stands_for")
        for event in reversed(self._journal.events):
            if event.kind == "snapshot" and event.facts.get("number") == self._newest:
                self._newest_s -= max(0.0, self._clock.time() - event.at_s)
                return

    def close_journal(self) -> None:
        """The job is over, and nothing more happens to it."""
        self._journal_file.close(JOURNAL_S)

    def end(self, why: str) -> None:
        """The job is over: whoever still waits gets an answer."""
        self._over = why
        self._mailbox.serve()
        self.carry_out(self.leader.handle(lead.Ended(why), self._clock.monotonic()))

    # -- what other threads ask -------------------------------------------------------
    def hold_back(self, told: Callable[[], None]) -> None:
        """No snapshot begins from now on. From any thread; ``told`` is called in the coordinator's when none is under way."""

        def hold_back() -> None:
            self._free_for_change = told
            self.tell(lead.ChangeWanted())

        self.post(hold_back)

    def end_change(self) -> None:
        """Snapshots may begin again, and one does: it keeps the new layout. From any thread."""

        def end_change() -> None:
            self._free_for_change = None
            self.tell(lead.ChangeOver())

        self.post(end_change)

    def hasten(self) -> None:
        """The next snapshot begins as soon as it can. From any thread."""
        self._post(lead.Hastened())

    def _post(self, event: lead.Event) -> None:
        self.post(lambda: self.tell(event))

    def post(self, action: Callable[[], None]) -> None:
        """From any thread: do this in the coordinator's thread at its next turn, in the order of the posts."""
        self._mailbox.post(action)
        self.wakeup()

    # -- changes of layout, in the coordinator's thread (:meth:`post`) ----------------------------------
    def admit(self, processes: Sequence[str], incarnation: int, plan: Plan) -> None:
        """These will come into the running job."""
        assert self._plane is not None
        for process in processes:
            self._plane.expect(process, incarnation)
        self.lay_out(plan)

    def base(self) -> int:
        """The attempt that was published last."""
        return self.leader.snapshots.base

    def part(self, names: Sequence[str], plan: Plan, left: Mapping[str, Mapping[Any, tuple[str, Any]]]) -> None:
        """These have retired, or will not join; what their sink writers had staged goes into the next snapshot."""
        for name, staged in left.items():
            self._left += 1
            barrier = Barrier(-self._left, self.leader.snapshots.published + 1, 0)
            stage = plan.stage(stage_of(name))
            where = (self.store.store, stage, int(name.split(".")[1]), self._incarnation, barrier)
            self.leader.leave_behind(write_staged(*where, staged.values()))
        self.plan = plan
        self._names = {who: place for who, place in self._names.items() if replica_name(place[1], who[1]) not in names}
        self.leader.lay_out(list(self._names), layouts.starts_of(plan))

    def lay_out(self, plan: Plan) -> None:
        """These are the replicas from now on."""
        self.plan = plan
        self._names = _names(plan, self._places)
        self._is_connected = False
        self.leader.lay_out(list(self._names), layouts.starts_of(plan))

    # -- the loop ----------------------------------------------------------------------------------
    def poll(self, timeout_s: float) -> bool:
        """Wait for frames, act on them, and on the clock; true when the job is complete and its last snapshot is published."""
        assert self._plane is not None
        due_in_s = self.leader.due_in_s(self._clock.monotonic()) if self.is_ready else None
        for frame in self._plane.poll(timeout_s if due_in_s is None else min(timeout_s, due_in_s)):
            self._on_frame(frame)
        self._plane.take_lost()
        self._mailbox.serve()
        self._look_for_change()
        if self._is_finished and self._all_connected():  # a job may be complete before all of its replicas have come here
            self._is_finished = False
            self.tell(lead.Finished())
        if self.is_ready:
            self.tell(lead.Tick())
        return self.final is not None

    @property
    def is_ready(self) -> bool:
        """Whether time has a meaning for the leader: before all are connected nothing is due, and this thread waits for frames."""
        return self._is_live and self.final is None and self._all_connected()

    def ended_in(self, name: str) -> str:
        """The step that ran in a replica whose process has ended, as far as it told; "" where it did not, or none ran."""
        self.poll(0.0)  # what it said before
        return self._working.pop(name, "")

    def _look_for_change(self) -> None:
        """Tell a change of layout that waits for it that it may begin."""
        if self._free_for_change is not None and self.leader.may_change:
            told, self._free_for_change = self._free_for_change, None
            told()

    def serve(self) -> None:
        """Do what other threads have posted."""
        self._mailbox.serve()

    def wakeup(self) -> None:
        """From any thread: look again."""
        plane = self._plane
        if plane is not None:
            plane.wakeup()

    def _on_frame(self, frame: Frame) -> None:
        event = event_of(frame)
        if event is not None:
            self.tell(event)
        elif frame.kind == Kind.FINISHED:
            self._is_finished = True
        elif frame.kind == Kind.WORKING:
            self._working[frame.peer] = bytes(frame.payload).decode()
        else:
            raise ProtocolError(f"the coordinator got a frame of kind {frame.kind} from {frame.peer!r}")

    def tell(self, event: lead.Event) -> None:
        """Something has happened: do what follows. Raises SnapshotError when the job cannot go on."""
        self.carry_out(self.leader.handle(event, self._clock.monotonic()))

    def carry_out(self, effects: list[lead.Effect]) -> None:
        """What its leader has decided. Raises SnapshotError when the job cannot go on."""
        failure = ""
        for effect in effects:
            self._journal.on_effect(effect)
            match effect:
                case lead.Begin(barrier, replicas):
                    self._send(replicas, Kind.BEGIN, barrier.pack())
                case lead.GiveUp(number, why, replicas):
                    _log.warning("job %r: attempt %d at a snapshot was given up: %s", self.store.job, number, why)
                    self._send(replicas, Kind.GIVE_UP, number.to_bytes(8, "little"))
                case lead.Publish(number):
                    self._publish(number)
                case lead.Commit(manifest):
                    what = f"committing snapshot {manifest.number} and deleting older ones"
                    self._calls.post(what, partial(self._commit, manifest), partial(self._after_commit, manifest))
                case lead.SavepointTaken(ticket, number):
                    taken = self._savepoints.pop(ticket)
                    if taken.set_running_or_notify_cancel():
                        taken.set_result(self.store.path_of(number))
                case lead.SavepointRefused(ticket, why):
                    taken = self._savepoints.pop(ticket)
                    if taken.set_running_or_notify_cancel():
                        taken.set_exception(SnapshotError(f"the savepoint was not taken: {why}"))
                case lead.Fail(why):
                    failure = why
        if failure:
            raise SnapshotError(failure)

    def _publish(self, number: int) -> None:
        attempts = self.leader.snapshots
        pending, copied = attempts.pending, attempts.copied()
        assert pending is not None
        notes = {"layout": layouts.layout_notes(self.plan, self.asked), **self.notes()}
        publish = partial(self.store.publish, copied, self._incarnation, notes)
        self._calls.post(f"publishing snapshot {pending.slot}", publish, partial(self._after_publish, number, attempts, copied))

    def _after_publish(self, number: int, attempts: SnapshotAttempts, copied: SnapshotAttempts, answer: Returned[Manifest]) -> None:
        """The store has answered."""
        attempts.take_back(copied)
        try:
            manifest = answer.given()
        except Superseded:
            raise
        except SnapshotError as error:
            self.tell(lead.NotPublished(number, str(error)))
            self.wakeup()
            return
        before = self.newest
        self.tell(lead.Published(number, manifest))
        newest = self.newest
        if newest is None or newest is before:
            return  # the attempt was given up meanwhile
        self._newest, self._newest_s = manifest.number, self._clock.monotonic()
        self.manifest = manifest
        if manifest.kind == "final":
            self.final = manifest
        self.on_published(manifest)
        with self._saved:
            self._saved.notify_all()
        self._journal.on_snapshot(newest)
        _log.info("job %r: %s", self.store.job, describe_snapshot(newest))

    def _commit(self, manifest: Manifest) -> bool:
        """In the thread of the store: let the sinks publish; gives whether older snapshots are forgotten."""
        self.store.note(manifest)
        self.store.let_sinks_publish(manifest)
        return self.store.retain()

    def _after_commit(self, manifest: Manifest, answer: Returned[bool]) -> None:
        """The sinks have published. Raises what a sink has raised."""
        self.tell(lead.Committed(manifest, answer.given()))
        self.wakeup()  # what waited for it begins at once

    @property
    def _incarnation(self) -> int:
        assert self._plane is not None
        return self._plane.incarnation

    def _all_connected(self) -> bool:
        """Whether all replicas have found each other, after which they connect here."""
        assert self._plane is not None
        if not self._is_connected:
            self._is_connected = all(self._plane.connected(process) for process, _ in self._names.values())
        return self._is_connected

    def _send(self, replicas: Sequence[ReplicaName], kind: Kind, payload: bytes) -> None:
        for replica in replicas:
            process, stage = self._names.get(replica, ("", 0))
            if self._plane is not None and process and self._plane.connected(process):
                self._plane.send(process, kind, stage, payload)

    # -- from other threads ------------------------------------------------------------------------
    def ask_savepoint(self) -> Future[str]:
        """Let a snapshot be taken that stays; gives its path as soon as that is known."""
        from concurrent.futures import Future  # jobs that nobody asks for a savepoint do without

        ticket, taken = next(self._tickets), Future[str]()
        self._savepoints[ticket] = taken
        self._post(lead.SavepointWanted(ticket))
        return taken

    def savepoint(self, timeout_s: float | None) -> str:
        """Take a snapshot that stays; gives its path."""
        taken = self.ask_savepoint()
        if self._over and taken.cancel():  # the loop may have looked for the last time
            raise SnapshotError(f"the savepoint was not taken: {self._over}")
        try:
            return taken.result(timeout_s)
        except TimeoutError:
            raise SnapshotError(f"the savepoint was not taken within {timeout_s:g} s: {self.leader.why_late()}") from None


def _names(plan: Plan, places: Places) -> dict[ReplicaName, tuple[str, int]]:
    """The process of each replica, and its stage."""
    return {(stage.name, r): (places.process_of(stage.id, r), stage.id) for stage in plan.stages for r in range(stage.parallelism)}
