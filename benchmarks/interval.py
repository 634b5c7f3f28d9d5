"""The snapshot interval: the model against a simulation of its process, against the paper's figures, and the interval chosen online.

Everything here is simulated and seeded: the same on any machine, and nothing is timed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from benchmarks.interval_paper import DAY, HOUR, MINUTE, TABLE_1, Experiment, claims, implied_cost_s
from benchmarks.interval_simulation import (
    IntervalChoice,
    Regime,
    ScheduledInterval,
    expected_utilization,
    failure_times_s,
    run_job,
    simulated_utilization,
)
from benchmarks.measurement import Chart, Line, Measurement, Panel, Ratio
from rayad.snapshots.interval import IntervalBounds, IntervalEstimator, optimal_interval_s, utilization

TITLE = "Snapshot interval: model, simulation, choice"
NEEDS_RAY = False
RATES = (0.1, 0.05, 0.025, 0.005)
RESTART, COST, HOP_DELAY = 10.0, 5.0, 0.5
BEYOND = 0.001
"""If the model is right, the probability that any point lies outside its bounds."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is simulated; ``runs`` of ``failures`` mean times between failures are the paper's. ``intervals`` in minutes."""

    repetitions: int = 10
    runs: int = 250
    failures: int = 2_000
    intervals: tuple[float, ...] = (6.0, 8.0, 11.0, 15.0, 20.0, 27.0, 36.0, 46.452, 60.0, 80.0)
    depths: tuple[int, ...] = (1, 5, 25, 50)
    table_runs: int = 20_000
    job_share: float = 1.0


FULL = Sizes()
QUICK = Sizes(repetitions=2, runs=40, failures=50, intervals=(8.0, 20.0, 46.452), depths=(1, 50), table_runs=200, job_share=0.2)


def run(sizes: Sizes) -> Measurement:
    """Figures 5 and 12, table 1, the paper's other figures, then jobs that choose."""
    out = Measurement("interval", TITLE, asdict(sizes))
    compare_with_simulation(out, sizes)
    compare_with_table_1(out, sizes)
    compare_with_the_paper(out)
    choose(out, sizes)
    return out


# -- figures 5 and 12 -------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Point:
    """A point of figure 5 or 12: mean and spread over the runs, equation 10, the exact mean, and how far the mean may be from that."""

    rate: float
    depth: int
    interval: float
    mean: float
    spread: float
    model: float
    exact: float
    bound: float

    @property
    def is_within(self) -> bool:
        """Whether the simulation's mean lies within its bounds."""
        return abs(self.mean - self.exact) <= self.bound


def points(sizes: Sizes) -> list[Point]:
    """All points, in minutes as in the paper; each with a seed of its own, so that they are independent.

    The bound is ``z`` standard errors, and ``z**2 / 3`` snapshots in all runs (the second term of Bernstein's inequality): where snapshots
    are rare the mean is not normally distributed. With probability ``1 - BEYOND`` no point is outside.
    """
    places = [(rate, depth, interval) for rate in RATES for depth in sizes.depths for interval in sizes.intervals]
    z = statistics.NormalDist().inv_cdf(1 - BEYOND / (2 * len(places)))
    found = []
    for seed, (rate, depth, interval) in enumerate(places):
        process, horizon = (interval, COST, rate, RESTART, depth, HOP_DELAY), sizes.failures / rate
        runs = simulated_utilization(*process, horizon_s=horizon, runs=sizes.runs, seed=seed)
        spread, snapshot = float(runs.std(ddof=1)), (interval - COST) / (horizon * sizes.runs)
        bound = z * spread / math.sqrt(sizes.runs) + z * z / 3 * snapshot
        exact = expected_utilization(*process, horizon_s=horizon)
        found.append(Point(rate, depth, interval, float(runs.mean()), spread, utilization(*process), exact, bound))
    return found


def compare_with_simulation(out: Measurement, sizes: Sizes) -> None:
    """A table by rate and depth, a chart for each of the two figures, and a check that every point is within its bounds."""
    found = points(sizes)
    outside = [point for point in found if not point.is_within]
    out.check(f"all means of the simulation lie within bounds that they leave with probability {BEYOND} in all", outside, [])
    table = out.new_table(
        f"Model and simulation (c = 5, R = 10, delta = 0.5 minutes as in figures 5 and 12; {sizes.runs} runs of {sizes.failures} / lambda)",
        "failures a minute", "n", "points", "greatest |simulation - equation 10|", "and from the exact mean", "in standard errors, median",
        "spread of a run, most",
    )  # fmt: skip
    for rate in RATES:
        for depth in sizes.depths:
            here = [point for point in found if (point.rate, point.depth) == (rate, depth)]
            errors = [
                abs(point.mean - point.exact) / (point.spread / math.sqrt(sizes.runs)) for point in here if point.spread > 0
            ]  # fmt: skip
            table.add(
                f"{rate:g}", depth, len(here), max(abs(p.mean - p.model) for p in here), max(abs(p.mean - p.exact) for p in here),
                statistics.median(errors) if errors else "-", max(p.spread for p in here),
            )  # fmt: skip
    for name, title, depths in (
        ("figure-5", "Figure 5: one process, R = 10 and c = 5 minutes", sizes.depths[:1]),
        ("figure-12", "Figure 12: graphs of depth n, R = 10, c = 5 and delta = 0.5 minutes", sizes.depths[1:]),
    ):
        chart = Chart(name, title, "interval (minutes)", "utilization")
        for rate in RATES:
            panel = Panel(f"{rate:g} failures a minute")
            for depth in depths:
                here = [point for point in found if (point.rate, point.depth) == (rate, depth)]
                panel.lines += [_model_line(rate, depth, sizes), _simulation_line(depth, here)]
            chart.panels.append(panel)
        out.charts.append(chart)


