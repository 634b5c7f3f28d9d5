"""The graph of policies: components against networkx, and what becomes of real plans."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.autoscale import EdgeView, ScalingGraph, Spread, VertexView, graph_of_plan
from rayad.dataflow.compiling.compiler import compile_plan
from rayad.dataflow.config import ScalingConfig
from rayad.progress import DataflowError

ENDS = st.integers(0, 6)


@given(st.lists(st.tuples(ENDS, ENDS), max_size=15))
def test_components_are_those_of_networkx_in_topological_order(pairs: list[tuple[int, int]]) -> None:
    names = [f"v{i}" for i in range(7)]
    graph = ScalingGraph.of(names, [(names[a], names[b]) for a, b in pairs])
    oracle = nx.MultiDiGraph()
    oracle.add_nodes_from(names)
    oracle.add_edges_from((names[a], names[b]) for a, b in pairs)
    assert {frozenset(c) for c in graph.components} == {frozenset(c) for c in nx.strongly_connected_components(oracle)}
    place = {name: i for i, members in enumerate(graph.components) for name in members}
    assert all(place[names[a]] <= place[names[b]] for a, b in pairs)
    assert {n for members in graph.loops for n in members} == {n for cycle in nx.simple_cycles(oracle) for n in cycle}
    assert graph.behind(["v0"]) == nx.descendants(oracle, "v0") | {"v0"}


def test_a_long_chain_is_no_problem() -> None:
    names = [f"v{i}" for i in range(3000)]
    vertices = tuple(VertexView(name) for name in names)
    graph = ScalingGraph(vertices, tuple(EdgeView(i, names[i], names[i + 1]) for i in range(2999)))
    assert [members[0] for members in graph.components] == names


def test_wrong_graphs_are_refused() -> None:
    with pytest.raises(DataflowError, match="the vertex name 'a' is used twice: decisions could not tell them apart"):
        ScalingGraph.of(["a", "a"], [])
    with pytest.raises(DataflowError, match=r"edge 0 from 'a' to 'b': there is no vertex 'b', only \['a'\]"):
        ScalingGraph.of(["a"], [("a", "b")])
    with pytest.raises(DataflowError, match="bounds of 'a' are 3 to 2"):
        VertexView("a", 3, 2)


def plan_of(flow: Any, **scaling: Any) -> Any:
    return compile_plan(flow, ScalingConfig(**scaling), key_groups=64)


def wordcount() -> Any:
    flow = rd.Dataflow("wordcount")
    lines = flow.from_items(["to be", "or not to be"], name="lines")
    lines.flat_map(str.split).key_by(lambda w: w).count(name="counts").collect("counts")
    return flow


def test_a_wordcount_can_scale_its_keyed_vertex_up_to_the_key_groups() -> None:
    graph = graph_of_plan(plan_of(wordcount(), parallelism=2))
    assert graph.scalable == ("counts",)
    assert graph.by_name["counts"] == VertexView("counts", 1, 64, key_groups=64)
    assert graph.by_name["lines"].is_source
    assert graph.by_name["lines"].fixed == "its parts are shared out over its replicas when the job starts"
    assert [(e.source, e.target, e.spread) for e in graph.edges] == [("lines", "counts", Spread.DIVIDED)]


def test_bounds_and_reasons_of_the_runtime_are_taken() -> None:
    plan = plan_of(wordcount(), parallelism=2)
    graph = graph_of_plan(plan, bounds={"counts": (2, 5)})
    assert (graph.by_name["counts"].least, graph.by_name["counts"].most) == (2, 5)
    assert graph_of_plan(plan, bounds={"counts": (3, 3)}).by_name["counts"].fixed == "its bounds are 3 to 3"
    assert graph_of_plan(plan, fixed={"counts": "its right to send cannot move yet"}).scalable == ()
    moved = graph_of_plan(plan, movable=["lines"]).by_name["lines"]
    assert (moved.fixed, moved.most) == (None, len(plan.stages[0].parts))
    with pytest.raises(DataflowError, match=r"there is no vertex 'count' in the plan, only \['counts', 'lines'\]"):
        graph_of_plan(plan, bounds={"count": (1, 2)})


def test_loops_of_a_plan_are_loops_of_the_graph() -> None:
    flow = rd.Dataflow("loop")

    def body(rows: Any) -> Any:
        after = rows.key_by(lambda r: r).stateful_map(lambda state, r: (state, r - 1), name="step").map(lambda pair: pair[1])
        return after.filter(lambda r: r > 0), after

    flow.from_items([1, 2, 3], name="numbers").iterate(body).collect("out")
    plan = plan_of(flow)
    graph = graph_of_plan(plan)
    assert graph.loops == (("step",),)
    assert [e.is_feedback for e in graph.edges if e.source == e.target == "step"] == [True]


class Keeps(rd.Vertex):
    """A vertex with state of its own that nothing divides."""

    def on_recv(self, edge: int, batch: Any, time: Any) -> None:
        self.send_by(0, batch, time)


def test_live_inputs_single_and_unkeyed_vertices_stay() -> None:
    flow = rd.Dataflow("stay")
    live = flow.input("live")
    flow.vertex(Keeps, inputs=[live.single()], outputs=1, name="one").collect("a")
    flow.vertex(Keeps, inputs=[live.rebalance()], outputs=1, name="keeps").collect("b")
    flow.vertex(Keeps, inputs=[live.broadcast()], outputs=1, name="copies").collect("c")
    graph = graph_of_plan(plan_of(flow))
    assert {name: graph.by_name[name].fixed for name in ("live", "one", "keeps")} == {
        "live": "a live input has one replica",
        "one": "all its input goes to one replica",
        "keeps": "no input is keyed: nothing says how its state would be divided",
    }
    assert {e.target: e.spread for e in graph.edges} == {"one": Spread.SINGLE, "keeps": Spread.DIVIDED, "copies": Spread.COPIED}
    assert graph_of_plan(plan_of(flow), movable=["keeps"]).scalable == ("keeps",)
