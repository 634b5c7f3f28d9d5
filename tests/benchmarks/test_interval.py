"""The benchmark of the snapshot interval: what follows from the paper's equations and what does not, and that small sizes run whole."""

from __future__ import annotations

import pytest

from benchmarks import interval, summary
from benchmarks.__main__ import measure
from benchmarks.interval_paper import TABLE_1, Claim, claims, implied_cost_s
from benchmarks.measurement import Measurement
from rayad.snapshots.interval import optimal_interval_s, utilization


@pytest.fixture(scope="module")
def measured() -> Measurement:
    return measure("interval", quick=True)


def test_a_figure_follows_when_rounding_gives_it() -> None:
    assert Claim("", "", "1.4", 1.4499).follows
    assert not Claim("", "", "1.4", 1.4511).follows
    assert Claim("", "", "123", 122.7).follows


def test_figures_of_the_paper_that_do_not_follow_from_its_equations() -> None:
    """All of the column U(T*) of table 1; three figures off by one in the last digit; equation 5, which has no overlap of periods."""
    not_following = [(claim.where, claim.what) for claim in claims() if not claim.follows]
    assert not_following == [
        ("figure 11", "decrease by n = 50, percent"),
        ("table 1", "U(T*): 0.05/min, n = 5"),
        ("table 1", "U(T*): 0.05/min, n = 7"),
        ("table 1", "increase of the observed U, percent: 0.05/min, n = 7"),
        ("table 1", "U(T*): 0.01/min, n = 5"),
        ("table 1", "U(T*): 0.01/min, n = 7"),
        ("table 1", "U(T*): 0.005/min, n = 5"),
        ("table 1", "U(T*): 0.005/min, n = 7"),
        ("section 5", "gain over 30 min at 0.135 failures an hour, percent"),
        ("equation 5", "U without failures, n = 50: equation 10 against it"),
    ]


def test_no_restart_time_explains_a_printed_optimum() -> None:
    """0.005/min, n = 5: printed is more than equation 10 gives with R = 0 and delta = 0, which is the most it can give for this c."""
    row = TABLE_1[4]
    cost_s, rate, *_ = row.process
    most = utilization(optimal_interval_s(cost_s, rate), cost_s, rate, 0.0)
    assert most < row.printed_best - 5e-5


def test_the_implied_cost_gives_the_printed_utilization() -> None:
    for row in TABLE_1:
        _, *others = row.process
        assert utilization(row.best_min * 60, implied_cost_s(row), *others) == pytest.approx(row.printed_best)


def test_a_measurement_has_its_tables_charts_and_checks(measured: Measurement) -> None:
    assert [chart.name for chart in measured.charts] == ["figure-5", "figure-12", "chosen"]
    assert [len(chart.panels) for chart in measured.charts] == [4, 4, 1]
    assert measured.checks == ["all means of the simulation lie within bounds that they leave with probability 0.001 in all"]
    assert len(measured.series) == 3 * len(interval.JOBS)
    assert Measurement.from_json(measured.to_json()).markdown() == measured.markdown()
    page = summary.interval_tables([measured])
    assert "follow, these do not:\n\n| where | what | printed | computed |\n| --- | --- | --- | --- |\n| figure 11 |" in page
    assert summary.interval_tables([]) == ""


def test_the_chosen_interval_is_near_the_one_with_foresight(measured: Measurement) -> None:
    by_name = {series.name: series for series in measured.series}
    for ratio in measured.ratios:
        if ratio.under.startswith("foresight"):
            assert min(ratio.values(by_name)) >= 0.95


def test_the_same_sizes_give_the_same_figures(measured: Measurement) -> None:
    again = interval.run(interval.QUICK)
    assert (again.series, again.tables, again.charts) == (measured.series, measured.tables, measured.charts)
