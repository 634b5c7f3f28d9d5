"""How often a job fails, estimated from its failures so far: Bayes' rule on a grid of rates.

A job knows nothing about its rate of failures at first: one a second and one a month are both possible. So the prior is uniform in the
*logarithm* of the rate, between two bounds. Quiet time speaks against high rates (a factor ``exp(-rate * time)`` each), a failure for them
(a factor ``rate``): the likelihood of a Poisson process. Jayasekara et al. (FGCS 2020, 3.2) have failures so, and leave measuring them to
their readers.

The rate may change: a node goes bad, another program runs. After each failure the belief is mixed with a share ``change`` of the prior:
with this probability the next incarnation has another rate. Without it, what was learned over days would have to be outweighed by
days. Counted by failures and not by time, all of it is the same for jobs that fail in minutes and in months.

Rejected: a Gamma prior of one failure a day (it weighs like a day: a job that fails every minute is believed after a day) and exponential
forgetting (to follow a rise it needs ``log(new / old)`` times its memory, in failures). docs/design/interval.md has the figures.
"""

from __future__ import annotations

import math

from rayad.progress import ConfigError

_QUIET_MOST_S = 1e30


class FailureRate:
    """The belief in the rate of failures of one job.

    Args:
        least_per_s, most_per_s: bounds of the rate, failures a second.
        change: the probability, after each failure, that the rate is another one from then on.

    Laws: the mean lies within the bounds; quiet time never raises it; a failure never lowers it while it is below the prior's, which is
    what a new one has, and by a share ``change`` at most where it is above.

    >>> rate = FailureRate(1e-6, 1.0)
    >>> rate.on_time(3600.0); round(1 / rate.mean_per_s)
    18766
    >>> for _ in range(20):
    ...     rate.on_time(60.0); rate.on_failure()
    >>> rate.on_time(60.0); 40 < 1 / rate.mean_per_s < 80
    True
    """

    POINTS_PER_DECADE = 8

    def __init__(self, least_per_s: float, most_per_s: float, change: float = 0.01) -> None:
        if not 0.0 < least_per_s < most_per_s < math.inf:
            raise ConfigError(f"rates from {least_per_s!r} to {most_per_s!r} a second: 0 < least < most must hold, both finite")
        if not 0.0 < change < 1.0:
            raise ConfigError(f"change is {change!r}: it is a probability, above 0 and below 1")
        self.change = change
        steps = max(2, math.ceil(self.POINTS_PER_DECADE * math.log10(most_per_s / least_per_s)))
        ratio = math.log(most_per_s / least_per_s) / steps
        self.rates = (*(least_per_s * math.exp(ratio * step) for step in range(steps)), most_per_s)
        self._log_weights = [0.0] * len(self.rates)
        self._quiet_s = 0.0

    def on_time(self, seconds: float) -> None:
        """``seconds`` passed without a failure."""
        self._quiet_s = min(self._quiet_s + seconds, _QUIET_MOST_S)

    def on_failure(self) -> None:
        """A failure, now."""
        weights = [weight * rate for weight, rate in zip(self._weights(), self.rates, strict=True)]
        total, even = math.fsum(weights), 1.0 / len(weights)
        self._log_weights = [math.log((1.0 - self.change) * weight / total + self.change * even) for weight in weights]
        self._quiet_s = 0.0

    @property
    def mean_per_s(self) -> float:
        """The expected rate; to first order in ``rate * interval`` the best interval depends on it alone."""
        weights = self._weights()
        mean = math.fsum(weight * rate for weight, rate in zip(weights, self.rates, strict=True)) / math.fsum(weights)
        return min(max(mean, self.rates[0]), self.rates[-1])

    def _weights(self) -> list[float]:
        """Of each rate, the greatest 1."""
        logs = [log - rate * self._quiet_s for log, rate in zip(self._log_weights, self.rates, strict=True)]
        greatest = max(logs)
        return [math.exp(log - greatest) for log in logs]

    def check_invariants(self) -> None:
        """Assert that this is a belief: finite weights, a mean within the bounds."""
        assert all(map(math.isfinite, self._log_weights)), self._log_weights
        assert self.rates[0] <= self.mean_per_s <= self.rates[-1], self.mean_per_s


__all__ = ["FailureRate"]
