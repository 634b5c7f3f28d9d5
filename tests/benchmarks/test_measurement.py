"""Statistics and tables of benchmarks. Nothing here asserts on time."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from benchmarks import measurement as module
from benchmarks.measurement import Measurement, Ratio, WrongResult
from benchmarks.results_page import BEGIN, END, fill, load, render


@pytest.fixture
def example() -> Measurement:
    out = Measurement("example", "An example", {"repetitions": 3, "replicas": (1, 2)}, about={"date": "2026-01-01", "cpus": 2})
    out.new_series("fast", "µs", "0").repetitions = [[1.0, 2.0, 9.0], [3.0], [4.0]]
    out.new_series("slow", "µs", "15").repetitions = [[10.0], [20.0], [10.0]]
    out.ratios.append(Ratio("slow", "fast", "above 2"))
    out.new_table("Memory", "process", "MiB").add("source", 1234.5)
    out.check("the results are equal", [1], [1])
    return out


def test_doctests_hold() -> None:
    assert doctest.testmod(module).failed == 0


def test_a_series_is_the_median_of_its_repetitions_medians(example: Measurement) -> None:
    assert example.series[0].medians == [2.0, 3.0, 4.0]
    assert example.series[0].median == 3.0


def test_few_samples_have_no_99th_percentile(example: Measurement) -> None:
    assert example.series[0].p99 is None
    example.series[0].add(*range(1, 201))
    assert example.series[0].p99 == 198


def test_a_ratio_divides_repetition_by_repetition(example: Measurement) -> None:
    assert example.ratios[0].values({series.name: series for series in example.series}) == [5.0, 20 / 3, 2.5]


def test_the_tables_hold_medians_spread_and_ratios(example: Measurement) -> None:
    assert example.markdown().splitlines() == [
        "| measured | unit | nice | median | min | max | p99 | repetitions |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| fast | µs | 0 | 3.00 | 2.00 | 4.00 | - | 3 |",
        "| slow | µs | 15 | 10.0 | 10.0 | 20.0 | - | 3 |",
        "",
        "| ratio | median | min | max | aim |",
        "| --- | --- | --- | --- | --- |",
        "| slow / fast | 5.00 | 2.50 | 6.67 | above 2 |",
        "",
        "Memory:",
        "",
        "| process | MiB |",
        "| --- | --- |",
        "| source | 1,230 |",
        "",
        "Checked: the results are equal.",
    ]


def test_json_keeps_everything(example: Measurement, tmp_path: Path) -> None:
    path = example.write(tmp_path)
    assert path.name == "example.json"
    again = Measurement.from_json(path.read_text(encoding="utf-8"))
    assert json.loads(again.to_json()) == json.loads(example.to_json())
    assert again.markdown() == example.markdown()


def test_many_samples_are_kept_as_values_and_counts(example: Measurement) -> None:
    example.series[0].add(*[2.0, 1.0] * 100)
    line = next(line for line in example.to_json().splitlines() if "100" in line)
    assert line.strip(", ") == '["fast", [1.0, 2.0], [100, 100]]'
    assert Measurement.from_json(example.to_json()).series[0].repetitions[-1] == [1.0] * 100 + [2.0] * 100


def test_unequal_results_end_a_benchmark(example: Measurement) -> None:
    with pytest.raises(WrongResult) as caught:
        example.check("the totals are equal", 1, 2)
    assert str(caught.value) == "example: the totals are equal: got 1, wanted 2"
    assert example.checks == ["the results are equal"]


def test_the_page_is_filled_between_its_marks(example: Measurement, tmp_path: Path) -> None:
    example.write(tmp_path)
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    filled = fill(page, render(load(tmp_path)))
    assert "old" not in filled
    assert filled.startswith("# Title\n")
    assert filled.endswith("\nafter\n")
    assert "### An example\n\n`python -m benchmarks example`; date 2026-01-01, cpus 2. Sizes: repetitions 3, replicas 1/2.\n" in filled
    assert fill(filled, render(load(tmp_path))) == filled


def test_results_of_small_sizes_say_so(example: Measurement) -> None:
    example.quick = True
    assert "a smoke test, not a measurement" in render([example])


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="put both where the results belong"):
        fill("# Title\n", "")
