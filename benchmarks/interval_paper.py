"""The printed figures of Jayasekara et al. (FGCS 2020) on the interval model, and what its equations give for the same arguments.

A figure *follows* when the computed value, rounded to as many decimals as are printed, is the printed one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rayad.snapshots.interval import daly_interval_s, optimal_interval_s, utilization

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Experiment:
    """A row of table 1: times in seconds, ``best_min`` in minutes; ``observed_*`` are the paper's measurements with Flink and their
    spread."""

    per_minute: float
    depth: int
    cost_s: float
    restart_s: float
    hop_delay_s: float
    observed_30: float
    spread_30: float
    printed_30: float
    best_min: float
    observed_best: float
    spread_best: float
    printed_best: float
    percent: float
    run_hours: float

    @property
    def process(self) -> tuple[float, float, float, int, float]:
        """Arguments of the model behind the interval."""
        return self.cost_s, self.per_minute / MINUTE, self.restart_s, self.depth, self.hop_delay_s

    @property
    def name(self) -> str:
        """The row's first two cells."""
        return f"{self.per_minute:g}/min, n = {self.depth}"

    @property
    def best_s(self) -> float:
        """T*."""
        return optimal_interval_s(self.cost_s, self.per_minute / MINUTE)


TABLE_1 = (
    Experiment(0.05, 5, 1.6, 23.1, 0.02735, 0.4228, 0.014, 0.4222, 1.0418, 0.9416, 0.002, 0.9442, 123, 20),
    Experiment(0.05, 7, 3.09, 23.81, 0.03265, 0.4069, 0.011, 0.4216, 1.4526, 0.9223, 0.002, 0.9258, 126, 20),
    Experiment(0.01, 5, 1.07, 23.70, 0.01386, 0.8449, 0.001, 0.8536, 1.8945, 0.9806, 0.001, 0.98, 16, 30),
    Experiment(0.01, 7, 1.59, 24.12, 0.01507, 0.8447, 0.001, 0.8533, 2.3110, 0.9686, 0.001, 0.9692, 15, 30),
    Experiment(0.005, 5, 1.15, 25.37, 0.0126, 0.9109, 0.005, 0.9243, 2.7753, 0.9815, 0.005, 0.9866, 8, 40),
    Experiment(0.005, 7, 2.57, 24.07, 0.01285, 0.9118, 0.001, 0.9237, 4.1536, 0.9755, 0.001, 0.9781, 7, 40),
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure of the paper: its place, its meaning, as printed (the number of decimals matters), and as computed."""

    where: str
    what: str
    printed: str
    computed: float

    @property
    def follows(self) -> bool:
        """Whether rounding the computed value gives the printed one."""
        decimals = len(self.printed.partition(".")[2])
        return abs(self.computed - float(self.printed)) <= 0.5 * 10.0**-decimals + 1e-9


def gain(process: tuple[float, float, float, int, float], over_s: float) -> float:
    """By how many percent the best interval's utilization exceeds that of another."""
    cost_s, rate, *_ = process
    return 100 * (utilization(optimal_interval_s(cost_s, rate), *process) / utilization(over_s, *process) - 1)


def claims() -> list[Claim]:
    """Every figure that the paper prints and that its equations determine."""
    per_minute = (5.0, 0.005, 10.0)  # c and R in minutes
    best = optimal_interval_s(5.0, 0.005)
    one, many = utilization(best, *per_minute), utilization(best, *per_minute, 50, 0.5)
    found = [
        Claim("figure 4", "T*, minutes", "46.452", best),
        Claim("figure 4", "U(T*)", "0.7541", one),
        Claim("figure 10", "U(T*), n = 50", "0.667", many),
        Claim("figure 11", "decrease by n = 50, percent", "11.6", 100 * (1 - many / one)),
        Claim("figure 11", "the same from the two printed figures", "11.6", 100 * (1 - 0.667 / 0.7541)),
    ]
    for row in TABLE_1:
        found += [
            Claim("table 1", f"U(30 min): {row.name}", f"{row.printed_30:.4f}", utilization(30 * MINUTE, *row.process)),
            Claim("table 1", f"T*, minutes: {row.name}", f"{row.best_min:.4f}", row.best_s / MINUTE),
            Claim("table 1", f"U(T*): {row.name}", f"{row.printed_best:.4f}", utilization(row.best_s, *row.process)),
            Claim(
                "table 1", f"increase of the observed U, percent: {row.name}", f"{row.percent:g}",
                100 * (row.observed_best / row.observed_30 - 1),
            ),
        ]  # fmt: skip
    found += [
        Claim("section 5", f"gain over 30 min at {rate} failures an hour, percent", printed, gain(_scaled(rate), 30 * MINUTE))
        for rate, printed in ((0.8475, "18.91"), (0.1701, "2.4"), (0.135, "1.73"), (0.1161, "1.4"), (0.0606, "0.5"))
    ]
    exascale = (120.0, 11 / HOUR, 300.0, 25, 30.0)
    daly_s = daly_interval_s(*exascale[:3])
    slow = (10.0, 0.005 / MINUTE, 30.0, 15_000, 5.0)
    return [
        *found,
        Claim("section 5", "failures an hour for which 30 min is the best, c = 1 s", "0.0022", _rate_of_best(1800.0, 1.0) * HOUR),
        Claim("section 5", "days between such failures", "19", 1 / 0.0022 / 24),
        Claim("figure 13", "gain over 30 min with 1,000 nodes, percent", "68.8", gain(_scaled(2.2), 30 * MINUTE)),
        Claim("figure 13", "gain over 30 min with 2,000 nodes, percent", "226.83", gain(_scaled(4.4), 30 * MINUTE)),
        Claim("figure 14", "U(T*), n = 15,000", "0.0018", utilization(optimal_interval_s(*slow[:2]), *slow)),
        Claim("figure 16", "gain over Daly at 11 failures an hour, percent", "2.3", gain(exascale, daly_s)),
        Claim("figure 16", "gain over Zhuang et al., percent", "3.7", gain(exascale, math.hypot(daly_s, 120.0))),
        Claim("equation 5", "U without failures, n = 50: equation 10 against it", f"{41.452 / (46.452 + 49 * 0.5):.4f}",
              utilization(46.452, 5.0, 0.0, 10.0, 50, 0.5)),
    ]  # fmt: skip


def _scaled(per_hour: float) -> tuple[float, float, float, int, float]:
    """The setting of figure 13 and of the five real systems: R = 30 s, c = 5 s, delta = 50 ms, n = 5."""
    return 5.0, per_hour / HOUR, 30.0, 5, 0.05


def _rate_of_best(interval_s: float, cost_s: float) -> float:
    """The failure rate for which this is the best interval: T* falls as the rate grows, so by bisection."""
    low, high = 1e-12, 1.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if optimal_interval_s(cost_s, middle) > interval_s else (low, middle)
    return low


def implied_cost_s(row: Experiment) -> float:
    """The cost of a snapshot with which equation 10 would give the printed U(T*) at the printed T*, all else as printed."""
    interval_s = row.best_min * MINUTE
    _, failures_per_s, restart_s, operators, lag_s = row.process
    return interval_s * (1 - row.printed_best / utilization(interval_s, 0.0, failures_per_s, restart_s, operators, lag_s))
