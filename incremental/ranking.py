"""Functions of the records of a key in their order, for :class:`rayad.incremental.reducing.Reduce`: numbers, ranks, neighbours.

Each change of a key looks at all its records again. Nulls come last, ascending or descending; records that are equal in order are in the
order of their contents, so that a removal finds what the insertion made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rayad.incremental.columns import ordered
from rayad.incremental.functions import Results, Weights
from rayad.incremental.outputs.ends import Key, key_of
from rayad.incremental.records import in_contents
from rayad.incremental.steps import Fields
from rayad.progress import DataflowError, arguments, show


@dataclass(frozen=True, slots=True)
class Order:
    """How the records of a key are put in order."""

    by: Callable[[Any], Any]
    descending: bool
    what: str

    def __call__(self, values: Weights) -> list[tuple[Any, int, Any]]:
        """Record, how often, place. Raises DataflowError where places cannot be compared."""
        placed = [(record, weight, self.by(record)) for record, weight in values.items() if weight > 0]
        placed.sort(key=lambda one: in_contents(one[0]))
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


@dataclass(frozen=True, slots=True)
class Top:
    """The first records, so many."""

    k: int
    order: Order

    def __call__(self, key: Any, values: Weights) -> Results:
        left, out = self.k, []
        for record, weight, _ in self.order(values):
            often = min(left, weight)
            if often > 0:
                out.append((record, often))
                left -= often
        return out


def order_of(order_by: Key, descending: bool, what: str) -> Order:
    """The order that was given to ``what``. Raises DataflowError."""
    return Order(key_of(order_by, what), arguments.flag(descending, f"{what}: descending"), what)


# -- in both forms: a function of the user's is of rows ----------------------------------------------------------------
def _in_columns(order_by: Key, descending: bool) -> ordered.OrderOfFields | None:
    if isinstance(order_by, str):
        return ordered.OrderOfFields((order_by,), descending)
    return ordered.OrderOfFields(tuple(order_by), descending) if isinstance(order_by, (list, tuple)) else None


def numbered(order_by: Key, descending: bool, what: str) -> tuple[Numbered, ordered.Numbered | None]:
    """See :class:`Numbered`."""
    order, in_columns = order_of(order_by, descending, what), _in_columns(order_by, descending)
    return Numbered(order), None if in_columns is None else ordered.Numbered(in_columns)


def ranked(order_by: Key, descending: bool, what: str, *, dense: bool) -> tuple[Ranked, ordered.Ranked | None]:
    """See :class:`Ranked`."""
    order, in_columns = order_of(order_by, descending, what), _in_columns(order_by, descending)
    return Ranked(order, dense), None if in_columns is None else ordered.Ranked(in_columns, dense)


def shifted(order_by: Key, descending: bool, what: str, n: int, default: Any) -> tuple[Shifted, ordered.Shifted | None]:
    """See :class:`Shifted`; with a default it is of rows."""
    order, in_columns = order_of(order_by, descending, what), _in_columns(order_by, descending)
    return Shifted(order, n, default), None if in_columns is None or default is not None else ordered.Shifted(in_columns, n)


def first(k: int, field: str, what: str) -> tuple[Top, ordered.Top]:
    """The records with the largest values of a field; see :class:`Top`."""
    return Top(k, order_of(field, True, what)), ordered.Top(k, ordered.OrderOfFields((field,), True))


__all__ = ["Numbered", "Order", "Ranked", "Shifted", "Top", "first", "numbered", "order_of", "ranked", "shifted"]
