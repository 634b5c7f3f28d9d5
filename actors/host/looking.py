"""What a replica host tells of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rayad.actors.plane.protocol import replica_name
from rayad.actors.replica.report import ReplicaReport

if TYPE_CHECKING:
    from rayad.actors.host.replica_host import ReplicaHost


def note_counts(host: ReplicaHost) -> ReplicaReport:
    """What a replica has done and what waits; in its loop."""
    core, report = host.core, host.report
    report.batches_in, report.records_in, report.batches_out = core.batches_in, core.records_in, core.batches_out
    gated = core.gate.waiting.spilled_batches if core.gate is not None else 0
    report.spilled_batches = host._feedback.spilled_batches + host._out.spilled_batches + core.parked.spilled_batches + gated
    report.spill_memory_bytes_peak = host._feedback.memory_bytes_peak
    report.waiting = [f"notification for {n.guarantee}" for n in core.notificator.pending()]
    if host._regular or host._input:
        report.waiting.append(f"{len(host._regular) + len(host._input)} batches not yet consumed")
    if len(host._feedback):
        report.waiting.append(
            f"{len(host._feedback)} batches that came round a loop, {host._feedback.spilled_batches} so far through the disk"
        )
    if len(core.parked):
        report.waiting.append(f"{len(core.parked)} batches wait for their time, {core.parked.spilled_batches} so far through the disk")
    report.waiting.extend(host._out.describe())
    report.held_up_s = host._out.held_up_s
    if core.input_epoch is not None:
        report.waiting.append(f"live input open in epoch {core.input_epoch}")
    report.waiting.extend(f"lost connection: {peer}" for peer in host._lost)
    return report


def counts_from_outside(host: ReplicaHost) -> ReplicaReport:
    """The same as far as it can be seen without the loop, which is busy: with what it is busy instead of what waits."""
    core, activity = host.core, host.activity()
    waiting = [f"does not answer: its event loop is busy with {activity}" if activity is not None else "does not answer"]
    return replace(
        host.report,
        batches_in=core.batches_in,
        records_in=core.records_in,
        batches_out=core.batches_out,
        waiting=waiting,
        activity=activity,
    )


def peers_of(host: ReplicaHost) -> set[str]:
    """Whom a replica exchanges batches with."""
    mine = host.stage.id
    out: set[str] = set()
    for edge in host.plan.edges:
        for other, own in ((edge.target, edge.source), (edge.source, edge.target)):
            if own == mine:
                out.update(replica_name(other, i) for i in range(host.plan.stage(other).parallelism))
    out.discard(host.name)
    return out


__all__ = ["counts_from_outside", "note_counts", "peers_of"]
