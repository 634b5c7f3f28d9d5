"""Components, weak and strong: the smallest label that reaches a node.

A label goes along the edges until a smaller one has been there. Where all labels start at once, most of that is in vain; so labels start
one order of magnitude after another (``enter_at``), and large ones find smaller ones in their place. Sources: McSherry et al.,
*Differential dataflow* (CIDR 2013), figure 1 (strong components); the example ``scc`` of the Rust library for starting labels by their
logarithm.
"""

from __future__ import annotations

from typing import Any

from rayad.incremental.collection import Collection
from rayad.incremental.graphs.edges import both_ways, by_source, edges_of, nodes_of, turned, twice

APART = 256
"""Rounds between labels of one order of magnitude and those of the next: as far as a label usually goes."""
Joined = tuple[Any, tuple[Any, Any]]


def connected_components(edges: Collection, *, columns: tuple[str, str] | None = None) -> Collection:
    """``(node, smallest node of its component)``; edges are taken as undirected."""
    pairs = edges_of(edges, columns)
    return _spread(nodes_of(pairs).map(twice), both_ways(pairs))


def strongly_connected_components(edges: Collection, *, columns: tuple[str, str] | None = None) -> Collection:
    """``(node, smallest node of its strong component)``: edges between components are dropped until none is left, going by labels forward
    and backward in turn; what is left are the components."""
    pairs = edges_of(edges, columns).distinct()
    other_way = pairs.map(turned)
    inside = pairs.iterate(lambda inner: _same_labels(_same_labels(inner, pairs), other_way))
    alone = nodes_of(pairs).map(twice)
    return alone.concat(_spread(nodes_of(inside).map(twice), both_ways(inside))).keyed().min()


def _spread(labels: Collection, edges: Collection) -> Collection:
    """The smallest label that reaches each node."""
    sent = by_source(edges)

    def further(inner: Collection) -> Collection:
        met = inner.keyed().join(sent).map(_to_the_end)
        return met.concat(labels.enter_at(inner, start_round)).keyed().min()

    return labels.filter(_never).iterate(further)


def _same_labels(inner: Collection, graph: Collection) -> Collection:
    """The edges of a graph, turned, whose ends have the same label after labels have gone along the edges of ``inner``."""
    labels = _spread(nodes_of(graph).map(twice), inner).keyed()
    half = by_source(graph).join(labels).map(_by_target)
    return half.keyed().join(labels).filter(_same).map(_turned_edge)


def start_round(label: tuple[Any, Any]) -> int:
    """When a label starts: by its order of magnitude. Other nodes than integers from 0 on all start at once, behind these.

    >>> start_round(("a", 0)), start_round(("a", 5)), start_round(("a", "b"))
    (0, 768, 16384)
    """
    value = label[1]
    return APART * (min(value.bit_length(), 64) if isinstance(value, int) and value >= 0 else 64 if not isinstance(value, int) else 0)


def _never(record: Any) -> bool:
    return False


def _to_the_end(met: Joined) -> tuple[Any, Any]:
    _, (label, edge) = met
    return edge[1], label


def _by_target(met: Joined) -> tuple[Any, tuple[Any, Any]]:
    _, (edge, label) = met
    return edge[1], (edge, label)


def _same(met: Joined) -> bool:
    (_, mine), other = met[1]
    return bool(mine == other)


def _turned_edge(met: Joined) -> tuple[Any, Any]:
    edge = met[1][0][0]
    return edge[1], edge[0]


__all__ = ["connected_components", "start_round", "strongly_connected_components"]
