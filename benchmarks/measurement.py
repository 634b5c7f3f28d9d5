"""Samples and their medians, spreads, ratios, as Markdown and JSON. No figure in any document is typed by hand.

A *series* is one thing measured several times (repetitions), each time with one or many samples. Its value in a repetition is
the median of that repetition's samples. A *ratio* divides two series repetition by repetition: they are interleaved, so other
load of the machine affects both alike.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TAIL_SAMPLES_MIN = 100
"""With fewer samples the 99th percentile would be the maximum."""


class WrongResult(Exception):
    """Two compared programs gave different results: their times mean nothing."""


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the samples lie (nearest rank).

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5), quantile([1.0, 2.0], 1.0)
    (2.0, 2.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def shown(value: float | None) -> str:
    """Three significant digits, with separators between thousands.

    >>> shown(1234567.0), shown(42.0), shown(0.01234), shown(None), shown(0)
    ('1,230,000', '42.0', '0.0123', '-', '0')
    """
    if value is None:
        return "-"
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    return f"{rounded:,.{max(0, decimals)}f}"


@dataclass(slots=True)
class Series:
    """One thing, measured: ``repetitions`` holds the samples of each time. ``nice`` is the priority of the processes that did it."""

    name: str
    unit: str
    nice: str
    repetitions: list[list[float]] = field(default_factory=list)

    def add(self, *samples: float) -> None:
        """Add a repetition, rounded to significant digits."""
        digits = 6 if len(samples) < TAIL_SAMPLES_MIN else 3
        self.repetitions.append([float(f"{sample:.{digits}g}") for sample in samples])

    @property
    def medians(self) -> list[float]:
        """The median of each repetition."""
        return [statistics.median(samples) for samples in self.repetitions]

    @property
    def median(self) -> float:
        """The median over the repetitions."""
        return statistics.median(self.medians)

    @property
    def p99(self) -> float | None:
        """The 99th percentile of all samples; None when there are too few."""
        everything = [sample for samples in self.repetitions for sample in samples]
        return quantile(everything, 0.99) if len(everything) >= TAIL_SAMPLES_MIN else None


@dataclass(slots=True)
class Ratio:
    """``over / under``, and its aim."""

    over: str
    under: str
    aim: str = ""

    def values(self, series: dict[str, Series]) -> list[float]:
        """The ratio in each repetition."""
        pairs = zip(series[self.over].medians, series[self.under].medians, strict=True)
        return [over / under for over, under in pairs]


@dataclass(slots=True)
class Table:
    """Figures that are not repeated samples: counts, memory over time."""

    title: str
    head: list[str]
    rows: list[list[Any]] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        """One more row."""
        self.rows.append(list(cells))

    def markdown(self) -> str:
        """As a Markdown table under its title."""
        return f"{self.title}:\n\n{as_table(self.head, [[_cell(c) for c in row] for row in self.rows])}"


@dataclass(slots=True)
class Line:
    """Points of a chart: joined, or, where they have a ``spread``, drawn singly with a bar of that length to either side."""

    name: str
    xs: list[float]
    ys: list[float]
    spread: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Panel:
    """The lines that share two axes."""

    title: str
    lines: list[Line] = field(default_factory=list)


@dataclass(slots=True)
class Chart:
    """A picture of curves in one or several panels; ``name`` is part of its file's name."""

    name: str
    title: str
    x_label: str
    y_label: str
    panels: list[Panel] = field(default_factory=list)


