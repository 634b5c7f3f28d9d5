"""The belief in a job's failure rate: its laws, what it converges to, how fast it follows a change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayad.progress import ConfigError
from rayad.snapshots.failure_rate import FailureRate

EVENTS = st.lists(st.floats(0.0, 1e9) | st.none(), max_size=40)  # quiet seconds, or a failure


def told(events: list[float | None], **options: float) -> FailureRate:
    rate = FailureRate(1e-7, 1.0, **options)
    for event in events:
        if event is None:
            rate.on_failure()
        else:
            rate.on_time(event)
        rate.check_invariants()
    return rate


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.floats(0.0, 1e300))
def test_quiet_time_never_raises_the_rate(events: list[float | None], quiet_s: float) -> None:
    rate = told(events)
    before = rate.mean_per_s
    rate.on_time(quiet_s)
    rate.check_invariants()
    assert rate.mean_per_s <= before * (1 + 1e-12)


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.floats(1e-4, 0.5))
def test_a_failure_never_lowers_a_rate_below_the_prior_s_and_hardly_one_above(events: list[float | None], change: float) -> None:
    rate, prior = told(events, change=change), FailureRate(1e-7, 1.0).mean_per_s
    before = rate.mean_per_s
    rate.on_failure()
    assert rate.mean_per_s >= min(before, max(prior, before * (1 - change))) * (1 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_time_in_parts_is_the_same_as_at_once(events: list[float | None]) -> None:
    halves = [part for event in events for part in ((None,) if event is None else (event / 2, event / 2))]
    assert told(halves).mean_per_s == pytest.approx(told(events).mean_per_s, rel=1e-9)


@pytest.mark.parametrize("per_s", [1e-5, 1e-3, 0.1])
def test_the_belief_settles_around_the_rate_whatever_its_size(per_s: float) -> None:
    """Ten believers, 200 failures each: the geometric mean of what they believe is the rate within its own scatter."""
    logs = []
    for seed in range(10):
        gaps_s = np.random.default_rng(seed).exponential(1 / per_s, 200).tolist()
        rate = told([event for gap_s in gaps_s for event in (gap_s, None)])
        rate.on_time(1 / per_s)  # right after a failure a new, higher rate is thought possible; a mean gap later no longer
        logs.append(math.log(rate.mean_per_s / per_s))
    assert abs(np.mean(logs)) < 0.15
    assert np.std(logs) < 0.3


def test_a_rise_is_followed_within_six_failures() -> None:
    rate = told([86_400.0, None] * 30)
    rate.on_time(86_400.0)
    assert rate.mean_per_s < 1 / 40_000
    for _ in range(6):
        rate.on_time(60.0)
        rate.on_failure()
    rate.on_time(60.0)
    assert 1 / 180 < rate.mean_per_s < 1 / 20


def test_a_fall_is_followed_within_an_hour_of_quiet() -> None:
    rate = told([60.0, None] * 300)
    assert rate.mean_per_s > 1 / 120
    rate.on_time(3600.0)
    assert rate.mean_per_s < 1 / 1800


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0.0, 1.0), "rates from 0.0 to 1.0 a second: 0 < least < most must hold, both finite"),
        ((1.0, 1.0), "rates from 1.0 to 1.0 a second"),
        ((1.0, math.inf), "rates from 1.0 to inf a second"),
        ((math.nan, 1.0), "rates from nan to 1.0 a second"),
        ((0.1, 1.0, 0.0), "change is 0.0: it is a probability, above 0 and below 1"),
    ],
)
def test_what_is_no_range_or_probability_is_refused(arguments: tuple[float, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FailureRate(*arguments)
    assert str(caught.value).startswith(said)
