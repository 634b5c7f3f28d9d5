"""Attempts at snapshots of a local job that a test begins and gives up itself."""

from __future__ import annotations

from rayad.actors.lead.snapshot_leader import PartFailed
from rayad.actors.local.local_job import LocalJob
from rayad.snapshots.barrier import Barrier


def may_begin(job: LocalJob) -> bool:
    """Whether an attempt may begin now."""
    snapshots = job.snapshots
    return snapshots is not None and snapshots.is_ready and snapshots.leader.may_begin


def begin(job: LocalJob, kind: str = "snapshot", *, unaligned: bool | None = None) -> Barrier:
    """Start an attempt now."""
    snapshots = job.snapshots
    assert snapshots is not None
    snapshots.carry_out(snapshots.leader.begin(job.now_s(), kind=kind, unaligned=unaligned))
    pending = snapshots.leader.snapshots.pending
    assert pending is not None
    return pending


def give_up(job: LocalJob, why: str) -> None:
    """End the pending attempt without a snapshot."""
    snapshots = job.snapshots
    assert snapshots is not None
    pending = snapshots.leader.snapshots.pending
    if pending is not None:
        snapshots.tell(PartFailed(pending.number, why))


__all__ = ["begin", "give_up", "may_begin"]
