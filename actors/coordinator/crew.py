"""The actors of one job: who is there, who has to be started, who leaves, who does not answer. Used by the coordinator, which owns them.

Two threads use it: the coordinator's own, and the one that leads a change of layout. A thread that changes it, or reads all of it, takes
its lock.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayad.actors.cluster.spares import Kind, Spares
from rayad.actors.coordinator.outcome import plan_for
from rayad.actors.coordinator.starting import PROGRESS_KIND, Start, new_process, worker_kind
from rayad.actors.lead.heartbeats import Heartbeats
from rayad.actors.plane.protocol import PROGRESS, stage_of
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.process.activity import Activity
from rayad.actors.replica.places import Places, is_worker
from rayad.actors.replica.report import Pulse
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.dataflow.resources import Resources

ABANDON_TIMEOUT_S = 5.0
"""How long survivors of a failure may take to end their activation; then they are killed and replaced."""
END_TIMEOUT_S = 5.0
"""How long to wait for killed actors to be gone."""


def ray_options(resources: Resources | None) -> dict[str, Any]:
    """What a replica asks for, as options of its Ray actor."""
    if resources is None:
        return {}
    asked = {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus, "memory": resources.memory}
    return {name: value for name, value in {**asked, "resources": dict(resources.resources)}.items() if value is not None and value != {}}


def starts_of(plan: Plan, places: Places, cpus: float, job: str) -> list[Start]:
    """The processes of a job. ``cpus``: of each that says nothing of them; ``job``: "" where they are to stay for others."""
    starts: list[Start] = [(PROGRESS, PROGRESS_KIND, (job,) if job else ())]
    for name in places.processes(plan):
        resources = plan.stage(stage_of(name)).resources if not is_worker(name) else None
        options = {"num_cpus": cpus, **ray_options(resources)}
        kind = worker_kind(len(places.offsets), options) if is_worker(name) else Kind("vertex", options)
        starts.append((name, kind, (job, places.who(name, plan)) if job else ()))
    return starts


@dataclass(frozen=True, slots=True)
class Stuck:
    """An actor that is to be given up."""

    name: str
    activity: Activity | None = None
    """The activation that takes longer than RunConfig.activation_timeout_s; None: the process does not answer."""


class Crew:
    """Actors by the name of their process on the plane."""

    def __init__(self, plan: Plan, places: Places, config: RunConfig, job: str, secret: bytes, spares: Spares, *, stays: bool) -> None:
        self.plan = plan
        self.places = places
        self.actors: dict[str, Any] = {}
        self._cpus = config.cpus_per_replica
        self._identity = (job, secret)
        self._spares = spares
        self._stays = stays
        self._kinds: dict[str, Kind] = {}
        self.config = config
        self._lock = threading.RLock()
        self._pings: dict[str, Any] = {}
        self._pulses: dict[str, Pulse] = {}
        self._beats = Heartbeats(config.failures.heartbeat_timeout_s)
        if config.activation_timeout_s is not None:
            self._beats.interval_s = min(self._beats.interval_s, config.activation_timeout_s / 4)

    def start(self, places: Mapping[str, str] | None = None) -> None:
        """Start every actor that is not there; does not wait. ``places``: the node for some of them, unless it has no room now."""
        where = {name: NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True) for name, node in (places or {}).items()}
        with self._lock:
            starts = starts_of(self.plan, self.places, self._cpus, "" if self._stays else self._identity[0])
            self._kinds |= {name: kind for name, kind, _ in starts}
            self._spares.select([kind for _, kind, _ in starts])
            specs: dict[int | None, Any] = {}
            for name, kind, title in starts:
                if name not in self.actors:
                    actor = self._spares.take(kind, title) or new_process(kind, where.get(name, "SPREAD"), *title)
                    self._give(name, actor, specs)
                    self.actors[name] = actor
            if not self._stays:
                self._spares.end()  # prepared for another layout

    def _give(self, name: str, actor: Any, specs: dict[int | None, Any]) -> None:
        """Let a process be this one of the job; ``specs``: the plans that have been put into the object store for others, by stage, None
        for workers, -1 for the progress actor."""
        of = -1 if name == PROGRESS else None if is_worker(name) else stage_of(name)
        if of not in specs:
            specs[of] = ray.put(plan_for(self.plan, [] if of == -1 else self.places.offsets if of is None else [of]))
        if name == PROGRESS:
            actor.take.remote([specs[of]], self.places, *self._identity, bool(self.config.encrypt))
        else:
            actor.take.remote([specs[of]], name, self.places, self.config, *self._identity)

    def stop(self, names: Collection[str]) -> None:
        """End these: they have retired, or will not be needed."""
        with self._lock:
            for name in names:
                actor = self.actors.pop(name, None)
                self._forget(name)
                if actor is not None:
                    ray.kill(actor, no_restart=True)

    def _forget(self, name: str) -> None:
        self._pings.pop(name, None)
        self._pulses.pop(name, None)
        self._beats.forget([name])

    def processes(self) -> list[str]:
        """Those that hold replicas, stage by stage, and workers that hold none now."""
        busy = self.places.processes(self.plan)
        return [*busy, *(name for name in list(self.actors) if is_worker(name) and name not in busy)]

    def replicas(self) -> list[str]:
        """The replicas, stage by stage."""
        return [at.plane_name for at in replicas_of(self.plan.stages)]

    def holder(self, replica: str) -> Any:
        """The actor of the process that holds a replica; None when it is not there."""
        return self.actors.get(self.places.process_of(*ReplicaId.from_plane_name(replica)))

    def release(self, names: Collection[str], incarnation: int, stuck: Collection[str] = ()) -> None:
        """Let these end their work in this incarnation. An actor that is dead, stuck or silent is killed and forgotten."""
        with self._lock:
            waiting: dict[Any, str] = {}
            gone = []
            for name in names:
                actor = self.actors.get(name)
                self._forget(name)
                if actor is not None and name in stuck:
                    gone.append(name)
                elif actor is not None:
                    actor.abandon.remote(incarnation)
                    waiting[actor.idle.remote()] = name
            ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=ABANDON_TIMEOUT_S) if waiting else ([], [])
            gone.extend(waiting[ref] for ref in late)
            for ref in ready:
                try:
                    ray.get(ref, timeout=ABANDON_TIMEOUT_S)
                except (RayActorError, RayTaskError, GetTimeoutError):
                    gone.append(waiting[ref])
            for name in gone:
                ray.kill(self.actors.pop(name), no_restart=True)  # also fences one that is only stopped

    def find_stuck(self, names: Collection[str]) -> Stuck | None:
        """One of these that has been silent for too long (its process is stopped, or its node is gone, which Ray may take a minute to
        notice), or whose activation takes longer than it may. Cheap when it is not time for a look."""
        now_s = clock.monotonic()
        with self._lock:
            if not self._beats.is_due(now_s):
                return None
            there = [name for name in names if name in self.actors]  # others have just been sent away
            self._listen()
            for name in self._beats.look(there, now_s):
                self._pings[name] = self.actors[name].ping.remote()
            most_s = self.config.activation_timeout_s
            for name, pulse in self.busy(most_s) if most_s is not None else ():
                if name in there:
                    return Stuck(name, pulse.activity)
            silent = self._beats.silent()
            return Stuck(silent) if silent is not None else None

    def _listen(self) -> None:
        """Take the answers that have come."""
        asked = {ref: name for name, ref in self._pings.items()}
        ready = ray.wait(list(asked), num_returns=len(asked), timeout=0)[0] if asked else []
        for ref in ready:
            name = asked[ref]
            del self._pings[name]
            self._beats.on_answer(name)
            try:
                self._pulses[name] = ray.get(ref, timeout=1.0)
            except (RayActorError, RayTaskError, GetTimeoutError):
                self._pulses.pop(name, None)  # its long call tells of its death

    def last_pulse(self, name: str) -> tuple[Pulse | None, float]:
        """What an actor last told of itself, and for how long it has been silent since."""
        with self._lock:
            return self._pulses.get(name), self._beats.silence_s(name)

    def busy(self, longer_than_s: float) -> list[tuple[str, Pulse]]:
        """Replicas that were in an activation for longer than this when they last answered, the longest first."""
        with self._lock:
            pulses = list(self._pulses.items())
        busy = [(pulse.activity.for_s, name, pulse) for name, pulse in pulses if pulse.activity and pulse.activity.for_s > longer_than_s]
        return [(name, pulse) for _, name, pulse in sorted(busy, key=lambda one: -one[0])]

    def is_busy(self, longer_than_s: float) -> bool:
        """Whether some replica is in a long activation: what needs its event loop takes as long."""
        return bool(self.busy(longer_than_s))

    def rest(self) -> bool:
        """The job is complete: its processes are spare, for the next one. False where they are not to stay."""
        if not self._stays:
            return False
        with self._lock:
            actors, self.actors = self.actors, {}
            for name, actor in actors.items():
                self._spares.keep(self._kinds[name], actor)
        return True

    def end(self) -> None:
        """Kill all actors and wait until they are dead. Ray tells one that outlives the coordinator to exit a second time, and threaded
        actors abort noisily when the two orders meet (ray 51582)."""
        with self._lock:
            actors, self.actors = list(self.actors.values()), {}
            for actor in actors:
                ray.kill(actor, no_restart=True)
            self._spares.end()
        deadline_s = clock.monotonic() + END_TIMEOUT_S
        for actor in actors:
            try:
                ray.get(actor.ping.remote(), timeout=max(0.1, deadline_s - clock.monotonic()))
            except (RayActorError, RayTaskError, GetTimeoutError):
                continue
