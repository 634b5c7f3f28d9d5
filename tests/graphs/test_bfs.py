"""Breadth-first search against networkx, epoch by epoch."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.graphs import bfs
from tests.graphs.epochs import KINDS, Epochs, check_changes, growing_graphs, is_columnar, run, statistics_of
from tests.thorough import examples


def reference(edges: list[Any], sources: list[Any], directed: bool = True) -> dict[Any, int]:
    graph: Any = nx.DiGraph() if directed else nx.Graph()
    graph.add_edges_from(edges)
    out: dict[Any, int] = {}
    for source in sources:
        if source in graph:
            for node, distance in nx.single_source_shortest_path_length(graph, source).items():
                out[node] = min(distance, out.get(node, distance))
    return out


@given(growing_graphs(), st.sets(st.integers(0, 14), min_size=1, max_size=3), st.booleans(), st.integers(1, 3), st.integers(0, 99))
@examples(each_run=35, soak=100)
def test_each_epoch_emits_the_nodes_that_came_closer(epochs: Epochs, picks: set[int], directed: bool, parallelism: int, seed: int) -> None:
    sources = [make(i) for i in sorted(picks) for make in KINDS.values()]  # of every kind: most are not in the graph
    emitted = run(epochs, lambda e: bfs(e, sources, directed=directed), parallelism=parallelism, seed=seed)
    check_changes(epochs, emitted, lambda edges: reference(edges, sources, directed))


@given(growing_graphs(), st.integers(1, 3))
@examples(each_run=14, soak=40)
def test_columns_give_what_rows_give(epochs: Epochs, parallelism: int) -> None:
    if is_columnar(epochs):
        source = next(node for epoch in epochs for edge in epoch for node in edge)
        emitted = run(epochs, lambda e: bfs(e, [source]), parallelism=parallelism, columnar=True)
        check_changes(epochs, emitted, lambda edges: reference(edges, [source]))


def test_a_source_appears_with_its_first_edge() -> None:
    assert run([[("a", "b")], [("b", "s")], [("s", "a")]], lambda e: bfs(e, ["s", "nowhere"])) == [[], [("s", 0)], [("a", 1), ("b", 2)]]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_one_more_edge_costs_little(parallelism: int) -> None:
    rng = np.random.default_rng(2)
    base = [(int(u), int(v)) for u, v in rng.integers(0, 5_000, (30_000, 2))]

    def search(edges: Any) -> Any:
        return bfs(edges, [base[0][0]])

    once = statistics_of("bfs", search, [base], parallelism)["records_in"]
    more = statistics_of("bfs", search, [base, [(base[0][0], 6_000)], [(6_000, 6_001)]], parallelism)["records_in"]
    assert more - once <= 6
