"""What JobTracker publishes, refuses and tells about what is stuck."""

from __future__ import annotations

from typing import Any

import pytest

from rayad.progress import (
    DataflowError,
    EdgeSpec,
    InternalError,
    JobTracker,
    NodeKind,
    NodePort,
    NodeSpec,
    ProgressGraph,
    ProtocolError,
    Timestamp,
    View,
)
from tests.progress.graphs import ROOT, chain, loop, nested_loops


def t(epoch: int, *counters: int) -> Timestamp:
    return Timestamp(epoch, counters)


def test_first_views_are_of_the_nodes_that_wait() -> None:
    tracker = JobTracker(chain(3))
    assert tracker.views() == {0: View((), (t(0),))}
    assert tracker.views() == {}


def test_a_view_is_published_when_it_changes_and_somebody_waits() -> None:
    graph = chain(3)
    tracker = JobTracker(graph)
    tracker.apply([(graph.notify_location(1), t(0), 1)])
    assert tracker.views() == {0: View((), (t(0),)), 1: View((t(0),), (t(0),))}
    tracker.apply([(graph.notify_location(0), t(0), -1), (graph.notify_location(0), t(1), 1)])
    assert tracker.views() == {0: View((), (t(1),)), 1: View((t(1),), (t(0),))}
    tracker.apply([(graph.notify_location(1), t(0), -1)])
    assert tracker.views() == {}


def test_a_node_that_begins_to_wait_is_told_what_it_missed() -> None:
    graph = chain(3)
    tracker = JobTracker(graph)
    tracker.views()
    tracker.apply([(graph.notify_location(0), t(0), -1), (graph.notify_location(0), t(1), 1)])
    assert 2 not in tracker.views()
    tracker.apply([(graph.capability_location(2), t(5), 1)])
    assert tracker.views() == {2: View((t(1),), ())}


def test_several_reports_give_one_view() -> None:
    graph = chain(2)
    tracker = JobTracker(graph)
    tracker.subscribe(1)
    tracker.views()
    source = graph.notify_location(0)
    for epoch in range(5):
        tracker.apply([(source, t(epoch), -1), (source, t(epoch + 1), 1)])
    assert tracker.views() == {0: View((), (t(5),)), 1: View((t(5),), ())}


def test_changes_that_cancel_publish_nothing() -> None:
    graph = chain(2)
    tracker = JobTracker(graph)
    tracker.subscribe(1)
    tracker.views()
    source = graph.notify_location(0)
    tracker.apply([(source, t(0), -1), (source, t(1), 1)])
    tracker.apply([(source, t(0), 1), (source, t(1), -1)])
    assert tracker.views() == {}


def test_a_second_replica_that_waits_for_the_same_time_changes_no_view() -> None:
    graph = chain(2)
    tracker = JobTracker(graph)
    tracker.apply([(graph.notify_location(1), t(0), 1)])
    tracker.views()
    tracker.apply([(graph.notify_location(1), t(0), 1)])
    assert tracker.views() == {}


def test_a_probe_is_watched_when_subscribed() -> None:
    nodes = (NodeSpec(0, 0, "source", 0, 1, initial=((t(0), 1),)), NodeSpec(1, 0, "probe", 1, 0, NodeKind.PROBE))
    graph = ProgressGraph((ROOT,), nodes, (EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)),))
    tracker = JobTracker(graph)
    assert 1 not in tracker.views()
    tracker.subscribe(1)
    assert tracker.views() == {1: View((t(0),), ())}
    tracker.apply([(graph.notify_location(0), t(0), -1)])
    assert tracker.views() == {1: View((), ())}
    assert tracker.is_complete()


def test_inputs_are_joined_in_a_view_and_apart_in_frontier_at() -> None:
    graph = loop()
    tracker = JobTracker(graph)
    tracker.apply([(graph.notify_location(1), t(0, 2), 1), (graph.notify_location(0), t(0), -1), (graph.notify_location(0), t(1), 1)])
    assert tracker.frontier_at(1, 0) == (t(1, 0),)
    assert tracker.frontier_at(1, 1) == (t(0, 3), t(1, 1))
    assert tracker.view(1) == View((t(0, 3), t(1, 0)), (t(0, 2),))
    assert tracker.frontier_at(3, 0) == (t(0),)


def test_inner_rounds_cost_the_parent_nothing() -> None:
    """A thousand rounds of a loop, then of the inner one of two: the outside sees not one change."""
    for graph, node, parents in ((loop(), 1, [0]), (nested_loops(), 2, [0, 1])):
        depth = graph.depth_by_scope[graph.node_by_id[node].scope]
        tracker = JobTracker(graph)
        place = graph.notify_location(node)
        first = Timestamp(0, (0,) * depth)
        tracker.apply([(graph.notify_location(0), t(0), -1), (place, first, 1)])
        before = tracker.scope_updates()
        for _ in range(1000):
            tracker.apply([(place, first, -1), (place, first.next_round(), 1)])
            first = first.next_round()
            assert tracker.views()
        after = tracker.scope_updates()
        assert [after[parent] for parent in parents] == [before[parent] for parent in parents]
        assert after[max(parents) + 1] > before[max(parents) + 1] + 1000
        tracker.check_invariants()
        tracker.apply([(place, first, -1)])
        assert tracker.is_complete()


