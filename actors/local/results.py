"""What a job of the local runtime tells of itself: progress, whether it is over, results."""

from __future__ import annotations

from typing import Any

from rayad.actors.job import JobProgress, JobState, JobStatistics, JobStatus, Result, StageProgress
from rayad.actors.local.network import Network
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.local.statistics import readings_of
from rayad.actors.plane.protocol import replica_name
from rayad.actors.replica.recent import News
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.replica.user_errors import raise_located
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.actors.status.taking import Seen, StatusTaker
from rayad.actors.status.updates import ReadSoFar
from rayad.dataflow.plan import Plan


def progress_of(state: JobState, network: Network, kept: LocalSnapshots | None) -> JobProgress:
    """Frontiers and counts now."""
    stages = []
    for stage in network.plan.stages:
        view = network.tracker.view(stage.id)
        cores = [network.cores[stage.id, replica] for replica in range(stage.parallelism)]
        stages.append(
            StageProgress(
                stage.name,
                view.input_frontier,
                view.notify_frontier,
                sum(c.batches_in for c in cores),
                sum(c.records_in for c in cores),
                len(cores),
            )
        )
    active = len(network.tracker.active())
    if kept is None:
        return JobProgress(state, tuple(stages), active)
    newest = kept.taken[-1] if kept.taken else None
    return JobProgress(state, tuple(stages), active, newest, kept.snapshots.interval_s, kept.failures, snapshots_late=_late(kept))


def _late(kept: LocalSnapshots) -> SnapshotsLate | None:
    """Of snapshots that fail; nothing takes long in a runtime whose clock is its steps."""
    failing, newest = kept.leader.failing, kept.taken[-1].number if kept.taken else None
    return SnapshotsLate(failing.attempts, why=failing.why, newest=newest) if failing is not None else None


def seen_of(state: JobState, network: Network, kept: LocalSnapshots | None, events: int) -> Seen:
    """What can be seen of the job now; the clock counts its steps."""
    if state is not JobState.RUNNING:
        return Seen(state, network.steps, events=events)
    views = {stage.id: network.tracker.view(stage.id)[:2] for stage in network.plan.stages}
    reports = [
        ReplicaReport(
            core.stage.name,
            replica,
            batches_in=core.batches_in,
            records_in=core.records_in,
            set_aside=core.outputs.bad_records(),
            amounts_read=core.amounts_read,
        )
        for (_, replica), core in network.cores.items()
    ]
    newest = kept.taken[-1] if kept is not None and kept.taken else None
    interval_s, failures = (kept.snapshots.interval_s, kept.failures) if kept is not None else (None, 0)
    active = len(network.tracker.active())
    late = _late(kept) if kept is not None else None
    found = (reports, readings_of(network), views, active, failures, newest, None, interval_s)
    return Seen(state, network.steps, *found, events=events, snapshots_late=late)


def status_of(name: str, state: JobState, network: Network, kept: LocalSnapshots | None, taker: StatusTaker, events: int) -> JobStatus:
    """What is known of the job; the clock counts its steps."""
    if state is not JobState.RUNNING:
        return JobStatus(name, state, network.steps)
    return taker.take(network.plan, seen_of(state, network, kept, events))


def only_a_snapshot_goes_on(network: Network) -> bool:
    """Whether the dataflow is complete and a snapshot is not: the last one takes its place.

    Else a job whose snapshots follow each other would never end.
    """
    if not network.tracker.is_complete():
        return False
    moving = {kind for kind, at in network.ready.items if kind != "batch" or any(time is not None for time, _, _ in network.channels[at])}
    return moving.isdisjoint(("batch", "report", "view", "flush", "source", "input"))


def publish_sinks(network: Network) -> dict[int, Any]:
    """Without snapshots: everything is published once, at the end."""
    staged: dict[int, list[Any]] = {sink.id: [] for sink in network.plan.sinks}
    for sink_id, part in [*network.retired.staged, *(entry for core in network.cores.values() for entry in core.stage_sinks().items())]:
        staged[sink_id].append(part)
    receipts = {}
    for sink in network.plan.sinks:
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


def result_of(network: Network, kept: LocalSnapshots | None, receipts: dict[int, Any], run_s: float) -> Result:
    """What a complete job gives, and what it did."""
    stages = {
        s.name: {
            "replicas": s.parallelism,
            "batches_in": sum(network.cores[s.id, r].batches_in for r in range(s.parallelism)) + network.retired.batches.get(s.id, 0),
            "records_in": sum(network.cores[s.id, r].records_in for r in range(s.parallelism)),
        }
        for s in network.plan.stages
    }
    scopes = {str(scope): count for scope, count in network.tracker.scope_updates().items()}
    taken, failures = (tuple(kept.taken), kept.failures) if kept is not None else ((), 0)
    return Result(results_of(network.plan, receipts), JobStatistics(0.0, run_s, 0, stages, scopes, taken, failures))


def news_of(network: Network, key: str, seen: ReadSoFar) -> dict[str, News]:
    """By replica: what was written to a sink and is not seen. A replica that was built anew is another object."""
    out = {}
    sinks = [sink.id for sink in network.plan.sinks if sink.key == key]
    for (stage, replica), core in network.cores.items():
        for sink in sinks:
            recent = core.outputs.recent.get(sink)
            if recent is not None:
                name, life = replica_name(stage, replica), id(recent)
                out[name] = recent.unseen(seen.get(name), life)
    return out
