"""Contraction of edges, lookup of nodes by number and by hash, sums over edges, packets: against plain Python."""

from __future__ import annotations

import pickle
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.dataflow.records.key_hashing import Router
from rayad.graphs.adjacency import Adjacency
from rayad.graphs.contraction import Contraction
from rayad.graphs.disjoint_sets import smallest_reachable
from rayad.graphs.edges import NumberEdges
from rayad.graphs.node_index import DirectIndex, HashIndex
from rayad.graphs.nodes import Nodes
from rayad.graphs.numbers import to_array, to_column
from rayad.graphs.packets import addresses, packet, unpacked
from rayad.graphs.rounds import packed, received
from rayad.graphs.sparse_sums import PIECE_EDGES, SparseSums
from tests.thorough import examples

PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)
FAR = st.sampled_from([-(2**63), -(2**40), -1, 0, 5, 2**31, 2**40, 2**63 - 1])


def parts_of(contraction: Contraction) -> set[frozenset[object]]:
    """The forest as a partition of the nodes."""
    numbers, root = contraction.forest()
    assert (root[root] == root).all()
    parts: dict[int, set[object]] = {}
    for place, name in enumerate(contraction.nodes.names_of(np.arange(len(numbers)))):
        parts.setdefault(int(root[place]), set()).add(name)
    return {frozenset(part) for part in parts.values()}


@examples(each_run=40, soak=100)
@given(st.lists(PAIRS, max_size=6), st.integers(1, 40))
def test_a_forest_has_the_components_of_the_edges(batches: list[list[tuple[int, int]]], rows_min: int) -> None:
    contraction = Contraction()
    contraction.ROWS_MIN = rows_min
    graph: nx.Graph[int] = nx.Graph()
    for batch in filter(None, batches):
        contraction.add(NumberEdges()(batch))
        graph.add_edges_from(batch)
    contraction = pickle.loads(pickle.dumps(contraction))
    assert parts_of(contraction) == {frozenset(part) for part in nx.connected_components(graph)}
    assert parts_of(contraction) == {frozenset(part) for part in nx.connected_components(graph)}


def test_a_contraction_continues_after_its_result_was_read() -> None:
    contraction = Contraction()
    contraction.add(NumberEdges()([("a", "b"), (1, 2)]))
    assert parts_of(contraction) == {frozenset({"a", "b"}), frozenset({1, 2})}
    contraction.add(NumberEdges()([("b", 2)]))
    assert parts_of(contraction) == {frozenset({"a", "b", 1, 2})}


def test_the_state_that_waits_for_a_large_epoch_does_not_grow_with_its_edges() -> None:
    random = np.random.default_rng(3)
    contraction = Contraction()
    waiting = []
    for _ in range(40):
        ends = random.integers(0, 20_000, (2, 1 << 15))
        contraction.add(pa.record_batch({"src": ends[0], "dst": ends[1]}))
        waiting.append(contraction._rows + contraction._apart_rows)
    assert max(waiting) < 1 << 16


@examples(each_run=40, soak=100)
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19))))
def test_the_smallest_reachable_is_that_of_the_component(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    graph: nx.Graph[int] = nx.empty_graph(20)
    graph.add_edges_from(pairs)
    wanted = {node: min(part) for part in nx.connected_components(graph) for node in part}
    assert smallest_reachable(20, a, b).tolist() == [wanted[node] for node in range(20)]


# -- nodes by number and by hash ------------------------------------------------------------------
@examples(each_run=40, soak=100)
@given(st.lists(st.lists(st.integers(-40, 400) | FAR, max_size=30), max_size=6))
def test_both_indexes_find_what_a_dict_finds(parts: list[list[int]]) -> None:
    nodes, model = Nodes(0, 1, 256), dict[int, int]()
    for part in parts:
        for number in sorted(set(part) - model.keys()):
            model[number] = len(model)
        nodes.add_new(np.array(part, np.int64))
        asked = [*part, -41, 401, 2**62, -(2**62)]
        assert nodes.find(np.array(asked, np.int64)).tolist() == [model.get(number, -1) for number in asked]


def test_close_numbers_move_to_the_array_and_distant_ones_to_the_hash_table() -> None:
    nodes = Nodes(0, 1, 256)
    numbers = np.random.default_rng(1).permutation(1 << 17)
    nodes.add(numbers[:500])
    assert type(nodes._index) is HashIndex
    for start in range(500, len(numbers), 10_000):
        nodes.add(numbers[start : start + 10_000])
    assert type(nodes._index) is DirectIndex
    nodes.add(np.array([1 << 50]))
    assert type(nodes._index) is HashIndex
    assert (nodes.numbers[nodes.find(numbers)] == numbers).all()
    assert nodes.find(np.array([1 << 50])).tolist() == [1 << 17]


# -- sums and packets ---------------------------------------------------------------------------------
@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (5, 3), (40, PIECE_EDGES), (300, 3 * PIECE_EDGES + 17)])
def test_sums_over_edges_are_those_of_a_loop(nodes: int, edges: int) -> None:
    random = np.random.default_rng(nodes)
    target = np.sort(random.integers(0, nodes, edges))
    source = random.integers(0, nodes, edges)
    x = random.integers(0, 1000, nodes).astype(np.float64)  # whole numbers: their sums are exact in any order
    wanted = np.zeros(nodes)
    np.add.at(wanted, target, x[source])
    assert SparseSums(nodes, source, target).of(x).tolist() == wanted.tolist()


