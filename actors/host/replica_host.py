"""The shell around one replica: its event loop over the data plane. One per vertex actor; it does not use Ray.

Each round: take all frames that are there, run activations while no output is blocked, hand the batches to the plane, send one
report of everything that changed, and only then wait. Batches of a loop come before new input, so that what is inside a loop stays bounded
by what entered it. While a regular channel has no credit left for what was already produced, no activation starts: so back-pressure
reaches the sources.
"""

from __future__ import annotations

import marshal
import threading
import time as clock
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rayad.actors.host import upstream
from rayad.actors.host.looking import counts_from_outside, note_counts
from rayad.actors.host.rescaling import ENDED, MARK, HostRescale, Rest
from rayad.actors.host.snapshots import HostSnapshots
from rayad.actors.host.statistics import HostStatistics
from rayad.actors.host.workplace import Workplace
from rayad.actors.plane.batch_codec import decode_batch
from rayad.actors.plane.plane import Address, Frame
from rayad.actors.plane.protocol import (
    COORDINATOR,
    DRIVER,
    INPUT_FRAMES,
    NUMBER_BYTES,
    PROGRESS,
    Kind,
    pack_report,
    pack_save,
    unpack_credit,
    unpack_number,
    unpack_view,
)
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.activity import Activity, activity_of
from rayad.actors.process.mailbox import NoAnswer
from rayad.actors.replica.recent import News, Recent
from rayad.actors.replica.report import Abandoned, ReplicaReport
from rayad.actors.replica.source_parts import Resumable
from rayad.autoscale.statistics import BUSY
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.plan import Plan
from rayad.progress import ProtocolError
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.store import SnapshotStore

SLICE_S = 0.002
"""How long activations run before frames are looked at and progress is reported again."""
IDLE_SOURCE_S = 0.001
"""How soon a source that had nothing is asked again; doubles up to IDLE_SOURCE_MAX_S."""
IDLE_SOURCE_MAX_S = 0.02
LOST_S = 5.0
"""How long a peer may be lost before this replica fails: until then the process that knows the cause may report it, or replace the peer."""
LOOK_S = 0.2
"""How long a look waits for the loop; then it reports what another thread can see."""
STACK_AFTER_S = 0.1
"""An activation that has taken so long is shown with its stack."""


