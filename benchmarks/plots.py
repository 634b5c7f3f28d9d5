"""A picture of each benchmark, from its JSON: medians with their spread on a logarithmic scale, and the ratios with their aims; and its
charts.

Each unit has a panel of its own, because bars of different units cannot be compared. The text of the SVG stays text, and the same results
give the same bytes, so a picture is in a diff only if a figure changed.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import Chart, Measurement, shown

OURS, THEIRS, RATIO = "#1f6feb", "#8c959f", "#9a6700"
RATIOS = "ratio"
BAR_INCHES, PANEL_INCHES, WIDTH_INCHES = 0.26, 0.9, 11.0
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "rayad", "font.size": 8.0, "font.family": "sans-serif", "axes.axisbelow": True}

Bar = tuple[str, Sequence[float], str]
"""A label, the values of the repetitions, a colour."""


def panels(measurement: Measurement) -> list[tuple[str, list[Bar]]]:
    """Title and bars of each panel: one for each unit, and one for the ratios; values that are not above 0 have no bar."""
    out: list[tuple[str, list[Bar]]] = []
    is_compared = any(series.name.startswith("Rayad") for series in measurement.series)
    for unit in dict.fromkeys(series.unit for series in measurement.series):
        bars: list[Bar] = [
            (series.name, series.medians, OURS if series.name.startswith("Rayad") or not is_compared else THEIRS)
            for series in measurement.series
            if series.unit == unit and min(series.medians, default=0) > 0
        ]
        out.append((unit, bars))
    by_name = {series.name: series for series in measurement.series}
    ratios: list[Bar] = [
        (f"{ratio.over} / {ratio.under}{f'  ({ratio.aim})' if ratio.aim else ''}", ratio.values(by_name), RATIO)
        for ratio in measurement.ratios
    ]
    out.append((RATIOS, [bar for bar in ratios if min(bar[1]) > 0]))
    return [(title, bars) for title, bars in out if bars]


def draw(measurement: Measurement, path: Path) -> bool:
    """Write the picture as SVG; False when there is nothing to draw."""
    drawn = panels(measurement)
    if not drawn:
        return False
    import matplotlib
    from matplotlib.figure import Figure

    heights = [len(bars) * BAR_INCHES + PANEL_INCHES for _, bars in drawn]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
        axes = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
        for (title, bars), axis in zip(drawn, axes, strict=True):
            _panel(axis, title, bars)
        small = " (small sizes: a smoke test)" if measurement.quick else ""
        figure.suptitle(f"{measurement.title}{small}", fontsize=11)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return True


def _panel(axis: Any, title: str, bars: Sequence[Bar]) -> None:
    places = range(len(bars))
    medians = [statistics.median(values) for _, values, _ in bars]
    below = [median - min(values) for median, (_, values, _) in zip(medians, bars, strict=True)]
    above = [max(values) - median for median, (_, values, _) in zip(medians, bars, strict=True)]
    axis.set_xscale("log")
    lowest, highest = min(min(values) for _, values, _ in bars), max(max(values) for _, values, _ in bars)
    if title == RATIOS:  # bars go from 1 to either side
        lowest, highest, start = min(lowest, 1.0), max(highest, 1.0), 1.0
    else:  # a logarithmic scale has no 0: bars begin at its lower end
        start = lowest / 2
    axis.set_xlim(lowest / 2, highest * 3)
    colours, widths = [colour for _, _, colour in bars], [median - start for median in medians]
    axis.barh(places, widths, left=start, xerr=(below, above), color=colours, height=0.7, error_kw={"elinewidth": 0.8, "capsize": 2})
    axis.set_yticks(places, [label for label, _, _ in bars])
    axis.invert_yaxis()
    for place, median, (_, values, _) in zip(places, medians, bars, strict=True):
        axis.annotate(shown(median), (max(*values, start), place), xytext=(5, 0), textcoords="offset points", va="center")
    if title == RATIOS:
        axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_xlabel(f"{title} (median, least and most; logarithmic)")
    axis.grid(axis="x", which="major", linewidth=0.4)


def draw_chart(chart: Chart, path: Path) -> None:
    """Write a chart as SVG: two panels a row; joined points are lines, points with a spread have bars, each pair in one colour."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(2, len(chart.panels))
    rows = -(-len(chart.panels) // columns)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, 3.2 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for panel, axis in zip(chart.panels, axes, strict=False):
            for number, line in enumerate(panel.lines):
                colour = f"C{number // 2 if any(other.spread for other in panel.lines) else number}"
                if line.spread:
                    bars = {"fmt": "o", "markersize": 3.0, "capsize": 2.0, "elinewidth": 0.8}
                    axis.errorbar(line.xs, line.ys, yerr=line.spread, color=colour, label=line.name, **bars)
                else:
                    axis.plot(line.xs, line.ys, color=colour, linewidth=1.0, label=line.name)
            axis.set_title(panel.title, fontsize=9)
            axis.set_xlabel(chart.x_label)
            axis.set_ylabel(chart.y_label)
            axis.set_ylim(bottom=0.0)
            axis.grid(linewidth=0.4)
            axis.legend(fontsize=7)
        figure.suptitle(chart.title, fontsize=11)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
