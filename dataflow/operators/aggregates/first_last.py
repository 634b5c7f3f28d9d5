"""The first and the last value of a key in an order that the records have themselves: their event time, or what the user names.

Records of one epoch come in any order, so there is no first one without such an order. With it the result depends on the records alone:
of equal places ``repr`` of the value decides, as for ``lag`` and ``head``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.kept import Ranked, only_values, placed_input
from rayad.dataflow.records.moments import moment
from rayad.dataflow.records.selectors import ValueSelector, require_columns
from rayad.progress import DataflowError, show

Placed = tuple[Any, Any]
"""A place in the order, and a value; None and None of no value."""


class InOrder(Aggregator):
    """The value at one end of the order. Null values, and records with null or NaN as their place, are passed over.

    What it aggregates is the whole record, of which it takes place and value; in columns where both are columns.

    Args:
        by: where a record's place is; None until it is known (:meth:`of`).
        value: where its value is.
    """

    takes_record: ClassVar[bool] = True
    gives_records: ClassVar[bool] = True
    takes_last: ClassVar[bool] = False
    state_columns = ("place", "value")

    def __init__(self, by: ValueSelector | None = None, value: ValueSelector | None = None) -> None:
        self.by = by
        self.value = value
        self._place = by.row_value() if by is not None else None
        self._value = value.row_value() if value is not None else None
        if type(self) in (First, Last):
            self.partials = (Ranked(1, largest=self.takes_last, greatest_repr=self.takes_last),)

    # -- in columns ----------------------------------------------------------------
    @property
    def makes_input(self) -> bool:
        return True

    def input_of(self, batch: pa.RecordBatch, value: ValueSelector, column: str | None) -> pa.Array | str:
        by, of = self.by, self.value
        assert by is not None
        assert of is not None
        if by.column is None:
            return f"the order of {self.name} is a function"
        if of.column is None and not of.is_record:
            return f"the value of {self.name} is a function"
        require_columns(batch, (by.column, *of.columns))
        return placed_input(self.name, batch, by.column, of.column)

    def shown_as(self, value: ValueSelector) -> str | None:
        return None if self.value is None else self.value.column

    def takes_type(self, kind: pa.DataType) -> bool:
        return True

    def accumulator(self, partials: Sequence[Any]) -> Placed:
        return (moment(partials[0][0]["place"]), partials[0][0]["value"]) if partials[0] else (None, None)

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return only_values(totals[0])

    # -- in rows -------------------------------------------------------------------
    def __reduce__(self) -> Any:
        return type(self), (self.by, self.value)

    def of(self, by: ValueSelector, value: ValueSelector) -> InOrder:
        """A copy of this aggregator that orders by ``by`` and keeps ``value``."""
        return type(self)(by, value)

    def create(self, value: Any) -> Placed:
        assert self._place is not None
        assert self._value is not None
        place, found = moment(self._place(value)), self._value(value)
        return (None, None) if found is None or place is None or place != place else (place, found)

    def merge(self, left: Placed, right: Placed) -> Placed:
        if left[1] is None or right[1] is None:
            return right if left[1] is None else left
        try:
            before = repr(left[1]) <= repr(right[1]) if left[0] == right[0] else left[0] < right[0]
        except TypeError as error:
            raise DataflowError(
                f"{self.name} cannot order {show(left[0], 60)} of type {type(left[0]).__name__} and {show(right[0], 60)} of type "
                f"{type(right[0]).__name__}: {error}; give by= a function or column whose values compare"
            ) from error
        return left if before != self.takes_last else right

    def result(self, accumulator: Placed) -> Any:
        return accumulator[1]

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Placed]:
        return [(moment(place), value) for place, value in zip(*columns, strict=True)]


class First(InOrder):
    """The value of the record that comes first."""

    name = "first"
    state_columns = InOrder.state_columns


class Last(InOrder):
    """The value of the record that comes last."""

    name = "last"
    takes_last = True
    state_columns = InOrder.state_columns
