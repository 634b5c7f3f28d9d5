"""What processes have to be. It imports nothing, so that a coordinator can start processes before it imports what it needs itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROOM = 8
"""A worker has threads for changes of so many vertices, or a multiple of that: so a job with other vertices can use it, too."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a process is for.

    >>> Kind("worker", {"num_cpus": 1}, 16).fits(Kind("worker", {"num_cpus": 1}, 8)), Kind("worker", {}).fits(Kind("worker", {}, 8))
    (True, False)
    """

    role: str
    """ "progress", "worker", or "vertex"."""
    asks: Mapping[str, Any] = field(default_factory=dict)
    """What it reserves, by the name of Ray's option."""
    vertices: int = 0
    """Of a worker: for how many vertices it has threads that wait for changes."""

    def is_like(self, other: Kind) -> bool:
        """Whether both are given the same by Ray."""
        return (self.role, self.asks) == (other.role, other.asks)

    def fits(self, asked: Kind) -> bool:
        """Whether a process of this kind can do what ``asked`` is for."""
        return self.is_like(asked) and self.vertices >= asked.vertices

    def sharing(self) -> Kind:
        """The same, on whatever processors are there."""
        return Kind(self.role, {**self.asks, "num_cpus": 0}, self.vertices)


@dataclass(frozen=True, slots=True)
class Start:
    """A process to be started.

    Args:
        name: on the data plane.
        kind: what it has to be.
        title: what Ray shows of it.
        needs: what it asks of a node, by the node's names.
    """

    name: str
    kind: Kind
    title: tuple[str, ...] = ()
    needs: Mapping[str, float] = field(default_factory=dict)


PROGRESS_KIND = Kind("progress", {"num_cpus": 0})


def worker_kind(vertices: int, cpus: float) -> Kind:
    """A worker for replicas of so many vertices. Each of them may be asked to wait for something, and for one thing more."""
    return Kind("worker", {"num_cpus": cpus}, max(1, -(-vertices // ROOM)) * ROOM)


__all__ = ["PROGRESS_KIND", "Kind", "Start", "worker_kind"]
