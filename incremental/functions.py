"""What is computed of the values of a key: functions of the weights by value, for :class:`rayad.incremental.reducing.Reduce`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from rayad.dataflow.operators.aggregates.sums import mean_of
from rayad.incremental.reads import Shown
from rayad.incremental.records import as_record
from rayad.incremental.steps import selected
from rayad.incremental.sums import exact

Weights = dict[Any, int]
Results = Iterable[tuple[Any, int]]


def value_of(value: Callable[[Any], Any] | str | None, what: str) -> Callable[[Any], Any] | None:
    """A function of a record, or a field, that was given to ``what``, or None. Raises DataflowError."""
    return None if value is None else selected(value, what)


def count(key: Any, sums: tuple[int]) -> Results:
    """How many there are, of :func:`one`."""
    return [(sums[0], 1)]


def one(record: Any) -> tuple[int]:
    """Each record counts once."""
    return (1,)


def total(key: Any, sums: tuple[int, int, Any, int]) -> Results:
    """The sum, of :class:`Added`: a floating-point number where any of them is, None where there is none."""
    _, count, added, floats = sums
    return [((float(added) if floats else added) if count else None, 1)]


def mean(key: Any, sums: tuple[int, int, Any, int]) -> Results:
    """The mean, of :class:`Added`; None where there is nothing."""
    _, count, added, floats = sums
    if not count:
        return [(None, 1)]
    if isinstance(added, Decimal):
        return [(mean_of(added, count), 1)]
    return [(float(Fraction(added, count)) if floats or isinstance(added, int) else added / count, 1)]


@dataclass(frozen=True, slots=True)
class Added:
    """Records, how many of them have a value, the sum of those, and how many were floating-point numbers. None is no value, as in SQL."""

    value: Callable[[Any], Any]

    def __call__(self, record: Any) -> tuple[int, int, Any, int]:
        value = self.value(record)
        return (1, 0, 0, 0) if value is None else (1, 1, *exact(value))


def in_both(key: Any, sides: Weights) -> Results:
    """Whether both sides have it."""
    return [(None, 1)] if sides.get(0, 0) > 0 and sides.get(1, 0) > 0 else []


def in_first_alone(key: Any, sides: Weights) -> Results:
    """Whether the first side alone has it."""
    return [(None, 1)] if sides.get(0, 0) > 0 and sides.get(1, 0) <= 0 else []


@dataclass(frozen=True, slots=True)
class Once:
    """One result for a key that has values."""

    result: Any

    def __call__(self, key: Any, values: Weights) -> Results:
        return [(self.result, 1)]


@dataclass(frozen=True, slots=True)
class Threshold:
    """As often as a function of the record and its count says, which may be below 0: of a difference of collections."""

    takes_negative: ClassVar[bool] = True
    function: Callable[[Any, int], int]

    def __call__(self, key: Any, values: Weights) -> Results:
        often = self.function(key, sum(values.values()))
        return [(None, often)] if often else []


@dataclass(frozen=True, slots=True)
class OfValues:
    """A function of all values."""

    function: Callable[[Any, list[Any]], Iterable[Any]]

    def __call__(self, key: Any, values: Weights) -> Results:
        all_of = [value for value, weight in values.items() for _ in range(weight)]
        return [(as_record(result), 1) for result in self.function(key, all_of)]


@dataclass(frozen=True, slots=True)
class Best:
    """The smallest or the largest; None where all are None, as in SQL."""

    choose: Callable[..., Any]
    value: Callable[[Any], Any] | None

    def __call__(self, key: Any, values: Weights) -> Results:
        there = [record for record, weight in values.items() if weight > 0]
        found = there if self.value is None else [value for value in map(self.value, there) if value is not None]
        return [(self.choose(found, default=None), 1)] if there else []


@dataclass(frozen=True, slots=True)
class Top:
    """The records with the largest values."""

    k: int
    value: Callable[[Any], Any] | None

    def __call__(self, key: Any, values: Weights) -> Results:
        value = self.value
        best = heapq.nlargest(self.k, values, key=None if value is None else (lambda record: (value(record), record)))
        left, out = self.k, []
        for record in best:
            often = min(left, values[record])
            if often > 0:
                out.append((record, often))
                left -= often
        return out


def shown(function: Any) -> Shown:
    """How a table shows the results of one of these, or of another function."""
    if function in (in_both, in_first_alone) or isinstance(function, Threshold):
        return Shown(None, has_one_row=True)
    has_one_row = function in (count, total, mean) or isinstance(function, (Best, Once)) or getattr(function, "has_one_row", False)
    return Shown(has_one_row=has_one_row)
