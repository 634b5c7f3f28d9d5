"""What a sum is: of which values, and how exactly.

Integers, decimals, fractions and durations are added exactly, whatever the order and whatever the thread's decimal context. Floats are
added as floats: results of different orders differ by rounding; :class:`ExactTotal` adds them exactly where that is asked for. Texts and
lists have no sum: putting them together would depend on the order of arrival. docs/decisions/029-sums.md says why.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.keys.group_functions import DECIMAL_DIGITS
from rayad.dataflow.records.exact import array_of
from rayad.progress import DataflowError, show

DIGITS_MAX = 100_000
"""Digits that a sum of decimals may have; beyond it is refused, never rounded."""
MEAN_DIGITS = 28
"""A mean of decimals is rounded, half to even, to this many digits, or to as many as their sum has."""
_EXACT = decimal.Context(
    prec=DIGITS_MAX,
    rounding=decimal.ROUND_HALF_EVEN,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow],
)
_NO_SUM = (str, bytes, bytearray, memoryview, list, tuple, dict, set, frozenset, dt.date, dt.time, np.datetime64)
_WHOLE_FLOATS = 1 << 53


def summand(value: Any, what: str) -> Any:
    """``value`` as it is added up: numpy's numbers as Python's, which have no bound. Raises DataflowError for what has no sum.

    >>> summand(np.int8(100), "sum") + summand(True, "sum")
    101
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, np.number) and not isinstance(value, (np.timedelta64, np.longdouble, np.clongdouble)):
        return summand(value.item(), what)
    if isinstance(value, _NO_SUM):
        text = ": text and lists put together depend on the order of arrival" if not isinstance(value, (dt.date, dt.time, dict)) else ""
        raise DataflowError(
            f"{what} was given {show(value, 60)} of type {type(value).__name__}: it adds numbers and durations{text}; name the number with "
            f"{what}(value), or use fold() or aggregate() with a rule of your own"
        )
    return value


def multiplied(value: Decimal, times: int) -> Decimal:
    """A decimal so often, with all its digits.

    >>> multiplied(Decimal("1.0000000000000000000000000000001"), 3)
    Decimal('3.0000000000000000000000000000003')
    """
    return _EXACT.multiply(value, Decimal(times))


def added(left: Any, right: Any) -> Any:
    """The sum of two values that :func:`summand` gave, neither of them None.

    >>> added(Decimal("1e30"), Decimal("0.01"))
    Decimal('1000000000000000000000000000000.01')
    """
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        try:
            return _EXACT.add(left, right)
        except decimal.Inexact as error:
            raise DataflowError(
                f"the sum of {_shown(left)} and {_shown(right)} has more than {DIGITS_MAX:,} digits: decimals are added exactly or not "
                "at all; round them with map() before, or convert them to float"
            ) from error
        except (decimal.DecimalException, TypeError) as error:
            raise DataflowError(
                f"{_shown(left)} and {_shown(right)} have no sum: convert the values to one type with map() before"
            ) from error
    return left + right


def _shown(value: Any) -> str:
    return f"{show(value, 60)} of type {type(value).__name__}"


def mean_of(total: Any, count: int) -> Any:
    """``total / count``; of decimals rounded as :data:`MEAN_DIGITS` says.

    >>> mean_of(Decimal("2.00"), 3), mean_of(7, 2)
    (Decimal('0.6666666666666666666666666667'), 3.5)
    """
    if not isinstance(total, Decimal):
        return total / count
    digits = max(MEAN_DIGITS, len(total.as_tuple().digits))
    return decimal.Context(prec=digits, rounding=decimal.ROUND_HALF_EVEN, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[]).divide(
        total, Decimal(count)
    )


