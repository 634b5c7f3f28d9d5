"""Connected components: every node's value is the smallest node that it is connected with.

An edge goes to whichever replica has room, which contracts those that it gets in an epoch to one pair (node, root) for each node
(``contraction.py``). The pairs go to the replicas of their nodes: that is all that is exchanged, however many edges there
are, and edges are not kept.

A replica keeps disjoint sets over its own nodes and the *ghosts*, nodes of other replicas that are labels here. The only
message is "``to`` is connected with ``value``". In a round a replica merges what arrived, down to a local fixpoint, and tells
the replica of each ghost whose label has fallen its new label. A label that is new here becomes a ghost, and its
replica is told of one node that has it: a later fall reaches every replica with that label in one hop, instead of going node
by node through the graph. A later epoch costs what it changes.

Sources: Naiad, SOSP 2013, 6.1 (weakly connected components by label propagation in a loop); Tian et al.,
"From think like a vertex to think like a graph" (VLDB 2013), and Yan et al., Blogel (VLDB 2014): local fixpoints
between rounds; Stergiou et al., "Shortcutting label propagation" (WSDM 2018); McSherry, Isard and Murray, "Scalability!
But at what COST?" (HotOS 2015): union-find per worker, merge what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import numpy as np

from rayad.dataflow import Stream, Timestamp
from rayad.dataflow.records.wrong_calls import explained
from rayad.graphs.changing import ChangingEdges, of_collection
from rayad.graphs.contraction import Contraction
from rayad.graphs.disjoint_sets import DisjointSets
from rayad.graphs.edges import check_edges, prepared_edges, unused_name
from rayad.graphs.nodes import grown
from rayad.graphs.numbers import Ints, encode_names, owners
from rayad.graphs.rounds import NAME, TO_NAME, GraphVertex, members, received, received_names
from rayad.graphs.stored_state import DenseValues, Part, joined

EDGES, MESSAGES = 0, 1
AGAIN, OUT = 0, 1


@overload
def connected_components(
    edges: Stream, *, columns: tuple[str, str] | None = None, name: str | None = None, parallelism: int | None = None
) -> Stream: ...
@overload
def connected_components(
    edges: ChangingEdges, *, columns: tuple[str, str] | None = None, name: str | None = None, parallelism: int | None = None
) -> Any: ...
@explained
def connected_components(
    edges: Stream | ChangingEdges, *, columns: tuple[str, str] | None = None, name: str | None = None, parallelism: int | None = None
) -> Any:
    """``(node, smallest node of its component)``, per epoch for the nodes whose component's smallest node has changed.

    The graph is that of all edges up to the epoch, taken as undirected. Duplicate edges and self-loops are fine.
    "Smallest" compares numbers by value and strings alphabetically (numbers come before strings).

    Args:
        edges: records ``(u, v)`` or columnar batches; or a :class:`rayad.Collection` of ``(u, v)``, whose edges come and go: the result
            is a collection then, without ``name`` and ``parallelism``.
        columns: the two columns of the ends; by default the first two.
        name: of the vertex; its loop is ``name.loop``.
        parallelism: replicas of the vertex; by default the job's.

    Raises:
        DataflowError: for what is no stream of edges.
    """
    if isinstance(edges, ChangingEdges):
        return of_collection("connected_components", edges, columns=columns, name=name, parallelism=parallelism)
    given = check_edges("connected_components", edges, columns)
    name = unused_name(edges.flow, name, "components")
    return components_of(prepared_edges(edges, given, name), name, parallelism, of=edges)


def components_of(prepared: Stream, name: str, parallelism: int | None, *, of: Stream) -> Stream:
    """As :func:`connected_components`, from what was prepared of the edges ``of``."""
    flow = prepared.flow
    loop = flow.loop(f"{name}.loop")
    inside = loop.enter(prepared)
    back = loop.feedback()
    again, out = flow.vertex(
        Components,
        inputs=[inside.rebalance(buffer=64, keep_batches=True), back.key_by("to")],
        outputs=2,
        name=name,
        parallelism=parallelism,
    )
    back.connect(again)
    return loop.leave_updates(out, of=of, name=f"{name}.changed")


class Components(GraphVertex):
    """One replica. ``told`` is, by dense index, the root with which a node was last emitted, -1 before that."""

    def setup(self) -> None:
        super().setup()
        self.sets = DisjointSets(self.nodes)
        self.told: Ints = np.empty(0, np.int64)
        self.touched: list[Ints] = []
        self.contractions: dict[Timestamp, Contraction] = {}
        self.labels_told = DenseValues(self, "told", self.nodes, -1)

    def parts(self) -> Mapping[str, Part]:
        return {**super().parts(), "sets": self.sets, "told": self.labels_told}

    def rest(self) -> dict[str, Any]:
        contractions = {time: contraction.checkpoint() for time, contraction in self.contractions.items()}
        return {**super().rest(), "touched": joined(self.touched), "contractions": contractions}

    def restore_rest(self, rest: dict[str, Any]) -> None:
        super().restore_rest(rest)
        self.touched = [rest["touched"]]
        self.contractions = {time: Contraction() for time in rest["contractions"]}
        for time, contraction in self.contractions.items():
            contraction.restore(rest["contractions"][time])

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if edge != EDGES:
            super().on_recv(edge, batch, time)
            return
        contraction = self.contractions.get(time)
        if contraction is None:
            contraction = self.contractions[time] = Contraction()
            self.notify_at(time)
        contraction.add(batch)

    def on_round(self, time: Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        contraction = self.contractions.pop(time, None)
        if contraction is not None:
            self._take_forest(time, contraction)
        else:
            batches = arrived[MESSAGES]
            to, value = received(batches)
            known = len(self.nodes)
            left = self.nodes.add_unnamed(to)
            named = [batch for batch in batches if TO_NAME in batch.schema.names]
            self.nodes.learn(((self.nodes.find(received([batch])[0]), batch.column(TO_NAME)) for batch in named), known)
            self._merge(time, left, self.nodes.add(value, received_names(batches)))

    def _take_forest(self, time: Timestamp, contraction: Contraction) -> None:
        """Keep what is about nodes of this replica, send the rest to theirs."""
        numbers, root = contraction.forest()
        known = contraction.nodes
        mine = owners(numbers, self.parallelism, self.key_groups) == self.replica
        for near in (True, False):
            node = np.flatnonzero(mine == near)
            if not len(node):
                continue
            ends = [(numbers[dense], encode_names(known.names_of(dense)) if known.names else None) for dense in (node, root[node])]
            if near:
                left, right = (self.nodes.add(*end) for end in ends)
                self._merge(time, left, right)
            else:
                (to, to_names), (value, names) = ends
                self.send_columns(AGAIN, time, to, value, {TO_NAME: to_names, NAME: names})

    def _merge(self, time: Timestamp, left: Ints, right: Ints) -> None:
        """Nodes of this replica, ``left``, have the labels ``right``."""
        fresh = self.sets.grow()
        changed = self.sets.union(left, right)
        self.touched += [fresh, changed]
        self.notify_at_end(time)
        if self.parallelism > 1:
            self._tell(time, np.concatenate([fresh, changed]), left, right)

    def _tell(self, time: Timestamp, changed: Ints, left: Ints, labels: Ints) -> None:
        """Send ghosts that are new, or whose label has fallen, their labels; and tell the replica of a new label one node that has it."""
        root, mine = self.sets.root, self.nodes.mine
        ghosts = members(changed[~mine[changed]], len(root))
        fallen = ghosts[root[ghosts] != ghosts]
        holder = np.full(len(root), -1)
        holder[labels] = left
        held = ghosts[(root[ghosts] == ghosts) & (holder[ghosts] >= 0)]
        to, value = np.concatenate([fallen, held]), np.concatenate([root[fallen], holder[held]])
        self.send_messages(AGAIN, time, self.nodes.numbers[to], self.nodes.numbers[value], value)

    def on_end(self, time: Timestamp) -> None:
        touched = members(np.concatenate(self.touched), self.sets.count)
        self.touched = []
        self.told = grown(self.told, self.sets.count, -1)
        touched = touched[self.nodes.mine[touched]]
        labels = self.sets.root[touched]
        moved = self.told[touched] != labels
        touched, labels = touched[moved], labels[moved]
        self.told[touched] = labels
        self.labels_told.note(touched)
        values = self.nodes.names_of(labels) if self.nodes.names else self.nodes.numbers[labels]
        self.send_results(OUT, time, touched, values)
