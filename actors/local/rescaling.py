"""Changes of layout in the local runtime: the same core as on Ray, each message an event of its own, whose order the seed draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rayad.actors.lead import layout_steps
from rayad.actors.lead import snapshot_leader as lead
from rayad.actors.lead.layout_steps import Rescale
from rayad.actors.local.parts import new_core
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import channels_out, channels_to_mark
from rayad.actors.replica.migration import MutableMigration, Transfer, changes, may_move
from rayad.actors.replica.part_files import write_staged
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError, RescaleRefused
from rayad.snapshots.barrier import Barrier

if TYPE_CHECKING:
    from rayad.actors.local.local_job import LocalJob

Where = tuple[int, int]


class Marker:
    """Behind the last batch that a sender routed by the layout before ``step``; of step -1: behind the last batch of a sender at all."""

    def __init__(self, step: int, plan: Plan | None) -> None:
        self.step = step
        self.plan = plan


class Fence:
    """Among the reports of a replica: what may leave when those before it are applied."""

    def __init__(self, outgoing: list[tuple[int, Transfer]]) -> None:
        self.outgoing = outgoing


@dataclass(slots=True)
class Retired:
    """What replicas that have retired leave in a job: how many, steps of changes so far, batches consumed by stage,
    and without snapshots what they have staged."""

    count: int = 0
    steps: int = 0
    batches: dict[int, int] = field(default_factory=dict)
    staged: list[tuple[int, Any]] = field(default_factory=list)


class LocalRescale:
    """One change of layout of a :class:`LocalJob`.

    Args:
        job: the job.
        wanted: replicas by stage.
        groups: how many key-groups a step moves; None: all at once.
    """

    def __init__(self, job: LocalJob, wanted: Mapping[int, int], *, groups: int | None = None) -> None:
        self.job = job
        self.wanted = dict(wanted)
        self.groups = groups
        self.goal = layout_steps.target(job.plan, wanted)
        self.before = layout_steps.asked_of(job.plan)
        self.began_at = job.steps
        self.step = self._steps_before = job.retired.steps
        self.migrations: dict[Where, MutableMigration] = {}
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
        job = self.job
        self.is_waiting = False
        old = job.plan
        job.plan = plan = old.laid_out(layout_steps.prepared(old, self.wanted))
        for core in job.cores.values():
            core.plan = plan
        for stage in plan.stages:
            for replica in range(old.stage(stage.id).parallelism, stage.parallelism):
                at = (stage.id, replica)
                core = new_core(job, stage, replica)
                core.start(None, is_newcomer=True)
                why = may_move(stage, plan, core.vertex)
                if why:
                    raise RescaleRefused(f"rescale({stage.name!r}, ...): {why}")
                job.tracker.apply(core.take_changes())
                job.views[at].append(job.tracker.view(stage.id))
                job._ready.add(("view", at))
        if job.snapshots is not None:
            job.snapshots.lay_out(plan)
        for at, core in job.cores.items():
            if at[0] in self.wanted and core.vertex is not None:
                index = core.vertex.index_for_giving()
                if index is not None:
                    self._indices[at] = index
                    job._ready.add(("index", at))
        if not self._indices:
            self._next_step()

    def _next_step(self) -> None:
        job = self.job
        self.step = job.retired.steps = self.step + 1
        after = layout_steps.next_layout(job.plan, self.goal, self.groups or job.plan.key_groups)
        job.plan = job.plan.laid_out(after)
        for at in job.cores:
            job._ready.add(("relayout", at))

    # -- events ------------------------------------------------------------------------------------
    def perform(self, kind: str, at: Any) -> None:
        """One event of a change."""
        job = self.job
        if kind == "relayout":
            job._ready.discard((kind, at))
            self._relayout(at)
        elif kind == "transfer":
            waiting = self.transfers[at]
            transfer = waiting.popleft()
            if not waiting:
                job._ready.discard((kind, at))
            stage, source, target = at
            self._relayout((stage, target))
            migration = self.migrations[stage, target]
            migration.on_transfer(source, transfer)
            self._release((stage, target), migration)
            job._after((stage, target))
        elif kind == "index":
            if next(self._indices[at], self) is self:
                job._ready.discard((kind, at))
                del self._indices[at]
        elif kind == "arrive":
            job._ready.discard((kind, at))
            self._arrive(at)
        else:
            job._ready.discard((kind, at))
            self._leave(at)

    def _relayout(self, at: Where) -> None:
        if self._at.get(at, 0) >= self.step:
            return
        self._at[at] = self.step
        job, core = self.job, self.job.cores[at]
        job._move_out(at)
        before, after = core.plan, job.plan
        core.lay_out(after)
        for edge, target in channels_to_mark(before, after, *at):
            job._put((edge, at[1], target), None, Marker(self.step, after))
            self._will_arrive((edge, at[1], target))
        if changes(before, after, at[0]):
            old = self.migrations.get(at)
            if old is not None:
                assert old.is_settled
                self._moved.append(old.cost)
            migration = self.migrations[at] = MutableMigration(core, before, after)
            migration.begin()
            for edge, source in sorted(migration.missing()):
                self._will_arrive((edge, source, at[1]))
        job._after(at)

    def _will_arrive(self, channel: tuple[int, int, int]) -> None:
        if not self.job._edges[channel[0]].is_feedback:
            self.job._ready.add(("arrive", channel))

    def _arrive(self, channel: tuple[int, int, int]) -> None:
        """What is on its way on a channel arrives and is looked at, as a host on Ray does before it queues it: what leaves is taken out."""
        job, edge = self.job, self.job._edges[channel[0]]
        into, at = (channel[0], channel[1]), (edge.target, channel[2])
        waiting = job.channels.get(channel, deque())
        marks = (i for i, (_, mark) in enumerate(waiting) if isinstance(mark, Marker) and mark.step == self.step)
        place = next(marks, None)
        if at in job.cores and place is not None:
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
                job._release((edge.source, channel[1]))
        if place is not None:
            waiting.popleft()
            migration.on_marker(into)
        waiting.extendleft(reversed(kept))
        if not waiting:
            job._ready.discard(("batch", channel))
        job._after(at)

    def on_marker(self, at: Where, channel: tuple[int, int], marker: Marker) -> None:
        """A marker is next on a channel."""
        if marker.step < 0:
            self._ends -= 1
            return
        self._relayout(at)
        if marker.step == self.step and at in self.migrations:
            self.migrations[at].on_marker(channel)
            self.job._after(at)

    def receiver(self, at: Where) -> MutableMigration | ReplicaCore:
        """Who takes the next batch of a replica."""
        return self.migrations.get(at) or self.job.cores[at]

    def _release(self, at: Where, migration: MutableMigration) -> None:
        core = self.job.cores[at]
        while migration.released:
            edge, time, batch, _ = migration.released.popleft()
            core.receive(edge, time, batch)

    def fence(self, at: Where) -> None:
        """What a replica passes on leaves when its report so far is applied."""
        migration = self.migrations.get(at)
        if migration is not None and migration.outgoing:
            self.job.reports[at].append(Fence(list(migration.outgoing)))
            migration.outgoing.clear()
            self.job._ready.add(("report", at))

    def on_fence(self, at: Where, fence: Fence) -> None:
        """The reports before it are applied."""
        for target, transfer in fence.outgoing:
            channel = (at[0], at[1], target)
            self.transfers.setdefault(channel, deque()).append(transfer)
            self.job._ready.add(("transfer", channel))

    # -- the end of a step, and of all ----------------------------------------------------------------
    def advance(self) -> bool:
        """Look whether something is settled, and do what follows; False when nothing is."""
        job = self.job
        if self.is_waiting:
            snapshots = job.snapshots
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
        if any(self._at.get(at, 0) < self.step for at in job.cores) or any(self.transfers.values()):
            return False
        if not all(migration.is_settled for migration in self.migrations.values()) or self._has_fences():
            return False
        if job.plan.layout != self.goal:
            self._next_step()
            return True
        self.leaving = {at for at in job.cores if at[1] >= job.plan.stage(at[0]).parallelism}
        for at in self.leaving:
            job._ready.add(("leave", at))
        if not self.leaving:
            self._commit()
        return True

    def _has_fences(self) -> bool:
        return any(isinstance(entry, Fence) for waiting in self.job.reports.values() for entry in waiting)

    def _leave(self, at: Where) -> None:
        job, core = self.job, self.job.cores[at]
        core.let_go()
        job._move_out(at)
        before = job.plan.laid_out(layout_steps.prepared(job.plan, {at[0]: at[1] + 1}))
        for edge, target in channels_out(before, before.stage(at[0]), at[1]):
            if target < job.plan.stage(job._edges[edge].target).parallelism:
                self._ends += 1
                job._put((edge, at[1], target), None, Marker(-1, None))
        self._left.add(at)

    def _has_left(self, at: Where) -> bool:
        return at in self._left and not self.job.reports[at]

    def _commit(self) -> None:
        job = self.job
        for core in job.cores.values():
            core.gave()
        for at in self.leaving:
            core = job.cores[at]
            job.retired.batches[at[0]] = job.retired.batches.get(at[0], 0) + core.batches_in
            if job.snapshots is not None:
                participant = job.snapshots.participant(at)
                del job.snapshots.participants[at]
                staged = participant.staged(job.snapshots.snapshots.base)
                job.retired.count += 1
                barrier = Barrier(-job.retired.count, job.snapshots.snapshots.published + 1, 0)
                store, stage = job.snapshots.store.store, core.stage
                job.snapshots.leave_behind(write_staged(store, stage, at[1], job.snapshots.incarnation, barrier, staged))
            else:
                job.retired.staged.extend(core.stage_sinks().items())
            core.close()
            del job.cores[at]
            for waiting in (job.reports, job.views):
                del waiting[at]
            self._forget(at)
        if job.snapshots is not None:
            job.snapshots.lay_out(job.plan)
            for participant in job.snapshots.participants.values():
                participant.lay_out(job.plan)
            job.snapshots.tell(lead.ChangeOver())
        self.is_done = True

    def _forget(self, at: Where) -> None:
        """A replica is gone: so are the marks on the channels to it, of steps that took nothing from it and of attempts given up."""
        job = self.job
        into = [channel for channel in job.channels if (job._edges[channel[0]].target, channel[2]) == at]
        for event in [event for event in job._ready.items if event[1] == at or event[1] in into]:
            job._ready.discard(event)
        for put_aside in (job._blocked, job._aligning):
            put_aside.pop(at, None)
        for channel in into:
            left = [time for time, _ in job.channels.pop(channel) if time is not None]
            if left:
                raise InternalError(f"{len(left)} batches were on their way to replica {at[1]} of {job.plan.stage(at[0]).name!r}, now gone")

    def told(self) -> Rescale:
        """What it came to."""
        costs = [*self._moved, *(migration.cost for migration in self.migrations.values())]
        return Rescale(
            self.before,
            layout_steps.asked_of(self.job.plan),
            self.step - self._steps_before,
            sum(cost.groups for cost in costs),
            sum(cost.state_bytes for cost in costs),
            sum(cost.passed_on for cost in costs),
            sum(cost.held for cost in costs),
        )


def start_rescale(job: LocalJob, wanted: Mapping[str, int], *, groups: int | None = None) -> LocalRescale | None:
    """Begin a change of layout, as soon as no snapshot is under way; None: it is so already. Raises RescaleRefused."""
    job._raise_if_over()
    if job._gated:
        raise RescaleRefused(layout_steps.NOT_UPSTREAM)
    if job.rescaling is not None and not job.rescaling.is_done:
        raise RescaleRefused("rescale(...): another change of layout is under way")
    stages = layout_steps.wanted_replicas(job.plan, wanted)
    for stage in stages:
        why = may_move(job.plan.stage(stage), job.plan, job.cores[stage, 0].vertex)
        if why:
            raise RescaleRefused(f"rescale({job.plan.stage(stage).name!r}, {stages[stage]}): {why}")
    if not stages:
        return None
    job.rescaling = LocalRescale(job, stages, groups=groups)
    return job.rescaling


def go_on_as_asked(job: LocalJob) -> None:
    """A job that goes on from a snapshot with other replicas than it was taken with changes to them at once."""
    manifest = job.snapshots.store.manifest if job.snapshots is not None else None
    if manifest is not None and manifest.kind != "final":
        wanted = layout_steps.asked_anew(job.plan, manifest.notes, job.asked)
        if wanted:
            start_rescale(job, wanted)


def rescale_to(job: LocalJob, wanted: Mapping[str, int]) -> Rescale:
    """Run the job until a change of layout is done; after a failure meanwhile it is begun again. One that is under way comes first."""
    layout_steps.wanted_replicas(job.plan, wanted)  # refused at once
    while job.rescaling is not None and not job.rescaling.is_done:
        _step(job, job.rescaling)
    before = layout_steps.asked_of(job.plan)
    change = start_rescale(job, wanted)
    while change is not None and not change.is_done:
        _step(job, change)
        if job.rescaling is not change:
            change = start_rescale(job, wanted)
    if change is None:
        return Rescale(before, layout_steps.asked_of(job.plan))
    return change.told()


def _step(job: LocalJob, change: LocalRescale) -> None:
    if not job.step() and not change.is_done:
        raise InternalError(f"a change of layout cannot go on: step {change.step} of job {job.name!r}\n{job.explain_stuck()}")


__all__ = ["Fence", "LocalRescale", "Marker", "Retired", "go_on_as_asked", "rescale_to", "start_rescale"]
