"""Accumulated integer changes by key, with zero sums gone (timely dataflow's `ChangeBatch`).

Invariant: no stored value is zero. A plain dictionary is enough in Python: it merges on arrival, so nothing has to be compacted later.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class ChangeBatch(Generic[K]):
    """Net changes since the last `drain`.

    >>> batch = ChangeBatch()
    >>> batch.update("a", 1); batch.update("b", 2); batch.update("a", -1)
    >>> batch.drain(), batch.is_empty()
    ([('b', 2)], True)
    """

    __slots__ = ("_changes",)

    def __init__(self, changes: Iterable[tuple[K, int]] = ()) -> None:
        self._changes: dict[K, int] = {}
        self.extend(changes)

    def update(self, key: K, delta: int) -> None:
        """Add `delta` to the change of `key`."""
        changes = self._changes
        total = changes.get(key, 0) + delta
        if total:
            changes[key] = total
        else:
            changes.pop(key, None)

    def extend(self, changes: Iterable[tuple[K, int]]) -> None:
        """Add many changes."""
        for key, delta in changes:
            self.update(key, delta)

    def drain(self) -> list[tuple[K, int]]:
        """Take out all changes; they are non-zero, in the order in which their keys first came."""
        drained = list(self._changes.items())
        self._changes.clear()
        return drained

    def is_empty(self) -> bool:
        """Is there no net change?"""
        return not self._changes

    def __len__(self) -> int:
        return len(self._changes)

    def __repr__(self) -> str:
        return f"ChangeBatch({list(self._changes.items())!r})"
