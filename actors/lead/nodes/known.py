"""What is known of each node of a cluster, and which of them a new process goes to. Pure.

Ray may take a minute to notice that a machine has died, and meanwhile that one looks the emptiest. Our heartbeats notice it sooner. So a
node is *silent* when none of the job's processes on it answers, and nothing is placed there until something on it answers, Ray counts it
as dead, or :data:`FORGIVEN_S` is over: what is alive for Ray after that has answered Ray meanwhile. A node that drains is avoided, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from rayad.actors.lead.nodes.node import Node, Site
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.replica.places import is_worker
from rayad.dataflow.resources import holds

FORGIVEN_S = 90.0
"""For how long a node is avoided after it was silent, while Ray counts it as alive. Longer than Ray takes to notice a death."""


class KnownNodes:
    """What one job has learned of the nodes.

    >>> known, a, b = KnownNodes(), Node("a", "10.0.0.1", {"CPU": 2.0}), Node("b", "10.0.0.2", {"CPU": 2.0}, leaves_in_s=30.0)
    >>> known.choose(["v1.0", "v1.1"], {}, [a, b], {}, 0.0), known.told([a, b], 0.0)
    ({'v1.0': 'a', 'v1.1': 'a'}, 'node 10.0.0.2 drains and goes in 30 s')
    """

    def __init__(self) -> None:
        self._silent: dict[str, float] = {}  # when it was noticed, by the node's id

    # -- what is heard -------------------------------------------------------------------------------
    def on_given_up(self, node: str, silences_s: Iterable[float], patience_s: float, now_s: float) -> bool:
        """A process on a node has been silent for longer than ``patience_s``; whether that makes the node a silent one.

        ``silences_s``: of all the job's processes there. One that has answered lately shows that only that process is stopped.
        """
        if min(silences_s, default=inf) < patience_s / 2:
            return False
        self._silent[node] = now_s
        return True

    def on_answer(self, node: str) -> None:
        """Something on it has answered."""
        self._silent.pop(node, None)

    # -- what follows --------------------------------------------------------------------------------
    def avoided(self, table: Sequence[Node], now_s: float) -> dict[str, str]:
        """Why nothing is placed on some of these nodes, by id, in words."""
        silent, why = self.silent(now_s), {}
        for node in table:
            if node.id in silent:
                why[node.id] = f"nobody of this job on node {node.address} answered {silent[node.id]:.0f} s ago"
            elif node.leaves_in_s is not None:
                at = f" and goes in {node.leaves_in_s:.0f} s" if node.leaves_in_s < inf else ""
                why[node.id] = f"node {node.address} drains{at}"
        return why

    def silent(self, now_s: float) -> dict[str, float]:
        """For how many seconds each silent node has been one, by id."""
        self._silent = {node: since_s for node, since_s in self._silent.items() if now_s - since_s < FORGIVEN_S}
        return {node: now_s - since_s for node, since_s in self._silent.items()}

    def told(self, table: Sequence[Node], now_s: float) -> str:
        """Which nodes are avoided, and why, in words; "" for none."""
        return "; ".join(self.avoided(table, now_s).values())

    def choose(
        self,
        newcomers: Sequence[str],
        there: Mapping[str, str],
        table: Sequence[Node],
        needs: Mapping[str, Mapping[str, float]],
        now_s: float,
    ) -> dict[str, str]:
        """The node, by its id, for each of these processes: of those that are not avoided and have room now, else of those that could hold
        it, where the fewest of its kind are, workers or replicas of its vertex; then the fewest of the job; then most is free.

        So processes are spread, and a machine that has joined or come back gets what it was started for. A process that no node can hold
        has no place.

        Args:
            newcomers: new processes.
            there: the node of each process that runs, by its id.
            table: the nodes.
            needs: what each of the new processes asks for; nothing, where it is not named.
            now_s: by the clock of the other calls.
        """
        avoided = self.avoided(table, now_s)
        usable = [node for node in table if node.id not in avoided]
        running: Counter[tuple[str, str]] = Counter((_kind(name), node) for name, node in there.items())
        running.update(("", node) for node in there.values())
        free = {node.id: dict(node.resources if node.free is None else node.free) for node in usable}
        found = {}
        for name in newcomers:
            kind, asked = _kind(name), needs.get(name, {})
            able = [node for node in usable if holds(node.resources, asked)]
            if not able:
                continue
            best = min(
                able,
                key=lambda node: (
                    not holds(free[node.id], asked),
                    running[kind, node.id],
                    running["", node.id],
                    -free[node.id].get("CPU", 0.0),
                ),
            )
            running.update([(kind, best.id), ("", best.id)])
            for resource, value in asked.items():
                free[best.id][resource] = free[best.id].get(resource, 0.0) - value
            found[name] = best.id
        return found

    def sites(
        self,
        newcomers: Sequence[str],
        there: Mapping[str, str],
        table: Sequence[Node],
        needs: Mapping[str, Mapping[str, float]],
        own: str,
        now_s: float,
    ) -> dict[str, Site]:
        """Where each of these processes goes: as :meth:`choose` says, but the progress actor to the coordinator's ``own`` node, unless that
        is avoided. One that has the name of a process which is there takes its place."""
        avoided = self.avoided(table, now_s)
        others = {name: node for name, node in there.items() if name != PROGRESS and name not in newcomers}
        chosen = self.choose([name for name in newcomers if name != PROGRESS], others, table, needs, now_s)
        if PROGRESS in newcomers:
            chosen |= {PROGRESS: own} if own not in avoided else self.choose([PROGRESS], others, table, needs, now_s)
        return {name: Site(chosen.get(name), tuple(avoided), bool(needs.get(name))) for name in newcomers}

    def without_room(
        self, waiting: Collection[str], table: Sequence[Node], needs: Mapping[str, Mapping[str, float]], now_s: float
    ) -> list[str]:
        """Which of these processes, which wait to be placed, have no room on the nodes that are not avoided."""
        avoided = self.avoided(table, now_s)
        free = [dict(node.resources if node.free is None else node.free) for node in table if node.id not in avoided]
        out = []
        for name in sorted(waiting):
            asked = needs.get(name, {})
            room = next((one for one in free if holds(one, asked)), None)
            if room is None:
                out.append(name)
            else:
                room.update({resource: room[resource] - value for resource, value in asked.items()})
        return out


def _kind(process: str) -> str:
    """The vertex of a replica with a process of its own; all workers are of one kind."""
    return "worker" if is_worker(process) else process.split(".")[0]


__all__ = ["FORGIVEN_S", "KnownNodes"]
