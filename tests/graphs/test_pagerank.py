"""PageRank against dense power iteration, and against networkx when it has converged."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.graphs import pagerank
from tests.graphs.epochs import Epochs, growing_graphs, is_columnar, run
from tests.thorough import examples


def reference(edges: list[Any], rounds: int, damping: float) -> dict[Any, float]:
    """``rounds`` dense iterations from the uniform vector, dangling mass spread uniformly."""
    nodes = list(dict.fromkeys(node for edge in edges for node in edge))
    if not nodes:
        return {}
    place = {node: i for i, node in enumerate(nodes)}
    n = len(nodes)
    matrix = np.zeros((n, n))
    for u, v in edges:
        matrix[place[v], place[u]] = 1.0
    degree = matrix.sum(axis=0)
    rank = np.full(n, 1 / n)
    for _ in range(rounds):
        rank = (1 - damping) / n + damping * (matrix @ (rank / np.maximum(degree, 1)) + rank[degree == 0].sum() / n)
    return dict(zip(nodes, rank.tolist(), strict=True))


def check(epochs: Epochs, emitted: list[list[Any]], rounds: int, damping: float) -> None:
    edges: list[Any] = []
    held: dict[Any, float] = {}
    for epoch, records in zip(epochs, emitted, strict=True):
        edges = edges + epoch
        assert len(records) == len(dict(records))
        assert all(held.get(node) != value for node, value in records), "a node was emitted though its rank is the same"
        held.update(records)
        expected = reference(edges, rounds, damping)
        assert held.keys() == expected.keys()
        assert all(held[node] == pytest.approx(expected[node], rel=1e-9) for node in expected)
        assert not epoch or sum(held.values()) == pytest.approx(1.0)
        assert epoch or not records


@given(growing_graphs(), st.integers(1, 6), st.sampled_from([0.0, 0.5, 0.85]), st.integers(1, 3), st.integers(0, 99))
@examples(each_run=28, soak=80)
def test_each_epoch_gives_the_ranks_of_the_graph_so_far(epochs: Epochs, rounds: int, damping: float, parallelism: int, seed: int) -> None:
    check(epochs, run(epochs, lambda e: pagerank(e, rounds, damping), parallelism=parallelism, seed=seed), rounds, damping)


@given(growing_graphs())
@examples(each_run=10, soak=30)
def test_columns_give_what_rows_give(epochs: Epochs) -> None:
    if is_columnar(epochs):
        check(epochs, run(epochs, lambda e: pagerank(e, 4), parallelism=2, columnar=True), 4, 0.85)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_ranks_are_the_same_bits_for_every_seed(parallelism: int) -> None:
    """Sums of floats depend on their order; which batch came first must not decide it."""
    rng = np.random.default_rng(4)
    epochs = [[(f"n{u}", f"n{v}") for u, v in rng.integers(0, 40, (60, 2))] for _ in range(2)]
    runs = [
        {(e, *record) for e, part in enumerate(run(epochs, pagerank, parallelism=parallelism, seed=s)) for record in part} for s in range(4)
    ]
    assert all(other == runs[0] for other in runs)


def test_many_rounds_converge_to_networkx() -> None:
    edges = [(int(u), int(v)) for u, v in np.random.default_rng(5).integers(0, 60, (200, 2))]
    expected = nx.pagerank(nx.DiGraph(edges), tol=1e-12)
    assert dict(run([edges], lambda e: pagerank(e, rounds=100), parallelism=2)[0]) == pytest.approx(expected, rel=1e-8)


def test_a_node_that_only_receives_is_dangling() -> None:
    emitted = dict(run([[("a", "b")]], lambda e: pagerank(e, rounds=1, damping=0.5))[0])
    assert emitted == pytest.approx({"a": 0.375, "b": 0.625})
