"""Connected components against networkx, epoch by epoch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.graphs import connected_components
from rayad.graphs.disjoint_sets import DisjointSets
from rayad.graphs.nodes import Nodes
from tests.graphs.epochs import Epochs, check_changes, growing_graphs, is_columnar, run, smallest, statistics_of
from tests.thorough import examples


def reference(edges: list[Any]) -> dict[Any, Any]:
    graph = nx.Graph()
    graph.add_edges_from(edges)
    return {node: smallest(part) for part in nx.connected_components(graph) for node in part}


@given(growing_graphs(), st.integers(1, 3), st.integers(0, 99))
@examples(each_run=28, soak=80)
def test_each_epoch_emits_the_nodes_that_changed(epochs: Epochs, parallelism: int, seed: int) -> None:
    check_changes(epochs, run(epochs, connected_components, parallelism=parallelism, seed=seed), reference)


@given(growing_graphs(), st.integers(1, 3))
@examples(each_run=14, soak=40)
def test_columns_give_what_rows_give(epochs: Epochs, parallelism: int) -> None:
    if is_columnar(epochs):
        check_changes(epochs, run(epochs, connected_components, parallelism=parallelism, columnar=True), reference)


def test_values_are_the_smallest_node_and_plain_python_objects() -> None:
    emitted = run([[("b", "c"), ("x", "a")], [("c", "x")], []], connected_components)
    assert sorted(emitted[0]) == [("a", "a"), ("b", "b"), ("c", "b"), ("x", "a")]
    assert sorted(emitted[1]) == [("b", "a"), ("c", "a")]
    assert emitted[2] == []
    assert {type(part) for record in run([[(3, 4)]], connected_components)[0] for part in record} == {int}


def test_equal_keys_are_one_node() -> None:
    assert sorted(run([[(1, 2), (2.0, 3), (True, 9)]], connected_components)[0]) == [(1, 1), (2, 1), (3, 1), (9, 1)]


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_long_path_takes_few_rounds(parallelism: int) -> None:
    """Labels jump along the labels before them: 2,000 nodes in a row need nowhere near 2,000 rounds."""
    order = np.random.default_rng(1).permutation(2_000).tolist()
    path = [list(pairwise(order))]
    check_changes(path, run(path, connected_components, parallelism=parallelism), reference)
    assert statistics_of("components", connected_components, path, parallelism)["batches_in"] < 40 * parallelism


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_one_more_edge_costs_little(parallelism: int) -> None:
    rng = np.random.default_rng(2)
    base = [(int(u), int(v)) for u, v in rng.integers(0, 5_000, (20_000, 2))]
    once = statistics_of("components", connected_components, [base], parallelism)["records_in"]
    more = statistics_of("components", connected_components, [base, [(1, 2)], [(6_000, 3)]], parallelism)["records_in"]
    assert more - once <= 12


def test_large_graph_equals_scipy() -> None:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components as scipy_components

    u, v = np.random.default_rng(3).integers(0, 30_000, (2, 20_000))
    flow = rd.Dataflow("large")
    connected_components(flow.from_items(pa.record_batch({"u": u, "v": v}))).collect("out", columnar=True)
    table = flow.run(runtime="local", parallelism=2)["out"]
    _, labels = scipy_components(coo_matrix((np.ones(len(u)), (u, v)), shape=(30_000, 30_000)), directed=False)
    first = np.full(30_000, 30_000)
    np.minimum.at(first, labels, np.arange(30_000))
    nodes = table["node"].to_numpy()
    assert sorted(nodes.tolist()) == sorted(set(u.tolist()) | set(v.tolist()))
    assert np.array_equal(table["value"].to_numpy(), first[labels[nodes]])


@examples(each_run=40, soak=100)
@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12), max_size=6), st.integers(0, 5))
def test_disjoint_sets_hold_their_invariants(merges: list[list[tuple[int, int]]], few: int) -> None:
    nodes = Nodes(0, 1, 256)
    nodes.add(np.array([100 - 3 * i for i in range(31)]))
    sets = DisjointSets(nodes)
    sets.FEW = few  # by lists or by passes over all, the same
    sets.grow()
    graph = nx.empty_graph(31)
    for pairs in merges:
        before = sets.root.copy()
        left, right = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
        changed = sets.union(left, right)
        graph.add_edges_from(pairs)
        sets.check_invariants()
        assert sorted(changed.tolist()) == np.flatnonzero(sets.root != before).tolist()
        assert len(set(sets.root.tolist())) == nx.number_connected_components(graph)
