"""Recovery upstream of a failure in the local runtime: the failed stages and those upstream of them begin anew, the others live on."""

from __future__ import annotations

from collections import deque
from typing import Any

from rayad.actors.local.network import Network
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.replica.upstream import Changes, Region, zeroing

OF_CHANNELS = ("batch", "overtake")
OF_THE_COORDINATOR = ("acknowledge", "publish", "commit")


def restart_upstream(network: Network, snapshots: LocalSnapshots, region: Region) -> bool:
    """Do it. The progress core sees one change: what was there of the region out, what its replicas hold now in.

    False when the whole graph has to be restarted.
    """
    given_up = snapshots.snapshots.pending
    manifest = snapshots.recover_upstream(region)
    if manifest is None:
        return False
    parts = snapshots.store.read(manifest, network.plan)
    living = [at for at in network.cores if at[0] not in region.stages]
    for at in living:
        network.move_out(at)  # else what it has consumed of the region would be taken off after the region's counts are gone
        while network.reports[at]:
            network.tracker.apply(network.reports[at].popleft())
    _clear(network, region)
    changes: Changes = zeroing(network.plan, network.tracker, region)
    for at in living:
        core = network.cores[at]
        if core.gate is not None:
            core.roll_back(region.edges, parts.get((core.name, at[1])))
        if given_up is not None:
            snapshots.participant(at).give_up(given_up.number)
            network.unblock(at)
    for stage in network.plan.stages:
        for replica in range(stage.parallelism) if stage.id in region.stages else ():
            at = (stage.id, replica)
            network.cores[at].close()
            core = network.new_core(stage, replica)
            resumed = parts.get((stage.name, replica))
            core.start(resumed)
            if resumed is not None:
                network.refill(at, resumed.rest["log"])
            network.begin(at)
    for at in [at for at in network.cores if at[0] in region.stages]:
        resumed = parts.get((network.cores[at].name, at[1]))
        if resumed is not None:
            network.refill_outbox(at, resumed.rest["outbox"])
    for at, core in network.cores.items():
        changes.extend(core.take_changes())
        network.subscribe(at)
    network.tracker.apply(changes)
    network.tracker.views()  # what has changed; everybody is given all
    for at in network.subscribed:
        network.views[at] = deque([network.tracker.view(at[0])])
        network.ready.add(("view", at))
    return True


def _clear(network: Network, region: Region) -> None:
    """Nothing of the region, and nothing on its way from it, is left."""
    for channel in list(network.channels):
        if network.edges[channel[0]].source in region.stages:
            del network.channels[channel]
    for event in list(network.ready.items):
        kind, at = event
        is_of_channel = kind in OF_CHANNELS
        is_gone = network.edges[at[0]].source in region.stages if is_of_channel else kind in OF_THE_COORDINATOR or at[0] in region.stages
        if is_gone or kind in ("report", "write", "view"):  # views of before are not true any more
            network.ready.discard(event)
    for waiting in (network.blocked, network.aligning):
        for at in list(waiting):
            kept: set[Any] = {event for event in waiting[at] if event[0] != "batch" or event[1] in network.channels}
            waiting[at] = set() if at[0] in region.stages else kept
    for at in network.cores:
        if at[0] in region.stages:
            network.reports[at], network.views[at] = deque(), deque()
            network.queued[at] = 0
