"""The coordinator's side of snapshots: when one begins, who has acknowledged, when it is complete or given up. Pure.

One attempt is pending at a time. An attempt is complete when each replica has given its part, once; it becomes a snapshot by being
published, which the shell does with :meth:`SnapshotAttempts.manifest`. What comes too late, twice or of an attempt given up is answered and
forgotten (Flink's CheckpointCoordinator distinguishes the same cases).
"""

from __future__ import annotations

import copy
import enum
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayad.progress import ProtocolError, SnapshotError
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.interval import IntervalBounds, IntervalEstimator
from rayad.snapshots.manifest import Manifest, ReplicaPart, StagedPart

ReplicaName = tuple[str, int]
"""A vertex' name and which of its replicas."""
TAKEN_MAX = 1_000
"""A job gives the figures of its newest snapshots, so many."""
FIRST_SOON = IntervalBounds(first_s=1.0)
"""With an automatic interval the first snapshot comes soon: while there is little state it costs little, and then its cost is known."""

MERGE_AT = 16
"""So many staged files of one sink are merged into one."""
MERGE_BYTES_MAX = 1 << 23
"""Files of at least this size stay as they are: a merge reads into memory what it merges."""


TOLD_MAX = 5
"""So many of the replicas whose parts are missing are named."""