@pytest.mark.parametrize(("parallelism", "key_groups"), [(1, 1), (2, 256), (7, 256), (64, 64)])
def test_a_packet_goes_to_the_replica_of_its_address(parallelism: int, key_groups: int) -> None:
    router = Router(parallelism, key_groups)
    values, numbers = np.array([0.5, 2.0]), np.array([7, -(2**40)])
    for replica, address in enumerate(addresses(parallelism, key_groups)):
        parts = router.split_columns(packet(3, address, values, numbers), ["to"])
        assert [part.num_rows for part in parts] == [int(other == replica) for other in range(parallelism)]
        got, nodes = unpacked(parts[replica])
        assert got.tolist() == values.tolist()
        assert nodes is not None
        assert nodes.tolist() == numbers.tolist()
    assert unpacked(packet(0, 0, values))[1] is None


@examples(each_run=40, soak=100)
@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_travel_in_half_the_bytes_where_they_fit(small: list[int], large: list[int]) -> None:
    assert packed(np.array(small, np.int64)).type == pa.int32()
    batches = [
        pa.record_batch({"to": packed(np.array(side, np.int64)), "value": packed(np.array(side, np.int64))}) for side in (small, large)
    ]
    to, value = received(batches)
    assert to.dtype == value.dtype == np.int64
    assert to.tolist() == value.tolist() == small + large


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_columns_and_arrays_share_memory(kind: type) -> None:
    values = np.arange(10).astype(kind)
    column = to_column(values)
    assert column.equals(pa.array(values))
    assert np.shares_memory(to_array(column), values)
    assert to_array(column.slice(3, 4)).tolist() == values[3:7].tolist()
    assert to_column(values[::2]).to_pylist() == values[::2].tolist()


# -- edges in several pieces ----------------------------------------------------------------------
@pytest.mark.parametrize("distinct", [3, 70_000, 10**6])
def test_many_edges_are_kept_once_each_and_found_by_pointers_and_by_bisection(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    keys = random.integers(0, distinct, 200_000)
    source, target = keys // 1000, keys % 1000
    edges = Adjacency()
    added = edges.add(source, target)
    wanted = np.unique(keys)
    assert (added[0] * 1000 + added[1]).tolist() == wanted.tolist()
    assert len(edges) == len(wanted)
    few, every = np.array([2, 0, 5000]), np.arange(1100)
    by_bisection = edges.neighbours(few)
    at, found = edges.neighbours(every)
    assert (every[at] * 1000 + found).tolist() == wanted.tolist()
    assert [part.tolist() for part in edges.neighbours(few)] == [part.tolist() for part in by_bisection]
    assert edges.add(source, target)[0].tolist() == []
    edges.add(np.array([0, 5000]), np.array([999_999, 1]))
    assert edges.neighbours(np.array([5000]))[1].tolist() == [1]
    at, found = edges.neighbours(every)
    assert len(found) == len(wanted) + 1


def shapes(count: int) -> dict[str, tuple[Any, Any]]:
    """Trees whose vertices stand in an order that is bad for somebody."""
    up = np.arange(count)
    shuffled = np.random.default_rng(count).permutation(count)
    last, first = np.full(count - 1, count - 1), np.zeros(count - 1, np.int64)
    return {
        "star around the last": (up[:-1], last),
        "the same, leaves backwards": (up[-2::-1], last),
        "star around the first": (first, up[1:]),
        "path": (up[:-1], up[1:]),
        "path backwards": (up[::-1][:-1], up[::-1][1:]),
        "path at random": (shuffled[:-1], shuffled[1:]),
        "tree of two": (up[1:], (up[1:] - 1) // 2),
        "the same from its end": (count - 1 - up[1:], count - 1 - (up[1:] - 1) // 2),
    }


@pytest.mark.parametrize("shape", shapes(8))
def test_rounds_grow_no_faster_than_the_square_of_the_logarithm(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`graphs`, strong components of scale 20: pairs of a node and its component's name are a star, and it lost one leaf a round."""
    rounds = 0
    minimum = np.minimum

    class Counted:
        """``np.minimum``; each round calls it once."""

        at = minimum.at

        def __call__(self, *sides: Any) -> Any:
            nonlocal rounds
            rounds += 1
            return minimum(*sides)

    monkeypatch.setattr(np, "minimum", Counted())
    count = 1 << 14
    assert not smallest_reachable(count, *shapes(count)[shape]).any()
    assert rounds <= 14
