"""Changes of layout in the local runtime: the same core as on Ray, each message an event of its own, whose order the seed draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from rayad.actors.lead import layout_steps
from rayad.actors.lead import snapshot_leader as lead
from rayad.actors.lead.layout_steps import Rescale
from rayad.actors.local.network import Network, Where
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import channels_out, channels_to_mark
from rayad.actors.replica.migration import Migration, Transfer, changes, may_move
from rayad.actors.replica.part_files import write_staged
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError, RescaleRefused
from rayad.snapshots.barrier import Barrier


class Marker:
    """Behind the last batch that a sender routed by the layout before ``step``; of step -1: behind the last batch of a sender at all."""

    def __init__(self, step: int, plan: Plan | None) -> None:
        self.step = step
        self.plan = plan


class Fence:
    """Among the reports of a replica: what may leave when those before it are applied."""

    def __init__(self, outgoing: list[tuple[int, Transfer]]) -> None:
        self.outgoing = outgoing


class LocalRescale:
    """One change of layout of a local job.

    Args:
        network: the replicas of the job.
        snapshots: of the job, if it keeps any.
        wanted: replicas by stage.
        groups: how many key-groups a step moves; None: all at once.
    """

    def __init__(self, network: Network, snapshots: LocalSnapshots | None, wanted: Mapping[int, int], *, groups: int | None = None) -> None:
        self.network = network
        self._snapshots = snapshots
        network.moved_out = self.fence
        self.wanted = dict(wanted)
        self.groups = groups
        self.goal = layout_steps.target(network.plan, wanted)
        self.before = layout_steps.asked_of(network.plan)
        self.began_at = network.steps
        self.step = self._steps_before = network.retired.steps
        self.migrations: dict[Where, Migration] = {}
        self.transfers: dict[tuple[int, int, int], deque[Transfer]] = {}
        self.leaving: set[Where] = set()
        self.is_waiting = True
        self.is_done = False
        self._at: dict[Where, int] = {}
        self._indices: dict[Where, Iterator[None]] = {}
        self._ends = 0
        self._left: set[Where] = set()
        self._moved: list[Any] = []

    @property
    def phase(self) -> str:
        """Where it stands, for faults that shall hit a phase."""
        return "waiting" if self.is_waiting else "leaving" if self.leaving else "moving"

    def begin(self) -> None:
        """No snapshot is under way: the newcomers are there."""
        network = self.network
        self.is_waiting = False
        old = network.plan
        network.plan = plan = old.laid_out(layout_steps.prepared(old, self.wanted))
        for core in network.cores.values():
            core.plan = plan
        for stage in plan.stages:
            for replica in range(old.stage(stage.id).parallelism, stage.parallelism):
                at = (stage.id, replica)
                core = network.new_core(stage, replica)
                core.start(None, is_newcomer=True)
                why = may_move(stage, plan, core.vertex)
                if why:
                    raise RescaleRefused(f"rescale({stage.name!r}, ...): {why}")
                network.tracker.apply(core.take_changes())
                network.views[at].append(network.tracker.view(stage.id))
                network.ready.add(("view", at))
        if self._snapshots is not None:
            self._snapshots.lay_out(plan)
        for at, core in network.cores.items():
            if at[0] in self.wanted and core.vertex is not None:
                index = core.vertex.index_for_giving()
                if index is not None:
                    self._indices[at] = index
                    network.ready.add(("index", at))
        if not self._indices:
            self._next_step()

    def _next_step(self) -> None:
        network = self.network
        self.step = network.retired.steps = self.step + 1
        after = layout_steps.next_layout(network.plan, self.goal, self.groups or network.plan.key_groups)
        network.plan = network.plan.laid_out(after)
        for at in network.cores:
            network.ready.add(("relayout", at))

    # -- events ------------------------------------------------------------------------------------
    def perform(self, kind: str, at: Any) -> None:
        """One event of a change."""
        network = self.network
        if kind == "relayout":
            network.ready.discard((kind, at))
            self._relayout(at)
        elif kind == "transfer":
            waiting = self.transfers[at]
            transfer = waiting.popleft()
            if not waiting:
                network.ready.discard((kind, at))
            stage, source, target = at
            self._relayout((stage, target))
            migration = self.migrations[stage, target]
            migration.on_transfer(source, transfer)
            self._release((stage, target), migration)
            network.after((stage, target))
        elif kind == "index":
            if next(self._indices[at], self) is self:
                network.ready.discard((kind, at))
                del self._indices[at]
        elif kind == "arrive":
            network.ready.discard((kind, at))
            self._arrive(at)
        else:
            network.ready.discard((kind, at))
            self._leave(at)

    def _relayout(self, at: Where) -> None:
        if self._at.get(at, 0) >= self.step:
            return
        self._at[at] = self.step
        network, core = self.network, self.network.cores[at]
        network.move_out(at)
        before, after = core.plan, network.plan
        core.lay_out(after)
        for edge, target in channels_to_mark(before, after, *at):
            network.put((edge, at[1], target), None, Marker(self.step, after))
            self._will_arrive((edge, at[1], target))
        if changes(before, after, at[0]):
            old = self.migrations.get(at)
            if old is not None:
                assert old.is_settled
                self._moved.append(old.cost)
            migration = self.migrations[at] = Migration(core, before, after)
            migration.begin()
            for edge, source in sorted(migration.missing()):
                self._will_arrive((edge, source, at[1]))
        network.after(at)

    def _will_arrive(self, channel: tuple[int, int, int]) -> None:
        if not self.network.edges[channel[0]].is_feedback:
            self.network.ready.add(("arrive", channel))

    def _arrive(self, channel: tuple[int, int, int]) -> None:
        """What is on its way on a channel arrives and is looked at, as a host on Ray does before it queues it: what leaves is taken out."""
        network, edge = self.network, self.network.edges[channel[0]]
        into, at = (channel[0], channel[1]), (edge.target, channel[2])
        waiting = network.channels.get(channel, deque())
        marks = (i for i, (_, mark) in enumerate(waiting) if isinstance(mark, Marker) and mark.step == self.step)
        place = next(marks, None)
        if at in network.cores and place is not None:
            self._relayout(at)
        migration = self.migrations.get(at)
        if migration is None or not migration.takes_out(into):
            return
        kept = deque[tuple[Any, Any]]()
        for _ in range(len(waiting) if place is None else place):
            time, batch = waiting.popleft()
            stays = batch if time is None else migration.take_out(edge.id, time, batch)
            if stays is not None:
                kept.append((time, stays))
            else:
                network.release((edge.source, channel[1]))
        if place is not None:
            waiting.popleft()
            migration.on_marker(into)
        waiting.extendleft(reversed(kept))
        if not waiting:
            network.ready.discard(("batch", channel))
        network.after(at)

    def on_marker(self, at: Where, channel: tuple[int, int], marker: Marker) -> None:
        """A marker is next on a channel."""
        if marker.step < 0:
            self._ends -= 1
            return
        self._relayout(at)
        if marker.step == self.step and at in self.migrations:
            self.migrations[at].on_marker(channel)
            self.network.after(at)

    def receiver(self, at: Where) -> Migration | ReplicaCore:
        """Who takes the next batch of a replica."""
        return self.migrations.get(at) or self.network.cores[at]

    def _release(self, at: Where, migration: Migration) -> None:
        core = self.network.cores[at]
        while migration.released:
            edge, time, batch, _ = migration.released.popleft()
            core.receive(edge, time, batch)

    def fence(self, at: Where) -> None:
        """What a replica passes on leaves when its report so far is applied."""
        migration = self.migrations.get(at)
        if migration is not None and migration.outgoing:
            self.network.reports[at].append(Fence(list(migration.outgoing)))
            migration.outgoing.clear()
            self.network.ready.add(("report", at))

    def on_fence(self, at: Where, fence: Fence) -> None:
        """The reports before it are applied."""
        for target, transfer in fence.outgoing:
            channel = (at[0], at[1], target)
            self.transfers.setdefault(channel, deque()).append(transfer)
            self.network.ready.add(("transfer", channel))

    # -- the end of a step, and of all ----------------------------------------------------------------
    def advance(self) -> bool:
        """Look whether something is settled, and do what follows; False when nothing is."""
        network = self.network
        if self.is_waiting:
            snapshots = self._snapshots
            if snapshots is not None:
                snapshots.tell(lead.ChangeWanted())
            is_free = snapshots is None or (snapshots.leader.may_change and not snapshots.forgetting)
            if is_free:
                self.begin()
            return is_free
        if self.is_done or self._indices:
            return False
        if self.step == self._steps_before:
            self._next_step()
            return True
        if self.leaving:
            has_left = not self._ends and all(self._has_left(at) for at in self.leaving)
            if has_left:
                self._commit()
            return has_left
        if any(self._at.get(at, 0) < self.step for at in network.cores) or any(self.transfers.values()):
            return False
        if not all(migration.is_settled for migration in self.migrations.values()) or self._has_fences():
            return False
        if network.plan.layout != self.goal:
            self._next_step()
            return True
        self.leaving = {at for at in network.cores if at[1] >= network.plan.stage(at[0]).parallelism}
        for at in self.leaving:
            network.ready.add(("leave", at))
        if not self.leaving:
            self._commit()
        return True

    def _has_fences(self) -> bool:
        return any(isinstance(entry, Fence) for waiting in self.network.reports.values() for entry in waiting)

    def _leave(self, at: Where) -> None:
        network, core = self.network, self.network.cores[at]
        core.let_go()
        network.move_out(at)
        before = network.plan.laid_out(layout_steps.prepared(network.plan, {at[0]: at[1] + 1}))
        for edge, target in channels_out(before, before.stage(at[0]), at[1]):
            if target < network.plan.stage(network.edges[edge].target).parallelism:
                self._ends += 1
                network.put((edge, at[1], target), None, Marker(-1, None))
        self._left.add(at)

    def _has_left(self, at: Where) -> bool:
        return at in self._left and not self.network.reports[at]

    def _commit(self) -> None:
        network = self.network
        for core in network.cores.values():
            core.gave()
        for at in self.leaving:
            core = network.cores[at]
            network.retired.batches[at[0]] = network.retired.batches.get(at[0], 0) + core.batches_in
            if self._snapshots is not None:
                participant = self._snapshots.participant(at)
                del self._snapshots.participants[at]
                staged = participant.staged(self._snapshots.snapshots.base)
                network.retired.count += 1
                barrier = Barrier(-network.retired.count, self._snapshots.snapshots.published + 1, 0)
                store, stage = self._snapshots.store.store, core.stage
                self._snapshots.leave_behind(write_staged(store, stage, at[1], self._snapshots.incarnation, barrier, staged))
            else:
                network.retired.staged.extend(core.stage_sinks().items())
            core.close()
            del network.cores[at]
            for waiting in (network.reports, network.views):
                del waiting[at]
            self._forget(at)
        if self._snapshots is not None:
            self._snapshots.lay_out(network.plan)
            for participant in self._snapshots.participants.values():
                participant.lay_out(network.plan)
            self._snapshots.tell(lead.ChangeOver())
        self.is_done = True

    def _forget(self, at: Where) -> None:
        """A replica is gone: so are the marks on the channels to it, of steps that took nothing from it and of attempts given up."""
        network = self.network
        into = [channel for channel in network.channels if (network.edges[channel[0]].target, channel[2]) == at]
        for event in [event for event in network.ready.items if event[1] == at or event[1] in into]:
            network.ready.discard(event)
        for put_aside in (network.blocked, network.aligning):
            put_aside.pop(at, None)
        for channel in into:
            left = sum(time is not None for time, _ in network.channels.pop(channel))
            if left:
                name = network.plan.stage(at[0]).name
                raise InternalError(f"{left} batches were on their way to replica {at[1]} of {name!r}, now gone")

    def told(self) -> Rescale:
        """What it came to."""
        costs = [*self._moved, *(migration.cost for migration in self.migrations.values())]
        return Rescale(
            self.before,
            layout_steps.asked_of(self.network.plan),
            self.step - self._steps_before,
            sum(cost.groups for cost in costs),
            sum(cost.state_bytes for cost in costs),
            sum(cost.passed_on for cost in costs),
            sum(cost.held for cost in costs),
        )


__all__ = ["Fence", "LocalRescale", "Marker"]
