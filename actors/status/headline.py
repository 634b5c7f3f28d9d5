"""The few figures at the head of a job's page, each with its unit. Pure: clocks are given as seconds that the browser counts on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.facts import seconds, size
from rayad.actors.status.job_status import JobStatus
from rayad.actors.status.journal import JobEvent
from rayad.actors.status.table import amount


class Tone(Enum):
    """How a figure is meant."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Args:
        name: what it is of.
        value: the number, as text; "" where it is a clock.
        unit: behind the number, smaller.
        note: a line below it; ``{}`` in it is the time that has passed since ``note_since_s``.
        since_s: of a clock: seconds that have passed when the status was taken; None: it is no clock.
        tone: how it is meant.
    """

    name: str
    value: str
    unit: str = ""
    note: str = ""
    since_s: float | None = None
    note_since_s: float | None = None
    tone: Tone = Tone.PLAIN


def headline(status: JobStatus, events: Sequence[JobEvent]) -> tuple[Figure, ...]:
    """Records a second, age of the newest result, state, age of the newest snapshot, failures survived, time running."""
    return _rate(status), _result(status), _state(status), _snapshot(status), _failures(status, events), _running(status, events)


def _rate(status: JobStatus) -> Figure:
    rates = [vertex.rate_in for vertex in status.vertices if vertex.is_start and vertex.rate_in is not None]
    name, note = "Records a second", "read by its sources"
    if not rates:
        return Figure(name, "-", note="not measured yet")
    text = amount(sum(rates))
    is_scaled = text[-1].isalpha()
    return Figure(name, text[:-1] if is_scaled else text, f"{text[-1]}/s" if is_scaled else "/s", note)


def _result(status: JobStatus) -> Figure:
    name = "Newest result"
    if status.state is JobState.COMPLETE:
        return Figure(name, "all", note="results are published", tone=Tone.GOOD)
    if status.result_epoch is None:
        has_ended = bool(status.vertices) and all(vertex.frontier == () for vertex in status.vertices)
        if has_ended:
            return Figure(name, "all", note="every input has ended", tone=Tone.GOOD)
        return Figure(name, "-", note="no epoch is complete yet")
    note = f"epoch {status.result_epoch:,} is complete everywhere"
    if status.result_age_s is None:
        return Figure(name, "-", note=note)
    return Figure(name, "", "old", note, since_s=status.result_age_s)


def _state(status: JobStatus) -> Figure:
    kept = sum(vertex.state_bytes for vertex in status.vertices)
    value, unit = size(kept).split(" ")
    holders = sum(1 for vertex in status.vertices if vertex.state_bytes)
    largest = max(status.vertices, key=lambda vertex: vertex.state_bytes, default=None)
    if largest is None or not largest.state_bytes:
        return Figure("State kept", value, unit, "no vertex keeps any")
    where = f"in {holders} vertices, most in {largest.name}" if holders > 1 else f"in {largest.name}"
    return Figure("State kept", value, unit, where)


def _snapshot(status: JobStatus) -> Figure:
    every = f"one every {seconds(status.snapshot_interval_s)}" if status.snapshot_interval_s is not None else "on demand only"
    newest, tone = status.snapshot, Tone.BAD if status.snapshots_late is not None else Tone.PLAIN
    if newest is None:
        return Figure("Newest snapshot", "-", note=f"none in this run; {every}", tone=tone)
    note = f"{newest.kind} {newest.number}, {size(newest.total_bytes)}; {every}"
    if newest.age_s is None:
        return Figure("Newest snapshot", str(newest.number), note=note, tone=tone)
    return Figure("Newest snapshot", "", "ago", note, since_s=newest.age_s, tone=tone)


def _failures(status: JobStatus, events: Sequence[JobEvent]) -> Figure:
    newest = next((event for event in reversed(events) if event.kind == "failure"), None)
    if not status.failures:
        return Figure("Failures survived", "0", note="none so far", tone=Tone.GOOD)
    if newest is None:
        return Figure("Failures survived", f"{status.failures:,}")
    return Figure("Failures survived", f"{status.failures:,}", note="the last one {} ago", note_since_s=max(0.0, status.at_s - newest.at_s))


def _running(status: JobStatus, events: Sequence[JobEvent]) -> Figure:
    """Since the newest start: a journal has earlier runs, too, and a recovery is no start."""
    began = next((event for event in reversed(events) if event.kind == "running"), None)
    replicas = sum(vertex.parallelism for vertex in status.vertices)
    note = f"{len(status.vertices)} vertices, {replicas} replicas" if replicas else ""
    if began is None:
        return Figure("Running for", "-", note=note)
    return Figure("Running for", "", note=note, since_s=max(0.0, status.at_s - began.at_s))


__all__ = ["Figure", "Tone", "headline"]
