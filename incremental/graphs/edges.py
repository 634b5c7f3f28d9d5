"""Edges of collections: pairs, or triples with a weight; their ends, and the other way round."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rayad.incremental.collection import Collection, KeyedCollection
from rayad.progress import DataflowError, show


@dataclass(frozen=True, slots=True)
class Ends:
    """A record as an edge of so many parts, the first two of which are its ends."""

    parts: int
    columns: tuple[str, ...] | None

    def __call__(self, record: Any) -> tuple[Any, ...]:
        if self.columns is not None:
            edge = tuple(record[name] for name in self.columns)
        elif isinstance(record, dict):
            edge = tuple(record.values())[: self.parts]
        else:
            edge = tuple(record) if isinstance(record, (tuple, list)) else ()
        if len(edge) < self.parts or edge[0] is None or edge[1] is None:
            what = "(u, v)" if self.parts == 2 else "(u, v, length)"
            raise DataflowError(f"{show(record, 80)} is no edge {what}: give tuples, or dicts with columns=, and no None as a node")
        return edge[: self.parts]


def edges_of(records: Collection, columns: tuple[str, ...] | None = None, *, parts: int = 2) -> Collection:
    """The records as tuples. Raises DataflowError for what is no collection, and for columns that are not that many names."""
    if not isinstance(records, Collection):
        raise DataflowError(f"the edges are {show(records, 60)}: give a collection, before key_by()")
    if columns is not None and not (
        isinstance(columns, (tuple, list)) and len(columns) == parts and all(isinstance(name, str) for name in columns)
    ):
        raise DataflowError(f"columns is {show(columns, 60)}: give the names of {parts} columns")
    return records.map(Ends(parts, None if columns is None else tuple(columns)))


def both_ways(edges: Collection) -> Collection:
    """Each edge, and the same from its end to its beginning."""
    return edges.concat(edges.map(turned))


def turned(edge: tuple[Any, ...]) -> tuple[Any, ...]:
    """From its end to its beginning."""
    return edge[1], edge[0], *edge[2:]


def nodes_of(edges: Collection) -> Collection:
    """Each end of an edge, once."""
    return edges.flat_map(ends).distinct()


def by_source(edges: Collection) -> KeyedCollection:
    """By where they begin."""
    return edges.key_by(source)


def ends(edge: tuple[Any, ...]) -> tuple[Any, Any]:
    """Both."""
    return edge[0], edge[1]


def source(edge: tuple[Any, ...]) -> Any:
    """Where it begins."""
    return edge[0]


def target(edge: tuple[Any, ...]) -> Any:
    """Where it ends."""
    return edge[1]


def itself(node: Any) -> Any:
    """The node."""
    return node


def twice(node: Any) -> tuple[Any, Any]:
    """The node with itself as its label."""
    return node, node


def roots_of(edges: Collection, sources: Iterable[Any] | Collection) -> Collection:
    """The nodes to begin at: a collection of them, or those among these that have edges."""
    if isinstance(sources, Collection):
        return sources.distinct()
    if isinstance(sources, (str, bytes)) or not isinstance(sources, Iterable):
        raise DataflowError(f"the sources are {show(sources, 60)}: give a collection, or an iterable of nodes")
    return nodes_of(edges).filter(Among(frozenset(sources)))


@dataclass(frozen=True, slots=True)
class Among:
    """Whether a node is one of these."""

    nodes: frozenset[Any]

    def __call__(self, node: Any) -> bool:
        return node in self.nodes


Step = Callable[[Collection], Collection]
"""The body of a loop."""

__all__ = ["Step", "both_ways", "by_source", "edges_of", "itself", "nodes_of", "roots_of", "source", "target", "turned", "twice"]
