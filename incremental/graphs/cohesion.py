"""How closely a graph holds together: cores and triangles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rayad.incremental.collection import Collection
from rayad.incremental.graphs.edges import both_ways, by_source, edges_of, source, target
from rayad.progress import DataflowError, arguments, show

Joined = tuple[Any, tuple[Any, Any]]


def k_core(edges: Collection, k: int, *, columns: tuple[str, str] | None = None) -> Collection:
    """The nodes of the k-core: what is left when nodes with fewer than k neighbours go, again and again. Edges are taken as undirected,
    equal ones count once, self-loops not at all."""
    k = arguments.whole(k, "k_core: k", least=1)
    pairs = both_ways(edges_of(edges, columns).filter(_is_no_loop)).distinct()

    def without_the_loose(inner: Collection) -> Collection:
        enough = by_source(inner).count().filter(Enough(k)).keyed()
        begins = by_source(inner).join(enough, "semi").map(_edge)
        return begins.key_by(target).join(enough, "semi").map(_edge)

    return pairs.iterate(without_the_loose).map(source).distinct()


def triangles(edges: Collection, *, columns: tuple[str, str] | None = None) -> Collection:
    """``(a, b, c)`` with a < b < c for each three nodes that are neighbours of each other. Edges are taken as undirected; nodes can be
    compared."""
    pairs = edges_of(edges, columns).filter(_is_no_loop).map(_upwards).distinct()
    sent = by_source(pairs)
    wedges = sent.join(sent).filter(_is_upwards).map(_by_far_ends)
    return wedges.keyed().join(pairs.by_record(), "semi").map(_triangle)


@dataclass(frozen=True, slots=True)
class Enough:
    """Whether a node has so many neighbours."""

    k: int

    def __call__(self, counted: tuple[Any, int]) -> bool:
        return counted[1] >= self.k


def _is_no_loop(edge: tuple[Any, Any]) -> bool:
    return bool(edge[0] != edge[1])


def _edge(kept: tuple[Any, tuple[Any, Any]]) -> tuple[Any, Any]:
    return kept[1]


def _upwards(edge: tuple[Any, Any]) -> tuple[Any, Any]:
    try:
        return edge if edge[0] < edge[1] else (edge[1], edge[0])
    except TypeError as error:
        raise DataflowError(f"triangles: the nodes of {show(edge, 80)} cannot be compared ({error}): give nodes of one type") from error


def _is_upwards(met: Joined) -> bool:
    return bool(met[1][0][1] < met[1][1][1])


def _by_far_ends(met: Joined) -> tuple[tuple[Any, Any], Any]:
    first, (one, other) = met
    return (one[1], other[1]), first


def _triangle(kept: tuple[tuple[Any, Any], Any]) -> tuple[Any, Any, Any]:
    (second, third), first = kept
    return first, second, third


__all__ = ["k_core", "triangles"]
