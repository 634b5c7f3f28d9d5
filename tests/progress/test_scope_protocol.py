"""The protocol between a scope and its parent, also with a child of another make."""

from __future__ import annotations

import pytest

from rayad.progress import (
    Antichain,
    ChildPort,
    DataflowError,
    EdgeSpec,
    NodeKind,
    NodePort,
    NodeSpec,
    PathSummary,
    ProgressGraph,
    Scope,
    ScopeInput,
    ScopeOutput,
    ScopeProgress,
    ScopeSpec,
    ScopeTracker,
    Timestamp,
)
from tests.progress.graphs import ROOT, loop, nested_loops


def t(epoch: int, *counters: int) -> Timestamp:
    return Timestamp(epoch, counters)


def build(graph: ProgressGraph, scope: int = 0) -> ScopeTracker:
    children = {child.id: build(graph, child.id) for child in graph.children(scope)}
    return ScopeTracker(graph, graph.scope_by_id[scope], children)


def test_a_loop_shows_its_parent_the_identity_and_its_initial_work() -> None:
    graph = loop()
    nodes = tuple(
        NodeSpec(n.id, n.scope, n.name, n.inputs, n.outputs, n.kind, initial=((t(4, 2), 1),) if n.id == 1 else ()) for n in graph.nodes
    )
    scope = build(ProgressGraph(graph.scopes, nodes, graph.edges), 1)
    assert (scope.inputs, scope.outputs) == (1, 1)
    assert scope.get_internal_summary() == ([[Antichain([PathSummary.identity(0)])]], [(0, [(t(4), 1)])])


def test_external_summaries_are_the_paths_outside() -> None:
    root = build(nested_loops())
    root.set_external_summary([], [])
    outer = root._children[1]
    assert isinstance(outer, ScopeTracker)
    inner = outer._children[2]
    assert isinstance(inner, ScopeTracker)
    assert outer.external_summary == [[Antichain()]]
    assert inner.external_summary == [[Antichain([PathSummary.feedback(1)])]]


def test_a_path_outside_that_leads_back_without_advancing_is_refused() -> None:
    scope = build(loop(), 1)
    with pytest.raises(DataflowError, match=r"from output 0 outside to input 0 .* a time may result in itself"):
        scope.set_external_summary([[Antichain([PathSummary.identity(0)])]], [])


def test_a_pull_holds_only_net_changes() -> None:
    graph = loop()
    scope = build(graph, 1)
    place = graph.notify_location(1)
    scope.update(place, t(0, 0), 1)
    assert scope.pull_internal_progress() == ScopeProgress([(0, [(t(0), 1)])], [], [])
    scope.update(place, t(0, 0), -1)
    scope.update(place, t(0, 1), 1)
    assert scope.pull_internal_progress() == ScopeProgress([], [], [])
    scope.update(place, t(0, 1), -1)
    scope.record_consumed(0, t(0), 2)
    scope.record_produced(0, t(0), 3)
    assert scope.pull_internal_progress() == ScopeProgress([(0, [(t(0), -1)])], [(0, [(t(0), 2)])], [(0, [(t(0), 3)])])
    assert scope.pull_internal_progress() == ScopeProgress([], [], [])


def test_consumed_and_produced_count_at_the_ends_of_the_parents_edges() -> None:
    """What a scope tells as consumed and produced is what reports count directly at the parent's locations."""
    graph = loop()
    told, counted = build(graph), build(graph)
    for root in (told, counted):
        root.set_external_summary([], [])
        root.update(graph.child_input_location(1, 0), t(0), 2)
        root.pull_internal_progress()
    child = told._children[1]
    assert isinstance(child, ScopeTracker)
    child.record_consumed(0, t(0), 2)
    child.record_produced(0, t(0), 1)
    told.absorb(1, child.pull_internal_progress())
    counted.update(graph.child_input_location(1, 0), t(0), -2)
    counted.update(graph.target_location(3, 0), t(0), 1)
    for root in (told, counted):
        root.pull_internal_progress()
        root.tracker.propagate()
        root.check_invariants()
    assert [slot.counts() for slot in told.tracker.pointstamps] == [slot.counts() for slot in counted.tracker.pointstamps]


