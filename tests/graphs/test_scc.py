"""Strongly connected components against networkx, epoch by epoch."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.graphs import strongly_connected_components
from tests.graphs.epochs import Epochs, check_changes, growing_graphs, is_columnar, run, smallest, statistics_of
from tests.thorough import examples


def reference(edges: list[Any]) -> dict[Any, Any]:
    graph = nx.DiGraph()
    graph.add_edges_from(edges)
    return {node: smallest(part) for part in nx.strongly_connected_components(graph) for node in part}


@given(growing_graphs(edges_max=24), st.integers(1, 3), st.integers(0, 99))
@examples(each_run=42, soak=120)
def test_each_epoch_emits_the_nodes_that_changed(epochs: Epochs, parallelism: int, seed: int) -> None:
    check_changes(epochs, run(epochs, strongly_connected_components, parallelism=parallelism, seed=seed), reference)


@given(growing_graphs(edges_max=24), st.integers(1, 3))
@examples(each_run=14, soak=40)
def test_columns_give_what_rows_give(epochs: Epochs, parallelism: int) -> None:
    if is_columnar(epochs):
        check_changes(epochs, run(epochs, strongly_connected_components, parallelism=parallelism, columnar=True), reference)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_rings_joined_by_later_edges_merge(parallelism: int) -> None:
    rings = [(10 * r + i, 10 * r + (i + 1) % 10) for r in range(6) for i in range(10)]
    epochs: Epochs = [rings, [(10 * r, 10 * r + 10) for r in range(5)], [(50, 20)], [(20, 0)]]
    emitted = run(epochs, strongly_connected_components, parallelism=parallelism)
    check_changes(epochs, emitted, reference)
    assert [len(part) for part in emitted] == [60, 0, 30, 50]


def test_the_loops_are_nested() -> None:
    flow = rd.Dataflow("nested")
    strongly_connected_components(flow.from_items([(1, 2)]), name="scc").collect("out")
    depth = {scope.name: scope.depth for scope in flow.graph.scopes}
    assert (depth["scc.phases"], depth["scc.rounds"]) == (1, 2)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_edge_that_closes_no_cycle_costs_little(parallelism: int) -> None:
    rng = np.random.default_rng(6)
    base = [(int(u), int(v)) for u, v in rng.integers(0, 2_000, (5_000, 2))]
    once = statistics_of("scc", strongly_connected_components, [base], parallelism)["records_in"]
    more = statistics_of("scc", strongly_connected_components, [base, [(9_001, 9_002)], [(9_002, 9_003)]], parallelism)["records_in"]
    assert more - once <= 20


def test_large_graph_equals_scipy() -> None:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components as scipy_components

    u, v = np.random.default_rng(3).integers(0, 20_000, (2, 30_000))
    flow = rd.Dataflow("large")
    strongly_connected_components(flow.from_items(pa.record_batch({"u": u, "v": v}))).collect("out", columnar=True)
    table = flow.run(runtime="local", parallelism=2)["out"]
    matrix = coo_matrix((np.ones(len(u)), (u, v)), shape=(20_000, 20_000))
    _, labels = scipy_components(matrix, directed=True, connection="strong")
    first = np.full(20_000, 20_000)
    np.minimum.at(first, labels, np.arange(20_000))
    assert np.array_equal(table["value"].to_numpy(), first[labels[table["node"].to_numpy()]])
