"""What the page of a job shows, as frames; and when one is due. Pure: the shell looks at the job, and sends.

A frame is due when the page would show something else: a frontier has passed, the journal has grown, the job is in another state, or a
figure differs as the table writes it. Clocks are left out (the age of a snapshot, the lag by the clock): the page runs them itself, so
nothing is sent of a job in which nothing happens. A browser that was away gets what it has missed in one frame; how fast it reads is
nothing to the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.event_lines import EVENTS_SHOWN, lines_of
from rayad.actors.status.headline import Figure, headline
from rayad.actors.status.job_status import JobStatus, VertexStatus
from rayad.actors.status.journal import JobEvent
from rayad.actors.status.table import HEADER, amount, heading, replica_cells, vertex_cells
from rayad.dataflow.operators.state.live import told_tables

POINTS_MOST = 600
"""So many points of the lines over time are kept; beyond, every second one is dropped: they reach back to the beginning, coarser."""
STILL_S = 3.0
"""When no frontier has moved for so long the page says why; and looks again for the reason as often."""
LEVELS = 4
"""Colours of back-pressure, from none to all of the time: 0 to 4; ``--pressure-0`` to ``--pressure-4`` in the page's style sheet."""
_OVER = (JobState.COMPLETE, JobState.FAILED, JobState.CANCELLED)

Point = tuple[int, float, dict[str, tuple[float | None, int | None, float | None, int | None]]]
"""The frame that it came with, when, and by vertex: records in a second, the epoch of the frontier, the lag by the clock in seconds, bytes
of state."""


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
    def name(self) -> str:
        """The job's."""
        return self._status.name

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
        """What a browser needs that has had the frame ``after`` (0: none), as JSON: text and numbers, no HTML."""
        status = self._status
        shown: dict[str, Any] = {
            "number": self.number,
            "is_whole": after == 0,
            "is_over": self.is_over,
            "name": status.name,
            "state": status.state.value,
            "at_s": status.at_s,
            "headline": [_figure(figure) for figure in headline(status, self._events)],
            "lines": heading(_without_clocks(status))[2:],
            "still_s": status.at_s - self._moved_s if self._why and self._moved_s is not None else None,
            "why": self._why,
            "header": HEADER,
            "vertices": [_vertex(vertex) for vertex in status.vertices],
            "edges": [(edge.source, edge.target, edge.is_feedback) for edge in status.edges],
            "points": [point[1:] for point in self._points if point[0] > after],
            "events": None,
        }
        if self._events and self._events_of > after:
            shown["events"] = _history(self._events)
        return shown

    def _add_point(self) -> None:
        figures = {
            vertex.name: (vertex.rate_in, _epoch(vertex), vertex.lag_s, vertex.state_bytes if vertex.replicas else None)
            for vertex in self._status.vertices
        }
        if any(figure is not None for figured in figures.values() for figure in figured[:3]):
            self._points.append((self.number, self._status.at_s, figures))
        if len(self._points) > POINTS_MOST:
            self._points = self._points[::2]


def _history(events: Sequence[JobEvent]) -> dict[str, Any]:
    snapshots = [event for event in events if event.kind == "snapshot"][-EVENTS_SHOWN:]
    return {
        "first_s": events[0].at_s,
        "lines": [asdict(line) for line in lines_of(events)],
        "snapshots": [(event.at_s, event.facts.get("total_bytes"), event.facts.get("took_s"), event.what) for event in snapshots],
        "failure": _failure(events),
    }


def _failure(events: Sequence[JobEvent]) -> str:
    """The newest failure, until the job runs again; "" where there is none."""
    decides = ("failure", "end", "recovery", "running")
    newest = next((event for event in reversed(events) if event.kind in decides), None)
    if newest is None:
        return ""
    is_bad = newest.kind == "failure" or (newest.kind == "end" and newest.facts.get("state") == JobState.FAILED.value)
    return newest.what if is_bad else ""


def _figure(figure: Figure) -> dict[str, Any]:
    return {**asdict(figure), "tone": figure.tone.value}


def _vertex(vertex: VertexStatus) -> dict[str, Any]:
    return {
        "name": vertex.name,
        "title": vertex.title or vertex.name,
        "where": vertex.where,
        "steps": vertex.steps,
        "read_by": told_tables(vertex.name, vertex.tables),
        "parallelism": vertex.parallelism,
        "is_start": vertex.is_start,
        "level": _level(vertex),
        "rate": f"{amount(vertex.rate_in)}/s",
        "cells": vertex_cells(vertex),
        "replicas": [replica_cells(one) for one in vertex.replicas],
        "shares": [vertex.busy_share, vertex.idle_share, vertex.backpressured_share],
        "lag_s": vertex.lag_s,
        "is_behind": bool(vertex.lag_s),
    }


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
    still = replace(still, result_age_s=None if still.result_age_s is None else 0.0)
    return replace(still, at_s=0.0, window_s=0.0, snapshot=replace(newest, age_s=None) if newest is not None else None, vertices=vertices)


def _as_shown(status: JobStatus) -> object:
    """Equal for two that look the same on the page, clocks aside."""
    still = _without_clocks(status)
    cells = [(vertex_cells(vertex), [replica_cells(one) for one in vertex.replicas]) for vertex in still.vertices]
    seen = [(vertex.name, vertex.where, vertex.steps, bool(vertex.lag_s)) for vertex in status.vertices]
    return heading(still), cells, seen, still.edges, still.result_epoch


__all__ = ["LEVELS", "POINTS_MOST", "STILL_S", "Story", "Wanted"]
