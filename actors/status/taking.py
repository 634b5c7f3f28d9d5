"""From what actors tell to a :class:`JobStatus`. Pure: the shells collect reports, readings and views, and give the clock.

Rates are differences of two readings, which are cumulative: the readings of one call are kept for the calls that follow, so that
several viewers share them. The lag by the clock needs to know when the sources left an epoch; that is known to the distance of two calls.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rayad.actors.lead.job_leader import JobState
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.status.job_status import EdgeStatus, JobStatus, ReplicaStatus, SnapshotStatus, VertexStatus
from rayad.actors.status.silent import Silent
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.autoscale import JobSample, ReplicaReading, sample_between
from rayad.autoscale.samples import ReplicaSample
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.operators.bad_records import SetAside
from rayad.dataflow.operators.state.live import tables_of
from rayad.dataflow.plan import Plan, Stage
from rayad.progress import ProtocolError, Timestamp
from rayad.snapshots.attempts import SnapshotStatistics

WINDOW_LEAST_S = 1.0
"""Rates are means over at least so long, once two readings are so far apart; and, while somebody looks, over little more."""
STARTS_KEPT = 1_000
"""The moments at which the sources left an epoch are kept for so many epochs."""

View = tuple[Sequence[Timestamp], Sequence[Timestamp]]
"""Of one stage: the minimal times that can still arrive, and those of notifications (of a source: that it can still send)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a shell has collected at one moment; ``readings`` in the order of nothing, of a silent replica the last one, or none."""

    state: JobState
    now_s: float
    reports: Iterable[ReplicaReport] = ()
    readings: Sequence[ReplicaReading] = ()
    views: Mapping[int, Sequence[Sequence[Timestamp]]] | None = None
    active: int = 0
    failures: int = 0
    snapshot: SnapshotStatistics | None = None
    snapshot_age_s: float | None = None
    snapshot_interval_s: float | None = None
    silent: tuple[Silent, ...] = ()
    events: int = 0
    snapshots_late: SnapshotsLate | None = None


class StatusTaker:
    """Takes one status after the other of one job; not from two threads at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept: deque[tuple[float, tuple[ReplicaReading, ...]]] = deque()
        self._tables: dict[int, tuple[str, ...]] = {}  # by stage
        self._left: deque[tuple[int, float]] = deque(maxlen=STARTS_KEPT)  # (e, t): at t no source was in an epoch before e

    def take(self, plan: Plan, seen: Seen) -> JobStatus:
        """The status, from what is seen now and what was seen before."""
        sample = self._sample(seen)
        views = seen.views if seen.views is not None else {}
        starts = {stage.id: _epoch(views[stage.id][1]) for stage in plan.stages if _is_start(stage) and stage.id in views}
        slowest = self._note_starts(starts, seen.now_s)
        reports = {(report.name, report.replica): report for report in seen.reports}
        readings = {(reading.vertex, reading.replica): reading for reading in seen.readings}
        silent = {one.who for one in seen.silent if one.activity is None}
        vertices = []
        for stage in plan.stages:
            found = sample.vertices.get(stage.name) if sample is not None else None
            samples = {one.replica: one for one in found.replicas} if found is not None else {}
            replicas = tuple(
                _replica(r, reports.get(at), readings.get(at), samples.get(r), plan.title(stage.id, r) not in silent)
                for r in range(stage.parallelism)
                for at in [(stage.name, r)]
            )
            vertex = self._vertex(stage, replicas, views.get(stage.id), starts, slowest, seen.now_s)
            counted = _figures(report for (name, _), report in reports.items() if name == stage.name)
            if stage.id not in self._tables:
                self._tables[stage.id] = tables_of(stage.op, stage.depth)
            tables = self._tables[stage.id]
            vertices.append(replace(vertex, steps=plan.steps_shown(stage), title=plan.called(stage.id), figures=counted, tables=tables))
        complete = self._complete(vertices)
        age_s = self._since(complete, slowest, seen.now_s) if complete is not None and slowest is not None else None
        titles = {stage.id: stage.name for stage in plan.stages}
        edges = tuple(EdgeStatus(titles[edge.source], titles[edge.target], edge.is_feedback) for edge in plan.edges)
        window_s = sample.duration_s if sample is not None else 0.0
        return JobStatus(
            self._name, seen.state, seen.now_s, window_s, tuple(vertices), edges, seen.active, seen.failures,
            _newest(seen), seen.snapshot_interval_s, seen.silent, seen.events, seen.snapshots_late, _set_aside(reports.values()),
            complete, age_s,
        )  # fmt: skip

    def _sample(self, seen: Seen) -> JobSample | None:
        """What happened since the newest readings that are old enough; of a replica without such, since it started."""
        kept, now = self._kept, tuple(seen.readings)
        if not now:
            return None
        while len(kept) > 1 and seen.now_s - kept[1][0] >= WINDOW_LEAST_S:
            kept.popleft()
        before = kept[0][1] if kept and seen.now_s - kept[0][0] >= WINDOW_LEAST_S else ()
        try:
            sample = sample_between(before, now)
        except ProtocolError:  # a recovery: the counts of an incarnation that is over
            kept.clear()
            sample = sample_between((), now)
        if not kept or seen.now_s - kept[-1][0] >= WINDOW_LEAST_S / 2:
            kept.append((seen.now_s, now))
        return sample

    def _note_starts(self, starts: Mapping[int, int | None], now_s: float) -> int | None:
        """The epoch of the slowest source; when all have ended, the one after the last; None where nothing is known."""
        if not starts:
            return None
        open_epochs = [epoch for epoch in starts.values() if epoch is not None]
        slowest = min(open_epochs) if open_epochs else (self._left[-1][0] if self._left else 0)
        if not self._left or slowest > self._left[-1][0]:
            self._left.append((slowest, now_s))
        elif slowest < self._left[-1][0]:  # a recovery: they are in an earlier epoch again
            self._left.clear()
            self._left.append((slowest, now_s))
        return slowest

    def _vertex(
        self,
        stage: Stage,
        replicas: tuple[ReplicaStatus, ...],
        view: Sequence[Sequence[Timestamp]] | None,
        starts: Mapping[int, int | None],
        slowest: int | None,
        now_s: float,
    ) -> VertexStatus:
        if view is None:
            return VertexStatus(stage.name, stage.where, _is_start(stage), replicas)
        frontier, pending = tuple(view[0]), tuple(view[1])
        if _is_start(stage):
            frontier, pending = pending, ()
        lag_epochs, lag_s = None, None
        epoch = _epoch((*frontier, *pending))
        if epoch is not None and slowest is not None:
            ahead = max((e for e in starts.values() if e is not None), default=epoch) if _is_start(stage) else slowest
            lag_epochs = max(0, ahead - epoch)
            lag_s = 0.0 if _is_start(stage) else self._since(epoch, slowest, now_s)
        return VertexStatus(stage.name, stage.where, _is_start(stage), replicas, frontier, pending, lag_epochs, lag_s)

    def _complete(self, vertices: Sequence[VertexStatus]) -> int | None:
        """The newest epoch of which nothing can come any more, anywhere."""
        epochs = [_epoch((*vertex.frontier, *vertex.pending)) for vertex in vertices if vertex.frontier is not None]
        still_open = min((epoch for epoch in epochs if epoch is not None), default=None)
        return still_open - 1 if still_open else None

    def _since(self, epoch: int, slowest: int, now_s: float) -> float | None:
        """How long all sources have been beyond an epoch; None where that was before what is kept."""
        if slowest <= epoch:
            return 0.0
        at_s = next((at_s for left, at_s in self._left if left > epoch), None)
        return max(0.0, now_s - at_s) if at_s is not None else None


