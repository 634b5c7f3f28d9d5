"""Two revisions side by side: which series are compared, and how."""

from __future__ import annotations

from benchmarks.measurement import Measurement
from benchmarks.versus import compared


def measured(**values: float) -> Measurement:
    out = Measurement("any", "Any", {})
    for name, value in values.items():
        out.new_series(name, "s", "0").add(value)
    return out


def test_ratios_are_taken_within_each_pair() -> None:
    befores, afters = (
        [measured(time=1.0), measured(time=4.0), measured(time=2.0)],
        [measured(time=2.0), measured(time=4.0), measured(time=1.0)],
    )
    assert compared(befores, afters) == [["time", "s", "2.00", "2.00", "1.00", "0.500", "2.00", "1 of 3"]]


def test_a_series_that_one_revision_does_not_have_is_left_out() -> None:
    assert compared([measured(old=1.0, both=2.0)], [measured(both=2.0, new=1.0)]) == [
        ["both", "s", "2.00", "2.00", "1.00", "1.00", "1.00", "0 of 1"]
    ]


def test_a_series_of_nothing_has_no_ratio() -> None:
    assert compared([measured(gap=0.0)], [measured(gap=1.0)]) == [["gap", "s", "0", "1.00", "-", "-", "-", "-"]]
