"""Dataflows of collections that tests run, and what they must give after each epoch, computed anew from all that is there."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import rayad as rd

History = list[list[tuple[Any, int]]]
"""By epoch: records and their weights."""
Edge = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """Of a random history: so many nodes, edges at first, and epochs after that with two insertions and two removals each."""

    nodes: int
    edges: int
    epochs: int


def history(shape: Shape, seed: int) -> History:
    """Edges that come and go. Only what is there is removed; an edge may be there several times."""
    chance, there, out = random.Random(seed), [], []
    for epoch in range(shape.epochs):
        changes: list[tuple[Any, int]] = []
        for _ in range(2 if epoch else shape.edges):
            edge = chance.randrange(shape.nodes), chance.randrange(shape.nodes)
            there.append(edge)
            changes.append((edge, 1))
        gone = range(min(len(there), 2 if epoch else 0))
        changes += [(there.pop(chance.randrange(len(there))), -1) for _ in gone]
        out.append(changes)
    return out


def tables(changes: History) -> list[Counter[Any]]:
    """What is there after each epoch."""
    there: Counter[Any] = Counter()
    out = []
    for some in changes:
        for record, weight in some:
            there[record] += weight
        out.append(+there)
    return out


# -- reachability ------------------------------------------------------------------------------------------
def reach(edges: rd.Collection, roots: rd.Collection) -> rd.Collection:
    """The nodes that can be reached from these."""

    def further(inner: rd.Collection) -> rd.Collection:
        ends = inner.key_by(lambda node: node).join(edges.key_by(lambda edge: edge[0])).map(lambda met: met[1][1][1])
        return ends.concat(roots).distinct()

    return roots.iterate(further)


def reached(edges: Iterable[Edge], roots: set[int]) -> set[int]:
    """The same, computed from scratch."""
    there = list(edges)
    found = set(roots)
    while more := {target for source, target in there if source in found} - found:
        found |= more
    return found


# -- strong components -------------------------------------------------------------------------------------
def components(edges: rd.Collection) -> rd.Collection:
    """The edges inside strong components: labels go forward, then backward, and edges between different labels are dropped, again and
    again. A loop inside a loop. Source: McSherry et al., *Differential dataflow* (CIDR 2013), figure 1."""
    turned = edges.map(lambda edge: (edge[1], edge[0]))
    return edges.iterate(lambda inner: _same_labels(_same_labels(inner, edges), turned))


def _same_labels(inner: rd.Collection, graph: rd.Collection) -> rd.Collection:
    """The edges of a graph, turned, whose ends have the same smallest label after labels have gone along the edges of ``inner``."""
    nodes = graph.map(lambda edge: (edge[1], edge[1]))

    def spread(labels: rd.Collection) -> rd.Collection:
        sent = labels.keyed().join(inner.key_by(lambda edge: edge[0])).map(lambda met: (met[1][1][1], met[1][0]))
        return sent.concat(nodes).keyed().min()

    labels = nodes.iterate(spread).keyed()
    by_source = graph.key_by(lambda edge: edge[0]).join(labels).map(lambda met: (met[1][0][1], met[1]))
    both = by_source.keyed().join(labels)
    return both.filter(lambda met: met[1][0][1] == met[1][1]).map(lambda met: (met[1][0][0][1], met[1][0][0][0]))


def inside_components(edges: Iterable[Edge]) -> set[Edge]:
    """The same, computed from scratch."""
    there = set(edges)
    ends = {node: reached(there, {node}) for edge in there for node in edge}
    return {(source, target) for source, target in there if source in ends[target]}


# -- a program, and what it must give ------------------------------------------------------------------------
@dataclass(frozen=True)
class Kept:
    """A program of one input, and its table as computed from all records that are there, by weight."""

    name: str
    build: Callable[[rd.Collection], rd.Collection]
    table: Callable[[Counter[Any]], dict[Any, int]]
    shape: Shape

    def flow(self, changes: History, together: int = 1) -> rd.Dataflow:
        """The dataflow of a history, of which so many epochs are taken together."""
        flow = rd.Dataflow(self.name, epochs_together=together)
        self.build(rd.Collection(flow.from_epochs(changes, batch_rows=3))).collect("out")
        return flow

    def verify(self, changes: History, collected: Iterable[tuple[rd.Timestamp, tuple[Any, int]]]) -> None:
        """Raise AssertionError unless the table is right after each epoch."""
        by_epoch: dict[int, list[tuple[Any, int]]] = defaultdict(list)
        for time, change in collected:
            by_epoch[time.epoch].append(change)
        there: Counter[Any] = Counter()
        table: Counter[Any] = Counter()
        for epoch, some in enumerate(changes):
            for record, weight in some:
                there[record] += weight
            given = by_epoch.pop(epoch, [])
            assert len(given) == len({record for record, _ in given}), f"{self.name}, epoch {epoch}: a record twice in {given}"
            for record, weight in given:
                assert weight, f"{self.name}, epoch {epoch}: {record} changes by nothing"
                table[record] += weight
            want = self.table(+there)
            got = {record: weight for record, weight in table.items() if weight}
            assert got == want, f"{self.name}, epoch {epoch}: it gives {got}, and must give {want}"
        assert not by_epoch, f"{self.name}: changes in epochs {sorted(by_epoch)}, which have no input"


def _degrees(there: Counter[Any]) -> dict[Any, int]:
    counts: Counter[int] = Counter()
    for (source, _), weight in there.items():
        counts[source] += weight
    return dict.fromkeys(counts.items(), 1)


def _paths(there: Counter[Any]) -> dict[Any, int]:
    out: Counter[Any] = Counter()
    for (a, b), weight in there.items():
        for (c, d), other in there.items():
            if b == c:
                out[a, b, d] += weight * other
    return dict(out)


def _reach_of_0(edges: rd.Collection) -> rd.Collection:
    roots = edges.map(lambda edge: 0).distinct()
    return reach(edges, roots)


def _walks(edges: rd.Collection) -> rd.Collection:
    """From where to where each walk of edges that go up leads. On the way round there is a join alone."""
    up = edges.filter(lambda edge: edge[0] < edge[1])

    def longer(inner: rd.Collection) -> rd.Collection:
        met = inner.key_by(lambda walk: walk[1]).join(up.key_by(lambda edge: edge[0]))
        return met.map(lambda pair: (pair[1][0][0], pair[1][1][1])).concat(up)

    return up.iterate(longer)


def _walked(there: Counter[Any]) -> dict[Any, int]:
    up = {edge: weight for edge, weight in there.items() if edge[0] < edge[1]}
    walks: Counter[Any] = Counter(up)
    longest = dict(up)
    while longest:
        further: Counter[Any] = Counter()
        for (a, b), weight in longest.items():
            for (c, d), other in up.items():
                if b == c:
                    further[a, d] += weight * other
        walks.update(further)
        longest = further
    return dict(walks)


def _even(edges: rd.Collection) -> rd.Collection:
    """A way round on which there is no vertex."""
    return edges.iterate(lambda inner: inner.filter(lambda edge: edge[0] % 2 == 0))


def _both_ways(edges: rd.Collection) -> rd.Collection:
    return edges.iterate(lambda inner: inner.concat(inner.map(lambda edge: (edge[1], edge[0]))).distinct())


def _turned(edges: list[Edge]) -> list[Edge]:
    return [(target, source) for source, target in edges]


def _message(change: tuple[Edge, int]) -> dict[str, Any]:
    (source, target), weight = change
    row = {"source": source, "target": target}
    return {"op": "c", "before": None, "after": row} if weight > 0 else {"op": "d", "before": row, "after": None}


def _again(edges: rd.Collection) -> rd.Collection:
    """In batches, then as running totals of how often each is there, then as the log of a table that has each once."""
    changes = edges.map_batches(_turned, batch_format="rows", remember=True).changes()
    totals = changes.key_by(lambda change: change[0]).sum(lambda change: change[1]).as_collection()
    there = totals.filter(lambda total: total[1] > 0).map(lambda total: total[0])
    messages = there.changes().map(_message)
    rows = messages.as_collection(key=lambda row: (row["source"], row["target"]), envelope="debezium")
    return rows.map(lambda row: (row["source"], row["target"]))


PROGRAMS = [
    Kept("degrees", lambda edges: edges.key_by(lambda edge: edge[0]).count(), _degrees, Shape(6, 12, 12)),
    Kept("walks", _walks, _walked, Shape(5, 6, 8)),
    Kept("even", _even, lambda there: {edge: there[edge] for edge in there if edge[0] % 2 == 0}, Shape(6, 8, 8)),
    Kept("both ways", _both_ways, lambda there: dict.fromkeys([*there, *((b, a) for a, b in there)], 1), Shape(6, 8, 8)),
    Kept(
        "paths",
        lambda edges: edges.key_by(lambda e: e[1]).join(edges.key_by(lambda e: e[0])).map(lambda m: (m[1][0][0], m[0], m[1][1][1])),
        _paths,
        Shape(5, 8, 10),
    ),
    Kept("reach", _reach_of_0, lambda there: dict.fromkeys(reached(there, {0}) if there else (), 1), Shape(10, 20, 12)),
    Kept("again", _again, lambda there: dict.fromkeys(((b, a) for a, b in there), 1), Shape(5, 8, 10)),
    Kept("components", components, lambda there: {edge: there[edge] for edge in inside_components(there)}, Shape(6, 9, 8)),
]

__all__ = ["PROGRAMS", "Edge", "Kept", "Shape", "components", "history", "inside_components", "reach", "reached", "tables"]
