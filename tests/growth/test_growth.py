"""Twice the size takes twice the work, counted in lines of code that run; these ladders have found quadratic code.

The increase from one rung to the next is compared with the increase before it, so that a fixed part does not hide the growth: a ratio of 2
is linear, 4 is quadratic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import rayad as rd
from rayad.progress import JobTracker, MutableAntichain, Timestamp
from tests.growth.counting import lines_of
from tests.growth.ladders import LADDERS, Run, down, notifications_pending

RATIO_MAX = 2.4
"""Linear up to a logarithm."""


def growth(build: Callable[[int], Run], first: int) -> list[int]:
    """The lines of three rungs."""
    return [lines_of(lambda size=size: build(size)()) for size in (first, 2 * first, 4 * first)]  # type: ignore[misc]


def fastest(build: Callable[[int], Run], first: int) -> str:
    """Which functions grew fastest from the second rung to the third."""
    places: list[Counter[str]] = [Counter(), Counter()]
    for size, counted in zip((2 * first, 4 * first), places, strict=True):
        lines_of(lambda size=size: build(size)(), counted)  # type: ignore[misc]
    worst = sorted(places[1], key=lambda place: places[1][place] - 2 * places[0][place], reverse=True)[:5]
    return ", ".join(f"{place} {places[0][place]} -> {places[1][place]}" for place in worst)


@pytest.mark.parametrize("build", LADDERS, ids=lambda build: build.__name__)
def test_twice_as_much_is_twice_the_work(build: Callable[[int], Run]) -> None:
    build(4)()  # what is imported, or cached for good, is not counted
    small, middle, large = growth(build, LADDERS[build])
    ratio = (large - middle) / max(middle - small, 1)
    assert ratio <= RATIO_MAX, f"{small}, {middle}, {large} lines: {ratio:.2f}; fastest: {fastest(build, LADDERS[build])}"


def test_an_iteration_costs_the_same_at_every_depth_up_to_the_depth_itself() -> None:
    """Loops in loops, 1 to 8 deep: each further level adds its own work, and the work of passing through it for every level inside."""

    def build(depth: int) -> Run:
        def around(levels: int) -> Callable[[rd.Stream], tuple[rd.Stream, rd.Stream]]:
            def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
                return down(inner.iterate(around(levels - 1)) if levels > 1 else inner)

            return body

        flow = rd.Dataflow("nested")
        flow.from_epochs([[2]] * 10).iterate(around(depth)).collect("out")
        return lambda: flow.run(runtime="local", seed=1)

    build(2)()
    work = {depth: lines_of(build(depth)) for depth in (1, 2, 4, 8)}
    assert work[8] - work[4] <= RATIO_MAX**2 * (work[4] - work[2]), work
    assert work[4] - work[2] <= RATIO_MAX**2 * (work[2] - work[1]), work


def test_the_counter_finds_what_is_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    """With antichains that scan, the ladder of pending notifications fails."""
    monkeypatch.setattr("rayad.progress.scope.counted_times", lambda depth: MutableAntichain())
    small, middle, large = growth(notifications_pending, 100)
    assert (large - middle) / (middle - small) > RATIO_MAX
    assert "antichain.py" in fastest(notifications_pending, 100)


@pytest.mark.parametrize("scopes", [4, 32])
def test_a_report_costs_the_scopes_that_it_touches_alone(scopes: int) -> None:
    """However many other loops there are."""

    def work(count: int) -> int:
        flow = rd.Dataflow("loops")
        stream: Any = flow.from_items([1])
        for _ in range(count):
            stream = stream.iterate(down)
        stream.collect("out")
        plan = flow.plan(1)
        tracker = JobTracker(plan.progress)
        last = plan.stages[-1]
        place, time = last.notify_location, Timestamp(0, (0,) * last.depth)
        tracker.views()

        def report() -> None:
            tracker.apply([(place, time, 1)])
            tracker.views()
            tracker.apply([(place, time, -1)])
            tracker.views()

        return lines_of(report)

    assert work(scopes) == work(2)
