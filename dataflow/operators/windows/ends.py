"""What ends next, found without looking at all that is open."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any


class Ends:
    """Things that end, in the order of their ends. A thing whose end has come later than it was told is told again by who asks.

    >>> ends = Ends()
    >>> ends.tell("a", 5); ends.tell("b", 3); ends.tell("a", 4); ends.tell("a", 9)
    >>> ends.until(3), ends.until(4), ends.until(None)
    (['b'], ['a'], [])
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, Any]] = []
        self._told: dict[Any, Any] = {}
        self._numbers = count()  # so that things are never compared

    def tell(self, thing: Any, end: Any) -> None:
        """It ends then, or, if it was told to end earlier, perhaps later than that."""
        if thing not in self._told or end < self._told[thing]:
            self._told[thing] = end
            heapq.heappush(self._heap, (end, next(self._numbers), thing))

    def until(self, mark: Any) -> list[Any]:
        """The things that end at or before a mark (None: all) by what was told, earliest first; they are not known any more."""
        out = []
        while self._heap and (mark is None or self._heap[0][0] <= mark):
            end, _, thing = heapq.heappop(self._heap)
            if thing in self._told and self._told[thing] == end:
                del self._told[thing]
                out.append(thing)
        return out


__all__ = ["Ends"]
