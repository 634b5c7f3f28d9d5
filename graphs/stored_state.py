"""Graph vertices in snapshots: parts of their state that know what has changed, and the rest, which is small or changes wholly.

A part is a table of nodes, a set of edges, or arrays by dense index. Everything is by node number or by an index into these, so the
key-group of each entry follows from its node's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from rayad.dataflow.operators.state.stored_columns import narrow
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.graphs.nodes import Nodes, grown
from rayad.graphs.numbers import Ints, distinct


class Part(Protocol):
    """What has the four methods of :class:`rayad.Vertex` for snapshots."""

    def checkpoint(self) -> Any:
        """All of it."""

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""

    def take_changes(self) -> Callable[[], Any] | None:
        """What has changed since the last call, or None."""

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""


class DenseValues:
    """The attribute ``name`` of ``owner``, an array by dense index of ``nodes``, as a part: its owner notes what it changes.

    Args:
        fill: what nodes have that are new.
    """

    def __init__(self, owner: Any, name: str, nodes: Nodes, fill: Any) -> None:
        self.owner = owner
        self.name = name
        self.nodes = nodes
        self.fill = fill
        self._touched = Additions()
        self._known = 0

    def note(self, dense: Ints) -> None:
        """These have changed."""
        self._touched.note(dense, len(dense), len(self.nodes))

    def checkpoint(self) -> Any:
        """The values of all nodes."""
        return _small(self._values())

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        setattr(self.owner, self.name, state.astype(getattr(self.owner, self.name).dtype))

    def take_changes(self) -> Callable[[], Any] | None:
        """The values that have changed since the last call; None where these are most of them."""
        touched, known = self._touched.take(), self._known
        self._known = len(self.nodes)
        return None if touched is None else lambda: self._changed(touched, known)

    def _changed(self, touched: list[Ints], known: int) -> Any:
        values, old = self._values(), joined(touched)
        old = distinct(old[old < known])
        return narrow(old), _small(values[old]), _small(values[known:])

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        old, of_old, new = changes
        values = self._values().copy()
        values[old] = of_old
        values[len(values) - len(new) :] = new
        setattr(self.owner, self.name, values)

    def _values(self) -> Any:
        count = len(self.nodes)
        return grown(getattr(self.owner, self.name), count, self.fill)[:count]


def _small(values: Any) -> Any:
    return narrow(values) if values.dtype == np.int64 else values


def joined(arrays: Sequence[Ints]) -> Ints:
    """Several arrays as one.

    >>> joined([]).tolist(), joined([np.array([3]), np.array([1, 2])]).tolist()
    ([], [3, 1, 2])
    """
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
