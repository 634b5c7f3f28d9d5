"""Graphs whose edges come and go: algorithms on collections, which are in ``rayad.incremental.graphs`` and are called from here.

``graphs`` and ``incremental`` are both written on ``dataflow`` alone, and do not know each other.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

from rayad.dataflow import DataflowError, hooks, show


@runtime_checkable
class ChangingEdges(Protocol):
    """What is asked of a :class:`rayad.Collection` here."""

    stream: Any
    loops: Any


Collection: TypeAlias = Any
"""A :class:`rayad.Collection`."""


def of_collection(what: str, edges: Any, *args: Any, **options: Any) -> Collection:
    """What an algorithm makes of a collection. Raises DataflowError where it is none, or for what only streams have."""
    if not isinstance(edges, ChangingEdges):
        raise DataflowError(f"{what}() was given {show(edges, 60)}: it takes a collection, made by as_collection() or flow.collection()")
    ours = {name: value for name, value in options.items() if value is not None}
    unused = sorted(ours.keys() & {"name", "parallelism"})
    if unused:
        raise DataflowError(
            f"{what}() of a collection was given {unused[0]}=: it is made of several vertices, which have names of their own; leave it out"
        )
    return hooks.call("graph_of_collection", what, edges, *args, **ours)


def reachable(edges: Collection, sources: Any, *, columns: tuple[str, str] | None = None) -> Collection:
    """The nodes that can be reached from the sources, which are among them, while edges come and go.

    Args:
        edges: a collection of ``(u, v)``.
        sources: a collection of nodes; or an iterable, of which those count that an edge touches.
        columns: the two fields of the ends, where edges are dicts; by default the first two.

    Raises:
        DataflowError: for what is no collection; when it runs, for what is no edge.
    """
    return of_collection("reachable", edges, sources, columns=columns)


def shortest_paths(edges: Collection, sources: Any, *, directed: bool = True, columns: tuple[str, str, str] | None = None) -> Collection:
    """``(node, length of a shortest path from the nearest source)``, while edges ``(u, v, length)`` come and go.

    Args:
        edges: a collection of ``(u, v, length)``; lengths are 0 or more.
        sources: as for :func:`reachable`.
        directed: whether edges lead one way only.
        columns: the three fields, where edges are dicts; by default the first three.

    Raises:
        DataflowError: for what is no collection; when it runs, for what is no edge, and for a length below 0.
    """
    return of_collection("shortest_paths", edges, sources, directed=directed, columns=columns)


def closure(edges: Collection, *, columns: tuple[str, str] | None = None) -> Collection:
    """``(u, v)`` wherever a path of one edge or more leads from u to v, while edges come and go: the transitive closure. Arguments as for
    :func:`reachable`."""
    return of_collection("closure", edges, columns=columns)


def k_core(edges: Collection, k: int, *, columns: tuple[str, str] | None = None) -> Collection:
    """The nodes that are left when nodes with fewer than ``k`` neighbours go, again and again, while edges come and go. Edges are taken as
    undirected; equal ones count once, self-loops not at all. Arguments as for :func:`reachable`."""
    return of_collection("k_core", edges, k, columns=columns)


def triangles(edges: Collection, *, columns: tuple[str, str] | None = None) -> Collection:
    """``(a, b, c)`` with a < b < c for each three nodes that are neighbours of each other, while edges come and go. Edges are taken as
    undirected. Arguments as for :func:`reachable`."""
    return of_collection("triangles", edges, columns=columns)


__all__ = ["ChangingEdges", "closure", "k_core", "of_collection", "reachable", "shortest_paths", "triangles"]
