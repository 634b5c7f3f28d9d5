"""JobTracker against two independent models, on random graphs with nested scopes and loops, random runs and late reports.

What holds, and is tested after every step:

- *Exactness.* The hierarchical tracker is not conservative: its frontier at every input is equal to that of the flat model, computed step
by
  step from the positive delivered counts. (Summaries are exact, and the internal work is projected without loss. Bounds on rounds count
  for outermost loops only: those of inner loops are not monotone in the lexicographic order, see `rayad.progress.summary`.)
- *Equality with Naiad's structure.* t is at or beyond the frontier of an input exactly if some active pointstamp could-result-in it, and
a pending
  notification is deliverable by its view exactly if it has no precursor.
- *Safety.* Whatever is still on the way, no frontier passes what a truly live event could result in.
- *Liveness.* When all is delivered and every handler has run, the job is complete, and all frontiers are empty.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rayad.progress import LocationKind, NodeKind, PointstampCounter, ProgressGraph, Timestamp
from rayad.progress.graph_validation import validate_graph
from tests.progress.graphs import progress_graphs
from tests.progress.simulation import Event, SimulatedJob, deliveries


def later(data: st.DataObject, time: Timestamp) -> Timestamp:
    """A time at or after `time`."""
    step = data.draw(st.integers(0, 3 + time.depth), label="how much later")
    if step == 1:
        return Timestamp(time.epoch + 1, time.counters)
    if step >= 4:
        place = step - 4
        counters = (*time.counters[:place], time.counters[place] + 1, *(0 for _ in time.counters[place + 1 :]))
        return Timestamp(time.epoch, counters)
    return time


class JobMachine(RuleBasedStateMachine):
    @initialize(graph=progress_graphs())
    def start(self, graph: ProgressGraph) -> None:
        validate_graph(graph)
        self.job = SimulatedJob(graph, workers=2)
        self.counter = PointstampCounter(graph)
        for (location, time), count in self.job.ledger.items():
            self.counter.update(location, time, count)
        self.acted = 0

    @precondition(lambda self: self.acted < 30 and self.job.runnable())
    @rule(data=st.data())
    def act(self, data: Any) -> None:
        self.acted += 1
        event = data.draw(st.sampled_from(self.job.runnable()), label="event")
        routes = list(deliveries(self.job.graph, event.node, later(data, event.time)))
        sends = data.draw(st.lists(st.sampled_from(routes), max_size=2), label="sends") if routes else []
        workers = [data.draw(st.integers(0, 1), label="worker") for _ in sends]
        requests = [self.request(data, event) for _ in range(data.draw(st.integers(0, 1), label="requests"))]
        self.job.act(event, [(*send, worker) for send, worker in zip(sends, workers, strict=True)], requests)

    def request(self, data: Any, event: Event) -> Event:
        graph = self.job.graph
        time = later(data, event.time)
        if data.draw(st.booleans(), label="with a capability of its own"):
            counted = (graph.capability_location(event.node), time)
            return Event(event.node, time, counted, "capability", event.worker, event.time)  # guarantee <= capability
        return Event(event.node, time, (graph.notify_location(event.node), time), "notification", event.worker)

    @precondition(lambda self: any(self.job.queues))
    @rule(data=st.data())
    def deliver(self, data: Any) -> None:
        worker = data.draw(st.sampled_from([worker for worker in range(2) if self.job.queues[worker]]), label="worker")
        for location, time, delta in self.job.queues[worker][0]:
            self.counter.update(location, time, delta)
        self.job.deliver(worker)

    @precondition(lambda self: not any(self.job.queues) and not (self.acted < 30 and self.job.runnable()))
    @rule()
    def rest(self) -> None:
        """Nothing is left to do; the machine may not stand still without a rule."""

    @invariant()
    def frontiers_are_exact(self) -> None:
        self.job.check_frontiers()

    @invariant()
    def no_frontier_passes_a_live_event(self) -> None:
        self.job.check_safety()
        self.job.check_notifications()

    @invariant()
    def active_pointstamps_are_those_of_the_counter(self) -> None:
        assert sorted(self.job.tracker.active(), key=repr) == sorted(self.counter.active(), key=repr)

    @invariant()
    def frontiers_are_what_could_result(self) -> None:
        graph = self.job.graph
        for location in graph.locations:
            if location.kind is LocationKind.TARGET:
                frontier = self.job.tracker.frontier_at(location.owner, location.port)
                depth = graph.location_depth(location.id)
                candidates = {time for place, time, _ in self.counter.active() if graph.location_depth(place) == depth}
                for time in candidates | set(frontier):
                    possible = self.counter.precursors_of(location.id, time) or self.job.ledger[location.id, time] > 0
                    assert any(front <= time for front in frontier) == bool(possible)

    @invariant()
    def deliverable_means_without_precursors(self) -> None:
        graph = self.job.graph
        naiad = set(self.counter.frontier())
        for location, time, _ in self.counter.active():
            place = graph.locations[location]
            if place.kind is LocationKind.NOTIFY:
                event = Event(place.owner, time, (location, time), "notification", 0)
                assert self.job.is_deliverable(event) == ((location, time) in naiad)
                blockers = {point[:2] for point in self.job.tracker.blockers(place.owner, time)}
                assert blockers == set(self.counter.precursors_of(location, time))

    @invariant()
    def invariants_hold(self) -> None:
        self.job.tracker.check_invariants()
        self.counter.check_invariants()

    def teardown(self) -> None:
        if hasattr(self, "job"):
            self.job.finish()
            self.job.tracker.check_invariants()


JobMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
TestJobTrackerAgainstModels = JobMachine.TestCase


def test_the_strategy_draws_what_it_should() -> None:
    """Guard against a strategy that quietly stops to draw loops, nesting or bounds."""
    seen: set[str] = set()

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @__import__("hypothesis").given(progress_graphs())
    def look(graph: ProgressGraph) -> None:
        validate_graph(graph)
        seen.update(f"depth {depth}" for depth in graph.depth_by_scope.values())
        seen.update(node.kind.value for node in graph.nodes)
        seen.update("bounded" for node in graph.nodes if node.kind is NodeKind.FEEDBACK and node.max_rounds)
        seen.update("feedback at the root" for node in graph.nodes if node.kind is NodeKind.FEEDBACK and node.scope == 0)

    look()
    assert {"depth 2", "feedback", "probe", "bounded", "feedback at the root"} <= seen
