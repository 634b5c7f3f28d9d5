"""Several aggregations of a key at once, and aggregations of the user's own.

Counts, sums and means alone are computed from sums; with anything else the records of a key are kept, and looked at again when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, NamedTuple

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.by_name import by_name
from rayad.dataflow.operators.aggregates.first_last import InOrder
from rayad.incremental import functions
from rayad.incremental.columns import ordered
from rayad.incremental.columns.grouped import Grouped
from rayad.incremental.columns.linear import Counted, Linear, Summed
from rayad.incremental.columns.several import GroupedTogether, SummedTogether
from rayad.incremental.functions import Results, Weights
from rayad.incremental.records import as_record, in_contents
from rayad.incremental.steps import selected
from rayad.incremental.sums import Vector, plus, times
from rayad.progress import DataflowError, show

Value = Callable[[Any], Any] | str | None
_OF_SUMS: dict[str, Callable[..., Results]] = {"sum": functions.total, "mean": functions.mean}
_BEST: dict[str, Callable[..., Any]] = {"min": min, "max": max}


@dataclass(frozen=True, slots=True)
class Vectors:
    """Records, then of each value what :class:`rayad.incremental.functions.Added` has behind them."""

    values: tuple[functions.Added, ...]

    def __call__(self, record: Any) -> Vector:
        return (1, *[number for value in self.values for number in value(record)[1:]])


@dataclass(frozen=True, slots=True)
class OfVectors:
    """Results by name, of the sum of :class:`Vectors`; without a function it is the count."""

    has_one_row: ClassVar[bool] = True
    parts: tuple[tuple[str, Callable[..., Results] | None], ...]

    def __call__(self, key: Any, sums: Vector) -> Results:
        found, rest = {}, sums[1:]
        for name, function in self.parts:
            if function is None:
                found[name] = sums[0]
            else:
                ((found[name], _),) = function(key, (sums[0], *rest[:3]))
                rest = rest[3:]
        return [(as_record(found), 1)]


@dataclass(frozen=True, slots=True)
class OfRecords:
    """What a function of the sum of a vector gives, of records."""

    function: Callable[..., Results]
    vector: Callable[[Any], Vector]

    def __call__(self, key: Any, values: Weights) -> Results:
        each = (tuple([times(weight, number) for number in self.vector(value)]) for value, weight in values.items())
        return self.function(key, reduce(plus, each))


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An :class:`Aggregator` of the records, or of a value of each; in the order of their contents, so the same records give the same."""

    has_one_row: ClassVar[bool] = True
    aggregator: Aggregator
    value: Callable[[Any], Any] | None

    def __call__(self, key: Any, values: Weights) -> Results:
        there = [record for record in sorted(values, key=in_contents) for _ in range(values[record])]
        first, *others = there if self.value is None else map(self.value, there)
        found = self.aggregator.emitted(reduce(self.aggregator.add, others, self.aggregator.create(first)))
        return [(as_record(tuple(found) if isinstance(found, list) else found), 1)]


@dataclass(frozen=True, slots=True)
class Several:
    """Results by name, each of all records."""

    has_one_row: ClassVar[bool] = True
    parts: tuple[tuple[str, Callable[[Any, Weights], Results]], ...]

    def __call__(self, key: Any, values: Weights) -> Results:
        return [(as_record({name: result for name, function in self.parts for result, _ in function(key, values)}), 1)]


class Forms(NamedTuple):
    """An aggregation: a function of the records of a key, or of the sum of ``vector``; and the same in columns, if it can be there."""

    function: Callable[..., Results]
    vector: Callable[[Any], Vector] | None
    in_columns: Linear | Grouped | None

    def of_records(self) -> Callable[[Any, Weights], Results]:
        """The function of the records."""
        return self.function if self.vector is None else OfRecords(self.function, self.vector)


def forms_of(aggregations: Mapping[str, Any] | Aggregator | str, value: Value) -> Forms:
    """What was given to ``aggregate``. Raises DataflowError."""
    if not isinstance(aggregations, Mapping):
        return _one(aggregations, value, "aggregate")
    if value is not None or not aggregations:
        told = f"{show(dict(aggregations), 60)} and value={show(value, 40)}" if value is not None else "an empty dict"
        raise DataflowError(
            f'aggregate() was given {told}: give {{name: aggregation}}, or {{name: (aggregation, value)}}, such as ("sum", "v")'
        )
    some = {name: _named(name, entry) for name, entry in aggregations.items()}
    is_like_tuple = list(some) == [str(place) for place in range(len(some))]  # columns would take it for one
    columns = [(name, None if is_like_tuple else forms.in_columns) for name, forms in some.items()]
    if all(forms.vector is not None for forms in some.values()):
        added = tuple(forms.vector for forms in some.values() if isinstance(forms.vector, functions.Added))
        parts = tuple((name, None if forms.function is functions.count else forms.function) for name, forms in some.items())
        linear = [(name, each) for name, each in columns if isinstance(each, (Counted, Summed))]
        return Forms(OfVectors(parts), Vectors(added), SummedTogether(linear) if len(linear) == len(columns) else None)
    grouped = [(name, each) for name, each in columns if isinstance(each, (Counted, Summed, ordered.Best))]
    together = Several(tuple((name, forms.of_records()) for name, forms in some.items()))
    return Forms(together, None, GroupedTogether(grouped) if len(grouped) == len(columns) else None)


def _named(name: Any, entry: Any) -> Forms:
    if not isinstance(name, str):
        raise DataflowError(f"aggregate() was given {show(name, 60)} as a name: it must be a text")
    if isinstance(entry, tuple) and len(entry) != 2:
        raise DataflowError(f"aggregate() was given {show(entry, 60)} for {name!r}: give an aggregation, or a pair (aggregation, value)")
    how, value = entry if isinstance(entry, tuple) else (entry, None)
    return _one(how, value, f"aggregate ({name!r})")


def _one(how: Aggregator | str, value: Value, what: str) -> Forms:
    """One aggregation, of the records or of a value of each."""
    if how == "count":
        return Forms(functions.count, functions.one, Counted())
    field = value if isinstance(value, str) else None
    if isinstance(how, str) and how in _OF_SUMS:
        if value is None:
            raise DataflowError(f'{what}: a {how} needs a value, a field or a function: ("{how}", "v")')
        linear = None if field is None else Summed(field, mean=how == "mean")
        return Forms(_OF_SUMS[how], functions.Added(selected(value, what)), linear)
    if isinstance(how, str) and how in _BEST:
        best = None if callable(value) else ordered.Best(how == "max", field)
        return Forms(functions.Best(_BEST[how], functions.value_of(value, what)), None, best)
    aggregator = by_name(how)
    if isinstance(aggregator, InOrder):
        raise DataflowError(
            f"{what}: records of a collection have no order of their own, so there is no {aggregator.name}: use row_number(order_by), "
            "or top_k(1, field)"
        )
    return Forms(Aggregated(aggregator, functions.value_of(value, what)), None, None)


__all__ = ["Aggregated", "Forms", "OfRecords", "OfVectors", "Several", "Vectors", "forms_of"]