class ReplicaHost:
    """Runs one replica to its end."""

    def __init__(
        self,
        plan: Plan,
        stage: int,
        replica: int,
        config: RunConfig,
        *,
        job: str,
        secret: bytes,
        incarnation: int,
        store: SnapshotStore | None = None,
        part: Resumable | None = None,
        incarnations: Mapping[str, int] | None = None,
        isolated: Callable[[Element], Element | None] | None = None,
    ) -> None:
        self.place = place = Workplace(plan, stage, replica, config, job=job, secret=secret, incarnation=incarnation, isolated=isolated)
        self.name, self.plane, self.core, self.mailbox, self.report = place.name, place.plane, place.core, place.mailbox, place.report
        self.arrived = place.arrived
        self.statistics = HostStatistics(place)
        self.snapshots = HostSnapshots(place, self.statistics, store, part) if store is not None else None
        self.rescale = HostRescale(place, self.snapshots)
        place.after_report = self.rescale.after_report
        upstream.expect(place, incarnations or {})
        self._input_next = self._input_since = 0
        self._going = False
        self._stopping = self._is_asked_to_stop = False
        self._idle_s = 0.0
        self._abandoned = False
        self._thread: int | None = None
        self._turn_s = 0.0

    # -- start and end ------------------------------------------------------------------
    def listen(self, host: str) -> Address:
        """Build the vertex or open the source, and open the plane; gives the address for the other replicas."""
        self._thread = threading.get_ident()
        snapshots = self.snapshots
        self.core.start(snapshots.resumed if snapshots is not None else None, is_newcomer=self.rescale.is_newcomer)
        if snapshots is not None:
            snapshots.attach()
            snapshots.refill()
        self._input_next = self.core.input.frames
        self._thread = None
        return self.plane.listen(host, unix="auto" if self.place.config.unix_sockets else "off")

    def partners(self) -> set[str]:
        """The peers that this replica connects to at its start; in a change of layout also its siblings, which give it state."""
        return self.place.peers() | self.rescale.siblings() if self.rescale.is_newcomer else self.place.peers()

    def run(self, addresses: Mapping[str, Address]) -> dict[int, Any]:
        """Connect, register, and run until the job is complete; gives what each sink writer has staged."""
        self._thread = threading.get_ident()
        try:
            deadline_s = clock.monotonic() + self.place.config.start_timeout_s
            self.plane.connect(PROGRESS, addresses[PROGRESS], timeout_s=self.place.config.start_timeout_s)
            for peer in sorted(self.partners()):
                if self.name < peer:  # one connection per pair, made by the smaller name
                    self.plane.connect(peer, addresses[peer], timeout_s=max(1.0, deadline_s - clock.monotonic()))
            self.place.is_subscribed = self.core.wants_views
            ready = marshal.dumps((self.place.is_subscribed, pack_report(self.core.take_changes())))
            self._await_peers(deadline_s)
            self.plane.send(PROGRESS, Kind.READY, 0, ready)
            if self.snapshots is not None:
                self.plane.connect(COORDINATOR, addresses[COORDINATOR], timeout_s=self.place.config.start_timeout_s)
                self.snapshots.resend()
            self._loop()
            note_counts(self.place)
            if self.rescale.has_left:
                return self.rescale.staged()
            return self.core.stage_sinks() if self.snapshots is None else {}
        except BaseException:
            if self.snapshots is None:
                self.core.abort_sinks()  # otherwise a snapshot may name what they have staged
            raise
        finally:
            self._thread = None  # nothing is done here any more
            self.discard(linger_s=self._linger_s)

    @property
    def _linger_s(self) -> float:
        if self.rescale.has_left:  # what is in flight is for replicas that stay, and may be busy
            return self.place.config.failures.heartbeat_timeout_s
        return 2.0 if self.place.is_done else 0.0

    def _await_peers(self, deadline_s: float) -> None:
        while missing := [peer for peer in self.partners() if not self.plane.connected(peer)]:
            self._dispatch(self.plane.poll(0.1))
            self.mailbox.serve()
            self._look_for_abandonment()
            if clock.monotonic() > deadline_s:
                raise ProtocolError(
                    f"{self.name} waited {self.place.config.start_timeout_s} s for connections from {missing}: did these actors start?"
                )

    # -- the loop ------------------------------------------------------------------------
    def _loop(self) -> None:
        poll, dispatch, statistics = self.plane.poll, self._dispatch, self.statistics
        statistics.begin()
        while True:
            timeout_s = self._timeout_s()
            frames = poll(0.0) if timeout_s == 0.0 else statistics.wait(timeout_s)
            self._turn_s = clock.perf_counter()
            if frames:
                dispatch(frames)
                if self.arrived.regular and statistics.watched is None:
                    statistics.watch(self.arrived.regular, len(frames))
            self.mailbox.serve()
            self._look_for_stop()
            if self._going:
                if self._has_work():
                    self._work()
                if self.rescale.is_sending or not self._may_hold_back():
                    self.place.flush()
                self.rescale.tick()
                if self.rescale.has_left:
                    return
            if self.snapshots is not None:
                self.snapshots.tick()
                if self.snapshots.is_finished:
                    return
            elif self.place.is_done:
                return
            self._look_for_lost()
            self._look_for_abandonment()

    def _timeout_s(self) -> float | None:
        due_in_s = self.snapshots.due_in_s() if self.snapshots is not None else None
        timeout_s = self._timeout_of_work_s()
        return timeout_s if due_in_s is None else min(timeout_s, due_in_s)

    def _timeout_of_work_s(self) -> float:
        arrived, sender = self.arrived, self.place.sender
        if not self._going:
            return 1.0
        if sender.is_spilled:
            return 0.005
        if sender.is_held_up:
            return 1.0
        if self.rescale.is_busy or arrived.regular or arrived.input or arrived.feedback.has_next():
            return 0.0
        if arrived.restored:
            return 0.0
        if self.core.source is not None:
            return 0.0 if self._stopping else self._idle_s
        return 1.0

    def _may_hold_back(self) -> bool:
        """Whether combiners may keep gathering: more input waits, and what they keep back is not too old.

        Then the whole report waits, so that no frontier passes the times of what they keep back.
        """
        if not self.core.outputs.holding or self.place.sender.is_held_up or self._stopping:
            return False
        arrived, source = self.arrived, self.core.source
        if not (arrived.regular or arrived.input or arrived.feedback.has_next() or (source is not None and not self._idle_s)):
            return False
        now_s = clock.perf_counter()
        if self.place.hold_until_s is None:
            self.place.hold_until_s = now_s + self.place.config.combine_hold_s
        return now_s < self.place.hold_until_s

    def _has_work(self) -> bool:
        arrived, sender = self.arrived, self.place.sender
        core = self.core
        return bool(
            arrived.regular
            or arrived.input
            or core.source is not None
            or sender.is_spilled
            or arrived.feedback.has_next()
            or self.rescale.released
            or arrived.restored
        )

    def _dispatch(self, frames: list[Frame]) -> None:
        place, arrived, sender = self.place, self.arrived, self.place.sender
        for frame in frames:
            kind = frame.kind
            if kind == Kind.DATA:
                if place.edges[frame.channel].is_feedback:
                    arrived.feedback.push_encoded(frame.channel, place.replica_of[frame.peer], frame.payload)
                    self.statistics.counters.received_bytes[frame.channel] += len(frame.payload)
                elif self.rescale.migration is None:
                    arrived.regular.append((frame.channel, frame.peer, frame.payload))
                else:
                    payload = self.rescale.takes(frame.channel, frame.peer, frame.payload)
                    if payload is not None:
                        arrived.regular.append((frame.channel, frame.peer, payload))
            elif kind == Kind.SWITCHED:
                place.is_rewinding = False
            elif kind == Kind.VIEW:
                if place.is_rewinding:
                    continue  # a view from before the roll-back
                self.core.on_view(unpack_view(frame.payload))
                while self.core.notify():
                    pass
            elif kind == Kind.CREDIT:
                sender.on_credit(frame.channel, frame.peer, *unpack_credit(frame.payload))
            elif kind in INPUT_FRAMES:
                self._queue_input(frame)
            elif kind == Kind.GO:
                self._going = True
            elif kind == Kind.DONE:
                place.is_done = True
                if self.snapshots is not None:
                    self.plane.send(COORDINATOR, Kind.FINISHED, 0, b"")
                    self.snapshots.finish()
            elif kind in (Kind.TRANSFER, Kind.FENCED) or (kind == Kind.BARRIER and frame.payload[:1] == MARK):
                self.rescale.on_frame(frame)
            elif self.snapshots is not None and kind in (Kind.BARRIER, Kind.BEGIN, Kind.GIVE_UP):
                self.snapshots.on_frame(kind, frame.channel, frame.peer, frame.payload)
            else:
                raise ProtocolError(f"{self.name} got a frame of kind {kind} from {frame.peer!r}: that is not for a replica")

    def _work(self) -> None:
        """Run activations until a time slice is over, nothing is left, or an output is blocked.

        What small activations produce waits for the end of the slice, so that it travels in few batches; sources set their batches
        themselves.
        """
        place, arrived, sender = self.place, self.arrived, self.place.sender
        core, snapshots, rescale = self.core, self.snapshots, self.rescale
        if sender.is_spilled:
            sender.drain()
        place.send_out()
        began_s = clock.perf_counter()
        place.granting.begin(began_s)
        deadline_s = began_s + SLICE_S
        while not sender.is_held_up:
            if rescale.released:
                core.receive(*rescale.released.popleft())
            elif arrived.restored:
                edge, payload = arrived.restored.popleft()
                rescale.receiver(payload).receive(edge, *decode_batch(payload))
            elif arrived.feedback.has_next():
                edge, source, when, batch = arrived.feedback.pop()
                if when is None and batch[:1] == MARK:
                    rescale.on_feedback_marker(edge, source, batch)
                    continue
                watched = snapshots if when is None or (snapshots is not None and snapshots.is_pending) else None
                if watched is not None and watched.takes_feedback(edge, source, when, batch):
                    continue
                assert when is not None
                rescale.receiver(batch).receive(edge, when, batch)
            elif arrived.regular:
                edge, peer, payload = arrived.regular.popleft()
                if payload is ENDED:
                    rescale.ended.add((edge, peer))
                    continue
                watched = snapshots if snapshots is not None and (snapshots.is_pending or isinstance(payload, Barrier)) else None
                if watched is not None and watched.takes(edge, peer, payload):
                    continue
                time, batch = decode_batch(payload)
                size = payload.credit if type(payload) is Rest else len(payload)
                rescale.receiver(payload).receive(edge, time, batch, (edge, peer, size))
                if payload is self.statistics.watched:
                    self.statistics.on_watched()
            elif arrived.input:
                self._take_input(*arrived.input.popleft())
            elif core.source is not None:
                if not self._read_source():
                    break
                place.send_out()
            else:
                break
            while core.notify():
                pass
            if core.outputs.is_large:
                place.send_out()
            if clock.perf_counter() > deadline_s:
                break
        if self.report.first_record_s is None and core.batches_in:
            self.report.first_record_s = clock.time()

    def _read_source(self) -> bool:
        self._look_for_stop()
        if self._stopping:
            self.core.stop_source()
            return True
        read = self.core.source_step()
        if read is False:
            self._idle_s = min(IDLE_SOURCE_MAX_S, max(IDLE_SOURCE_S, 2 * self._idle_s))
            return False
        self._idle_s = 0.0
        return True

    def _queue_input(self, frame: Frame) -> None:
        """Queue a frame from the driver, in the order of numbers. A driver that reconnects may repeat some, which are skipped."""
        number, payload = unpack_number(frame.payload)
        if frame.sequence == 0:  # a new connection: nothing is in flight in its window
            self._input_since = self._input_next
            self.place.granting.forget({DRIVER})
        if number > self._input_next:
            raise ProtocolError(f"{self.name} got frame {number} of its live input, expected is {self._input_next}: one was lost")
        if number == self._input_next:
            self._input_next += 1
            self.arrived.input.append((number, Frame(frame.peer, frame.kind, frame.channel, frame.sequence, payload, frame.incarnation)))
        elif frame.kind == Kind.INPUT_BATCH:
            self._grant_driver(len(frame.payload))

    def _take_input(self, number: int, frame: Frame) -> None:
        if self.core.input.epoch is None:
            return  # closed by stop(); what was still in flight is dropped
        self.core.input.frames += 1
        self.place.input_at_s = clock.monotonic()
        if frame.kind == Kind.INPUT_BATCH:
            _, batch = decode_batch(frame.payload)
            self.core.input_send(batch)
            if number >= self._input_since:  # else it came over an earlier connection, whose window is gone
                self._grant_driver(len(frame.payload) + NUMBER_BYTES)
            self.statistics.counters.read_bytes += len(frame.payload)
        elif frame.kind == Kind.INPUT_ADVANCE:
            self.core.input_advance(int.from_bytes(frame.payload, "little"))
        elif frame.kind == Kind.INPUT_NOTE:
            self.core.input.note = bytes(frame.payload).decode()
        elif frame.kind == Kind.INPUT_SAVE:  # everything before it has been consumed: a snapshot that begins from now on holds it
            self.plane.send(COORDINATOR, Kind.SAVE_WANTED, 0, pack_save(self.place.stage.name, int.from_bytes(frame.payload, "little")))
        else:
            self.core.input_close()

    def _grant_driver(self, size_bytes: int) -> None:
        self.place.granting.grant([(0, DRIVER, size_bytes)], clock.perf_counter())

    # -- trouble and control ----------------------------------------------------------------
    def _look_for_lost(self) -> None:
        for peer in self.plane.take_lost():
            if peer != DRIVER:
                self.place.lost[peer] = clock.monotonic()
                if peer == PROGRESS and not self.place.is_done:
                    raise ConnectionError(f"{self._title} lost its connection to the progress actor: {self.plane.why_lost(peer)}")
        for peer, since_s in self.place.lost.items():
            is_over = (self.place.is_done and peer != COORDINATOR) or not self._is_laid_out(peer)
            if clock.monotonic() - since_s > LOST_S and not (is_over or self.plane.connected(peer) or self.plane.has_left(peer)):
                who = "the coordinator" if peer == COORDINATOR else self.place.plan.title(*ReplicaId.from_plane_name(peer))
                raise ConnectionError(f"{self._title} lost its connection to {who}: {self.plane.why_lost(peer)}")

    def _is_laid_out(self, peer: str) -> bool:
        """Whether a peer belongs to the job by now: a new replica of a change that was refused does not, and its end is no failure."""
        if peer in (PROGRESS, COORDINATOR, DRIVER):
            return True
        at = ReplicaId.from_plane_name(peer)
        return at.replica < self.place.plan.stage(at.stage).parallelism

    @property
    def _title(self) -> str:
        return self.place.plan.title(self.place.stage.id, self.place.replica)

    def abandon(self) -> None:
        """Control call, from another thread: the job continues in another incarnation."""
        self._abandoned = True
        self.plane.wakeup()

    def discard(self, linger_s: float = 0.0) -> None:
        """Free its resources: it will not run, or not any more."""
        if self.snapshots is not None:
            self.snapshots.close()
        self.place.close(linger_s)

    def _look_for_abandonment(self) -> None:
        if self._abandoned:
            raise Abandoned(f"{self.name} was given up: the job goes on in another incarnation")

    def roll_back(self, *arguments: Any) -> None:
        """Control call: see upstream.py."""
        assert self.snapshots is not None
        self.mailbox.ask(partial(upstream.roll_back, self.place, self.snapshots, *arguments), timeout_s=self.place.config.start_timeout_s)

    def stop(self) -> None:
        """Control call, from another thread: read no more input, finish what was read. It does not wait: the source may be busy."""
        self._is_asked_to_stop = True
        self.plane.wakeup()

    def acquit(self) -> None:
        """Control call, from another thread: see :meth:`Outputs.acquit`."""
        self.mailbox.post(self.core.outputs.acquit)

    @property
    def has_stopped(self) -> bool:
        """From any thread: whether the loop has acted on :meth:`stop`, or has ended."""
        return self._stopping or self.place.is_done

    def _look_for_stop(self) -> None:
        if self._is_asked_to_stop and not self._stopping:
            self._stopping = True
            if self.place.stage.kind is NodeKind.INPUT:
                self.core.input_close(is_cut=True)

    def look(self) -> ReplicaReport:
        """Control call, from another thread: what has been done and what waits; it answers even while the loop is busy and does not."""
        try:
            return self.mailbox.ask(partial(note_counts, self.place, self.snapshots), timeout_s=LOOK_S)  # type: ignore[no-any-return]
        except NoAnswer:
            return counts_from_outside(self.place, self.activity())

    def updates(self, sink: str, seen: tuple[int, int] | None) -> News | None:
        """From any thread: the last records written to a sink, by its key, that are not ``seen``, (incarnation, records); None: it writes
        none there."""
        recent, life = self.recent().get(sink), self.plane.incarnation
        return recent.unseen(seen, life) if recent is not None else None

    def recent(self) -> dict[str, Recent]:
        """By sink that tells its updates, by its key: the last records written."""
        sinks = self.place.plan.sink_by_id
        return {sinks[sink].key: recent for sink, recent in self.core.outputs.recent.items()}

    def activity(self) -> Activity | None:
        """From any thread: what the loop is busy with; None when it waits for something to do."""
        thread, doing, now_s = self._thread, self.core.doing, clock.perf_counter()
        if thread is None:
            return None
        if doing is None:
            if not self._turn_s or self.statistics.counters.activity != BUSY:
                return None
            doing = ("its event loop", None, self._turn_s)
        callback, time, since_s = doing
        for_s = max(0.0, now_s - since_s)
        return activity_of(thread, callback, time, for_s) if for_s > STACK_AFTER_S else Activity(callback, time, for_s)
