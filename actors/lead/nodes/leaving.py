"""Who leads it when processes leave their nodes: because a node drains, or because somebody asked. Pure.

A shell tells it which process is where and which nodes drain. Nothing is lost, and no crash is needed: other processes start elsewhere
while the job runs, a snapshot is taken, and as soon as it is published the job resumes from it in the new processes. So what is done
twice is what the job did while that snapshot was written, and sinks show it once.

    IDLE ──> StartSpares ──> STARTING ──> Ready ──> TakeSnapshot ──> SAVING ──> Published ──> Go ──> IDLE

Time is short where the node goes at a known moment: then the last snapshot will do (:data:`RESERVE_S`). Where no others start in time, the
job stays until the node goes, and recovers then.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias, assert_never

RESERVE_S = 15.0
"""So long before a node goes the job leaves it, whatever snapshot there is; where there was less time than twice that, after half of it."""


class Phase(enum.Enum):
    """What is waited for."""

    IDLE = "nothing"
    STARTING = "processes elsewhere"
    SAVING = "a snapshot"


# -- what has happened -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Look:
    """The job runs. ``on``: the node of each process; ``drains``: in how many seconds each node that drains goes; ``asked``: processes
    that are to move for another reason."""

    on: Mapping[str, str]
    drains: Mapping[str, float]
    asked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ready:
    """All spares are there."""


@dataclass(frozen=True, slots=True)
class Published:
    """A snapshot is in the store."""


Event: TypeAlias = Look | Ready | Published


# -- what is to be done ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Tell:
    """Something that people should know: what becomes of a node that drains, and of the processes on it."""

    node: str
    names: tuple[str, ...]
    what: str
    leaves_in_s: float = inf


@dataclass(frozen=True, slots=True)
class StartSpares:
    """Start a process elsewhere for each of these; answer :class:`Ready` when all are there."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropSpares:
    """Those of these are not needed."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LetShare:
    """Time is short: spares for which no node has room share processors with others, where that is allowed."""


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """As soon as possible; answer :class:`Published`."""


@dataclass(frozen=True, slots=True)
class Go:
    """These leave now: the job resumes from its last snapshot with others in their places."""

    names: frozenset[str]


Effect: TypeAlias = Tell | StartSpares | DropSpares | LetShare | TakeSnapshot | Go

WILL_LEAVE = "drains: the job leaves it"
CANNOT_SAVE = "drains: the job cannot leave it, since it keeps no snapshots (RunConfig.storage_path)"
NOT_THERE = "drains, and not all processes that are to take their places elsewhere are there yet: without them the job resumes when it goes"


class LeavingLeader:
    """Of one job.

    Args:
        keeps_snapshots: whether there is something to resume from.
    """

    def __init__(self, keeps_snapshots: bool) -> None:
        self.phase = Phase.IDLE
        self.names: frozenset[str] = frozenset()
        """Who is to leave."""
        self._keeps_snapshots = keeps_snapshots
        self._latest_s: dict[str, float] = {}  # of the nodes that drain
        self._is_late = False

    def check_invariants(self) -> None:
        """Something is waited for exactly while somebody is to leave."""
        assert bool(self.names) == (self.phase is not Phase.IDLE), (self.names, self.phase)
        assert self._keeps_snapshots or not self.names, "there would be nothing to resume from"

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """What follows."""
        effects: list[Effect] = []
        match event:
            case Look():
                self._on_look(event, now_s, effects)
            case Ready():
                if self.phase is Phase.STARTING:
                    self.phase = Phase.SAVING
                    effects.append(TakeSnapshot())
            case Published():
                if self.phase is Phase.SAVING:
                    self._go(effects)
            case _:
                assert_never(event)
        return effects

    def _on_look(self, look: Look, now_s: float, effects: list[Effect]) -> None:
        by_node = {node: tuple(sorted(name for name, at in look.on.items() if at == node)) for node in look.drains}
        by_node = {node: names for node, names in by_node.items() if names}
        for node, names in by_node.items():
            if node not in self._latest_s:
                left_s = look.drains[node]
                self._latest_s[node] = now_s + left_s - min(RESERVE_S, left_s / 2) if left_s < inf else inf
                effects.append(Tell(node, names, WILL_LEAVE if self._keeps_snapshots else CANNOT_SAVE, left_s))
        self._latest_s = {node: at_s for node, at_s in self._latest_s.items() if node in look.drains}
        if not self._keeps_snapshots:
            return
        wanted = frozenset(name for names in by_node.values() for name in names) | (look.asked & look.on.keys())
        if stays := tuple(sorted(self.names - wanted)):
            effects.append(DropSpares(stays))
        if not wanted:
            self._rest()
            return
        if wanted - self.names:
            self.phase = Phase.STARTING
            effects.append(StartSpares(tuple(sorted(wanted - self.names))))
        self.names = wanted
        late = [node for node in by_node if now_s >= self._latest_s[node]]
        if late and self.phase is Phase.SAVING:
            self._go(effects)
        elif late and not self._is_late:
            self._is_late = True
            effects += [Tell(late[0], by_node[late[0]], NOT_THERE, look.drains[late[0]]), LetShare()]

    def _go(self, effects: list[Effect]) -> None:
        effects.append(Go(self.names))
        self._rest()

    def _rest(self) -> None:
        self.phase, self.names, self._is_late = Phase.IDLE, frozenset(), False


__all__ = ["LeavingLeader"]
