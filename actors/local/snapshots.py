"""Snapshots and recovery in the local runtime: the same cores as on Ray, joined by queues whose order the seed draws.

Writing a part, acknowledging it, publishing, and letting the sinks publish are events of their own, so that a crash can come between any
two of them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from rayad.actors.lead.layout_steps import layout_notes
from rayad.actors.replica.graph_shape import Channel, edge_names
from rayad.actors.replica.part_files import dumped, write_rest, write_staged, write_state
from rayad.actors.replica.participant import Capture, MutableParticipant
from rayad.actors.replica.rest import freeze
from rayad.actors.replica.upstream import Region
from rayad.actors.store.job_store import JobStore, Superseded
from rayad.dataflow.graph import NodeKind
from rayad.progress import ProtocolError, SnapshotError
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.coordination import TAKEN_MAX, MutableSnapshots, PartReport, SnapshotStatistics
from rayad.snapshots.store import Manifest, ReplicaPart

if TYPE_CHECKING:
    from rayad.actors.local.local_job import LocalJob

Where = tuple[int, int]
Pieces = list[bytes | memoryview]
PHASES = ("steady", "aligning", "logging", "writing", "publishing", "committing")


class LocalSnapshots:
    """What a :class:`LocalJob` with a store has besides.

    Args:
        job: the job.
        store: its store.
    """

    def __init__(self, job: LocalJob, store: JobStore) -> None:
        self.job = job
        self.store = store
        self.incarnation = 1
        self.recoveries = 0
        self.failures = 0
        self.taken: deque[SnapshotStatistics] = deque(maxlen=TAKEN_MAX)
        """In all incarnations, the newest last."""
        self.participants: dict[Where, MutableParticipant] = {}
        self.writing: dict[Where, deque[tuple[Capture, Pieces | None]]] = {}
        self.reports: deque[PartReport | tuple[int, str]] = deque()
        self.committing: Manifest | None = None
        self.forgetting: dict[Where, int] = {}
        """Replicas that are being told that an attempt was given up."""
        self._overtaken: list[tuple[str, int, bytes]] = []
        self._edge_names = edge_names(job.plan)
        self._inputs: dict[int, dict[str, int]] = {}  # what snapshots that may still be gone on from have consumed of live inputs
        self.begun = store.begin()
        self.snapshots = self._new_bookkeeping(self.begun)

    def _new_bookkeeping(self, manifest: Manifest, first_attempt: int = 1) -> MutableSnapshots:
        job, config = self.job, self.store.config.snapshots
        names = [(stage.name, replica) for stage in job.plan.stages for replica in range(stage.parallelism)]
        finally_published = [sink.key for sink in job.plan.sinks if not getattr(sink.sink, "commits", False)]
        numbers = self.store.store.numbers()
        return MutableSnapshots(
            names,
            interval_s=config.interval_s,
            timeout_s=config.timeout_s,
            published=numbers[-1] if numbers else 0,
            first_attempt=first_attempt,
            finally_published=finally_published,
            staged=manifest.staged,
            now_s=job.now_s(),
        )

    def participant(self, at: Where) -> MutableParticipant:
        """The one of a replica; made when the first barrier comes."""
        found = self.participants.get(at)
        if found is None:
            job = self.job

            def send_out() -> None:
                job._move_out(at)

            def send_barrier(edge: int, replica: int, barrier: Barrier) -> None:
                overtaken = self._put_barrier((edge, at[1], replica), barrier)
                self._overtaken.extend((self._edge_names[edge], replica, data) for data in overtaken)

            found = self.participants[at] = MutableParticipant(
                job.plan,
                job.plan.stage(at[0]),
                job.cores[at],
                send_out=send_out,
                send_barrier=send_barrier,
                captured=lambda capture: self._captured(at, capture),
                completed=lambda capture: self._completed(at, capture),
                given_up=lambda number: self._given_up(at, number),
            )
        return found

    # -- the coordinator's part --------------------------------------------------------------------
    @property
    def phase(self) -> str:
        """Where the pending snapshot stands, the furthest of all replicas; for faults that shall hit a phase."""
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

    def look_at_clock(self) -> None:
        """Begin or give up snapshots by time."""
        now_s = self.job.now_s()
        self.snapshots.on_time(now_s)
        if self.snapshots.expired(now_s):
            self.give_up(f"it took longer than {self.snapshots.timeout_s} s")
        elif self.snapshots.due(now_s) and self.committing is None and not self._is_rescaling():
            self.begin()

    def begin(self, kind: str = "snapshot", *, unaligned: bool | None = None) -> Barrier:
        """Start an attempt at all replicas without inputs."""
        if unaligned is None:
            unaligned = self.store.config.snapshots.alignment_timeout_s == 0
        barrier = self.snapshots.begin(self.job.now_s(), kind=kind, unaligned=unaligned)
        for stage in self.job.plan.stages:
            if not stage.inputs:
                for replica in range(stage.parallelism):
                    self.job._ready.add(("begin", (stage.id, replica)))
        return barrier

    def give_up(self, why: str) -> None:
        """End the pending attempt without a snapshot."""
        pending = self.snapshots.pending
        if pending is not None:
            self.snapshots.on_failed(pending.number, why)
            for at in self.job.cores:
                self.forgetting[at] = pending.number
                self.job._ready.add(("forget", at))
            limit = self.store.config.snapshots.failures_max
            if limit is not None and self.snapshots.given_up_in_a_row >= limit:
                raise SnapshotError(f"{limit} attempts at a snapshot in a row were given up, the last because {why}")

    def perform(self, kind: str, at: Any) -> None:
        """One event of a snapshot."""
        ready = self.job._ready
        if kind == "begin":
            ready.discard((kind, at))
            pending = self.snapshots.pending
            if pending is not None:
                self.participant(at).begin(pending)
        elif kind == "overtake":
            self._overtake(at)
        elif kind == "impatient":
            ready.discard((kind, at))
            self.participant(at).turn_unaligned()
            self.job._unblock(at)
        elif kind == "forget":
            ready.discard((kind, at))
            self.participant(at).give_up(self.forgetting.pop(at))
            self.job._unblock(at)
        elif kind == "write":
            self._write(at)
        elif kind == "acknowledge":
            self._acknowledge()
        elif kind == "publish":
            ready.discard((kind, at))
            if self.snapshots.is_complete:
                try:
                    self._publish()
                except Superseded:
                    raise
                except SnapshotError as error:
                    self.give_up(str(error))
        else:
            ready.discard((kind, at))
            self._commit()

    def _acknowledge(self) -> None:
        report = self.reports.popleft()
        if not self.reports:
            self.job._ready.discard(("acknowledge", None))
        if isinstance(report, PartReport):
            self.snapshots.on_report(report)
            if self.snapshots.is_complete:
                self.job._ready.add(("publish", None))
        else:
            pending = self.snapshots.pending
            if pending is not None and pending.number == report[0]:
                self.give_up(report[1])

    def _publish(self) -> Manifest:
        notes = {"layout": layout_notes(self.job.plan, self.job.asked)}
        manifest = self.store.publish(self.snapshots, self.incarnation, notes)
        self.store.note(manifest)
        self.taken.append(self.snapshots.on_published(self.job.now_s()))
        self.committing = manifest
        self.job._ready.add(("commit", None))
        self._inputs[manifest.number] = manifest.notes["inputs"]
        return manifest

    def _commit(self) -> None:
        manifest, self.committing = self.committing, None
        if manifest is not None:
            self.store.let_sinks_publish(manifest)
            self._retain()

    def _retain(self) -> None:
        if not self.store.retain():
            return
        kept = [number for number in self.store.store.numbers() if number >= self.begun.number]
        kept = kept[-self.store.config.snapshots.keep :]  # a savepoint may be much older
        self._inputs = {number: inputs for number, inputs in self._inputs.items() if number >= kept[0]}
        if all(number in self._inputs for number in kept):  # one that is void may have had more than the one before it
            for name, stage in self.job.plan.inputs.items():  # what all have need not be kept for replay
                self.job._input_log[stage, 0].trim(min(self._inputs[number].get(name, 0) for number in kept))

    # -- the replicas' part ------------------------------------------------------------------------
    def on_barrier(self, at: Where, channel: Channel, barrier: Barrier) -> None:
        """A barrier is next on a channel."""
        participant = self.participant(at)
        participant.on_barrier(channel, barrier)
        self._after_barrier(at, participant)

    def _put_barrier(self, channel: tuple[int, int, int], barrier: Barrier) -> list[bytes]:
        """Send a barrier; gives the batches that it overtakes at the sender, where they wait for credits: how many, the seed says."""
        job = self.job
        waiting = job.channels.get(channel)
        if barrier.unaligned:
            job._ready.add(("overtake", channel))
        if not barrier.unaligned or not waiting or job._edges[channel[0]].is_feedback:
            job._put(channel, None, barrier)
            return []
        items = list(waiting)
        behind_older = max((i + 1 for i, (time, _) in enumerate(items) if time is None), default=0)
        place = job._random.randint(behind_older, len(items))
        waiting.insert(place, (None, barrier))
        return [freeze(time, batch) for time, batch in items[place:] if time is not None]

    def _after_barrier(self, at: Where, participant: MutableParticipant) -> None:
        if not participant.alignment.is_aligning:
            self.job._ready.discard(("impatient", at))
            self.job._unblock(at)
        elif self.store.config.snapshots.alignment_timeout_s is not None:
            self.job._ready.add(("impatient", at))

    def _overtake(self, channel: tuple[int, int, int]) -> None:
        """An unaligned barrier arrives before what is ahead of it on its channel has been consumed."""
        job = self.job
        job._ready.discard(("overtake", channel))
        waiting = job.channels[channel]
        place = next((i for i, (_, mark) in enumerate(waiting) if isinstance(mark, Barrier) and mark.unaligned), None)
        if place is None or any(time is None for time, _ in list(waiting)[:place]):
            return  # it has been consumed in turn, or an older barrier is ahead of it, or the marker of a change of layout
        at = (job._edges[channel[0]].target, channel[2])
        ahead = list(waiting)[:place]
        barrier = waiting[place][1]
        del waiting[place]
        participant = self.participant(at)
        participant.on_barrier((channel[0], channel[1]), barrier, [freeze(time, batch) for time, batch in ahead if time is not None])
        self._after_barrier(at, participant)
        if not waiting:
            job._ready.discard(("batch", channel))

    def _captured(self, at: Where, capture: Capture) -> None:
        capture.rest.outbox, self._overtaken = self._overtaken, []
        state = None if capture.state is None else dumped(capture.state())
        self.writing.setdefault(at, deque()).append((capture, state))

    def _completed(self, at: Where, capture: Capture) -> None:
        self.job._ready.add(("write", at))

    def _given_up(self, at: Where, number: int) -> None:
        waiting = self.writing.get(at)
        if waiting:
            self.writing[at] = deque(entry for entry in waiting if entry[0].barrier.number != number)
            if not self.writing[at]:
                self.job._ready.discard(("write", at))

    def _write(self, at: Where) -> None:
        waiting = self.writing[at]
        capture, state = waiting.popleft()
        if not waiting or not waiting[0][0].is_complete:  # the log of the next one still grows
            self.job._ready.discard(("write", at))
        self.reports.append(self._written(at, capture, state))
        self.job._ready.add(("acknowledge", None))

    def _written(self, at: Where, capture: Capture, state: Pieces | None) -> PartReport | tuple[int, str]:
        stage, replica = self.job.plan.stage(at[0]), at[1]
        where = (self.store.store, stage, replica, self.incarnation, capture.barrier)
        chain = self.participant(at).chain
        try:
            file = write_state(*where, state, incremental=capture.is_increment) if state is not None else None
            rest = write_rest(*where, capture.rest)
            staged = write_staged(*where, capture.staged)
        except SnapshotError as error:
            return capture.barrier.number, str(error)
        files = chain.wrote(capture.barrier, file, incremental=capture.is_increment)
        part = ReplicaPart(stage.name, replica, files, rest)
        written = rest.size + (file.size if file is not None else 0) + sum(one.file.size for one in staged)
        frames = capture.rest.input_frames if stage.kind is NodeKind.INPUT else None
        return PartReport(
            capture.barrier.number, part, staged, written_bytes=written, incremental=capture.is_increment, input_frames=frames
        )

    # -- ends --------------------------------------------------------------------------------------
    def finish(self) -> dict[int, Any]:
        """The dataflow is complete: the last part of every replica, its manifest, and the sinks' receipts."""
        manifest = self.store.manifest
        if manifest is None or manifest.kind != "final" or manifest.run != self.store.run or manifest is self.begun:
            if self.committing is not None:
                self._commit()
            pending = self.snapshots.pending
            if pending is not None:
                self.snapshots.on_failed(pending.number, "the job is complete")
            barrier = self.snapshots.begin(self.job.now_s(), kind="final")
            self.writing.clear()
            for at in self.job.cores:
                self.participant(at).finish(barrier)
                capture, state = self.writing[at].popleft()
                report = self._written(at, capture, state)
                if not isinstance(report, PartReport):
                    raise SnapshotError(f"the results of job {self.job.name!r} could not be stored: {report[1]}")
                self.snapshots.on_report(report)
            manifest = self._publish()
            self.committing = None
        receipts = self.store.publish_finally(manifest)
        self.store.retain()
        return receipts

    def recover(self) -> None:
        """All replicas are gone: begin a new incarnation from the newest whole snapshot of this run."""
        attempts = self.snapshots.attempts
        self.snapshots.on_time(self.job.now_s())
        self.committing = None
        self._overtaken = []
        self.forgetting.clear()
        self.incarnation += 1
        self.recoveries += 1
        self.participants.clear()
        self.writing.clear()
        self.reports.clear()
        estimator = self.snapshots.estimator
        manifest = self.store.recover()
        self._inputs[manifest.number] = manifest.notes.get("inputs", {})
        self.snapshots = self._new_bookkeeping(manifest, attempts + 1)
        self.snapshots.estimator = estimator

    def recover_upstream(self, region: Region) -> Manifest | None:
        """The replicas of a region are gone: what they go on from. The others, and the bookkeeping, live on.

        None when the newest snapshot is damaged: those that live have gone on from it, so all must begin anew.
        """
        self.snapshots.on_time(self.job.now_s())
        self.give_up("a failure")
        self.committing = None
        self.incarnation += 1
        self.recoveries += 1
        self.writing.clear()
        self.reports.clear()
        for at in [at for at in self.participants if at[0] in region.stages]:
            del self.participants[at]
        newest = self.store.store.numbers()[-1]
        manifest = self.store.recover()
        return manifest if manifest.number == newest else None

    def _is_rescaling(self) -> bool:
        return self.job.rescaling is not None and not self.job.rescaling.is_done

    def savepoint(self) -> str:
        """Run until a snapshot that stays has been taken; gives its path."""
        while self.snapshots.pending is not None or self.committing is not None or self._is_rescaling():
            if not self.job.step():
                raise ProtocolError("the pending snapshot cannot complete")
        barrier = self.begin("savepoint")
        while self.snapshots.base < barrier.number or self.committing is not None:
            pending = self.snapshots.pending
            if pending != barrier and self.snapshots.base < barrier.number:
                raise SnapshotError(f"the savepoint was given up: {self.snapshots.why_given_up}")
            if not self.job.step():
                raise ProtocolError("the savepoint cannot complete: nothing can move")
        return self.store.path_of(barrier.slot)
