"""A replica lives on while what is upstream of it is restarted (see :mod:`rayad.actors.replica.upstream`): its side on the data plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rayad.actors.host.looking import peers_of
from rayad.actors.plane.plane import Address
from rayad.actors.plane.protocol import PROGRESS, Kind, pack_report
from rayad.actors.replica.part_files import read_part
from rayad.actors.replica.source_parts import SourceShare
from rayad.snapshots.store import ReplicaPart

if TYPE_CHECKING:
    from rayad.actors.host.replica_host import ReplicaHost


def roll_back(
    host: ReplicaHost,
    edges: frozenset[int],
    peers: Mapping[str, Address],
    incarnation: int,
    part: ReplicaPart | SourceShare | None,
    attempt: int,
) -> None:
    """The senders on ``edges`` are gone; ``peers`` take their places. In the host's loop.

    What this replica holds now is told to the progress actor, to take effect together with what the newcomers register; until then its
    views are of a past that did not happen, and are passed over.
    """
    snapshots = host.snapshots
    assert snapshots is not None
    assert snapshots.participant is not None
    snapshots.participant.give_up(attempt)
    snapshots.release()
    for queue in (host._regular, snapshots.held):
        kept = [entry for entry in queue if entry[1] not in peers]
        queue.clear()
        queue.extend(kept)
    snapshots.restored = type(snapshots.restored)(entry for entry in snapshots.restored if entry[0] not in edges)
    host._granting.forget(peers)
    host._flush()
    host.core.roll_back(edges, read_part(snapshots.store, part) if part is not None else None)
    host._is_rewinding = True
    host.plane.send(PROGRESS, Kind.REWOUND, 0, pack_report(host.core.take_changes()))
    mine = peers_of(host)
    for peer, address in peers.items():
        host._lost.pop(peer, None)
        if peer in mine:
            host.plane.expect(peer, incarnation)
            if host.name < peer:
                host.plane.start_connect(peer, address, host.config.start_timeout_s)


def expect(host: ReplicaHost, incarnations: Mapping[str, int]) -> None:
    """Which incarnations this replica's peers are of, where it is not its own."""
    for peer, incarnation in incarnations.items():
        if incarnation != host.plane.incarnation:
            host.plane.expect(peer, incarnation)


__all__: list[Any] = ["expect", "roll_back"]
