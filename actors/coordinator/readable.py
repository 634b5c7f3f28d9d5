"""What those need who read the state of a running job: where its replicas are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.job import JobState
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.replica.places import Places
from rayad.actors.tables.where import Where
from rayad.dataflow.logical_graph import NodeKind

if TYPE_CHECKING:
    from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
    from rayad.dataflow.plan import Plan


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the replicas of a job are.

    Args:
        owners: by stage of a vertex: the replica that owns each key-group.
        places: which process holds which replica.
        actors: the processes, by name.
        where: where their planes listen, by name.
        starts: the replicas of sources and live inputs.
        titles: of processes, as people know them.
    """

    owners: Mapping[int, tuple[int, ...]]
    places: Places
    actors: Mapping[str, Any]
    where: Mapping[str, Where]
    starts: tuple[ReplicaId, ...]
    titles: Mapping[str, str]


def layout_of(job: RunningJob) -> Layout | None:
    """The layout of a job that runs; None: it does not, or not now."""
    if job.state is not JobState.RUNNING or not job.running.is_set():
        return None
    plan, actors = job.plan, dict(job.crew.actors)
    owners = {stage.id: plan.owners(stage) for stage in plan.stages if stage.kind is NodeKind.VERTEX}
    starts = tuple(replicas_of([stage for stage in plan.stages if stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)]))
    there = {name: actors[name] for name in job.crew.processes() if name in actors}
    found = {name: job.found[name] for name in there if name in job.found}
    where = {
        name: Where(name, address, incarnation, job.job, job.secret, bool(job.config.encrypt))
        for name, (address, incarnation, _) in found.items()
    }
    return Layout(owners, job.places, there, where, starts, {name: job.places.title(name, plan) for name in there})


def committed_of(plan: Plan, snapshots: CoordinatorSnapshots | None) -> dict[int, int] | None:
    """By stage the last epoch that a snapshot of this incarnation holds; None: there are no snapshots."""
    if snapshots is None:
        return None
    found = snapshots.committed
    return {stage.id: found.get(stage.name, -1) for stage in plan.stages}


__all__ = ["Layout", "committed_of", "layout_of"]
