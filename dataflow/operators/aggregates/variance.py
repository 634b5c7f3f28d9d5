"""Variance and standard deviation of the values of a key.

A variance is a count, the mean, and the sum of the squared distances from it; two of these merge without a difference of large numbers
(Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979). Rows of whole numbers and
fractions are added exactly, and rounded once. All else is computed in floats, in columns and in rows, and agrees up to rounding; whole
numbers beyond 53 bits, which floats do not hold, are left to the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.partial import Array, Partial, Values
from rayad.dataflow.operators.aggregates.sums import summand
from rayad.dataflow.operators.keys.group_functions import COUNT_VALUES, MEAN, VARIANCE
from rayad.dataflow.operators.keys.keyed import may_overflow
from rayad.progress import DataflowError, arguments, show

_WHOLE_FLOATS = 1 << 53


@dataclass(frozen=True, slots=True)
class Exact:
    """The sum of whole numbers or fractions, and that of their squares."""

    count: int
    total: int | Fraction
    squares: int | Fraction

    def variance(self, ddof: int) -> float:
        """Rounded once."""
        return _rounded(Fraction(self.count * self.squares - self.total * self.total, self.count * (self.count - ddof)))

    def moments(self) -> Moments:
        """Count, mean and sum of squared deviations, in floats."""
        mean, rest = Fraction(self.total, self.count), Fraction(self.count * self.squares - self.total * self.total, self.count)
        return Moments(self.count, _rounded(mean), _rounded(rest))


@dataclass(frozen=True, slots=True)
class Moments:
    """The mean of floats, and the sum of their squared distances from it."""

    count: int
    mean: float
    m2: float

    def variance(self, ddof: int) -> float:
        """The sample variance for ``ddof`` 1, that of a whole population for 0."""
        return self.m2 / (self.count - ddof)

    def moments(self) -> Moments:
        """Itself."""
        return self


Spread: TypeAlias = Exact | Moments | None
"""An accumulator: None of no value."""


def _rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def merged(left: Spread, right: Spread) -> Spread:
    """What both stand for together.

    >>> merged(Exact(1, 3, 9), Moments(1, 5.0, 0.0))
    Moments(count=2, mean=4.0, m2=2.0)
    """
    if left is None or right is None:
        return right if left is None else left
    if isinstance(left, Exact) and isinstance(right, Exact):
        return Exact(left.count + right.count, left.total + right.total, left.squares + right.squares)
    a, b = left.moments(), right.moments()
    count, apart = a.count + b.count, b.mean - a.mean
    return Moments(count, a.mean + apart * (b.count / count), a.m2 + b.m2 + apart * apart * (a.count / count) * b.count)


def spread_of(values: Iterable[Any], what: str) -> Spread:
    """The accumulator of these values; null is passed over. Raises DataflowError for what is no number.

    >>> spread_of([1, None, 4], "var"), spread_of([1.0, 4.0], "var")
    (Exact(count=2, total=5, squares=17), Moments(count=2, mean=2.5, m2=4.5))
    """
    exact: list[int | Fraction] = []
    floats: list[float] = []
    for value in values:
        if type(value) is float:
            floats.append(value)
        elif type(value) is int:
            exact.append(value)
        elif value is not None:
            value = summand(value, what)
            if isinstance(value, Rational):
                exact.append(value if isinstance(value, (int, Fraction)) else Fraction(value))
            elif isinstance(value, (Real, Decimal)):
                floats.append(float(value))
            else:
                raise DataflowError(
                    f"{what} was given {show(value, 60)} of type {type(value).__name__}: it takes real numbers; make one of it with map() "
                    "before (of a timedelta x.total_seconds())"
                )
    out: Spread = None
    if exact:
        out = Exact(len(exact), sum(exact), sum([value * value for value in exact]))
    if floats:
        mean = sum(floats) / len(floats)
        apart = [value - mean for value in floats]
        rest = sum(apart)  # 0 but for the rounding of the mean
        out = merged(out, Moments(len(floats), mean, max(sum([d * d for d in apart]) - rest * rest / len(floats), 0.0)))
    return out


class Dispersion(Partial):
    """How many values there were, their mean, and the sum of their squared distances from it."""

    columns = ("count", "mean", "m2")
    of_rows = (COUNT_VALUES, MEAN, VARIANCE)
    goes_on = True

    def needs_rows(self, values: Values) -> bool:
        """Whether floats do not hold these whole numbers, or their sum, of which Arrow makes the mean, could leave 64 bits."""
        kind = values.type
        if not pa.types.is_integer(kind) or kind.bit_width <= 32:
            return False
        bounds = pc.min_max(values)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        return high is not None and (max(-low, high) > _WHOLE_FLOATS or may_overflow(values))

    def made(self, columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
        count, mean, variance = columns
        return [count, mean.fill_null(0.0), pc.multiply(variance.fill_null(0.0), count)]

    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        assert values is not None
        if self.needs_rows(values):
            return None
        # A value that is NaN or infinite is at no distance from itself that could be told: the distance is NaN.
        mean = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            return [pc.is_valid(values).cast(kinds[0]), pa.array(mean), pa.array(mean - mean)]

    def neutral(self, at: int, dtype: np.dtype[Any]) -> Any:
        return dtype.type(0).item()

    def merged(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        """As :func:`merged`, of each."""
        count = left[0] + right[0]
        share = right[0] / np.maximum(count, 1)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.where((left[0] > 0) & (right[0] > 0), right[1] - left[1], 0.0)
            mean = np.where(left[0] > 0, left[1], right[1]) + apart * share
            return [count, mean, left[2] + right[2] + apart * apart * share * left[0]]


@dataclass
class Variance(Aggregator):
    """The variance of the values that are not null; None of fewer than ``ddof + 1``.

    Args:
        ddof: what is taken from the count to divide by: 1 for a sample, 0 for a whole population.
    """

    ddof: int = 1
    name: str = "var"
    is_tried: ClassVar[bool] = True
    partials = (Dispersion(),)
    may_change: ClassVar[frozenset[str]] = frozenset({"ddof"})

    def __post_init__(self) -> None:
        self.ddof = arguments.whole(self.ddof, f"{self.name}: ddof", least=0)

    def create(self, value: Any) -> Spread:
        return spread_of((value,), self.name)

    def merge(self, left: Spread, right: Spread) -> Spread:
        return merged(left, right)

    def combine_into(self, partials: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        of_key: dict[Any, list[Any]] = {}
        for key, value in zip(keys, values, strict=True):
            of_key.setdefault(key, []).append(value)
        self.merge_into(partials, ((key, spread_of(some, self.name)) for key, some in of_key.items()))

    def result(self, accumulator: Spread) -> float | None:
        return None if accumulator is None or accumulator.count <= self.ddof else accumulator.variance(self.ddof)

    def accumulator(self, partials: Sequence[Any]) -> Spread:
        return Moments(*partials) if partials[0] else None

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        few = totals[0] <= self.ddof
        return pa.array(totals[2] / np.where(few, 1, totals[0] - self.ddof), mask=few)


@dataclass
class Deviation(Variance):
    """The standard deviation, the root of the :class:`Variance`."""

    name: str = "std"
    is_tried: ClassVar[bool] = True
    partials = Variance.partials

    def result(self, accumulator: Spread) -> float | None:
        found = super().result(accumulator)
        return None if found is None else math.sqrt(found)

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return pc.sqrt(super().finish(totals))
