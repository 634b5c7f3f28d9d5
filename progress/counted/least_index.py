"""For each of many integers its least value, and the next integer from a given one whose value is below a bound, in logarithmic time.

Timestamps are ordered pairwise, by epoch and by the counters as a whole, and each of the two is a total order. So "what is not behind
any of these" is always a question of this kind: the epochs from here on whose least counters are below some counters. Frontiers
(`staircase`) and times that wait for one (`waiting_times`) ask it at every change; scanning instead made E epochs in a loop cost E
squared.

A tree of fan-out 16 over the bits of the integers, kept as one dictionary a level: each entry is the least value of the 16 below it.
There are as many levels as the integers at hand differ in, so neighbours far from 0 cost no more than small ones. Nothing has to be
balanced.

Invariant: every entry above the lowest level is the least of its children, none is empty, and the highest level has one node at most.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from rayad.progress.errors import InternalError

V = TypeVar("V")

_BITS = 4


class LeastIndex(Generic[V]):
    """Values of a total order by integer.

    >>> index = LeastIndex()
    >>> for place, value in ((3, (5,)), (20, (2,)), (1000, (0,))):
    ...     index.put(place, value)
    >>> index.first_below(0, (5,)), index.first_below(4), index.first_below(21, (0,))
    (20, 20, None)
    >>> index.remove(20), index.first_below(0, (5,))
    (None, 1000)
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: list[dict[int, dict[int, Any]]] = [{}]  # by place >> 4: the places and values; above: the nodes and their least

    def put(self, place: int, value: V) -> None:
        """Set the value of `place`."""
        levels = self._levels
        for level in levels:
            parent = place >> _BITS
            node = level.get(parent)
            if node is None:
                level[parent] = {place: value}
            else:
                node[place] = value
                value = min(node.values())
            place = parent
        while len(levels[-1]) > 1:
            upper: dict[int, dict[int, Any]] = {}
            for parent, node in levels[-1].items():
                upper.setdefault(parent >> _BITS, {})[parent] = min(node.values())
            levels.append(upper)

    def remove(self, place: int) -> None:
        """Forget `place`, which must be there."""
        levels = self._levels
        for height, level in enumerate(levels):
            parent = place >> _BITS
            node = level[parent]
            del node[place]
            if node:
                for above in levels[height + 1 :]:
                    value = min(node.values())
                    place, parent = parent, parent >> _BITS
                    node = above[parent]
                    node[place] = value
                break
            del level[parent]
            place = parent
        while len(levels) > 1 and len(levels[-2]) <= 1:
            levels.pop()

    def first_below(self, start: int, bound: V | None = None) -> int | None:
        """The least place >= `start` whose value is < `bound`; without a bound, the least place there is. None if there is none."""
        levels = self._levels
        place = start
        top = len(levels) - 1
        for height, level in enumerate(levels):
            if height < top:
                node = level.get(place >> _BITS)
            else:
                node = next(iter(level.values()), None)
            if node is not None:
                found = _fitting(node, place, bound)
                if found is not None:
                    for below in levels[height - 1 :: -1] if height else ():
                        found = _fitting(below[found], 0, bound)
                        assert found is not None, "an entry is the least of its children"
                    return found
            place = (place >> _BITS) + 1
        return None

    def check_invariants(self) -> None:
        """Raise InternalError unless every entry is the least of its children."""
        for height, level in enumerate(self._levels[1:], 1):
            due: dict[int, dict[int, Any]] = {}
            for parent, node in self._levels[height - 1].items():
                due.setdefault(parent >> _BITS, {})[parent] = min(node.values())
            if due != level:
                raise InternalError(f"level {height} of the index is {level}, but the level below it gives {due}")
        if len(self._levels[-1]) > 1:
            raise InternalError(f"the highest level of the index has {len(self._levels[-1])} nodes; another level belongs above it")


def _fitting(node: dict[int, Any], start: int, bound: Any) -> int | None:
    """The least entry of a node that is >= `start` and whose value is < `bound`."""
    if bound is None:
        return min([place for place in node if place >= start], default=None)
    return min([place for place, value in node.items() if place >= start and value < bound], default=None)
