"""What a replica reports of itself."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace

from rayad.actors.plane.protocol import is_driver
from rayad.actors.process.activity import Activity
from rayad.actors.replica.report import ReplicaReport, Waits
from rayad.actors.worker.snapshots import HostSnapshots
from rayad.actors.worker.workplace import Workplace
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.plan import Plan, Stage, sinks_of


def note_counts(place: Workplace, snapshots: HostSnapshots | None = None) -> ReplicaReport:
    """What a replica has done and what waits; called in its event loop."""
    core, report, arrived = place.core, place.report, place.arrived
    report.batches_in, report.records_in, report.batches_out = core.batches_in, core.records_in, core.batches_out
    gated = core.gate.waiting.spilled_batches if core.gate is not None else 0
    sent = core.outputs.outbox.bound
    out = place.sender.spilled_batches + (sent.spilled_batches if sent is not None else 0)
    report.spilled_batches = arrived.feedback.spilled_batches + out + core.parked.spilled_batches + gated
    report.spill_memory_bytes_peak = arrived.feedback.memory_bytes_peak
    report.waiting = [f"notification for {n.guarantee}" for n in core.notificator.pending()]
    if arrived.regular or arrived.input:
        report.waiting.append(f"{len(arrived.regular) + len(arrived.input)} batches not yet consumed")
    if len(arrived.feedback):
        report.waiting.append(
            f"{len(arrived.feedback)} batches that came round a loop, {arrived.feedback.spilled_batches} so far through the disk"
        )
    if len(core.parked):
        report.waiting.append(f"{len(core.parked)} batches wait for their time, {core.parked.spilled_batches} so far through the disk")
    report.waiting.extend(place.sender.describe())
    report.held_up_s = place.held_up_s
    if core.is_paced:
        report.waiting.append(f"{len(core.pace.begun)} epochs begun, of which none is complete behind it (RunConfig.epochs_ahead)")
    if core.input.epoch is not None:
        report.waiting.append(f"live input open in epoch {core.input.epoch}")
    report.waiting.extend(f"lost connection: {peer}" for peer in place.worker.lost)
    report.sinks = sinks_written(place.plan, place.stage)
    report.set_aside = core.outputs.bad_records()
    report.figures = core.vertex.figures() if isinstance(core.vertex, KeyedVertex) else {}
    report.waits = _waits(place, snapshots)
    report.amounts_read = core.amounts_read
    return report


def sinks_written(plan: Plan, stage: Stage) -> tuple[str, ...]:
    """The sinks that a stage writes to."""
    return tuple(plan.sink_by_id[sink].key for sink in sorted(sinks_of(stage.steps)))


def _waits(place: Workplace, snapshots: HostSnapshots | None) -> Waits:
    core, arrived, plan = place.core, place.arrived, place.plan
    number, aligning_s, missing = snapshots.aligning() if snapshots is not None else (None, 0.0, ())
    sent = core.outputs.outbox.bound
    on_disk = arrived.feedback.disk_bytes + place.sender.disk_bytes + (sent.disk_bytes if sent is not None else 0)
    directory = place.config.spill_directory or tempfile.gettempdir()
    return Waits(
        queued=len(arrived.regular) + len(arrived.input),
        looped=len(arrived.feedback),
        notifications=tuple(n.guarantee for n in core.notificator.pending()),
        no_credit=tuple(
            ((plan.stage(stage).name, replica), batches) for (stage, replica), batches in place.sender.without_credit().items()
        ),
        lost=tuple((place.places.title(peer, plan), for_s) for peer, for_s in place.link.broken().items() if not is_driver(peer)),
        input_epoch=core.input.epoch,
        input_idle_s=place.clock.monotonic() - place.input_at_s if place.input_at_s is not None else None,
        aligning=number,
        aligning_s=aligning_s,
        missing=tuple(sorted({(plan.stage(place.edges[edge].source).name, replica) for edge, replica in missing})),
        spilled_bytes=on_disk,
        spill_free_bytes=_free_bytes(directory) if on_disk else None,
        spill_directory=directory if on_disk else "",
    )


def _free_bytes(directory: str) -> int | None:
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def counts_from_outside(place: Workplace, activity: Activity | None) -> ReplicaReport:
    """A replica's report made by another thread while the event loop is busy: it says what the loop is busy with, not what waits."""
    core = place.core
    waiting = [f"does not answer: its event loop is busy with {activity}" if activity is not None else "does not answer"]
    return replace(
        place.report,
        batches_in=core.batches_in,
        records_in=core.records_in,
        batches_out=core.batches_out,
        waiting=waiting,
        activity=activity,
        sinks=sinks_written(place.plan, place.stage),
        set_aside=core.outputs.bad_records(),
    )


__all__ = ["counts_from_outside", "note_counts"]