def means_of(totals: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """:func:`mean_of` of each, shape (keys,); NaN where the count is 0.

    >>> means_of(np.array([2**63 - 1, 3]), np.array([3, 2])).tolist() == [(2**63 - 1) / 3, 1.5]
    True
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        out: npt.NDArray[np.float64] = totals / counts
    if totals.dtype.kind != "f":
        # Beyond 53 bits the total itself would be rounded first.
        wide = (totals > _WHOLE_FLOATS) | (totals < -_WHOLE_FLOATS) if totals.dtype.kind == "i" else totals > _WHOLE_FLOATS
        for at in np.flatnonzero(wide & (counts > 0)).tolist():
            out[at] = int(totals[at]) / int(counts[at])
    return out


_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def mean_durations(totals: pa.Array, counts: npt.NDArray[np.int64]) -> pa.Array:
    """:func:`mean_of` of each, as Python has it: in microseconds, rounded half to even; null where the count is 0.

    >>> mean_durations(pa.array([3, 5, 1], pa.duration("us")), np.array([2, 2, 0])).cast(pa.int64()).to_pylist()
    [2, 2, None]
    """
    times = _MICROSECONDS[totals.type.unit]
    numbers = totals.cast(pa.int64()).fill_null(0).to_numpy()
    divisors = np.where(counts > 0, counts, 1)
    if len(numbers) and max(int(numbers.max()), -int(numbers.min())) * times >= 1 << 62:
        numbers, divisors = numbers.astype(object), divisors.astype(object)
    numbers = numbers * times
    whole = numbers // divisors
    twice = 2 * (numbers - whole * divisors)
    means = whole + ((twice > divisors) | ((twice == divisors) & (whole % 2 == 1)))
    return pa.array(means.astype(np.int64), mask=counts == 0).cast(pa.duration("us"))


def mean_decimals(totals: pa.Array, counts: npt.NDArray[np.int64]) -> pa.Array:
    """:func:`mean_of` of each, not rounded further; null where the count is 0.

    A column has one scale: 28 digits behind the point, up to 30 for sums of more than two, which are often of small numbers, and 38 in
    all. Where a mean does not fit, the column is of the type that holds them all, as if they had been rows; so no schema is told in
    advance.

    >>> means = mean_decimals(pa.array([Decimal("2.00"), Decimal("1.50")], pa.decimal128(38, 2)), np.array([3, 2]))
    >>> means.type, means[0].as_py(), means[1].as_py() == Decimal("0.75")
    (Decimal128Type(decimal128(38, 28)), Decimal('0.6666666666666666666666666667'), True)
    >>> mean_decimals(pa.array([Decimal("0.02")], pa.decimal128(38, 2)), np.array([3])).type
    Decimal128Type(decimal128(30, 30))
    """
    means = [mean_of(total, count) if count else None for total, count in zip(totals.to_pylist(), counts.tolist(), strict=True)]
    scale = totals.type.scale
    usual = pa.decimal128(DECIMAL_DIGITS, max(MEAN_DIGITS, min(scale + 26, 30), scale))
    try:
        return pa.array(means, usual)
    except pa.ArrowInvalid:  # a value does not fit: it is refused, not rounded
        return array_of(means, None, "mean")


SCALE = 1074
"""Every finite float is a whole number of ``2 ** -SCALE``."""


@dataclass(frozen=True, slots=True)
class ExactTotal:
    """An exact sum of numbers, of floats too: it does not depend on their order.

    ``scaled`` is the sum of the finite floats in units of ``2 ** -SCALE``, None without one; ``special`` that of infinities and NaNs;
    ``others`` that of all other numbers, None without one.

    >>> exact_total([1e100, 1.0]).plus(exact_total([-1e100])).value()
    1.0
    """

    scaled: int | None = None
    special: float = 0.0
    others: Any = None

    def plus(self, other: ExactTotal) -> ExactTotal:
        """The sum of both."""
        return ExactTotal(_either(self.scaled, other.scaled, int.__add__), self.special + other.special, _either(self.others, other.others))

    def value(self) -> Any:
        """The sum, rounded once if there was a float."""
        return self.others if self.scaled is None and self.special == 0.0 else self._over(1)

    def mean(self, count: int) -> Any:
        """The sum divided by ``count``, rounded once."""
        return mean_of(self.others, count) if self.scaled is None and self.special == 0.0 else self._over(count)

    def _over(self, count: int) -> float:
        if self.special != 0.0:
            return self.special
        if isinstance(self.others, Decimal):
            added(self.others, 0.0)  # says that they do not go together
        together = Fraction(self.scaled or 0, 1 << SCALE) + (self.others or 0)
        try:
            return float(together / count)
        except OverflowError:
            return math.inf if together > 0 else -math.inf


def exact_total(values: Iterable[Any]) -> ExactTotal:
    """The exact sum of values that :func:`summand` gave, not one of them None."""
    scaled, special, others = None, 0.0, None
    for value in values:
        if not isinstance(value, float):
            others = _either(others, value)
        elif math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            scaled = (scaled or 0) + (numerator << (SCALE + 1 - denominator.bit_length()))
        else:
            special += value
    return ExactTotal(scaled, special, others)


def _either(left: Any, right: Any, plus: Callable[[Any, Any], Any] = added) -> Any:
    return right if left is None else left if right is None else plus(left, right)
