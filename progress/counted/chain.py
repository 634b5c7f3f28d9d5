"""Counted elements of a total order: the frontier is the least element with a positive count.

A `MutableAntichain` that loses an element of its frontier has to look at all others, as any of them may be minimal now. Where the order is
total - the times of the root scope - a heap finds the next one at once, so thousands of pending epochs cost a logarithm each.

Invariant: every element with a positive count is in the heap; the heap may also hold some that have gone, which are dropped when they
come to its top, or all together when they are the larger part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from rayad.progress.antichain import MutableAntichain, PartiallyOrdered
from rayad.progress.errors import InternalError

T = TypeVar("T", bound=PartiallyOrdered)


class Chain(MutableAntichain[T]):
    """A `MutableAntichain` for elements that are totally ordered by `sort_key`.

    >>> times = Chain([(5, 1), (3, 1), (4, 1)], sort_key=int)
    >>> times.frontier, times.update(3, -1), times.update_many([(4, -1), (5, -1)])
    ((3,), [(3, -1), (4, 1)], [(4, -1)])
    """

    __slots__ = ("_heap", "_sort_key")

    def __init__(self, elements: Iterable[tuple[T, int]] = (), *, sort_key: Callable[[T], Any]) -> None:
        self._sort_key = sort_key
        self._heap: list[tuple[Any, T]] = []
        super().__init__(elements)

    def update(self, element: T, delta: int) -> list[tuple[T, int]]:
        return self.update_many(((element, delta),))

    def update_many(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        counts, heap = self._counts, self._heap
        gained, _ = self._count(changes)
        for element in gained:
            heappush(heap, (self._sort_key(element), element))
        if len(heap) > 64 and len(heap) > 2 * len(counts):
            self._compact()
        frontier = self._frontier
        while heap:
            least = heap[0][1]
            if counts.get(least, 0) > 0:
                if frontier:
                    if frontier[0] == least:
                        return []
                    self._frontier = (least,)
                    return [(frontier[0], -1), (least, 1)]
                self._frontier = (least,)
                return [(least, 1)]
            heappop(heap)
        self._frontier = ()
        return [(frontier[0], -1)] if frontier else []

    def _compact(self) -> None:
        """Drop what has gone from the heap."""
        self._heap[:] = [(self._sort_key(element), element) for element, count in self._counts.items() if count > 0]
        heapify(self._heap)

    def check_invariants(self) -> None:
        """Raise InternalError unless the frontier is the least positive element and the heap knows all positive ones."""
        super().check_invariants()
        missing = {element for element, count in self._counts.items() if count > 0} - {element for _, element in self._heap}
        if missing:
            raise InternalError(f"{self!r} has lost {missing} from its heap; every positive element must be in it")