def test_work_does_not_grow_with_what_is_not_touched() -> None:
    """A step costs the same beside 100 other pending times and behind 100 other nodes."""

    def cost(width: int) -> int:
        nodes = [NodeSpec(i, 0, f"n{i}", 0, 1, initial=((t(0), 1),)) for i in range(width)]
        nodes += [NodeSpec(width + i, 0, f"s{i}", 1, 0) for i in range(width)]
        edges = tuple(EdgeSpec(0, NodePort(i, 0), NodePort(width + i, 0)) for i in range(width))
        graph = ProgressGraph((ROOT,), tuple(nodes), edges)
        tracker = JobTracker(graph)
        before = tracker.scope_updates()[0]
        tracker.apply([(graph.notify_location(0), t(0), -1), (graph.notify_location(0), t(1), 1)])
        return tracker.scope_updates()[0] - before

    assert cost(1) == cost(100)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ((99, t(0), 1), r"location 99 \(unknown location 99 \(there are 8\)\), time \(0\): it is not in this graph"),
        ((-1, t(0), 1), "it is not in this graph"),
        ((0, t(0, 0), 1), r"notifications of 'source' \(node 0\)\), time \(0, <0>\): its times have depth 0"),
    ],
)
def test_a_wrong_entry_refuses_the_whole_report(entry: tuple[int, Timestamp, int], message: str) -> None:
    graph = chain(3)
    tracker = JobTracker(graph)
    before = tracker.counts()
    with pytest.raises(ProtocolError, match=message) as caught:
        tracker.apply([(graph.notify_location(0), t(0), -1), entry])
    assert (caught.value.location, caught.value.time) == entry[:2]
    assert tracker.counts() == before
    assert tracker.frontier_at(2, 0) == (t(0),)


def test_a_negative_count_is_legal_while_its_cause_is_counted() -> None:
    graph = chain(3)
    tracker = JobTracker(graph)
    target = graph.target_location(1, 0)
    tracker.apply([(target, t(0), -1)])
    assert tracker.counts() == [(graph.notify_location(0), t(0), 1), (target, t(0), -1)]
    assert tracker.active() == [(graph.notify_location(0), t(0), 1)]
    assert tracker.frontier_at(1, 0) == tracker.frontier_at(2, 0) == (t(0),)
    assert not tracker.is_complete()
    tracker.apply([(graph.notify_location(0), t(0), -1), (target, t(0), 1)])
    assert tracker.is_complete()


def test_a_negative_count_without_any_cause_is_an_error_with_its_place() -> None:
    graph = chain(2)
    tracker = JobTracker(graph)
    tracker.apply([(graph.notify_location(0), t(0), -1), (graph.target_location(1, 0), t(3), -2)])
    for ask in (tracker.is_complete, tracker.views):
        with pytest.raises(ProtocolError) as caught:
            ask()
        assert caught.value.left == [("input 0 of 'n1' (node 1)", "(3)", -2)]


def test_blockers_name_what_holds_a_notification_back() -> None:
    graph = nested_loops()
    tracker = JobTracker(graph)
    body, tail, sink = graph.notify_location(2), graph.notify_location(4), graph.notify_location(6)
    tracker.apply([(body, t(0, 1, 5), 1), (tail, t(0, 0), 2), (sink, t(0), 1), (graph.notify_location(0), t(0), -1)])
    assert tracker.blockers(6, t(0)) == [(body, t(0, 1, 5), 1), (tail, t(0, 0), 2)]
    assert tracker.blockers(4, t(0, 1)) == [(body, t(0, 1, 5), 1), (tail, t(0, 0), 2)]
    assert tracker.blockers(4, t(0, 0)) == []


def test_unknown_nodes_and_ports_are_refused() -> None:
    tracker = JobTracker(chain(2))
    with pytest.raises(DataflowError, match=r"there is no node 7; the nodes are \[0, 1\]"):
        tracker.subscribe(7)
    with pytest.raises(DataflowError, match="there is no node 7"):
        tracker.view(7)
    with pytest.raises(DataflowError, match="node 1 has no input port 3"):
        tracker.frontier_at(1, 3)


def test_an_invalid_graph_is_refused() -> None:
    with pytest.raises(DataflowError, match="unknown endpoint"):
        JobTracker(ProgressGraph((ROOT,), (), (EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)),)))


def test_a_broken_fixed_point_is_found() -> None:
    tracker = JobTracker(chain(2))
    tracker._scopes[0].tracker.implications[0].update(t(7), 1)
    with pytest.raises(InternalError, match="its implications are"):
        tracker.check_invariants()


def test_after_a_restore_nothing_is_pending_until_replicas_register() -> None:
    """A graph without initial counts: the replicas of a restored job register first, and then the frontiers are right."""
    nodes = tuple(NodeSpec(n.id, n.scope, n.name, n.inputs, n.outputs, n.kind) for n in loop().nodes)
    graph = ProgressGraph(loop().scopes, nodes, loop().edges)
    tracker = JobTracker(graph)
    assert tracker.is_complete()
    tracker.apply([(graph.notify_location(0), t(7), 1)])
    tracker.apply([(graph.notify_location(1), t(6, 3), 1), (graph.target_location(1, 1), t(6, 4), 2)])
    assert tracker.view(3).input_frontier == (t(6),)
    assert tracker.view(1) == View((t(6, 4), t(7, 0)), (t(6, 3),))


class Counted(dict[Any, Any]):
    """Counts what is looked up."""

    lookups = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(key, default)


def test_where_the_input_ended_is_found_in_one_walk_over_the_graph() -> None:
    graph = chain(400)
    counted = graph.__dict__["places_after"] = Counted(graph.places_after)
    tracker = JobTracker(graph)
    for node in range(1, 400):
        tracker.subscribe(node)
    tracker.views()
    source = graph.notify_location(0)
    tracker.apply([(source, t(0), -1), (source, t(0), 0), (source, t(0), 0)])
    assert {view.end for view in tracker.views().values()} == {t(0)}
    assert counted.lookups == 400
