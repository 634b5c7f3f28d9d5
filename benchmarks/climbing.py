"""A doubling ladder: measured, and fitted as a power, or as a line where a fixed part is expected."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement, shown


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost over log size, by least squares: 0 is flat, 1 linear.

    >>> round(exponent([1, 2, 4], [3, 6, 12]), 6), round(exponent([1, 2, 4], [5, 5, 5]), 6)
    (1.0, 0.0)
    """
    return statistics.linear_regression([math.log(s) for s in sizes], [math.log(c) for c in costs]).slope


def line(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """``(fixed part, cost of one more)``, by least squares.

    >>> line([1, 2, 4], [13, 16, 22])
    (10.0, 3.0)
    """
    fit = statistics.linear_regression([float(s) for s in sizes], [float(c) for c in costs])
    return fit.intercept, fit.slope


def climb(
    out: Measurement,
    title: str,
    what: str,
    sizes: Sequence[int],
    unit: str,
    measure: Callable[[int], float],
    *,
    repetitions: int,
    per: str = "",
    linear: bool = False,
    name: Callable[[int], str] | None = None,
) -> list[float]:
    """Measure ``measure(size)`` for every size, ``repetitions`` times in turn; add a series of each, a table with the medians, and the fit.

    Args:
        title: of the table.
        what: heading of the sizes.
        unit: of what ``measure`` gives.
        per: heading of a column cost / size; none by default.
        linear: give a fixed part and the cost of one more, too.
        name: of the series of a size; by default the title and the size.

    Gives the median cost of each size, in the order of the sizes; without sizes nothing is measured and added.
    """
    if not sizes:
        return []
    found: dict[int, list[float]] = {size: [] for size in sizes}
    for repetition in range(repetitions):
        for size in sizes if repetition % 2 == 0 else reversed(sizes):
            found[size].append(measure(size))
    for size in sizes:
        series = out.new_series(name(size) if name is not None else f"{title}: {size:,} {what}", unit, str(WORKER_NICE))
        for cost in found[size]:
            series.add(cost)
    costs = [statistics.median(found[size]) for size in sizes]
    fit = f"cost ~ size^{exponent(sizes, costs):.2f}"
    if linear:
        fixed, more = line(sizes, costs)
        fit += f"; {shown(fixed)} {unit} and {shown(more)} {unit} for each"
    table = out.new_table(f"{title} ({fit})", what, unit, "min", "max", *([per] if per else []))
    for size, cost in zip(sizes, costs, strict=True):
        cells: list[Any] = [size, cost, min(found[size]), max(found[size])]
        table.add(*cells, *([cost / size] if per else []))
    return costs
