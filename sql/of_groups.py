"""Aggregates that need the records of a group: of distinct values, variances, in an order, of one value.

Computed anew for a group that changes, of the records in the order of their contents, so that the same records give the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.incremental.columns.grouped import Records
from rayad.sql.ordering import OfRecords, Order, positions
from rayad.sql.steps import names_of
from rayad.sql.values.casts import cast

Rows = list[tuple[Any, ...]]
"""The arguments of one aggregate in each row, each as often as it is there."""


def _count(rows: Rows) -> int:
    return len(rows)


def _sum(rows: Rows) -> Any:
    values = [row[0] for row in rows]
    return None if not values else math.fsum(values) if isinstance(values[0], float) else sum(values)


def _avg(rows: Rows) -> Any:
    total = _sum(rows)
    return None if total is None else total / len(rows) if not isinstance(total, Decimal) else total / Decimal(len(rows))


def _off(rows: Rows, one: int, other: int) -> Fraction:
    """The sum of what two columns are off their means, multiplied: exactly, so that equal values have no variance."""
    left, right = ([Fraction(row[side]) for row in rows] for side in (one, other))
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0)) - sum(left, Fraction(0)) * sum(right, Fraction(0)) / len(
        rows
    )


def _variance(rows: Rows, beside: int) -> float | None:
    return None if len(rows) <= beside else float(_off(rows, 0, 0) / (len(rows) - beside))


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _covariance(rows: Rows, beside: int) -> float | None:
    return None if len(rows) <= beside else float(_off(rows, 0, 1) / (len(rows) - beside))


def _correlation(rows: Rows) -> float | None:
    if len(rows) < 2:
        return None
    squares = _off(rows, 0, 0) * _off(rows, 1, 1)
    return float(_off(rows, 0, 1)) / math.sqrt(squares) if squares else None


def _median(rows: Rows) -> Any:
    values = sorted(row[0] for row in rows)
    if not values:
        return None
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def _string_agg(rows: Rows) -> str | None:
    return (rows[0][1] or "").join(row[0] for row in rows) if rows else None


_WITH_NULLS = frozenset(("first_value", "last_value"))
"""Aggregates that look at nulls, too."""
AGGREGATES: dict[str, Callable[[Rows], Any]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": lambda rows: min((row[0] for row in rows), default=None),
    "max": lambda rows: max((row[0] for row in rows), default=None),
    "var": lambda rows: _variance(rows, 1),
    "var_samp": lambda rows: _variance(rows, 1),
    "var_pop": lambda rows: _variance(rows, 0),
    "stddev": lambda rows: _root(_variance(rows, 1)),
    "stddev_samp": lambda rows: _root(_variance(rows, 1)),
    "stddev_pop": lambda rows: _root(_variance(rows, 0)),
    "covar_samp": lambda rows: _covariance(rows, 1),
    "covar_pop": lambda rows: _covariance(rows, 0),
    "corr": _correlation,
    "median": _median,
    "bool_and": lambda rows: all(row[0] for row in rows) if rows else None,
    "bool_or": lambda rows: any(row[0] for row in rows) if rows else None,
    "string_agg": _string_agg,
    "first_value": lambda rows: rows[0][0] if rows else None,
    "last_value": lambda rows: rows[-1][0] if rows else None,
}
"""By DataFusion's name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One aggregate of the columns of records.

    Args:
        name: in :data:`AGGREGATES`.
        arguments: the numbers of its columns.
        counts: the number of the column that says which rows count; None: all.
        distinct: whether each value counts once.
        order: of the rows.
        kind: of the result.
    """

    name: str
    arguments: tuple[int, ...]
    counts: int | None
    distinct: bool
    order: Order
    kind: pa.DataType

    def of(self, columns: Sequence[Sequence[Any]], weights: Sequence[int], rows: Sequence[int]) -> Any:
        """Of some rows, in their order."""
        some: Rows = []
        seen = set()
        for at in rows:
            if self.counts is not None and not columns[self.counts][at]:
                continue
            values = tuple(columns[argument][at] for argument in self.arguments)
            if None in values[:2] and self.name not in _WITH_NULLS and not (self.name == "string_agg" and values[0] is not None):
                continue
            if not self.distinct:
                some += [values] * weights[at]
            elif values not in seen:
                seen.add(values)
                some.append(values)
        return AGGREGATES[self.name](some)


@dataclass(frozen=True)
class Aggregated(OfRecords):
    """Aggregates of the records of each key.

    Args:
        wanted: which.
    """

    wanted: tuple[Wanted, ...]

    prefix = "a"
    has_one_row = True

    def results(self, there: Records) -> Records:
        """See there."""
        columns = self.columns(there.record)
        values = [column.to_pylist() for column in columns]
        groups, starts = np.unique(there.group, return_index=True)
        results = []
        weights = there.weights.tolist()
        for wanted in self.wanted:
            at = positions(there.group, columns, wanted.order, columns).tolist()
            ends = [*starts[1:].tolist(), len(at)]
            found = [wanted.of(values, weights, at[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)]
            results.append(column_of(found, wanted.kind))
        record = pa.StructArray.from_arrays(results, names=list(names_of(len(results), "r")))
        return Records(groups, record, np.ones(len(groups), np.int64))


def column_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Python values as a column."""
    if pa.types.is_decimal(kind) and any(isinstance(value, Decimal) for value in values):
        return cast(pa.array(values), kind)
    return cast(pa.array(values, None if any(value is not None for value in values) and not pa.types.is_temporal(kind) else kind), kind)


__all__ = ["AGGREGATES", "Aggregated", "Wanted", "column_of"]
