"""What workers tell the leader of snapshots on the data plane, as its events: once for Ray and for the local runtime."""

from __future__ import annotations

import pickle

from rayad.actors.lead.snapshot_leader import Event, PartFailed, PartWritten, SnapshotWanted
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import Kind, unpack_save


def event_of(frame: Frame) -> Event | None:
    """The event that a frame to the coordinator is; None: it is about something else than a snapshot's parts."""
    match frame.kind:
        case Kind.PART:
            return PartWritten(pickle.loads(frame.payload))
        case Kind.PART_FAILED:
            number, _, why = bytes(frame.payload).decode().partition(" ")
            return PartFailed(int(number), why)
        case Kind.SAVE_WANTED:
            return SnapshotWanted(*unpack_save(frame.payload))
    return None


__all__ = ["event_of"]
