"""Who shares a process: which vertices have actors of their own, and which live in workers. Pure.

*vertices*: each replica is an actor of its own. *workers*: as many workers as the widest vertex has replicas, with at most one replica of each
vertex in a worker. Always by itself is what asks for resources of its own, blocks in its source, or runs a function that may end its process.
"""

from __future__ import annotations

from collections.abc import Mapping

from rayad.actors.replica.places import Places
from rayad.dataflow.config import Placement
from rayad.dataflow.plan import ApplyStep, Plan, Stage


def placed(plan: Plan, placement: Placement, cpus: float | None = None) -> Places:
    """Where the replicas of a plan live.

    Args:
        plan: in the layout that it begins with.
        placement: as the user says, for all vertices or by name.
        cpus: of the cluster; with "auto" each replica has an actor of its own where there is a processor for each. None: not known.
    """
    by_name: Mapping[str, str] = placement if isinstance(placement, Mapping) else {}
    otherwise = placement if isinstance(placement, str) else "auto"
    shares = cpus is not None and plan.replicas > cpus
    chosen = {
        stage.id: _shares(stage, by_name.get(stage.name, otherwise), shares) for stage in plan.stages
    }
    stages = [stage for stage in plan.stages if chosen[stage.id]]
    workers = max((stage.parallelism for stage in stages), default=0)
    offsets: dict[int, int] = {}
    turn = 0
    for stage in stages:
        # Those that are as wide as there are workers share owners of keys, so that what is keyed alike stays inside; others take turns.
        offsets[stage.id] = 0 if stage.parallelism == workers else turn % workers
        turn += 0 if stage.parallelism == workers else stage.parallelism
    return Places(workers, offsets)


def _shares(stage: Stage, asked: str, shares: bool) -> bool:
    """Whether the replicas of a vertex live in workers."""
    if is_alone(stage):
        return False
    return shares if asked == "auto" else asked == "workers"


def is_alone(stage: Stage) -> bool:
    """Whether the replicas of a vertex need processes of their own: for resources, or since a function of theirs may end its process."""
    may_end = any(isinstance(step, ApplyStep) and getattr(step.element, "after_crashes", None) is not None for step in stage.steps)
    return stage.resources is not None or may_end


__all__ = ["is_alone", "placed"]
