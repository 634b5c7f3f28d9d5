"""Expressions of SQL over columns: a tree of values, each computed for all rows of a batch at once by kernels of Arrow.

They are not ``pyarrow.compute.Expression``: those evaluate each branch of a CASE for each row, so that ``CASE WHEN b <> 0 THEN a / b END``
fails, and have no form for half of the functions of SQL. Null is unknown: comparisons with it are null, and AND and OR know three values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.sql.values.casts import cast


@dataclass(frozen=True, slots=True)
class Frame:
    """Some rows.

    Args:
        columns: arrays of shape (rows,).
        rows: how many.
    """

    columns: Sequence[pa.Array]
    rows: int

    def taken(self, positions: Any) -> Frame:
        """These rows alone."""
        some = pa.array(positions)
        return Frame([column.take(some) for column in self.columns], len(some))


class Expression(ABC):
    """A value of each row."""

    @abstractmethod
    def of(self, frame: Frame) -> pa.Array | pa.Scalar:
        """Shape (rows,), or a scalar where it is the same in all rows."""

    def array(self, frame: Frame, kind: pa.DataType) -> pa.Array:
        """The values as an array of this type."""
        found = cast(self.of(frame), kind)
        return pa.repeat(found, frame.rows) if isinstance(found, pa.Scalar) else found


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A column, by its number."""

    at: int

    def of(self, frame: Frame) -> pa.Array | pa.Scalar:
        return frame.columns[self.at]


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A value that is the same in all rows."""

    value: pa.Scalar

    def of(self, frame: Frame) -> pa.Array | pa.Scalar:
        return self.value


@dataclass(frozen=True, slots=True)
class Interval(Expression):
    """A constant length of time, by its parts: Arrow's own value of it cannot be pickled.

    Args:
        months, days, nanoseconds: of it.
    """

    months: int
    days: int
    nanoseconds: int

    def of(self, frame: Frame) -> pa.Array | pa.Scalar:
        return pa.scalar(pa.MonthDayNano([self.months, self.days, self.nanoseconds]))


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """A value as another type; ``is_try``: null where it has no such form."""

    inner: Expression
    kind: pa.DataType
    is_try: bool = False

    def of(self, frame: Frame) -> pa.Array | pa.Scalar:
        return cast(self.inner.of(frame), self.kind, is_try=self.is_try)


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function of other values.

    Args:
        function: takes arrays and scalars, gives an array, or a scalar where all of them are scalars. It is pickled with the program.
        arguments: of it.
        kind: what DataFusion says that it gives.
    """

    function: Callable[..., Any]
    arguments: tuple[Expression, ...]
    kind: pa.DataType

    def of(self, frame: Frame) -> pa.Array | pa.Scalar:
        return cast(self.function(*(argument.of(frame) for argument in self.arguments)), self.kind)


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """The value behind the first condition that is true. Each is computed for the rows that get to it alone.

    Args:
        branches: conditions and values.
        otherwise: for rows for which none is true.
        kind: of the values.
    """

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    kind: pa.DataType

    def of(self, frame: Frame) -> pa.Array | pa.Scalar:
        left, rest = np.arange(frame.rows), frame
        positions, values = [], []
        for condition, value in self.branches:
            if not rest.rows:
                break
            holds = pc.fill_null(condition.array(rest, pa.bool_()), False).to_numpy(zero_copy_only=False)
            if holds.all():
                positions.append(left)
                values.append(value.array(rest, self.kind))
                left, rest = left[:0], rest.taken(np.zeros(0, np.int64))
            elif holds.any():
                positions.append(left[holds])
                values.append(value.array(rest.taken(np.flatnonzero(holds)), self.kind))
                left, rest = left[~holds], rest.taken(np.flatnonzero(~holds))
        if rest.rows or not positions:
            positions.append(left)
            values.append(self.otherwise.array(rest, self.kind))
        if len(values) == 1:
            return values[0]
        places = np.empty(frame.rows, np.int64)
        places[np.concatenate(positions)] = np.arange(frame.rows)
        return pa.concat_arrays(values).take(pa.array(places))


def columns_in(expression: Expression) -> frozenset[int]:
    """The numbers of the columns that an expression looks at.

    >>> sorted(columns_in(Cast(Column(3), pa.int64())))
    [3]
    """
    match expression:
        case Column(at):
            return frozenset((at,))
        case Cast(inner):
            return columns_in(inner)
        case Call(_, arguments):
            return frozenset().union(*map(columns_in, arguments))
        case Case(branches, otherwise):
            return columns_in(otherwise).union(*(columns_in(one) for branch in branches for one in branch))
    return frozenset()


def moved(expression: Expression, by: int) -> Expression:
    """The same over columns that have other numbers, by so many.

    >>> moved(Column(3), -2)
    Column(at=1)
    """
    match expression:
        case Column(at):
            return Column(at + by)
        case Cast(inner, kind, is_try):
            return Cast(moved(inner, by), kind, is_try)
        case Call(function, arguments, kind):
            return Call(function, tuple(moved(one, by) for one in arguments), kind)
        case Case(branches, otherwise, kind):
            return Case(tuple((moved(when, by), moved(then, by)) for when, then in branches), moved(otherwise, by), kind)
    return expression


__all__ = ["Call", "Case", "Cast", "Column", "Expression", "Frame", "Interval", "Literal", "columns_in", "moved"]