@dataclass(slots=True)
class Measurement:
    """The outcome of one benchmark."""

    benchmark: str
    title: str
    sizes: dict[str, Any]
    series: list[Series] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    quick: bool = False
    about: dict[str, Any] = field(default_factory=dict)

    def new_series(self, name: str, unit: str, nice: str) -> Series:
        """Begin a series."""
        self.series.append(Series(name, unit, nice))
        return self.series[-1]

    def new_table(self, title: str, *head: str) -> Table:
        """Begin a table."""
        self.tables.append(Table(title, list(head)))
        return self.tables[-1]

    def check(self, what: str, got: Any, wanted: Any) -> None:
        """Raise WrongResult unless two results are equal."""
        if got != wanted:
            raise WrongResult(f"{self.benchmark}: {what}: got {got!r:.300}, wanted {wanted!r:.300}")
        if what not in self.checks:
            self.checks.append(what)

    # -- for people ---------------------------------------------------------------------
    def markdown(self) -> str:
        """Tables of the series, the ratios and the rest."""
        parts = [self._series_table()] if self.series else []
        if self.ratios:
            parts.append(self._ratio_table())
        parts += [table.markdown() for table in self.tables]
        if self.checks:
            parts.append("Checked: " + "; ".join(self.checks) + ".")
        parts += self.notes
        return "\n\n".join(parts) + "\n"

    def _series_table(self) -> str:
        rows = [
            [s.name, s.unit, s.nice, shown(s.median), shown(min(s.medians)), shown(max(s.medians)), shown(s.p99), str(len(s.repetitions))]
            for s in self.series
        ]
        return as_table(["measured", "unit", "nice", "median", "min", "max", "p99", "repetitions"], rows)

    def _ratio_table(self) -> str:
        by_name = {series.name: series for series in self.series}
        rows = []
        for ratio in self.ratios:
            values = ratio.values(by_name)
            spread = [statistics.median(values), min(values), max(values)]
            rows.append([f"{ratio.over} / {ratio.under}", *map(shown, spread), ratio.aim])
        return as_table(["ratio", "median", "min", "max", "aim"], rows)

    # -- for machines -------------------------------------------------------------------
    def to_json(self) -> str:
        """Everything, samples included: one line for each repetition, so that a diff is readable; many samples as values and counts."""
        plain = asdict(self)
        samples = [(series["name"], series.pop("repetitions")) for series in plain["series"]]
        curves = [_curve(chart, panel, line) for chart in self.charts for panel in chart.panels for line in panel.lines]
        for chart in plain["charts"]:
            chart["panels"] = [panel["title"] for panel in chart["panels"]]
        text = json.dumps(plain, indent=1, ensure_ascii=False)
        lines = [f"  {json.dumps([name, *_packed(values)], ensure_ascii=False)}" for name, repetitions in samples for values in repetitions]
        curves_text = ',\n "curves": [\n' + ",\n".join(curves) + "\n ]" if curves else ""
        return text[: text.rindex("\n}")] + curves_text + ',\n "samples": [\n' + ",\n".join(lines) + "\n ]\n}\n"

    @staticmethod
    def from_json(text: str) -> Measurement:
        """Read the text of :meth:`to_json`."""
        plain = json.loads(text)
        samples = plain.pop("samples")
        plain["series"] = [Series(**entry) for entry in plain["series"]]
        by_name = {series.name: series for series in plain["series"]}
        for name, values, counts in samples:
            counted = zip(values, counts or [1] * len(values), strict=True)
            by_name[name].repetitions.append([value for value, count in counted for _ in range(count)])
        plain["ratios"] = [Ratio(**entry) for entry in plain["ratios"]]
        plain["tables"] = [Table(**entry) for entry in plain["tables"]]
        charts = [Chart(**{**entry, "panels": [Panel(title) for title in entry["panels"]]}) for entry in plain.get("charts", [])]
        panels = {(chart.name, panel.title): panel for chart in charts for panel in chart.panels}
        for chart, panel, *line in plain.pop("curves", []):
            panels[chart, panel].lines.append(Line(*line))
        plain["charts"] = charts
        return Measurement(**plain)

    def write(self, folder: Path) -> Path:
        """Write ``<folder>/<benchmark>.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.benchmark}.json"
        path.write_text(self.to_json(), encoding="utf-8")
        return path


def _curve(chart: Chart, panel: Panel, line: Line) -> str:
    """A line of a chart as a line of JSON, rounded to visible digits."""
    numbers = [[float(f"{value:.6g}") for value in values] for values in (line.xs, line.ys, line.spread)]
    return f"  {json.dumps([chart.name, panel.title, line.name, *numbers], ensure_ascii=False)}"


def _packed(samples: list[float]) -> tuple[list[float], list[int] | None]:
    """Few samples as they came; many as the values in ascending order with their counts."""
    if len(samples) < TAIL_SAMPLES_MIN:
        return samples, None
    counted = sorted(Counter(samples).items())
    return [value for value, _ in counted], [count for _, count in counted]


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return shown(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