class Ack(enum.Enum):
    """What an acknowledgement was."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    """Of a replica that the job does not have, or of an attempt that never was."""
    DISCARDED = "discarded"
    """Of an attempt that was given up or is complete."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """A replica's acknowledgement.

    Args:
        number: of the attempt.
        part: the files it wrote, with those they build on.
        staged: what its sink writers have staged.
        pause_s: how long the replica stood still.
        cost_s: processor seconds that the snapshot took from the work, the pause included.
        written_bytes: what was written now, without the files it builds on.
        aligned_s: from the first barrier to the capture.
        incremental: whether the state is an increment.
        input_frames: of a live input: how many frames of the driver's it has consumed; None: it is none.
        input_state: of a live input: how many of the frames were batches, its epoch (None: closed), its user's note, the epoch that it is
            in or was closed in, and before which epoch all have come (None: all).
        passed_epoch: the last epoch that is complete at all replicas of the vertex, as far as this one knows; -1: none.
    """

    number: int
    part: ReplicaPart
    staged: tuple[StagedPart, ...] = ()
    pause_s: float = 0.0
    cost_s: float = 0.0
    written_bytes: int = 0
    aligned_s: float = 0.0
    incremental: bool = False
    input_frames: int | None = None
    input_state: tuple[int, int | None, str | None, int, int | None] = (0, 0, None, 0, 0)
    passed_epoch: int = -1


@dataclass(slots=True)
class _Attempt:
    barrier: Barrier
    kind: str
    began_s: float
    missing: set[ReplicaName]
    reports: dict[ReplicaName, PartReport] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotStatistics:
    """Figures of one published snapshot; seconds and bytes."""

    number: int
    kind: str
    took_s: float
    pause_s: float
    """The longest pause of a replica."""
    cost_s: float
    """The greatest processor time that a replica spent on it."""
    written_bytes: int
    total_bytes: int
    incremental_replicas: int
    interval_s: float | None


class SnapshotAttempts:
    """The snapshots of one run.

    Args:
        replicas: who has to give a part.
        interval_s: seconds between beginnings, "auto", or None for on demand only.
        timeout_s: an attempt that takes longer is given up.
        published: number of the newest manifest in the store: the run's own begin after it.
        finally_published: sinks that publish once, at the end: later snapshots carry what they have staged.
        now_s: the clock; only differences matter.

    >>> snapshots = SnapshotAttempts([("count", 0)], interval_s=10.0, published=4, now_s=0.0)
    >>> snapshots.due(9.9), snapshots.due(10.0)
    (False, True)
    >>> barrier = snapshots.begin(10.0); barrier.slot
    5
    >>> snapshots.on_report(PartReport(barrier.number, ReplicaPart("count", 0, ()))), snapshots.is_complete
    (<Ack.SUCCESS: 'success'>, True)
    """

    def __init__(
        self,
        replicas: Collection[ReplicaName],
        *,
        interval_s: float | str | None = None,
        timeout_s: float = 600.0,
        published: int = 0,
        first_attempt: int = 1,
        finally_published: Collection[str] = (),
        staged: Iterable[StagedPart] = (),
        bounds: IntervalBounds | None = None,
        now_s: float = 0.0,
    ) -> None:
        self.replicas = frozenset(replicas)
        self.published = published
        self.timeout_s = timeout_s
        self.base = 0
        self.given_up = 0
        self.given_up_in_a_row = 0
        self.why_given_up = ""
        self.last: SnapshotStatistics | None = None
        self.committed: dict[str, int] = {}
        """By vertex the last epoch that a snapshot of these attempts holds; -1: none."""
        self.estimator = IntervalEstimator(bounds or FIRST_SOON)
        self._interval_s = interval_s
        self._finally = frozenset(finally_published)
        self._staged = [one for one in staged if one.sink in self._finally]
        self._left: list[StagedPart] = []
        self._attempts = first_attempt - 1
        self._pending: _Attempt | None = None
        self._began_s = now_s
        self._looked_s = now_s

    def lay_out(self, replicas: Collection[ReplicaName]) -> None:
        """From now on these replicas have to give a part. Raises ProtocolError while an attempt is pending."""
        if self._pending is not None:
            raise ProtocolError(f"attempt {self._pending.barrier.number} is pending: the replicas cannot change now")
        self.replicas = frozenset(replicas)

    def hasten(self) -> None:
        """The next one is due at once, if snapshots are taken by interval at all."""
        self._began_s = float("-inf")

    def leave_behind(self, staged: Iterable[StagedPart]) -> None:
        """What the writers of a retired replica had staged becomes part of the next snapshot."""
        self._left.extend(staged)

    # -- when --------------------------------------------------------------------------------------
    @property
    def interval_s(self) -> float | None:
        """Seconds between two snapshots, as they stand now; None: on demand only."""
        if self._interval_s == "auto":
            return self.estimator.interval_s()
        assert self._interval_s is None or not isinstance(self._interval_s, str)
        return self._interval_s

    @property
    def pending(self) -> Barrier | None:
        """The attempt under way."""
        return self._pending.barrier if self._pending is not None else None

    @property
    def missing(self) -> list[ReplicaName]:
        """Who has not yet given its part."""
        return sorted(self._pending.missing) if self._pending is not None else []

    @property
    def told_missing(self) -> str:
        """Some of those who are :attr:`missing`, in words."""
        return _told(self.missing)

    def lacks(self, now_s: float) -> tuple[str, float] | None:
        """The attempt under way with the parts that it lacks, in words, and for how many seconds it has been; None where no part is
        missing. From any thread."""
        attempt = self._pending
        missing = sorted(attempt.missing) if attempt is not None else []
        if attempt is None or not missing:
            return None
        return f"snapshot {attempt.barrier.slot}, which lacks the parts of {_told(missing)},", now_s - attempt.began_s

    @property
    def is_complete(self) -> bool:
        """Whether all parts of the pending attempt are there."""
        return self._pending is not None and not self._pending.missing

    @property
    def attempts(self) -> int:
        """The number of the newest attempt."""
        return self._attempts

    def due(self, now_s: float) -> bool:
        """Whether the next one should begin."""
        interval_s = self.interval_s
        return interval_s is not None and self._pending is None and now_s - self._began_s >= interval_s

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until :meth:`due` or :meth:`expired` changes; None: never by itself."""
        if self._pending is not None:
            return max(0.0, self._pending.began_s + self.timeout_s - now_s) if self._pending.missing else None
        interval_s = self.interval_s
        return None if interval_s is None else max(0.0, self._began_s + interval_s - now_s)

    def begin(self, now_s: float, *, kind: str = "snapshot", unaligned: bool = False) -> Barrier:
        """Begin an attempt: the barrier for the replicas without inputs. Raises ProtocolError while one is pending."""
        if self._pending is not None:
            raise ProtocolError(f"attempt {self._pending.barrier.number} is pending: one snapshot at a time")
        self._attempts += 1
        barrier = Barrier(self._attempts, self.published + 1, self.base, unaligned, kind == "final")
        self._pending = _Attempt(barrier, kind, now_s, set(self.replicas))
        self._began_s = now_s
        return barrier

    def expired(self, now_s: float) -> bool:
        """Whether the pending attempt has taken too long."""
        return self._pending is not None and bool(self._pending.missing) and now_s - self._pending.began_s > self.timeout_s

    # -- who ---------------------------------------------------------------------------------------
    def on_report(self, report: PartReport) -> Ack:
        """A replica has written its part."""
        name = (report.part.vertex, report.part.replica)
        if name not in self.replicas or not 0 < report.number <= self._attempts:
            return Ack.UNKNOWN
        attempt = self._pending
        if attempt is None or attempt.barrier.number != report.number:
            return Ack.DISCARDED
        if name in attempt.reports:
            return Ack.DUPLICATE
        attempt.reports[name] = report
        attempt.missing.discard(name)
        return Ack.SUCCESS

    def on_failed(self, number: int, why: str) -> bool:
        """A replica could not give its part, or the attempt shall end: it is given up. False if it was not pending."""
        if self._pending is None or self._pending.barrier.number != number:
            return False
        self._pending = None
        self.given_up += 1
        self.given_up_in_a_row += 1
        self.why_given_up = why
        return True

    def to_merge(self) -> list[tuple[StagedPart, ...]]:
        """Groups of files staged for the end, each of which should be merged into one file (:func:`merge_from`)."""
        out = []
        for sink in sorted(self._finally):
            carried = [one for one in self._staged if one.sink == sink]
            start = merge_from([math.inf if one.file.size >= MERGE_BYTES_MAX else one.count for one in carried])
            if start is not None:
                out.append(tuple(carried[start:]))
        return out

    def merged(self, old: tuple[StagedPart, ...], new: StagedPart) -> None:
        """``new`` replaces these and has their contents."""
        gone = set(old)
        at = self._staged.index(old[0])
        self._staged = [*self._staged[:at], new, *(one for one in self._staged[at:] if one not in gone)]

    # -- what --------------------------------------------------------------------------------------
    @property
    def carried(self) -> list[StagedPart]:
        """What is staged for the end: each snapshot has all of it."""
        return self._staged

    def copied(self) -> SnapshotAttempts:
        """For a thread that publishes the complete attempt: it reads and changes the copy alone. See :meth:`take_back`."""
        return copy.copy(self)

    def take_back(self, copied: SnapshotAttempts) -> None:
        """What publishing has changed in a copy: files that were merged, and a number that was found taken."""
        self._staged, self.published = copied.carried, copied.published

    def manifest(
        self, *, job: str, graph: dict[str, Any], key_groups: int, incarnation: int, run: str = "", notes: dict[str, Any] | None = None
    ) -> Manifest:
        """What to publish. Raises SnapshotError unless the attempt is complete."""
        attempt = self._pending
        if attempt is None or attempt.missing:
            raise SnapshotError(f"there is no complete attempt; missing: {self.missing}")
        reports = [attempt.reports[name] for name in sorted(attempt.reports)]
        fresh = [*self._left, *(staged for report in reports for staged in report.staged)]
        inputs = {report.part.vertex: report.input_frames for report in reports if report.input_frames is not None}
        states = {report.part.vertex: list(report.input_state) for report in reports if report.input_frames is not None}
        return Manifest(
            attempt.barrier.slot,
            job,
            graph,
            key_groups,
            tuple(report.part for report in reports),
            staged=(*self._staged, *fresh),
            kind=attempt.kind,
            incarnation=incarnation,
            run=run,
            notes={**(notes or {}), "inputs": inputs, "input_states": states},
        )

    def _commit(self, reports: list[PartReport]) -> None:
        """What all replicas of a vertex had passed when they were cut is in their parts, whole, and is sent by nobody again."""
        passed: dict[str, int] = {}
        for report in reports:
            vertex = report.part.vertex
            passed[vertex] = min(passed.get(vertex, report.passed_epoch), report.passed_epoch)
        for vertex, epoch in passed.items():
            self.committed[vertex] = max(epoch, self.committed.get(vertex, -1))

    def on_published(self, now_s: float) -> SnapshotStatistics:
        """The manifest is in the store: the attempt is a snapshot."""
        attempt = self._pending
        assert attempt is not None
        self._pending = None
        self.published = attempt.barrier.slot
        self.base = attempt.barrier.number
        self.given_up_in_a_row = 0
        reports = list(attempt.reports.values())
        self._commit(reports)
        fresh = [*self._left, *(staged for report in reports for staged in report.staged)]
        self._staged.extend(staged for staged in fresh if staged.sink in self._finally)
        self._left.clear()
        self.last = SnapshotStatistics(
            attempt.barrier.slot,
            attempt.kind,
            now_s - attempt.began_s,
            max((report.pause_s for report in reports), default=0.0),
            max((report.cost_s for report in reports), default=0.0),
            sum(report.written_bytes for report in reports),
            sum(report.part.state_bytes for report in reports),
            sum(report.incremental for report in reports),
            self.interval_s,
        )
        self.estimator.on_snapshot(self.last.cost_s)
        return self.last

    def on_time(self, now_s: float) -> None:
        """For the failure rate: so much time has passed."""
        self.estimator.on_time(max(0.0, now_s - self._looked_s))
        self._looked_s = now_s


