"""The channels of a replica that keeps running while what is upstream of it restarts (see :mod:`rayad.actors.replica.upstream`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rayad.actors.plane.protocol import PROGRESS, Kind, pack_report
from rayad.actors.replica.input.source_parts import Resumable
from rayad.actors.worker.snapshots import HostSnapshots
from rayad.actors.worker.workplace import Workplace


def roll_back(
    place: Workplace,
    snapshots: HostSnapshots,
    edges: frozenset[int],
    peers: Mapping[str, Any],
    incarnation: int,
    part: Resumable | None,
    attempt: int,
) -> None:
    """The senders on ``edges`` are gone; ``peers``, the processes of their replicas, take their places. In the worker's loop.

    What this replica holds now is reported to the progress actor, to take effect together with what the new replicas register. What it told
    before of batches on ``edges`` is void there, so what is dropped here needs no change of its counts. Views sent before that still count
    work that has been rolled back, and are ignored.
    """
    assert snapshots.participant is not None
    snapshots.carry_out(snapshots.participant.give_up(attempt))
    snapshots.release()
    gone = {replica for process in peers for replica in place.places.replicas_at(process, place.plan)}
    sources = {edge.id: edge.source for edge in place.plan.edges}
    for queue in (place.arrived.regular, place.arrived.held):
        kept = [entry for entry in queue if (sources[entry[0]], entry[1]) not in gone]
        queue.clear()
        queue.extend(kept)
    place.arrived.restored = deque(entry for entry in place.arrived.restored if entry[0] not in edges)
    place.ends.forget_senders(gone)
    place.worker.flush()
    place.core.roll_back(edges, snapshots.read(part))
    place.worker.rewinding = incarnation
    place.link.send(PROGRESS, Kind.REWOUND, place.stage.id, pack_report(place.core.take_changes()))
    mine = place.places.partners(place.worker.name, place.plan)
    for process, address in peers.items():
        if process in mine:
            place.worker.admit_process(process, incarnation)
            place.worker.connect(process, address)


__all__ = ["roll_back"]
