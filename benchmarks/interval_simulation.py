"""The process that the utilization model describes, simulated: failures of a Poisson process, snapshots, restarts that may fail themselves.

Source: Jayasekara et al., FGCS 2020, sections 3.5 and 4.4 (figures 5 and 12).
A period of ``interval_s`` ends with ``cost_s`` of snapshot. The snapshot is
complete when the last of ``depth`` operators has taken it, ``hop_delay_s`` apart, while the next period already runs; then
``interval_s - cost_s`` of work are final. A failure returns the job to the last complete snapshot, after ``restart_s``; a failure
during that time starts it again.

This needs no steps, because between two failures nothing is random. A gap ``g`` holds ``floor((g - restart - lag) / interval)`` complete
snapshots, ``lag = (depth - 1) hop_delay``, independent of earlier gaps. So a run is the sum over its gaps, in numpy, and the long-run mean
follows by summing over the exponential distribution of g: it is equation 10, exactly. The tests compare this with a simulation that goes
operator by operator.

:func:`run_job` is the same process step by step, for parameters that change during a run: rates, costs, and an interval chosen online.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rayad.progress import ConfigError, show
from rayad.snapshots.interval import utilization


def simulated_utilization(
    interval_s: float,
    cost_s: float,
    failures_per_s: float,
    restart_s: float,
    depth: int = 1,
    hop_delay_s: float = 0.0,
    *,
    horizon_s: float,
    runs: int,
    seed: int,
) -> NDArray[np.float64]:
    """The utilization of each of ``runs`` independent runs of ``horizon_s`` seconds, shape ``(runs,)``; all begin at work.

    The same seed gives the same failures, so that intervals can be compared. Raises ConfigError where an argument is out of range.

    >>> simulated_utilization(10.0, 1.0, 0.0, 5.0, horizon_s=100.0, runs=2, seed=1)
    array([0.9, 0.9])
    """
    _check_process(interval_s, cost_s, failures_per_s, restart_s, depth, hop_delay_s, horizon_s)
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise ConfigError(f"runs is {runs!r}: it must be an int of at least 1")
    generator = np.random.default_rng(seed)
    whole_s = horizon_s * runs  # one Poisson process over all runs, one after another
    failures_s = generator.uniform(0.0, whole_s, generator.poisson(failures_per_s * whole_s))
    complete = complete_snapshots(failures_s, interval_s, restart_s, hop_delay_s * (depth - 1), horizon_s=horizon_s, runs=runs)
    return complete * ((interval_s - cost_s) / horizon_s)


def complete_snapshots(
    failures_s: NDArray[np.float64], interval_s: float, restart_s: float, lag_s: float, *, horizon_s: float, runs: int
) -> NDArray[np.float64]:
    """How many snapshots were completed in each of ``runs`` consecutive runs of ``horizon_s``, shape ``(runs,)``.

    ``failures_s`` are times between 0 and ``runs * horizon_s``, in any order. A snapshot complete at the very moment of a failure counts.

    >>> complete_snapshots(np.array([25.0]), 10.0, 2.0, 3.0, horizon_s=50.0, runs=1)  # at 13, 23; after the restart at 27: at 40, 50
    array([4.])
    """
    starts_s = np.concatenate([np.arange(runs) * horizon_s, failures_s])
    order = np.argsort(starts_s, kind="stable")
    gaps_s = np.diff(starts_s[order], append=horizon_s * runs)
    away_s = np.where(order < runs, 0.0, restart_s) + lag_s
    complete = np.floor(np.maximum(gaps_s - away_s, 0.0) / interval_s + 1e-9)  # 1e-9: rounding may have taken that much from a whole number
    run_of = np.cumsum(order < runs) - 1
    counts: NDArray[np.float64] = np.bincount(run_of, weights=complete, minlength=runs).astype(np.float64)
    return counts


def expected_utilization(
    interval_s: float,
    cost_s: float,
    failures_per_s: float,
    restart_s: float,
    depth: int = 1,
    hop_delay_s: float = 0.0,
    *,
    horizon_s: float,
) -> float:
    """The exact mean of :func:`simulated_utilization`; equation 10 is its limit for a long horizon.

    A k-th snapshot since the last failure is complete at time t if the failure was at ``t - s_k``, ``s_k = restart + lag + k interval``,
    and none since: ``lambda exp(-lambda s_k)`` a second. That is integrated over the horizon and summed over k; the beginning, which is
    no failure, comes in the same way.

    >>> round(expected_utilization(46.452, 5.0, 0.005, 10.0, horizon_s=2000 / 0.005), 4), round(utilization(46.452, 5.0, 0.005, 10.0), 4)
    (0.754, 0.7541)
    """
    _check_process(interval_s, cost_s, failures_per_s, restart_s, depth, hop_delay_s, horizon_s)
    lag_s = hop_delay_s * (depth - 1)
    most = math.floor(max(0.0, horizon_s - lag_s) / interval_s + 1e-9)
    if failures_per_s:
        most = min(most, math.ceil(745.0 / (failures_per_s * interval_s)))  # exp(-745) is the least that a float holds
    from_beginning_s = lag_s + interval_s * np.arange(1, most + 1)
    from_failure_s = from_beginning_s + restart_s
    after_failures = failures_per_s * np.maximum(horizon_s - from_failure_s, 0.0) * np.exp(-failures_per_s * from_failure_s)
    snapshots = float(np.sum(after_failures + np.exp(-failures_per_s * from_beginning_s)))
    return snapshots * (interval_s - cost_s) / horizon_s


def _check_process(
    interval_s: float, cost_s: float, failures_per_s: float, restart_s: float, depth: int, hop_delay_s: float, horizon_s: float
) -> None:
    utilization(interval_s, cost_s, failures_per_s, restart_s, depth, hop_delay_s)  # refuses what is out of range
    if not (math.isfinite(horizon_s) and horizon_s > 0.0):
        raise ConfigError(f"horizon_s is {horizon_s!r}: it must be a finite number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """A part of a job's life in which its parameters stay the same.

    Args:
        duration_s: how long it lasts.
        failures_per_s, cost_s, restart_s: as in the model.
        cost_spread: the standard deviation of the logarithm of a snapshot's cost, whose mean is ``cost_s``.
    """

    duration_s: float
    failures_per_s: float
    cost_s: float
    restart_s: float
    cost_spread: float = 0.0

    def __post_init__(self) -> None:
        for name in ("duration_s", "failures_per_s", "cost_s", "restart_s", "cost_spread"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"Regime.{name} is {show(value)}: it must be a finite number of at least 0")
        if self.duration_s == 0.0:
            raise ConfigError("Regime.duration_s is 0.0: it must be above 0")


class IntervalChoice(Protocol):
    """Chooses the interval from what it is told; :class:`~rayad.snapshots.interval.IntervalEstimator` is one."""

    def interval_s(self) -> float:
        """The interval until the next snapshot's end."""

    def on_snapshot(self, cost_s: float) -> None:
        """A snapshot is complete."""

    def on_time(self, seconds: float) -> None:
        """So much time has passed since the last call."""

    def on_failure(self, restart_s: float) -> None:
        """A failure happened; ``restart_s`` is the time of its restart, or until the next failure."""


