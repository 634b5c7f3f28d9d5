"""Vertex programs: supersteps, halting, combiners, incremental and restarted runs, and what goes wrong in them."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.graphs import ProgramVertex, VertexProgram, pregel
from tests.graphs.epochs import Epochs, check_changes, growing_graphs, run, smallest, statistics_of
from tests.thorough import examples

FAR = float("inf")


class Nearest(VertexProgram):
    """Length of the shortest path from a source; incremental, because it begins from what it had."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def init(self, node: Any) -> float:
        return 0.0 if node == self.source else FAR

    def compute(self, vertex: ProgramVertex, state: float, messages: list[Any]) -> Any:
        best = min([state, *messages])
        if best == FAR or (vertex.superstep > 0 and best == state):
            return best, None
        return best, [(target, best + length) for target, length in vertex.edges.items()]

    def combine(self, left: float, right: float) -> float:
        return min(left, right)


class Rank(VertexProgram):
    """Three rounds of PageRank without damping or dangling nodes: restarted, with a fixed number of supersteps."""

    def init(self, node: Any) -> float:
        return 1.0

    def compute(self, vertex: ProgramVertex, state: float, messages: list[Any]) -> Any:
        rank = state if vertex.superstep == 0 else sum(messages)
        if vertex.superstep == 3 or not vertex.edges:
            return rank, []
        return rank, vertex.to_neighbours(rank / len(vertex.edges))


class Heard(VertexProgram):
    """Who has sent, in the order of the messages."""

    def init(self, node: Any) -> tuple[Any, ...]:
        return ()

    def compute(self, vertex: ProgramVertex, state: Any, messages: list[Any]) -> Any:
        return tuple(messages), vertex.to_neighbours(vertex.id) if vertex.superstep == 0 else None


def shortest(edges: list[Any], source: Any) -> dict[Any, float]:
    graph = nx.DiGraph()
    for u, v, length in edges:
        graph.add_edge(u, v, weight=length)
    found = nx.single_source_dijkstra_path_length(graph, source) if source in graph else {}
    return {node: found.get(node, FAR) for node in graph}


@given(st.lists(st.dictionaries(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.integers(1, 9), max_size=12), min_size=1, max_size=4))
@examples(each_run=14, soak=40)
def test_shortest_paths_with_lengths_stay_current(drawn: list[dict[tuple[int, int], int]]) -> None:
    seen: set[tuple[int, int]] = set()
    epochs: Any = []
    for part in drawn:  # an edge keeps its length: this program cannot take back
        epochs.append([(f"n{u}", f"n{v}", float(length)) for (u, v), length in part.items() if (u, v) not in seen])
        seen |= part.keys()
    for parallelism in (1, 3):
        emitted = run(epochs, lambda e: pregel(e, Nearest("n0")), parallelism=parallelism, seed=parallelism)
        check_changes(epochs, emitted, lambda edges: shortest(edges, "n0"))


@given(growing_graphs(nodes_max=8), st.integers(1, 3), st.integers(0, 9))
@examples(each_run=14, soak=40)
def test_restart_computes_the_whole_graph_again(epochs: Epochs, parallelism: int, seed: int) -> None:
    held: dict[Any, float] = {}
    edges: list[Any] = []
    emitted = run(epochs, lambda e: pregel(e, Rank(), restart=True), parallelism=parallelism, seed=seed)
    for epoch, records in zip(epochs, emitted, strict=True):
        edges = edges + epoch
        held.update(records)
        graph = nx.DiGraph(edges)
        rank = dict.fromkeys(graph, 1.0)
        last = dict(rank)
        for step in range(3):
            # A node that hears nothing sleeps, and keeps what it had.
            awake = [node for node in graph if step == 0 or node in last]
            incoming: dict[Any, float] = {}
            for node in awake:
                for target in graph[node]:
                    incoming[target] = incoming.get(target, 0.0) + last[node] / graph.out_degree(node)
            rank.update(incoming)
            last = incoming
        assert held == pytest.approx(rank)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_messages_come_in_the_order_of_their_senders(parallelism: int) -> None:
    edges = [(i, "hub") for i in (5, 3, 9, 1)] + [("b", "hub"), ("a", "hub")]
    outcomes = {repr(sorted(run([edges], lambda e: pregel(e, Heard()), parallelism=parallelism, seed=s)[0], key=repr)) for s in range(4)}
    assert len(outcomes) == 1
    assert "('hub', (1, 3, 5, 9, 'a', 'b'))" in outcomes.pop()


