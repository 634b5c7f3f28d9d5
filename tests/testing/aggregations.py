"""Aggregations as users write them, with a columnar form."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd


class GeometricMean(rd.Aggregator):
    """The n-th root of the product of n positive numbers: an accumulator is the sum of the logarithms, and n."""

    name = "geometric_mean"
    columns: ClassVar[dict[str, str]] = {"logarithms": "sum", "n": "sum"}

    def create(self, value: Any) -> Any:
        return (None, None) if value is None else (math.log(value), 1)

    def merge(self, left: Any, right: Any) -> Any:
        if left[0] is None or right[0] is None:
            return right if left[0] is None else left
        return (left[0] + right[0], left[1] + right[1])

    def result(self, accumulator: Any) -> Any:
        total, n = accumulator
        return None if n is None else math.exp(total / n)

    def create_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        return {"logarithms": pc.ln(values), "n": pc.if_else(values.is_valid(), 1, None)}

    def result_columns(self, columns: Any) -> pa.Array:
        return pc.exp(pc.divide(columns["logarithms"], columns["n"]))


class Spread(rd.Aggregator):
    """How far the largest value is from the smallest."""

    columns: ClassVar[dict[str, str]] = {"low": "min", "high": "max"}

    def create(self, value: Any) -> Any:
        return (value, value)

    def merge(self, left: Any, right: Any) -> Any:
        known = [part for part in (left, right) if part[0] is not None]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else left

    def result(self, accumulator: Any) -> Any:
        low, high = accumulator
        return None if low is None else high - low

    def create_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        return {"low": values, "high": values}

    def result_columns(self, columns: Any) -> pa.Array:
        return pc.subtract(columns["high"], columns["low"])


class Whole(rd.Aggregator):
    """A sum of one column."""

    columns: ClassVar[dict[str, str]] = {"total": "sum"}

    def create(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return right if left is None else left if right is None else left + right

    def create_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        return {"total": values}

    def result_columns(self, columns: Any) -> pa.Array:
        return columns["total"]
