"""Starts and recoveries in the local runtime: carries out what :class:`RecoveryLeader` decides.

Each replica is built, and each answer arrives, in an order that the seed draws, so that a failure can strike between any two of them. An
answer that is on its way is not lost with the incarnation that gave it: it may come late, and the leader has to know that it is void.
While something is restarted, what lives on stands still.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from rayad.actors.lead.recovery_leader import Event, Listen, Listens, RollBack, RolledBack, Run
from rayad.actors.local.network import Network, Where
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.plane.protocol import PROGRESS, replica_name
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.part_files import read_part
from rayad.actors.replica.rest import ResumedPart
from rayad.actors.replica.source_parts import parts_of
from rayad.actors.replica.upstream import Changes, Region, zeroing
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError

OF_CHANNELS = ("batch", "overtake", "credit")
OF_THE_COORDINATOR = ("acknowledge", "publish", "commit")


@dataclass(frozen=True, slots=True)
class Build:
    """A replica that is to be built."""

    name: str
    incarnation: int


def where(name: str) -> Where:
    """A replica by its name on a data plane."""
    return ReplicaId.from_plane_name(name)


def names_of_stages(plan: Plan, stages: Collection[int]) -> frozenset[str]:
    """All their replicas."""
    return frozenset(replica_name(stage.id, replica) for stage in plan.stages if stage.id in stages for replica in range(stage.parallelism))


class LocalRecovery:
    """What is built, and the answers that are on their way.

    Args:
        network: of the job.
        chance: draws what happens next.
    """

    def __init__(self, network: Network, chance: random.Random) -> None:
        self.network = network
        self.snapshots: LocalSnapshots | None = None
        self.under_way: list[Build | Event] = []
        self._chance = chance
        self._resumed: dict[Where, ResumedPart | None] = {}  # those that have been built and do not run yet
        self._changes: Changes = []

    # -- what happens ----------------------------------------------------------------------------------
    def answer(self, events: Iterable[Event]) -> None:
        """These are on their way to the leader."""
        self.under_way.extend(events)

    def draw(self) -> Build | Event:
        """What happens next."""
        return self.under_way.pop(int(self._chance.random() * len(self.under_way)))

    def build(self, name: str) -> None:
        """A replica becomes what it is to resume from; it does not run yet."""
        network = self.network
        at = where(name)
        old = network.cores.get(at)
        if old is not None:
            old.close()
        core = network.new_core(network.plan.stage(at[0]), at[1])
        resumed = self._read(at)
        core.start(resumed)
        self._resumed[at] = resumed

    def _read(self, at: Where) -> ResumedPart | None:
        """What a replica resumes from."""
        snapshots = self.snapshots
        manifest = snapshots.store.manifest if snapshots is not None else None
        if snapshots is None or manifest is None:
            return None
        plan = self.network.plan
        part = parts_of(manifest, plan).get((plan.stage(at[0]).name, at[1]))
        return read_part(snapshots.store.store, part) if part is not None else None

    # -- what is to be done ----------------------------------------------------------------------------
    def release(self, names: Collection[str] | None) -> None:
        """These replicas are gone (None: all), with what they were about to build."""
        network = self.network
        self.under_way = [item for item in self.under_way if not isinstance(item, Build)]
        self._resumed = {}
        if names is None:
            network.close()
            network.cores = {}

    def listen(self, effect: Listen) -> None:
        """These are to be built. The progress core is there as soon as it is asked."""
        replicas = [name for name in effect.names if name != PROGRESS]
        self.under_way.extend(Build(name, effect.incarnation) for name in replicas)
        if effect.is_of_all:
            self.answer([Listens(PROGRESS, effect.incarnation)])

    def run(self, effect: Run) -> None:
        """Those that have been built run from now on."""
        network = self.network
        names = [name for name in effect.names if name != PROGRESS]
        missing = [name for name in names if where(name) not in self._resumed]
        if missing:
            raise InternalError(f"{missing} are to run in incarnation {effect.incarnation}, and have not been built")
        if PROGRESS in effect.names:
            network.cores = {at: network.cores[at] for at in map(where, names)}  # in the order of the plan, however they were built
            self._refill(names)
            for at, core in network.cores.items():
                network.subscribe(at)
                network.tracker.apply(core.take_changes())
                network.begin(at)
            network.publish()
        else:
            self._refill(names)
            for name in names:
                network.begin(where(name))
            self._replace()
        self._resumed = {}

    def _refill(self, names: Iterable[str]) -> None:
        """What was on its way to and from these is so again."""
        places = [where(name) for name in names]
        for at in places:
            resumed = self._resumed[at]
            if resumed is not None:
                self.network.refill(at, resumed.rest["log"])
        for at in places:
            resumed = self._resumed[at]
            if resumed is not None:
                self.network.refill_outbox(at, resumed.rest["outbox"])

    # -- recovery upstream of a failure ----------------------------------------------------------------
    def roll_back(self, effect: RollBack) -> None:
        """Those that live on forget what came from the region, which is taken out of the progress core."""
        network, snapshots, region = self.network, self.snapshots, effect.region
        assert snapshots is not None
        living = [where(name) for name in effect.names]
        parts = {at: self._read(at) for at in living if network.cores[at].gate is not None}
        for at in living:
            network.move_out(at)  # else what it has consumed of the region would be taken off after the region's counts are gone
            while network.reports[at]:
                network.tracker.apply(network.reports[at].popleft())
        _clear(network, region)
        self._changes = zeroing(network.plan, network.tracker, region)
        for at in living:
            if at in parts:
                network.cores[at].roll_back(region.edges, parts[at])
            if effect.void:
                snapshots.carry_out(at, snapshots.participant(at).give_up(effect.void))
                network.unblock(at)
        self.answer(RolledBack(name, effect.incarnation) for name in effect.names)

    def _replace(self) -> None:
        """The progress core sees one change: the old counts of the region go, and what its replicas hold now comes."""
        network = self.network
        changes, self._changes = self._changes, []
        for at, core in network.cores.items():
            changes.extend(core.take_changes())
            network.subscribe(at)
        network.tracker.apply(changes)
        network.tracker.views()  # what has changed; everybody is given all
        for at in network.subscribed:
            network.views[at] = deque([network.tracker.view(at[0])])
            network.ready.add(("view", at))


def _clear(network: Network, region: Region) -> None:
    """Nothing of the region, and nothing on its way from it, is left."""
    for channel in list(network.channels):
        if network.edges[channel[0]].source in region.stages:
            del network.channels[channel]
    for channel in list(network.credits):
        if network.edges[channel[0]].source in region.stages:
            del network.credits[channel]
    for event in list(network.ready.items):
        kind, at = event
        is_of_channel = kind in OF_CHANNELS
        is_gone = network.edges[at[0]].source in region.stages if is_of_channel else kind in OF_THE_COORDINATOR or at[0] in region.stages
        if is_gone or kind in ("report", "view"):  # earlier views are not true any more
            network.ready.discard(event)
    for waiting in (network.blocked, network.aligning):
        for at in list(waiting):
            kept: set[Any] = {event for event in waiting[at] if event[0] != "batch" or event[1] in network.channels}
            if at[0] in region.stages:
                waiting.pop(at)
            else:
                waiting[at] = kept
    for at in network.cores:
        if at[0] in region.stages:
            network.reports[at], network.views[at] = deque(), deque()
    gone = {at for at in network.cores if at[0] in region.stages}
    for ends in network.ends.values():
        ends.forget_senders(gone)
