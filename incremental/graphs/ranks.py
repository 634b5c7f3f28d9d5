"""PageRank of edges that come and go: exactly so many rounds from the uniform vector, whatever the edges were before."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from rayad.incremental.collection import Collection
from rayad.incremental.graphs.edges import by_source, edges_of, nodes_of
from rayad.progress import DataflowError, arguments, show


def pagerank(edges: Collection, rounds: int = 20, damping: float = 0.85, *, columns: tuple[str, str] | None = None) -> Collection:
    """``(node, rank)``; equal edges count once. Ranks sum to 1. The mass of nodes without outgoing edges is spread uniformly.

    Sums are exact, so a node has one rank whatever the order. An edge changes nearly all ranks in their last digits, so an epoch costs the
    whole graph, ``rounds`` times.
    """
    rounds = arguments.whole(rounds, "pagerank: rounds", least=1)
    if isinstance(damping, bool) or not isinstance(damping, Real) or not 0 <= damping < 1:
        raise DataflowError(f"pagerank() was given damping={show(damping)}: it must be a number with 0 <= damping < 1")
    pairs = edges_of(edges, columns).distinct()
    nodes = nodes_of(pairs)
    sent = by_source(pairs)
    degrees = sent.count().keyed()
    count = nodes.key_by(_one_key).count().keyed()
    begin = nodes.key_by(_one_key).join(count).map(_uniform)
    ends = sent.join(degrees).map(_with_degree).keyed()
    outless = nodes.key_by(_itself).join(degrees, "anti").map(_first).key_by(_itself)

    def again(inner: Collection) -> Collection:
        ranks = inner.keyed()
        lost = ranks.join(outless).map(_rank_of).key_by(_one_key).sum(_itself)  # under the one key, or nothing
        base = count.join(lost.keyed(), "left").map(Base(float(damping))).key_by(_one_key)
        bases = nodes.key_by(_one_key).join(base).map(_node_and_base)
        parts = ranks.join(ends).map(Part(float(damping)))
        return bases.concat(parts).keyed().sum(_itself)

    return begin.iterate(again, max_rounds=rounds)


@dataclass(frozen=True, slots=True)
class Base:
    """What each node gets from nobody in particular."""

    damping: float

    def __call__(self, met: tuple[Any, tuple[int, float | None]]) -> float:
        count, lost = met[1]
        return (1.0 - self.damping) / count + self.damping * (lost or 0.0) / count


@dataclass(frozen=True, slots=True)
class Part:
    """What a node gives along one of its edges."""

    damping: float

    def __call__(self, met: tuple[Any, tuple[float, tuple[Any, int]]]) -> tuple[Any, float]:
        rank, (target, degree) = met[1]
        return target, self.damping * rank / degree


def _one_key(record: Any) -> int:
    return 0


def _itself(record: Any) -> Any:
    return record


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _uniform(met: tuple[int, tuple[Any, int]]) -> tuple[Any, float]:
    node, count = met[1]
    return node, 1.0 / count


def _with_degree(met: tuple[Any, tuple[Any, int]]) -> tuple[Any, tuple[Any, int]]:
    source, (edge, degree) = met
    return source, (edge[1], degree)


def _rank_of(met: tuple[Any, tuple[float, Any]]) -> float:
    return met[1][0]


def _node_and_base(met: tuple[int, tuple[Any, float]]) -> tuple[Any, float]:
    return met[1]


__all__ = ["pagerank"]
