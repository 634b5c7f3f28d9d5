"""Graph algorithms on collections give after each epoch what networkx gives for the edges that are there; an edge costs what it changes."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import rayad as rd
from benchmarks.collection_changes import PROGRAMS, random_graph, touched
from rayad.incremental.graphs.components import start_round
from tests.incremental.disturbed import run_disturbed
from tests.incremental.programs import Kept, Shape, history
from tests.thorough import amount, by_turns

Tables = Callable[[Counter[Any]], dict[Any, int]]


def of_graph(function: Callable[[Any], Any], *, directed: bool = True) -> Tables:
    """A table of distinct records, of a networkx graph."""

    def table(there: Counter[Any]) -> dict[Any, int]:
        graph = nx.DiGraph() if directed else nx.Graph()
        graph.add_edges_from(there)
        return dict.fromkeys(function(graph), 1)

    return table


def _smallest(parts: Any) -> Any:
    return ((node, min(part)) for part in parts for node in part)


def _core(graph: Any, k: int) -> Any:
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return nx.k_core(graph, k).nodes


def _triangles(graph: Any) -> Any:
    return {tuple(sorted(clique)) for clique in nx.enumerate_all_cliques(graph) if len(clique) == 3}


def _lengths(graph: Any) -> Any:
    for edge in graph.edges:
        graph.edges[edge]["length"] = length(edge)[2]
    return nx.multi_source_dijkstra_path_length(graph, {0}, weight="length").items() if 0 in graph else ()


def length(edge: Any) -> tuple[int, int, int]:
    """An edge with a length that may be 0."""
    return edge[0], edge[1], (3 * edge[0] + edge[1]) % 5


def _reached(graph: Any) -> Any:
    return {0} | nx.descendants(graph, 0) if 0 in graph else ()


def _distances(graph: Any) -> Any:
    return nx.single_source_shortest_path_length(graph, 0).items() if 0 in graph else ()


ALGORITHMS = [
    Kept("reachable", lambda edges: rd.graphs.reachable(edges, [0]), of_graph(_reached), Shape(10, 14, 12)),
    Kept("bfs", lambda edges: rd.graphs.bfs(edges, [0]), of_graph(_distances), Shape(10, 14, 12)),
    Kept("bfs_both_ways", lambda edges: rd.graphs.bfs(edges, [0], directed=False), of_graph(_distances, directed=False), Shape(10, 9, 12)),
    Kept("lengths", lambda edges: rd.graphs.shortest_paths(edges.map(length), [0]), of_graph(_lengths), Shape(10, 16, 12)),
    Kept("closure", rd.graphs.closure, of_graph(lambda graph: nx.transitive_closure(graph).edges), Shape(7, 8, 8)),
    Kept(
        "components",
        rd.graphs.connected_components,
        of_graph(lambda graph: _smallest(nx.connected_components(graph)), directed=False),
        Shape(16, 12, 12),
    ),
    Kept(
        "strong",
        rd.graphs.strongly_connected_components,
        of_graph(lambda graph: _smallest(nx.strongly_connected_components(graph))),
        Shape(8, 12, 8),
    ),
    Kept("core", lambda edges: rd.graphs.k_core(edges, 2), of_graph(lambda graph: _core(graph, 2), directed=False), Shape(9, 11, 12)),
    Kept("triangles", rd.graphs.triangles, of_graph(_triangles, directed=False), Shape(7, 14, 12)),
]
EACH = pytest.mark.parametrize("program", ALGORITHMS, ids=lambda program: program.name)


@EACH
@pytest.mark.parametrize("seed", range(amount(each_run=3, soak=200)))
def test_each_epoch_has_what_networkx_gives(program: Kept, seed: int) -> None:
    changes = history(program.shape, seed)
    program.verify(changes, program.flow(changes).run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"])


@by_turns(2)
@EACH
@pytest.mark.parametrize("seed", range(amount(each_run=2, soak=100)))
def test_neither_failures_nor_changes_of_layout_change_results(program: Kept, seed: int, tmp_path: Path) -> None:
    run_disturbed(program, history(program.shape, seed), seed, tmp_path)


@pytest.mark.parametrize("seed", range(amount(each_run=3, soak=50)))
def test_ranks_are_those_of_networkx_after_each_epoch(seed: int) -> None:
    changes = history(Shape(7, 12, 6), seed)
    flow = rd.Dataflow("ranks")
    rd.graphs.pagerank(rd.Collection(flow.from_epochs(changes)), rounds=60).collect("out")
    result = flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"]
    there: Counter[Any] = Counter()
    table: Counter[Any] = Counter()
    for epoch, some in enumerate(changes):
        for edge, weight in some:
            there[edge] += weight
        for time, (pair, weight) in result:
            if time.epoch == epoch:
                table[pair] += weight
        want = nx.pagerank(nx.DiGraph(list(+there)), tol=1e-12, max_iter=1000)
        got = dict(+table)
        assert set(got.values()) <= {1}
        ranks = dict(got.keys())
        assert ranks == pytest.approx(want, abs=1e-4)
        assert sum(ranks.values()) == pytest.approx(1.0)


def test_equal_edges_give_equal_ranks_whatever_was_there_before() -> None:
    """Floating-point sums are exact, so a removal leaves no rest."""
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (4, 0)]
    flow = rd.Dataflow("back")
    back = [[(edge, 1) for edge in edges], [((3, 1), 1), ((4, 0), -1)], [((3, 1), -1), ((4, 0), 1)]]
    rd.graphs.pagerank(rd.Collection(flow.from_epochs(back))).collect("out")
    changed = flow.run(runtime="local")["out"]
    sums: Counter[Any] = Counter()
    for time, (pair, weight) in changed:
        if time.epoch > 0:
            sums[pair] += weight
    assert not {pair: weight for pair, weight in sums.items() if weight}


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_edge_that_goes_and_comes_costs_what_it_changes(name: str) -> None:
    """The rows that come to all vertices are counted: they do not grow with the graph, as those of loading it do."""
    small, large = (
        touched(PROGRAMS[name], edges, random.Random(2).sample(edges, 12)) for edges in map(random_graph, (500, amount(4000, 16_000)))
    )
    assert large.loaded > 7 * small.loaded
    middle, mean = statistics.median(large.rows), statistics.mean(large.rows)
    assert min(large.rows) > 0
    if name == "strong components":  # labels that went along the edge go another way, though few records change
        assert middle < 0.005 * large.loaded, large.rows
        assert mean < 0.04 * large.loaded, large.rows
    else:
        assert middle <= 2 * statistics.median(small.rows) + 10, (small.rows, large.rows)
        assert mean < (6 if name == "degrees" else 0.005 * large.loaded), large.rows


def test_labels_that_start_one_after_another_touch_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(2)
    edges = list({(chance.randrange(500), chance.randrange(500)) for _ in range(1000)})
    staged = touched(rd.graphs.connected_components, edges, []).loaded
    monkeypatch.setattr("rayad.incremental.graphs.components.start_round", lambda label: 0)
    together = touched(rd.graphs.connected_components, edges, []).loaded
    assert staged < together, (staged, together)


def test_labels_start_by_their_order_of_magnitude() -> None:
    assert [start_round((0, value)) for value in (0, 1, 2, 3, 1 << 70, -1, "a")] == [0, 256, 512, 512, 64 * 256, 0, 64 * 256]


def test_nodes_may_be_strings_and_edges_dicts() -> None:
    flow = rd.Dataflow("named")
    edges = flow.from_items([{"a": "ann", "b": "bob", "km": 2.5}, {"a": "bob", "b": "cid", "km": 1}]).as_collection()
    rd.graphs.connected_components(edges, columns=("a", "b")).collect("weak")
    rd.graphs.shortest_paths(edges, ["ann"], columns=("a", "b", "km")).collect("paths")
    rd.graphs.bfs(edges, flow.from_items(["bob", "dan"]).as_collection(), columns=("a", "b")).collect("bfs")
    result = flow.run(runtime="local", parallelism=2)
    assert sorted(pair for _, (pair, _) in result["weak"]) == [("ann", "ann"), ("bob", "ann"), ("cid", "ann")]
    assert sorted(pair for _, (pair, _) in result["paths"]) == [("ann", 0), ("bob", 2.5), ("cid", 3.5)]
    assert sorted(pair for _, (pair, _) in result["bfs"]) == [("bob", 0), ("cid", 1), ("dan", 0)]


def test_what_is_no_graph_is_refused() -> None:
    flow = rd.Dataflow("refused")
    stream = flow.from_items([(1, 2)])
    edges = stream.as_collection()
    for function in (rd.graphs.reachable, rd.graphs.shortest_paths):
        with pytest.raises(rd.DataflowError, match=r"\(\) was given .*: it takes a collection, made by as_collection\(\)"):
            function(stream, [1])
        with pytest.raises(rd.DataflowError, match="the sources are 'ab': give a collection, or an iterable of nodes"):
            function(edges, "ab")
    with pytest.raises(rd.DataflowError, match="give a collection, before key_by"):
        rd.graphs.closure(edges.key_by(lambda edge: edge[0]))
    with pytest.raises(rd.DataflowError, match=r"columns is .*: give the names of 2 columns"):
        rd.graphs.triangles(edges, columns=("a",))  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match=r"connected_components\(\) of a collection was given name=: .*leave it out"):
        rd.graphs.connected_components(edges, name="mine")
    with pytest.raises(rd.DataflowError, match=r"pagerank\(\) was given damping=1"):
        rd.graphs.pagerank(edges, damping=1)
    with pytest.raises(rd.DataflowError, match=r"enter_at\(\) was given .*: give what the body of iterate\(\) was given"):
        edges.enter_at(edges, lambda edge: 0)


@pytest.mark.parametrize(
    ("build", "record", "told"),
    [
        (rd.graphs.closure, (1,), r"\(1,\) is no edge \(u, v\)"),
        (rd.graphs.closure, (1, None), r"\(1, None\) is no edge \(u, v\)"),
        (
            lambda edges: rd.graphs.shortest_paths(edges, [1]),
            (1, 2, -1),
            r"has the length -1: shortest paths need lengths that are 0 or more",
        ),
        (rd.graphs.triangles, (1, "a"), r"the nodes of \(1, 'a'\) cannot be compared"),
    ],
)
def test_a_record_that_is_no_edge_is_named(build: Any, record: Any, told: str) -> None:
    flow = rd.Dataflow("bad")
    build(flow.from_items([record]).as_collection()).collect("out")
    with pytest.raises(rd.DataflowError, match=told):
        flow.run(runtime="local")
