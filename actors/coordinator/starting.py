"""How the processes of a job are started. It imports little: the coordinator does that before it imports what it needs itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from rayad.actors.cluster.spares import Kind
from rayad.actors.progress_actor import remote_progress
from rayad.actors.vertex_actor import remote_vertex

Start: TypeAlias = tuple[str, Kind, tuple[str, ...]]
"""A process to be started: its name on the data plane, what it has to be, and what Ray shows of it."""
PROGRESS_KIND = Kind("progress", {"num_cpus": 0})
ROOM = 8
"""A worker has threads for changes of so many vertices, or a multiple of that: so a job with other vertices can use it, too."""


def worker_kind(vertices: int, options: Mapping[str, Any]) -> Kind:
    """A worker for replicas of so many vertices. Each of them may be asked to wait for something, and for one thing more."""
    return Kind("worker", options, max(1, -(-vertices // ROOM)) * ROOM)


def new_process(kind: Kind, where: Any, *title: str) -> Any:
    """Start a process of this kind; ``where``: Ray's scheduling strategy; ``title``: see :func:`actor_title`."""
    if kind == PROGRESS_KIND:
        return remote_progress().options(**kind.options, scheduling_strategy=where).remote(*title)
    return remote_vertex(kind.role, kind.vertices).options(**kind.options, scheduling_strategy=where).remote(*title)


__all__ = ["PROGRESS_KIND", "Start", "new_process", "worker_kind"]
