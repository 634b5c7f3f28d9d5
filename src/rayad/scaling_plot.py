"""Pictures of how a job was scaled, from the autoscaler's journal: throughput, goal, replicas over time (as MPR's figures 7.1 to 7.4)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayad.actors.scaling.files import read_lines
from rayad.progress import ConfigError

TREND_DEGREE = 4
"""The degree of the polynomial that is fitted to the throughput, as in the seed (7.2)."""
GOALS = (".goal_per_s", ".required_per_s")
"""The figures of a decision that are a vertex's goal."""


@dataclass(frozen=True, slots=True)
class ScalingPicture:
    """One vertex during a run.

    Args:
        vertex: its name.
        since_s, until_s: of each window, seconds from the beginning of the run.
        throughput: items a second that it produced in each window (consumed, where it produces nothing).
        replicas: at the end of each window.
        goal: items a second that it was to produce, for each window; None where it is not known.
    """

    vertex: str
    since_s: tuple[float, ...]
    until_s: tuple[float, ...]
    throughput: tuple[float, ...]
    replicas: tuple[int, ...]
    goal: tuple[float | None, ...]

    @property
    def mean_throughput(self) -> float:
        """Items a second over the whole time."""
        items = sum(rate * (until - since) for rate, since, until in zip(self.throughput, self.since_s, self.until_s, strict=True))
        return items / (self.until_s[-1] - self.since_s[0])

    def trend(self) -> tuple[float, ...]:
        """The polynomial of degree 4 with the least squares, at the middle of each window."""
        from numpy.polynomial import Polynomial

        middles = [(since + until) / 2 for since, until in zip(self.since_s, self.until_s, strict=True)]
        fitted = Polynomial.fit(middles, self.throughput, min(TREND_DEGREE, len(middles) - 1))
        return tuple(float(fitted(at_s)) for at_s in middles)


def pictures_of(
    lines: Sequence[Mapping[str, Any]], vertices: Sequence[str] = (), goals: Mapping[str, float] | None = None
) -> list[ScalingPicture]:
    """The pictures of a journal.

    Args:
        lines: as `rayad.actors.scaling.files.read_lines` gives them.
        vertices: which; by default those whose number of replicas changed, else all.
        goals: items a second by vertex, where the journal has none (an external controller knows its goal, the job does not).

    Raises ConfigError where there is nothing to show.
    """
    samples = [line for line in lines if line["kind"] == "sample"]
    names = list(dict.fromkeys(name for line in samples for name in line["vertices"]))
    if not names:
        raise ConfigError("the journal has no measurements: the job ended before its autoscaler had two readings")
    unknown = [name for name in (*vertices, *(goals or {})) if name not in names]
    if unknown:
        raise ConfigError(f"the journal has no vertex {unknown[0]!r}: its vertices are {names}")
    begin_s = samples[0]["since_s"]
    pictures = {name: _picture(lines, name, begin_s, (goals or {}).get(name)) for name in names}
    chosen = list(vertices) or [name for name in names if len(set(pictures[name].replicas)) > 1] or names
    return [pictures[name] for name in chosen]


def _picture(lines: Sequence[Mapping[str, Any]], name: str, begin_s: float, given: float | None) -> ScalingPicture:
    rows: list[tuple[float, float, float, float, int, float | None]] = []
    goal = given
    for line in lines:
        if line["kind"] == "decision" and given is None:
            said = [line["figures"][name + end] for end in GOALS if line["figures"].get(name + end) is not None]
            goal = said[0] if said else goal
        elif line["kind"] == "sample" and name in line["vertices"]:
            figures = line["vertices"][name]
            since_s, until_s = line["since_s"] - begin_s, line["until_s"] - begin_s
            if rows:
                since_s = max(since_s, rows[-1][1])  # new replicas count from their start
            rows.append((since_s, until_s, figures["observed_output_rate"], figures["observed_rate"], figures["parallelism"], goal))
    produces = any(row[2] for row in rows)
    return ScalingPicture(
        name,
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
        tuple(row[2] if produces else row[3] for row in rows),
        tuple(row[4] for row in rows),
        tuple(row[5] for row in rows),
    )


def draw_scaling(pictures: Sequence[ScalingPicture], path: str | os.PathLike[str], title: str = "") -> None:
    """Write the pictures as one file, in the format that its name ends with (PNG, SVG, PDF): one panel for each vertex.

    Raises ConfigError where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("drawing needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(8.0, 3.4 * len(pictures)), layout="constrained")
    for axis, picture in zip(figure.subplots(len(pictures), 1, squeeze=False).flat, pictures, strict=True):
        widths = [until - since for since, until in zip(picture.since_s, picture.until_s, strict=True)]
        axis.bar(picture.since_s, picture.throughput, widths, align="edge", color="0.75", label="throughput")
        middles = [since + width / 2 for since, width in zip(picture.since_s, widths, strict=True)]
        if len(middles) > TREND_DEGREE:
            axis.plot(middles, picture.trend(), color="C0", linewidth=1.2, linestyle="--", label="trend")
        known = [(at_s, goal) for at_s, goal in zip(middles, picture.goal, strict=True) if goal is not None]
        if known:
            axis.plot([at_s for at_s, _ in known], [goal for _, goal in known], color="C2", linewidth=1.2, label="goal")
        axis.set_ylim(bottom=0.0)
        axis.set_title(picture.vertex, fontsize=10)
        axis.set_xlabel("seconds")
        axis.set_ylabel("items a second")
        right = axis.twinx()
        counts = [picture.replicas[0], *picture.replicas]
        right.step([0.0, *picture.until_s], counts, where="pre", color="C3", linewidth=1.4, label="replicas")
        right.set_ylim(0, max(picture.replicas) + 1)
        right.set_ylabel("replicas")
        right.yaxis.get_major_locator().set_params(integer=True)
        handles = [*axis.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
        axis.legend(handles=handles, fontsize=7, loc="upper left", ncols=len(handles))
    if title:
        figure.suptitle(title, fontsize=11)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)


def plot_journal(
    journal: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    vertices: Sequence[str] = (),
    goals: Mapping[str, float] | None = None,
    title: str | None = None,
) -> list[ScalingPicture]:
    """Draw the last run in a journal file; gives what was drawn. See :func:`pictures_of` for the arguments."""
    lines = read_lines(journal)
    pictures = pictures_of(lines, vertices, goals)
    job = next((line["job"] for line in lines if line["kind"] == "begin"), "")
    draw_scaling(pictures, out, job if title is None else title)
    return pictures
