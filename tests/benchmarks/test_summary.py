"""Tables for the documents: every ratio with an aim, and whether it holds; nothing is put where there are no marks."""

from __future__ import annotations

import pytest

from benchmarks import summary
from benchmarks.__main__ import AIMS, INTERVAL, README
from benchmarks.measurement import Measurement, Ratio


def measured() -> Measurement:
    out = Measurement("barrier", "Barrier", {})
    for name, value in (("barrier of 2 replicas", 50.0), ("Ray actor round trip", 500.0), ("other", 5.0)):
        out.new_series(name, "µs", "0").add(value)
    out.ratios = [
        Ratio("barrier of 2 replicas", "Ray actor round trip", "below 1/5; hoped for 1/10"),
        Ratio("barrier of 2 replicas", "other", "at most 2"),
        Ratio("other", "Ray actor round trip"),
    ]
    return out


def test_every_ratio_with_an_aim_is_shown_and_judged() -> None:
    rows = summary.aims_table([measured()]).splitlines()[2:]
    assert [row.split(" | ")[-1] for row in rows] == ["yes |", "no |"]
    assert "barrier of 2 replicas / other | 10.0 | 10.0 to 10.0 | at most 2" in rows[1]


def test_the_choice_shows_both_sides() -> None:
    (row,) = summary.choice_table([measured()]).splitlines()[2:]
    assert row == "| global barrier of two replicas, over a Ray actor round trip | 50.0 µs | 500 µs | 0.100 |"


@pytest.mark.parametrize(
    ("aim", "value", "said"),
    [("at most 2", 2.0, "yes"), ("at least 5", 4.99, "no"), ("below 0.84: timely in Rust", 0.5, "yes"), ("faster is better", 1.0, "")],
)
def test_aims_are_read(aim: str, value: float, said: str) -> None:
    assert summary.holds(aim, value) == said


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page lacks the line"):
        summary.filled("text", summary.AIMS_BEGIN, summary.AIMS_END, "table")
    assert summary.filled("a BEGIN old END b", "BEGIN", "END", "new") == "a BEGIN\n\nnew\n\nEND b"


def test_the_documents_have_their_marks() -> None:
    summary.filled(AIMS.read_text(encoding="utf-8"), summary.AIMS_BEGIN, summary.AIMS_END, "")
    summary.filled(INTERVAL.read_text(encoding="utf-8"), summary.INTERVAL_BEGIN, summary.INTERVAL_END, "")
    summary.filled(README.read_text(encoding="utf-8"), summary.CHOICE_BEGIN, summary.CHOICE_END, "")
