"""What can be reached, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rayad.incremental.collection import Collection
from rayad.incremental.graphs.edges import both_ways, by_source, edges_of, itself, roots_of, target
from rayad.progress import DataflowError, show

Joined = tuple[Any, tuple[Any, Any]]


def reachable(edges: Collection, sources: Iterable[Any] | Collection, *, columns: tuple[str, str] | None = None) -> Collection:
    """The nodes that can be reached from the sources, which are among them."""
    pairs = edges_of(edges, columns)
    roots, sent = roots_of(pairs, sources), by_source(pairs)
    return roots.iterate(lambda inner: inner.key_by(itself).join(sent).map(_end).concat(roots).distinct())


def bfs(
    edges: Collection, sources: Iterable[Any] | Collection, *, directed: bool = True, columns: tuple[str, str] | None = None
) -> Collection:
    """``(node, edges from the nearest source)``."""
    pairs = edges_of(edges, columns)
    return _nearest(pairs if directed else both_ways(pairs), roots_of(pairs, sources))


def shortest_paths(
    edges: Collection, sources: Iterable[Any] | Collection, *, directed: bool = True, columns: tuple[str, str, str] | None = None
) -> Collection:
    """``(node, length of a shortest path from the nearest source)``, of edges ``(u, v, length)``; lengths are not negative."""
    triples = edges_of(edges, columns, parts=3).map(_checked)
    return _nearest(triples if directed else both_ways(triples), roots_of(triples, sources))


def closure(edges: Collection, *, columns: tuple[str, str] | None = None) -> Collection:
    """``(u, v)`` wherever a path of one edge or more leads from u to v: the transitive closure."""
    pairs = edges_of(edges, columns).distinct()
    sent = by_source(pairs)
    return pairs.iterate(lambda inner: inner.key_by(target).join(sent).map(_longer).concat(pairs).distinct())


def _nearest(edges: Collection, roots: Collection) -> Collection:
    """Source: Dijkstra's relaxation in rounds (Bellman, Ford): each round is one edge more."""
    begin, sent = roots.map(_at_nothing), by_source(edges)
    return begin.iterate(lambda inner: inner.keyed().join(sent).map(_further).concat(begin).keyed().min())


def _at_nothing(node: Any) -> tuple[Any, int]:
    return node, 0


def _end(met: Joined) -> Any:
    return met[1][1][1]


def _longer(met: Joined) -> tuple[Any, Any]:
    return met[1][0][0], met[1][1][1]


def _further(met: Joined) -> tuple[Any, Any]:
    _, (distance, edge) = met
    return edge[1], distance + (edge[2] if len(edge) > 2 else 1)


def _checked(edge: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    length = edge[2]
    if length is None or not length >= 0:
        raise DataflowError(f"the edge {show(edge, 80)} has the length {show(length, 40)}: shortest paths need lengths that are 0 or more")
    return edge


__all__ = ["bfs", "closure", "reachable", "shortest_paths"]
