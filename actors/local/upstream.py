"""Recovery upstream of a failure in the local runtime: the failed stages and those upstream of them begin anew, the others live on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from rayad.actors.local.parts import new_core
from rayad.actors.replica.upstream import Changes, Region, zeroing
from rayad.actors.store.input_log import InputLog
from rayad.dataflow.graph import NodeKind

if TYPE_CHECKING:
    from rayad.actors.local.local_job import LocalJob

OF_CHANNELS = ("batch", "overtake")
OF_THE_COORDINATOR = ("acknowledge", "publish", "commit")


def restart_upstream(job: LocalJob, region: Region) -> bool:
    """Do it. The progress core sees one change: what was there of the region out, what its replicas hold now in.

    False when the whole graph has to be restarted.
    """
    snapshots = job.snapshots
    assert snapshots is not None
    given_up = snapshots.snapshots.pending
    manifest = snapshots.recover_upstream(region)
    if manifest is None:
        return False
    parts = snapshots.store.read(manifest, job.plan)
    living = [at for at in job.cores if at[0] not in region.stages]
    for at in living:
        job._move_out(at)  # else what it has consumed of the region would be taken off after the region's counts are gone
        while job.reports[at]:
            job.tracker.apply(job.reports[at].popleft())
    _clear(job, region)
    changes: Changes = zeroing(job.plan, job.tracker, region)
    for at in living:
        core = job.cores[at]
        if core.gate is not None:
            core.roll_back(region.edges, parts.get((core.name, at[1])))
        if given_up is not None:
            snapshots.participant(at).give_up(given_up.number)
            job._unblock(at)
    for stage in job.plan.stages:
        for replica in range(stage.parallelism) if stage.id in region.stages else ():
            at = (stage.id, replica)
            job.cores[at].close()
            core = new_core(job, stage, replica)
            resumed = parts.get((stage.name, replica))
            core.start(resumed)
            if resumed is not None:
                job._refill(at, resumed.rest["log"])
            if core.source is not None:
                job._ready.add(("source", at))
            if stage.kind is NodeKind.INPUT:
                log = job._input_log.setdefault(at, InputLog(core.input_frames))
                log.rewind(core.input_frames)
                if log.waits:
                    job._ready.add(("input", at))
    for at in [at for at in job.cores if at[0] in region.stages]:
        resumed = parts.get((job.cores[at].name, at[1]))
        for name, target, data in resumed.rest["outbox"] if resumed is not None else ():
            job._refill((job._edges[job._edge_ids[name]].target, target), [(name, at[1], data)])
    for at, core in job.cores.items():
        changes.extend(core.take_changes())
        if core.wants_views and at not in job._subscribed:
            job._subscribed.add(at)
            job.tracker.subscribe(at[0])
    job.tracker.apply(changes)
    job.tracker.views()  # what has changed; everybody is given all
    for at in job._subscribed:
        job.views[at] = deque([job.tracker.view(at[0])])
        job._ready.add(("view", at))
    return True


def _clear(job: LocalJob, region: Region) -> None:
    """Nothing of the region, and nothing on its way from it, is left."""
    for channel in list(job.channels):
        if job._edges[channel[0]].source in region.stages:
            del job.channels[channel]
    for event in list(job._ready.items):
        kind, at = event
        is_gone = job._edges[at[0]].source in region.stages if kind in OF_CHANNELS else kind in OF_THE_COORDINATOR or at[0] in region.stages
        if is_gone or kind in ("report", "write", "view"):  # views of before are not true any more
            job._ready.discard(event)
    for waiting in (job._blocked, job._aligning):
        for at in list(waiting):
            kept: set[Any] = {event for event in waiting[at] if event[0] != "batch" or event[1] in job.channels}
            waiting[at] = set() if at[0] in region.stages else kept
    for at in job.cores:
        if at[0] in region.stages:
            job.reports[at], job.views[at] = deque(), deque()
            job._queued[at] = 0
