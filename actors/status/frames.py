"""What the page of a job shows, as frames; and when one is due. Pure: the shell looks at the job, and sends.

A frame is due when the page would show something else: a frontier has passed, the journal has grown, the job is in another state, or a
figure differs as the table writes it. Clocks are left out (the age of a snapshot, the lag by the clock): the page runs them itself, so
nothing is sent of a job in which nothing happens. A browser that was away gets what it has missed in one frame; how fast it reads is
nothing to the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.job_status import JobStatus, VertexStatus
from rayad.actors.status.journal import JobEvent
from rayad.actors.status.report import bars, line_of_time, table
from rayad.actors.status.table import HEADER, amount, heading, replica_cells, vertex_cells
from rayad.dataflow.compiling.drawing import Arrow, Box, draw

POINTS_MOST = 600
"""So many points of the lines over time are kept; beyond, every second one is dropped: they reach back to the beginning, coarser."""
STILL_S = 3.0
"""When no frontier has moved for so long the page says why; and looks again for the reason as often."""
GROUPS = {
    "failures": ("failure", "recovery", "stall", "stall over"),
    "layout": ("layout", "layout refused", "decision"),
    "snapshots": ("snapshot", "snapshot given up"),
    "life": ("running", "stopping", "end"),
}
"""Kinds of events by group. The page shows the newest :data:`EVENTS_SHOWN` of each, so that snapshots crowd out no failure."""
EVENTS_SHOWN = 100
LEVELS = 4
"""Colours of back-pressure, from none to all of the time: ``--pressure-0`` to ``--pressure-4`` in the page's style sheet."""
_OVER = (JobState.COMPLETE, JobState.FAILED, JobState.CANCELLED)
_LINE = 24
"""Characters of a line in a box, so that boxes stay where they are while figures change."""

Point = tuple[int, float, dict[str, tuple[float | None, int | None, float | None]]]
"""The frame that it came with, when, and by vertex: records in a second, the epoch of the frontier, the lag by the clock."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What else is needed for a frame, besides the status."""

    journal: bool
    why: bool
    """Why the job does not move (``explain_stuck``)."""


class Story:
    """What is known of one job for its page. ``number`` is that of the newest frame, from 1; 0: there is none yet."""

    def __init__(self, name: str) -> None:
        self.number = 0
        self._status = JobStatus(name, JobState.STARTING)
        self._shown: object = None
        self._why = ""
        self._why_s: float | None = None
        self._moved_s: float | None = None
        self._events: tuple[JobEvent, ...] = ()
        self._events_of = 0  # the frame that they came with
        self._noted = 0
        self._points: list[Point] = []

    @property
    def is_over(self) -> bool:
        """Whether the newest frame is the last."""
        return self._status.state in _OVER

    def wants(self, status: JobStatus) -> Wanted:
        """What to ask for, with this status, before :meth:`tell`."""
        if self._moved_s is None or _frontiers(status) != _frontiers(self._status):
            self._moved_s = status.at_s
        is_over = status.state in _OVER
        is_still = not is_over and status.at_s - self._moved_s >= STILL_S
        if not is_still:
            self._why, self._why_s = "", None
        is_due = is_still and (self._why_s is None or status.at_s - self._why_s >= STILL_S)
        return Wanted(is_over or status.events != self._noted, is_due)

    def tell(self, status: JobStatus, events: Sequence[JobEvent] | None = None, why: str | None = None) -> bool:
        """What has been seen, with what it :meth:`wants`, where that was to be had; gives whether a frame is due: there is a new one then.

        A status without vertices (the job starts again, or has ended) leaves the figures as they were last seen.
        """
        if not status.vertices:
            late = status.snapshots_late
            status = replace(self._status, state=status.state, at_s=status.at_s, silent=status.silent, snapshots_late=late)
        if why is not None:
            self._why, self._why_s = why, status.at_s
        has_news = events is not None and tuple(events) != self._events
        shown = (_as_shown(status), self._why)
        self._status = status
        if events is not None:
            self._noted = status.events
        if not has_news and shown == self._shown:
            return False
        self.number += 1
        self._shown = shown
        if events is not None and has_news:
            self._events, self._events_of = tuple(events), self.number
        self._add_point()
        return True

    def frame(self, after: int) -> dict[str, Any]:
        """What a browser needs that has had the frame ``after`` (0: none), as JSON; all text in HTML is escaped."""
        status = self._status
        shown: dict[str, Any] = {
            "number": self.number,
            "is_whole": after == 0,
            "is_over": self.is_over,
            "name": status.name,
            "state": status.state.value,
            "at_s": status.at_s,
            "heading": heading(_without_clocks(status)),
            "snapshot_age_s": status.snapshot.age_s if status.snapshot is not None else None,
            "still_s": status.at_s - self._moved_s if self._why and self._moved_s is not None else None,
            "why": self._why,
            "graph": graph_of(status),
            "header": HEADER,
            "vertices": [_vertex(vertex) for vertex in status.vertices],
            "points": [point[1:] for point in self._points if point[0] > after],
            "events": None,
        }
        if self._events and self._events_of > after:
            shown["events"] = _history(self._events)
        return shown

    def _add_point(self) -> None:
        figures = {vertex.name: (vertex.rate_in, _epoch(vertex), vertex.lag_s) for vertex in self._status.vertices}
        if any(figure is not None for figured in figures.values() for figure in figured):
            self._points.append((self.number, self._status.at_s, figures))
        if len(self._points) > POINTS_MOST:
            self._points = self._points[::2]


