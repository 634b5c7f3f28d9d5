"""What a progress graph may not be, and how its locations are numbered."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.progress import (
    ChildPort,
    DataflowError,
    EdgeSpec,
    FlatReachability,
    NodeKind,
    NodePort,
    NodeSpec,
    PathSummary,
    ProgressGraph,
    ScopeInput,
    ScopeOutput,
    ScopeSpec,
    Timestamp,
)
from rayad.progress.graph_validation import validate_graph
from tests.progress.graphs import ROOT, chain, loop, nested_loops, progress_graphs


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(0, NodePort(9, 0), NodePort(3, 0)))), "unknown endpoint NodePort"),
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(0, NodePort(0, 5), NodePort(3, 0)))), "which has 1 outputs"),
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(0, NodePort(0, 0), NodePort(3, 1)))), "which has 1 inputs"),
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)))), "directly inside scope 1"),
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(7, NodePort(0, 0), NodePort(1, 0)))), "in an unknown scope"),
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(1, ScopeOutput(0), NodePort(1, 0)))), "it is the other end of edges"),
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(0, ChildPort(4, 0), NodePort(3, 0)))), "unknown endpoint ChildPort"),
        (lambda g: replace(g, edges=(*g.edges, EdgeSpec(0, ScopeInput(0), NodePort(3, 0)))), "which has 0 inputs"),
        (lambda g: replace(g, nodes=(*g.nodes, g.nodes[0])), r"node ids \[0\] occur more than once"),
        (lambda g: replace(g, nodes=(*g.nodes, NodeSpec(8, 5, "x", 0, 0))), r"is in scope 5, but the scopes are \[0, 1\]"),
        (lambda g: replace(g, nodes=(*g.nodes, NodeSpec(8, 0, "x", 2, 1, NodeKind.FEEDBACK))), "it needs one of each"),
        (lambda g: replace(g, nodes=(*g.nodes, NodeSpec(8, 0, "x", 1, 1, NodeKind.FEEDBACK, 3))), "at depth 0 has max_rounds=3"),
        (lambda g: replace(g, nodes=(*g.nodes, NodeSpec(8, 0, "x", 1, 1, max_rounds=3))), "only a feedback bounds rounds"),
        (lambda g: replace(g, nodes=(*g.nodes, NodeSpec(8, 1, "x", 1, 1, initial=((Timestamp(0), 1),)))), "a count >= 1 at depth 1"),
        (lambda g: replace(g, scopes=(*g.scopes, ScopeSpec(5, 6, "x", 0, 0), ScopeSpec(6, 5, "y", 0, 0))), "does not end at the root"),
        (lambda g: replace(g, scopes=g.scopes[1:]), "exactly one, with id 0"),
    ],
)
def test_a_broken_graph_is_refused(broken: object, message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        validate_graph(broken(loop()))  # type: ignore[operator]


@given(progress_graphs())
def test_location_ids_depend_on_the_graph_only(graph: ProgressGraph) -> None:
    shuffled = ProgressGraph(graph.scopes[::-1], graph.nodes[::-1], graph.edges[::-1])
    assert shuffled.locations == graph.locations
    assert pickle.loads(pickle.dumps(graph)).locations == graph.locations
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert len({graph.describe_location(location.id) for location in graph.locations}) == len(graph.locations)


def test_locations_in_words() -> None:
    graph = loop()
    assert [graph.describe_location(location) for location in range(len(graph.locations) + 1)] == [
        "notifications of 'source' (node 0)",
        "capabilities of 'source' (node 0)",
        "input 0 of 'body' (node 1)",
        "input 1 of 'body' (node 1)",
        "notifications of 'body' (node 1)",
        "capabilities of 'body' (node 1)",
        "input 0 of 'feedback' (node 2)",
        "input 0 of 'sink' (node 3)",
        "notifications of 'sink' (node 3)",
        "capabilities of 'sink' (node 3)",
        "entry 0 of scope 'loop' (1)",
        "unknown location 11 (there are 11)",
    ]
    assert (graph.target_location(1, 1), graph.notify_location(1), graph.capability_location(1), graph.child_input_location(1, 0)) == (
        3,
        4,
        5,
        10,
    )


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda g: g.target_location(1, 2), "node 1 has no input port 2"),
        (lambda g: g.notify_location(2), "node 2 is no operator, so it has no notifications"),
        (lambda g: g.capability_location(9), "node 9 is no operator"),
        (lambda g: g.child_input_location(0, 0), "scope 0 is no child scope"),
    ],
)
def test_an_unknown_location_is_refused(ask: object, problem: str) -> None:
    with pytest.raises(DataflowError, match=problem):
        ask(loop())  # type: ignore[operator]


def accepts(graph: ProgressGraph) -> bool:
    try:
        validate_graph(graph)
    except DataflowError:
        return False
    return True


@given(progress_graphs(), st.data())
def test_a_graph_is_refused_exactly_if_a_time_could_result_in_itself(graph: ProgressGraph, data: st.DataObject) -> None:
    """An edge is added anywhere in a valid graph; the flat summaries judge independently of the rule that `validate` applies."""
    scope = data.draw(st.sampled_from(graph.scopes))
    unbounded = [replace(node, max_rounds=None) for node in graph.nodes]  # a loop of one round is refused although it never turns
    inside = [node for node in unbounded if node.scope == scope.id]
    children = [child for child in graph.scopes if child.parent == scope.id]
    sources = [NodePort(node.id, port) for node in inside for port in range(node.outputs)]
    sources += [ChildPort(child.id, port) for child in children for port in range(child.outputs)]  # type: ignore[misc]
    targets = [NodePort(node.id, port) for node in inside for port in range(node.inputs)]
    targets += [ChildPort(child.id, port) for child in children for port in range(child.inputs)]  # type: ignore[misc]
    extra = [EdgeSpec(scope.id, data.draw(st.sampled_from(sources)), data.draw(st.sampled_from(targets)))] if sources and targets else []
    changed = ProgressGraph(graph.scopes, tuple(unbounded), (*graph.edges, *extra))
    flat = FlatReachability(changed)
    returns = any(
        not step.followed_by(back).strictly_advances  # type: ignore[union-attr]
        for location in changed.locations
        for following, step in flat.paths.successors[location.id]
        for back in flat.summaries_from(following).get(location.id, ())
    )
    assert accepts(changed) == (not returns)


@given(progress_graphs(), st.data())
def test_flat_summaries_are_the_minimum_over_walks(graph: ProgressGraph, data: st.DataObject) -> None:
    """No walk does better than Psi, and each element of Psi is some walk."""
    flat = FlatReachability(graph)
    start = data.draw(st.sampled_from(graph.locations)).id
    location, steps = start, [PathSummary.identity(graph.location_depth(start))]
    for _ in range(data.draw(st.integers(0, 12))):
        if not flat.paths.successors[location]:
            break
        location, step = data.draw(st.sampled_from(flat.paths.successors[location]))
        steps.append(step)
    walk = reduce(lambda left, right: left and left.followed_by(right), steps)  # type: ignore[arg-type, return-value]
    if walk is not None:
        assert any(summary <= walk for summary in flat.summaries_from(start)[location])
    for end, summaries in flat.summaries_from(start).items():
        assert set(summaries) == set(flat.paths.summaries_to(end)[start])


def test_could_result_in_goes_round_loops_and_out() -> None:
    graph = nested_loops()
    flat = FlatReachability(graph)
    body, sink = graph.notify_location(2), graph.target_location(6, 0)
    assert flat.could_result_in(Timestamp(0, (3, 5)), body, Timestamp(0), sink)
    assert flat.could_result_in(Timestamp(0, (3, 5)), body, Timestamp(0, (3, 6)), body)
    assert not flat.could_result_in(Timestamp(0, (3, 5)), body, Timestamp(0, (3, 4)), body)
    assert flat.could_result_in(Timestamp(0, (3, 5)), body, Timestamp(0, (4, 0)), body)
    assert not flat.could_result_in(Timestamp(0), sink, Timestamp(9, (9, 9)), body)


def test_a_capability_that_comes_back_before_its_guarantee_blocks_itself() -> None:
    flat = FlatReachability(loop())
    assert flat.blocks_itself(1, Timestamp(0, (5,)), Timestamp(0, (4,)))
    assert not flat.blocks_itself(1, Timestamp(0, (5,)), Timestamp(0, (5,)))
    assert not flat.blocks_itself(3, Timestamp(5), Timestamp(4))


def test_depths_of_scopes() -> None:
    assert nested_loops().depth_by_scope == {0: 0, 1: 1, 2: 2}
    assert ROOT.parent is None
    assert chain(2).depth_by_scope == {0: 0}
