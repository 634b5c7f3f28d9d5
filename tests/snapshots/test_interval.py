"""The utilization model against the paper's figures (seed 004), against scipy, and against its own definition."""

from __future__ import annotations

import math

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import lambertw

from rayad.progress import ConfigError
from rayad.snapshots.interval import daly_interval_s, optimal_interval_s, utilization

POSITIVE = st.floats(1e-300, 1e300)

# Table 1: failures a minute, n, c in s, R in s, delta in ms, U at 30 minutes, T* in minutes, U at T* as printed.
TABLE_1 = [
    (0.05, 5, 1.6, 23.1, 27.35, 0.4222, 1.0418, 0.9442),
    (0.05, 7, 3.09, 23.81, 32.65, 0.4216, 1.4526, 0.9258),
    (0.01, 5, 1.07, 23.70, 13.86, 0.8536, 1.8945, 0.9800),
    (0.01, 7, 1.59, 24.12, 15.07, 0.8533, 2.3110, 0.9692),
    (0.005, 5, 1.15, 25.37, 12.6, 0.9243, 2.7753, 0.9866),
    (0.005, 7, 2.57, 24.07, 12.85, 0.9237, 4.1536, 0.9781),
]


@pytest.mark.parametrize(("per_minute", "n", "c", "r", "delta_ms", "at_30", "best_min", "printed"), TABLE_1)
def test_table_1(per_minute: float, n: int, c: float, r: float, delta_ms: float, at_30: float, best_min: float, printed: float) -> None:
    rate = per_minute / 60
    assert utilization(1800.0, c, rate, r, n, delta_ms / 1000) == pytest.approx(at_30, abs=5e-5)
    best_s = optimal_interval_s(c, rate)
    assert best_s / 60 == pytest.approx(best_min, abs=5e-5)
    # The paper's last theoretical column does not follow from its equation 10: it is off by up to 0.0143, in both directions.
    off = abs(utilization(best_s, c, rate, r, n, delta_ms / 1000) - printed)
    assert 5e-5 < off < 0.0144


def test_the_examples_of_figures_4_10_and_14() -> None:
    assert optimal_interval_s(5.0, 0.005) == pytest.approx(46.452, abs=5e-4)
    assert utilization(46.452, 5.0, 0.005, 10.0) == pytest.approx(0.7541, abs=5e-5)
    assert utilization(46.452, 5.0, 0.005, 10.0, 50, 0.5) == pytest.approx(0.667, abs=5e-4)
    rate = 0.005 / 60
    assert utilization(optimal_interval_s(10.0, rate), 10.0, rate, 30.0, 15_000, 5.0) == pytest.approx(0.0018, abs=5e-5)


@pytest.mark.parametrize(
    ("per_hour", "percent"), [(0.8475, 18.91), (0.1701, 2.4), (0.135, 1.73), (0.1161, 1.4), (0.0606, 0.5), (2.2, 68.8), (4.4, 226.83)]
)
def test_the_gain_of_the_optimum_over_30_minutes(per_hour: float, percent: float) -> None:
    rate = per_hour / 3600
    best, default = (utilization(t, 5.0, rate, 30.0, 5, 0.05) for t in (optimal_interval_s(5.0, rate), 1800.0))
    assert 100 * (best / default - 1) == pytest.approx(percent, abs=0.02)


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-3, 30.0))
def test_the_optimum_is_the_paper_s_formula_where_that_is_exact(x: float) -> None:
    """With lambda = 1: T* = c + W(-exp(-c - 1)) + 1; scipy's W loses digits towards its branch point, as the formula does."""
    assert optimal_interval_s(x, 1.0) == pytest.approx(x + 1.0 + lambertw(-math.exp(-x - 1.0)).real, rel=1e-9)


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-300, 1e-6))
def test_the_optimum_keeps_its_digits_for_small_products(x: float) -> None:
    """The inverse series of p**2 / 2 + p**3 / 3 + ... = x: p = s - s**2 / 3 + s**3 / 36 - ..., with s = sqrt(2 x)."""
    s = math.sqrt(2.0 * x)
    assert optimal_interval_s(x, 1.0) == pytest.approx(x + s - s**2 / 3 + s**3 / 36, rel=1e-12)


