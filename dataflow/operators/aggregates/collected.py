"""Aggregates that keep values: how many different ones there are, and a list of all. Null is passed over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.kept import Different, Everything
from rayad.dataflow.operators.aggregates.lists import lengths_of
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.records.content_codes import contents_of, has_contents, plain_form
from rayad.dataflow.records.selectors import ValueSelector
from rayad.progress import DataflowError, show


class _OfAnyColumn(Aggregator):
    """In columns, of every type that :func:`has_contents`."""

    @property
    def makes_input(self) -> bool:
        return True

    def input_of(self, batch: pa.RecordBatch, value: ValueSelector, column: str | None) -> pa.Array | str:
        if column is None:
            return f"the value of {self.name} is a function"
        found = batch.column(column)
        return self.form_of(found) if has_contents(found.type) else f"{self.name} of {found.type} ({column!r}) handles rows"

    def form_of(self, column: pa.Array) -> pa.Array:
        """The column in the form that its partial takes."""
        return plain_form(column)

    def takes_type(self, kind: pa.DataType) -> bool:
        return True


class CountDistinct(_OfAnyColumn):
    """How many different values there are, exactly; they are compared as ``distinct`` does: NaN equals NaN, dicts and lists by content.

    An accumulator is a set, so a key takes room for each of its values.
    """

    name = "count_distinct"
    state_columns = ("values",)
    partials = (Different(),)

    def form_of(self, column: pa.Array) -> pa.Array:
        contents = contents_of(pa.RecordBatch.from_arrays([column], names=["value"]))
        assert contents is not None
        return contents.column(0)

    def accumulator(self, partials: Sequence[Any]) -> set[Any]:
        return {value for _, value in comparable([(None, one) for one in partials[0]])}

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return pa.array(lengths_of(totals[0]))

    def create(self, value: Any) -> set[Any]:
        return self.add(set(), value)

    def add(self, accumulator: set[Any], value: Any) -> set[Any]:
        if value is not None:
            self._put(accumulator, comparable([(None, value)])[0][1])
        return accumulator

    def merge(self, left: set[Any], right: set[Any]) -> set[Any]:
        left |= right
        return left

    def result(self, accumulator: set[Any]) -> int:
        return len(accumulator)

    def combine_into(self, partials: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        for key, value in comparable(list(zip(keys, values, strict=True))):
            some = partials.get(key)
            if some is None:
                some = partials[key] = set()
            if value is not None:
                self._put(some, value)

    def _put(self, into: set[Any], value: Any) -> None:
        try:
            into.add(value)
        except TypeError as error:
            raise DataflowError(
                f"{self.name} cannot tell {show(value, 60)} of type {type(value).__name__} from others: {error}; name what is compared "
                f"as its value, for instance {self.name}(lambda record: record.id)"
            ) from error

    def opened(self, values: list[Any]) -> list[list[Any]]:
        return [[[value for _, value in originals((None, one) for one in some)] for some in values]]

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        return [{value for _, value in comparable([(None, one) for one in some])} for some in columns[0]]


class CollectList(_OfAnyColumn):
    """The values, epoch after epoch. Those of one epoch are in the order in which they arrived, which another run need not repeat."""

    name = "collect_list"
    state_columns = ("values",)
    partials = (Everything(),)

    def accumulator(self, partials: Sequence[Any]) -> list[Any]:
        return list(partials[0])

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return totals[0]

    def create(self, value: Any) -> list[Any]:
        return [] if value is None else [value]

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        if value is not None:
            accumulator.append(value)
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        left.extend(right)
        return left

    def emitted(self, accumulator: list[Any]) -> list[Any]:
        return accumulator.copy()
