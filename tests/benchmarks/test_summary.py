"""Tables for the documents: every ratio with an aim, and whether it holds; nothing is put where there are no marks."""

from __future__ import annotations

import doctest

import pytest

from benchmarks import results_page, summary
from benchmarks.__main__ import AIMS, INTERVAL, PAGE, README, RESULTS
from benchmarks.measurement import Measurement, Ratio
from benchmarks.side_by_side import WHOLE


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


def rivalled() -> Measurement:
    out = Measurement("nexmark", "Nexmark", {})
    for query, seconds in ((1, (1.0, 0.5, 0.25, 8.0)), (3, (2.0, 4.0, 9.0, 1.0))):
        ours = out.new_series(f"Rayad: query {query}", "s", "15")
        ours.add(seconds[0])
        for name, value in zip(("Polars", "DuckDB", "Spark"), seconds[1:], strict=True):
            out.new_series(f"{name}: query {query}", "s", "15").add(value)
    out.new_table(WHOLE, "system", "with the start, s").add("Rayad: query 1", 9.0)
    return out


def test_the_strongest_rival_stands_beside_our_best_and_our_worst_row() -> None:
    rows = summary.rivals_table([rivalled()]).splitlines()[2:]
    assert rows == [
        "| `nexmark` | best | Rayad: query 3: 2.00 s | Spark: query 3: 1.00 s | 2.00 | - | - |",
        "| `nexmark` | worst | Rayad: query 1: 1.00 s | DuckDB: query 1: 0.250 s | 4.00 | 9.00 s | - |",
    ]


def test_doctests_hold() -> None:
    assert doctest.testmod(summary).failed == 0


def test_a_part_of_a_run_is_no_row() -> None:
    out = Measurement("graphs", "Graphs", {})
    for name, value in (("components: Rayad", 2.0), ("components: scipy", 1.0)):
        out.new_series(name, "s", "15").add(value)
        out.new_series(f"{name}, without loading", "s", "15").add(value / 10)
    assert [row.ours for row in summary.rival_rows(out)] == ["components: Rayad"]


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
    summary.filled(PAGE.read_text(encoding="utf-8"), summary.RIVALS_BEGIN, summary.RIVALS_END, "")
    summary.filled(README.read_text(encoding="utf-8"), summary.HEADLINES_BEGIN, summary.HEADLINES_END, "")


def test_the_readme_shows_the_best_the_middle_and_the_worst_row_of_all() -> None:
    rows = [line.split(" | ") for line in summary.headlines_table([rivalled()]).splitlines()[2:]]
    assert [row[:2] for row in rows] == [["| best", "`nexmark`"], ["| middle", "`nexmark`"], ["| worst", "`nexmark`"]]
    assert [row[4] for row in rows] == ["2.00", "4.00", "4.00"]


def test_figures_of_readme_and_benchmarks_are_those_of_the_results() -> None:
    """Nobody has typed over them, and both pages were written after the last measurement."""
    measurements = results_page.load(RESULTS)
    for page, begin, end, table in (
        (PAGE, summary.RIVALS_BEGIN, summary.RIVALS_END, summary.rivals_table(measurements)),
        (README, summary.HEADLINES_BEGIN, summary.HEADLINES_END, summary.headlines_table(measurements)),
    ):
        text = page.read_text(encoding="utf-8")
        assert summary.filled(text, begin, end, table) == text, f"{page.name}: run python -m benchmarks --report"
