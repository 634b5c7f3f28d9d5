"""A node of the cluster, and where a new process goes. Values; they import nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster that Ray counts as alive."""

    id: str
    address: str
    resources: Mapping[str, float]
    """All that it has, whoever uses it."""
    free: Mapping[str, float] | None = None
    """What nobody uses now; None: not known."""
    leaves_in_s: float | None = None
    """It drains, and goes after so many seconds; inf: nobody knows when. None: it stays."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a new process goes.

    Args:
        node: to prefer, by its id; None: any.
        avoided: nodes that it keeps away from, however long it then waits for room.
        asks: whether it asks for anything.
    """

    node: str | None
    avoided: tuple[str, ...] = ()
    asks: bool = True


__all__ = ["Node", "Site"]