def graph_of(status: JobStatus) -> str:
    """The vertices with what they do, filled by how back-pressured they are; loops are drawn back."""
    numbers = {vertex.name: number for number, vertex in enumerate(status.vertices)}
    boxes = [Box(numbers[vertex.name], _lines(vertex), f"var(--pressure-{_level(vertex)})") for vertex in status.vertices]
    arrows = [Arrow(numbers[edge.source], numbers[edge.target], edge.is_feedback) for edge in status.edges]
    return draw(boxes, arrows) if boxes else ""


def newest_of_each_group(events: Sequence[JobEvent]) -> list[JobEvent]:
    """The newest :data:`EVENTS_SHOWN` of each of the :data:`GROUPS`, newest first."""
    left = dict.fromkeys(GROUPS, EVENTS_SHOWN)
    kept = []
    for event in reversed(events):
        group = next((name for name, kinds in GROUPS.items() if event.kind in kinds), "life")
        left[group] -= 1
        if left[group] >= 0:
            kept.append(event)
    return kept


def _history(events: Sequence[JobEvent]) -> dict[str, Any]:
    snapshots = [event for event in events if event.kind == "snapshot"][-EVENTS_SHOWN:]
    return {
        "line": line_of_time(events),
        "table": table(newest_of_each_group(events), events[0].at_s),
        "snapshots": {figure: bars(snapshots, figure) for figure in ("total_bytes", "took_s") if snapshots},
    }


def _vertex(vertex: VertexStatus) -> dict[str, Any]:
    return {
        "name": vertex.name,
        "where": vertex.where,
        "cells": vertex_cells(vertex),
        "replicas": [replica_cells(one) for one in vertex.replicas],
        "shares": [vertex.busy_share, vertex.idle_share, vertex.backpressured_share],
        "lag_s": vertex.lag_s,
        "is_behind": bool(vertex.lag_s),
    }


def _lines(vertex: VertexStatus) -> tuple[str, ...]:
    busy, pressed = vertex.busy_share, vertex.backpressured_share
    does = f"busy {busy:.0%}, pressed {pressed:.0%}" if busy is not None and pressed is not None else ""
    rate = f"x{vertex.parallelism}   {amount(vertex.rate_in)}/s"
    return vertex.name, rate, does.ljust(_LINE)


def _level(vertex: VertexStatus) -> int:
    """0 where it is back-pressured for less than a twentieth of its time, then by quarters.

    >>> from rayad.actors.status.job_status import ReplicaStatus
    >>> [_level(VertexStatus("v", replicas=(ReplicaStatus(0, backpressured_share=share),))) for share in (None, 0.04, 0.05, 0.3, 1.0)]
    [0, 0, 1, 2, 4]
    """
    share = vertex.backpressured_share
    return 0 if share is None or share < 0.05 else min(LEVELS, 1 + int(share * LEVELS))


def _epoch(vertex: VertexStatus) -> int | None:
    return min((time.epoch for time in vertex.frontier), default=None) if vertex.frontier is not None else None


def _frontiers(status: JobStatus) -> object:
    return status.state, [vertex.frontier for vertex in status.vertices]


def _without_clocks(status: JobStatus) -> JobStatus:
    newest = status.snapshot
    late = status.snapshots_late
    vertices = tuple(replace(vertex, lag_s=None) for vertex in status.vertices)
    still = replace(status, snapshots_late=replace(late, doing_s=None, age_s=None) if late is not None else None)
    return replace(still, at_s=0.0, window_s=0.0, snapshot=replace(newest, age_s=None) if newest is not None else None, vertices=vertices)


def _as_shown(status: JobStatus) -> object:
    """Equal for two that look the same on the page, clocks aside."""
    still = _without_clocks(status)
    cells = [(vertex_cells(vertex), [replica_cells(one) for one in vertex.replicas]) for vertex in still.vertices]
    return heading(still), cells, [bool(vertex.lag_s) for vertex in status.vertices]


__all__ = ["EVENTS_SHOWN", "GROUPS", "LEVELS", "POINTS_MOST", "STILL_S", "Story", "Wanted", "graph_of", "newest_of_each_group"]
