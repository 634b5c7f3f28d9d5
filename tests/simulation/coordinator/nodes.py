"""The nodes of a cluster on the bus: what Ray's scheduler does with processes, and nodes that drain, fall silent and come.

Ray puts a process on the node that was asked for where that has room, else on another that is not to be avoided, else lets it wait. One
that asks for nothing is bound to its node, and ends when that goes before it has begun. Ray takes its time to notice that a node has died,
and places processes there meanwhile: they never begin. The coordinator's own node stays.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rayad.actors.lead.nodes.known import FORGIVEN_S
from rayad.actors.lead.nodes.node import Node, Site

if TYPE_CHECKING:
    from tests.simulation.coordinator.processes import Process
    from tests.simulation.coordinator.world import World

NEVER_S = float("inf")
LOOK_S = 1.0
"""As :class:`rayad.actors.coordinator.processes.sites.DrainWatch` looks."""
OWN = "n0"


@dataclass(eq=False)
class SimulatedNode:
    """One node."""

    id: str
    cpus: float
    goes_s: float | None = None
    """It drains, and goes then; inf: nobody knows when."""
    silent_since_s: float = NEVER_S
    silent_until_s: float = 0.0
    noticed_s: float = NEVER_S
    """It is dead, and Ray will notice then."""
    given_up_s: float = -NEVER_S
    """The coordinator has killed a process on it that answered nothing, while all of it was silent."""

    def is_silent(self, now_s: float) -> bool:
        return self.silent_since_s <= now_s < self.silent_until_s


@dataclass(eq=False)
class Waiting:
    """A process that is to be placed."""

    process: Process
    site: Site
    cpus: float

    @property
    def is_bound(self) -> bool:
        """It goes to that node or nowhere."""
        return not self.site.asks and self.site.node is not None


class Nodes:
    """Of one cluster."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.up = [SimulatedNode(OWN, 1000.0)]
        self.waiting: list[Waiting] = []
        self.wrong: list[str] = []
        """Where a process was sent that should not go there."""
        self.is_strict = True
        """Processes end for no reason but failures, so who is killed on a silent node shows that its silence is known."""
        self.shortest_notice_s = NEVER_S
        """Before a node went."""
        self._placed: dict[Process, Waiting] = {}
        self._joins_s: list[float] = []
        self._looks_s = NEVER_S
        self._numbers = 1
        self._cpus = 1000.0

    def begin(self, count: int, cpus: float) -> None:
        """There are so many nodes, each with so many processors."""
        self._cpus = cpus
        self.up = []
        for _ in range(count):
            self._add()

    def _add(self) -> None:
        self.up.append(SimulatedNode(f"n{self._numbers - 1}", self._cpus))
        self._numbers += 1

    # -- the coordinator's port ------------------------------------------------------------------------
    def table(self) -> list[Node]:
        """Those that Ray counts as alive."""
        now_s = self.world.clock.now_s
        return [
            Node(
                node.id,
                f"10.0.0.{node.id[1:]}",
                {"CPU": node.cpus},
                {"CPU": node.cpus - self._used(node)},
                None if node.goes_s is None else max(0.0, node.goes_s - now_s),
            )
            for node in self.up
        ]

    def drains(self) -> dict[str, float]:
        """In how many seconds each node that drains goes."""
        return {node.id: node.leaves_in_s for node in self.table() if node.leaves_in_s is not None}

    def start(self, process: Process, site: Site, cpus: float) -> None:
        """A process is asked for."""
        now_s = self.world.clock.now_s
        node = next((node for node in self.up if node.id == site.node), None)
        if node is not None and len(self.up) > 1:
            if node.goes_s is not None:
                self.wrong.append(f"{process.name} was sent to {node.id}, which drains")
            if node.is_silent(now_s) and now_s - node.given_up_s < FORGIVEN_S - 1.0 and self.is_strict:
                self.wrong.append(f"{process.name} was sent to {node.id}, which is known to be silent")
        self.waiting.append(Waiting(process, site, cpus))

    def on_kill(self, process: Process, *, by_coordinator: bool) -> None:
        """A process is killed."""
        now_s, node = self.world.clock.now_s, process.node
        self.waiting = [one for one in self.waiting if one.process is not process]
        if not by_coordinator or node is None or process.abandoned_s is None or not process.has_begun:
            return  # where one is that has never answered is not known
        if node.is_silent(now_s) and node.silent_since_s < process.abandoned_s:
            node.given_up_s = now_s

    # -- what Ray does -----------------------------------------------------------------------------------
    def _used(self, node: SimulatedNode) -> float:
        return sum(self._placed[one].cpus for one in self.world.processes if one.node is node and not one.is_dead)

    def _places(self, one: Waiting) -> list[SimulatedNode]:
        """Where it can go now; where it is to go first of all, if it can."""
        able = [node for node in self.up if node.goes_s is None and node.cpus - self._used(node) >= one.cpus]
        if one.is_bound:
            return [node for node in able if node.id == one.site.node]
        able = [node for node in able if not one.site.asks or node.id not in one.site.avoided]
        return [node for node in able if node.id == one.site.node] or able

    def events(self) -> list[tuple[str, Any]]:
        """What can happen next."""
        return [("place", one) for one in self.waiting if self._places(one)]

    def place(self, one: Waiting) -> None:
        """Ray has found a place."""
        self.waiting.remove(one)
        one.process.node = self.chance.choice(self._places(one))
        self._placed[one.process] = one

    @property
    def wakes_s(self) -> float:
        """When something happens by itself."""
        now_s = self.world.clock.now_s
        times = [self._looks_s, *self._joins_s]
        for node in self.up:
            times += [node.silent_until_s, node.noticed_s, NEVER_S if node.goes_s is None else node.goes_s]
        return min((at_s for at_s in times if at_s > now_s), default=NEVER_S)

    def look_at_time(self) -> None:
        """What is due."""
        now_s = self.world.clock.now_s
        if now_s >= self._looks_s and self.world.job is not None:
            self.world.job.drains.look()
            self._looks_s = now_s + LOOK_S if any(node.goes_s is not None for node in self.up) else NEVER_S
        for node in [node for node in self.up if now_s >= min(node.noticed_s, NEVER_S if node.goes_s is None else node.goes_s)]:
            self._remove(node)
        there = [node.id for node in self.up if node.goes_s is None]
        for one in [one for one in self.waiting if one.is_bound and one.site.node not in there]:
            self.waiting.remove(one)
            one.process.kill()
        for at_s in [at_s for at_s in self._joins_s if now_s >= at_s]:
            self._joins_s.remove(at_s)
            self._add()

    def _remove(self, node: SimulatedNode) -> None:
        """It is gone, and Ray knows. What had not begun there is placed anew."""
        self.up.remove(node)
        self._looks_s = min(self._looks_s, self.world.clock.now_s)
        for process in [one for one in self.world.processes if one.node is node and not one.is_dead]:
            if process.has_begun:
                self.world.figures["killed with their nodes"] += 1
                process.kill()
            else:
                process.node = None
                self.waiting.append(self._placed.pop(process))

    # -- what happens to them ------------------------------------------------------------------------------
    def _others(self) -> list[SimulatedNode]:
        now_s = self.world.clock.now_s
        return [node for node in self.up if node.id != OWN and node.goes_s is None and not node.is_silent(now_s)]

    def drain(self, within_s: float, joins_in_s: float) -> bool:
        """A node will go; another one comes."""
        others = self._others()
        if not others:
            return False
        now_s = self.world.clock.now_s
        self.chance.choice(others).goes_s = now_s + within_s
        self.shortest_notice_s = min(self.shortest_notice_s, within_s)
        self._joins_s.append(now_s + joins_in_s)
        self._looks_s = min(self._looks_s, now_s + self.chance.uniform(0.0, LOOK_S))
        return True

    def lose(self, noticed_in_s: float, joins_in_s: float) -> bool:
        """A machine dies; Ray notices later; another one comes."""
        others = self._others()
        if not others:
            return False
        now_s, node = self.world.clock.now_s, self.chance.choice(others)
        node.silent_since_s, node.silent_until_s, node.noticed_s = now_s, NEVER_S, now_s + noticed_in_s
        self._joins_s.append(now_s + joins_in_s)
        return True

    def stop(self, for_s: float) -> bool:
        """A machine stands still for a while."""
        others = self._others()
        if not others:
            return False
        now_s, node = self.world.clock.now_s, self.chance.choice(others)
        node.silent_since_s, node.silent_until_s = now_s, now_s + for_s
        return True


__all__ = ["Nodes", "SimulatedNode"]