def test_labels_as_in_connected_components() -> None:
    class Smallest(VertexProgram):
        def init(self, node: Any) -> Any:
            return node

        def compute(self, vertex: ProgramVertex, state: Any, messages: list[Any]) -> Any:
            best = min([state, *messages])
            return best, vertex.to_neighbours(best) if best != state or vertex.superstep == 0 else ()

    edges = [(int(u), int(v)) for u, v in np.random.default_rng(1).integers(0, 60, (50, 2))]
    epochs: Epochs = [edges[:25], edges[25:]]
    both = [[pair for u, v in epoch for pair in ((u, v), (v, u))] for epoch in epochs]

    def reference(edges: list[Any]) -> dict[Any, Any]:
        return {node: smallest(part) for part in nx.connected_components(nx.Graph(edges)) for node in part}

    check_changes(both, run(both, lambda e: pregel(e, Smallest()), parallelism=2), reference)


def test_messages_after_max_supersteps_are_dropped() -> None:
    path = [[(i, i + 1, 1.0) for i in range(9)]]
    reached = [node for node, length in run(path, lambda e: pregel(e, Nearest(0), max_supersteps=4), parallelism=2)[0] if length < FAR]
    assert sorted(reached) == [0, 1, 2, 3]


def test_a_message_makes_the_node_it_is_sent_to() -> None:
    class Call(Heard):
        def compute(self, vertex: ProgramVertex, state: Any, messages: list[Any]) -> Any:
            return tuple(messages), [("new", vertex.id)] if vertex.id == "a" else None

    assert sorted(run([[("a", "b")]], lambda e: pregel(e, Call()))[0]) == [("a", ()), ("b", ()), ("new", ("a",))]


def test_columns_with_values_and_chosen_columns() -> None:
    batch = pa.record_batch({"length": [2.0, 3.0], "to": ["b", "c"], "from": ["a", "b"]})
    flow = rd.Dataflow("columns")
    pregel(flow.from_items(batch), Nearest("a"), columns=("from", "to", "length")).collect("out")
    assert sorted(record for _, record in flow.run(runtime="local")["out"]) == [("a", 0.0), ("b", 2.0), ("c", 5.0)]


def test_one_more_edge_costs_little() -> None:
    base: Any = [(i, (i * 7 + 1) % 200, 1.0) for i in range(200)]

    def search(edges: Any) -> Any:
        return pregel(edges, Nearest(0))

    once = statistics_of("pregel", search, [base])["records_in"]
    assert statistics_of("pregel", search, [base, [(5, 300, 1.0)]])["records_in"] - once <= 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: 1 / 0, "compute of Broken for node 1 in superstep 0: ZeroDivisionError: division by zero"),
        (lambda: 5, r"returned 5; it must return \(state, \[\(target, message\), ...\]\)"),
        (lambda: (5, [7]), r"returned \(5, \[7\]\); it must return"),
    ],
)
def test_errors_of_compute_name_the_node(answer: Any, message: str) -> None:
    class Broken(Heard):
        def compute(self, vertex: ProgramVertex, state: Any, messages: list[Any]) -> Any:
            return answer()

    with pytest.raises(rd.DataflowError, match=message):
        run([[(1, 2)]], lambda e: pregel(e, Broken()))
