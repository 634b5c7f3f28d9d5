"""Operators of SQL between two columns: arithmetic, comparison, logic, texts.

A division by zero is null, for numbers of all types, as in DuckDB, SQLite and MySQL: a job must not end because one record has a zero.
An integer that overflows ends the job.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayad.sql.values import moments
from rayad.sql.values.casts import cast
from rayad.sql.values.patterns import matches_regex

Value = Any
"""An array or a scalar."""
_DIGITS = decimal.Context(prec=80, rounding=decimal.ROUND_DOWN)


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) or pa.types.is_interval(kind))


def _wide(one: Value, other: Value) -> tuple[Value, Value]:
    """Decimals with room for what comes out, and numbers beside them as decimals."""
    sides = []
    for value, beside in ((one, other), (other, one)):
        kind = value.type
        if pa.types.is_decimal(kind):
            sides.append(value if pa.types.is_floating(beside.type) else pc.cast(value, pa.decimal256(kind.precision, kind.scale)))
        elif pa.types.is_integer(kind) and pa.types.is_decimal(beside.type):
            sides.append(pc.cast(cast(value, pa.decimal128(20, 0)), pa.decimal256(20, 0)))
        else:
            sides.append(value)
    kinds = {pa.types.is_floating(side.type) for side in sides}
    if len(kinds) == 2:
        sides = [cast(side, pa.float64()) for side in sides]
    return sides[0], sides[1]


def plus(one: Value, other: Value) -> Value:
    """``one + other``."""
    if _is_moment(one.type) or _is_moment(other.type):
        return moments.plus(one, other)
    return pc.add_checked(*_wide(one, other))


def minus(one: Value, other: Value) -> Value:
    """``one - other``."""
    if _is_moment(one.type) or _is_moment(other.type):
        return moments.minus(one, other)
    return pc.subtract_checked(*_wide(one, other))


def times(one: Value, other: Value) -> Value:
    """``one * other``."""
    if pa.types.is_decimal(one.type) and pa.types.is_decimal(other.type) and one.type.precision + other.type.precision > 75:
        return _of_decimals(one, other, _product)
    return pc.multiply_checked(*_wide(one, other))


def _divisor(value: Value) -> Value:
    zero = pa.scalar(0, value.type) if not pa.types.is_decimal(value.type) else pa.scalar(decimal.Decimal(0), value.type)
    return pc.if_else(pc.equal(value, zero), pa.scalar(None, value.type), value)


def divided(one: Value, other: Value) -> Value:
    """``one / other``, of integers without the fraction."""
    if pa.types.is_decimal(one.type) or pa.types.is_decimal(other.type):
        return _of_decimals(one, other, _quotient)
    return pc.divide(one, _divisor(other))


def remainder(one: Value, other: Value) -> Value:
    """``one % other``, with the sign of ``one``."""
    if pa.types.is_decimal(one.type) or pa.types.is_decimal(other.type):
        return _of_decimals(one, other, _rest)
    whole = pc.divide(one, _divisor(other))
    if pa.types.is_floating(whole.type):
        whole = pc.trunc(whole)
    return pc.subtract(one, pc.multiply(whole, other))


def _product(one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
    return _DIGITS.multiply(one, other)


def _quotient(one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
    return _DIGITS.divide(one, other).quantize(decimal.Decimal(1).scaleb(-12), context=_DIGITS)


def _rest(one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
    return _DIGITS.remainder(one, other)


def _of_decimals(one: Value, other: Value, function: Callable[[Any, Any], Any]) -> Value:
    """Digit by digit in Python: kernels of Arrow refuse quotients of more than 38 digits."""
    if pa.types.is_floating(one.type) or pa.types.is_floating(other.type):
        return (divided if function is _quotient else remainder)(cast(one, pa.float64()), cast(other, pa.float64()))
    is_scalar = isinstance(one, pa.Scalar) and isinstance(other, pa.Scalar)
    rows = next((len(side) for side in (one, other) if not isinstance(side, pa.Scalar)), 1)
    sides = [[side.as_py()] * rows if isinstance(side, pa.Scalar) else side.to_pylist() for side in (one, other)]
    made = [
        None if a is None or b is None or (not b and function is not _product) else function(decimal.Decimal(a), decimal.Decimal(b))
        for a, b in zip(*sides, strict=True)
    ]
    found = pa.array(made) if any(value is not None for value in made) else pa.nulls(rows)
    return found[0] if is_scalar else found


def _compared(function: Callable[..., Any]) -> Callable[[Value, Value], Value]:
    def compared(one: Value, other: Value) -> Value:
        if one.type != other.type and (pa.types.is_decimal(one.type) or pa.types.is_decimal(other.type)):
            one, other = _wide(one, other)
        return function(one, other)

    return compared


def distinct_from(one: Value, other: Value) -> Value:
    """Whether they differ, where null is a value like others."""
    differ = pc.fill_null(_compared(pc.not_equal)(one, other), False)
    return pc.or_(differ, pc.xor(pc.is_null(one), pc.is_null(other)))


def same_as(one: Value, other: Value) -> Value:
    """Whether they are equal, where null is a value like others."""
    return pc.invert(distinct_from(one, other))


def joined(one: Value, other: Value) -> Value:
    """``one || other``."""
    one, other = (cast(side, pa.string()) for side in (one, other))
    return pc.binary_join_element_wise(one, other, "")


def no_match(one: Value, other: Value) -> Value:
    """``one !~ other``."""
    return pc.invert(matches_regex(one, other))


def negative(value: Value) -> Value:
    """``-value``."""
    if pa.types.is_interval(value.type):
        months, days, nanos = value.as_py()
        return pa.scalar(pa.MonthDayNano([-months, -days, -nanos]), value.type)
    if pa.types.is_duration(value.type):
        return pc.cast(pc.negate(pc.cast(value, pa.int64())), value.type)
    return pc.negate_checked(value)


def is_true(value: Value) -> Value:
    """Whether it is true, null being false."""
    return pc.fill_null(value, False)


def is_false(value: Value) -> Value:
    """Whether it is false."""
    return pc.invert(pc.fill_null(value, True))


def is_not_true(value: Value) -> Value:
    """Whether it is false or null."""
    return pc.invert(is_true(value))


def is_not_false(value: Value) -> Value:
    """Whether it is true or null."""
    return pc.fill_null(value, True)


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "+": plus,
    "-": minus,
    "*": times,
    "/": divided,
    "%": remainder,
    "=": _compared(pc.equal),
    "!=": _compared(pc.not_equal),
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "AND": pc.and_kleene,
    "OR": pc.or_kleene,
    "IS DISTINCT FROM": distinct_from,
    "IS NOT DISTINCT FROM": same_as,
    "||": joined,
    "~": matches_regex,
    "!~": no_match,
    "&": pc.bit_wise_and,
    "|": pc.bit_wise_or,
    "BIT_XOR": pc.bit_wise_xor,
    "<<": pc.shift_left_checked,
    ">>": pc.shift_right_checked,
}
"""By DataFusion's name."""
UNARY: dict[str, Callable[[Value], Value]] = {
    "Not": pc.invert,
    "Negative": negative,
    "IsNull": pc.is_null,
    "IsNotNull": pc.is_valid,
    "IsTrue": is_true,
    "IsFalse": is_false,
    "IsNotTrue": is_not_true,
    "IsNotFalse": is_not_false,
    "IsUnknown": pc.is_null,
    "IsNotUnknown": pc.is_valid,
}
"""By the name of DataFusion's variant."""

__all__ = ["BINARY", "UNARY", "divided", "remainder"]
