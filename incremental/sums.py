"""What a vertex keeps where results follow from sums: vectors by key and moment, and no values.

A sum over values is linear in their weights: a removal takes away what the insertion has added. So a key needs one vector for each moment
at which it changes, outside of loops one in all, however many records it has. Floating-point numbers are added as fractions, exactly:
rounded sums would differ with the order, and a removal would leave a rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from operator import add
from typing import Any, TypeAlias

from rayad.incremental.moments import Counters, counts_at
from rayad.incremental.traces import taken_out
from rayad.progress import DataflowError, show

Vector: TypeAlias = tuple[Any, ...]
Keys: TypeAlias = dict[Any, dict[Counters, Vector]]


class Sums:
    """Of one input of one replica; see :class:`rayad.incremental.traces.Trace`.

    Args:
        vector: of a value; all are added.
    """

    def __init__(self, vector: Callable[[Any], Vector]) -> None:
        self.before: Keys = {}
        self.now: Keys = {}
        self._vector = vector

    def add(self, key: Any, value: Any, moment: Counters, weight: int) -> None:
        """A change of the epoch under way."""
        _add(self.now.setdefault(key, {}), moment, tuple(weight * part for part in self._vector(value)))

    def moments(self, key: Any) -> Iterator[Counters]:
        """When a key has changed."""
        for part in (self.before, self.now):
            yield from part.get(key, ())

    def accumulated(self, key: Any, moment: Counters) -> tuple[Vector | None, Vector | None]:
        """The vector of a key at a moment, after the epochs before, and with the epoch under way; None where it is nothing."""
        before = _sum(self.before.get(key, {}), moment, None)
        now = _sum(self.now.get(key, {}), moment, before)
        return _unless_nothing(before), _unless_nothing(now)

    def end_epoch(self) -> None:
        """The epoch under way is over."""
        self._add_to_before(self.now)
        self.now = {}

    def _add_to_before(self, keys: Keys) -> None:
        for key, vectors in keys.items():
            kept = self.before.setdefault(key, {})
            for moment, vector in vectors.items():
                _add(kept, moment, vector)
            if not kept:
                del self.before[key]

    def give(self, leaves: Callable[[Any], bool]) -> tuple[Keys, Keys]:
        """Remove keys, and give what was kept of them."""
        return taken_out(self.before, leaves), taken_out(self.now, leaves)

    def take(self, given: tuple[Keys, Keys], *, is_over: bool) -> None:
        """Take over keys; ``is_over``: the epoch that was under way where they were is over here."""
        self.before.update(given[0])
        if is_over:
            self._add_to_before(given[1])
        else:
            self.now.update(given[1])


def _add(kept: dict[Counters, Vector], moment: Counters, vector: Vector) -> None:
    there = kept.get(moment)
    total = vector if there is None else tuple(map(add, there, vector))
    if any(total):
        kept[moment] = total
    else:
        kept.pop(moment, None)


def _sum(vectors: dict[Counters, Vector], moment: Counters, begin: Vector | None) -> Vector | None:
    total = begin
    for at, vector in vectors.items():
        if counts_at(at, moment):
            total = vector if total is None else tuple(map(add, total, vector))
    return total


def _unless_nothing(vector: Vector | None) -> Vector | None:
    return vector if vector is not None and any(vector) else None


def exact(value: Any) -> tuple[Any, int]:
    """A number that can be added exactly, and whether it was a floating-point number.

    >>> exact(3), exact(0.5)
    ((3, 0), (Fraction(1, 2), 1))
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DataflowError(f"a sum over a collection was given {show(value)}: once added it cannot be taken away; filter it out")
        return Fraction(value), 1
    return value, 0


__all__ = ["Sums", "Vector", "exact"]