class Delay(Scope):
    """A child of another make: what comes in at epoch e goes out at e + 1; it starts with work at epoch 5."""

    inputs = 1  # type: ignore[assignment]
    outputs = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        self.pushed: list[object] = []
        self.around: object = None

    def get_internal_summary(self) -> tuple[list[list[Antichain[PathSummary]]], list[tuple[int, list[tuple[Timestamp, int]]]]]:
        return [[Antichain([PathSummary.feedback(0)])]], [(0, [(t(5), 1)])]

    def set_external_summary(self, summaries: object, external: object) -> None:
        self.around = (summaries, external)

    def push_external_progress(self, external: object) -> None:
        self.pushed.append(external)

    def pull_internal_progress(self) -> ScopeProgress:
        return ScopeProgress([(0, [(t(5), -1)])], [(0, [(t(0), 1)])], [(0, [(t(7), 1)])])


def test_a_parent_works_with_any_scope() -> None:
    graph = ProgressGraph(
        (ROOT, ScopeSpec(1, 0, "delay", 1, 1)),
        (
            NodeSpec(0, 0, "source", 0, 1, initial=((t(0), 1),)),
            NodeSpec(1, 0, "sink", 1, 0),
            NodeSpec(2, 0, "tee", 1, 1),
            NodeSpec(3, 0, "again", 1, 1, NodeKind.FEEDBACK),
        ),
        (
            EdgeSpec(0, NodePort(0, 0), ChildPort(1, 0)),
            EdgeSpec(0, ChildPort(1, 0), NodePort(1, 0)),
            EdgeSpec(0, ChildPort(1, 0), NodePort(2, 0)),
            EdgeSpec(0, NodePort(2, 0), NodePort(3, 0)),
            EdgeSpec(0, NodePort(3, 0), ChildPort(1, 0)),
            EdgeSpec(1, ScopeInput(0), ScopeOutput(0)),
        ),
    )
    delay = Delay()
    root = ScopeTracker(graph, ROOT, {1: delay})
    root.set_external_summary([], [])
    assert delay.around == ([[Antichain([PathSummary.feedback(0)])]], [(0, [(t(0), 1)])])
    sink = root.topology.target_of[1, 0]
    assert root.tracker.implications[sink].frontier == (t(1),)
    root.update(graph.notify_location(0), t(0), -1)
    root.update(graph.child_input_location(1, 0), t(0), 1)
    root.pull_internal_progress()
    root.tracker.propagate()
    assert root.tracker.implications[sink].frontier == (t(1),)
    root.absorb(1, delay.pull_internal_progress())
    root.pull_internal_progress()
    root.tracker.propagate()
    assert root.take_external_progress() == [(1, [(0, [(t(0), -1), (t(8), 1)])])]
    assert root.tracker.implications[sink].frontier == (t(7),)
    assert root.tracker.pointstamps[root.slot_of_location[graph.target_location(1, 0)]].counts() == [(t(7), 1)]
    root.check_invariants()


def test_messages_that_a_grandchild_produces_can_leave_two_scopes() -> None:
    """A child whose output is wired straight to its parent's output: the parent reports the message as its own product."""
    graph = ProgressGraph(
        (ROOT, ScopeSpec(1, 0, "outer", 1, 1), ScopeSpec(2, 1, "inner", 1, 1)),
        (NodeSpec(0, 0, "source", 0, 1), NodeSpec(1, 2, "work", 1, 1), NodeSpec(2, 0, "sink", 1, 0)),
        (
            EdgeSpec(0, NodePort(0, 0), ChildPort(1, 0)),
            EdgeSpec(1, ScopeInput(0), ChildPort(2, 0)),
            EdgeSpec(2, ScopeInput(0), NodePort(1, 0)),
            EdgeSpec(2, NodePort(1, 0), ScopeOutput(0)),
            EdgeSpec(1, ChildPort(2, 0), ScopeOutput(0)),
            EdgeSpec(0, ChildPort(1, 0), NodePort(2, 0)),
        ),
    )
    root = build(graph)
    root.set_external_summary([], [])
    outer = root._children[1]
    assert isinstance(outer, ScopeTracker)
    outer.absorb(2, ScopeProgress([], [], [(0, [(t(3, 0), 2)])]))
    progress = outer.pull_internal_progress()
    assert progress == ScopeProgress([], [], [(0, [(t(3), 2)])])
    root.absorb(1, progress)
    root.pull_internal_progress()
    assert root.tracker.pointstamps[root.slot_of_location[graph.target_location(2, 0)]].counts() == [(t(3), 2)]