class ScheduledInterval:
    """Intervals by time: ``(until_s, interval_s)`` in ascending order, the last one without end. For a choice with foresight."""

    def __init__(self, *schedule: tuple[float, float]) -> None:
        if not schedule:
            raise ConfigError("ScheduledInterval() without an interval: give (until_s, interval_s) at least once")
        self.schedule = schedule
        self.at_s = 0.0

    def interval_s(self) -> float:
        """The interval of the current time."""
        return next((interval for until_s, interval in self.schedule if self.at_s < until_s), self.schedule[-1][1])

    def on_snapshot(self, cost_s: float) -> None:
        """Nothing to learn."""

    def on_time(self, seconds: float) -> None:
        """Time passes."""
        self.at_s += seconds

    def on_failure(self, restart_s: float) -> None:
        """Nothing to learn."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """The outcome of :func:`run_job`; ``chosen`` holds ``(time, interval)`` of every period that was begun, both in seconds."""

    useful_s: float
    total_s: float
    snapshots: int
    failures: int
    chosen: tuple[tuple[float, float], ...]

    @property
    def utilization(self) -> float:
        """Useful time over all time."""
        return self.useful_s / self.total_s


def failure_times_s(regimes: Sequence[Regime], seed: int) -> list[float]:
    """When the job fails: a Poisson process with each regime's rate, in ascending order."""
    generator = np.random.default_rng(seed)
    times: list[float] = []
    begin_s = 0.0
    for regime in regimes:
        count = generator.poisson(regime.failures_per_s * regime.duration_s)
        times += sorted((begin_s + regime.duration_s * generator.random(count)).tolist())
        begin_s += regime.duration_s
    return times


