"""The actors of one job: who is there, who has to be started, who leaves. Used by the coordinator, which owns them."""

from __future__ import annotations

import time as clock
from collections.abc import Collection
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rayad.actors.outcome import plan_for
from rayad.actors.protocol import PROGRESS, replica_name, stage_of
from rayad.actors.ray_actors import remote_progress, remote_vertex
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.dataflow.resources import Resources

ABANDON_TIMEOUT_S = 5.0
"""How long survivors of a failure may take to leave what they do; then they are killed and replaced."""
END_TIMEOUT_S = 5.0
"""How long to wait for killed actors to be gone."""


def ray_options(resources: Resources | None) -> dict[str, Any]:
    """What a replica asks for, as options of its Ray actor."""
    if resources is None:
        return {}
    asked = {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus, "memory": resources.memory}
    return {name: value for name, value in {**asked, "resources": dict(resources.resources)}.items() if value is not None and value != {}}


class Crew:
    """Actors by plane name."""

    def __init__(self, plan: Plan, config: RunConfig, job: str, secret: bytes) -> None:
        self.plan = plan
        self.actors: dict[str, Any] = {}
        self._cpus = config.cpus_per_replica
        self._identity = (job, secret)
        self.config = config
        self._pings: dict[str, tuple[Any, float]] = {}
        self._pinged_s = 0.0

    def hire(self) -> None:
        """Start every actor that is not there; does not wait."""
        if PROGRESS not in self.actors:
            self.actors[PROGRESS] = remote_progress().options(num_cpus=0).remote(ray.put(plan_for(self.plan, None)), *self._identity)
        for stage in self.plan.stages:
            spec = None
            for replica in range(stage.parallelism):
                name = replica_name(stage.id, replica)
                if name not in self.actors:
                    spec = spec if spec is not None else ray.put(plan_for(self.plan, stage.id))
                    options = {"num_cpus": self._cpus, **ray_options(stage.resources), "scheduling_strategy": "SPREAD"}
                    self.actors[name] = remote_vertex().options(**options).remote(spec, stage.id, replica, self.config, *self._identity)

    def dismiss(self, names: Collection[str]) -> None:
        """End these: they have retired, or will not be needed."""
        for name in names:
            actor = self.actors.pop(name, None)
            self._pings.pop(name, None)
            if actor is not None:
                ray.kill(actor, no_restart=True)

    def names(self) -> list[str]:
        """The replicas, stage by stage."""
        return [replica_name(stage.id, replica) for stage in self.plan.stages for replica in range(stage.parallelism)]

    def replica(self, name: str) -> tuple[str, int]:
        """The vertex of a plane name, and which of its replicas."""
        return self.plan.stage(stage_of(name)).name, int(name.rsplit(".", 1)[-1])

    def relieve(self, names: Collection[str], incarnation: int) -> None:
        """Make these leave what they do in this incarnation. Who is dead, or does not answer, is killed and forgotten."""
        waiting: dict[Any, str] = {}
        for name in names:
            actor = self.actors.get(name)
            self._pings.pop(name, None)
            if actor is not None:
                actor.abandon.remote(incarnation)
                waiting[actor.idle.remote()] = name
        ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=ABANDON_TIMEOUT_S) if waiting else ([], [])
        gone = [waiting[ref] for ref in late]
        for ref in ready:
            try:
                ray.get(ref)
            except (RayActorError, RayTaskError):
                gone.append(waiting[ref])
        for name in gone:
            ray.kill(self.actors.pop(name), no_restart=True)  # also fences one that is only stopped

    def silent(self, names: Collection[str]) -> str | None:
        """One of these that has not answered for too long: stopped, or on a node that is gone (Ray may take a minute to notice)."""
        now_s = clock.monotonic()
        patience_s = self.config.failures.heartbeat_timeout_s
        if now_s - self._pinged_s < min(5.0, patience_s / 4):
            return None
        self._pinged_s = now_s
        for name in names:
            ref, since_s = self._pings.get(name, (None, now_s))
            if ref is None or ray.wait([ref], timeout=0)[0]:
                self._pings[name] = (self.actors[name].ping.remote(), now_s)
            elif now_s - since_s > patience_s:
                return name
        return None

    def end(self) -> None:
        """Kill all actors and see them dead: one that were still alive when the coordinator ends would get a second order to exit from Ray,
        and threaded actors abort noisily when the two orders meet (ray 51582)."""
        actors, self.actors = list(self.actors.values()), {}
        for actor in actors:
            ray.kill(actor, no_restart=True)
        deadline_s = clock.monotonic() + END_TIMEOUT_S
        for actor in actors:
            try:
                ray.get(actor.ping.remote(), timeout=max(0.1, deadline_s - clock.monotonic()))
            except (RayActorError, RayTaskError, GetTimeoutError):
                continue
