"""What a replica host reports of itself."""

from __future__ import annotations

from dataclasses import replace

from rayad.actors.host.workplace import Workplace
from rayad.actors.process.activity import Activity
from rayad.actors.replica.report import ReplicaReport


def note_counts(place: Workplace) -> ReplicaReport:
    """What a replica has done and what waits; called in its event loop."""
    core, report, arrived = place.core, place.report, place.arrived
    report.batches_in, report.records_in, report.batches_out = core.batches_in, core.records_in, core.batches_out
    gated = core.gate.waiting.spilled_batches if core.gate is not None else 0
    report.spilled_batches = arrived.feedback.spilled_batches + place.sender.spilled_batches + core.parked.spilled_batches + gated
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
    if core.input_epoch is not None:
        report.waiting.append(f"live input open in epoch {core.input_epoch}")
    report.waiting.extend(f"lost connection: {peer}" for peer in place.lost)
    return report


def counts_from_outside(place: Workplace, activity: Activity | None) -> ReplicaReport:
    """The same as far as another thread can see it while the loop is busy: what the loop is busy with, instead of what waits."""
    core = place.core
    waiting = [f"does not answer: its event loop is busy with {activity}" if activity is not None else "does not answer"]
    return replace(
        place.report,
        batches_in=core.batches_in,
        records_in=core.records_in,
        batches_out=core.batches_out,
        waiting=waiting,
        activity=activity,
    )


__all__ = ["counts_from_outside", "note_counts"]
