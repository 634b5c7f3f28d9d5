"""Who shares a process: which vertices have actors of their own, and which live in workers. Pure.

*vertices*: each replica is an actor of its own. *workers*: as many workers as the widest vertex has replicas, with at most one replica of
each vertex in a worker. *auto*: a process for each replica while there is a processor for each; else as many workers as there are
processors, or as the widest vertex has replicas. Always by itself is what asks for resources of its own, or runs a function that may end
its process; and, if it is not named, what may take long by its nature: the others of its worker would wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayad.actors.plane.protocol import stage_of
from rayad.actors.replica.places import Places, is_worker
from rayad.dataflow.config import Placement
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.map_batches import MapBatches, is_built
from rayad.dataflow.plan import ApplyStep, Plan, Stage
from rayad.dataflow.resources import Need, Resources
from rayad.progress import ConfigError


def placed(plan: Plan, placement: Placement, cpus: float | None = None, *, upstream: bool = False) -> Places:
    """Where the replicas of a plan live.

    Args:
        plan: in the layout that it begins with.
        placement: as the user says, for all vertices or by name.
        cpus: of the cluster, for "auto". None: not known.
        upstream: whether failed vertices are to be recovered with what is upstream of them alone: then nobody shares a process.
    """
    if upstream:
        asked = placement.values() if isinstance(placement, Mapping) else [placement]
        if "workers" in asked:
            raise ConfigError(
                "ScalingConfig(placement='workers') with FailureConfig(recovery='upstream'): a worker that dies takes a replica of every "
                "vertex with it, so there is nothing that could live on; take recovery='graph', or placement='vertices'"
            )
        return Places()
    names = {stage.name for stage in plan.stages}
    if isinstance(placement, Mapping) and (unknown := sorted(set(placement) - names)):
        raise ConfigError(f"ScalingConfig.placement names {unknown[0]!r}: the vertices of {plan.name!r} are {sorted(names)}")
    named: Mapping[str, str] = placement if isinstance(placement, Mapping) else {}
    otherwise = placement if isinstance(placement, str) else "vertices"
    kinds = {stage.id: named.get(stage.name, otherwise) for stage in plan.stages}
    has_few = cpus is not None and plan.replicas > cpus
    stages = [
        stage
        for stage in plan.stages
        if (kinds[stage.id] == "workers" or (kinds[stage.id] == "auto" and has_few))
        and not is_alone(stage)
        and (stage.name in named or not takes_long(stage))
    ]
    workers = max((stage.parallelism for stage in stages), default=0)
    if cpus is not None and any(kinds[stage.id] == "auto" for stage in stages):
        workers = max(workers, min(int(cpus), sum(stage.parallelism for stage in stages)))
    offsets: dict[int, int] = {}
    turn = 0
    for stage in stages:
        # Those that are as wide as there are workers share owners of keys, so that what is keyed alike stays inside; others take turns.
        offsets[stage.id] = 0 if stage.parallelism == workers else turn % workers
        turn += 0 if stage.parallelism == workers else stage.parallelism
    return Places(workers, offsets)


WORKERS = "workers"
"""How a need of workers is named among those of vertices."""


def needs_of(plan: Plan, places: Places, cpus: float) -> list[Need]:
    """What the processes of a job ask of a cluster; ``cpus`` for each that says nothing of them. A worker runs one replica at a time."""
    alone = [need for stage, need in zip(plan.stages, plan.needs(cpus), strict=True) if stage.id not in places.offsets]
    workers = [process for process in places.processes(plan) if is_worker(process)]
    return [*alone, *([Need(WORKERS, len(workers), Resources().by_name(cpus))] if workers else [])]


def process_needs(process: str, plan: Plan, cpus: float) -> Mapping[str, float]:
    """What one process asks for."""
    resources = None if is_worker(process) else plan.stage(stage_of(process)).resources
    return (resources or Resources()).by_name(cpus)


def is_alone(stage: Stage) -> bool:
    """Whether the replicas of a vertex need processes of their own: for resources, or since a function of theirs may end its process."""
    may_end = any(isinstance(step, ApplyStep) and getattr(step.element, "after_crashes", None) is not None for step in stage.steps)
    return stage.resources is not None or may_end


def takes_long(stage: Stage) -> bool:
    """Whether an activation of a vertex may take long by its nature, in which the others of its worker would wait: a source that waits for
    something, or a class of the user's whose instances are called with batches, as models are."""
    if stage.kind is NodeKind.SOURCE and stage.op.blocks:
        return True
    return any(_is_model(step.element) for step in stage.steps if isinstance(step, ApplyStep))


def _is_model(element: Any) -> bool:
    while hasattr(element, "element"):  # of a step that tries another one, or gives its answers a schema
        element = element.element
    return isinstance(element, MapBatches) and is_built(element.function)


__all__ = ["WORKERS", "is_alone", "needs_of", "placed", "process_needs", "takes_long"]
