"""Casts, as DataFusion has them: fractions are cut off for integers and rounded, half up, for decimals of fewer digits."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_SPACE = re.compile(r"^\s+|\s+$")
_TRUE, _FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")
Value = Any
"""An array or a scalar."""


def cast(value: Value, kind: pa.DataType, *, is_try: bool = False) -> Value:
    """``value`` as ``kind``. Raises ArrowInvalid for a value that has no such form, unless ``is_try``: then it is null.

    >>> cast(pa.array([1.9, -1.9]), pa.int64()).to_pylist(), cast(pa.array(["1", "x"]), pa.int64(), is_try=True).to_pylist()
    ([1, -1], [1, None])
    """
    if value.type == kind:
        return value
    if pa.types.is_null(value.type):
        return pa.scalar(None, kind) if isinstance(value, pa.Scalar) else pa.nulls(len(value), kind)
    if not is_try:
        return _cast(value, kind)
    try:
        return _cast(value, kind)
    except pa.ArrowInvalid:
        if isinstance(value, pa.Scalar):
            return pa.scalar(None, kind)
    return pa.concat_arrays([_or_null(value.slice(at, 1), kind) for at in range(len(value))])


def _or_null(one: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return _cast(one, kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)


def _cast(value: Value, kind: pa.DataType) -> Value:
    of = value.type
    if pa.types.is_integer(kind):
        if pa.types.is_floating(of):
            return pc.cast(pc.trunc(value), kind)
        if pa.types.is_decimal(of):
            return pc.cast(pc.cast(pc.trunc(value), pa.decimal128(38, 0), safe=False), kind)
        if pa.types.is_duration(of) or pa.types.is_timestamp(of):
            return pc.cast(pc.cast(value, pa.int64()), kind)
        if pa.types.is_date(of) or pa.types.is_time(of):
            return pc.cast(pc.cast(value, pa.int32() if of.bit_width == 32 else pa.int64()), kind)
    if pa.types.is_floating(kind) and pa.types.is_decimal(of):  # Arrow's own cast is off by a bit: 1.005 becomes 1.0050000000000001
        return pc.cast(pc.cast(value, pa.string()), kind)
    if pa.types.is_decimal(kind):
        return _to_decimal(value, kind)
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return _of_text(value, kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _to_text(value, kind)
    if pa.types.is_duration(kind) and pa.types.is_integer(of):
        return pc.cast(pc.cast(value, pa.int64()), kind)
    if pa.types.is_date32(kind) and pa.types.is_timestamp(of):
        return pc.cast(pc.floor_temporal(value, unit="day"), kind)
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(of):
        return pc.cast(value, kind, safe=False)
    return pc.cast(value, kind)


def _to_decimal(value: Value, kind: pa.DataType) -> Value:
    of = value.type
    if pa.types.is_decimal(of) and of.scale > kind.scale:
        value = pc.round(value, ndigits=kind.scale, round_mode="half_towards_infinity")
    elif pa.types.is_string(of) or pa.types.is_large_string(of):
        value = pc.utf8_trim_whitespace(value)
    elif pa.types.is_boolean(of):
        value = pc.cast(value, pa.int64())
    if pa.types.is_integer(value.type):
        value = pc.cast(value, pa.decimal128(20, 0) if value.type == pa.uint64() else pa.decimal128(19, 0))
    return pc.cast(value, kind)


def _of_text(value: Value, kind: pa.DataType) -> Value:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return pc.cast(value, kind)
    trimmed = pc.utf8_trim_whitespace(value)
    if pa.types.is_boolean(kind):
        low = pc.utf8_lower(trimmed)
        yes, no = (pc.is_in(low, value_set=pa.array(words, low.type)) for words in (_TRUE, _FALSE))
        odd = pc.and_(pc.invert(pc.or_(yes, no)), pc.is_valid(low))
        if pc.any(odd).as_py() if not isinstance(odd, pa.Scalar) else odd.as_py():
            raise pa.ArrowInvalid(f"a text that is cast to a boolean is none of {_TRUE} and {_FALSE}")
        return pc.if_else(pc.is_valid(low), yes, pa.scalar(None, pa.bool_()))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        try:
            return pc.cast(trimmed, kind)
        except pa.ArrowInvalid:
            return pc.cast(pc.cast(trimmed, pa.timestamp("ns")), kind, safe=False)
    return pc.cast(trimmed, kind)


def _to_text(value: Value, kind: pa.DataType) -> Value:
    text = pc.cast(value, kind)
    if pa.types.is_floating(value.type):  # 1.0, not 1
        whole = pc.match_substring_regex(text, pattern=r"^-?\d+$")
        return pc.if_else(whole, pc.binary_join_element_wise(text, pa.scalar(".0", kind), pa.scalar("", kind)), text)
    if pa.types.is_timestamp(value.type):
        return pc.replace_substring_regex(text, pattern=r"\.0+(Z?)$", replacement=r"\1")
    return text


__all__ = ["cast"]