def _newest(seen: Seen) -> SnapshotStatus | None:
    newest = seen.snapshot
    if newest is None:
        return None
    return SnapshotStatus(newest.number, newest.kind, seen.snapshot_age_s, newest.took_s, newest.total_bytes, newest.written_bytes)


def _set_aside(reports: Iterable[ReplicaReport]) -> tuple[SetAside, ...]:
    """By operator, of all replicas together."""
    found: dict[str, SetAside] = {}
    for one in (one for report in reports for one in report.set_aside):
        before = found.get(one.operator)
        found[one.operator] = one if before is None else replace(one, count=before.count + one.count)
    return tuple(found[name] for name in sorted(found))


def _figures(reports: Iterable[ReplicaReport]) -> dict[str, int]:
    """Of all replicas together."""
    counted = Counter[str]()
    for report in reports:
        counted.update(report.figures)
    return dict(counted)


def _is_start(stage: Stage) -> bool:
    return stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)


def _epoch(times: Sequence[Timestamp]) -> int | None:
    return min((time.epoch for time in times), default=None)


def _replica(
    number: int, report: ReplicaReport | None, reading: ReplicaReading | None, sample: ReplicaSample | None, answers: bool
) -> ReplicaStatus:
    status = ReplicaStatus(number, answers=answers and report is not None)
    if report is not None:
        status = replace(status, node=report.node, pid=report.pid, records_in=report.records_in, amounts_read=report.amounts_read)
    if reading is not None:
        status = replace(status, backlog_batches=reading.queue_batches, backlog_bytes=reading.queue_bytes)
        status = replace(status, backlog_outside=reading.backlog_items, state_bytes=reading.state_bytes)
    if sample is not None and sample.duration_s > 0:
        shares = {name: getattr(sample, name) for name in ("busy_share", "idle_share", "backpressured_share", "queued_share")}
        status = replace(status, rate_in=sample.observed_rate, rate_out=sample.items_out / sample.duration_s, **shares)
    return status
