"""The simulated process against one that moves operator by operator, against its exact mean, and the model against both."""

from __future__ import annotations

import doctest
import heapq
import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import interval_simulation
from benchmarks.interval_simulation import (
    Regime,
    ScheduledInterval,
    complete_snapshots,
    expected_utilization,
    failure_times_s,
    run_job,
    simulated_utilization,
)
from rayad.progress import ConfigError
from rayad.snapshots.interval import utilization

EIGHTHS = st.integers(0, 4000).map(lambda eighths: eighths / 8)  # exact in binary: ties are ties in any order of additions


def operator_by_operator(failures_s: list[float], interval_s: float, restart_s: float, depth: int, hop_delay_s: float, end_s: float) -> int:
    """Tokens through a chain (seed 004, figures 7 and 9): how many snapshots became complete before a failure threw everything back."""
    complete = 0
    for begun_s, until_s in pairwise([0.0, *failures_s, end_s]):
        at_work_s = begun_s if begun_s == 0.0 and begun_s not in failures_s else begun_s + restart_s
        tokens = [(at_work_s + interval_s, 0)]  # when, and which operator takes its snapshot
        while tokens and tokens[0][0] <= until_s:
            at_s, operator = heapq.heappop(tokens)
            if operator == 0:
                heapq.heappush(tokens, (at_s + interval_s, 0))
            if operator == depth - 1:
                complete += 1
            else:
                heapq.heappush(tokens, (at_s + hop_delay_s, operator + 1))
    return complete


@settings(max_examples=300, deadline=None)
@given(st.lists(EIGHTHS.filter(bool), max_size=12, unique=True), st.integers(8, 400), EIGHTHS, st.integers(1, 6), st.integers(0, 64))
def test_gaps_hold_the_snapshots_that_operators_take_one_by_one(
    failures_s: list[float], interval: int, restart_s: float, depth: int, delay: int
) -> None:
    interval_s, hop_delay_s, end_s = interval / 8, delay / 8, 500.0
    wanted = operator_by_operator(sorted(failures_s), interval_s, restart_s, depth, hop_delay_s, end_s)
    found = complete_snapshots(np.array(failures_s), interval_s, restart_s, hop_delay_s * (depth - 1), horizon_s=end_s, runs=1)
    assert found.tolist() == [wanted]


@settings(max_examples=200, deadline=None)
@given(st.lists(EIGHTHS.filter(bool), max_size=12, unique=True), st.integers(8, 400), EIGHTHS, EIGHTHS)
def test_a_job_step_by_step_is_the_same_process(failures_s: list[float], interval: int, restart_s: float, lag_s: float) -> None:
    interval_s = interval / 8
    wanted = complete_snapshots(np.array(failures_s), interval_s, restart_s, lag_s, horizon_s=500.0, runs=1)
    regime = Regime(duration_s=500.0, failures_per_s=0.1, cost_s=interval_s / 2, restart_s=restart_s)
    found = run_job([regime], sorted(failures_s), ScheduledInterval((math.inf, interval_s)), lag_s=lag_s)
    assert (found.snapshots, found.failures) == (int(wanted[0]), len([at_s for at_s in failures_s if at_s < 500.0]))
    assert found.utilization == found.snapshots * interval_s / 2 / 500.0


@settings(max_examples=100, deadline=None)
@given(st.lists(EIGHTHS.filter(bool), max_size=12, unique=True), EIGHTHS, EIGHTHS)
def test_consecutive_runs_are_independent(failures_s: list[float], restart_s: float, lag_s: float) -> None:
    cut = [[at_s - begin_s for at_s in failures_s if begin_s <= at_s < begin_s + 125.0] for begin_s in (0.0, 125.0, 250.0, 375.0)]
    whole = [at_s for at_s in failures_s if at_s < 500.0]
    together = complete_snapshots(np.array(whole), 4.0, restart_s, lag_s, horizon_s=125.0, runs=4)
    alone = [complete_snapshots(np.array(part), 4.0, restart_s, lag_s, horizon_s=125.0, runs=1)[0] for part in cut]
    assert together.tolist() == alone


@pytest.mark.parametrize("per_minute", [0.1, 0.05, 0.025, 0.005])
@pytest.mark.parametrize("depth", [1, 5, 50])
def test_the_model_agrees_with_the_simulation(per_minute: float, depth: int) -> None:
    """Figures 5 and 12: R = 10, c = 5, delta = 0.5 minutes. The bounds: 99.9 % that none of the points is outside, were the model true."""
    intervals, runs = (7.0, 15.0, 30.0, 46.452, 80.0), 100
    bound = NormalDist().inv_cdf(1 - 0.001 / (2 * len(intervals) * 12))
    for seed, interval in enumerate(intervals):
        process = (interval, 5.0, per_minute, 10.0, depth, 0.5)
        horizon = 300 / per_minute
        found = simulated_utilization(*process, horizon_s=horizon, runs=runs, seed=seed)
        exact = expected_utilization(*process, horizon_s=horizon)
        nothing = 10 * (interval - 5.0) / (horizon * runs)  # ten snapshots in all runs: where there are hardly any, none may be seen
        assert abs(found.mean() - exact) <= bound * found.std(ddof=1) / math.sqrt(runs) + nothing


