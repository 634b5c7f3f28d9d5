"""Changes of layout at one replica host: markers and transfers on the data plane, fences with the progress actor.

The decisions are those of :class:`rayad.actors.replica.migration.Migration`; see docs/design/rescaling.md.
"""

from __future__ import annotations

import marshal
import time as clock
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rayad.actors.host.snapshots import HostSnapshots
from rayad.actors.host.workplace import Workplace
from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.actors.plane.plane import Address, Frame
from rayad.actors.plane.protocol import PROGRESS, Kind, replica_name
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import channels_out, channels_to_mark
from rayad.actors.replica.migration import Migration, StepCost, Transfer, changes, may_move
from rayad.dataflow.config import configured
from rayad.dataflow.plan import Layout
from rayad.progress import ProtocolError, Timestamp

MARK = b"M"
"""The first bytes of a marker's payload; the payload of a snapshot's barrier begins with others."""
INDEX_SLICE_S = 0.002
"""How long a replica prepares its state for transfer between two rounds of its loop."""


class Rest(bytes):
    """The part of an encoded batch that stays here; ``credit``: bytes of the whole batch, as its sender counts them."""

    credit: int


class Ended:
    """A queue entry: the sender on a channel has retired."""


ENDED = Ended()


class HostRescale:
    """What a replica host does for changes of layout."""

    def __init__(self, place: Workplace, snapshots: HostSnapshots | None) -> None:
        self.place = place
        self._snapshots = snapshots
        self.step = 0
        self._turn = 0  # the last in which it was prepared or told a layout: calls that wait for the interpreter lock may overtake
        self.is_newcomer = False
        self.migration: Migration | None = None
        self.released: deque[tuple[int, Timestamp, Any, Any]] = deque()
        self.leaving_base: int | None = None
        self.has_left = False
        self.ended: set[tuple[int, str]] = set()
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
        self, turn: int, layout: Layout, addresses: Mapping[str, Address], incarnations: Mapping[str, int], moving: Collection[int]
    ) -> None:
        """The new replicas have started at these addresses; connect to those with which this replica will exchange frames.

        Passed over if a later turn is over by now: the change was refused, and that was heard first.
        """
        if turn <= self._turn:
            return
        self._turn = turn
        place = self.place
        place.plan = place.core.plan = place.plan.laid_out(layout)
        place.stage = place.plan.stage(place.stage.id)
        self._costs.clear()
        self.ended.clear()
        place.replica_of.update({replica_name(s.id, r): r for s in place.plan.stages for r in range(s.parallelism)})
        mine = place.peers()
        if place.stage.id in moving:
            mine |= self.siblings()
        self._awaited = set()
        for peer, address in addresses.items():
            if peer not in mine:
                continue
            if peer in incarnations:  # a new replica, perhaps under the name of one that has retired
                place.plane.expect(peer, incarnations[peer])
                place.lost.pop(peer, None)
                place.ends.admit(peer, place.plan)
            if peer in incarnations or not place.plane.connected(peer):
                self._awaited.add(peer)
                if place.name < peer:
                    place.plane.start_connect(peer, address, place.config.start_timeout_s)
        if place.stage.id in moving and place.core.vertex is not None:
            self._index = place.core.vertex.index_for_giving()

    def siblings(self) -> set[str]:
        """The other replicas of this vertex."""
        place = self.place
        return {replica_name(place.stage.id, r) for r in range(place.stage.parallelism)} - {place.name}

    def is_prepared(self) -> bool:
        """Whether all connections are established, and the state is ready for transfer."""
        place = self.place
        return self._index is None and all(place.plane.connected(peer) for peer in self._awaited)

    def relayout(self, step: int, layout: Layout) -> None:
        """Begin the next step: route by this layout, and send the state that leaves."""
        if step <= self.step:
            return
        began_s = clock.perf_counter()
        place, core = self.place, self.place.core
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
            self.migration = Migration(core, before, after, self.released)
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

    def has_ended(self, channels: Collection[tuple[int, str]]) -> bool:
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
        before, after = place.config, configured(place.config, changes)
        if turn == "senders":
            place.config = after
            place.core.outputs.outbox.batch_rows = after.batch_rows
        place.ends.configure(before, after, turn)

    # -- in the loop ------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Between two rounds."""
        if self._index is not None:
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
            place.plane.send(PROGRESS, Kind.FENCE, 0, b"")
        if self.leaving_base is not None and not self.has_left and not place.sender.is_held_up and not place.sender.is_spilled:
            place.plane.send(PROGRESS, Kind.LEAVE, 0, b"")
            self.has_left = True

    @property
    def is_sending(self) -> bool:
        """Whether a report must go out now."""
        return self.leaving_base is not None or (self.migration is not None and bool(self.migration.outgoing))

    def on_frame(self, frame: Frame) -> None:
        """Handle a marker, a transfer, or the confirmation of a fence."""
        if frame.kind == Kind.FENCED:
            for target, transfer in self._fenced.popleft():
                self._send(target, transfer)
        elif frame.kind == Kind.TRANSFER:
            began_s = clock.perf_counter()
            is_state = self._on_transfer(frame)
            if self.migration is not None:
                took_s = clock.perf_counter() - began_s
                self.migration.cost.pause(took_s)
                self.migration.cost.state_s += took_s if is_state else 0.0
        elif self.place.edges[frame.channel].is_feedback:
            self.place.arrived.feedback.push_mark(frame.channel, self.place.replica_of[frame.peer], bytes(frame.payload))
        else:
            self.on_marker(frame.channel, frame.peer, frame.payload)

    def on_marker(self, edge: int, peer: str, payload: Any) -> None:
        """Handle a marker: everything routed by the old layout on its channel came before it, and has been checked."""
        step, layout = marshal.loads(memoryview(payload)[len(MARK) :])
        if step < 0:
            self.place.arrived.regular.append((edge, peer, ENDED))
            return
        self.relayout(step, _unpacked(layout))
        if step == self.step and self.migration is not None:
            self.migration.on_marker((edge, self.place.replica_of[peer]))

    def on_feedback_marker(self, edge: int, source: int, payload: Any) -> None:
        """A marker of a feedback edge has reached the head of the feedback queue."""
        self.on_marker(edge, replica_name(self.place.edges[edge].source, source), payload)

    def takes(self, edge: int, peer: str, payload: Any) -> Any:
        """A batch has arrived on a regular channel: what is to be queued of it, None for nothing."""
        migration = self.migration
        if migration is None or not migration.takes_out((edge, self.place.replica_of[peer])):
            return payload
        return self._take_out(migration, edge, peer, payload)

    def receiver(self, payload: Any) -> ReplicaCore | Migration:
        """What consumes the next batch: the core, or the migration while key-groups move."""
        migration = self.migration
        if migration is None or (not migration.arriving and type(payload) is Rest):
            return self.place.core
        return migration

    def _take_out(self, migration: Migration, edge: int, peer: str, payload: Any) -> Any:
        time, batch = decode_batch(payload)
        size = payload.credit if type(payload) is Rest else len(payload)
        stays = migration.take_out(edge, time, batch, (edge, peer, size))
        if stays is None:
            return None
        if stays is batch:
            return payload
        rest = Rest(b"".join(encode_batch(time, stays)))
        rest.credit = size
        return rest

    def _take_out_of_queues(self, migration: Migration) -> None:
        place = self.place
        queue, place.arrived.regular = place.arrived.regular, deque()
        for edge, peer, payload in queue:
            left = payload if payload is ENDED else self.takes(edge, peer, payload)
            if left is not None:
                place.arrived.regular.append((edge, peer, left))
        if place.arrived.restored and (migration.leaving or migration.is_retiring):
            restored, kept = place.arrived.restored, deque[tuple[int, Any]]()
            for edge, payload in restored:
                time, batch = decode_batch(payload)
                stays = migration.take_out(edge, time, batch)
                if stays is not None:
                    kept.append((edge, payload if stays is batch else b"".join(encode_batch(time, stays))))
            restored.clear()
            restored.extend(kept)

    # -- transfers --------------------------------------------------------------------------------------
    def _send(self, target: int, transfer: Transfer) -> None:
        place = self.place
        rights = [(location, time[0], *time[1]) for location, time in transfer.rights]
        ends = [(time[0], *time[1]) if time is not None else None for time in (transfer.hold, transfer.latest)]
        head = marshal.dumps((transfer.kind, self.step, self._layout_data, transfer.edge, rights, ends))
        parts: list[Any] = [len(head).to_bytes(8, "little") + head]
        if transfer.state is not None:
            parts.append(transfer.state)
        elif transfer.kind == "batch":
            assert transfer.time is not None
            parts.extend(encode_batch(transfer.time, transfer.batch))
        place.plane.send(replica_name(place.stage.id, target), Kind.TRANSFER, 0, parts)

    def _on_transfer(self, frame: Frame) -> bool:
        place = self.place
        data = memoryview(frame.payload)
        at = 8 + int.from_bytes(data[:8], "little")
        kind, step, layout, edge, rights, ends = marshal.loads(data[8:at])
        self.relayout(step, _unpacked(layout))
        migration = self.migration
        if migration is None or step != self.step:
            raise ProtocolError(f"{place.name} got a transfer of step {step} from {frame.peer!r} in step {self.step}")
        time, batch = decode_batch(data[at:]) if kind == "batch" else (None, None)
        state = bytes(data[at:]) or None if kind == "state" else None
        of = Timestamp.of
        hold, latest = (of(end[0], end[1:]) if end is not None else None for end in ends)
        transfer = Transfer(kind, state, tuple((entry[0], of(entry[1], entry[2:])) for entry in rights), hold, latest, edge, time, batch)
        migration.on_transfer(place.replica_of[frame.peer], transfer)
        while place.core.notify():
            pass
        return bool(kind == "state")


def _packed(layout: Layout) -> Any:
    return tuple(layout.replicas.items()), tuple(layout.owners.items()), tuple(layout.rebalanced)


def _unpacked(data: Any) -> Layout:
    return Layout(dict(data[0]), {stage: tuple(owners) for stage, owners in data[1]}, frozenset(data[2]))


__all__: list[Any] = ["ENDED", "MARK", "Ended", "HostRescale", "Rest"]
