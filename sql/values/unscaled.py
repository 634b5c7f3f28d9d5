"""Decimals as integers and back: their sums are then sums of integers, which need no record to be kept, and stay in columns.

A decimal of up to 18 digits is one 64-bit integer, its digits without the point. A longer one is two: the low 60 bits, and those above.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

LOW_BITS = 60
_LOW = (1 << LOW_BITS) - 1
_CONTEXT = decimal.Context(prec=80)


def _words(values: pa.Array) -> tuple[Any, Any]:
    """Of decimal128: the low and the high 64 bits of each, shape (rows,), uint64 and int64."""
    raw = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    return raw[0::2].view(np.uint64), raw[1::2]


def _integers(values: pa.Array, made: Any) -> pa.Array:
    return pa.array(made, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


def whole(values: Any) -> Any:
    """All digits, of decimals with up to 18."""
    if isinstance(values, pa.Scalar):
        return whole(pa.array([values.as_py()], values.type))[0]
    return _integers(values, _words(values)[0].view(np.int64)) if len(values) else pa.array([], pa.int64())


def low(values: Any) -> Any:
    """The low bits."""
    if isinstance(values, pa.Scalar):
        return low(pa.array([values.as_py()], values.type))[0]
    return _integers(values, (_words(values)[0] & np.uint64(_LOW)).view(np.int64)) if len(values) else pa.array([], pa.int64())


def high(values: Any) -> Any:
    """The bits above these. Raises ArrowInvalid for a decimal of more than 122 bits."""
    if isinstance(values, pa.Scalar):
        return high(pa.array([values.as_py()], values.type))[0]
    if not len(values):
        return pa.array([], pa.int64())
    below, above = _words(values)
    if ((above >= 1 << 58) | (above < -(1 << 58))).any():
        raise pa.ArrowInvalid("a sum of decimals has a value of more than 36 digits")
    return _integers(values, (above << 4) | (below >> np.uint64(LOW_BITS)).view(np.int64))


def of_whole(integers: Any, digits: Any) -> Any:
    """Decimals with so many digits behind the point."""
    return of_parts(pa.array([0] * len(integers)), integers, digits)


def of_parts(above: Any, below: Any, digits: Any) -> Any:
    """Decimals of both parts."""
    scale = digits.as_py()
    made = [
        None if a is None or b is None else decimal.Decimal((a << LOW_BITS) + b).scaleb(-scale, _CONTEXT)
        for a, b in zip(above.to_pylist(), below.to_pylist(), strict=True)
    ]
    return pa.array(made, pa.decimal128(38, scale))


UNSCALED: dict[str, Callable[..., Any]] = {"whole": whole, "low": low, "high": high, "of_whole": of_whole, "of_parts": of_parts}
"""By name."""

__all__ = ["UNSCALED"]
