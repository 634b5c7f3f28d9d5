"""Where the processes of a job are, and where new ones go: what :class:`KnownNodes` decides, in Ray's words.

Ray is given a node to prefer. Where a node is avoided, Ray is also told to keep away from it, however long that takes: a process then
waits until there is room elsewhere. Of what asks for no CPU Ray does not heed that: it is bound to the node that was chosen.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import In, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy, NotIn

from rayad.actors.cluster import node_table
from rayad.actors.lead.nodes.known import KnownNodes
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.process.threads import OwnedThread
from rayad.dataflow.resources import told_resources
from rayad.progress import say


@dataclass(frozen=True, slots=True)
class Site:
    """Where a new process goes: the node, by its id, if one was chosen; and how Ray is told."""

    node: str | None
    strategy: Any


class Sites:
    """Of one job; used under the lock of its crew.

    Args:
        note: writes an event into the job's journal: its kind, and what has happened.
    """

    def __init__(self, note: Callable[[str, str], None] = lambda kind, what: None) -> None:
        self.known = KnownNodes()
        self.on: dict[str, str] = {}
        """The node of each process, by its id: where it said that it is, until then where it was sent."""
        self._note = note
        self._addresses: dict[str, str] = {}

    @property
    def own(self) -> str:
        """The coordinator's node."""
        return str(ray.get_runtime_context().get_node_id())

    def on_answer(self, process: str, node: str) -> None:
        """A process has answered, from this node."""
        if node:
            self.on[process] = node
            self.known.on_answer(node)

    def on_silence(self, process: str, silences_s: Mapping[str, float], patience_s: float) -> None:
        """A process is given up since it does not answer; ``silences_s``: of all processes, that one among them."""
        node = self.on.get(process)
        if node is None or node == self.own:
            return
        there = [silences_s[name] for name, at in self.on.items() if at == node and name in silences_s]
        if self.known.on_given_up(node, there, patience_s, clock.monotonic()):
            told = f"nobody of this job on node {self.address(node)} answers: nothing is placed there while it is silent"
            self._note("node", told)

    def choose(self, processes: Sequence[str], needs: Mapping[str, Mapping[str, float]]) -> dict[str, Site]:
        """Where each of these new processes goes; one that has the name of a process which is there takes its place."""
        table, now_s = node_table.nodes_now(), clock.monotonic()
        self._addresses.update({node.id: node.address for node in table})
        avoided = self.known.avoided(table, now_s)
        there = {name: node for name, node in self.on.items() if name != PROGRESS and name not in processes}
        chosen = self.known.choose([name for name in processes if name != PROGRESS], there, table, needs, now_s)
        if PROGRESS in processes:
            own = self.own
            chosen |= {PROGRESS: own} if own not in avoided else self.known.choose([PROGRESS], there, table, needs, now_s)
        return {name: Site(chosen.get(name), _strategy(chosen.get(name), list(avoided), bool(needs.get(name)))) for name in processes}

    def without_room(self, needs: Mapping[str, Mapping[str, float]]) -> list[str]:
        """Which of these processes, which are not placed, have no room now."""
        return self.known.without_room(list(needs), node_table.nodes_now(), needs, clock.monotonic()) if needs else []

    def put(self, process: str, node: str | None) -> None:
        """It was sent to this node; None: Ray chooses one."""
        if node is not None:
            self.on[process] = node

    def forget(self, process: str) -> None:
        """It is gone."""
        self.on.pop(process, None)

    def address(self, node: str) -> str:
        """A node as people know it."""
        return self._addresses.get(node, node[:12])

    def told_free(self) -> str:
        """What is free in the cluster, and which nodes are avoided, and why, in words."""
        avoided = self.known.told(node_table.nodes_now(), clock.monotonic())
        return told_resources(ray.available_resources()) + (f"; nothing is placed on some of it: {avoided}" if avoided else "")


def _strategy(best: str | None, avoided: Iterable[str], asks: bool) -> Any:
    """How Ray is told: the node to prefer, and those to avoid; ``asks``: whether the process asks for anything."""
    if not asks and best is not None:
        return NodeAffinitySchedulingStrategy(best, soft=True)
    if avoided:
        label = node_table.label_of_ids()
        prefer = {label: In(best)} if best is not None else None
        return NodeLabelSchedulingStrategy({label: NotIn(*avoided)}, soft=prefer)
    return NodeAffinitySchedulingStrategy(best, soft=True, _spill_on_unavailable=True) if best is not None else "SPREAD"


LOOK_S = 1.0
"""Between two looks at which nodes drain."""


class DrainWatch:
    """Which nodes drain, read in a thread of its own: Ray's control store may not answer for a while, and nothing waits for it.

    Args:
        read: gives in how many seconds each node that drains goes.
    """

    def __init__(self, read: Callable[[], dict[str, float]] = node_table.drains) -> None:
        self._read = read
        self._over = threading.Event()
        self._thread = OwnedThread("drains", self._run, stop=self._over.set)
        self._found: tuple[dict[str, float], float] = ({}, 0.0)
        self.error = ""
        """Why the last look failed; "" where it did not."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """The job is over. The thread is not waited for: Ray may not answer it."""
        self._thread.stop()

    @property
    def now(self) -> dict[str, float]:
        """In how many seconds each node that drains goes, by its id."""
        found, at_s = self._found
        passed_s = clock.monotonic() - at_s
        return {node: max(0.0, left_s - passed_s) for node, left_s in found.items()}

    def look(self) -> None:
        """Read once."""
        try:
            self._found = self._read(), clock.monotonic()
            self.error = ""
        except Exception as error:  # Ray's internal calls raise what they like; what was found before stays
            self.error = say(error)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()


__all__ = ["DrainWatch", "Sites"]
