"""Which processes a job has, and what each has to be."""

from __future__ import annotations

from typing import Any

from rayad.actors.coordinator.processes.kinds import PROGRESS_KIND, Kind, Start, worker_kind
from rayad.actors.lead.placing import process_needs
from rayad.actors.plane.protocol import PROGRESS, stage_of
from rayad.actors.replica.places import Places, is_worker
from rayad.dataflow.plan import Plan
from rayad.dataflow.resources import Resources


def ray_options(resources: Resources | None) -> dict[str, Any]:
    """What a replica asks for, as options of its Ray actor."""
    if resources is None:
        return {}
    asked = {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus, "memory": resources.memory}
    return {name: value for name, value in {**asked, "resources": dict(resources.resources)}.items() if value is not None and value != {}}


def starts_of(plan: Plan, places: Places, cpus: float, job: str) -> list[Start]:
    """The processes of a job. ``cpus``: of each that says nothing of them; ``job``: "" where they are to stay for others."""
    starts = [Start(PROGRESS, PROGRESS_KIND, (job,) if job else ())]
    for name in places.processes(plan):
        if is_worker(name):
            kind = worker_kind(len(places.offsets), cpus)
        else:
            kind = Kind("vertex", {"num_cpus": cpus, **ray_options(plan.stage(stage_of(name)).resources)})
        title = (job, places.who(name, plan)) if job else ()
        starts.append(Start(name, kind, title, process_needs(name, plan, cpus)))
    return starts


__all__ = ["ray_options", "starts_of"]
