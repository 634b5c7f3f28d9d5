"""Functions of the records of a key in their order, for :class:`rayad.incremental.reducing.Reduce`: numbers, ranks, neighbours.

Each change of a key looks at all its records again. Nulls come last, ascending or descending; records that are equal in order are in the
order of their contents, so that a removal finds what the insertion made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rayad.incremental.functions import Results, Weights
from rayad.incremental.outputs.ends import Key, key_of
from rayad.incremental.records import Row
from rayad.incremental.steps import Fields
from rayad.progress import DataflowError, arguments, show


def contents(record: Any) -> str:
    """A text by which records are put in order where nothing else does.

    >>> contents((1, Row(b=2, a=None)))
    "(1, {'a': None, 'b': 2})"
    """
    if type(record) is Row:
        return "{" + ", ".join(f"{name!r}: {contents(record[name])}" for name in sorted(record)) + "}"
    if type(record) is tuple:
        return "(" + ", ".join(map(contents, record)) + ")"
    return repr(record)


@dataclass(frozen=True, slots=True)
class Order:
    """How the records of a key are put in order."""

    by: Callable[[Any], Any]
    descending: bool
    what: str

    def __call__(self, values: Weights) -> list[tuple[Any, int, Any]]:
        """Record, how often, place. Raises DataflowError where places cannot be compared."""
        placed = [(record, weight, self.by(record)) for record, weight in values.items() if weight > 0]
        placed.sort(key=lambda one: contents(one[0]))
        if isinstance(self.by, Fields):  # the last field first: sorting is stable
            for field in reversed(range(len(self.by.names))):
                placed = self._sorted(placed, [one[2][field] for one in placed])
            return placed
        return self._sorted(placed, [one[2] for one in placed])

    def _sorted(self, placed: list[tuple[Any, int, Any]], places: list[Any]) -> list[tuple[Any, int, Any]]:
        there = [(place, one) for place, one in zip(places, placed, strict=True) if place is not None]
        try:
            there.sort(key=itemgetter(0), reverse=self.descending)
        except TypeError as error:
            raise DataflowError(
                f"{self.what}: order_by gave {show([place for place, _ in there], 80)}, which cannot be compared ({error}): give numbers, "
                "or texts, or a list of fields that have them; None comes last"
            ) from error
        return [one for _, one in there] + [one for place, one in zip(places, placed, strict=True) if place is None]


@dataclass(frozen=True, slots=True)
class Numbered:
    """Each record with its number, from 1."""

    order: Order

    def __call__(self, key: Any, values: Weights) -> Results:
        number, out = 0, []
        for record, weight, _ in self.order(values):
            for _ in range(weight):
                number += 1
                out.append(((record, number), 1))
        return out


@dataclass(frozen=True, slots=True)
class Ranked:
    """Each record with its rank, from 1: equal ones have the same, and the next one counts all before it, or (dense) each rank once."""

    order: Order
    dense: bool

    def __call__(self, key: Any, values: Weights) -> Results:
        rank, before, out = 0, 0, []
        last: Any = self
        for record, weight, place in self.order(values):
            if last is self or place != last:
                rank = rank + 1 if self.dense else before + 1
                last = place
            before += weight
            out.append(((record, rank), weight))
        return out


@dataclass(frozen=True, slots=True)
class Shifted:
    """Each record with the one so many places before it, or after it where the number is negative."""

    order: Order
    n: int
    default: Any

    def __call__(self, key: Any, values: Weights) -> Results:
        all_of = [record for record, weight, _ in self.order(values) for _ in range(weight)]
        others = range(-self.n, len(all_of) - self.n)
        return [((record, all_of[at] if 0 <= at < len(all_of) else self.default), 1) for record, at in zip(all_of, others, strict=True)]


def order_of(order_by: Key, descending: bool, what: str) -> Order:
    """The order that was given to ``what``. Raises DataflowError."""
    return Order(key_of(order_by, what), arguments.flag(descending, f"{what}: descending"), what)


__all__ = ["Numbered", "Order", "Ranked", "Shifted", "contents", "order_of"]