def _told(replicas: Sequence[ReplicaName]) -> str:
    more = f" and {len(replicas) - TOLD_MAX} more" if len(replicas) > TOLD_MAX else ""
    return ", ".join(f"{name!r}[{replica}]" for name, replica in replicas[:TOLD_MAX]) + more


def merge_from(counts: Sequence[float]) -> int | None:
    """From which on files of so many staged values, in their order, should be merged into one; None: not yet.

    As in a log-structured store: MERGE_AT files of a size become one of the next size, so n values are in about MERGE_AT * log(n) files,
    and each was written log(n) times.

    >>> merge_from([1] * (MERGE_AT - 1)), merge_from([1] * MERGE_AT), merge_from([MERGE_AT] * (MERGE_AT - 1) + [1] * MERGE_AT)
    (None, 0, 0)
    >>> merge_from([MERGE_AT, MERGE_AT] + [1] * MERGE_AT)
    2
    """
    start, limit = len(counts), MERGE_AT
    while True:
        first = start
        while first and counts[first - 1] < limit:
            first -= 1
        files = start - first + (start < len(counts))  # what is merged already counts as one
        if files < MERGE_AT:
            return start if start < len(counts) else None
        start, limit = first, limit * MERGE_AT


__all__ = ["MERGE_AT", "Ack", "SnapshotAttempts", "PartReport", "ReplicaName", "SnapshotStatistics", "merge_from"]
