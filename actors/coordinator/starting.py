"""How Ray starts a process of a job. It imports little: the coordinator does that before it imports what it needs itself."""

from __future__ import annotations

from typing import Any

from rayad.actors.coordinator.processes.kinds import PROGRESS_KIND, Kind
from rayad.actors.progress_actor import remote_progress
from rayad.actors.vertex_actor import remote_vertex


def new_process(kind: Kind, where: Any, *title: str) -> Any:
    """Start a process of this kind; ``where``: Ray's scheduling strategy; ``title``: see :func:`actor_title`."""
    if kind.role == PROGRESS_KIND.role:
        return remote_progress().options(**kind.asks, scheduling_strategy=where).remote(*title)
    return remote_vertex(kind.role, kind.vertices).options(**kind.asks, scheduling_strategy=where).remote(*title)


__all__ = ["new_process"]
