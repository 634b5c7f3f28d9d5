"""Aggregates that keep values: how many different ones there are, and a list of all. Null is passed over. They are of rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.progress import DataflowError, show


class CountDistinct(Aggregator):
    """How many different values there are, exactly; they are compared as ``distinct`` does: NaN equals NaN, dicts and lists by content.

    An accumulator is a set, so a key takes room for each of its values.
    """

    name = "count_distinct"
    state_columns = ("values",)

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


class CollectList(Aggregator):
    """The values, epoch after epoch. Those of one epoch are in the order in which they arrived, which another run need not repeat."""

    name = "collect_list"
    state_columns = ("values",)

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
