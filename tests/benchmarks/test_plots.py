"""Pictures of results, and their place in the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measurement import Chart, Line, Measurement, Panel, Ratio
from benchmarks.plots import OURS, RATIO, THEIRS, draw, draw_chart, panels
from benchmarks.results_page import draw_all, render


@pytest.fixture
def example() -> Measurement:
    out = Measurement("example", "An example", {"repetitions": 2}, about={"cpus": 2})
    out.new_series("Rayad", "s", "15").repetitions = [[1.0], [2.0]]
    out.new_series("Polars", "s", "15").repetitions = [[0.5], [0.5]]
    out.new_series("rate", "rows/s", "15").repetitions = [[100.0], [200.0]]
    out.ratios.append(Ratio("Rayad", "Polars", "at most 2"))
    return out


def test_each_unit_and_the_ratios_have_a_panel(example: Measurement) -> None:
    assert panels(example) == [
        ("s", [("Rayad", [1.0, 2.0], OURS), ("Polars", [0.5, 0.5], THEIRS)]),
        ("rows/s", [("rate", [100.0, 200.0], THEIRS)]),
        ("ratio", [("Rayad / Polars  (at most 2)", [2.0, 4.0], RATIO)]),
    ]


def test_values_that_are_not_above_zero_have_no_bar_on_a_logarithmic_scale(example: Measurement) -> None:
    example.series[2].repetitions = [[0.0], [1.0]]
    assert [title for title, _ in panels(example)] == ["s", "ratio"]


def test_the_picture_holds_names_and_figures_as_text_and_is_the_same_again(example: Measurement, tmp_path: Path) -> None:
    assert draw(example, tmp_path / "images" / "a.svg")
    assert draw(example, tmp_path / "images" / "b.svg")
    text = (tmp_path / "images" / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "images" / "b.svg").read_text(encoding="utf-8")
    for words in ("An example", "Polars", "Rayad / Polars", "at most 2", "3.00", "150"):
        assert words in text


def test_a_measurement_without_series_has_no_picture(tmp_path: Path) -> None:
    assert not draw(Measurement("example", "", {}), tmp_path / "a.svg")
    assert list(tmp_path.iterdir()) == []


def test_the_page_links_to_the_pictures_and_old_ones_go(example: Measurement, tmp_path: Path) -> None:
    page, folder = tmp_path / "docs" / "page.md", tmp_path / "docs" / "images"
    folder.mkdir(parents=True)
    (folder / "gone.svg").touch()
    links = draw_all([example, Measurement("empty", "Nothing", {})], page, folder)
    assert links == {"example": "images/example.svg"}
    assert [path.name for path in folder.iterdir()] == ["example.svg"]
    assert "![An example](images/example.svg)\n\n| measured |" in render([example], links)
    assert "![" not in render([example])


@pytest.fixture
def chart() -> Chart:
    lines = [Line("model", [1.0, 2.0, 3.0], [0.1, 0.5, 0.2]), Line("simulation", [1.0, 3.0], [0.11, 0.19], [0.01, 0.02])]
    return Chart("curve", "A curve", "interval", "share", [Panel("one", lines), Panel("two", lines[:1]), Panel("three", lines)])


def test_charts_are_drawn_with_their_words_and_the_same_again(chart: Chart, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw_chart(chart, tmp_path / "images" / name)
    text = (tmp_path / "images" / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "images" / "b.svg").read_text(encoding="utf-8")
    for words in ("A curve", "interval", "share", "one", "two", "three", "model", "simulation"):
        assert f">{words}</text>" in text


def test_the_page_links_to_the_charts_below_the_bars(example: Measurement, chart: Chart, tmp_path: Path) -> None:
    example.charts.append(chart)
    links = draw_all([example], tmp_path / "page.md", tmp_path / "images")
    assert links == {"example": "images/example.svg", "example-curve": "images/example-curve.svg"}
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["example-curve.svg", "example.svg"]
    assert "![An example](images/example.svg)\n\n![A curve](images/example-curve.svg)\n\n| measured |" in render([example], links)


def test_charts_come_back_from_json_a_line_each(example: Measurement, chart: Chart) -> None:
    example.charts.append(chart)
    text = example.to_json()
    assert Measurement.from_json(text) == example
    assert '  ["curve", "one", "simulation", [1.0, 3.0], [0.11, 0.19], [0.01, 0.02]]' in text.replace(",\n", "\n").splitlines()
