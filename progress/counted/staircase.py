"""Counted pairs `(x, y)`, ordered pairwise: the frontier is the staircase of least y's for growing x.

Timestamps in loops are such pairs: epoch and loop counters, each totally ordered (`timestamp`). A `MutableAntichain` that loses an
element of its frontier looks at all others, as any of them may be minimal now; with E epochs in one loop each of E steps looked at E
others. Here only the new minimal elements are searched: they lie between the lost element and the next one of the frontier, below the one
before, and an index finds each in logarithmic time. An update costs a logarithm for each element that enters or leaves the frontier.

Few elements are scanned, as that is faster; the index is built when there are many, and given up when nearly all have gone.

Invariants: with an index, `_least` holds for each x with a positive count its element of least y, the index knows the same, and the
frontier is sorted by x (so by falling y). Every positive element is in the heap of its x.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, TypeVar

from rayad.progress.antichain import MutableAntichain
from rayad.progress.counted.chain import Chain
from rayad.progress.counted.least_index import LeastIndex
from rayad.progress.errors import InternalError
from rayad.progress.timestamp import Timestamp

T = TypeVar("T", bound=tuple[int, Any])

_first = itemgetter(0)
SCANNED_MAX = 12
"""Up to so many elements are scanned; with more there is an index."""


class Staircase(MutableAntichain[T]):
    """A `MutableAntichain` for elements that are tuples `(x, y)`, x an int: `(x, y) <= (u, v)` if and only if `x <= u` and `y <= v`.

    >>> from rayad.progress import Timestamp
    >>> times = Staircase((Timestamp(epoch, (epoch % 2,)), 1) for epoch in range(100))
    >>> times.frontier, times.update(Timestamp(0, (0,)), -1)
    ((Timestamp(0, (0,)),), [(Timestamp(0, (0,)), -1), (Timestamp(1, (1,)), 1), (Timestamp(2, (0,)), 1)])
    """

    __slots__ = ("_entries", "_heaps", "_index", "_least")

    def __init__(self, elements: Iterable[tuple[T, int]] = ()) -> None:
        self._index: LeastIndex[Any] | None = None
        self._least: dict[int, T] = {}
        self._heaps: dict[int, list[tuple[Any, T]]] = {}
        self._entries = 0  # in all heaps
        super().__init__(elements)

    def update(self, element: T, delta: int) -> list[tuple[T, int]]:
        if self._index is None and len(self._counts) < SCANNED_MAX:
            return super().update(element, delta)
        return self.update_many(((element, delta),))

    def update_many(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        if self._index is None:
            changes = list(changes)
            if len(self._counts) + len(changes) <= SCANNED_MAX:
                return super().update_many(changes)
            self._build()
        touched = self._put(changes)
        moved: dict[T, int] = {}
        for x in sorted(touched):
            self._settle(x, moved)
        counts = self._counts
        if len(counts) <= SCANNED_MAX // 3:
            self._index = None
            self._least, self._heaps, self._entries = {}, {}, 0
        elif self._entries > 64 and self._entries > 2 * len(counts):
            self._fill_heaps()
        return [(element, delta) for element, delta in moved.items() if delta]

    def less_equal(self, element: T) -> bool:
        if self._index is None:
            return super().less_equal(element)
        x, y = element
        place = bisect_right(self._frontier, x, key=_first)
        return place > 0 and self._frontier[place - 1][1] <= y

    def _build(self) -> None:
        """Make the index of what is there."""
        self._fill_heaps()
        self._index = LeastIndex()
        for x, heap in self._heaps.items():
            self._least[x] = heap[0][1]
            self._index.put(x, heap[0][0])
        self._frontier = tuple(sorted(self._frontier, key=_first))

    def _fill_heaps(self) -> None:
        """Heaps of the positive elements alone."""
        self._heaps = {}
        self._entries = 0
        for element, count in self._counts.items():
            if count > 0:
                self._heaps.setdefault(element[0], []).append((element[1], element))
                self._entries += 1
        for heap in self._heaps.values():
            heapify(heap)

    def _put(self, changes: Iterable[tuple[T, int]]) -> set[int]:
        """Apply the changes to the counts and to the index; gives the x's whose least element is another one now."""
        assert self._index is not None
        gained, lost = self._count(changes)
        counts, heaps, least = self._counts, self._heaps, self._least
        for element in gained:
            heappush(heaps.setdefault(element[0], []), (element[1], element))
        self._entries += len(gained)
        looked_at = {element[0] for element in (*gained, *lost)}
        touched: set[int] = set()
        for x in looked_at:
            heap = heaps[x]
            while heap and counts.get(heap[0][1], 0) <= 0:
                heappop(heap)
                self._entries -= 1
            before = least.get(x)
            if not heap:
                del heaps[x]
                if before is not None:
                    del least[x]
                    self._index.remove(x)
                    touched.add(x)
            elif before != heap[0][1]:
                least[x] = heap[0][1]
                self._index.put(x, heap[0][0])
                touched.add(x)
        return touched

    def _settle(self, x: int, moved: dict[T, int]) -> None:
        """Update the frontier at `x`; to the left it is up to date. `moved` collects what entered and left.

        An element of the frontier further right may have gone from the counts by now: it is settled in its own turn, from the bound
        that this one leaves.
        """
        frontier = self._frontier
        place = bisect_left(frontier, x, key=_first)
        end = place + 1 if place < len(frontier) and frontier[place][0] == x else place
        bound = frontier[place - 1][1] if place else None
        new: list[T] = []
        least = self._least.get(x)
        if least is not None and (bound is None or least[1] < bound):
            if end > place and frontier[place] == least:
                return
            new.append(least)
            bound = least[1]
            while end < len(frontier) and not frontier[end][1] < bound:
                end += 1
        if end > place:
            self._bring_to_light(x + 1, frontier[end][0] if end < len(frontier) else None, bound, new)
        elif not new:
            return
        for element in frontier[place:end]:
            moved[element] = moved.get(element, 0) - 1
        for element in new:
            moved[element] = moved.get(element, 0) + 1
        self._frontier = (*frontier[:place], *new, *frontier[end:])

    def _bring_to_light(self, start: int, stop: int | None, bound: Any, found: list[T]) -> None:
        """Append what is minimal from `start` to before `stop`, where only what is below `bound` can be."""
        assert self._index is not None
        while (x := self._index.first_below(start, bound)) is not None and (stop is None or x < stop):
            element = self._least[x]
            found.append(element)
            start, bound = x + 1, element[1]

    def check_invariants(self) -> None:
        """Raise InternalError unless the frontier is the minimal positive elements and the index knows the least element of each x."""
        super().check_invariants()
        if self._index is None:
            return
        self._index.check_invariants()
        due: dict[int, T] = {}
        for element, count in self._counts.items():
            if count > 0:
                x, y = element
                if x not in due or y < due[x][1]:
                    due[x] = element
                if (y, element) not in self._heaps.get(x, ()):
                    raise InternalError(f"{self!r} has lost {element} from its heap; every positive element must be in it")
        if due != self._least:
            raise InternalError(f"{self!r} takes {self._least} for the least elements, but they are {due}")
        if self._entries != sum(map(len, self._heaps.values())):
            raise InternalError(f"{self!r} counts {self._entries} entries in its heaps, there are {self._heaps}")
        if list(self._frontier) != sorted(self._frontier, key=_first):
            raise InternalError(f"the frontier {self._frontier} is not sorted")


def counted_times(depth: int) -> MutableAntichain[Timestamp]:
    """What counts the times of a scope: outside loops they are a chain, inside a staircase."""
    return Chain(sort_key=Timestamp.sort_key) if depth == 0 else Staircase()
