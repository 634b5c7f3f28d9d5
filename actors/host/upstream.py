"""The data plane of a replica that keeps running while what is upstream of it restarts (see :mod:`rayad.actors.replica.upstream`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rayad.actors.host.snapshots import HostSnapshots
from rayad.actors.host.workplace import Workplace
from rayad.actors.plane.plane import Address
from rayad.actors.plane.protocol import PROGRESS, Kind, pack_report
from rayad.actors.replica.part_files import read_part
from rayad.actors.replica.source_parts import Resumable


def roll_back(
    place: Workplace,
    snapshots: HostSnapshots,
    edges: frozenset[int],
    peers: Mapping[str, Address],
    incarnation: int,
    part: Resumable | None,
    attempt: int,
) -> None:
    """The senders on ``edges`` are gone; ``peers`` take their places. In the host's loop.

    What this replica holds now is reported to the progress actor, to take effect together with what the new replicas register; views
    sent before that still count work that has been rolled back, and are ignored.
    """
    assert snapshots.participant is not None
    snapshots.carry_out(snapshots.participant.give_up(attempt))
    snapshots.release()
    for queue in (place.arrived.regular, place.arrived.held):
        kept = [entry for entry in queue if entry[1] not in peers]
        queue.clear()
        queue.extend(kept)
    place.arrived.restored = deque(entry for entry in place.arrived.restored if entry[0] not in edges)
    place.ends.forget_senders(peers)
    place.flush()
    place.core.roll_back(edges, read_part(snapshots.store, part) if part is not None else None)
    place.is_rewinding = True
    place.plane.send(PROGRESS, Kind.REWOUND, 0, pack_report(place.core.take_changes()))
    mine = place.peers()
    for peer, address in peers.items():
        place.lost.pop(peer, None)
        if peer in mine:
            place.plane.expect(peer, incarnation)
            if place.name < peer:
                place.plane.start_connect(peer, address, place.config.start_timeout_s)


def expect(place: Workplace, incarnations: Mapping[str, int]) -> None:
    """Set the incarnations to expect from peers that differ from this replica's own."""
    for peer, incarnation in incarnations.items():
        if incarnation != place.plane.incarnation:
            place.plane.expect(peer, incarnation)


__all__: list[Any] = ["expect", "roll_back"]
