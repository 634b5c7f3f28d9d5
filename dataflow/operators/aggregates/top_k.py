"""``top_k``: the largest values of a key, or the records with the largest value of a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.kept import Ranked, is_placed, placed_input, values_of
from rayad.dataflow.operators.aggregates.partial import Partial
from rayad.dataflow.records.calling import checked_function, mapped
from rayad.dataflow.records.content_codes import plain_form
from rayad.dataflow.records.moments import moments
from rayad.dataflow.records.selectors import ValueSelector, require_columns
from rayad.progress import DataflowError, arguments, show


@dataclass
class TopK(Aggregator):
    """The ``k`` largest values, largest first; equal ones by their representation, so that the result does not depend on the order of
    arrival. Null and NaN, or values with such a ``by``, are passed over.

    >>> top = TopK(2)
    >>> top.result(top.merge(top.merge(top.create(3), top.create(5)), top.create(4)))
    [5, 4]
    """

    k: int
    by: Callable[[Any], Any] | str | None = None
    name: str = "top_k"
    is_tried: ClassVar[bool] = True
    takes_record: ClassVar[bool] = True
    state_columns = ("values",)
    partials: Sequence[Partial] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        self.k = arguments.whole(self.k, "top_k: k", least=1)
        if not (self.by is None or isinstance(self.by, str) or callable(self.by)):
            raise DataflowError(f"top_k was given by={show(self.by, 60)}: give a function of the record or a column name")
        if callable(self.by):
            checked_function(self.by, "top_k (by)", "record")
        elif type(self) is TopK:
            self.partials = (Ranked(self.k, largest=True),)

    @property
    def rows_reason(self) -> str:
        return f"the order of {self.name} is a function" if callable(self.by) else super().rows_reason

    @property
    def makes_input(self) -> bool:
        return True

    def input_of(self, batch: pa.RecordBatch, value: ValueSelector, column: str | None) -> pa.Array | str:
        if self.by is None:
            if column is None:
                return f"the value of {self.name} is a {'record' if value.is_record else 'function'}"
            found = batch.column(column)
            return plain_form(found) if is_placed(found.type) else f"{self.name} of {found.type} ({column!r}) handles rows"
        if not value.is_record:
            return f"the order of {self.name} is a field of its value"
        require_columns(batch, (str(self.by),))
        return placed_input(self.name, batch, str(self.by), None)

    def takes_type(self, kind: pa.DataType) -> bool:
        return True

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return list(partials[0]) if self.by is None else [item["value"] for item in partials[0]]

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return totals[0] if self.by is None else values_of(totals[0])

    def create(self, value: Any) -> Any:
        return [value]

    def add(self, accumulator: Any, value: Any) -> Any:
        accumulator.append(value)
        return self._pruned(accumulator)

    def merge(self, left: Any, right: Any) -> Any:
        left.extend(right)
        return self._pruned(left)

    def result(self, accumulator: Any) -> Any:
        return self._largest(accumulator)

    def emitted(self, accumulator: Any) -> Any:
        return self.result(accumulator)  # a list of its own; the values are never changed

    def refusal(self, values: Sequence[Any]) -> str | None:
        return None if callable(self.by) else super().refusal(values)

    def opened(self, values: list[Any]) -> list[list[Any]]:
        return [list(map(self._largest, values))]

    def _pruned(self, values: list[Any]) -> list[Any]:
        return self._largest(values) if len(values) >= 4 * self.k + 16 else values

    def _largest(self, values: list[Any]) -> list[Any]:
        by = itemgetter(self.by) if isinstance(self.by, str) else self.by
        found = moments(values if by is None else mapped(by, values))
        there = [not (x is None or x != x) for x in found]
        if not all(there):
            found, values = list(compress(found, there)), list(compress(values, there))
        placed = sorted(zip(found, values, strict=True), key=lambda one: repr(one[1]))
        try:
            placed.sort(key=itemgetter(0), reverse=True)
        except TypeError as error:
            what = "records" if by is None else "values"
            raise DataflowError(
                f"top_k cannot compare {what} of types {sorted({type(x).__name__ for x in found})}: {error}; name what is "
                "compared with by=, a function of the record or a column name"
            ) from error
        return [value for _, value in placed[: self.k]]
