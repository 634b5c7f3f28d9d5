"""The coordinator's part in the snapshots of a local job: the leader that ships, on the bus.

Publishing, and letting the sinks publish, are events of their own (``("publish", number)``, ``("commit", number)``), so that a crash can
come before each. :class:`SnapshotLeader` decides; on Ray ``coordinator/snapshots.py`` carries its effects out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import Any, assert_never

from rayad.actors.lead import snapshot_leader as lead
from rayad.actors.lead.layouts import layout_notes, names_of, starts_of
from rayad.actors.lead.told_by_workers import event_of
from rayad.actors.local.processes import Processes
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR, Kind
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.part_files import write_staged
from rayad.actors.replica.report import Left
from rayad.actors.replica.upstream import Region
from rayad.actors.status.journal import Journal
from rayad.actors.store.job_store import JobStore
from rayad.dataflow.plan import Plan
from rayad.progress import ProtocolError, SnapshotError
from rayad.snapshots.attempts import SnapshotAttempts, SnapshotStatistics
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.store import Superseded

EVENTS = ("publish", "commit")


class LocalSnapshots:
    """The snapshots of a local job that has a store.

    Args:
        name: of the job.
        plan: in the layout that it begins with.
        processes: of the job.
        store: its store.
        asked: the replicas that it was asked for, by vertex.
        now_s: the clock.
        journal: of the job.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        processes: Processes,
        store: JobStore,
        asked: Mapping[str, int],
        *,
        now_s: Callable[[], float],
        journal: Journal,
    ) -> None:
        self.plan = plan
        self.store = store
        self.failures = 0
        self.recoveries = 0
        self.incarnation = 1
        self.published: list[Manifest] = []
        """Since the leader of the job was told."""
        self._processes = processes
        self._asked = asked
        self._now_s = now_s
        self._journal = journal
        self._tickets = count()
        self._answers: dict[int, int | str] = {}  # of savepoints: their numbers, or why there is none
        self._publishing: dict[int, tuple[SnapshotAttempts, SnapshotAttempts]] = {}
        self._committing: dict[int, Manifest] = {}
        self._stages = {stage.name: stage.id for stage in plan.stages}
        self._retired = 0
        self._are_there = self._is_finished = False
        self.begun = store.begin()
        self.leader = lead.SnapshotLeader(
            name,
            store.config.snapshots,
            finally_published=[sink.key for sink in plan.sinks if not getattr(sink.sink, "commits", False)],
            replicas=names_of(plan),
            starts=starts_of(plan),
            begun=self.begun,
            published=store.newest,
            now_s=now_s(),
        )

    # -- what others look at -------------------------------------------------------------------------
    @property
    def snapshots(self) -> SnapshotAttempts:
        """The bookkeeping of the attempt under way."""
        return self.leader.snapshots

    @property
    def committing(self) -> Manifest | None:
        """What the sinks are to publish."""
        return self.leader.committing

    @property
    def taken(self) -> Collection[SnapshotStatistics]:
        """In all incarnations, the newest last."""
        return self.leader.taken

    @property
    def manifest(self) -> Manifest:
        """What is resumed from."""
        assert self.store.manifest is not None
        return self.store.manifest

    @property
    def was_complete(self) -> bool:
        """Whether the run that is resumed had completed, so that its last snapshot serves."""
        return self.store.manifest is self.begun and self.begun.kind == "final"

    @property
    def are_all_there(self) -> bool:
        """Whether all processes have come to the coordinator: before that no attempt may begin."""
        if not self._are_there:
            processes = self._processes
            self._are_there = processes.bus.have_met(processes.workers, COORDINATOR)
        return self._are_there

    @property
    def may_begin(self) -> bool:
        """Whether an attempt may begin now."""
        return self.leader.may_begin and self.are_all_there

    # -- the leader ----------------------------------------------------------------------------------
    def tell(self, event: lead.Event) -> None:
        """Something has happened: do what follows."""
        self._act(self.leader.handle(event, self._now_s()))

    def _act(self, effects: Iterable[lead.Effect]) -> None:
        ready, failure = self._processes.ready, ""
        for effect in effects:
            match effect:
                case lead.Begin(barrier, replicas):
                    for name, replica in replicas:
                        self._say(name, replica, Kind.BEGIN, barrier.pack())
                case lead.GiveUp(number, _, replicas):
                    for name, replica in replicas:
                        self._say(name, replica, Kind.GIVE_UP, number.to_bytes(8, "little"))
                case lead.Publish(number):
                    self._publishing[number] = self.snapshots, self.snapshots.copied()
                    ready.add(("publish", number))
                case lead.Commit(manifest):
                    self._committing[manifest.number] = manifest
                    ready.add(("commit", manifest.number))
                case lead.SavepointTaken(ticket, number):
                    self._answers[ticket] = number
                case lead.SavepointRefused(ticket, why):
                    self._answers[ticket] = why
                case lead.Fail(why):
                    failure = why
                case _:
                    assert_never(effect)
        if failure:
            raise SnapshotError(failure)

    def _say(self, name: str, replica: int, kind: Kind, payload: bytes) -> None:
        stage = self._stages[name]
        self._link.send(self._processes.places.process_of(stage, replica), kind, stage, payload)

    def look_at_clock(self) -> None:
        """Begin or give up snapshots by time."""
        if self.are_all_there:
            self.tell(lead.Tick())
            self._look_whether_finished()

    def hear(self, frames: list[Frame]) -> None:
        """What workers tell the coordinator."""
        for frame in frames:
            event = event_of(frame)
            if event is not None:
                self.tell(event)
            elif frame.kind == Kind.FINISHED:
                self._is_finished = True
                self._look_whether_finished()
            else:
                raise ProtocolError(f"the coordinator got a frame of kind {frame.kind} from {frame.peer!r}")

    def _look_whether_finished(self) -> None:
        """A job may be complete before all have come here."""
        if self._is_finished and self.are_all_there and not self.was_complete:
            self._is_finished = False
            self.tell(lead.Finished())

    # -- events --------------------------------------------------------------------------------------
    def perform(self, kind: str, number: int) -> None:
        """One event of a snapshot."""
        self._processes.ready.discard((kind, number))
        if kind == "publish":
            self._publish(number, *self._publishing.pop(number))
        else:
            self._commit(self._committing.pop(number))

    def _publish(self, number: int, attempts: SnapshotAttempts, copied: SnapshotAttempts) -> None:
        notes = {"layout": layout_notes(self.plan, self._asked)}
        try:
            manifest = self.store.publish(copied, self.incarnation, notes)
        except Superseded:
            raise
        except SnapshotError as error:
            attempts.take_back(copied)
            self.tell(lead.NotPublished(number, str(error)))
            return
        attempts.take_back(copied)
        self.store.note(manifest)
        self.published.append(manifest)
        self.tell(lead.Published(number, manifest))
        if self.leader.newest is not None:
            self._journal.on_snapshot(self.leader.newest)

    def _commit(self, manifest: Manifest) -> None:
        self.store.let_sinks_publish(manifest)
        self.tell(lead.Committed(manifest, self.store.retain()))
        for name, stage in self.plan.inputs.items():  # what all kept snapshots have need not be kept for replay
            if name in self.leader.saved_inputs and stage in self._processes.logs:
                self._processes.logs[stage].trim(self.leader.saved_inputs[name])

    # -- what is asked for ---------------------------------------------------------------------------
    def ask_savepoint(self) -> int:
        """Somebody waits for a savepoint; gives the ticket."""
        ticket = next(self._tickets)
        self.tell(lead.SavepointWanted(ticket))
        return ticket

    def answered(self, ticket: int) -> str | None:
        """The path of that savepoint when it has been taken, else None. Raises SnapshotError when it cannot be."""
        self.look_at_clock()
        if ticket not in self._answers:
            return None
        answer = self._answers.pop(ticket)
        if isinstance(answer, str):
            raise SnapshotError(f"the savepoint was not taken: {answer}")
        return self.store.path_of(answer)

    def begin(self, kind: str = "snapshot", *, unaligned: bool | None = None) -> Barrier:
        """For tests: start an attempt now."""
        self._act(self.leader.begin(self._now_s(), kind=kind, unaligned=unaligned))
        pending = self.snapshots.pending
        assert pending is not None
        return pending

    def give_up(self, why: str) -> None:
        """For tests: end the pending attempt without a snapshot."""
        pending = self.snapshots.pending
        if pending is not None:
            self.tell(lead.PartFailed(pending.number, why))

    def publish_finally(self) -> dict[int, Any]:
        """Let all sinks publish what the last snapshot names; gives their receipts."""
        receipts = self.store.publish_finally(self.leader.final or self.manifest)
        self.store.retain()
        return receipts

    # -- a beginning, a recovery ---------------------------------------------------------------------
    def open(self, incarnation: int) -> None:
        """All begin in this incarnation: the coordinator is on the bus, and knows nobody yet."""
        self.incarnation = incarnation
        self._are_there = self._is_finished = False
        self._link = self._processes.bus.link(COORDINATOR, incarnation)

    def recover(self) -> None:
        """All replicas are gone: they begin anew from the newest whole snapshot of this run."""
        self._forget()
        self._act(self.leader.begin_anew(self.store.recover(), self.store.newest, self._now_s()))

    def recover_upstream(self, region: Region) -> tuple[int, str]:
        """The replicas of a region are gone. The others, and the bookkeeping, live on. Gives the last attempt, which is void, and why all
        must begin anew."""
        if not self.leader.may_live_on:
            return 0, lead.ALL_OR_NONE
        self.tell(lead.RegionFailed())
        self._forget()
        newest = self.store.newest
        manifest = self.store.recover()
        return self.snapshots.attempts, "" if manifest.number == newest else lead.NEWEST_DAMAGED

    def expect(self, names: Collection[str], incarnation: int) -> None:
        """These processes begin anew, in this incarnation."""
        self._are_there = False
        for name in names:
            self._link.expect(name, incarnation)

    def _forget(self) -> None:
        """What was to be published, and to be committed, is not any more: another attempt takes its place, and a recovery commits."""
        self.recoveries += 1
        for number in [*self._publishing, *self._committing]:
            self._processes.ready.discard(("publish", number))
            self._processes.ready.discard(("commit", number))
        self._publishing.clear()
        self._committing.clear()

    # -- replicas come and go ------------------------------------------------------------------------
    def lay_out(self, plan: Plan) -> None:
        """These are the replicas from now on."""
        self.plan = plan
        self._are_there = False
        self.leader.lay_out(names_of(plan), starts_of(plan))

    def part(self, plan: Plan, left: Mapping[str, Left]) -> None:
        """Replicas have retired; what their sink writers had staged goes into the next snapshot, which is without them."""
        for name, given in left.items():
            at = ReplicaId.from_plane_name(name)
            self._retired += 1
            barrier = Barrier(-self._retired, self.snapshots.published + 1, 0)
            where = (self.store.store, plan.stage(at.stage), at.replica, self.incarnation, barrier)
            self.leader.leave_behind(write_staged(*where, given.staged.values()))
        self.lay_out(plan)


__all__ = ["EVENTS", "LocalSnapshots"]
