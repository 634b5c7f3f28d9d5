"""Graphs that grow by epochs: how tests make them, run an algorithm on them, and compare it with a reference on the graph so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import rayad as rd

Epochs = list[list[tuple[Any, Any]]]
Algorithm = Callable[[rd.Stream], rd.Stream]

KINDS: dict[str, Callable[[int], Any]] = {
    "int": lambda i: i - 3,
    "sparse": lambda i: (i * 7_919_000_003) ** 2 % (1 << 63) - (1 << 62),
    "str": lambda i: f"node {i}",
    "mixed": lambda i: (i, f"n{i}", ("t", i), i + 0.5, b"%d" % i)[i % 5],
}
"""What kind of node number i is."""


@st.composite
def growing_graphs(draw: st.DrawFn, nodes_max: int = 14, edges_max: int = 18) -> Epochs:
    """Up to four epochs of edges, some of them empty, with self-loops and duplicates, of one kind of node."""
    make = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    node = st.integers(0, draw(st.integers(0, nodes_max)))
    edge = st.tuples(node, node)
    epochs = draw(st.lists(st.lists(edge, max_size=edges_max), min_size=1, max_size=4))
    return [[(make(u), make(v)) for u, v in epoch] for epoch in epochs]


def is_columnar(epochs: Epochs) -> bool:
    """Whether the nodes fit one Arrow type."""
    kinds = {type(node) for epoch in epochs for edge in epoch for node in edge}
    return kinds in ({int}, {str})


def run(epochs: Epochs, algorithm: Algorithm, *, parallelism: int = 1, seed: int = 0, columnar: bool = False) -> list[list[Any]]:
    """What ``algorithm`` emits in each epoch."""
    flow = rd.Dataflow("graph")
    items: list[Any] = epochs
    if columnar:
        items = [pa.record_batch({"u": [u for u, _ in epoch], "v": [v for _, v in epoch]}) if epoch else [] for epoch in epochs]
    algorithm(flow.from_epochs(items, batch_rows=5)).collect("out")
    result = flow.run(runtime="local", parallelism=parallelism, seed=seed)["out"]
    emitted: list[list[Any]] = [[] for _ in epochs]
    for time, record in result:
        assert time.counters == ()
        emitted[time.epoch].append(record)
    return emitted


def check_changes(epochs: Epochs, emitted: list[list[Any]], reference: Callable[[list[Any]], dict[Any, Any]]) -> None:
    """Each epoch has emitted exactly the nodes whose value in ``reference`` of all edges so far has changed, once each."""
    edges: list[Any] = []
    before: dict[Any, Any] = {}
    for epoch, records in zip(epochs, emitted, strict=True):
        edges = edges + epoch
        now = reference(edges)
        expected = {node: value for node, value in now.items() if node not in before or before[node] != value}
        assert len(records) == len(dict(records)), f"a node came twice in one epoch: {records}"
        assert dict(records) == expected
        before = now


def smallest(nodes: Any) -> Any:
    """The smallest of some nodes, as the graph functions mean it."""
    rank = {int: 0, float: 0, str: 1, bytes: 2, tuple: 3}
    return min(nodes, key=lambda node: (rank[type(node)], node))


def statistics_of(name: str, algorithm: Algorithm, epochs: Epochs, parallelism: int = 2) -> dict[str, int]:
    """What the vertex ``name`` received in a whole run."""
    flow = rd.Dataflow("graph")
    algorithm(flow.from_epochs(epochs)).collect("out")
    stages: dict[str, dict[str, int]] = flow.run(runtime="local", parallelism=parallelism).statistics.stages
    return stages[name]