def _model_line(rate: float, depth: int, sizes: Sizes) -> Line:
    first, last = min(sizes.intervals), max(sizes.intervals)
    xs = [first + (last - first) * step / 40 for step in range(41)]
    return Line(f"equation 10, n = {depth}", xs, [utilization(x, COST, rate, RESTART, depth, HOP_DELAY) for x in xs])


def _simulation_line(depth: int, here: list[Point]) -> Line:
    return Line(f"simulation, n = {depth}", [p.interval for p in here], [p.mean for p in here], [p.spread for p in here])


# -- table 1 and the paper's other figures --------------------------------------------------
def compare_with_table_1(out: Measurement, sizes: Sizes) -> None:
    """The printed figures, those of equation 10, and those of simulated runs as long as the paper's; and the c that the printed U(T*)
    imply."""
    at_30 = out.new_table(
        "Table 1 of the paper, T = 30 min", "row", "U printed", "equation 10", "simulated", "spread of a simulated run", "observed",
        "spread printed", "failures in a run",
    )  # fmt: skip
    at_best = out.new_table(
        "Table 1 of the paper, T = T*", "row", "T* printed, min", "T* computed", "U printed", "equation 10", "off by", "simulated",
        "spread of a simulated run", "observed", "c printed, s", "c that would give the printed U",
    )  # fmt: skip
    for row in TABLE_1:
        model, mean, spread = _simulated_row(row, 30 * MINUTE, sizes)
        cells = (f"{row.observed_30:.4f}", f"{row.spread_30:.3f}", row.per_minute * 60 * row.run_hours)
        at_30.add(row.name, f"{row.printed_30:.4f}", f"{model:.4f}", f"{mean:.4f}", f"{spread:.3f}", *cells)
        model, mean, spread = _simulated_row(row, row.best_s, sizes)
        at_best.add(
            row.name, f"{row.best_min:.4f}", f"{row.best_s / MINUTE:.4f}", f"{row.printed_best:.4f}", f"{model:.4f}",
            f"{row.printed_best - model:+.4f}", f"{mean:.4f}", f"{spread:.4f}", f"{row.observed_best:.4f}", f"{row.cost_s:g}",
            f"{implied_cost_s(row):.2f}",
        )  # fmt: skip


def _simulated_row(row: Experiment, interval_s: float, sizes: Sizes) -> tuple[float, float, float]:
    """Equation 10; mean and spread of runs of the experiment's length."""
    runs = simulated_utilization(interval_s, *row.process, horizon_s=row.run_hours * HOUR, runs=sizes.table_runs, seed=1)
    return utilization(interval_s, *row.process), float(runs.mean()), float(runs.std(ddof=1))


def compare_with_the_paper(out: Measurement) -> None:
    """Every printed figure beside the computed one."""
    table = out.new_table("Figures of the paper and its equations", "where", "what", "printed", "computed", "follows")
    for claim in claims():
        table.add(claim.where, claim.what, claim.printed, f"{claim.computed:.5g}", "yes" if claim.follows else "no")


# -- the interval chosen online -----------------------------------------------------------
class GammaEstimator(IntervalEstimator):
    """For comparison: the mean of a Gamma distribution, its prior one failure in a day, nothing forgotten."""

    @property
    def failures_per_s(self) -> float:
        """Failures over time, the prior's included."""
        return (1.0 + self.failures) / (DAY + self.observed_s)


