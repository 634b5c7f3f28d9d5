"""The results section of docs/benchmarks.md, made from the JSON files: nothing between its marks is typed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measurement import Measurement
from benchmarks.plots import draw, draw_chart

BEGIN, END = "<!-- results: written by python -m benchmarks --report -->", "<!-- end of results -->"
END_PARAGRAPH = "\n\n"


def load(folder: Path) -> list[Measurement]:
    """All measurements of a folder, by name."""
    return [Measurement.from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def draw_all(measurements: list[Measurement], page: Path, folder: Path) -> dict[str, str]:
    """Draw each benchmark and each of its charts in ``folder``; earlier pictures are deleted.

    Gives the links from ``page``, by benchmark, and by benchmark and chart (``interval-figure-5``).
    """
    for old in folder.glob("*.svg"):
        old.unlink()
    paths = {measurement.benchmark: folder / f"{measurement.benchmark}.svg" for measurement in measurements}
    drawn = {m.benchmark: paths[m.benchmark] for m in measurements if draw(m, paths[m.benchmark])}
    for measurement in measurements:
        for chart in measurement.charts:
            name = f"{measurement.benchmark}-{chart.name}"
            drawn[name] = folder / f"{name}.svg"
            draw_chart(chart, drawn[name])
    return {name: path.relative_to(page.parent).as_posix() for name, path in drawn.items()}


def render(measurements: list[Measurement], pictures: dict[str, str] | None = None) -> str:
    """The text between the marks; ``pictures`` are links by benchmark."""
    links = pictures or {}
    return "\n".join(_section(m, links) for m in measurements) or "Nothing has been measured yet.\n"


def _section(measurement: Measurement, links: dict[str, str]) -> str:
    names = {measurement.benchmark: measurement.title}
    names |= {f"{measurement.benchmark}-{chart.name}": chart.title for chart in measurement.charts}
    pictures = "".join(f"![{title}]({links[name]}){END_PARAGRAPH}" for name, title in names.items() if name in links)
    smoke = " (small sizes: a smoke test, not a measurement)" if measurement.quick else ""
    return (
        f"### {measurement.title}{smoke}\n\n`python -m benchmarks {measurement.benchmark}{' --quick' if measurement.quick else ''}`; "
        f"{describe(measurement.about)}. Sizes: {_pairs(measurement.sizes)}.\n\n"
        f"{pictures}{measurement.markdown()}"
    )


def describe(about: dict[str, Any]) -> str:
    """Day and machine in one line."""
    return _pairs(about)


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "/".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def fill(page: str, section: str) -> str:
    """The page with ``section`` between its marks. Raises ValueError when a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the line {BEGIN!r} or {END!r}: put both where the results belong")
    return f"{before}{BEGIN}\n\n{section}\n{END}{after}"
