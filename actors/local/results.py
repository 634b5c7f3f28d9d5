"""What a job of the local runtime tells of itself: progress, whether it is over, results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayad.actors.job import JobProgress, JobStatistics, Result, StageProgress
from rayad.actors.replica.user_errors import raise_located
from rayad.dataflow.plan import Plan

if TYPE_CHECKING:
    from rayad.actors.local.local_job import LocalJob


def progress_of(job: LocalJob) -> JobProgress:
    """Frontiers and counts now."""
    stages = []
    for stage in job.plan.stages:
        view = job.tracker.view(stage.id)
        cores = [job.cores[stage.id, replica] for replica in range(stage.parallelism)]
        stages.append(
            StageProgress(
                stage.name,
                view.input_frontier,
                view.notify_frontier,
                sum(c.batches_in for c in cores),
                sum(c.records_in for c in cores),
            )
        )
    active = len(job.tracker.active())
    if job.snapshots is None:
        return JobProgress(job.state, tuple(stages), active)
    kept = job.snapshots
    newest = kept.taken[-1] if kept.taken else None
    return JobProgress(job.state, tuple(stages), active, newest, kept.snapshots.interval_s, kept.failures)


def only_a_snapshot_goes_on(job: LocalJob) -> bool:
    """Whether the dataflow is complete and a snapshot is not: the last one takes its place.

    Else a job whose snapshots follow each other would never end.
    """
    if job.snapshots is None or not job.tracker.is_complete():
        return False
    moving = {kind for kind, at in job._ready.items if kind != "batch" or any(time is not None for time, _ in job.channels[at])}
    return moving.isdisjoint(("batch", "report", "view", "flush", "source", "input"))


def publish_sinks(job: LocalJob) -> dict[int, Any]:
    """Without snapshots: everything is published once, at the end."""
    staged: dict[int, list[Any]] = {sink.id: [] for sink in job.plan.sinks}
    for sink_id, part in [*job.retired.staged, *(entry for core in job.cores.values() for entry in core.stage_sinks().items())]:
        staged[sink_id].append(part)
    receipts = {}
    for sink in job.plan.sinks:
        try:
            receipts[sink.id] = sink.sink.publish(staged[sink.id])
        except Exception as error:
            raise_located(f"sink {sink.key!r} ({sink.where}) failed in publish", error)
    return receipts


def results_of(plan: Plan, receipts: dict[int, Any]) -> dict[str, Any]:
    """What the sinks make of their receipts, by the sinks' keys."""
    values = {}
    for sink in plan.sinks:
        try:
            values[sink.key] = sink.sink.result(receipts[sink.id])
        except Exception as error:
            raise_located(f"sink {sink.key!r} ({sink.where}) failed in publish", error)
    return values


def result_of(job: LocalJob, receipts: dict[int, Any], run_s: float) -> Result:
    """What a complete job gives, and what it did."""
    stages = {
        s.name: {
            "replicas": s.parallelism,
            "batches_in": sum(job.cores[s.id, r].batches_in for r in range(s.parallelism)) + job.retired.batches.get(s.id, 0),
            "records_in": sum(job.cores[s.id, r].records_in for r in range(s.parallelism)),
        }
        for s in job.plan.stages
    }
    scopes = {str(scope): count for scope, count in job.tracker.scope_updates().items()}
    kept = job.snapshots
    taken, failures = (tuple(kept.taken), kept.failures) if kept is not None else ((), 0)
    return Result(results_of(job.plan, receipts), JobStatistics(0.0, run_s, 0, stages, scopes, taken, failures))