class ForgettingEstimator(IntervalEstimator):
    """For comparison: the same with a prior that weighs as much as an hour; at each failure earlier observations lose a tenth of weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weighed, self.weighed_s = HOUR / DAY, HOUR

    def on_time(self, seconds: float) -> None:
        """Time passes."""
        super().on_time(seconds)
        self.weighed_s += seconds

    def on_failure(self, restart_s: float) -> None:
        """Forget, then count."""
        super().on_failure(restart_s)
        self.weighed, self.weighed_s = 0.9 * self.weighed + 1.0, 0.9 * self.weighed_s

    @property
    def failures_per_s(self) -> float:
        """Weighed failures over weighed time."""
        return self.weighed / self.weighed_s


CHOICES: dict[str, Callable[[], IntervalChoice]] = {
    "auto, change 0.1 %": lambda: IntervalEstimator(IntervalBounds(change=0.001)),
    "auto, change 10 %": lambda: IntervalEstimator(IntervalBounds(change=0.1)),
    "Gamma prior, one failure a day": GammaEstimator,
    "forgetting a tenth at each failure": ForgettingEstimator,
    "10 min": lambda: ScheduledInterval((math.inf, 600.0)),
}


def _regime(hours: float, mtbf_s: float, cost_s: float, restart_s: float) -> Regime:
    return Regime(duration_s=hours * HOUR, failures_per_s=1 / mtbf_s, cost_s=cost_s, restart_s=restart_s, cost_spread=0.3)


JOBS: dict[str, tuple[list[Regime], float]] = {
    # regimes, and (n - 1) delta; where 30 s happens to be the best interval nothing can beat it
    "fails every 10 s, c = 20 ms": ([_regime(1, 10, 0.02, 0.5)], 0.0),
    "fails every minute, c = 0.1 s": ([_regime(4, 60, 0.1, 5)], 0.0),
    "fails every 10 min, c = 0.75 s: 30 s is the best": ([_regime(24, 600, 0.75, 10)], 0.0),
    "fails every half hour, c = 5 s, n = 10": ([_regime(72, 1800, 5, 30)], 4.5),
    "fails once a day, c = 1 s": ([_regime(240, DAY, 1, 30)], 0.0),
    "fails once a day, c = 10 s": ([_regime(240, DAY, 10, 30)], 0.0),
    "failures: once a day, then every 2 min": ([_regime(48, DAY, 0.2, 10), _regime(12, 120, 0.2, 10)], 0.0),
    "failures: every 2 min, then once a day": ([_regime(12, 120, 0.2, 10), _regime(48, DAY, 0.2, 10)], 0.0),
    "cost: 0.5 s, then 10 s": ([_regime(12, 1200, 0.5, 10), _regime(12, 1200, 10, 10)], 0.0),
    "cost: 10 s, then 0.5 s": ([_regime(12, 1200, 10, 10), _regime(12, 1200, 0.5, 10)], 0.0),
}
RISE = "failures: once a day, then every 2 min"


def choose(out: Measurement, sizes: Sizes) -> None:
    """Each job with the interval chosen online, with foresight, and fixed: all with the same failures and costs."""
    table = out.new_table("Utilization over that with foresight, mean (least)", "job", "auto", "30 s", *CHOICES)
    for name, (regimes, lag_s) in JOBS.items():
        scaled = [
            Regime(
                duration_s=p.duration_s * sizes.job_share, failures_per_s=p.failures_per_s, cost_s=p.cost_s, restart_s=p.restart_s,
                cost_spread=p.cost_spread,
            )
            for p in regimes
        ]  # fmt: skip
        auto, best, fixed = (out.new_series(f"{label}: {name}", "utilization", "-") for label in ("Rayad, auto", "foresight", "30 s"))
        found: dict[str, list[float]] = {label: [] for label in ("auto", "30 s", *CHOICES)}
        for seed in range(sizes.repetitions):
            failures_s = failure_times_s(scaled, seed)
            run = partial(run_job, scaled, failures_s, seed=seed, lag_s=lag_s)
            chosen = run(IntervalEstimator())
            foreseen = run(ScheduledInterval(*foresight(scaled))).utilization
            every_30_s = run(ScheduledInterval((math.inf, 30.0))).utilization
            auto.add(chosen.utilization)
            best.add(foreseen)
            fixed.add(every_30_s)
            found["auto"].append(chosen.utilization / foreseen)
            found["30 s"].append(every_30_s / foreseen)
            for label, choice in CHOICES.items():
                found[label].append(run(choice()).utilization / foreseen)
            if seed == 0 and name == RISE:
                out.charts.append(_chart_of(name, scaled, list(chosen.chosen)))
        out.ratios += [
            Ratio(auto.name, best.name, "at least 0.95"),
            Ratio(auto.name, fixed.name, "at least 0.99" if "30 s is the best" in name else "above 1"),
        ]
        table.add(name, *(f"{statistics.mean(shares):.4f} ({min(shares):.3f})" for shares in found.values()))


def foresight(regimes: list[Regime]) -> list[tuple[float, float]]:
    """T* of each regime, until its end."""
    schedule, end_s = [], 0.0
    for regime in regimes:
        end_s += regime.duration_s
        schedule.append((end_s, optimal_interval_s(regime.cost_s, regime.failures_per_s)))
    return schedule


def _chart_of(name: str, regimes: list[Regime], chosen: list[tuple[float, float]]) -> Chart:
    """The chosen intervals over time, thinned, beside T*."""
    panel, begin_h = Panel(name), 0.0
    steps = chosen[:: max(1, len(chosen) // 300)]
    panel.lines.append(Line("chosen", [at_s / HOUR for at_s, _ in steps], [interval_s for _, interval_s in steps]))
    best = Line("T*", [], [])
    for until_s, interval_s in foresight(regimes):
        best.xs += [begin_h, until_s / HOUR]
        best.ys += [interval_s, interval_s]
        begin_h = until_s / HOUR
    panel.lines.append(best)
    return Chart("chosen", "The interval chosen online, one run", "hours", "interval (s)", [panel])
