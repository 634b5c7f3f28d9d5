"""The snapshots of one replica: barriers in, captures taken and written, parts reported to the coordinator.

Everything runs in the worker's loop except the writing, which a :class:`Writer` does beside it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from functools import partial
from typing import Any, assert_never

from rayad.actors.plane.batch_codec import batch_time
from rayad.actors.plane.protocol import COORDINATOR, Kind
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.captures import Capture, Written
from rayad.actors.replica.graph_shape import edge_names
from rayad.actors.replica.input.source_parts import Resumable
from rayad.actors.replica.participant import Captured, Completed, Effect, GivenUp, Participant, SendBarrier, SendOut
from rayad.actors.replica.parts.part_reading import Each, read_part
from rayad.actors.replica.rest import ResumedPart, least_epoch
from rayad.actors.worker.arrived import Entry
from rayad.actors.worker.payloads import frozen
from rayad.actors.worker.statistics import HostStatistics
from rayad.actors.worker.surroundings import Writer
from rayad.actors.worker.workplace import Workplace
from rayad.dataflow.logical_graph import NodeKind
from rayad.snapshots.attempts import PartReport
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import ReplicaPart
from rayad.snapshots.store import SnapshotStore


class HostSnapshots:
    """The snapshots of a replica that has a store.

    Args:
        place: what it shares with the other parts of the replica.
        statistics: the replica's statistics.
        store: where parts go.
        part: what the replica resumes from; None: it starts afresh.
        writer: writes its parts.
        each: reads the files of a part.
    """

    def __init__(
        self,
        place: Workplace,
        statistics: HostStatistics,
        store: SnapshotStore,
        part: Resumable | None,
        writer: Writer,
        each: Each = map,
    ) -> None:
        self.place = place
        self.writer = writer
        self._clock = place.clock
        self.statistics = statistics
        self.store = store
        self._each = each
        self.resumed = self.read(part)
        self.is_finished = False
        self._final: Barrier | None = None
        self._aligning_since_s: float | None = None
        self._records = 0
        self._sent_out_s = 0.0  # seconds of sending that are not part of a capture: it was due anyway
        plan = place.plan
        self._edge_ids = {name: edge for edge, name in edge_names(plan).items()}
        self._edge_names = edge_names(plan)
        self._patience_s = place.config.snapshots.alignment_timeout_s
        self._took: dict[int, tuple[float, float]] = {}
        self.participant: Participant | None = None

    def read(self, part: Resumable | None) -> ResumedPart | None:
        """A part of the replica, read and verified; None for None. Raises SnapshotError that names the file."""
        return read_part(self.store, part, self._each) if part is not None else None

    def attach(self) -> None:
        """The core has been started: from now on there can be snapshots of it."""
        place = self.place
        self.participant = Participant(place.plan, place.stage, place.core, disk=partial(SpillFile, place.config.spill_directory))

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do what the participant asks for."""
        for effect in effects:
            match effect:
                case SendOut():
                    self._send_out()
                case SendBarrier(edge, replica, barrier):
                    self.place.ends.send_mark(edge, replica, barrier.pack(), overtake=barrier.unaligned)
                case Captured(capture):
                    self._captured(capture)
                case Completed(capture):
                    self.writer.complete(capture)
                case GivenUp(number):
                    self._give_up(number)
                case _:
                    assert_never(effect)

    def _give_up(self, number: int) -> None:
        self._took.pop(number, None)  # it will not be reported
        self.writer.give_up(number)
        self._unblock()  # the next attempt may have begun here, and wait for what this one has blocked

    def _unblock(self) -> None:
        """What came behind barriers is looked at again, in its order of arrival."""
        arrived = self.place.arrived
        arrived.feedback.unblock()
        arrived.regular.extendleft(reversed(arrived.held))
        arrived.held.clear()

    def _send_out(self) -> None:
        began_s = self._clock.perf_counter()
        self.place.flush_out()
        self._sent_out_s = self._clock.perf_counter() - began_s

    def refill(self) -> None:
        """Restore what was in flight at the cut: it is counted again, and is consumed before everything else."""
        if self.resumed is None:
            return
        place = self.place
        for name, source, data in self.resumed.rest["log"]:
            edge = self._edge_ids[name]
            place.core.count_waiting(edge, batch_time(data))
            if place.edges[edge].is_feedback:
                place.arrived.feedback.push_encoded(edge, source, data)
            else:
                self.place.arrived.restored.append((edge, data))
        for name, _, data in self.resumed.rest["outbox"]:
            place.core.count_waiting(self._edge_ids[name], batch_time(data))

    def resend(self) -> None:
        """Send what waited for credit at the cut; all peers are connected."""
        if self.resumed is None:
            return
        place = self.place
        for name, target, data in self.resumed.rest["outbox"]:
            edge = self._edge_ids[name]
            place.sender.send(edge, target, place.carrier.revive(edge, target, data))
        self.resumed = None

    # -- barriers ----------------------------------------------------------------------------------
    @property
    def is_pending(self) -> bool:
        """Whether batches must be checked before they are consumed."""
        assert self.participant is not None
        return self.participant.is_pending

    def on_frame(self, kind: int, payload: Any) -> None:
        """A frame from the coordinator."""
        assert self.participant is not None
        if kind == Kind.BEGIN:
            barrier = Barrier.unpack(payload)
            if barrier.final:
                self._final = barrier
                self.finish()
            else:
                began_s = self._clock.perf_counter()
                self.carry_out(self.participant.begin(barrier))
                self._note(barrier, began_s)
        else:
            number = int.from_bytes(payload, "little")
            self.carry_out(self.participant.give_up(number))  # also when it has not begun here: its barriers are then ignored
            self.release()

    def finish(self) -> None:
        """The job is complete, and the coordinator has begun the last snapshot."""
        if self._final is not None and self.place.worker.is_done:
            assert self.participant is not None
            began_s = self._clock.perf_counter()
            self.carry_out(self.participant.finish(self._final))
            self._note(self._final, began_s)
            self._final = None

    def take_mark(self, edge: int, source: int, payload: Any) -> None:
        """A barrier has come on a channel."""
        arrived = self.place.arrived
        if self.place.edges[edge].is_feedback:
            arrived.feedback.push_mark(edge, source, bytes(payload))
            return
        barrier = Barrier.unpack(payload)
        if barrier.unaligned and not arrived.restored:
            self._overtake(edge, source, barrier)
            return
        arrived.regular.append((edge, source, barrier))
        if self._aligning_since_s is None:
            self._aligning_since_s = self._clock.monotonic()

    def _overtake(self, edge: int, source: int, barrier: Barrier) -> None:
        """Let a barrier overtake what is ahead of it on its channel; older barriers there belong to attempts that were given up."""
        ahead: list[Any] = []
        for queue in (self.place.arrived.held, self.place.arrived.regular):
            kept: list[Entry] = []
            is_behind = False
            for entry in queue:
                is_mine = entry[0] == edge and entry[1] == source and not is_behind
                if is_mine and isinstance(entry[2], Barrier):
                    is_behind = entry[2].number == barrier.number
                    continue
                if is_mine:
                    ahead.append(entry[2])
                kept.append(entry)
            queue.clear()
            queue.extend(kept)
        self.on_barrier(edge, source, barrier, ahead)

    def on_barrier(self, edge: int, source: int, barrier: Barrier, ahead: list[Any] | None = None) -> None:
        """A barrier is next on its channel, or has overtaken what is ``ahead`` of it."""
        participant = self.participant
        assert participant is not None
        began_s = self._clock.perf_counter()
        self.carry_out(participant.on_barrier((edge, source), barrier, [frozen(payload) for payload in ahead or ()]))
        if participant.alignment.is_aligning:
            if self._aligning_since_s is None:
                self._aligning_since_s = self._clock.monotonic()
        else:
            self._note(barrier, began_s)
            self.release()

    def release(self) -> None:
        """The capture is done: what came behind the barriers is consumed next, in its order of arrival."""
        assert self.participant is not None
        if self.participant.alignment.is_aligning:
            return
        self._unblock()

    def takes(self, edge: int, source: int, payload: Any) -> bool:
        """Check a regular batch or barrier before it is consumed; True when it is not to be consumed now."""
        participant = self.participant
        assert participant is not None
        channel = (edge, source)
        if participant.blocks(channel):
            self.place.arrived.held.append((edge, source, payload))
            return True
        if isinstance(payload, Barrier):
            self.on_barrier(edge, source, payload)
            return True
        if participant.logs(channel):
            participant.log(channel, frozen(payload))
        return False

    def takes_feedback(self, edge: int, source: int, time: Any, batch: Any) -> bool:
        """Whether the snapshot takes what came round a loop: a barrier, or a batch of a blocked channel.

        A blocked batch waits, on disk if need be, and so does what is behind it: no capture ever waits for a feedback.
        """
        participant = self.participant
        assert participant is not None
        channel = (edge, source)
        if participant.blocks(channel):
            self.place.arrived.feedback.block((edge, source, time, batch))
            return True
        if time is None:
            self.on_barrier(edge, source, Barrier.unpack(batch))
            return True
        if participant.logs(channel):
            participant.log_batch(channel, time, batch)
        return False

    def aligning(self) -> tuple[int | None, float, tuple[tuple[int, int], ...]]:
        """The snapshot whose barriers have come on some channels only, for how long, and the channels, (edge, replica), without."""
        since_s, participant = self._aligning_since_s, self.participant
        if since_s is None or participant is None or not participant.alignment.is_aligning:
            return None, 0.0, ()
        alignment = participant.alignment
        return alignment.number, self._clock.monotonic() - since_s, tuple(sorted(alignment.missing() & alignment.regular))

    # -- captures ----------------------------------------------------------------------------------
    @property
    def is_at_rest(self) -> bool:
        """Whether no snapshot is under way here."""
        is_idle = not self._took and self._aligning_since_s is None and not self.writer.done and self.resumed is None
        return is_idle and not self.is_pending and not self.place.arrived.held

    def tick(self) -> None:
        """Between two rounds: turn an alignment that takes too long unaligned, and report the parts that have been written."""
        if self._aligning_since_s is not None:
            self._look_at_patience()
        while self.writer.done:
            self._report(self.writer.done.popleft())

    def due_in_s(self) -> float | None:
        """Seconds until :meth:`tick` has something to do by itself."""
        if self._aligning_since_s is None or self._patience_s is None or self.place.arrived.restored:
            return None  # what was restored is consumed first
        return max(0.0, self._aligning_since_s + self._patience_s - self._clock.monotonic())

    def _look_at_patience(self) -> None:
        participant = self.participant
        assert participant is not None
        assert self._aligning_since_s is not None
        if self._patience_s is None or self.place.arrived.restored or self._clock.monotonic() - self._aligning_since_s < self._patience_s:
            return
        barriers = [entry for entry in self.place.arrived.regular if isinstance(entry[2], Barrier)]
        newest = max((entry[2].number for entry in barriers), default=0)
        for edge, source, barrier in barriers:
            if barrier.number == newest:
                self._overtake(edge, source, barrier.turned_unaligned())
        if participant.alignment.is_aligning and participant.barrier is not None:
            began_s = self._clock.perf_counter()
            self.carry_out(participant.turn_unaligned())
            self._note(participant.barrier, began_s)
            self.release()
        self._aligning_since_s = None

    def _captured(self, capture: Capture) -> None:
        place = self.place
        if capture.barrier.unaligned:
            waiting = place.sender.waiting_batches()
            capture.rest.outbox = [(self._edge_names[edge], target, data) for edge, target, data in waiting]
        vertex = place.core.vertex
        fresh, self._records = place.core.records_in - self._records, place.core.records_in
        self.writer.take_state(capture, records=fresh, inline=vertex is not None and vertex.checkpoint_inline)

    def _note(self, barrier: Barrier, began_s: float) -> None:
        if barrier.number not in self._took:
            since_s, self._aligning_since_s = self._aligning_since_s, None
            aligned_s = self._clock.monotonic() - since_s if since_s is not None else 0.0
            self._took[barrier.number] = (self._clock.perf_counter() - began_s - self._sent_out_s, aligned_s)
            self._sent_out_s = 0.0

    def _report(self, written: Written) -> None:
        capture, place = written.capture, self.place
        number = capture.barrier.number
        pause_s, aligned_s = self._took.pop(number, (0.0, 0.0))
        if written.why_failed:
            told = f"{number} {place.stage.name!r}[{place.replica}]: {written.why_failed}"
            place.link.send(COORDINATOR, Kind.PART_FAILED, place.stage.id, told.encode())
            return
        assert self.participant is not None
        assert written.rest is not None
        files = self.participant.chain.wrote(capture.barrier, written.state, incremental=capture.is_increment)
        if written.state is not None:
            kept = written.state.size + sum(file.size for file in written.runs)
            self.statistics.on_part(kept, is_increment=capture.is_increment)
        size = written.rest.size + written.state_bytes + sum(one.file.size for one in written.staged)
        report = PartReport(
            number,
            ReplicaPart(place.stage.name, place.replica, files, written.rest, least_epoch(capture.rest.plain()), written.runs),
            written.staged,
            pause_s=pause_s,
            cost_s=pause_s + written.cost_s,
            written_bytes=size,
            aligned_s=aligned_s,
            incremental=capture.is_increment,
            input_frames=capture.rest.input_frames if place.stage.kind is NodeKind.INPUT else None,
            input_state=capture.rest.input_state,
            passed_epoch=capture.rest.passed_epoch,
        )
        place.link.send(COORDINATOR, Kind.PART, place.stage.id, pickle.dumps(report))
        if capture.barrier.final:
            self.is_finished = True

    def close(self) -> None:
        """End the writer."""
        self.writer.close()
