"""The interval chosen online: its laws, and what it is worth in simulated jobs beside the best interval and beside fixed ones."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.interval_simulation import Regime, ScheduledInterval, failure_times_s, run_job
from rayad.progress import ConfigError
from rayad.snapshots.interval import IntervalBounds, IntervalEstimator, optimal_interval_s

TIMES = st.floats(0.0, 1e6)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["on_snapshot", "on_time", "on_failure"]), TIMES) | st.tuples(st.just("on_rescale"), st.none()), max_size=30
)


def told(events: list[tuple[str, float | None]], bounds: IntervalBounds | None = None, factor: float = 1.0) -> IntervalEstimator:
    """An estimator that was told ``events``, with every cost times ``factor``."""
    estimator = IntervalEstimator(bounds)
    for name, value in events:
        if value is None:
            estimator.on_rescale()
        else:
            getattr(estimator, name)(value * factor if name == "on_snapshot" else value)
        estimator.check_invariants()
    return estimator


def test_an_estimator_follows_what_it_is_told() -> None:
    estimator = IntervalEstimator(IntervalBounds(first_s=7.0))
    assert estimator.interval_s() == 7.0
    estimator.on_snapshot(2.0)
    assert estimator.interval_s() == optimal_interval_s(2.0, estimator.failures_per_s)
    estimator.on_time(9000.0)
    quiet = estimator.interval_s()
    estimator.on_failure(3.0)
    assert estimator.interval_s() < quiet
    assert (estimator.restart_s, estimator.failures, estimator.observed_s) == (3.0, 1, 9000.0)
    estimator.on_failure(13.0)
    assert estimator.restart_s == pytest.approx(6.0)
    estimator.on_snapshot(4.0)
    assert estimator.cost_s == pytest.approx(2.6)


def test_after_a_rescale_the_old_cost_serves_until_a_new_one_is_known() -> None:
    estimator = told([("on_time", 600.0), ("on_snapshot", 2.0)])
    before = estimator.interval_s()
    estimator.on_rescale()
    assert estimator.interval_s() == before
    estimator.on_snapshot(1.0)
    assert estimator.cost_s == 1.0
    estimator.on_snapshot(2.0)
    assert estimator.cost_s == pytest.approx(1.3)


def test_before_the_first_snapshot_each_failure_halves_the_interval() -> None:
    """A job that fails more often than every ``first_s`` would else never get a snapshot through, and never learn what one costs."""
    estimator = IntervalEstimator(IntervalBounds(least_s=0.5, first_s=10.0))
    found = []
    for _ in range(6):
        found.append(estimator.interval_s())
        estimator.on_failure(1.0)
    assert found == [10.0, 5.0, 2.5, 1.25, 0.625, 0.5]


def test_an_estimator_stays_within_its_bounds() -> None:
    estimator = IntervalEstimator(IntervalBounds(least_s=5.0, first_s=5.0, most_s=60.0))
    estimator.on_snapshot(1e-9)
    assert estimator.interval_s() == 5.0
    estimator.on_rescale()
    estimator.on_snapshot(1000.0)
    assert estimator.interval_s() == 60.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"first_s": 0.01}, "IntervalBounds: 0.1 <= 0.01 <= 3600.0 must hold (least_s, first_s, most_s)"),
        ({"mtbf_least_s": 9.0, "mtbf_most_s": 9.0}, "IntervalBounds: 9.0 < 9.0 must hold (mtbf_least_s, mtbf_most_s)"),
        ({"change": 1.0}, "IntervalBounds.change is 1.0: it is a probability, above 0 and below 1"),
        ({"least_s": math.nan}, "IntervalBounds.least_s is nan: it must be a finite number above 0"),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        IntervalBounds(**options)
    assert str(caught.value) == said


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.floats(1.0, 100.0))
def test_a_higher_cost_never_shortens_the_interval(events: list[tuple[str, float | None]], factor: float) -> None:
    assert told(events, factor=factor).interval_s() >= told(events).interval_s() * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(EVENTS, TIMES)
def test_quiet_time_never_shortens_the_interval(events: list[tuple[str, float | None]], quiet_s: float) -> None:
    estimator = told(events)
    before = estimator.interval_s()
    estimator.on_time(quiet_s)
    assert estimator.interval_s() >= before * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(EVENTS, TIMES)
def test_a_failure_never_lengthens_the_interval(events: list[tuple[str, float | None]], restart_s: float) -> None:
    estimator = told(events)
    before, rate = estimator.interval_s(), estimator.failures_per_s
    estimator.on_failure(restart_s)
    assert estimator.interval_s() <= before * (1 + 1e-9) or rate > 0.05  # the prior's mean: one failure in 15 s


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.floats(1e-3, 10.0), st.floats(1.0, 10.0), st.floats(1.0, 1e6))
def test_the_interval_is_a_number_within_any_bounds(
    events: list[tuple[str, float | None]], least_s: float, first: float, most: float
) -> None:
    bounds = IntervalBounds(least_s=least_s, first_s=least_s * first, most_s=least_s * first * most)
    assert bounds.least_s <= told(events, bounds).interval_s() <= bounds.most_s


HOUR = 3600.0
JOBS = {
    "fails every ten seconds": [(HOUR / 2, 0.1, 0.02, 0.5)],
    "fails every half hour, snapshots of 5 s": [(48 * HOUR, 1 / 1800, 5.0, 30.0)],
    "fails once a day": [(240 * HOUR, 1 / 86_400, 1.0, 30.0)],
    "begins to fail a hundred times as often": [(24 * HOUR, 1 / 30_000, 0.2, 10.0), (8 * HOUR, 1 / 300, 0.2, 10.0)],
    "ceases to fail so often": [(8 * HOUR, 1 / 300, 0.2, 10.0), (24 * HOUR, 1 / 30_000, 0.2, 10.0)],
    "snapshots begin to cost twenty times as much": [(12 * HOUR, 1 / 1200, 0.5, 10.0), (12 * HOUR, 1 / 1200, 10.0, 10.0)],
}


@pytest.mark.parametrize("job", JOBS)
def test_the_chosen_interval_reaches_95_percent_of_the_best_and_beats_30_s(job: str) -> None:
    """The best knows rates and costs, and when they change; all three run through the same failures and the same scatter of costs."""
    regimes = [
        Regime(duration_s=duration_s, failures_per_s=rate, cost_s=cost_s, restart_s=restart_s, cost_spread=0.3)
        for duration_s, rate, cost_s, restart_s in JOBS[job]
    ]
    ends_s = [sum(regime.duration_s for regime in regimes[: i + 1]) for i in range(len(regimes))]
    best = [(end_s, optimal_interval_s(regime.cost_s, regime.failures_per_s)) for end_s, regime in zip(ends_s, regimes, strict=True)]
    of_best, over_30_s = [], []
    for seed in range(3):
        failures_s = failure_times_s(regimes, seed)
        chosen, foreseen, fixed = (
            run_job(regimes, failures_s, choice, seed=seed).utilization
            for choice in (IntervalEstimator(), ScheduledInterval(*best), ScheduledInterval((math.inf, 30.0)))
        )
        of_best.append(chosen / foreseen)
        over_30_s.append(chosen / fixed)
    assert min(of_best) >= 0.95
    assert statistics.mean(of_best) >= 0.975
    assert min(over_30_s) > 1.0