def test_the_optimum_of_a_tiny_cost_and_a_tiny_rate() -> None:
    assert optimal_interval_s(1e-3, 1e-9) == pytest.approx(1414.213896, abs=5e-7)
    assert optimal_interval_s(1e-200, 1e-200) == pytest.approx(math.sqrt(2.0))


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-4, 1e3), st.floats(1e-8, 1.0), st.floats(0.0, 100.0), st.integers(1, 50), st.floats(0.0, 5.0))
def test_nothing_is_better_than_the_optimum(cost: float, rate: float, restart: float, depth: int, delay: float) -> None:
    best = optimal_interval_s(cost, rate)
    assert best >= cost
    top = utilization(best, cost, rate, restart, depth, delay)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        other = best * factor
        if other > cost:
            assert utilization(other, cost, rate, restart, depth, delay) <= top * (1 + 1e-12) + 1e-300


def test_the_limits() -> None:
    assert utilization(10.0, 2.0, 0.0, 5.0, 3, 1.0) == 0.8
    assert utilization(10.0, 10.0, 0.1, 5.0) == 0.0
    assert utilization(1e6, 1.0, 1.0, 5.0) == 0.0
    assert math.isinf(optimal_interval_s(1.0, 0.0))
    assert optimal_interval_s(0.0, 5.0) == 0.0
    assert daly_interval_s(2.0, 0.01, 10.0) == math.sqrt(2 * 2 * 110)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0.0, 0.0, 1.0, 1.0), "interval_s is 0.0: it must be a finite number above 0"),
        ((1.0, 2.0, 1.0, 1.0), "the interval must not be less than the cost"),
        ((1.0, -1.0, 1.0, 1.0), "cost_s is -1.0"),
        ((1.0, 0.1, math.nan, 1.0), "failures_per_s is nan"),
        ((1.0, 0.1, 1.0, math.inf), "restart_s is inf"),
        ((1.0, 0.1, 1.0, 1.0, 0), "depth is 0"),
        ((1.0, 0.1, 1.0, 1.0, 1.5), "depth is 1.5"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: tuple[float, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        utilization(*arguments)  # type: ignore[arg-type]
    assert said in str(caught.value)


@settings(max_examples=500, deadline=None)
@given(POSITIVE, POSITIVE, st.floats(1.0, 1e3))
def test_the_optimum_grows_with_cost_shrinks_with_failures_and_is_a_number(cost: float, rate: float, factor: float) -> None:
    """Over all that a float holds: no product or quotient may overflow, underflow or cancel."""
    best = optimal_interval_s(cost, rate)
    assert best > 0.0
    assert best >= cost
    dearer, worse = optimal_interval_s(min(cost * factor, 1e300), rate), optimal_interval_s(cost, min(rate * factor, 1e300))
    assert dearer >= best * (1 - 1e-12)
    assert worse <= best * (1 + 1e-12)


@settings(max_examples=500, deadline=None)
@given(POSITIVE, POSITIVE | st.just(0.0), POSITIVE, st.integers(1, 2**40), POSITIVE)
def test_utilization_is_a_share_for_any_arguments(interval: float, rate: float, restart: float, depth: int, delay: float) -> None:
    for cost in (0.0, interval / 3, interval):
        assert 0.0 <= utilization(interval, cost, rate, restart, depth, delay) <= 1.0


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(0.0, 1.0), st.floats(1e-6, 1.0), st.floats(0.0, 10.0), st.integers(1, 50), st.floats(0.0, 0.5))
def test_equation_10_is_equation_9(interval: float, share: float, rate: float, restart: float, depth: int, delay: float) -> None:
    """The effective period as section 4.2 derives it, term by term, with F of equation 2."""
    cost, lag = share * interval, (depth - 1) * delay

    def lost(period: float) -> float:
        """``(1 - p) / p`` failures, each with its mean loss and restarts: the terms of equations 7 and 8."""
        grown = math.expm1(rate * period)  # (1 - p) / p
        return grown * (mean_loss(period) + restart + math.expm1(rate * restart) * mean_loss(restart))

    def mean_loss(period: float) -> float:
        x = rate * period
        return period / 2 if x < 1e-5 else 1 / rate - period / math.expm1(x)

    hypothesis.assume(rate * (interval + restart + lag) < 300)
    effective = interval + lost(interval + lag) - lost(lag)
    assert utilization(interval, cost, rate, restart, depth, delay) == pytest.approx((interval - cost) / effective, rel=1e-4)
