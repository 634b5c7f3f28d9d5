"""The proofs are worth something only if they fail for wrong code: each bug here is planted, and must be caught."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from rayad.progress import (
    ChildPort,
    DataflowError,
    EdgeSpec,
    JobTracker,
    MutableAntichain,
    NodePort,
    NodeSpec,
    PathSummary,
    ProgressGraph,
    ProtocolError,
    ScopeInput,
    ScopeOutput,
    ScopeProgress,
    ScopeSpec,
    ScopeTracker,
    Timestamp,
    job_tracker,
)
from rayad.progress.tracker import ReachabilityTracker
from tests.progress.exploration import aggregating, crossing, explore, inner_and_outer
from tests.progress.graphs import ROOT, loop, nested_loops
from tests.progress.simulation import Entries

CAUGHT = (AssertionError, ProtocolError)
UNSAFE_OR_STUCK = "has passed|these cannot run|these counts are|no positive count is left"
INEXACT = "the tracker shows"


def consumed_before_produced(report: Entries) -> list[Entries]:
    """A report that is split, its -1 first."""
    down = tuple(entry for entry in report if entry[2] < 0)
    up = tuple(entry for entry in report if entry[2] > 0)
    return [part for part in (down, up) if part]


def lose(which: Callable[[Entries], bool], report: Entries) -> list[Entries]:
    return [] if which(report) else [report]


def only_consumes(report: Entries) -> bool:
    return all(delta < 0 for _, _, delta in report)


def tells_of_round_one(report: Entries) -> bool:
    return any(delta > 0 and time.counters == (1,) for _, time, delta in report)


@pytest.mark.parametrize(
    "corrupt",
    [
        pytest.param(consumed_before_produced, id="split-consumed-first"),
        pytest.param(partial(lose, only_consumes), id="lost-consumption"),
        pytest.param(partial(lose, tells_of_round_one), id="lost-production"),
        pytest.param(lambda report: [report, report], id="applied-twice"),
        pytest.param(lambda report: [report, report] if tells_of_round_one(report) else [report], id="one-applied-twice"),
    ],
)
@pytest.mark.parametrize("behaviour", [crossing, aggregating])
def test_a_corrupted_report_is_caught(corrupt: Callable[[Entries], list[Entries]], behaviour: Callable[..., object]) -> None:
    with pytest.raises(CAUGHT, match=UNSAFE_OR_STUCK):
        explore(loop(), behaviour, corrupt=corrupt)  # type: ignore[arg-type]


def test_produced_before_consumed_is_harmless() -> None:
    """The other split is safe: a cause that is counted for too long only delays."""

    def split(report: Entries) -> list[Entries]:
        return list(reversed(consumed_before_produced(report)))

    assert explore(loop(), crossing, corrupt=split)[0] > 52


def test_a_tracker_that_projects_the_external_frontier_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner scope would report, as its own work, what came in; round the outer loop that supports itself for ever."""
    push, pull = ScopeTracker.push_external_progress, ScopeTracker.pull_internal_progress
    projected: dict[int, MutableAntichain[Timestamp]] = {}

    def push_and_keep(self: ScopeTracker, external: list[tuple[int, list[tuple[Timestamp, int]]]]) -> None:
        push(self, external)
        for _, changes in external:
            projected.setdefault(id(self), MutableAntichain()).update_many(changes)

    known: dict[int, set[Timestamp]] = {}

    def pull_with_external(self: ScopeTracker) -> ScopeProgress:
        honest = pull(self)
        now = set(projected[id(self)].frontier) if id(self) in projected else set()
        before = known.get(id(self), set())
        known[id(self)] = now
        extra = [(time, -1) for time in before - now] + [(time, 1) for time in now - before]
        return honest._replace(internal=[*honest.internal, (0, extra)] if extra else honest.internal)

    monkeypatch.setattr(ScopeTracker, "push_external_progress", push_and_keep)
    monkeypatch.setattr(ScopeTracker, "pull_internal_progress", pull_with_external)
    with pytest.raises(CAUGHT, match=INEXACT):
        explore(nested_loops(), inner_and_outer)


