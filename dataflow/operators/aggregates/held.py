"""How a column of partials is held in numpy: numbers and bools as they are, moments and durations as numpy's own in the same unit, and all
else, text, bytes, decimals and times of day, as Python's objects: one for each key, never one for each row. Lists are held by columns
(:class:`Lists`).

Moments and durations have NaT where there is no value, objects have None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.aggregates.lists import Lists

Array = npt.NDArray[Any]
Held: TypeAlias = "Array | Lists"
_PLAIN = "iufb"
OBJECT_BYTES = 64
"""A short text or bytes, a decimal or a time of day, with what refers to it."""


def held_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy type of a column of this type.

    >>> held_dtype(pa.int32()), held_dtype(pa.timestamp("us", "UTC")), held_dtype(pa.string())
    (dtype('int32'), dtype('<M8[us]'), dtype('O'))
    """
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        plain: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return plain
    if pa.types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if pa.types.is_duration(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    if pa.types.is_date(kind):
        return np.dtype("datetime64[D]" if pa.types.is_date32(kind) else "datetime64[ms]")
    return np.dtype(object)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether Arrow and numpy order the values of a type that is no number as Python does, and give them back as they were."""
    moments = pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    times = pa.types.is_time(kind) and kind != pa.time64("ns")  # whose last digits Python does not have
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    octets = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_boolean(kind) or moments or times or texts or octets or pa.types.is_decimal(kind))


def is_summed(kind: pa.DataType) -> bool:
    """Whether columns add up the values of a type that is no number: exactly, or the vertex goes on in rows."""
    decimals = pa.types.is_decimal(kind) and 0 <= kind.scale <= 38
    return bool(pa.types.is_boolean(kind) or pa.types.is_duration(kind) or decimals)


def held(column: pa.Array, neutral: Any) -> Held:
    """A column as numpy values, with what is neutral in place of nulls."""
    if pa.types.is_list(column.type):
        return Lists.of(column)
    if not column.null_count:
        found: Array = column.to_numpy(zero_copy_only=False)
        return found
    dtype = held_dtype(column.type)
    if dtype.kind in _PLAIN:
        filled: Array = column.fill_null(pa.scalar(neutral, column.type)).to_numpy(zero_copy_only=False)
        return filled
    out: Array = column.to_numpy(zero_copy_only=False).astype(dtype)
    out[column.is_null().to_numpy(zero_copy_only=False)] = neutral
    return out


def as_column(array: Held, kind: pa.DataType) -> pa.Array:
    """What :func:`held` gave, as Arrow has it; NaT and None as null.

    >>> as_column(held(pa.array(["b", None]), None), pa.string()).to_pylist()
    ['b', None]
    """
    return array.as_column(kind) if isinstance(array, Lists) else pa.array(array, kind)


def nothing_held(kind: pa.DataType) -> Held:
    """What :func:`held` gives of an empty column of this type."""
    return Lists.of(pa.array([], kind)) if pa.types.is_list(kind) else np.zeros(0, held_dtype(kind))


def held_bytes(array: Held) -> int:
    """How much memory it takes, about.

    >>> held_bytes(np.zeros(10, np.int32)), held_bytes(np.full(10, None))
    (40, 640)
    """
    if isinstance(array, Lists) or array.dtype != np.dtype(object):
        return array.nbytes
    return len(array) * OBJECT_BYTES


def grown(array: Held, size: int, neutral: Any) -> Held:
    """Extend ``array`` to ``size`` entries with the neutral value."""
    if isinstance(array, Lists):
        return array.grown(size)
    out = np.full(size, neutral, dtype=array.dtype)
    out[: len(array)] = array
    return out


def as_values(array: Held, kind: pa.DataType) -> list[Any]:
    """What :func:`held` gave, as Python values."""
    values: list[Any] = (
        array.tolist() if not isinstance(array, Lists) and array.dtype.kind in _PLAIN else as_column(array, kind).to_pylist()
    )
    return values


def as_totals(arrays: Sequence[Held], kinds: Sequence[pa.DataType]) -> list[Any]:
    """Merged partials as ``Aggregator.finish`` takes them: arrays of numbers as they are, all else as Arrow columns."""
    return [array if array.dtype.kind in _PLAIN else as_column(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