def run_job(regimes: Sequence[Regime], failures_s: Sequence[float], choice: IntervalChoice, *, seed: int = 0, lag_s: float = 0.0) -> JobRun:
    """One job through ``regimes``, failing at ``failures_s``, with the intervals of ``choice``.

    The cost of a snapshot is that of the regime in which its period begins, times a draw with mean 1; it is complete ``lag_s`` after the
    end of its period. A period is never shorter than its snapshot. Snapshots that are not complete at the end of the regimes do not count.
    """
    if not regimes:
        raise ConfigError("run_job() without regimes: give one at least")
    ends_s = np.cumsum([regime.duration_s for regime in regimes]).tolist()
    draws = np.random.default_rng(seed)
    end_s, now_s, useful_s = ends_s[-1], 0.0, 0.0
    snapshots = failures = 0
    chosen: list[tuple[float, float]] = []
    under_way: deque[tuple[float, float, float]] = deque()  # complete at, useful time, cost

    def regime_at(at_s: float) -> Regime:
        return regimes[min(bisect.bisect_right(ends_s, at_s), len(regimes) - 1)]

    def complete_until(at_s: float) -> None:
        nonlocal useful_s, snapshots
        while under_way and under_way[0][0] <= at_s:
            _, work_s, cost_s = under_way.popleft()
            useful_s += work_s
            snapshots += 1
            choice.on_snapshot(cost_s)

    for fails_at_s in (*failures_s, end_s):
        while now_s < fails_at_s:  # work, a period at a time; a restart that fails has now_s == fails_at_s below
            regime = regime_at(now_s)
            spread = regime.cost_spread
            cost_s = regime.cost_s * math.exp(spread * draws.standard_normal() - spread * spread / 2.0) if spread else regime.cost_s
            interval_s = max(choice.interval_s(), cost_s)
            chosen.append((now_s, interval_s))
            period_ends_s = now_s + interval_s
            if period_ends_s > fails_at_s:
                complete_until(fails_at_s)
                choice.on_time(fails_at_s - now_s)
                now_s = fails_at_s
                break
            under_way.append((period_ends_s + lag_s, interval_s - cost_s, cost_s))
            choice.on_time(interval_s)
            complete_until(period_ends_s)
            now_s = period_ends_s
        complete_until(fails_at_s)
        under_way.clear()
        if fails_at_s >= end_s:
            break
        failures += 1
        following = bisect.bisect_right(failures_s, fails_at_s)
        next_s = failures_s[following] if following < len(failures_s) else end_s
        restart_s = min(regime_at(fails_at_s).restart_s, next_s - fails_at_s)
        choice.on_failure(restart_s)
        choice.on_time(restart_s)
        now_s = fails_at_s + restart_s
    return JobRun(useful_s, end_s, snapshots, failures, tuple(chosen))


__all__ = [
    "IntervalChoice",
    "JobRun",
    "Regime",
    "ScheduledInterval",
    "complete_snapshots",
    "expected_utilization",
    "failure_times_s",
    "run_job",
    "simulated_utilization",
]
