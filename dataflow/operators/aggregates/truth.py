"""``any`` and ``all`` of bools: SQL's ``bool_or`` and ``bool_and``. Null is passed over, and of no value the answer is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.partial import COUNT_VALID, TOTAL
from rayad.progress import DataflowError, show


class _OfBools(Aggregator):
    """An accumulator is a bool, or None of no value; columns keep how many values are true, and how many there are."""

    def create(self, value: Any) -> bool | None:
        if value is None or isinstance(value, (bool, np.bool_)):
            return None if value is None else bool(value)
        raise DataflowError(
            f"{self.name} was given {show(value, 60)} of type {type(value).__name__}: it takes bools and nulls; name a comparison as its "
            f"value, for instance {self.name}(lambda record: record[...] > 0)"
        )

    def takes_type(self, kind: pa.DataType) -> bool:
        return bool(pa.types.is_boolean(kind))


class AnyTrue(_OfBools):
    """Whether a value is true."""

    name = "any"
    is_tried = True
    partials = (TOTAL, COUNT_VALID)
    state_columns = ("any",)

    def merge(self, left: bool | None, right: bool | None) -> bool | None:
        return right if left is None else left if right is None else left or right

    def accumulator(self, partials: Sequence[Any]) -> bool | None:
        return partials[0] > 0 if partials[1] else None

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return pa.array(totals[0] > 0, mask=totals[1] == 0)


class AllTrue(_OfBools):
    """Whether no value is false."""

    name = "all"
    is_tried = True
    partials = (TOTAL, COUNT_VALID)
    state_columns = ("all",)

    def merge(self, left: bool | None, right: bool | None) -> bool | None:
        return right if left is None else left if right is None else left and right

    def accumulator(self, partials: Sequence[Any]) -> bool | None:
        return partials[0] == partials[1] if partials[1] else None

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return pa.array(totals[0] == totals[1], mask=totals[1] == 0)
