"""One replica in its worker: what has come for it, its activations, its snapshots and changes of layout.

Batches of a loop come before new input, so that what is inside a loop stays bounded by what entered it. While a regular channel has no
credit left for what was already produced, no activation starts: so back-pressure reaches the sources. The worker runs its other replicas
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.actors.plane.credit_grants import FROM_DRIVER
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import (
    COORDINATOR,
    INPUT_FRAMES,
    NUMBER_BYTES,
    Kind,
    pack_report,
    pack_save,
    unpack_credit,
    unpack_pace,
    unpack_view,
)
from rayad.actors.replica.input.source_parts import Resumable
from rayad.actors.replica.reads.questions import Answer, Ask, Begins, Begun
from rayad.actors.replica.reads.tables import ReplicaTables
from rayad.actors.replica.recent import News, Recent
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.worker.looking import note_counts
from rayad.actors.worker.payloads import ENDED, Handed, bytes_of, credit_of, encoded, numbered, opened
from rayad.actors.worker.rescaling import MARK, HostRescale
from rayad.actors.worker.snapshots import HostSnapshots
from rayad.actors.worker.statistics import HostStatistics
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.workplace import Workplace, Worksite
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.plan import Plan
from rayad.progress import ProtocolError
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.store import SnapshotStore

_DATA, _VIEW = int(Kind.DATA), int(Kind.VIEW)
IDLE_SOURCE_S = 0.001
"""How soon a source that had nothing is asked again; doubles up to IDLE_SOURCE_MAX_S."""
IDLE_SOURCE_MAX_S = 0.02


class ReplicaHost:
    """Runs one replica.

    Args:
        worker: that holds it.
        plan, stage, replica, config: which one it is.
        around: the worker's surroundings.
        store: of snapshots; None: there are none.
        part: what it resumes from.
        isolated: see :class:`rayad.actors.replica.output.outputs.Outputs`.
        is_newcomer: it comes into a running job.
    """

    def __init__(
        self,
        worker: Worksite,
        plan: Plan,
        stage: int,
        replica: int,
        config: RunConfig,
        around: Surroundings,
        *,
        store: SnapshotStore | None = None,
        part: Resumable | None = None,
        isolated: Callable[[Element], Element | None] | None = None,
        is_newcomer: bool = False,
    ) -> None:
        self.place = place = Workplace(worker, plan, stage, replica, config, store, pid=around.pid, moment=around.moment, isolated=isolated)
        self.stage = stage
        self.name, self.core, self.report, self.arrived = place.name, place.core, place.report, place.arrived
        self._tables = ReplicaTables(self.core)
        self.statistics = HostStatistics(place)
        self.snapshots: HostSnapshots | None = None
        if store is not None:
            assert around.writer is not None
            self.snapshots = HostSnapshots(place, self.statistics, store, part, around.writer(place.stage, replica), around.each)
        self.rescale = HostRescale(place, self.snapshots)
        self.rescale.is_newcomer = is_newcomer
        self.is_registered = False
        """It has told the progress actor what it holds from the beginning."""
        self.is_going = False
        """The progress actor lets it run."""
        self._input_next = self._input_since = 0
        self._is_stopping = False
        self._idle_s = 0.0

    # -- life ----------------------------------------------------------------------------
    def start(self) -> None:
        """Build the vertex or open the source."""
        snapshots = self.snapshots
        self.core.start(snapshots.resumed if snapshots is not None else None, is_newcomer=self.rescale.is_newcomer)
        if snapshots is not None:
            snapshots.attach()
            snapshots.refill()
        self._input_next = self.core.input.frames

    def register(self) -> bytes:
        """All whom it exchanges frames with are there: what the progress actor is to know before the replica may run, see READY."""
        self.is_registered = True
        self.place.is_subscribed = self.core.wants_views
        return bytes([self.place.is_subscribed]) + pack_report(self.core.take_changes())

    def staged(self) -> dict[Any, Any]:
        """The job is complete: what each sink writer has staged, where there are no snapshots."""
        return self.core.stage_sinks() if self.snapshots is None else {}

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left for it to do."""
        return self.snapshots.is_finished if self.snapshots is not None else self.place.worker.is_done

    def close(self) -> None:
        """Free its resources."""
        if self.snapshots is not None:
            self.snapshots.close()
        self.place.close()

    # -- what comes ----------------------------------------------------------------------
    def take(self, kind: int, edge: int, replica: int, payload: Any) -> None:
        """Something has come on a channel from the replica at its other end: a batch, a mark, or credit."""
        if kind == _DATA:
            self.take_batch(edge, replica, payload)
        elif kind == Kind.CREDIT:
            self.place.sender.on_credit(edge, replica, *unpack_credit(payload))
        elif payload[:1] == MARK:
            self.rescale.take_mark(edge, replica, payload)
        elif self.snapshots is not None:
            self.snapshots.take_mark(edge, replica, payload)

    def take_batch(self, edge: int, source: int, payload: Any) -> None:
        """A batch has come from a replica of an edge's source: encoded, or handed over in the worker."""
        arrived = self.arrived
        if self.place.edges[edge].is_feedback:
            if type(payload) is Handed:
                arrived.feedback.push(edge, source, payload.time, payload.batch, payload.size)
                size = payload.size
            else:
                size = bytes_of(payload)
                arrived.feedback.push_encoded(edge, source, encoded(payload))
            self.statistics.counters.received_bytes[edge] += size
        elif self.rescale.migration is None:
            arrived.regular.append((edge, source, payload))
        else:
            left = self.rescale.takes(edge, source, payload)
            if left is not None:
                arrived.regular.append((edge, source, left))

    def take_frame(self, frame: Frame) -> None:
        """A frame that is for this replica and belongs to no edge."""
        kind = frame.kind
        if kind == _VIEW:
            self.core.on_view(unpack_view(frame.payload))
            self._notify()
            if self.core.is_read:
                self._tables.look(self.place.clock.monotonic())
        elif kind in INPUT_FRAMES:
            self._queue_input(frame)
        elif kind == Kind.PACE:
            complete_before, is_free = unpack_pace(frame.payload)
            self.core.pace.told(complete_before, is_free=is_free)
            self._idle_s = 0.0
        elif kind == Kind.GO:
            self.is_going = True
        elif kind == Kind.TRANSFER:
            self.rescale.take_transfer(frame)
        elif kind == Kind.FENCED:
            self.rescale.on_fenced()
        elif self.snapshots is not None and kind in (Kind.BEGIN, Kind.GIVE_UP):
            self.snapshots.on_frame(kind, frame.payload)
        else:
            raise ProtocolError(f"{self.name} got a frame of kind {kind} from {frame.peer!r}: that is not for a replica")

    def _notify(self) -> None:
        while self.core.notify():
            pass

    # -- work ----------------------------------------------------------------------------
    def has_work(self) -> bool:
        """Whether there is something to do, or to look for."""
        arrived = self.arrived
        return bool(
            arrived.regular
            or self._has_input
            or self.core.source is not None
            or self.place.sender.is_spilled
            or arrived.feedback.has_next()
            or self.rescale.released
            or arrived.restored
            or self.core.outputs.outbox  # what a view let it send: others of this worker may consume it in the same turn
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is to be done here, or looked for, before something comes for it: a frame, or a call (which touches it)."""
        core, snapshots = self.core, self.snapshots
        return (
            self.is_going
            and core.source is None
            and not self.has_work()
            and not core.changes
            and not core.outputs.holding
            and not self.place.sender.is_held_up
            and self.rescale.is_at_rest
            and (snapshots is None or snapshots.is_at_rest)
        )

    def has_more(self) -> bool:
        """Whether it waits for its turn now: there is work, and it is no source that had nothing when it was asked."""
        return not self._idle_s and self.has_work()

    def timeout_s(self) -> float:
        """How long the worker may wait for frames, as far as this replica knows."""
        due_in_s = self.snapshots.due_in_s() if self.snapshots is not None else None
        timeout_s = self._timeout_of_work_s()
        return timeout_s if due_in_s is None else min(timeout_s, due_in_s)

    def _timeout_of_work_s(self) -> float:
        arrived, sender = self.arrived, self.place.sender
        if self.is_registered and (self.core.changes or self.rescale.is_passing_on):
            return 0.0  # something came after the turn's report
        if not self.is_going:
            return 1.0
        if sender.is_spilled:
            return 0.005
        if sender.is_held_up:
            return 1.0
        if self.rescale.is_busy or arrived.regular or self._has_input or arrived.feedback.has_next() or arrived.restored:
            return 0.0
        if self.core.source is not None:
            return 0.0 if self._is_stopping else self._idle_s
        return 1.0

    def may_hold_back(self) -> bool:
        """Whether combiners may keep gathering: more input waits, and what they keep back is not too old.

        Then all that changed here waits for its report, so that no frontier passes the times of what they keep back.
        """
        if not self.core.outputs.holding or self.place.sender.is_held_up or self._is_stopping or self.rescale.is_sending:
            return False
        arrived, source = self.arrived, self.core.source
        if not (arrived.regular or self._has_input or arrived.feedback.has_next() or (source is not None and not self._idle_s)):
            return False
        now_s = self.place.clock.perf_counter()
        if self.place.hold_until_s is None:
            self.place.hold_until_s = now_s + self.place.config.combine_hold_s
        return now_s < self.place.hold_until_s

    def work(self, is_over: Callable[[], bool]) -> None:
        """Run activations until the slice ``is_over``, nothing is left, or an output is blocked.

        What small activations produce waits for the end of the slice, so that it travels in few batches; sources set their batches
        themselves.
        """
        place, sender, core = self.place, self.place.sender, self.core
        if sender.is_spilled:
            sender.drain()
        place.send_out()
        place.granting.begin(place.clock.perf_counter())
        while not sender.is_held_up:
            if not self._activate():
                break
            self._notify()
            if core.outputs.is_large:
                place.send_out()
            if is_over():
                break
        if self.report.first_record_s is None and core.batches_in:
            self.report.first_record_s = place.clock.time()

    def _activate(self) -> bool:
        """Take the next of what waits; False when nothing does."""
        arrived, core, snapshots, rescale = self.arrived, self.core, self.snapshots, self.rescale
        if rescale.released:
            core.receive(*rescale.released.popleft())
        elif arrived.restored:
            edge, payload = arrived.restored.popleft()
            rescale.receiver(payload).receive(edge, *opened(payload))
        elif arrived.feedback.has_next():
            edge, source, when, batch = arrived.feedback.pop()
            if when is None and batch[:1] == MARK:
                rescale.on_marker(edge, source, batch)
            elif snapshots is None or not (when is None or snapshots.is_pending) or not snapshots.takes_feedback(edge, source, when, batch):
                assert when is not None
                rescale.receiver(batch).receive(edge, when, batch)
        elif arrived.regular:
            edge, source, payload = arrived.regular.popleft()
            if payload is ENDED:
                rescale.ended.add((edge, source))
            elif (
                snapshots is None
                or not (snapshots.is_pending or isinstance(payload, Barrier))
                or not snapshots.takes(edge, source, payload)
            ):
                time, batch = opened(payload)
                rescale.receiver(payload).receive(edge, time, batch, (edge, source, credit_of(payload)))
                if payload is self.statistics.watched:
                    self.statistics.on_watched()
        elif self._has_input:
            self._take_input(*arrived.input.popleft())
        elif core.source is not None:
            if not self._read_source():
                return False
            self.place.send_out()
        else:
            return False
        return True

    def _read_source(self) -> bool:
        if self.place.stage.id in self.place.worker.stopping:
            self._is_stopping = True
            self.core.stop_source()
            return True
        read = self.core.source_step()
        if read is False:
            self._idle_s = min(IDLE_SOURCE_MAX_S, max(IDLE_SOURCE_S, 2 * self._idle_s))
            return False
        self._idle_s = 0.0
        return True

    # -- live input ------------------------------------------------------------------------
    @property
    def _has_input(self) -> bool:
        """Whether something of its live input waits, and may be taken."""
        return bool(self.arrived.input) and not self.core.input.is_held

    def _queue_input(self, frame: Frame) -> None:
        """Queue a frame from the driver, in the order of numbers. A driver that reconnects may repeat some, which are skipped."""
        number, payload = numbered(frame.payload)
        if frame.sequence == 0:  # a new connection: nothing is in flight in its window
            self._input_since = self._input_next
            self.place.granting.drop([FROM_DRIVER])
        if number > self._input_next:
            raise ProtocolError(f"{self.name} got frame {number} of its live input, expected is {self._input_next}: one was lost")
        if number == self._input_next:
            self._input_next += 1
            self.arrived.input.append((number, Frame(frame.peer, frame.kind, frame.channel, frame.sequence, payload, frame.incarnation)))
        elif frame.kind == Kind.INPUT_BATCH:
            self._grant_driver(bytes_of(frame.payload))

    def _take_input(self, number: int, frame: Frame) -> None:
        if self.core.input.epoch is None:  # closed, perhaps by stop(): then what was still in flight is dropped
            if frame.kind == Kind.INPUT_SAVE:
                self._want_saved(frame)
            return
        self.core.input.frames += 1
        self.place.input_at_s = self.place.clock.monotonic()
        if frame.kind == Kind.INPUT_BATCH:
            self.core.input_send(opened(frame.payload)[1])
            if number >= self._input_since:  # else it came over an earlier connection, whose window is gone
                self._grant_driver(bytes_of(frame.payload) + NUMBER_BYTES)
            self.statistics.counters.read_bytes += bytes_of(frame.payload)
        elif frame.kind == Kind.INPUT_ADVANCE:
            self.core.input_advance(int.from_bytes(frame.payload, "little"))
        elif frame.kind == Kind.INPUT_NOTE:
            self.core.input.note = bytes(frame.payload).decode()
        elif frame.kind == Kind.INPUT_SAVE:  # everything before it has been consumed: a snapshot that begins from now on holds it
            self._want_saved(frame)
        else:
            self.core.input_close()

    def _want_saved(self, frame: Frame) -> None:
        wanted = pack_save(self.place.stage.name, int.from_bytes(frame.payload, "little"))
        self.place.link.send(COORDINATOR, Kind.SAVE_WANTED, self.place.stage.id, wanted)

    def _grant_driver(self, size_bytes: int) -> None:
        self.place.granting.grant([(*FROM_DRIVER, size_bytes)], self.place.clock.perf_counter())

    def stop(self) -> None:
        """Read no more input, finish what was read."""
        if not self._is_stopping:
            self._is_stopping = True
            if self.place.stage.kind is NodeKind.INPUT:
                self.core.input_close(is_cut=True)

    @property
    def has_stopped(self) -> bool:
        """Whether it has acted on :meth:`stop`."""
        return self._is_stopping

    # -- between two rounds --------------------------------------------------------------------
    def tick(self) -> None:
        """After the worker's report: what does not wait for frames."""
        self.rescale.tick()
        if self.snapshots is not None:
            self.snapshots.tick()

    def last_report(self) -> ReplicaReport:
        """What it has done, at its end."""
        return note_counts(self.place, self.snapshots)

    def updates(self, sink: str, seen: tuple[int, int] | None) -> News | None:
        """From any thread: the last records written to a sink, by its key, that are not ``seen``, (incarnation, records); None: it writes
        none there."""
        recent, life = self.recent().get(sink), self.place.link.incarnation
        return recent.unseen(seen, life) if recent is not None else None

    def answer(self, ask: Ask) -> Answer:
        """To one who reads the vertex' state; in the loop, between two activations."""
        if isinstance(ask, Begun):
            return self.begun()
        if not self.place.is_subscribed:
            self.place.touch()  # it has to be told of its frontier from now on
        return self._tables.answer(ask, self.place.clock.monotonic())

    def begun(self) -> Begins:
        """See :class:`Begun`. From any thread."""
        return self._tables.begun()

    def recent(self) -> dict[str, Recent]:
        """By sink that tells its updates, by its key: the last records written."""
        sinks = self.place.plan.sink_by_id
        return {sinks[sink].key: recent for sink, recent in self.core.outputs.recent.items()}


__all__ = ["ReplicaHost"]
