"""What a vertex keeps where results follow from sums: vectors by key and moment, and no values.

A sum over values is linear in their weights: a removal takes away what the insertion has added. So a key needs one vector for each moment
at which it changes, outside of loops one in all, however many records it has. Floating-point numbers are added as fractions, exactly, and
decimals with all their digits: rounded sums would differ with the order, and a removal would leave a rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import Any, TypeAlias

from rayad.dataflow.operators.aggregates.sums import added, multiplied
from rayad.incremental.moments import Counters, counts_at
from rayad.incremental.traces import Kept
from rayad.progress import DataflowError, Timestamp, show

Vector: TypeAlias = tuple[Any, ...]
Vectors: TypeAlias = dict[Counters, Vector]


class Sums(Kept):
    """Keeps the sum of a vector.

    Args:
        is_over: see :class:`rayad.incremental.traces.ThisEpoch`.
        vector: of a value; all are added.
    """

    def __init__(self, is_over: Callable[[int], bool], vector: Callable[[Any], Vector]) -> None:
        super().__init__(is_over)
        self._vector = vector

    def add(self, key: Any, value: Any, time: Timestamp, weight: int) -> None:
        self.now.time = time
        vector = self._vector(value)
        _add(self.now.kept.setdefault(key, {}), time.counters, vector if weight == 1 else tuple([times(weight, part) for part in vector]))

    def moments(self, key: Any) -> Iterator[Counters]:
        for part in (self.before.kept, self.now.kept):
            yield from part.get(key, ())

    def accumulated(self, key: Any, moment: Counters) -> tuple[Vector | None, Vector | None]:
        before = _sum(self.before.kept.get(key, {}), moment, None)
        now = _sum(self.now.kept.get(key, {}), moment, before)
        return _unless_nothing(before), _unless_nothing(now)

    def changed(self, there: Vector | None, value: Any, weight: int, vector: Any) -> Vector | None:
        more = tuple([times(weight, part) for part in (self._vector(value) if vector is None else vector)])
        return _unless_nothing(more if there is None else plus(there, more))

    def merge(self, kept: Vectors | None, changes: Vectors) -> Vectors:
        merged = {} if kept is None else kept
        for moment, vector in changes.items():
            _add(merged, moment, vector)
        return merged


def _add(kept: dict[Counters, Vector], moment: Counters, vector: Vector) -> None:
    there = kept.get(moment)
    total = vector if there is None else plus(there, vector)
    if any(total):
        kept[moment] = total
    else:
        kept.pop(moment, None)


def _sum(vectors: dict[Counters, Vector], moment: Counters, begin: Vector | None) -> Vector | None:
    total = begin
    for at, vector in vectors.items():
        if counts_at(at, moment):
            total = vector if total is None else plus(total, vector)
    return total


def plus(one: Vector, other: Vector) -> Vector:
    """The sum of two vectors. Raises DataflowError where two parts have no sum, or more digits than are added exactly.

    >>> plus((1, 0.5), (2, 0.25))
    (3, 0.75)
    """
    try:
        return tuple(map(_plus, one, other))
    except TypeError as error:
        pair = next((a, b) for a, b in zip(one, other, strict=True) if not _have_sum(a, b))
        said = " and ".join(f"{show(_plain(value), 40)} ({type(_plain(value)).__name__})" for value in pair)
        raise DataflowError(
            f"a sum or mean over a collection was given {said}: these have no exact sum; make them of one type, "
            "such as Decimal(str(x)) or float(x)"
        ) from error


def _plus(one: Any, other: Any) -> Any:
    """Decimals with all their digits, whatever the context of the thread says."""
    if type(one) is int and type(other) is int:
        return one + other
    if (isinstance(one, Decimal) and isinstance(other, (Decimal, int))) or (isinstance(other, Decimal) and isinstance(one, int)):
        return added(one, other)
    if isinstance(other, timedelta) and type(one) is int and not one:
        return other  # where none has a value yet the sum is 0
    if isinstance(one, timedelta) and type(other) is int and not other:
        return one
    return one + other


def times(weight: int, value: Any) -> Any:
    """A value so often, exactly.

    >>> times(2, Decimal("1.000000000000000000000000000001"))
    Decimal('2.000000000000000000000000000002')
    """
    return multiplied(value, weight) if isinstance(value, Decimal) else weight * value


def _have_sum(one: Any, other: Any) -> bool:
    try:
        _plus(one, other)
    except TypeError:
        return False
    return True


def _plain(value: Any) -> Any:
    """As the user gave it: fractions are of floating-point numbers."""
    return float(value) if isinstance(value, Fraction) else value


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
    if not isinstance(value, (int, Decimal, timedelta, Number)):
        raise DataflowError(
            f"a sum or mean over a collection was given {show(value, 40)} ({type(value).__name__}): give numbers or durations, such as of "
            "another field, or by a function of the record"
        )
    return value, 0


__all__ = ["Sums", "Vector", "exact"]
