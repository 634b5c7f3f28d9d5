"""Breadth-first search: the number of edges on a shortest path from the nearest of several sources.

A node lives, with its outgoing edges, in one replica. In a round a replica takes the distances that arrived and searches
from them level by level until its own nodes yield nothing more. Then, for each foreign node that came closer, it sends the
distance to that node's replica. Distances only fall, so an epoch begins with those of the one before, at the new edges alone.

Sources: Naiad (SOSP 2013), 6; McSherry's timely bfs example; Tian et al. (VLDB 2013) for running to a local fixpoint
    between rounds; Dial (1969) for the buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, overload

import numpy as np
import pyarrow as pa

from rayad.dataflow import DataflowError, Stream, Timestamp, show
from rayad.dataflow.records.wrong_calls import explained
from rayad.dataflow.streams.making import Make
from rayad.graphs.adjacency import Adjacency
from rayad.graphs.changing import ChangingEdges, of_collection
from rayad.graphs.edges import DST, DST_NAME, SRC, SRC_NAME, check_edges, prepared_edges, unused_name
from rayad.graphs.nodes import grown
from rayad.graphs.numbers import Ints, number_of, to_array, to_column
from rayad.graphs.rounds import GraphVertex, members, received, received_names
from rayad.graphs.stored_state import DenseValues, Part, joined

BY_SRC, MESSAGES = 0, 1
AGAIN, OUT = 0, 1
FAR = np.iinfo(np.int64).max


@overload
def bfs(
    edges: Stream,
    sources: Any,
    *,
    directed: bool = True,
    columns: tuple[str, str] | None = None,
    name: str | None = None,
    parallelism: int | None = None,
) -> Stream: ...
@overload
def bfs(
    edges: ChangingEdges,
    sources: Any,
    *,
    directed: bool = True,
    columns: tuple[str, str] | None = None,
    name: str | None = None,
    parallelism: int | None = None,
) -> Any: ...
@explained
def bfs(
    edges: Stream | ChangingEdges,
    sources: Iterable[Any],
    *,
    directed: bool = True,
    columns: tuple[str, str] | None = None,
    name: str | None = None,
    parallelism: int | None = None,
) -> Any:
    """``(node, edges from the nearest source)``, per epoch for the nodes that have become reachable or come closer.

    The graph is that of all edges up to the epoch. A source has distance 0 from the first epoch on in which an edge
    touches it; sources without edges and nodes that cannot be reached give nothing.

    Args:
        edges: records ``(u, v)`` or columnar batches; or a :class:`rayad.Collection` of ``(u, v)``, whose edges come and go: the result
            is a collection then, without ``name`` and ``parallelism``.
        sources: the nodes to begin from, at least one; with a collection of edges also a collection of nodes.
        directed: follow edges from u to v only, or both ways.
        columns: the two columns of source and target; by default the first two.
        name: of the vertex; its loop is ``name.loop``.
        parallelism: replicas of the vertex; by default the job's.

    Raises:
        DataflowError: for what is no stream of edges, and when there are no sources.
    """
    if isinstance(edges, ChangingEdges):
        return of_collection("bfs", edges, sources, directed=directed, columns=columns, name=name, parallelism=parallelism)
    given = check_edges("bfs", edges, columns)
    if not isinstance(directed, bool):
        raise DataflowError(f"bfs() was given directed={show(directed)}: it must be True or False")
    if isinstance(sources, (str, bytes)) or not isinstance(sources, Iterable):
        raise DataflowError(f"bfs() was given sources={show(sources, 60)}: give a list of nodes; for one node, [node]")
    named: dict[int, Any] = {}
    for node in sources:
        other = named.setdefault(number_of(node), node)
        if other != node:
            raise DataflowError(
                f"bfs() was given the sources {show(other)} and {show(node)}, which have the same 64-bit hash: rename one of them"
            )
    numbers = np.array(sorted(named), np.int64)
    if not len(numbers):
        raise DataflowError("bfs() was given no sources: give at least one node to begin from")
    name = unused_name(edges.flow, name, "bfs")
    flow = edges.flow
    loop = flow.loop(f"{name}.loop")
    prepared = prepared_edges(edges, given, name, undirected=not directed)
    inside = loop.enter(prepared.map_batches(_SourcesAsTargets(numbers), name=f"{name}.sources"))
    back = loop.feedback()
    again, out = flow.vertex(
        Make(BreadthFirst, numbers, named),
        inputs=[inside.key_by("src"), back.key_by("to")],
        outputs=2,
        name=name,
        parallelism=parallelism,
    )
    back.connect(again)
    return loop.leave_updates(out, of=edges, name=f"{name}.changed")


class _SourcesAsTargets:
    """Adds a self-loop for each source that is a target: edges go to the replica of their ``src`` only, and a source
    must hear that it is in the graph."""

    def __init__(self, numbers: Ints) -> None:
        self.numbers = numbers

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        dst = to_array(batch.column(DST))
        hits = np.flatnonzero(np.isin(dst, self.numbers))
        if not len(hits):
            return batch
        taken = batch.take(to_column(hits[np.unique(dst[hits], return_index=True)[1]]))
        ends = {SRC: DST, SRC_NAME: DST_NAME}
        loops = pa.record_batch({column: taken.column(ends.get(column, column)) for column in batch.schema.names})
        return pa.concat_batches([batch, loops])


class BreadthFirst(GraphVertex):
    """One replica. By dense index: ``distance`` is the best known so far (for nodes of others: that was sent); ``told``
    what was last emitted."""

    def __init__(self, sources: Ints, named: dict[int, Any]) -> None:
        super().__init__()
        self.sources = sources
        self.named = named
        self.edges = Adjacency()
        self.distance: Ints = np.empty(0, np.int64)
        self.levels: dict[int, list[Ints]] = {}
        self.closer: list[Ints] = []
        self.reached: list[Ints] = []

    def parts(self) -> Mapping[str, Part]:
        return {**super().parts(), "edges": self.edges, "distance": self.distances}

    def rest(self) -> dict[str, Any]:
        return {**super().rest(), "reached": joined(self.reached)}

    def restore_rest(self, rest: dict[str, Any]) -> None:
        super().restore_rest(rest)
        self.reached = [rest["reached"]]

    def on_round(self, time: Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        before = len(self.nodes)
        if BY_SRC in arrived:
            source, target = self.edges.add(*self.take_edges(arrived[BY_SRC]))
            self.distance = grown(self.distance, len(self.nodes), FAR)
            fresh = np.arange(before, len(self.nodes))
            begin = fresh[self.nodes.mine[fresh] & np.isin(self.nodes.numbers[fresh], self.sources)]
            if self.nodes.names:  # another node may have a source's number
                given = [self.nodes.name(node) == self.named[int(self.nodes.numbers[node])] for node in begin.tolist()]
                begin = begin[np.array(given, np.bool_)]
            self._lower(begin, np.zeros(len(begin), np.int64))
            near = self.distance[source] != FAR
            self._lower(target[near], self.distance[source[near]] + 1)
        if MESSAGES in arrived:
            to, value = received(arrived[MESSAGES])
            dense = self.nodes.add(to, received_names(arrived[MESSAGES]))
            self.distance = grown(self.distance, len(self.nodes), FAR)
            self._lower(dense, value)
        self._spread()
        if self.closer:
            self._tell(time)

    def _lower(self, nodes: Ints, distance: Ints) -> None:
        """Take ``distance[i]`` for ``nodes[i]`` where it is better."""
        better = distance < self.distance[nodes]
        nodes, distance = nodes[better], distance[better]
        if not len(nodes):
            return
        np.minimum.at(self.distance, nodes, distance)
        self.closer.append(nodes)
        lowered = members(nodes, len(self.nodes))
        lowered = lowered[self.nodes.mine[lowered]]
        levels = self.distance[lowered]
        order = np.argsort(levels, kind="stable")
        lowered, levels = lowered[order], levels[order]
        cuts = np.flatnonzero(levels[1:] != levels[:-1]) + 1
        for part in np.split(lowered, cuts):
            if len(part):
                self.levels.setdefault(int(self.distance[part[0]]), []).append(part)

    def _spread(self) -> None:
        """Search from the nodes that came closer, nearest first, until no node of this replica comes closer any more."""
        mine, distance = self.nodes.mine, self.distance
        while self.levels:
            level = min(self.levels)
            parts = self.levels.pop(level)
            nodes = parts[0] if len(parts) == 1 else members(np.concatenate(parts), len(mine))
            target = self.edges.neighbours(nodes[distance[nodes] == level])[1]
            target = target[distance[target] > level + 1]
            if len(target):
                distance[target] = level + 1
                target = members(target, len(mine))
                self.closer.append(target)
                onward = target[mine[target]]
                if len(onward):
                    self.levels.setdefault(level + 1, []).append(onward)

    def _tell(self, time: Timestamp) -> None:
        """Send the new distances of nodes of others; keep those of our own until the epoch ends."""
        closer = members(np.concatenate(self.closer), len(self.nodes))
        mine = self.nodes.mine[closer]
        self.closer = []
        self.distances.note(closer)
        self.reached.append(closer[mine])
        others = closer[~mine]
        self.notify_at_end(time)
        self.send_messages(AGAIN, time, self.nodes.numbers[others], self.distance[others], others)

    def setup(self) -> None:
        super().setup()
        self.distances = DenseValues(self, "distance", self.nodes, FAR)

    def on_end(self, time: Timestamp) -> None:
        reached = members(np.concatenate(self.reached), len(self.nodes))
        self.reached = []
        self.send_results(OUT, time, reached, self.distance[reached])
