"""Snapshots and recovery in the local runtime: the leader and the cores of the Ray runtime, joined by queues whose order the seed draws.

Writing a part, acknowledging it, publishing, and letting the sinks publish are events of their own, so that a crash can come between any
two of them. :class:`SnapshotLeader` decides; here its effects become events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, assert_never

from rayad.actors.lead import snapshot_leader as lead
from rayad.actors.lead.layouts import layout_notes, names_of, starts_of
from rayad.actors.local.network import Network, Where
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.graph_shape import Channel, edge_names
from rayad.actors.replica.part_files import dumped, write_rest, write_staged, write_state
from rayad.actors.replica.participant import Capture, Captured, Completed, Effect, GivenUp, Participant, SendBarrier, SendOut
from rayad.actors.replica.rest import freeze, least_epoch
from rayad.actors.replica.upstream import Region
from rayad.actors.status.journal import Journal
from rayad.actors.store.job_store import JobStore
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.progress import SnapshotError
from rayad.snapshots.attempts import PartReport, SnapshotAttempts, SnapshotStatistics
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import Manifest, ReplicaPart, StagedPart
from rayad.snapshots.store import Superseded

Pieces = list[bytes | memoryview]


class LocalSnapshots:
    """The snapshots of a local job that has a store.

    Args:
        name: of the job.
        network: its replicas.
        store: its store.
        asked: the replicas that it was asked for, by vertex.
        now_s: the clock.
    """

    def __init__(self, name: str, network: Network, store: JobStore, asked: Mapping[str, int], now_s: Callable[[], float]) -> None:
        self.network = network
        self.store = store
        self._asked = asked
        self._now_s = now_s
        self.incarnation = 1
        self.recoveries = 0
        self.failures = 0
        self.on_published: Callable[[Manifest], None] = lambda manifest: None
        """Called when a snapshot is in the store."""
        self.journal = Journal(now_s)
        self.participants: dict[Where, Participant] = {}
        self.writing: dict[Where, deque[tuple[Capture, Pieces | None]]] = {}
        self.reports: deque[PartReport | tuple[int, str]] = deque()
        self.forgetting: dict[Where, int] = {}
        """Replicas that are being told that an attempt was given up."""
        self._beginning: dict[Where, Barrier] = {}
        self._tickets = count()
        self._answers: dict[int, int | str] = {}  # of savepoints: their numbers, or why there is none
        self._edge_names = edge_names(network.plan)
        self._stages = {stage.name: stage.id for stage in network.plan.stages}
        self.begun = store.begin()
        self.leader = lead.SnapshotLeader(
            name,
            store.config.snapshots,
            finally_published=[sink.key for sink in network.plan.sinks if not getattr(sink.sink, "commits", False)],
            replicas=names_of(network.plan),
            starts=starts_of(network.plan),
            begun=self.begun,
            published=self.store.newest,
            now_s=now_s(),
        )

    @property
    def snapshots(self) -> SnapshotAttempts:
        """The bookkeeping of the attempt under way."""
        return self.leader.snapshots

    @property
    def committing(self) -> Manifest | None:
        """What the sinks are to publish."""
        return self.leader.committing

    @property
    def taken(self) -> deque[SnapshotStatistics]:
        """In all incarnations, the newest last."""
        return self.leader.taken

    def participant(self, at: Where) -> Participant:
        """The one of a replica; made when the first barrier comes."""
        found = self.participants.get(at)
        if found is None:
            plan, disk = self.network.plan, partial(SpillFile, self.network.config.spill_directory)
            found = self.participants[at] = Participant(plan, plan.stage(at[0]), self.network.cores[at], disk=disk)
        return found

    def carry_out(self, at: Where, effects: Iterable[Effect]) -> None:
        """Do what the participant of a replica asks for."""
        for effect in effects:
            match effect:
                case SendOut():
                    self.network.move_out(at)
                case SendBarrier(edge, replica, barrier):
                    self.network.send_mark(at, edge, replica, barrier, overtake=barrier.unaligned)
                case Captured(capture):
                    self._captured(at, capture)
                case Completed():
                    self.network.ready.add(("write", at))
                case GivenUp(number):
                    self._given_up(at, number)
                case _:
                    assert_never(effect)

    # -- the coordinator's part --------------------------------------------------------------------
    @property
    def phase(self) -> str:
        """The phase of the pending snapshot, of the replica that is furthest; for faults that are to strike in a phase."""
        if self.committing is not None:
            return "committing"
        if self.snapshots.pending is None:
            return "steady"
        if self.snapshots.is_complete:
            return "publishing"
        if any(self.writing.values()) or self.reports:
            return "writing"
        if any(participant.capture is not None for participant in self.participants.values()):
            return "logging"
        return "aligning"

    def tell(self, event: lead.Event) -> None:
        """Something has happened: what follows is to be done. Raises SnapshotError when the job cannot go on."""
        self._act(self.leader.handle(event, self._now_s()))

    def _act(self, effects: list[lead.Effect]) -> None:
        ready = self.network.ready
        failure = ""
        for effect in effects:
            self.journal.on_effect(effect)
            match effect:
                case lead.Begin(barrier, replicas):
                    for name, replica in replicas:
                        at = (self._stages[name], replica)
                        self._beginning[at] = barrier
                        ready.add(("begin", at))
                case lead.GiveUp(number, _, replicas):
                    for name, replica in replicas:
                        at = (self._stages[name], replica)
                        self.forgetting[at] = number
                        ready.add(("forget", at))
                case lead.Publish():
                    ready.add(("publish", None))
                case lead.Commit():
                    ready.add(("commit", None))
                case lead.SavepointTaken(ticket, number):
                    self._answers[ticket] = number
                case lead.SavepointRefused(ticket, why):
                    self._answers[ticket] = why
                case lead.Fail(why):
                    failure = why
        if failure:
            raise SnapshotError(failure)

    def look_at_clock(self) -> None:
        """Begin or give up snapshots by time."""
        self.tell(lead.Tick())

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

    def perform(self, kind: str, at: Any) -> None:
        """One event of a snapshot."""
        ready = self.network.ready
        if kind == "begin":
            ready.discard((kind, at))
            barrier = self._beginning.pop(at, None)
            if barrier is None:
                return  # of an attempt that a failure has ended
            participant = self.participant(at)
            self.carry_out(at, participant.finish(barrier) if barrier.final else participant.begin(barrier))
        elif kind == "overtake":
            self._overtake(at)
        elif kind == "impatient":
            ready.discard((kind, at))
            self.carry_out(at, self.participant(at).turn_unaligned())
            self.network.unblock(at)
        elif kind == "forget":
            ready.discard((kind, at))
            self.carry_out(at, self.participant(at).give_up(self.forgetting.pop(at)))
            self.network.unblock(at)
        elif kind == "write":
            self._write(at)
        elif kind == "acknowledge":
            self._acknowledge()
        elif kind == "publish":
            ready.discard((kind, at))
            if self.snapshots.is_complete:
                self._publish()
        else:
            ready.discard((kind, at))
            self._commit()

    def _acknowledge(self) -> None:
        report = self.reports.popleft()
        if not self.reports:
            self.network.ready.discard(("acknowledge", None))
        self.tell(lead.PartWritten(report) if isinstance(report, PartReport) else lead.PartFailed(*report))

    def _publish(self) -> None:
        pending = self.snapshots.pending
        assert pending is not None
        notes = {"layout": layout_notes(self.network.plan, self._asked)}
        try:
            manifest = self.store.publish(self.snapshots, self.incarnation, notes)
        except Superseded:
            raise
        except SnapshotError as error:
            self.tell(lead.NotPublished(pending.number, str(error)))
            return
        self.store.note(manifest)
        self.on_published(manifest)
        self.tell(lead.Published(pending.number, manifest))
        if self.leader.newest is not None:
            self.journal.on_snapshot(self.leader.newest)

    def _commit(self) -> None:
        manifest = self.committing
        if manifest is None:
            return
        self.store.let_sinks_publish(manifest)
        self.tell(lead.Committed(manifest, self.store.retain()))
        for name, stage in self.network.plan.inputs.items():  # what all kept snapshots have need not be kept for replay
            if name in self.leader.saved_inputs:
                self.network.input_log[stage, 0].trim(self.leader.saved_inputs[name])

    # -- the replicas' part ------------------------------------------------------------------------
    def on_barrier(self, at: Where, channel: Channel, barrier: Barrier) -> None:
        """A barrier is next on a channel."""
        participant = self.participant(at)
        self.carry_out(at, participant.on_barrier(channel, barrier))
        self._after_barrier(at, participant)

    def _after_barrier(self, at: Where, participant: Participant) -> None:
        if not participant.alignment.is_aligning:
            self.network.ready.discard(("impatient", at))
            self.network.unblock(at)
        elif self.store.config.snapshots.alignment_timeout_s is not None:
            self.network.ready.add(("impatient", at))

    def _overtake(self, channel: tuple[int, int, int]) -> None:
        """An unaligned barrier arrives before what is ahead of it on its channel has been consumed."""
        network = self.network
        network.ready.discard(("overtake", channel))
        waiting = network.channels[channel]
        place = next((i for i, (_, mark, _) in enumerate(waiting) if isinstance(mark, Barrier) and mark.unaligned), None)
        if place is None or any(time is None for time, _, _ in list(waiting)[:place]):
            return  # it has been consumed in turn, or an older barrier is ahead of it, or the marker of a change of layout
        at = (network.edges[channel[0]].target, channel[2])
        ahead = list(waiting)[:place]
        barrier = waiting[place][1]
        del waiting[place]
        participant = self.participant(at)
        overtaken = [freeze(time, batch) for time, batch, _ in ahead if time is not None]
        self.carry_out(at, participant.on_barrier((channel[0], channel[1]), barrier, overtaken))
        self._after_barrier(at, participant)
        if not waiting:
            network.ready.discard(("batch", channel))

    def _captured(self, at: Where, capture: Capture) -> None:
        if capture.barrier.unaligned:
            waiting = self.network.ends[at].sender.waiting_batches()
            capture.rest.outbox = [(self._edge_names[edge], replica, data) for edge, replica, data in waiting]
        state = None if capture.state is None else dumped(capture.state())
        self.writing.setdefault(at, deque()).append((capture, state))

    def _given_up(self, at: Where, number: int) -> None:
        waiting = self.writing.get(at)
        if waiting:
            self.writing[at] = deque(entry for entry in waiting if entry[0].barrier.number != number)
            if not self.writing[at]:
                self.network.ready.discard(("write", at))

    def _write(self, at: Where) -> None:
        waiting = self.writing[at]
        capture, state = waiting.popleft()
        if not waiting or not waiting[0][0].is_complete:  # the log of the next one still grows
            self.network.ready.discard(("write", at))
        self.reports.append(self._written(at, capture, state))
        self.network.ready.add(("acknowledge", None))

    def _written(self, at: Where, capture: Capture, state: Pieces | None) -> PartReport | tuple[int, str]:
        stage, replica = self.network.plan.stage(at[0]), at[1]
        where = (self.store.store, stage, replica, self.incarnation, capture.barrier)
        chain = self.participant(at).chain
        try:
            file = write_state(*where, state, incremental=capture.is_increment) if state is not None else None
            rest = write_rest(*where, capture.rest)
            staged = write_staged(*where, capture.staged)
        except SnapshotError as error:
            return capture.barrier.number, str(error)
        files = chain.wrote(capture.barrier, file, incremental=capture.is_increment)
        part = ReplicaPart(stage.name, replica, files, rest, least_epoch(capture.rest.plain()))
        written = rest.size + (file.size if file is not None else 0) + sum(one.file.size for one in staged)
        cut = capture.rest
        return PartReport(
            capture.barrier.number,
            part,
            staged,
            written_bytes=written,
            incremental=capture.is_increment,
            input_frames=cut.input_frames if stage.kind is NodeKind.INPUT else None,
            input_state=cut.input_state,
        )

    # -- ends --------------------------------------------------------------------------------------
    def finish(self) -> None:
        """The dataflow is complete: its last snapshot begins. If the run that is resumed had completed, its last snapshot serves."""
        manifest = self.store.manifest
        if manifest is self.begun and manifest.kind == "final":
            self.on_published(manifest)
        else:
            self.tell(lead.Finished())

    def publish_finally(self, manifest: Manifest) -> dict[int, Any]:
        """Let all sinks publish; gives their receipts."""
        receipts = self.store.publish_finally(manifest)
        self.store.retain()
        return receipts

    def recover(self, incarnation: int) -> None:
        """All replicas are gone: begin a new incarnation from the newest whole snapshot of this run."""
        self._forget(incarnation)
        self.participants.clear()
        self.forgetting.clear()
        self._act(self.leader.begin_anew(self.store.recover(), self.store.newest, self._now_s()))

    def recover_upstream(self, region: Region, incarnation: int) -> tuple[int, str]:
        """The replicas of a region are gone. The others, and the bookkeeping, live on. Gives the void attempt (0: there is none), and why
        all must begin anew."""
        if not self.leader.may_live_on:
            return 0, lead.ALL_OR_NONE
        pending = self.snapshots.pending
        self.tell(lead.RegionFailed())
        self._forget(incarnation, region.stages)
        for at in [at for at in self.participants if at[0] in region.stages]:
            del self.participants[at]
        newest = self.store.newest
        manifest = self.store.recover()
        return pending.number if pending is not None else 0, "" if manifest.number == newest else lead.NEWEST_DAMAGED

    def _forget(self, incarnation: int, stages: Collection[int] | None = None) -> None:
        """What was on its way to the coordinator or from it is lost. Replicas that live on keep what they are writing: while the store is
        away the recovery waits, and they take steps; what belongs to the void attempt they give up when they roll back."""
        self.incarnation = incarnation
        self.recoveries += 1
        for at in [at for at in self.writing if stages is None or at[0] in stages]:
            self.network.ready.discard(("write", at))
            del self.writing[at]
        self.network.ready.discard(("acknowledge", None))
        self.reports.clear()
        self._beginning.clear()

    def lay_out(self, plan: Plan) -> None:
        """These are the replicas from now on."""
        self.leader.lay_out(names_of(plan), starts_of(plan))

    def leave_behind(self, staged: tuple[StagedPart, ...]) -> None:
        """What a retired replica had staged goes into the next snapshot."""
        self.leader.leave_behind(staged)

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
