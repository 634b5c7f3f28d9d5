"""Tables for other pages, made from the results: every ratio that has an aim (docs/performance.md), and a choice of them (README.md)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence

from benchmarks.measurement import Measurement, Ratio, Table, as_table, shown

AIMS_BEGIN, AIMS_END = "<!-- aims: written by python -m benchmarks --report -->", "<!-- end of aims -->"
INTERVAL_BEGIN, INTERVAL_END = "<!-- interval: written by python -m benchmarks --report -->", "<!-- end of interval -->"
CHOICE_BEGIN, CHOICE_END = "<!-- figures: written by python -m benchmarks --report -->", "<!-- end of figures -->"
_SUM = "10,000,000 rows"
CHOICE: tuple[tuple[str, str, str, str], ...] = (
    # what it is, benchmark, over, under
    ("word count of 5 million words in columns, over Polars", "wordcount", "Rayad, columns", "Polars"),
    ("Bytewax with two processes, over that", "wordcount", "Bytewax, 2 processes", "Rayad, columns"),
    ("Pathway with two processes, over that", "wordcount", "Pathway, 2 processes", "Rayad, columns"),
    ("Spark batch, over that", "wordcount", "Spark batch, local[2]", "Rayad, columns"),
    ("word count with Python lambdas, over plain Python's Counter in one process", "wordcount", "Rayad, rows, lambdas only",
     "plain Python Counter, one process"),
    ("Bytewax with two processes, over that", "wordcount", "Bytewax, 2 processes", "Rayad, rows, lambdas only"),
    ("keyed sum of 10 million rows from Parquet, 1,000 keys, over Polars", "keyed_sum", f"Rayad: {_SUM}, 1,000 keys",
     f"Polars: {_SUM}, 1,000 keys"),
    ("with 1,000,000 keys, over Polars", "keyed_sum", f"Rayad: {_SUM}, 1,000,000 keys", f"Polars: {_SUM}, 1,000,000 keys"),
    ("Spark, over that", "keyed_sum", f"Spark, local[2]: {_SUM}, 1,000,000 keys", f"Rayad: {_SUM}, 1,000,000 keys"),
    ("connected components, R-MAT, 1 million edges, over scipy on one core", "graphs", "components, scale 16: Rayad",
     "components, scale 16: scipy"),
    ("a loop of Spark DataFrames, over that", "graphs", "components, scale 16: Spark DataFrames", "components, scale 16: Rayad"),
    ("Pathway's iterate, over that", "graphs", "components, scale 16: Pathway", "components, scale 16: Rayad, beside Pathway"),
    ("with 16 million edges, over scipy on one core", "graphs", "components, scale 20: Rayad", "components, scale 20: scipy"),
    ("PageRank of 20 rounds, 16 million edges, over scipy on one core", "graphs", "PageRank, scale 20: Rayad", "PageRank, scale 20: scipy"),
    ("a record at 1,000 a second, source to sink through a keyed vertex, p50, over Bytewax with two processes", "latency",
     "Rayad, source inside, from made", "Bytewax, 2 processes, from made"),
    ("global barrier of two replicas, over a Ray actor round trip", "barrier", "barrier of 2 replicas", "Ray actor round trip"),
)  # fmt: skip


def holds(aim: str, value: float) -> str:
    """Whether a ratio is what was aimed at: "yes", "no", or nothing where the aim is no number.

    >>> holds("at most 2", 1.5), holds("at least 5; hoped for 10", 4.0), holds("below 1/5; hoped for 1/10", 0.1), holds("", 1.0)
    ('yes', 'no', 'yes', '')
    """
    match = re.match(r"(at most|at least|below|above) (\d+(?:\.\d+)?)(?:/(\d+))?", aim)
    if match is None:
        return ""
    bound = float(match[2]) / float(match[3] or 1)
    return "yes" if (value <= bound if match[1] in ("at most", "below") else value >= bound) else "no"


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


def choice_table(measurements: Sequence[Measurement]) -> str:
    """The ratios of CHOICE that were measured."""
    by_name = {measurement.benchmark: measurement for measurement in measurements}
    rows = []
    for words, benchmark, over, under in CHOICE:
        if benchmark not in by_name:
            continue
        series = {entry.name: entry for entry in by_name[benchmark].series}
        found = next((values for ratio, values in _ratios(by_name[benchmark]) if (ratio.over, ratio.under) == (over, under)), None)
        if found is None:
            continue
        top, bottom = series[over], series[under]
        rows.append([words, f"{shown(top.median)} {top.unit}", f"{shown(bottom.median)} {bottom.unit}", shown(statistics.median(found))])
    return as_table(["what, over what", "this", "over this", "ratio"], rows)


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
