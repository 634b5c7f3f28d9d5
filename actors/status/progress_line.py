"""What one line says of a job that somebody waits for: how far it is, how fast, and what holds it up. Pure.

The line is made from :class:`JobStatus` alone, so both runtimes show the same. Rates are differences between the records read at two looks,
by the clock of whoever shows the line: the clock of a status may count steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.job_status import JobStatus, VertexStatus
from rayad.actors.status.table import amount

RATE_S = 5.0
"""The rate that is shown is the mean over about so many seconds."""
LEFT_AFTER_S = 3.0
"""The time that is left is estimated once the share done has grown for so long."""
WAITING_LEAST = 2
"""A vertex is named as the slowest where so many batches wait for it."""


@dataclass(frozen=True, slots=True)
class Line:
    """What is shown now."""

    name: str
    share: float | None
    """Of the input that has been read, from 0 to 1; None: not known."""
    text: str


class ProgressLine:
    """The line of one job.

    Args:
        name: the job's.
        has_clock: whether the shares of time in a status are measured by a clock. Those of the local runtime count steps, and are left out.

    ``at_s`` is always the time since the wait began, and never falls.
    """

    def __init__(self, name: str, *, has_clock: bool = True) -> None:
        self._name = name
        self._has_clock = has_clock
        self._status = JobStatus(name, JobState.STARTING)
        self._reads: deque[tuple[float, int]] = deque()  # when how many records had been read
        self._shares: tuple[float, float] | None = None  # the first share known, and when that was
        self._share: float | None = None

    def see(self, status: JobStatus, at_s: float, starting: str = "") -> Line:
        """The line for this status. ``starting``: what the start waits for, if the job is starting."""
        if status.vertices:
            self._status = status
            self._note(status, at_s)
        else:  # it starts again, or is about to end: the figures stay
            self._status = replace(self._status, state=status.state, silent=status.silent, snapshots_late=status.snapshots_late)
        if status.state is JobState.STARTING:
            return Line(self._name, self._share, _joined([duration(at_s), starting or "starting", *self._troubles()]))
        return Line(self._name, self._share, _joined(self._facts(at_s)))

    def summary(self, how: str, at_s: float, records: int | None) -> str:
        """What is left of it at the end. ``how`` the job ended: "complete", say. ``records`` that it has read; None: not known."""
        facts = [f"job {self._name!r} is {how} after {duration(at_s)}"]
        if records:
            facts.append(f"{records:,} records read ({amount(records / at_s)}/s)" if at_s > 0 else f"{records:,} records read")
        return _joined([*facts, *self._counted()])

    # -- what is known -----------------------------------------------------------------------------------
    def _note(self, status: JobStatus, at_s: float) -> None:
        records = sum(replica.records_in for vertex in _starts(status) for replica in vertex.replicas)
        if self._reads and records < self._reads[-1][1]:  # a recovery: some are read again
            self._reads.clear()
        self._reads.append((at_s, records))
        while len(self._reads) > 2 and at_s - self._reads[1][0] >= RATE_S:
            self._reads.popleft()
        self._share = share_of(status)
        if self._share is None or (self._shares is not None and self._share < self._shares[0]):
            self._shares = None
        if self._share is not None and self._shares is None:
            self._shares = self._share, at_s

    def _facts(self, at_s: float) -> list[str]:
        return [duration(at_s) + self._left(at_s), *self._troubles(), self._rate(), *self._epochs(), self._slowest()]

    def _left(self, at_s: float) -> str:
        """How long the rest will take if it is read as fast as what has been read since the share was known."""
        if self._share is None or self._shares is None or self._share >= 1.0:
            return ""
        share, since_s = self._shares
        if at_s - since_s < LEFT_AFTER_S or self._share <= share:
            return ""
        return f" (about {duration((1.0 - self._share) * (at_s - since_s) / (self._share - share))} left)"

    def _troubles(self) -> list[str]:
        return [*self._counted(), *map(str, self._status.silent[:1])]

    def _counted(self) -> list[str]:
        """What stays true when the job is over, and nobody is waited for."""
        status, found = self._status, []
        if status.failures:
            found.append(f"{status.failures} failure{'s' if status.failures > 1 else ''} survived")
        if status.snapshots_late is not None:
            found.append(str(status.snapshots_late))
        bad = sum(one.count for one in status.set_aside)
        if bad:
            found.append(f"{bad:,} record{'s' if bad > 1 else ''} set aside")
        return found

    def _rate(self) -> str:
        if not self._reads:
            return ""
        (before_s, before), (now_s, records) = self._reads[0], self._reads[-1]
        if now_s <= before_s:
            return f"{amount(records)} records read" if records else ""
        return f"{amount((records - before) / (now_s - before_s))} records/s ({amount(records)} read)"

    def _epochs(self) -> list[str]:
        done = epochs_complete(self._status)
        return [f"{done:,} epoch{'s' if done > 1 else ''} complete"] if done else []

    def _slowest(self) -> str:
        vertex = slowest(self._status)
        if vertex is None:
            return ""
        busy = f", {vertex.busy_share:.0%} busy" if self._has_clock and vertex.busy_share is not None else ""
        return f"slowest: {(vertex.title or vertex.name)!r} ({vertex.backlog_batches} batches wait{busy})"


def _joined(facts: list[str]) -> str:
    """In one line, whatever is in errors and names."""
    return " ".join(", ".join(filter(None, facts)).split())


def _starts(status: JobStatus) -> list[VertexStatus]:
    return [vertex for vertex in status.vertices if vertex.is_start]


def share_of(status: JobStatus) -> float | None:
    """The share of the input that has been read: that of the source that is least far. None where one that has not ended cannot tell."""
    shares = [vertex.share_read if vertex.frontier != () else 1.0 for vertex in _starts(status)]
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None


def epochs_complete(status: JobStatus) -> int:
    """How many epochs have passed every vertex; 0 where that is not known, or all have ended."""
    open_epochs = [time.epoch for vertex in status.vertices for time in (*(vertex.frontier or ()), *vertex.pending)]
    return min(open_epochs, default=0)


def slowest(status: JobStatus) -> VertexStatus | None:
    """The vertex for which most batches wait; None where next to nothing waits."""
    found = max((vertex for vertex in status.vertices if not vertex.is_start), key=lambda vertex: vertex.backlog_batches, default=None)
    return found if found is not None and found.backlog_batches >= WAITING_LEAST else None


def duration(seconds: float) -> str:
    """A time as it is read most quickly.

    >>> duration(0.4), duration(59.4), duration(61), duration(3600), duration(90061)
    ('0 s', '59 s', '1:01', '1:00:00', '25:01:01')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


__all__ = ["Line", "ProgressLine", "duration", "epochs_complete", "share_of", "slowest"]
