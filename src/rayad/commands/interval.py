"""``rayad interval``: the best snapshot interval by the model of Jayasekara et al. (FGCS 2020), and what other intervals would cost.

For a job that does not exist yet, or whose costs are known; a job with ``interval_s="auto"`` measures them and uses the same model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from rayad.actors.status.terminal import console, echo, echo_json
from rayad.commands.terminal_plot import plot_lines
from rayad.progress import ConfigError
from rayad.snapshots.interval import daly_interval_s, optimal_interval_s, utilization

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
FIXED = (30.0, 1800.0)
FACTORS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
PICTURES = (".png", ".svg", ".pdf")
POINTS = 241
_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """A time such as ``50ms``; gives seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with the right form."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(rf"\s*{_NUMBER}\s*({'|'.join(SECONDS)})?\s*", value)
        if match is None:
            units = ", ".join(SECONDS)
            self.fail(f"{value!r} is not a time: write a number and one of {units}, such as 50ms or 1.5h (bare: seconds)", param, ctx)
        return _finite(self, value, float(match[1]) * SECONDS[match[2] or "s"], param, ctx)


class Rate(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """A number per time, such as ``0.05/min``; gives a rate per second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with the right form."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(rf"\s*{_NUMBER}\s*/\s*({'|'.join(SECONDS)})\s*", value)
        if match is None:
            self.fail(f"{value!r} is not a rate: write a number, / and one of {', '.join(SECONDS)}, such as 0.05/min or 2/d", param, ctx)
        return _finite(self, value, float(match[1]) / SECONDS[match[2]], param, ctx)


def _finite(kind: click.ParamType[float], text: str, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
    if not math.isfinite(value):
        kind.fail(f"{text!r} is more than a number can hold: write a smaller one", param, ctx)
    return value


@dataclass(frozen=True, slots=True)
class Process:
    """The parameters of the model, in seconds and per second."""

    cost_s: float
    failures_per_s: float
    restart_s: float
    depth: int
    hop_delay_s: float

    def utilization(self, interval_s: float) -> float:
        """Equation 10; 0 where a snapshot does not fit."""
        if interval_s <= self.cost_s:
            return 0.0
        return utilization(interval_s, self.cost_s, self.failures_per_s, self.restart_s, self.depth, self.hop_delay_s)


@dataclass(frozen=True, slots=True)
class Row:
    """One interval: the shares of time that remain after each kind of loss multiply to its utilization."""

    interval_s: float
    what: str
    utilization: float
    of_best: float
    left_by_snapshots: float
    left_by_repeated_work: float
    left_by_restarts: float


def rows_of(process: Process, asked_s: Sequence[float]) -> list[Row]:
    """The best interval, fractions and multiples of it, Daly's, common ones and those of ``asked_s``, in ascending order."""
    best_s = optimal_interval_s(process.cost_s, process.failures_per_s)
    names = {best_s * factor: f"T* x {factor:g}" for factor in FACTORS if factor == 1.0 or best_s * factor > process.cost_s}
    names |= {daly_interval_s(process.cost_s, process.failures_per_s, process.restart_s): "Daly"}
    names |= dict.fromkeys(FIXED, "usual") | dict.fromkeys(asked_s, "asked for")
    names[best_s] = "T*, the best"
    return [_row(process, interval_s, names[interval_s], process.utilization(best_s)) for interval_s in sorted(names)]


def _row(process: Process, interval_s: float, what: str, best: float) -> Row:
    found, x = process.utilization(interval_s), process.failures_per_s * interval_s
    return Row(
        interval_s,
        what,
        found,
        found / best if best else 0.0,
        max(0.0, 1.0 - process.cost_s / interval_s),
        x / math.expm1(x) if 0.0 < x < 700.0 else float(x == 0.0),
        math.exp(-process.failures_per_s * (process.restart_s + process.hop_delay_s * (process.depth - 1))),
    )


def curve_of(process: Process, rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Utilization over the range of intervals in the table, at even steps of their logarithm."""
    first, last = math.log(rows[0].interval_s), math.log(rows[-1].interval_s)
    xs = [math.exp(first + (last - first) * point / (POINTS - 1)) for point in range(POINTS)]
    return xs, [process.utilization(x) for x in xs]


@click.command("interval")
@click.option("--cost", type=Duration(), required=True, help="c: how long one snapshot keeps a job from its work.")
@click.option("--mtbf", type=Duration(), help="Mean time between failures; this or --failures.")
@click.option("--failures", type=Rate(), help="Failure rate, such as 0.05/min; this or --mtbf.")
@click.option("--restart", type=Duration(), default="0s", show_default=True, help="R: how long it takes to notice a failure and resume.")
@click.option("--depth", type=click.IntRange(min=1), default=1, show_default=True, help="n: operators on the longest path.")
@click.option(
    "--hop-delay", type=Duration(), default="0s", show_default=True, help="delta: from an operator's snapshot to that of the next operator."
)
@click.option("--at", "asked", type=Duration(), multiple=True, help="Show this interval, too; may be given several times.")
@click.option("--plot", "picture", type=click.Path(path_type=Path, dir_okay=False), help="Write the curve to FILE.png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in seconds and per second, and nothing else.")
def interval(
    cost: float,
    mtbf: float | None,
    failures: float | None,
    restart: float,
    depth: int,
    hop_delay: float,
    asked: tuple[float, ...],
    picture: Path | None,
    as_json: bool,
) -> None:
    """Find the best snapshot interval T*, and the cost of others.

    Utilization U is the share of time left for useful work, without snapshots, repeated work and restarts, by the model of Jayasekara,
    Harwood and Karunasekera (equation 10). Times are written 50ms, 30s, 1.5h, 19d.

    \b
    rayad interval --cost 5s --mtbf 12h --restart 30s --depth 5 --hop-delay 50ms
    """
    process = Process(cost, rate_of(mtbf, failures), restart, depth, hop_delay)
    if cost == 0.0:
        raise click.UsageError("--cost is 0: a snapshot that costs nothing is best taken all the time; give a time above 0, such as 50ms")
    if 0.0 in asked:
        raise click.UsageError("--at is 0: an interval must be above 0; give a time such as 30s")
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise click.UsageError(f"--plot {picture}: the name must end in one of {', '.join(PICTURES)}")
    try:
        rows = rows_of(process, asked)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    best = next(row for row in rows if row.what.startswith("T*,"))
    if picture is not None:
        draw(process, rows, best, picture)
    if as_json:
        daly_s = daly_interval_s(cost, process.failures_per_s, restart)
        found = {"interval_s": best.interval_s, "utilization": best.utilization, "daly_interval_s": daly_s}
        echo_json({**found, **asdict(process), "table": [asdict(row) for row in rows]}, indent=1)
        return
    show(process, rows, best)
    if picture is not None:
        echo(f"{picture} written")


def rate_of(mtbf_s: float | None, failures_per_s: float | None) -> float:
    """Failures per second from the option that was given. Raises click.UsageError unless exactly one was, and is above 0."""
    if (mtbf_s is None) == (failures_per_s is None):
        given = "neither" if mtbf_s is None else "both"
        raise click.UsageError(f"{given} of --mtbf and --failures given: give one, such as --mtbf 12h or --failures 2/d")
    if mtbf_s == 0.0:
        raise click.UsageError("--mtbf is 0: no work is ever done then; give a time above 0, such as 12h")
    if failures_per_s == 0.0:
        raise click.UsageError("--failures is 0: without failures no snapshot is needed, the best interval has no end; give a rate above 0")
    rate = 1.0 / mtbf_s if mtbf_s is not None else failures_per_s
    if rate is None or not math.isfinite(rate):
        raise click.UsageError("--mtbf is too small for a rate to be a number: give a time such as 1s")
    return rate


def show(process: Process, rows: Sequence[Row], best: Row) -> None:
    """The answer, the table and the curve, on the terminal."""
    screen = console(highlight=False)
    every, share = shown_time(1.0 / process.failures_per_s), f"{best.utilization:.2%}"
    screen.print(f"A snapshot every [bold]{shown_time(best.interval_s)}[/bold] leaves [bold]{share}[/bold] of the time for useful work.")
    screen.print(
        f"A snapshot costs {shown_time(process.cost_s)}, a failure comes every {every}, a restart takes {shown_time(process.restart_s)};\n"
        f"depth {process.depth}, hop delay {shown_time(process.hop_delay_s)}.\n"
    )
    table = Table(box=None, caption="U is the product of what snapshots, repeated work and restarts leave.", caption_justify="left")
    for title in ("interval T", "", "U", "of best", "snapshots", "rework", "restarts"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for row in rows:
        does_fit = row.interval_s > process.cost_s
        shares = (row.left_by_snapshots, row.left_by_repeated_work, row.left_by_restarts)
        cells = [f"{share:.2%}" for share in (row.utilization, row.of_best, *shares)] if does_fit else ["0.00%"]
        table.add_row(shown_time(row.interval_s), row.what if does_fit else "too short", *cells, style="bold" if row is best else None)
    screen.print(table)
    screen.print()
    marks = [(row.interval_s, shown_time(row.interval_s)) for row in (best, *(row for row in rows if row.what in ("usual", "asked for")))]
    for line in plot_lines(*curve_of(process, rows), marks=marks, width=max(24, min(72, screen.width - 16))):
        screen.print(line, markup=False, no_wrap=True, crop=False)


def draw(process: Process, rows: Sequence[Row], best: Row, path: Path) -> None:
    """The curve as a picture. Raises click.UsageError where matplotlib is missing or the file cannot be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise click.UsageError("--plot needs matplotlib: pip install matplotlib, or leave --plot out") from error
    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axis = figure.subplots()
    axis.plot(*curve_of(process, rows))
    axis.plot([best.interval_s], [best.utilization], "o", label=f"T* = {shown_time(best.interval_s)}, U = {best.utilization:.4f}")
    for row in rows:
        if row.what in ("usual", "asked for"):
            axis.plot([row.interval_s], [row.utilization], "x", label=f"{shown_time(row.interval_s)}, U = {row.utilization:.4f}")
    axis.set_xscale("log")
    axis.set_ylim(bottom=0.0)
    axis.set_xlabel("interval (s, logarithmic)")
    axis.set_ylabel("utilization")
    axis.legend()
    axis.grid(linewidth=0.4)
    try:
        figure.savefig(path)
    except OSError as error:
        raise click.UsageError(f"--plot {path}: {error.strerror}; name a file in a folder that exists and can be written") from error


def shown_time(seconds: float) -> str:
    """Four digits in the largest unit of which there is at least one.

    >>> shown_time(62.509), shown_time(0.05), shown_time(1800.0), shown_time(19 * 86_400.0), shown_time(0.0)
    ('1.042 min', '50 ms', '30 min', '19 d', '0 s')
    """
    unit = next((unit for unit in reversed(SECONDS) if seconds >= SECONDS[unit]), "us") if seconds else "s"
    return f"{seconds / SECONDS[unit]:.4g} {unit}"


__all__ = ["interval"]