@settings(max_examples=50, deadline=None)
@given(st.floats(5.0, 100.0), st.floats(1e-3, 0.1), st.floats(0.0, 60.0), st.integers(1, 50), st.floats(0.0, 1.0))
def test_equation_10_is_the_limit_of_the_exact_mean(interval: float, rate: float, restart: float, depth: int, delay: float) -> None:
    """What a beginning without a restart and an end in the midst of a period make falls off as 1 / (lambda horizon)."""
    process = (interval, interval / 4, rate, restart, depth, delay)
    model = utilization(*process)
    away = rate * (interval + restart + delay * (depth - 1))
    for failures in (1e4, 1e6):
        exact = expected_utilization(*process, horizon_s=failures / rate)
        assert exact == pytest.approx(model, rel=(2 + 2 * away) * math.exp(away) / failures, abs=1e-12)


def test_the_same_seed_gives_the_same_runs_and_another_one_others() -> None:
    process = (20.0, 1.0, 0.01, 5.0, 3, 0.5)
    first, again, other = (simulated_utilization(*process, horizon_s=5000.0, runs=20, seed=seed) for seed in (7, 7, 8))
    assert first.tolist() == again.tolist() != other.tolist()
    regimes = [Regime(duration_s=1000.0, failures_per_s=0.05, cost_s=1.0, restart_s=1.0, cost_spread=0.5)]
    times_s = failure_times_s(regimes, 3)
    assert times_s == failure_times_s(regimes, 3) == sorted(times_s)
    one, two = (run_job(regimes, times_s, ScheduledInterval((math.inf, 10.0)), seed=3) for _ in range(2))
    assert one == two


def test_failures_come_at_the_rate_of_each_regime() -> None:
    quiet, wild = (Regime(duration_s=1e5, failures_per_s=rate, cost_s=1.0, restart_s=1.0) for rate in (0.001, 0.1))
    times_s = np.array(failure_times_s([quiet, wild], 1))
    assert abs((times_s < 1e5).sum() - 100) < 50
    assert abs((times_s >= 1e5).sum() - 10_000) < 500
    assert times_s.max() < 2e5


def test_the_interval_choice_is_told_of_snapshots_and_failures() -> None:
    """A period of 10 with its snapshot; a failure at 14 whose restart of 4 fails at 16; then from 20 another period and the end."""
    told: list[tuple[str, float]] = []

    class Listening(ScheduledInterval):
        def on_snapshot(self, cost_s: float) -> None:
            told.append(("snapshot", cost_s))

        def on_time(self, seconds: float) -> None:
            told.append(("time", seconds))

        def on_failure(self, restart_s: float) -> None:
            told.append(("failure", restart_s))

    regime = Regime(duration_s=33.0, failures_per_s=0.1, cost_s=2.0, restart_s=4.0)
    run = run_job([regime], [14.0, 16.0], Listening((math.inf, 10.0)))
    assert told == [
        ("time", 10.0), ("snapshot", 2.0), ("time", 4.0), ("failure", 2.0), ("time", 2.0), ("failure", 4.0), ("time", 4.0),
        ("time", 10.0), ("snapshot", 2.0), ("time", 3.0),
    ]  # fmt: skip
    assert (run.useful_s, run.total_s, run.snapshots, run.failures) == (16.0, 33.0, 2, 2)
    assert run.chosen == ((0.0, 10.0), (10.0, 10.0), (20.0, 10.0), (30.0, 10.0))


def test_a_schedule_changes_at_its_times() -> None:
    schedule = ScheduledInterval((10.0, 1.0), (20.0, 2.0))
    found = []
    for _ in range(4):
        found.append(schedule.interval_s())
        schedule.on_time(8.0)
    assert found == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: simulated_utilization(1.0, 2.0, 0.1, 0.0, horizon_s=1.0, runs=1, seed=0), "the interval must not be less than the cost"),
        (lambda: simulated_utilization(2.0, 1.0, 0.1, 0.0, horizon_s=0.0, runs=1, seed=0), "horizon_s is 0.0"),
        (lambda: simulated_utilization(2.0, 1.0, 0.1, 0.0, horizon_s=1.0, runs=0, seed=0), "runs is 0"),
        (lambda: expected_utilization(2.0, 1.0, 0.1, 0.0, horizon_s=math.inf), "horizon_s is inf"),
        (lambda: Regime(duration_s=0.0, failures_per_s=0.1, cost_s=1.0, restart_s=1.0), "Regime.duration_s is 0.0"),
        (lambda: Regime(duration_s=1.0, failures_per_s=-0.1, cost_s=1.0, restart_s=1.0), "Regime.failures_per_s is -0.1"),
        (lambda: ScheduledInterval(), "give (until_s, interval_s) at least once"),
        (lambda: run_job([], [], ScheduledInterval((1.0, 1.0))), "run_job() without regimes"),
    ],
)
def test_invalid_simulations_are_refused(call: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()  # type: ignore[operator]
    assert said in str(caught.value)


def test_rounding_loses_no_snapshot() -> None:
    """0.3 / 0.1 is a little less than 3 in floating point."""
    assert complete_snapshots(np.array([]), 0.1, 0.0, 0.0, horizon_s=0.3, runs=1).tolist() == [3.0]


def test_examples_in_its_docstrings_run() -> None:
    assert doctest.testmod(interval_simulation) == doctest.TestResults(failed=0, attempted=3)
