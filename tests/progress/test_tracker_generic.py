"""The tracker of one scope on plain integers: it needs no more than a partial order and summaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.progress import DataflowError, InternalError, ReachabilityTracker


@dataclass(frozen=True)
class Plus:
    """Adds to an integer time; gives nothing from `limit` on."""

    delta: int
    limit: int = 10**9

    @property
    def is_identity(self) -> bool:
        return self.delta == 0 and self.limit == 10**9

    @property
    def strictly_advances(self) -> bool:
        return self.delta > 0

    def results_in(self, time: int) -> int | None:
        return time + self.delta if time + self.delta < self.limit else None


def frontiers(tracker: ReachabilityTracker[int]) -> list[tuple[int, ...]]:
    return [implied.frontier for implied in tracker.implications]


def test_timely_example_of_a_ring() -> None:
    """The example of timely dataflow's reachability.rs: 17 at one node, 18 after the feedback."""
    tracker: ReachabilityTracker[int] = ReachabilityTracker(
        locations=3, edges=[(0, 1, Plus(0)), (1, 2, Plus(0)), (2, 0, Plus(1))], slots=[0]
    )
    tracker.update(0, 17, 1)
    assert tracker.commit() == []
    tracker.propagate()
    assert frontiers(tracker) == [(17,), (17,), (17,)]
    assert tracker.implications[0].count(18) == 1
    tracker.check_invariants()
    tracker.update(0, 17, -1)
    tracker.commit()
    tracker.propagate()
    assert frontiers(tracker) == [(), (), ()]
    tracker.check_invariants()


def test_boundary_frontier_is_not_projected_but_internal_work_is() -> None:
    tracker: ReachabilityTracker[int] = ReachabilityTracker(
        locations=2, edges=[(0, 1, Plus(0))], slots=[1], projections=[[(0, Plus(2))]], outputs=1
    )
    tracker.push_boundary(0, [(3, 1)])
    assert tracker.commit() == []
    tracker.propagate()
    assert frontiers(tracker) == [(3,), (3,)]
    tracker.update(0, 5, 1)
    assert tracker.commit() == [(0, [(7, 1)])]
    tracker.update(0, 5, -1)
    tracker.update(0, 6, 1)
    assert tracker.commit() == [(0, [(7, -1), (8, 1)])]
    tracker.propagate()
    tracker.check_invariants()


def test_a_cycle_that_does_not_advance_is_refused() -> None:
    with pytest.raises(DataflowError, match="a cycle that does not advance time"):
        ReachabilityTracker(locations=2, edges=[(0, 1, Plus(0)), (1, 0, Plus(0))], slots=[0])


def test_invariants_need_a_settled_tracker() -> None:
    tracker: ReachabilityTracker[int] = ReachabilityTracker(locations=1, edges=[], slots=[0])
    tracker.update(0, 1, 1)
    with pytest.raises(InternalError, match="changes are still waiting"):
        tracker.check_invariants()


@st.composite
def scenarios(draw: Any) -> tuple[int, list[tuple[int, int, Plus]], list[tuple[int, int, int, bool]]]:
    """A graph in which backward edges advance, and updates (slot or boundary, location, time, settle now?)."""
    size = draw(st.integers(1, 5))
    place = st.integers(0, size - 1)
    edges = []
    for source, target, delta, bounded in draw(st.lists(st.tuples(place, place, st.integers(0, 2), st.booleans()), max_size=8)):
        step = delta if source < target else delta + 1
        edges.append((source, target, Plus(step, 6) if bounded else Plus(step)))
    updates = draw(st.lists(st.tuples(place, st.integers(0, 5), st.integers(-2, 2), st.booleans()), max_size=25))
    return size, edges, updates


@given(scenarios())
def test_frontiers_are_the_minimum_over_all_walks(
    scenario: tuple[int, list[tuple[int, int, Plus]], list[tuple[int, int, int, bool]]],
) -> None:
    size, edges, updates = scenario
    tracker: ReachabilityTracker[int] = ReachabilityTracker(locations=size, edges=edges, slots=range(size))
    counts: dict[tuple[int, int], int] = {}
    for place, time, delta, settle in [*updates, (0, 0, 0, True)]:
        tracker.update(place, time, delta)
        counts[place, time] = counts.get((place, time), 0) + delta
        if settle:
            tracker.commit()
            tracker.propagate()
            tracker.check_invariants()
            best: dict[int, int] = {}
            work = [point for point, count in counts.items() if count > 0]
            while work:
                location, now = work.pop()
                if best.get(location, 10**9) > now:
                    best[location] = now
                    for source, target, step in edges:
                        if source == location and (after := step.results_in(now)) is not None:
                            work.append((target, after))
            assert frontiers(tracker) == [(best[location],) if location in best else () for location in range(size)]
