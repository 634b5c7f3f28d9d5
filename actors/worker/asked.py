"""What a worker does when its coordinator asks one of its replicas for something in a change of layout, or in a recovery: in its loop."""

from __future__ import annotations

from typing import Any

from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.worker import upstream
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.actors.worker.worker import Worker
from rayad.progress import ProtocolError


def replica_in(worker: Worker, replica: ReplicaId) -> ReplicaHost:
    """Raises ProtocolError when it is not there (any more)."""
    host = worker.hosts.get(replica[0])
    if host is None or host.place.replica != replica[1]:
        raise ProtocolError(f"{worker.name} does not hold {ReplicaId(*replica).plane_name}: it has retired, or did not come")
    return host


def change(worker: Worker, replica: ReplicaId, method: str, *arguments: Any) -> Any:
    """One of HostRescale's methods, or what the worker itself does for a newcomer; see :mod:`rayad.actors.lead.calls`."""
    if method == "admit":
        return worker.admit(*replica, *arguments)
    if method == "withdraw":
        return worker.forget(replica[0])
    return getattr(replica_in(worker, replica).rescale, method)(*arguments)


def is_so(worker: Worker, replica: ReplicaId, method: str, *arguments: Any) -> Any:
    """Whether a condition has come true; of a replica that retires, what it has left."""
    if method == "has_left":
        return worker.left_by(*replica) or False
    return bool(getattr(replica_in(worker, replica).rescale, method)(*arguments))


def roll_back(worker: Worker, *arguments: Any) -> None:
    """See upstream.py. The process holds one replica."""
    (host,) = worker.hosts.values()
    assert host.snapshots is not None
    upstream.roll_back(host.place, host.snapshots, *arguments)


__all__ = ["change", "is_so", "replica_in", "roll_back"]