def test_a_tracker_that_lets_negative_counts_hide_implications_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One level of counting instead of two: a -1 that is early would cancel what a predecessor still implies."""
    commit = ReachabilityTracker.commit

    def commit_raw(self: ReachabilityTracker[Timestamp]) -> object:
        raw = [(slot, list(self._slot_changes[slot] or ())) for slot in self._changed_slots]
        clean = list(self._location_changes)
        result = commit(self)
        for location, changes in enumerate(clean):
            self._location_changes[location] = changes
        self._ready = []
        for entered in self._entered:
            entered.clear()
        for slot, changes in raw:
            location = self._slots[slot]
            if location is not None:
                self._enqueue(location, changes)
        return result

    monkeypatch.setattr(ReachabilityTracker, "commit", commit_raw)
    with pytest.raises(CAUGHT, match=INEXACT):
        explore(loop(), crossing)


def test_a_tracker_that_trusts_the_bound_of_an_inner_loop_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the state machine: bounds on inner counters are not monotone, so a frontier at the bound hides what passes later."""
    graph = nested_loops()
    bounded = tuple(NodeSpec(n.id, n.scope, n.name, n.inputs, n.outputs, n.kind, 2 if n.id == 3 else None, n.initial) for n in graph.nodes)
    graph = ProgressGraph(graph.scopes, bounded, graph.edges)
    body = graph.notify_location(2)
    report = [(body, Timestamp(0, (1, 1)), 1), (body, Timestamp(0, (2, 0)), 1), (graph.notify_location(0), Timestamp(0), -1)]
    sound = JobTracker(graph)
    sound.apply(report)
    assert any(front <= Timestamp(0, (2, 1)) for front in sound.frontier_at(2, 1))
    monkeypatch.setattr(PathSummary, "feedback_bound_below", staticmethod(PathSummary.feedback))
    unsound = JobTracker(graph)
    unsound.apply(report)
    assert not any(front <= Timestamp(0, (2, 1)) for front in unsound.frontier_at(2, 1))


def cyclic(*extra: EdgeSpec) -> ProgressGraph:
    """Nodes a, b at the root and a child scope with node c; and some edges."""
    scopes = (ROOT, ScopeSpec(1, 0, "child", 1, 1))
    nodes = (NodeSpec(0, 0, "a", 2, 1), NodeSpec(1, 0, "b", 1, 1), NodeSpec(2, 1, "c", 1, 1))
    inside = (EdgeSpec(1, ScopeInput(0), NodePort(2, 0)), EdgeSpec(1, NodePort(2, 0), ScopeOutput(0)))
    return ProgressGraph(scopes, nodes, (*inside, *extra))


@pytest.mark.parametrize(
    ("edges", "path"),
    [
        ([EdgeSpec(0, NodePort(0, 0), NodePort(0, 1))], "a -> a"),
        ([EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)), EdgeSpec(0, NodePort(1, 0), NodePort(0, 1))], "a -> b -> a"),
        ([EdgeSpec(0, NodePort(0, 0), ChildPort(1, 0)), EdgeSpec(0, ChildPort(1, 0), NodePort(0, 0))], "a -> child -> c -> a"),
        ([EdgeSpec(0, ChildPort(1, 0), ChildPort(1, 0))], "child -> c -> child"),
        ([EdgeSpec(1, NodePort(2, 0), NodePort(2, 0))], "c -> c"),
    ],
)
def test_a_cycle_that_does_not_advance_time_is_refused_with_its_path(edges: list[EdgeSpec], path: str) -> None:
    with pytest.raises(DataflowError) as caught:
        JobTracker(cyclic(*edges))
    assert f"the cycle {path} does not advance time" in str(caught.value)


def test_a_zero_cycle_that_slips_through_validation_is_refused_by_the_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_tracker, "validate_graph", lambda graph: None)
    with pytest.raises(DataflowError, match="lie on a cycle that does not advance time"):
        JobTracker(cyclic(EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)), EdgeSpec(0, NodePort(1, 0), NodePort(0, 1))))
