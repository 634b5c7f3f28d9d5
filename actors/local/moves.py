"""The replicas' part in a change of layout of a local job: what ``HostRescale`` is on Ray, with markers and transfers that the seed draws.

:class:`MovingReplica` has the methods that calls name (``lead/calls.py``). Addresses are checked as connections would check them: who is
told a wrong one, or none, fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.lead.layouts import plane_names
from rayad.actors.local.network import Entry, Marker, Network, Where
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.plane.protocol import PROGRESS, replica_name, replica_of, stage_of
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import channels_out, channels_to_mark
from rayad.actors.replica.migration import Migration, StepCost, Transfer, changes, may_move
from rayad.actors.replica.report import Left, ReplicaReport
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import InternalError, ProtocolError

Address = tuple[str, int]
"""Where an actor listens here: its name, and its incarnation."""


class Fence:
    """Stands among the reports of a replica: what may leave when the reports before it are applied, and in which step."""

    def __init__(self, step: int, plan: Plan, outgoing: list[tuple[int, Transfer]]) -> None:
        self.step = step
        self.plan = plan
        self.outgoing = outgoing


def where(name: str) -> Where:
    """Which replica has that name on the plane."""
    return stage_of(name), replica_of(name)


class Moves:
    """What all replicas of a job share in one change.

    Args:
        network: the replicas of the job.
        snapshots: of the job, if it keeps any.
        base: the last turn of earlier changes.
        listening: where each actor listens.
    """

    def __init__(self, network: Network, snapshots: LocalSnapshots | None, base: int, listening: Mapping[str, Address]) -> None:
        self.network = network
        self.snapshots = snapshots
        self.base = base
        self.listening = dict(listening)
        self.transfers: dict[tuple[int, int, int], deque[tuple[int, Plan, Transfer]]] = {}
        self._replicas: dict[Where, MovingReplica] = {}

    def replica(self, at: Where) -> MovingReplica:
        """One of them."""
        found = self._replicas.get(at)
        if found is None:
            found = self._replicas[at] = MovingReplica(self, at)
        return found

    def incarnation_of(self, name: str) -> int:
        """In which incarnation an actor listens; 0 where it does not."""
        return self.listening.get(name, (name, 0))[1]

    def remove(self, at: Where) -> None:
        """A replica is gone, and with it the marks on the channels to it: of steps that took nothing from it, and of attempts given up."""
        network = self.network
        self._replicas.pop(at, None)
        network.cores.pop(at, None)
        for queue in (network.reports, network.views):
            queue.pop(at, None)
        into = [channel for channel in network.channels if (network.edges[channel[0]].target, channel[2]) == at]
        out_of = [channel for channel in network.channels if (network.edges[channel[0]].source, channel[1]) == at]
        for event in [event for event in network.ready.items if event[1] == at or event[1] in into]:
            network.ready.discard(event)
        for put_aside in (network.blocked, network.aligning):
            put_aside.pop(at, None)
        network.release(at)
        for channel in [*network.credits]:
            edge = network.edges[channel[0]]
            if at in ((edge.source, channel[1]), (edge.target, channel[2])):
                del network.credits[channel]
                network.ready.discard(("credit", channel))
        for channel in into:
            left = sum(time is not None for time, _, _ in network.channels.pop(channel))
            if left:
                name = network.plan.stage(at[0]).name
                raise InternalError(f"{left} batches were on their way to replica {at[1]} of {name!r}, now gone")
        if any(time is not None for channel in out_of for time, _, _ in network.channels.get(channel, ())):
            raise InternalError(f"batches are still on their way from replica {replica_name(*at)}, now gone")

    # -- events ----------------------------------------------------------------------------------------
    def arrive(self, channel: tuple[int, int, int]) -> None:
        """What is on its way on a channel arrives, and what leaves is taken out of it, as a host on Ray does before it queues a batch."""
        network, edge = self.network, self.network.edges[channel[0]]
        into, at = (channel[0], channel[1]), (edge.target, channel[2])
        waiting = network.channels.get(channel, deque())
        replica = self.replica(at)
        first = max(replica.step, self.base + 1)
        marks = (i for i, (_, mark, _) in enumerate(waiting) if isinstance(mark, Marker) and mark.step >= first)
        place = next(marks, None)
        if at in network.cores and place is not None:
            mark = waiting[place][1]
            replica.lay_out(mark.step, mark.plan)
        migration = replica.migration
        if migration is None or not migration.takes_out(into):
            return
        kept = deque[Entry]()
        for _ in range(len(waiting) if place is None else place):
            time, batch, size_bytes = waiting.popleft()
            stays = batch if time is None else migration.take_out(edge.id, time, batch, network.token(channel, size_bytes))
            if stays is not None:
                kept.append((time, stays, size_bytes))
        if place is not None:
            waiting.popleft()
            migration.on_marker(into)
        waiting.extendleft(reversed(kept))
        if not waiting:
            network.ready.discard(("batch", channel))
        network.after(at)

    def will_arrive(self, channel: tuple[int, int, int]) -> None:
        """Something may be taken out of a channel."""
        if not self.network.edges[channel[0]].is_feedback:
            self.network.ready.add(("arrive", channel))

    def on_transfer(self, channel: tuple[int, int, int]) -> None:
        """What one replica hands to a sibling arrives."""
        waiting = self.transfers[channel]
        step, plan, transfer = waiting.popleft()
        if not waiting:
            self.network.ready.discard(("transfer", channel))
        stage, source, target = channel
        replica = self.replica((stage, target))
        replica.lay_out(step, plan)
        replica.on_transfer(step, source, transfer)

    def fence(self, at: Where) -> None:
        """What a replica passes on leaves when its report so far is applied."""
        replica = self.replica(at)
        migration = replica.migration
        if migration is not None and migration.outgoing:
            self.network.reports[at].append(Fence(replica.step, self.network.cores[at].plan, list(migration.outgoing)))
            migration.outgoing.clear()
            self.network.ready.add(("report", at))

    def on_fence(self, at: Where, fence: Fence) -> None:
        """The reports before it are applied."""
        for target, transfer in fence.outgoing:
            channel = (at[0], at[1], target)
            self.transfers.setdefault(channel, deque()).append((fence.step, fence.plan, transfer))
            self.network.ready.add(("transfer", channel))


class MovingReplica:
    """One replica, in one change."""

    def __init__(self, moves: Moves, at: Where) -> None:
        self.at = at
        self.name = replica_name(*at)
        self.step = moves.base
        self.migration: Migration | None = None
        self._moves = moves
        self._network = moves.network
        self._turn = 0  # the last in which it was prepared or told a layout: calls may overtake each other
        self._index: Iterator[None] | None = None
        self._ended: set[tuple[int, int]] = set()
        self._costs: list[StepCost] = []
        self._incarnations: Mapping[str, int] = {}  # of its peers, as a newcomer knows them
        self._awaited: set[str] = set()  # peers that do not answer
        self._leaving_base: int | None = None

    @property
    def core(self) -> ReplicaCore:
        """What moves."""
        return self._network.cores[self.at]

    def _plan(self, layout: Layout) -> Plan:
        return self._network.plan.laid_out(layout)

    # -- before it begins, and when it does not: calls ------------------------------------------------
    def may_move(self) -> str:
        """See :class:`rayad.actors.lead.calls.MayMove`."""
        plan = self._network.plan
        return may_move(plan.stage(self.at[0]), plan, self.core.vertex)

    def listen(self, incarnation: int, incarnations: Mapping[str, int], layout: Layout, ended: int) -> Address | Failure:
        """See :class:`rayad.actors.lead.calls.Listen`."""
        plan = self._plan(layout)
        try:
            self._network.new_core(plan.stage(self.at[0]), self.at[1], plan).start(None, is_newcomer=True)
        except Exception as error:
            self._moves.remove(self.at)
            return failure_of(plan.title(*self.at), error)
        self._incarnations = incarnations
        self._moves.listening[self.name] = (self.name, incarnation)
        return self._moves.listening[self.name]

    def prepare(
        self,
        turn: int,
        layout: Layout,
        newcomers: Collection[Where],
        addresses: Mapping[str, object],
        incarnations: Mapping[str, int],
        moving: Collection[int],
    ) -> None:
        """See :class:`rayad.actors.lead.calls.Prepare`."""
        if turn <= self._turn:
            return
        self._turn = turn
        self._awaited.clear()
        core, stage = self.core, self.at[0]
        before = set(plane_names(core.plan))
        core.plan = plan = self._plan(layout)
        siblings = self._siblings(plan) if stage in moving else set[str]()
        for peer in sorted(self._peers(plan) | siblings):
            if peer in siblings or peer not in before:
                self._connect(peer, addresses, incarnations.get(peer, self._moves.incarnation_of(peer)))
            if peer in incarnations and where(peer) in newcomers:
                self._network.ends[self.at].admit(*where(peer))
            elif peer not in before:
                raise ProtocolError(f"{self.name} does not expect {peer}, which will come")
        index = core.vertex.index_for_giving() if stage in moving and core.vertex is not None else None
        if index is not None:
            self._index = index
            self._network.ready.add(("index", self.at))

    def connect_all(self, addresses: Mapping[str, object]) -> None:
        """A newcomer connects to everybody whom it will exchange something with."""
        plan = self.core.plan
        for peer in sorted(self._peers(plan) | self._siblings(plan) | {PROGRESS}):
            self._connect(peer, addresses, self._incarnations.get(peer, 0))

    def _connect(self, peer: str, addresses: Mapping[str, object], incarnation: int) -> None:
        told, there = addresses.get(peer), self._moves.listening.get(peer)
        if told is not None and there is None:
            self._awaited.add(peer)  # it has been ended since: nobody answers there
        elif there is None or told != there or incarnation != there[1]:
            raise ProtocolError(f"{self.name} looks for {peer} of incarnation {incarnation} at {told}, but it listens at {there}")

    def _peers(self, plan: Plan) -> set[str]:
        ends = [(edge.source, edge.target) for edge in plan.edges if self.at[0] in (edge.source, edge.target)]
        stages = {other for source, target in ends for other in (source, target) if other != self.at[0] or source == target}
        return {replica_name(stage, r) for stage in stages for r in range(plan.stage(stage).parallelism)} - {self.name}

    def _siblings(self, plan: Plan) -> set[str]:
        return {replica_name(self.at[0], r) for r in range(plan.stage(self.at[0]).parallelism)} - {self.name}

    def is_prepared(self) -> bool:
        """See :class:`rayad.actors.lead.calls.IsPrepared`."""
        return self._index is None and not self._awaited

    def build_index(self) -> bool:
        """One slice of what prepares the state for transfer; gives whether that was the last."""
        if self._index is not None and next(self._index, self) is not self:
            return False
        self._index = None
        return True

    # -- steps ---------------------------------------------------------------------------------------
    def relayout(self, step: int, layout: Layout) -> None:
        """See :class:`rayad.actors.lead.calls.Relayout`."""
        self.lay_out(step, self._plan(layout))

    def lay_out(self, step: int, after: Plan) -> None:
        """The same, from a call, a marker or a transfer: whichever comes first."""
        if self.step >= step:
            return
        self.step = step
        network, core, at = self._network, self.core, self.at
        network.move_out(at)
        before = core.plan
        core.lay_out(after)
        network.ends[at].sender.lay_out(after)
        for edge, target in channels_to_mark(before, after, *at):
            network.send_mark(at, edge, target, Marker(step, after), binds=False)
        if changes(before, after, at[0]):
            old = self.migration
            if old is not None:
                assert old.is_settled, f"{core.name!r}[{at[1]}] has not settled the step before {step}"
                self._costs.append(old.cost)
            migration = self.migration = Migration(core, before, after)
            migration.begin()
            for edge, source in sorted(migration.missing()):
                self._moves.will_arrive((edge, source, at[1]))
        network.after(at)

    def is_settled(self, step: int) -> bool:
        """See :class:`rayad.actors.lead.calls.IsSettled`."""
        if self.step < step or (self.migration is not None and not self.migration.is_settled):
            return False
        return not any(isinstance(entry, Fence) for entry in self._network.reports[self.at])

    def costs(self) -> tuple[StepCost, StepCost | None]:
        """See :class:`rayad.actors.lead.calls.Costs`."""
        costs = [*self._costs, *([self.migration.cost] if self.migration is not None else [])]
        return StepCost.total(costs), costs[-1] if costs else None

    def is_drained(self) -> bool:
        """See :class:`rayad.actors.lead.calls.IsDrained`."""
        return self.migration is None or not self.migration.released

    def on_marker(self, channel: tuple[int, int], marker: Marker) -> None:
        """A marker is next on a channel."""
        if marker.step < 0:
            self._ended.add(channel)
            return
        if marker.plan is not None:
            self.lay_out(marker.step, marker.plan)
        if marker.step == self.step and self.migration is not None:
            self.migration.on_marker(channel)
            self._network.after(self.at)

    def on_transfer(self, step: int, source: int, transfer: Transfer) -> None:
        """What a sibling hands over arrives."""
        migration = self.migration
        if self.step != step or migration is None:
            raise ProtocolError(f"{self.name} got a transfer of step {step} from {source} in step {self.step}")
        migration.on_transfer(source, transfer)
        while migration.released:
            self.core.receive(*migration.released.popleft())
        self._network.after(self.at)

    # -- the end -------------------------------------------------------------------------------------
    def leave(self, base: int) -> None:
        """See :class:`rayad.actors.lead.calls.Leave`."""
        core = self.core
        core.let_go()
        self._network.move_out(self.at)
        for edge, target in channels_out(core.plan, core.plan.stage(self.at[0]), self.at[1]):
            self._network.send_mark(self.at, edge, target, Marker(-1, None))
        self._leaving_base = base

    def has_left(self) -> Left | None:
        """See :class:`rayad.actors.lead.calls.HasLeft`."""
        sender = self._network.ends[self.at].sender
        if self._leaving_base is None or self._network.reports[self.at] or sender.is_held_up or sender.is_spilled:
            return None
        return Left(ReplicaReport(self.core.name, self.at[1]), self._staged(self._leaving_base))

    def _staged(self, base: int) -> dict[Any, Any]:
        """What the sink writers of a replica that has left have staged, by sink id, or by number where snapshots are kept."""
        if self._moves.snapshots is None:
            return self.core.stage_sinks()
        return dict(enumerate(self._moves.snapshots.participant(self.at).staged(base)))

    def has_ended(self, channels: Collection[tuple[int, int]]) -> bool:
        """See :class:`rayad.actors.lead.calls.HasEnded`."""
        return self._ended.issuperset(channels)

    def commit(self, turn: int, layout: Layout) -> StepCost:
        """See :class:`rayad.actors.lead.calls.Commit`."""
        total = self.costs()[0]
        if turn < self._turn:
            return total
        self._turn = turn
        core, plan, snapshots = self.core, self._plan(layout), self._moves.snapshots
        core.plan = plan
        self._network.ends[self.at].close_all_but(plan)
        if self._index is not None:
            self._index = None
            self._network.ready.discard(("index", self.at))
        core.gave()
        if snapshots is not None and self.at in snapshots.participants:
            snapshots.participants[self.at].lay_out(plan)
        return total


__all__ = ["Address", "Fence", "MovingReplica", "Moves", "where"]
