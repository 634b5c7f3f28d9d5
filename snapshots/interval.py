"""How often to take snapshots: utilization as a function of the interval, its optimum, and its estimate in a running job.

Source: Jayasekara, Harwood, Karunasekera, *A utilization model for optimization of checkpoint intervals in distributed stream
processing systems* (FGCS 2020), equations 1 to 10.
Its symbols: T interval, c cost of a snapshot, lambda failure rate, R time to detect a failure and
restart, n depth of the graph (operators on its critical path), delta delay of a hop.

All times are seconds and all rates per second; any other unit does as well, as long as it is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rayad.progress import ConfigError, show
from rayad.snapshots.failure_rate import FailureRate

_SERIES_BELOW = 0.05
_SERIES_TERMS = 16


def utilization(
    interval_s: float, cost_s: float, failures_per_s: float, restart_s: float, depth: int = 1, hop_delay_s: float = 0.0
) -> float:
    """The share of time that is left for useful work: equation 10; with ``depth=1`` equation 4, without failures equation 1.

    ``depth`` operators on the critical path snapshot one after another, ``hop_delay_s`` apart: a failure before the last has finished costs
    the whole period. Raises ConfigError where an argument is out of range (``interval_s >= cost_s``, all others >= 0, ``depth >= 1``).

    >>> round(utilization(46.452, 5.0, 0.005, 10.0), 4), round(utilization(46.452, 5.0, 0.005, 10.0, 50, 0.5), 3)
    (0.7541, 0.667)
    >>> utilization(100.0, 1.0, 0.0, 10.0)
    0.99
    """
    _check(interval_s, "interval_s", positive=True)
    _check_all(cost_s=cost_s, failures_per_s=failures_per_s, restart_s=restart_s, hop_delay_s=hop_delay_s)
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise ConfigError(f"depth is {depth!r}: it must be an int of at least 1, the number of operators on the critical path")
    if cost_s > interval_s:
        raise ConfigError(f"a snapshot costs {cost_s!r} s, the interval is {interval_s!r} s: the interval must not be less than the cost")
    if failures_per_s == 0.0:
        return (interval_s - cost_s) / interval_s
    exponent = failures_per_s * interval_s
    if exponent > 700.0:
        return 0.0  # beyond what a float holds; nothing is left long before
    share = (interval_s - cost_s) / interval_s
    lost = exponent / math.expm1(exponent) if exponent else 1.0
    return share * lost * math.exp(-failures_per_s * (restart_s + hop_delay_s * (depth - 1)))


def optimal_interval_s(cost_s: float, failures_per_s: float) -> float:
    """T*, the interval of the greatest utilization: ``(c lambda + W(-exp(-c lambda - 1)) + 1) / lambda`` (sections 3.4 and 4.3).

    It depends on cost and failure rate alone. Infinite without failures, 0 where snapshots cost nothing.

    The formula as it stands loses all digits for small ``c lambda``, where W is near its branch point. With ``p = 1 + W`` it says
    ``-p - log(1 - p) = c lambda``, that is ``p**2 / 2 + p**3 / 3 + ... = c lambda``, which is solved for p by Newton's method.

    >>> round(optimal_interval_s(5.0, 0.005), 3), round(optimal_interval_s(1e-3, 1e-9), 6)
    (46.452, 1414.213896)
    >>> optimal_interval_s(1.0, 0.0), optimal_interval_s(0.0, 1.0)
    (inf, 0.0)
    """
    _check_all(cost_s=cost_s, failures_per_s=failures_per_s)
    if cost_s == 0.0:
        return 0.0
    if failures_per_s == 0.0:
        return math.inf
    x = cost_s * failures_per_s
    if x < 1e-290:  # it may have lost digits to underflow, and the first term of the series has all of them
        return math.sqrt(2.0) * (math.sqrt(cost_s) / math.sqrt(failures_per_s))
    return cost_s + _lambert_plus_one(x) / failures_per_s


def _lambert_plus_one(x: float) -> float:
    """The p in (0, 1) with ``-p - log(1 - p) = x``, x > 0: ``1 + W(-exp(-1 - x))`` on the principal branch."""
    if x > 30.0:
        return 1.0  # 1 - exp(-1 - x) to all digits
    p = math.sqrt(2.0 * x) if x < 0.5 else -math.expm1(-x - 1.0)
    for _ in range(100):
        step = (_excess(p) - x) * (1.0 - p) / p
        following = p - step
        if following >= 1.0:
            following = (p + 1.0) / 2.0
        elif following <= 0.0:
            following = p / 2.0
        if abs(following - p) <= 1e-16 * p or following == p:
            return following
        p = following
    return p


def _excess(p: float) -> float:
    """``-p - log(1 - p)`` without cancellation."""
    if p >= _SERIES_BELOW:
        return -p - math.log1p(-p)
    return math.fsum(p**k / k for k in range(2, 2 + _SERIES_TERMS))


def daly_interval_s(cost_s: float, failures_per_s: float, restart_s: float) -> float:
    """Daly's first-order interval, ``sqrt(2 c (1 / lambda + R))`` (Jayasekara et al., FGCS 2020, section 5, figure 15)."""
    _check_all(cost_s=cost_s, restart_s=restart_s)
    _check(failures_per_s, "failures_per_s", positive=True)
    return math.sqrt(2.0 * cost_s * (1.0 / failures_per_s + restart_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalBounds:
    """Bounds of an interval that is computed online, and the prior before anything was measured.

    Args:
        least_s, most_s: the interval's bounds.
        first_s: the interval before the first snapshot has been measured; halved by each failure until then.
        mtbf_least_s, mtbf_most_s: bounds of the mean time between failures; at first all values in between are equally likely,
            on a logarithmic scale (:mod:`rayad.snapshots.failure_rate`).
        change: the probability, after each failure, that failures come at another rate from then on.
    """

    least_s: float = 0.1
    most_s: float = 3600.0
    first_s: float = 10.0
    mtbf_least_s: float = 1.0
    mtbf_most_s: float = 2_592_000.0
    change: float = 0.01

    def __post_init__(self) -> None:
        for name in ("least_s", "most_s", "first_s", "mtbf_least_s", "mtbf_most_s"):
            _check(getattr(self, name), f"IntervalBounds.{name}", positive=True)
        if not self.least_s <= self.first_s <= self.most_s:
            raise ConfigError(f"IntervalBounds: {self.least_s} <= {self.first_s} <= {self.most_s} must hold (least_s, first_s, most_s)")
        if not self.mtbf_least_s < self.mtbf_most_s:
            raise ConfigError(f"IntervalBounds: {self.mtbf_least_s} < {self.mtbf_most_s} must hold (mtbf_least_s, mtbf_most_s)")
        if not 0.0 < self.change < 1.0:
            raise ConfigError(f"IntervalBounds.change is {self.change!r}: it is a probability, above 0 and below 1")


class IntervalEstimator:
    """What ``interval_s="auto"`` knows: cost, failures, restart time of one job, and the interval that follows.

    The cost is an exponentially weighted mean (a new figure counts ``WEIGHT``), the failure rate the mean of a belief that follows changes
    (:class:`~rayad.snapshots.failure_rate.FailureRate`). Seed 004 leaves both to future work (section 6).

    Laws: the interval lies within the bounds; a higher cost never shortens it, quiet time neither; a failure does
    not lengthen it, unless failures are believed to come as fast as ``mtbf_least_s`` allows.

    >>> estimator = IntervalEstimator()
    >>> estimator.interval_s()
    10.0
    >>> estimator.on_time(60.0); estimator.on_snapshot(0.05); round(estimator.interval_s(), 1)
    7.9
    >>> estimator.on_time(86_400.0); round(estimator.interval_s(), 1)
    163.2
    """

    WEIGHT = 0.3

    def __init__(self, bounds: IntervalBounds | None = None) -> None:
        self.bounds = bounds or IntervalBounds()
        self.cost_s: float | None = None
        self.restart_s: float | None = None
        self.failures = 0
        self.observed_s = 0.0
        self._is_cost_old = False
        self._rate = FailureRate(1.0 / self.bounds.mtbf_most_s, 1.0 / self.bounds.mtbf_least_s, self.bounds.change)

    def on_snapshot(self, cost_s: float) -> None:
        """A snapshot took ``cost_s`` seconds away from the work."""
        _check(cost_s, "cost_s")
        before_s = cost_s if self.cost_s is None or self._is_cost_old else self.cost_s
        self.cost_s, self._is_cost_old = before_s + self.WEIGHT * (cost_s - before_s), False

    def on_time(self, seconds: float) -> None:
        """The job has run or restarted for so long since the last call."""
        _check(seconds, "seconds")
        self.observed_s += seconds
        self._rate.on_time(seconds)

    def on_failure(self, restart_s: float) -> None:
        """A failure, from which the job was back at work after ``restart_s`` seconds."""
        _check(restart_s, "restart_s")
        self.failures += 1
        self._rate.on_failure()
        self.restart_s = restart_s if self.restart_s is None else self.restart_s + self.WEIGHT * (restart_s - self.restart_s)

    def on_rescale(self) -> None:
        """Another number of replicas: costs change, so the next cost replaces the mean; the failure rate stays."""
        self._is_cost_old = True

    @property
    def failures_per_s(self) -> float:
        """The present estimate of the rate."""
        return self._rate.mean_per_s

    def interval_s(self) -> float:
        """T* within the bounds; ``first_s`` while no cost is known, half as long after each failure that came before the first snapshot."""
        if self.cost_s is None:
            return max(self.bounds.least_s, math.ldexp(self.bounds.first_s, -min(self.failures, 1000)))
        best = optimal_interval_s(self.cost_s, self.failures_per_s)
        return min(max(best, self.bounds.least_s), self.bounds.most_s)

    def check_invariants(self) -> None:
        """Assert that the interval is within its bounds, and that the belief in failures is one."""
        self._rate.check_invariants()
        assert self.bounds.least_s <= self.interval_s() <= self.bounds.most_s, self.interval_s()


def _check(value: float, what: str, *, positive: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise ConfigError(f"{what} is {show(value)}: it must be a finite number {'above' if positive else 'of at least'} 0")


def _check_all(**values: float) -> None:
    for what, value in values.items():
        _check(value, what)


__all__ = [
    "IntervalBounds",
    "IntervalEstimator",
    "daly_interval_s",
    "optimal_interval_s",
    "utilization",
]
