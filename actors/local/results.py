"""What a job of the local runtime tells of itself: progress, what is known of it, why it does not move, results."""

from __future__ import annotations

from typing import Any

from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.job import JobProgress, JobState, JobStatistics, JobStatus, Result, StageProgress, describe_blockers
from rayad.actors.lead.diagnosis import Facts, diagnose, sentences, stamps_of
from rayad.actors.local.runtime import LocalRuntime
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.recent import News
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.replica.user_errors import raise_located
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.actors.status.taking import Seen, StatusTaker
from rayad.actors.status.updates import ReadSoFar
from rayad.autoscale.statistics import ReplicaReading
from rayad.dataflow.plan import Plan


def readings_of(runtime: LocalRuntime) -> list[ReplicaReading]:
    """A reading of every replica, cumulative since it began or resumed from a snapshot, by the workers' virtual clock."""
    return [
        host.statistics.reading(host.statistics.ask_source() if host.statistics.has_backlog else None) for host in runtime.processes.hosts()
    ]


def progress_of(runtime: LocalRuntime) -> JobProgress:
    """Frontiers and counts now."""
    kept, tracker, reports = runtime.snapshots, runtime.processes.progress.tracker, runtime.processes.reports()
    stages = []
    for stage in runtime.plan.stages:
        view = tracker.view(stage.id)
        mine = [report for at, report in reports.items() if at.stage == stage.id]
        batches, records = sum(report.batches_in for report in mine), sum(report.records_in for report in mine)
        stages.append(StageProgress(stage.name, view.input_frontier, view.notify_frontier, batches, records, stage.parallelism))
    active = len(tracker.active())
    if kept is None:
        return JobProgress(runtime.state, tuple(stages), active)
    newest, interval_s = kept.newest, kept.interval_s
    return JobProgress(runtime.state, tuple(stages), active, newest, interval_s, runtime.job.failures, snapshots_late=_late(kept))


def _late(kept: CoordinatorSnapshots) -> SnapshotsLate | None:
    """Of snapshots that fail; nothing takes long in a runtime whose clock is virtual."""
    failing, newest = kept.leader.failing, kept.leader.newest
    return SnapshotsLate(failing.attempts, why=failing.why, newest=newest.number if newest else None) if failing is not None else None


def seen_of(runtime: LocalRuntime) -> Seen:
    """What can be seen of the job now; seconds are those of the virtual clock."""
    state, now_s, events, kept = runtime.state, runtime.clock_s, runtime.journal.noted, runtime.snapshots
    if state is not JobState.RUNNING:
        return Seen(state, now_s, events=events)
    tracker = runtime.processes.progress.tracker
    views = {stage.id: tracker.view(stage.id)[:2] for stage in runtime.plan.stages}
    reports = list(runtime.processes.reports().values())
    interval_s, failures, newest = (kept.interval_s, runtime.job.failures, kept.newest) if kept is not None else (None, 0, None)
    found = (reports, readings_of(runtime), views, len(tracker.active()), failures, newest, None, interval_s)
    return Seen(state, now_s, *found, events=events, snapshots_late=_late(kept) if kept is not None else None)


def status_of(runtime: LocalRuntime, taker: StatusTaker) -> JobStatus:
    """What is known of the job."""
    if runtime.state is not JobState.RUNNING:
        return JobStatus(runtime.name, runtime.state, runtime.clock_s)
    return taker.take(runtime.plan, seen_of(runtime))


def open_inputs(runtime: LocalRuntime) -> list[str]:
    """The live inputs that are not closed."""
    hosts = {host.place.at: host for host in runtime.processes.hosts()}
    return [name for name, stage in runtime.plan.inputs.items() if hosts[ReplicaId(stage, 0)].core.input.epoch is not None]


def explain(runtime: LocalRuntime) -> str:
    """Why nothing moves."""
    plan, processes = runtime.plan, runtime.processes
    tracker, reports = processes.progress.tracker, processes.reports()
    facts = Facts({(report.name, report.replica): report for report in reports.values()}, stamps_of(tracker, plan))
    parts = [sentences(diagnose(facts), "is not known to wait for anything")]
    describe = plan.progress.describe_location
    for host in processes.hosts():
        who = f"{host.core.name}[{host.place.replica}]"
        for notification in host.core.notificator.pending():
            time = notification.guarantee
            blockers = [(describe(location), when, count) for location, when, count in tracker.blockers(host.place.stage.id, time)]
            parts.append(describe_blockers(who, time, blockers))
        parts.extend(f"{who}: {line}" for line in reports[host.place.at].waiting)
    parts.extend(f"{len(frames)} frames wait from {way[0]} to {way[1]}" for way, frames in processes.bus.ways.items())
    parts.extend(f"input {name!r} is open" for name in open_inputs(runtime))
    if runtime.rescaling is not None:
        parts.append(runtime.rescaling.explain())
    return "\n".join(filter(None, parts))


def results_of(plan: Plan, receipts: dict[int, Any]) -> dict[str, Any]:
    """What the sinks make of their receipts, by the sinks' keys."""
    values = {}
    for sink in plan.sinks:
        try:
            values[sink.key] = sink.sink.result(receipts[sink.id])
        except Exception as error:
            raise_located(f"sink {sink.key!r} ({sink.where}) failed in publish", error)
    return values


def statistics_of(runtime: LocalRuntime, run_s: float) -> JobStatistics:
    """What a job did that ends now."""
    kept, reports = runtime.snapshots, runtime.processes.reports()
    retired: dict[str, list[ReplicaReport]] = {}
    for _, left in runtime.job.left:
        retired.setdefault(left.report.name, []).append(left.report)
    there: dict[int, list[ReplicaReport]] = {}
    for at, report in reports.items():
        there.setdefault(at.stage, []).append(report)
    stages = {}
    for stage in runtime.plan.stages:
        mine = there.get(stage.id, [])
        stages[stage.name] = {
            "replicas": stage.parallelism,
            "batches_in": sum(report.batches_in for report in (*mine, *retired.get(stage.name, ()))),
            "records_in": sum(report.records_in for report in mine),
        }
    scopes = {str(scope): count for scope, count in runtime.processes.progress.tracker.scope_updates().items()}
    taken = tuple(kept.taken) if kept is not None else ()
    return JobStatistics(0.0, run_s, 0, stages, scopes, taken, runtime.job.failures)


def result_of(runtime: LocalRuntime, statistics: JobStatistics) -> Result:
    """What a complete job gives."""
    return Result(results_of(runtime.plan, runtime.receipts), statistics)


def news_of(runtime: LocalRuntime, key: str, seen: ReadSoFar) -> dict[str, News]:
    """By replica: what was written to a sink and is not seen."""
    found = {host.name: host.updates(key, seen.get(host.name)) for host in runtime.processes.hosts()}
    return {name: news for name, news in found.items() if news is not None}


__all__ = [
    "explain",
    "news_of",
    "open_inputs",
    "progress_of",
    "readings_of",
    "result_of",
    "results_of",
    "seen_of",
    "statistics_of",
    "status_of",
]
