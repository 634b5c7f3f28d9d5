"""Changes of layout at one replica: markers and transfers on the data plane, fences with the progress actor.

The decisions are those of :class:`rayad.actors.replica.migration.Migration`; see docs/design/rescaling.md.
"""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import PROGRESS, Kind
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import channels_out, channels_to_mark
from rayad.actors.replica.migration import Migration, StepCost, Transfer, changes, may_move
from rayad.actors.worker.payloads import ENDED, Rest, credit_of, opened
from rayad.actors.worker.snapshots import HostSnapshots
from rayad.actors.worker.workplace import Workplace
from rayad.dataflow.config import configured
from rayad.dataflow.plan import Layout
from rayad.progress import ProtocolError, Timestamp
from rayad.snapshots.barrier import Barrier

MARK = b"M"
"""The first bytes of a marker's payload; the payload of a snapshot's barrier begins with others."""
INDEX_SLICE_S = 0.002
"""How long a replica prepares its state for transfer between two rounds of its loop."""


class HostRescale:
    """What a replica does for changes of layout."""

    def __init__(self, place: Workplace, snapshots: HostSnapshots | None) -> None:
        self.place = place
        self._snapshots = snapshots
        self.step = 0
        self._turn = 0  # the last in which it was prepared or told a layout: calls that wait for the interpreter lock may overtake
        self.is_newcomer = False
        self.migration: Migration | None = None
        self.released: deque[tuple[int, Timestamp, Any, Any]] = deque()
        self.leaving_base: int | None = None
        self.has_left = self._has_said_so = False
        self.ended: set[tuple[int, int]] = set()
        self._costs: list[StepCost] = []
        self._fenced: deque[list[tuple[int, Transfer]]] = deque()
        self._index: Iterator[None] | None = None
        self._awaited: set[str] = set()
        self._layout_data: Any = None

    # -- before and after ------------------------------------------------------------------------------
    def may_move(self) -> str:
        """Why this replica's vertex cannot be divided; "" when it can."""
        place = self.place
        return may_move(place.stage, place.plan, place.core.vertex)

    def prepare(
        self,
        turn: int,
        layout: Layout,
        newcomers: Collection[ReplicaId],
        addresses: Mapping[str, Any],
        incarnations: Mapping[str, int],
        moving: Collection[int],
    ) -> None:
        """New replicas have started; connect to the processes with which this replica will exchange frames.

        Passed over if a later turn is over by now: the change was refused, and that was heard first.

        Args:
            turn: of the change.
            layout: with the new replicas.
            newcomers: these.
            addresses: of the processes that hold them, or a replica of a vertex that changes.
            incarnations: of the processes that are new, perhaps under the name of one that has ended.
            moving: the vertices that change.
        """
        if turn <= self._turn:
            return
        self._turn = turn
        place = self.place
        place.touch()
        place.plan = place.core.plan = place.plan.laid_out(layout)
        place.stage = place.plan.stage(place.stage.id)
        self._costs.clear()
        self.ended.clear()
        place.carrier.forget_ways()
        for newcomer in newcomers:
            if newcomer != place.at:
                place.ends.admit(*newcomer)
        mine = place.places.partners(place.worker.name, place.plan, [place.at])
        if place.stage.id in moving:
            mine |= self.siblings()
        self._awaited = set()
        for process, incarnation in incarnations.items():  # a replica may come there later that this one exchanges frames with
            place.worker.admit_process(process, incarnation)
        for process, address in addresses.items():
            if process in mine and (process in incarnations or not place.link.connected(process)):
                self._awaited.add(process)
                place.worker.connect(process, address)
        if place.stage.id in moving and place.core.vertex is not None:
            self._index = place.core.vertex.index_for_giving()

    def siblings(self) -> set[str]:
        """The processes of the other replicas of this vertex."""
        place = self.place
        stage = place.stage
        return {place.places.process_of(stage.id, r) for r in range(stage.parallelism)} - {place.worker.name}

    def is_prepared(self) -> bool:
        """Whether all connections are established, and the state is ready for transfer."""
        place = self.place
        return self._index is None and all(place.link.connected(process) for process in self._awaited)

    def relayout(self, step: int, layout: Layout) -> None:
        """Begin the next step: route by this layout, and send the state that leaves."""
        if step <= self.step:
            return
        place, core, clock = self.place, self.place.core, self.place.clock
        place.touch()
        began_s = clock.perf_counter()
        self.step = step
        place.flush_out()
        before, after = core.plan, core.plan.laid_out(layout)
        self._layout_data = _packed(layout)
        core.lay_out(after)
        place.sender.lay_out(after)
        place.plan, place.stage = after, after.stage(place.stage.id)
        marker = MARK + marshal.dumps((step, self._layout_data))
        for edge, replica in channels_to_mark(before, after, place.stage.id, place.replica):
            place.ends.send_mark(edge, replica, marker, binds=False)
        self._end_step()
        if changes(before, after, place.stage.id):
            store = self._snapshots.store if self._snapshots is not None else None
            self.migration = Migration(core, before, after, self.released, store)
            gives_s = clock.perf_counter()
            self.migration.begin()
            self.migration.cost.state_s = clock.perf_counter() - gives_s
            self._take_out_of_queues(self.migration)
            self.migration.cost.pause(clock.perf_counter() - began_s)

    def is_settled(self, step: int) -> bool:
        """Whether this replica has done all that a step asks of it."""
        return self.step >= step and (self.migration is None or self.migration.is_settled) and not self._fenced

    def is_drained(self) -> bool:
        """Whether it has also consumed everything that was passed on to it or that it held."""
        return not self.released

    def has_ended(self, channels: Collection[tuple[int, int]]) -> bool:
        """Whether all that replicas sent on these channels before they retired has been consumed."""
        return self.ended.issuperset(tuple(channel) for channel in channels)

    def costs(self) -> tuple[StepCost, StepCost | None]:
        """What the change has cost this replica so far: in total, and in the last step."""
        costs = [*self._costs, *([self.migration.cost] if self.migration is not None else [])]
        return StepCost.total(costs), costs[-1] if costs else None

    def _end_step(self) -> None:
        if self.migration is not None:
            self._costs.append(self.migration.cost)
            self.migration = None

    def commit(self, turn: int, layout: Layout) -> StepCost:
        """The change has ended, carried out or not; ``layout`` is valid now. Passed over if a later change has begun here."""
        if turn < self._turn:
            return self.costs()[0]  # the next change has begun here
        self._turn = turn
        place = self.place
        place.touch()
        plan = place.plan.laid_out(layout)
        if plan.layout != place.core.plan.layout:
            place.plan = place.core.plan = plan
            place.stage = place.core.stage = plan.stage(place.stage.id)
        total = self.costs()[0]
        self._end_step()
        self._costs.clear()
        self._index = None
        place.ends.close_all_but(plan)
        place.core.gave()
        if self._snapshots is not None and self._snapshots.participant is not None:
            self._snapshots.participant.lay_out(plan)
        return total

    def leave(self, base: int) -> None:
        """Retire: all state and batches of this replica have moved to others."""
        place = self.place
        place.touch()
        place.core.let_go()
        place.flush_out()
        for edge, replica in channels_out(place.plan, place.stage, place.replica):
            place.ends.send_mark(edge, replica, MARK + marshal.dumps((-1, None)))
        self.leaving_base = base

    def staged(self) -> dict[Any, Any]:
        """What the sink writers of a replica that retires have staged, by sink id, or by key where snapshots are kept."""
        place = self.place
        if self._snapshots is None or self._snapshots.participant is None:
            return place.core.stage_sinks()
        assert self.leaving_base is not None
        return dict(enumerate(self._snapshots.participant.staged(self.leaving_base)))

    def configure(self, changes: Mapping[str, Any], turn: str) -> None:
        """Change runtime parameters, in three turns (:meth:`ChannelEnds.configure`); all but windows change in the senders' turn."""
        place = self.place
        place.touch()
        before, after = place.config, configured(place.config, changes)
        if turn == "senders":
            place.config = place.worker.config = after
            place.core.outputs.outbox.batch_rows = after.batch_rows
        place.ends.configure(before, after, turn)

    # -- in the loop ------------------------------------------------------------------------------------
    @property
    def is_at_rest(self) -> bool:
        """Whether no change is under way here."""
        return self.migration is None and self._index is None and not self._fenced and not self.released and self.leaving_base is None

    def tick(self) -> None:
        """Between two rounds."""
        if self._index is not None:
            clock = self.place.clock
            deadline_s = clock.perf_counter() + INDEX_SLICE_S
            for _ in self._index:
                if clock.perf_counter() >= deadline_s:
                    return
            self._index = None

    @property
    def is_busy(self) -> bool:
        """Whether the loop must run its next round without waiting."""
        return self._index is not None or bool(self.released)

    def after_report(self) -> None:
        """A report has been sent: fence what is passed on (it leaves when that is confirmed); if retiring, send LEAVE behind the report."""
        place, migration = self.place, self.migration
        if migration is not None and migration.outgoing:
            self._fenced.append(list(migration.outgoing))
            migration.outgoing.clear()
            place.link.send(PROGRESS, Kind.FENCE, place.stage.id, b"")
        if self.leaving_base is not None and not self._has_said_so and not place.sender.is_held_up and not place.sender.is_spilled:
            place.link.send(PROGRESS, Kind.LEAVE, place.stage.id, b"")
            self._has_said_so = True

    @property
    def is_sending(self) -> bool:
        """Whether a report must go out now."""
        return self.leaving_base is not None or self.is_passing_on

    @property
    def is_passing_on(self) -> bool:
        """Whether something is to be passed on behind the next report."""
        return self.migration is not None and bool(self.migration.outgoing)

    def on_fenced(self) -> None:
        """The progress actor confirms the oldest fence, or LEAVE: then its process may be killed, with all that its sockets still hold."""
        if self._has_said_so:
            self.has_left = True
            return
        for target, transfer in self._fenced.popleft():
            self._send(target, transfer)

    def take_transfer(self, frame: Frame) -> None:
        """A sibling hands something over."""
        clock = self.place.clock
        began_s = clock.perf_counter()
        is_state = self._on_transfer(frame)
        if self.migration is not None:
            took_s = clock.perf_counter() - began_s
            self.migration.cost.pause(took_s)
            self.migration.cost.state_s += took_s if is_state else 0.0

    def take_mark(self, edge: int, source: int, mark: Any) -> None:
        """A marker has come on a channel."""
        if self.place.edges[edge].is_feedback:
            self.place.arrived.feedback.push_mark(edge, source, bytes(mark))
        else:
            self.on_marker(edge, source, mark)

    def on_marker(self, edge: int, source: int, payload: Any) -> None:
        """Handle a marker: everything routed by the old layout on its channel came before it, and has been checked."""
        step, layout = marshal.loads(memoryview(payload)[len(MARK) :])
        if step < 0:
            self.place.arrived.regular.append((edge, source, ENDED))
            return
        self.relayout(step, _unpacked(layout))
        if step == self.step and self.migration is not None:
            self.migration.on_marker((edge, source))

    def takes(self, edge: int, source: int, payload: Any) -> Any:
        """A batch has arrived on a regular channel: what is to be queued of it, None for nothing."""
        migration = self.migration
        if migration is None or not migration.takes_out((edge, source)):
            return payload
        time, batch = opened(payload)
        size = credit_of(payload)
        stays = migration.take_out(edge, time, batch, (edge, source, size))
        if stays is None:
            return None
        if stays is batch:
            return payload
        rest = Rest(b"".join(encode_batch(time, stays)))
        rest.credit = size
        return rest

    def receiver(self, payload: Any) -> ReplicaCore | Migration:
        """What consumes the next batch: the core, or the migration while key-groups move."""
        migration = self.migration
        if migration is None or (not migration.arriving and type(payload) is Rest):
            return self.place.core
        return migration

    def _take_out_of_queues(self, migration: Migration) -> None:
        """Take out what leaves of what waits here, in its order: what was restored is older than what has arrived on its channel."""
        place = self.place
        if place.arrived.restored and (migration.leaving or migration.is_retiring):
            restored, kept = place.arrived.restored, deque[tuple[int, Any]]()
            for edge, payload in restored:
                time, batch = opened(payload)
                stays = migration.take_out(edge, time, batch)
                if stays is not None:
                    kept.append((edge, payload if stays is batch else b"".join(encode_batch(time, stays))))
            restored.clear()
            restored.extend(kept)
        queue, place.arrived.regular = place.arrived.regular, deque()
        for edge, source, payload in queue:
            left = payload if payload is ENDED or isinstance(payload, Barrier) else self.takes(edge, source, payload)
            if left is not None:
                place.arrived.regular.append((edge, source, left))

    # -- transfers --------------------------------------------------------------------------------------
    def _send(self, target: int, transfer: Transfer) -> None:
        place = self.place
        rights = [(location, time[0], *time[1]) for location, time in transfer.rights]
        ends = [(time[0], *time[1]) if time is not None else None for time in (transfer.hold, transfer.latest)]
        head = marshal.dumps((transfer.kind, self.step, self._layout_data, transfer.edge, rights, ends, transfer.applied))
        parts: list[Any] = [len(head).to_bytes(8, "little") + head]
        if transfer.state is not None:
            parts.append(transfer.state)
        elif transfer.kind == "batch":
            assert transfer.time is not None
            parts.extend(encode_batch(transfer.time, transfer.batch))
        place.link.send(place.places.process_of(place.stage.id, target), Kind.TRANSFER, place.stage.id, parts)

    def _on_transfer(self, frame: Frame) -> bool:
        place = self.place
        data = memoryview(frame.payload)
        at = 8 + int.from_bytes(data[:8], "little")
        kind, step, layout, edge, rights, ends, applied = marshal.loads(data[8:at])
        self.relayout(step, _unpacked(layout))
        migration = self.migration
        if migration is None or step != self.step:
            raise ProtocolError(f"{place.name} got a transfer of step {step} from {frame.peer!r} in step {self.step}")
        time, batch = decode_batch(data[at:]) if kind == "batch" else (None, None)
        state = bytes(data[at:]) or None if kind == "state" else None
        of = Timestamp.of
        hold, latest = (of(end[0], end[1:]) if end is not None else None for end in ends)
        counted = tuple((entry[0], of(entry[1], entry[2:])) for entry in rights)
        transfer = Transfer(kind, state, counted, hold, latest, edge, time, batch, applied)
        source = place.places.replica_at(frame.peer, place.stage.id)
        assert source is not None
        migration.on_transfer(source, transfer)
        while place.core.notify():
            pass
        return bool(kind == "state")


def _packed(layout: Layout) -> Any:
    return tuple(layout.replicas.items()), tuple(layout.owners.items()), tuple(layout.rebalanced)


def _unpacked(data: Any) -> Layout:
    return Layout(dict(data[0]), {stage: tuple(owners) for stage, owners in data[1]}, frozenset(data[2]))


__all__ = ["MARK", "HostRescale"]
