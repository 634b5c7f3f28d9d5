"""The actors of one job: who is there, who has to be started, who leaves, who does not answer. Used by the coordinator, which owns them.

Two threads use it: the coordinator's own, and the one that leads a change of layout. A thread that changes it, or reads all of it, takes
its lock.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayad.actors.coordinator.outcome import plan_for
from rayad.actors.coordinator.processes.kinds import Kind, Start, worker_kind
from rayad.actors.coordinator.processes.sites import Sites
from rayad.actors.coordinator.processes.spares import Spares
from rayad.actors.coordinator.processes.starts import starts_of
from rayad.actors.coordinator.surroundings import CoordinatorSurroundings, Gave
from rayad.actors.lead.heartbeats import Heartbeats
from rayad.actors.lead.placing import process_needs
from rayad.actors.plane.protocol import PROGRESS, stage_of
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.process.activity import Activity
from rayad.actors.replica.places import Places, is_worker
from rayad.actors.replica.report import Pulse
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan

ABANDON_TIMEOUT_S = 5.0
"""How long survivors of a failure may take to end their activation; then they are killed and replaced."""
END_TIMEOUT_S = 5.0
"""How long to wait for killed actors to be gone."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """An actor that is to be given up."""

    name: str
    activity: Activity | None = None
    """The activation that takes longer than RunConfig.activation_timeout_s; None: the process does not answer."""


@dataclass(frozen=True, slots=True)
class Relief:
    """A process that has just been started or taken, for a place of its own or for that of another when that leaves its node."""

    actor: Any
    kind: Kind
    ping: Any
    """Answered when it is there."""
    node: str | None
    shares: bool = False
    """It asks for no processor."""


class Crew:
    """Actors by the name of their process on the plane."""

    def __init__(
        self,
        plan: Plan,
        places: Places,
        config: RunConfig,
        identity: tuple[str, bytes],
        around: CoordinatorSurroundings,
        sites: Sites,
        spares: Spares,
        *,
        stays: bool = False,
    ) -> None:
        self.plan = plan
        self.places = places
        self.actors: dict[str, Any] = {}
        self.sites = sites
        self._port, self._clock = around.actors, around.clock
        self._reliefs: dict[str, Relief] = {}
        self._spares = spares
        self._stays = stays
        self._kinds: dict[str, Kind] = {}
        self.sharing: frozenset[str] = frozenset()
        """Workers that ask for no processor, since there was no room."""
        self.to_move: frozenset[str] = frozenset()
        """Those of them that are to get processors of their own."""
        self._cpus = config.cpus_per_replica
        self._identity = identity
        self.config = config
        self._lock = threading.RLock()
        self._pings: dict[str, Any] = {}
        self._pulses: dict[str, Pulse] = {}
        self._beats = Heartbeats(config.failures.heartbeat_timeout_s)
        if config.activation_timeout_s is not None:
            self._beats.interval_s = min(self._beats.interval_s, config.activation_timeout_s / 4)

    def start(self) -> None:
        """Start every actor that is not there; does not wait."""
        with self._lock:
            self._spares.select([start.kind for start in self._starts()])
            missing = [name for name in (PROGRESS, *self.places.processes(self.plan)) if name not in self.actors]
            for name, relief in self._started(missing, self.sharing, again=True).items():
                self._take_in(name, relief)
            if not self._stays:
                self._spares.end()  # prepared for another layout

    def share(self, names: Collection[str]) -> list[str]:
        """Of these processes, which do not start: let the workers for which no node has room share the processors that are there. Gives
        those; they are started anew."""
        with self._lock:
            workers = [name for name in names if is_worker(name) and name not in self.sharing and name in self.actors]
            lacking = self.sites.without_room(self._needs(workers))
            for name in lacking:
                self._forget(name)
                self._kill(name)
            self.sharing |= frozenset(lacking)
            self.start()
            return lacking

    def could_spread(self) -> frozenset[str]:
        """The workers that share processors and for which there is room now."""
        with self._lock:
            sharing = self.sharing
            return sharing - frozenset(self.sites.without_room(self._needs(sharing))) if sharing else sharing

    def start_reliefs(self, names: Collection[str]) -> None:
        """Start a process elsewhere for each of these, which is to take its place; does not wait."""
        with self._lock:
            missing = [name for name in names if name not in self._reliefs]
            self._reliefs |= self._started(missing)

    def share_reliefs(self) -> list[str]:
        """Let the workers among the reliefs for which no node has room share the processors that are there. Gives those."""
        missing = [name for name in self.missing_reliefs() if is_worker(name)]
        with self._lock:
            lacking = self.sites.without_room(self._needs(missing))
            for name in lacking:
                self._drop_relief(name)
            self._reliefs |= self._started(lacking, lacking)
            return lacking

    def missing_reliefs(self) -> list[str]:
        """Those that have not answered yet."""
        with self._lock:
            pings = {relief.ping: name for name, relief in self._reliefs.items()}
        ready = set(self._port.wait(list(pings), 0.0, len(pings)))
        return [name for ping, name in pings.items() if ping not in ready]

    def drop_reliefs(self, names: Collection[str] | None = None) -> None:
        """Those of these (None: all) are not needed."""
        with self._lock:
            for name in list(self._reliefs if names is None else names):
                self._drop_relief(name)

    def _drop_relief(self, name: str) -> None:
        relief = self._reliefs.pop(name, None)
        if relief is not None:
            self._port.kill(relief.actor)

    def _take_in(self, name: str, relief: Relief) -> None:
        """This is the process of that name from now on."""
        self.actors[name] = relief.actor
        self._kinds[name] = relief.kind
        self._pings[name] = relief.ping
        self.sites.put(name, relief.node)

    def _starts(self) -> list[Start]:
        return starts_of(self.plan, self.places, self._cpus, "" if self._stays else self._identity[0])

    def _started(self, names: Sequence[str], sharing: Collection[str] = (), *, again: bool = False) -> dict[str, Relief]:
        """Start these processes, each where it is to be; ``sharing``: those that ask for no processor; ``again``: the spare processes that
        were selected may be used, wherever they are."""
        wanted = {start.name: start for start in self._starts()}
        empty = worker_kind(len(self.places.offsets), self._cpus)
        starts = [wanted.get(name, Start(name, empty)) for name in names]
        kinds = {start.name: start.kind.sharing() if start.name in sharing else start.kind for start in starts}
        there = {start.name: self._spares.take(kinds[start.name], start.title) for start in starts} if again else {}
        found = {name: spare for name, spare in there.items() if spare is not None}
        for name, (_, node) in found.items():
            self.sites.put(name, node)
        missing = [name for name in names if name not in found]
        needs = {name: asked for name, asked in self._needs(missing).items() if name not in sharing}
        sites = self.sites.choose(missing, needs) if missing else {}
        for start in starts:
            if start.name in sites:
                site = sites[start.name]
                found[start.name] = self._port.start(kinds[start.name], start.title, site), site.node
        specs: dict[int | None, Any] = {}
        for name, (actor, _) in found.items():
            self._give(name, actor, specs)
        return {
            name: Relief(actor, kinds[name], self._port.call(actor, "ping"), node, name in sharing) for name, (actor, node) in found.items()
        }

    def _needs(self, names: Iterable[str]) -> dict[str, Mapping[str, float]]:
        """What processes ask for where there is room; the progress actor asks for nothing."""
        return {name: process_needs(name, self.plan, self._cpus) for name in names if name != PROGRESS}

    def _give(self, name: str, actor: Any, specs: dict[int | None, Any]) -> None:
        """Let a process be this one of the job; ``specs``: the plans as they were sent to others, by stage, None for workers, -1 for the
        progress actor. Not the plan that the driver has sent: these sinks know what they continue."""
        of = -1 if name == PROGRESS else None if is_worker(name) else stage_of(name)
        if of not in specs:
            specs[of] = self._port.parcel(plan_for(self.plan, [] if of == -1 else self.places.offsets if of is None else [of]))
        if name == PROGRESS:
            self._port.call(actor, "take", specs[of], self.places, *self._identity, bool(self.config.encrypt))
        else:
            self._port.call(actor, "take", specs[of], name, self.places, self.config, *self._identity, self.plan.has_columns)

    def stop(self, names: Collection[str]) -> None:
        """End these: they have retired, or will not be needed."""
        with self._lock:
            for name in names:
                self._forget(name)
                self._drop_relief(name)
                if name in self.actors:
                    self._kill(name)

    def _kill(self, name: str) -> None:
        """End one; this also fences one that is only stopped. Its relief takes its place, if there is one."""
        self._port.kill(self.actors.pop(name))
        self.sites.forget(name)
        self.sharing -= {name}
        self.to_move -= {name}
        relief = self._reliefs.pop(name, None)
        if relief is not None:
            self._take_in(name, relief)
            self.sharing |= {name} if relief.shares else set()

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
            self._listen()  # while the job begins nobody does, and an answer says where Ray has put a process
            waiting: dict[Any, str] = {}
            gone, pings = [], {}
            for name in names:
                actor = self.actors.get(name)
                self._forget(name)
                if actor is not None and name in stuck:
                    gone.append(name)
                elif actor is not None:
                    self._port.call(actor, "abandon", incarnation)
                    pings[name] = self._port.call(actor, "ping")
                    waiting[self._port.call(actor, "idle")] = name
            ready = set(self._port.wait(list(waiting), ABANDON_TIMEOUT_S, len(waiting)))
            self._note_silence({name: pings[name] for ref, name in waiting.items() if ref not in ready}, pings)
            for ref, name in waiting.items():
                if ref not in ready or not isinstance(self._port.take(ref, ABANDON_TIMEOUT_S), Gave):
                    gone.append(name)
            for name in gone:
                self._kill(name)

    def _note_silence(self, late: Mapping[str, Any], pings: Mapping[str, Any]) -> None:
        """Which nodes these are silent on: a process in a long activation answers its ping, and says where it is. One that has died ends
        it, which is Ray's word and not its node's."""
        if not late:
            return
        mute, silences_s = set(pings.values()) - set(self._port.wait(list(pings.values()), 0.0, len(pings))), {}
        for name, ping in pings.items():
            if ping in mute:
                silences_s[name] = ABANDON_TIMEOUT_S
            elif isinstance(answer := self._port.take(ping, ABANDON_TIMEOUT_S), Gave):
                silences_s[name] = 0.0
                self.sites.on_answer(name, answer.value.node_id)
        for name, ping in late.items():
            if ping in mute:
                self.sites.on_silence(name, silences_s, ABANDON_TIMEOUT_S)

    def find_stuck(self, names: Collection[str]) -> Stuck | None:
        """One of these that has been silent for too long (its process is stopped, or its node is gone, which Ray may take a minute to
        notice), or whose activation takes longer than it may. Cheap when it is not time for a look."""
        now_s = self._clock.monotonic()
        with self._lock:
            if not self._beats.is_due(now_s):
                return None
            there = [name for name in names if name in self.actors]  # others have just been sent away
            self._listen()
            for name in self._beats.look(there, now_s):
                self._pings[name] = self._port.call(self.actors[name], "ping")
            most_s = self.config.activation_timeout_s
            for name, pulse in self.busy(most_s) if most_s is not None else ():
                if name in there:
                    return Stuck(name, pulse.activity)
            silent = self._beats.silent()
            if silent is not None:
                self.sites.on_silence(silent, {name: self._beats.silence_s(name) for name in there}, self._beats.patience_s)
            return Stuck(silent) if silent is not None else None

    def _listen(self) -> None:
        """Take the answers that have come."""
        asked = {ref: name for name, ref in self._pings.items()}
        for ref in self._port.wait(list(asked), 0.0, len(asked)):
            name = asked[ref]
            del self._pings[name]
            self._beats.on_answer(name)
            answer = self._port.take(ref, 1.0)
            if isinstance(answer, Gave):
                self._pulses[name] = answer.value
                self.sites.on_answer(name, answer.value.node_id)
            else:
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
        self.drop_reliefs()
        with self._lock:
            actors, self.actors = self.actors, {}
            for name, actor in actors.items():
                self._spares.keep(self._kinds[name], actor, self.sites.on.get(name))
        return True

    def end(self) -> None:
        """Kill all actors and wait until they are dead. Ray tells one that outlives the coordinator to exit a second time, and threaded
        actors abort noisily when the two orders meet (ray 51582)."""
        self.drop_reliefs()
        with self._lock:
            actors, self.actors = list(self.actors.values()), {}
            for actor in actors:
                self._port.kill(actor)
            self._spares.end()
        deadline_s = self._clock.monotonic() + END_TIMEOUT_S
        for actor in actors:
            self._port.take(self._port.call(actor, "ping"), max(0.1, deadline_s - self._clock.monotonic()))
