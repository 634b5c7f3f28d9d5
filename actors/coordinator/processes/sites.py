"""Where the processes of a job are, and where new ones go, as :class:`KnownNodes` decides; ``on_ray.py`` puts that in Ray's words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from rayad.actors.coordinator.surroundings import CoordinatorSurroundings
from rayad.actors.lead.nodes.known import KnownNodes
from rayad.actors.lead.nodes.node import Site
from rayad.actors.process.threads import OwnedThread
from rayad.progress import say


class Sites:
    """Of one job; used under the lock of its crew.

    Args:
        around: what tells of the nodes, and the clock.
        note: writes an event into the job's journal: its kind, and what has happened.
    """

    def __init__(self, around: CoordinatorSurroundings, note: Callable[[str, str], None] = lambda kind, what: None) -> None:
        self.known = KnownNodes()
        self._port, self._clock = around.actors, around.clock
        self.on: dict[str, str] = {}
        """The node of each process, by its id: where it said that it is, until then where it was sent."""
        self._note = note
        self._addresses: dict[str, str] = {}

    @property
    def own(self) -> str:
        """The coordinator's node."""
        return self._port.own_node()

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
        if self.known.on_given_up(node, there, patience_s, self._clock.monotonic()):
            told = f"nobody of this job on node {self.address(node)} answers: nothing is placed there while it is silent"
            self._note("node", told)

    def choose(self, processes: Sequence[str], needs: Mapping[str, Mapping[str, float]]) -> dict[str, Site]:
        """Where each of these new processes goes; one that has the name of a process which is there takes its place."""
        table, now_s = self._port.nodes(), self._clock.monotonic()
        self._addresses.update({node.id: node.address for node in table})
        return self.known.sites(processes, self.on, table, needs, self.own, now_s)

    def without_room(self, needs: Mapping[str, Mapping[str, float]]) -> list[str]:
        """Which of these processes, which are not placed, have no room now."""
        return self.known.without_room(list(needs), self._port.nodes(), needs, self._clock.monotonic()) if needs else []

    def put(self, process: str, node: str | None) -> None:
        """It was sent to this node; None: Ray chooses one."""
        if node is not None:
            self.on[process] = node

    def forget(self, process: str) -> None:
        """It is gone."""
        self.on.pop(process, None)

    def address(self, node: str) -> str:
        """A node as people know it."""
        if node not in self._addresses:
            self._addresses.update({one.id: one.address for one in self._port.nodes()})
        return self._addresses.get(node, node[:12])

    def told_free(self) -> str:
        """What is free in the cluster, and which nodes are avoided, and why, in words."""
        avoided = self.known.told(self._port.nodes(), self._clock.monotonic())
        return self._port.free() + (f"; nothing is placed on some of it: {avoided}" if avoided else "")


LOOK_S = 1.0
"""Between two looks at which nodes drain."""


class DrainWatch:
    """Which nodes drain, read in a thread of its own: Ray's control store may not answer for a while, and nothing waits for it.

    Args:
        around: what tells in how many seconds each node that drains goes, and the clock.
    """

    def __init__(self, around: CoordinatorSurroundings) -> None:
        self._read, self._clock = around.actors.drains, around.clock
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
        passed_s = self._clock.monotonic() - at_s
        return {node: max(0.0, left_s - passed_s) for node, left_s in found.items()}

    def look(self) -> None:
        """Read once."""
        try:
            self._found = self._read(), self._clock.monotonic()
            self.error = ""
        except Exception as error:  # Ray's internal calls raise what they like; what was found before stays
            self.error = say(error)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()


__all__ = ["DrainWatch", "Sites"]
