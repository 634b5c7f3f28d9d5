"""Strongly connected components, by trimming and forward-backward colouring in two nested loops.

The outer loop goes from phase to phase; within each phase an inner loop propagates something along the edges until
nothing changes. An epoch is

    REACH, then TRIM, COLOUR, MARK, TRIM, COLOUR, MARK, ... until no node is active

- REACH finds what the new edges can have changed: the nodes that are reachable from a head of a new edge and reach a
  tail of one. A component that is not the one of before holds a new edge, so all its nodes are among these; and with a
  node its whole component is. These nodes become active. In the first epoch they are all nodes with edges in and out.
- TRIM takes away, again and again, active nodes without an active predecessor or successor: each is a component of its own.
- COLOUR gives each active node the smallest active node that reaches it.
- MARK goes back from each node that has its own colour, within that colour: what it meets is its component, which is
  finished and no longer active.

Edges are only ever added, so components only ever merge: pairs (node, a node of its component) stay true. They leave
both loops and go through connected components, which turns them into "the smallest node of the component", tells only
what has changed, and knows how nodes that are no integers are ordered.

Sources: Fleischer, Hendrickson and Pinar (2000) and Orzan (2004) for forward-backward and colouring, McLendon et al.
(2005) for trimming; McSherry, Murray, Isaacs and Isard, "Differential dataflow" (CIDR 2013) and Naiad (SOSP 2013), 6.1,
for SCC as nested loops.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, overload

import numpy as np

from rayad.dataflow import Stream, Timestamp
from rayad.dataflow.records.wrong_calls import explained
from rayad.graphs.adjacency import Adjacency
from rayad.graphs.changing import ChangingEdges, of_collection
from rayad.graphs.components import components_of
from rayad.graphs.edges import check_edges, named_edges, prepared_edges, unused_name
from rayad.graphs.nodes import grown
from rayad.graphs.numbers import Ints
from rayad.graphs.rounds import GraphVertex, members, received, received_names
from rayad.graphs.stored_state import Part, joined

BY_SRC, BY_DST, MESSAGES, TICKS = 0, 1, 2, 3
AGAIN, TICK, PAIRS = 0, 1, 2
FORWARD, BACKWARD = 1, 2
NO_COLOUR = np.iinfo(np.int64).max
_IN = 1 << 32
"""In a TRIM message: one of the indegree; the outdegree is counted below it."""


_INITIAL = {"alive": False, "bits": 0, "indegree": 0, "outdegree": 0, "colour": NO_COLOUR}
"""The value of these arrays between epochs."""


class Phase(enum.Enum):
    """What an inner loop does."""

    REACH = "reach"
    TRIM = "trim"
    COLOUR = "colour"
    MARK = "mark"

    @staticmethod
    def of(outer: int) -> Phase:
        """The phase of an outer round.

        >>> [Phase.of(i).value for i in range(6)]
        ['reach', 'trim', 'colour', 'mark', 'trim', 'colour']
        """
        return Phase.REACH if outer == 0 else (Phase.TRIM, Phase.COLOUR, Phase.MARK)[(outer - 1) % 3]


@overload
def strongly_connected_components(
    edges: Stream, *, columns: tuple[str, str] | None = None, name: str | None = None, parallelism: int | None = None
) -> Stream: ...
@overload
def strongly_connected_components(
    edges: ChangingEdges, *, columns: tuple[str, str] | None = None, name: str | None = None, parallelism: int | None = None
) -> Any: ...
@explained
def strongly_connected_components(
    edges: Stream | ChangingEdges, *, columns: tuple[str, str] | None = None, name: str | None = None, parallelism: int | None = None
) -> Any:
    """``(node, smallest node of its strongly connected component)``, per epoch for the nodes for which that has changed.

    The graph is that of all edges up to the epoch. Duplicate edges and self-loops are fine. "Smallest" is as in
    :func:`connected_components`.

    Args:
        edges: records ``(u, v)`` or columnar batches; or a :class:`rayad.Collection` of ``(u, v)``, whose edges come and go: the result
            is a collection then, without ``name`` and ``parallelism``.
        columns: the two columns of source and target; by default the first two.
        name: of the vertex; its loops are ``name.phases`` and, inside, ``name.rounds``; ``name.merge`` turns pairs into components.
        parallelism: replicas of both vertices; by default the job's.

    Raises:
        DataflowError: for what is no stream of edges.
    """
    if isinstance(edges, ChangingEdges):
        return of_collection("strongly_connected_components", edges, columns=columns, name=name, parallelism=parallelism)
    given = check_edges("strongly_connected_components", edges, columns)
    flow = edges.flow
    name = unused_name(flow, name, "scc")
    phases = flow.loop(f"{name}.phases")
    entered = phases.enter(prepared_edges(edges, given, name))
    ticks = phases.feedback()
    rounds = flow.loop(f"{name}.rounds", inside=phases)
    inside = rounds.enter(entered)
    back = rounds.feedback()
    again, tick, pairs = flow.vertex(
        StrongComponents,
        inputs=[inside.key_by("src"), inside.key_by("dst"), back.key_by("to"), rounds.enter(ticks).broadcast()],
        outputs=3,
        name=name,
        parallelism=parallelism,
    )
    back.connect(again)
    ticks.connect(rounds.leave(tick))
    return components_of(phases.leave(rounds.leave(pairs)), f"{name}.merge", parallelism, of=edges)


class StrongComponents(GraphVertex):
    """One replica: all edges of its nodes, both ways.

    By dense index: ``alive`` (active and not yet trimmed or marked; False for nodes of others), ``bits`` of REACH,
    ``indegree`` and ``outdegree`` among the active, ``colour``. Between epochs nothing is alive and all the rest is as
    it was in the beginning.
    """

    def setup(self) -> None:
        super().setup()
        self.out = Adjacency()
        self.into = Adjacency()
        none = np.empty(0, np.int64)
        self.alive = np.empty(0, np.bool_)
        self.bits = np.empty(0, np.int8)
        self.indegree, self.outdegree, self.colour = none, none, none
        self.active: Ints = none
        self.touched: list[Ints] = []  # REACH: nodes with bits; COLOUR: ghosts with a colour; MARK: what was marked
        self.leaving: Ints = none  # marked in the phase before: their neighbours' degrees are still to fall

    def parts(self) -> Mapping[str, Part]:
        return {**super().parts(), "out": self.out, "into": self.into}

    def rest(self) -> dict[str, Any]:
        touched = joined(self.touched)
        marked = members(
            np.concatenate([np.flatnonzero(self.alive | (self.bits != 0)), self.active, touched, self.leaving]), len(self.nodes)
        )
        values = {name: getattr(self, name)[marked] for name in _INITIAL}
        return {**super().rest(), "marked": marked, **values, "active": self.active, "touched": touched, "leaving": self.leaving}

    def restore_rest(self, rest: dict[str, Any]) -> None:
        super().restore_rest(rest)
        for name, fill in _INITIAL.items():
            setattr(self, name, np.full(len(self.nodes), fill, getattr(self, name).dtype))
            getattr(self, name)[rest["marked"]] = rest[name]
        self.active, self.touched, self.leaving = rest["active"], [rest["touched"]], rest["leaving"]

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if edge != BY_DST or self.parallelism > 1:  # a single replica has every edge already
            super().on_recv(edge, batch, time)

    def on_round(self, time: Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        phase = Phase.of(time.counters[-2])
        messages = arrived.get(MESSAGES, [])
        if phase is Phase.REACH:
            self._reach(time, arrived, messages)
        elif phase is Phase.TRIM:
            self._trim(time, number, messages)
        elif phase is Phase.COLOUR:
            self._colour(time, number, messages)
        else:
            self._mark(time, number, messages)
        self.notify_at_end(time)

    def on_end(self, time: Timestamp) -> None:
        phase = Phase.of(time.counters[-2])
        touched = members(np.concatenate(self.touched), len(self.nodes)) if self.touched else np.empty(0, np.int64)
        self.touched = []
        if phase is Phase.REACH:
            self.active = touched[(self.bits[touched] == FORWARD | BACKWARD) & self.nodes.mine[touched]]
            self.bits[touched] = 0
            self.alive[self.active] = True
            self.indegree[self.active] = self.outdegree[self.active] = 0
            self.leaving = touched[:0]
        elif phase is Phase.COLOUR:
            self.colour[touched] = NO_COLOUR
        elif phase is Phase.MARK:
            self._send_pairs(time, touched, self.colour[touched])
            self.leaving = touched
        self.active = self.active[self.alive[self.active]]
        if len(self.active):
            self.send_by(TICK, [self.replica], time)

    def _grow(self) -> None:
        count = len(self.nodes)
        for name, fill in _INITIAL.items():
            setattr(self, name, grown(getattr(self, name), count, fill))

    def _send_pairs(self, time: Timestamp, nodes: Ints, companion: Ints) -> None:
        """``nodes`` (dense) are in the components of ``companion`` (numbers)."""
        if len(nodes):
            names = None
            if self.nodes.names:
                names = self.nodes.names_of(nodes), self.nodes.names_of(self.nodes.find(companion))
            self.send_by(PAIRS, named_edges(self.nodes.numbers[nodes], companion, names), time)

    # -- REACH --------------------------------------------------------------------
    def _reach(self, time: Timestamp, arrived: dict[int, list[Any]], messages: list[Any]) -> None:
        seeds: list[tuple[Ints, int]] = []
        if BY_SRC in arrived or BY_DST in arrived:
            seeds = self._take_in(time, arrived)
        if messages:
            to, value = received(messages)
            dense = self.nodes.find(to)
            seeds += [(dense[value & bit != 0], bit) for bit in (FORWARD, BACKWARD)]
        told: list[Ints] = []
        for nodes, bit in seeds:
            self._spread_bit(nodes, bit, told)
        if told:
            ghosts = members(np.concatenate(told), len(self.nodes))
            self.send_messages(AGAIN, time, self.nodes.numbers[ghosts], self.bits[ghosts].astype(np.int64))

    def _take_in(self, time: Timestamp, arrived: dict[int, list[Any]]) -> list[tuple[Ints, int]]:
        """Add the epoch's edges; gives the nodes from which REACH goes out, with their bits."""
        before = len(self.nodes)
        ends = self.take_edges(arrived[BY_SRC]) if BY_SRC in arrived else None
        back = ends if self.parallelism == 1 else self.take_edges(arrived[BY_DST]) if BY_DST in arrived else None
        self._grow()
        fresh = np.arange(before, len(self.nodes))
        fresh = fresh[self.nodes.mine[fresh]]
        self._send_pairs(time, fresh, self.nodes.numbers[fresh])
        seeds = []
        if ends is not None:
            seeds.append((self._add(self.out, *ends), BACKWARD))
        if back is not None:
            seeds.append((self._add(self.into, back[1], back[0]), FORWARD))
        return seeds

    @staticmethod
    def _add(edges: Adjacency, near: Ints, far: Ints) -> Ints:
        no_loop = near != far
        if not no_loop.all():
            near, far = near[no_loop], far[no_loop]
        return edges.add(near, far)[0]

    def _spread_bit(self, nodes: Ints, bit: int, told: list[Ints]) -> None:
        edges = self.out if bit == FORWARD else self.into
        bits, mine = self.bits, self.nodes.mine
        while len(nodes):
            nodes = members(nodes[bits[nodes] & bit == 0], len(mine))
            bits[nodes] |= bit
            self.touched.append(nodes)
            own = mine[nodes]
            if not own.all():
                told.append(nodes[~own])
            nodes = edges.neighbours(nodes[own])[1]

    # -- TRIM ----------------------------------------------------------------------
    def _trim(self, time: Timestamp, number: int, messages: list[Any]) -> None:
        """Round 0: the active nodes count themselves at their neighbours (first time), or those just marked take
        themselves off. From round 1 on: take away."""
        first = time.counters[-2] == 1
        if number == 0:
            told = [self._count_at_neighbours(self.active if first else self.leaving, 1 if first else -1)[0]]
            self.notify_at(time.next_round())
        else:
            candidates = self._take_degrees(messages, 1 if first and number == 1 else -1)
            told = self._peel(self.active if number == 1 else candidates)
        self._send_degrees(time, told)

    def _count_at_neighbours(self, nodes: Ints, sign: int) -> tuple[tuple[Ints, Ints], Ints]:
        """Change the degrees of the neighbours of ``nodes``; gives the ghosts that have to hear of it (as successors,
        as predecessors), and the others."""
        after, before = self.out.neighbours(nodes)[1], self.into.neighbours(nodes)[1]
        mine, alive = self.nodes.mine, self.alive
        near_after, near_before = after[alive[after]], before[alive[before]]
        np.add.at(self.indegree, near_after, sign)
        np.add.at(self.outdegree, near_before, sign)
        return (after[~mine[after]], before[~mine[before]]), np.concatenate([near_after, near_before])

    def _take_degrees(self, messages: list[Any], sign: int) -> Ints:
        if not messages:
            return self.active[:0]
        to, value = received(messages)
        dense = self.nodes.find(to)
        known = self.alive[dense]
        dense, value = dense[known], value[known]
        np.add.at(self.indegree, dense, sign * (value // _IN))
        np.add.at(self.outdegree, dense, sign * (value % _IN))
        return dense

    def _peel(self, candidates: Ints) -> list[tuple[Ints, Ints]]:
        told = []
        while len(candidates):
            bare = self.alive[candidates] & ((self.indegree[candidates] == 0) | (self.outdegree[candidates] == 0))
            gone = members(candidates[bare], len(self.nodes))
            self.alive[gone] = False
            ghosts, candidates = self._count_at_neighbours(gone, -1)
            told.append(ghosts)
        return told

    def _send_degrees(self, time: Timestamp, told: list[tuple[Ints, Ints]]) -> None:
        if not told:
            return
        after, before = (np.concatenate(side) for side in zip(*told, strict=True))
        ghosts = members(np.concatenate([after, before]), len(self.nodes))
        if len(ghosts):
            if len(ghosts) * 8 < len(self.nodes):
                successors, predecessors = (np.bincount(np.searchsorted(ghosts, side), minlength=len(ghosts)) for side in (after, before))
            else:
                successors, predecessors = (np.bincount(side, minlength=len(self.nodes))[ghosts] for side in (after, before))
            self.send_messages(AGAIN, time, self.nodes.numbers[ghosts], successors * _IN + predecessors)

    # -- COLOUR --------------------------------------------------------------------
    def _colour(self, time: Timestamp, number: int, messages: list[Any]) -> None:
        colour, alive, mine = self.colour, self.alive, self.nodes.mine
        nodes = self.active
        if number == 0:
            colour[nodes] = self.nodes.numbers[nodes]
        else:
            to, value = received(messages)
            dense = self.nodes.find(to)
            better = alive[dense] & (value < colour[dense])
            np.minimum.at(colour, dense[better], value[better])
            nodes = members(dense[better], len(mine))
        told = []
        while len(nodes):
            at, after = self.out.neighbours(nodes)
            offered = colour[nodes][at]
            better = (offered < colour[after]) & (alive[after] | ~mine[after])
            after, offered = after[better], offered[better]
            np.minimum.at(colour, after, offered)
            told.append(after[~mine[after]])
            nodes = members(after[mine[after]], len(mine))
        ghosts = members(np.concatenate(told), len(mine)) if told else nodes[:0]
        self.touched.append(ghosts)
        self.send_messages(AGAIN, time, self.nodes.numbers[ghosts], colour[ghosts])

    # -- MARK ------------------------------------------------------------------------
    def _mark(self, time: Timestamp, number: int, messages: list[Any]) -> None:
        if number == 0:
            nodes = self.active[self.colour[self.active] == self.nodes.numbers[self.active]]
        else:
            to, value = received(messages)
            self.nodes.add(value, received_names(messages))  # the roots, for the pairs
            self._grow()
            dense = self.nodes.find(to)
            nodes = members(dense[self.alive[dense] & (self.colour[dense] == value)], len(self.nodes))
        colour, alive, mine = self.colour, self.alive, self.nodes.mine
        told: list[tuple[Ints, Ints]] = []
        while len(nodes):
            alive[nodes] = False
            self.touched.append(nodes)
            at, before = self.into.neighbours(nodes)
            own_colour = colour[nodes][at]
            far = ~mine[before]
            if far.any():
                told.append((before[far], own_colour[far]))
            nodes = members(before[alive[before] & (colour[before] == own_colour)], len(mine))
        if told:
            ghosts, root = (np.concatenate(side) for side in zip(*told, strict=True))
            order = np.lexsort((root, ghosts))
            ghosts, root = ghosts[order], root[order]
            once = np.append(True, (ghosts[1:] != ghosts[:-1]) | (root[1:] != root[:-1]))
            ghosts, root = ghosts[once], root[once]
            named = self.nodes.find(root) if self.nodes.names else None
            self.send_messages(AGAIN, time, self.nodes.numbers[ghosts], root, named)
