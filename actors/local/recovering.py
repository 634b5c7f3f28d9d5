"""Starts and recoveries of a local job: carries out what :class:`RecoveryLeader` decides, on its bus.

Each process is built, and each answer arrives, in an order that the seed draws, so that a failure can strike between any two of them. An
answer that is on its way is not lost with the incarnation that gave it: it may come late, and the leader has to know that it is void.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rayad.actors.lead.recovery_leader import Event, Listen, Listens, RollBack, RolledBack, Run, Switch
from rayad.actors.local.coordinator import LocalKeptJob
from rayad.actors.local.processes import Processes
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.source_parts import Resumable, parts_of
from rayad.actors.worker.upstream import roll_back
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError


@dataclass(frozen=True, slots=True)
class Build:
    """A process that is to be built."""

    name: str
    incarnation: int
    incarnations: Mapping[str, int]


class LocalRecovery:
    """What is built, and the answers that are on their way.

    Args:
        job: see there.
        processes: of the job.
        chance: draws what happens next.
    """

    def __init__(self, job: LocalKeptJob, processes: Processes, chance: random.Random) -> None:
        self._job = job
        self.under_way: list[Build | Event] = []
        self._processes = processes
        self._chance = chance

    # -- what happens --------------------------------------------------------------------------------
    def answer(self, events: Iterable[Event]) -> None:
        """These are on their way to the leader."""
        self.under_way.extend(events)

    @property
    def has_more(self) -> bool:
        """Whether anything is under way."""
        return bool(self.under_way) or self._job.store_thread.has_work

    def draw(self) -> Build | Event | None:
        """What happens next; None: the store is called."""
        at = int(self._chance.random() * (len(self.under_way) + self._job.store_thread.has_work))
        return self.under_way.pop(at) if at < len(self.under_way) else None

    def build(self, build: Build, plan: Plan) -> None:
        """A process, and what it holds, become what they are to resume from; they do not run yet."""
        processes, name = self._processes, build.name
        processes.come(name, plan, build.incarnation, build.incarnations)
        parts = self._parts(plan)
        held = list(processes.places.replicas_at(name, plan))
        for at in self._chance.sample(held, len(held)):
            processes.hold(name, at, part=parts.get(at))

    def _parts(self, plan: Plan) -> dict[ReplicaId, Resumable]:
        """What replicas resume from."""
        if self._job.snapshots is None:
            return {}
        stages = {stage.name: stage.id for stage in plan.stages}
        parts = parts_of(self._job.snapshots.manifest, plan).items()
        return {ReplicaId(stages[name], replica): part for (name, replica), part in parts if name in stages}

    # -- what is to be done --------------------------------------------------------------------------
    def release(self, names: Collection[str] | None, plan: Plan) -> None:
        """These processes are gone (None: all), with what they were about to build."""
        processes = self._processes
        self.under_way = [item for item in self.under_way if not isinstance(item, Build)]
        if names is None:
            processes.begin_anew(plan, processes.progress.link.incarnation)
            return
        for name in names:
            if name in processes.workers:
                processes.lose(name)

    def switch(self, effect: Switch) -> None:
        """The progress worker removes what it counts for these."""
        self._processes.progress.switch(effect.names, effect.region, effect.incarnation)

    def listen(self, effect: Listen, plan: Plan) -> None:
        """These are to be built. The progress worker is there as soon as it is asked."""
        snapshots = self._job.snapshots
        if effect.is_of_all:
            self._processes.begin_anew(plan, effect.incarnation)
            if snapshots is not None:
                self._processes.store = snapshots.store.store
                snapshots.listen("", effect.incarnation, "off")
            self.answer([Listens(PROGRESS, effect.incarnation, PROGRESS)])
        elif snapshots is not None:
            snapshots.expect(effect.names, effect.incarnation)
        names = [name for name in effect.names if name != PROGRESS]
        links = self._processes.bus.links
        known = {name: links[name].incarnation for name in (COORDINATOR,) if name in links} | dict(effect.incarnations)
        self.under_way.extend(Build(name, effect.incarnation, known) for name in names)

    def run(self, effect: Run, plan: Plan) -> None:
        """Those that have been built run from now on."""
        processes = self._processes
        names = [name for name in effect.names if name != PROGRESS]
        missing = [name for name in names if name not in processes.workers]
        if missing:
            raise InternalError(f"{missing} are to run in incarnation {effect.incarnation}, and have not been built")
        addresses = dict.fromkeys((PROGRESS, COORDINATOR, *processes.places.processes(plan)))
        for name in self._chance.sample(names, len(names)):
            processes.begin(name, addresses)

    def roll_back(self, effect: RollBack, plan: Plan) -> None:
        """Those that live on forget what came from the region; each process holds one replica."""
        parts = self._parts(plan)
        for name in self._chance.sample(effect.names, len(effect.names)):
            worker = self._processes.workers[name]
            (host,) = worker.hosts.values()
            assert host.snapshots is not None
            part = parts.get(host.place.at)
            roll_back(host.place, host.snapshots, effect.region.edges, effect.addresses, effect.incarnation, part, effect.void)
            self._processes.look(name)
            self.answer([RolledBack(name, effect.incarnation)])


__all__ = ["Build", "LocalRecovery"]
