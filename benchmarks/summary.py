"""Tables for the pages, made from the results: every ratio that has an aim (docs/performance.md); for each workload our best and our worst
row beside the strongest rival, with the time of the whole process (docs/benchmarks.md); the best, middle and worst of these (README.md)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measurement import Measurement, Ratio, Series, Table, as_table, shown
from benchmarks.side_by_side import WHOLE

AIMS_BEGIN, AIMS_END = "<!-- aims: written by python -m benchmarks --report -->", "<!-- end of aims -->"
INTERVAL_BEGIN, INTERVAL_END = "<!-- interval: written by python -m benchmarks --report -->", "<!-- end of interval -->"
RIVALS_BEGIN, RIVALS_END = "<!-- figures: written by python -m benchmarks --report -->", "<!-- end of figures -->"
HEADLINES_BEGIN, HEADLINES_END = "<!-- headlines: written by python -m benchmarks --report -->", "<!-- end of headlines -->"
RIVALLED = ("wordcount", "keyed_sum", "nexmark", "graphs", "latency")
"""Benchmarks with rivals, in the order of the table."""
NO_ROWS = (", without loading", ", from due", ", those that changed process", "epoch until complete", "Ray actor round trip", ", waiting")
"""Parts of the names of series that are not compared: parts of other series, and those without a rival."""


def holds(aim: str, value: float) -> str:
    """Whether a ratio meets its aim: "yes", "no", or "" if the aim is not a number.

    >>> holds("at most 2", 1.5), holds("at least 5; hoped for 10", 4.0), holds("below 1/5; hoped for 1/10", 0.1), holds("", 1.0)
    ('yes', 'no', 'yes', '')
    """
    match = re.match(r"(at most|at least|below|above) (\d+(?:\.\d+)?)(?:/(\d+))?", aim)
    if match is None:
        return ""
    bound = float(match[2]) / float(match[3] or 1)
    return "yes" if (value <= bound if match[1] in ("at most", "below") else value >= bound) else "no"


@dataclass(frozen=True, slots=True)
class Row:
    """One of our series beside the strongest rival on the same input; ``ratio`` is ours over theirs, below 1 where we are faster."""

    workload: str
    ours: str
    rival: str
    ratio: float


def rival_rows(measurement: Measurement) -> list[Row]:
    """A row for each series of ours; its rival is the fastest of all others on the same input, whether or not their ratio has an aim.

    Ratios are taken repetition by repetition if both sides have the same number, else from the medians.
    """
    inputs: dict[tuple[str, str], list[Series]] = {}
    for series in measurement.series:
        if not any(part in series.name for part in NO_ROWS):
            inputs.setdefault(_place_of(measurement.benchmark, series.name), []).append(series)
    rows = []
    for (workload, _), found in inputs.items():
        rivals = [series for series in found if not _is_ours(series.name)]
        for ours in (series for series in found if _is_ours(series.name)):
            if rivals:
                rival = min(rivals, key=lambda series: series.median)
                pairs = zip(ours.medians, rival.medians, strict=True) if len(ours.medians) == len(rival.medians) else None
                ratios = [one / other for one, other in pairs] if pairs is not None else [ours.median / rival.median]
                rows.append(Row(workload, ours.name, rival.name, statistics.median(ratios)))
    return rows


def _is_ours(name: str) -> bool:
    return name.startswith("Rayad") or ": Rayad" in name


def _place_of(benchmark: str, name: str) -> tuple[str, str]:
    """Workload and input of a series, from its name.

    >>> _place_of("nexmark", "Rayad, Python rows: query 5, 300,000 events")
    ('`nexmark`, 300,000 events', 'query 5, 300,000 events')
    >>> _place_of("graphs", "components, scale 16: Rayad, beside Pathway")
    ('`graphs`: components', 'components, scale 16')
    >>> _place_of("wordcount", "Rayad, rows")
    ('`wordcount`', '')
    """
    first, _, last = name.partition(": ")
    if benchmark == "graphs":
        return f"`{benchmark}`: {first.partition(', scale')[0]}", first
    size = re.search(r"[\d,]+ (rows|events)", last)
    return f"`{benchmark}`{f', {size[0]}' if size else ''}", last


def rivals_table(measurements: Sequence[Measurement]) -> str:
    """Of each workload our best and our worst row, each beside its strongest rival; one row where there is only one."""
    head = ["workload", "our row", "Rayad", "strongest rival", "ratio", "whole process, Rayad", "whole process, rival"]
    return as_table(head, [[workload, which, *cells] for workload, which, _, cells in _rivalled(measurements)])


def headlines_table(measurements: Sequence[Measurement]) -> str:
    """Three rows of :func:`rivals_table`, chosen by their ratio: the least, the median (the greater one of two), and the greatest."""
    rows = sorted(_rivalled(measurements), key=lambda row: row[2])
    chosen = {"best": rows[0], "middle": rows[len(rows) // 2], "worst": rows[-1]} if rows else {}
    head = [f"of {len(rows)} rows", "workload", "Rayad", "strongest rival", "ratio", "whole process, Rayad", "whole process, rival"]
    return as_table(head, [[which, workload, *cells] for which, (workload, _, _, cells) in chosen.items()])


def _rivalled(measurements: Sequence[Measurement]) -> list[tuple[str, str, float, list[str]]]:
    """Workload, "best", "worst" or "only", the ratio, and the cells of a table: both sides, the ratio, both whole processes."""
    found = []
    for measurement in sorted((one for one in measurements if one.benchmark in RIVALLED), key=_place):
        series = {entry.name: entry for entry in measurement.series}
        whole = {row[0]: row[1] for table in measurement.tables if table.title == WHOLE for row in table.rows}
        by_workload: dict[str, list[Row]] = {}
        for row in rival_rows(measurement):
            by_workload.setdefault(row.workload, []).append(row)
        for workload, of in by_workload.items():
            best, worst = min(of, key=lambda row: row.ratio), max(of, key=lambda row: row.ratio)
            for which, row in (("best", best), ("worst", worst)) if best != worst else (("only", best),):
                cells = [f"{name}: {shown(series[name].median)} {series[name].unit}" for name in (row.ours, row.rival)]
                processes = [_seconds(whole.get(name)) for name in (row.ours, row.rival)]
                found.append((workload, which, row.ratio, [*cells, shown(row.ratio), *processes]))
    return found


def _place(measurement: Measurement) -> int:
    return RIVALLED.index(measurement.benchmark)


def _seconds(value: Any) -> str:
    return f"{shown(value)} s" if isinstance(value, float) else "-"


def aims_table(measurements: Sequence[Measurement]) -> str:
    """Every ratio with an aim, by benchmark."""
    rows = []
    for measurement in measurements:
        for ratio, values in _ratios(measurement):
            if ratio.aim:
                median = statistics.median(values)
                spread = f"{shown(min(values))} to {shown(max(values))}"
                name = f"{ratio.over} / {ratio.under}"
                rows.append([f"`{measurement.benchmark}`", name, shown(median), spread, ratio.aim, holds(ratio.aim, median)])
    return as_table(["benchmark", "ratio", "median", "least to most", "aim", "holds"], rows)


def interval_tables(measurements: Sequence[Measurement]) -> str:
    """The tables of the benchmark `interval`; of the paper's figures only those that do not follow, and how many do."""
    parts = []
    for table in (table for measurement in measurements if measurement.benchmark == "interval" for table in measurement.tables):
        if table.head[-1] == "follows":
            kept = [row for row in table.rows if row[-1] == "no"]
            title = f"{table.title}: {len(table.rows) - len(kept)} of {len(table.rows)} follow, these do not"
            parts.append(Table(title, table.head[:-1], [row[:-1] for row in kept]).markdown())
        else:
            parts.append(table.markdown())
    return "\n\n".join(parts)


def _ratios(measurement: Measurement) -> Iterator[tuple[Ratio, list[float]]]:
    series = {entry.name: entry for entry in measurement.series}
    for ratio in measurement.ratios:
        yield ratio, ratio.values(series)


def filled(page: str, begin: str, end: str, section: str) -> str:
    """The page with ``section`` between two marks. Raises ValueError when a mark is missing."""
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page lacks the line {begin!r} or {end!r}: put both where the table belongs")
    return f"{before}{begin}\n\n{section}\n\n{end}{after}"
