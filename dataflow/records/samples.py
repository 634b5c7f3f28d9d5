"""Two values of an Arrow type, as rows have them: what an operator says of these it says of every value of the type, as far as types tell.

So what cannot be is found when the program is written by asking what would run, and no list of types could say something else.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pat


@lru_cache(maxsize=1024)
def samples(kind: pa.DataType) -> tuple[Any, ...]:
    """Two different values of a type, the same ones in types that hold the same values; none where the type does not tell what values are:
    null, unions, and what is made of them.

    >>> samples(pa.int8()), samples(pa.list_(pa.string()))
    ((0, 1), (['a'], ['b']))
    """
    if pat.is_dictionary(kind) or pat.is_run_end_encoded(kind):
        return samples(kind.value_type)
    try:
        return tuple(_values(kind).to_pylist())
    except (pa.ArrowException, ValueError):  # no such values, or none that Python has
        return ()


def _values(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _values(kind.storage_type))
    if pat.is_boolean(kind):
        return pa.array([False, True])
    if pat.is_decimal(kind):
        return pa.array([Decimal(0), Decimal(1).scaleb(-kind.scale)], kind)
    if pat.is_integer(kind) or pat.is_floating(kind):
        return pa.array([0, 1], pa.int8()).cast(kind)
    if pat.is_temporal(kind) and not pat.is_interval(kind):
        further = 86_400_000 if pat.is_date64(kind) else 1000  # whole days, and nanoseconds that Python has
        return pa.array([0, further], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.array(_others(kind), kind)


def _others(kind: pa.DataType) -> list[Any]:
    """Values of types that have no numbers below them."""
    if pat.is_interval(kind):
        return [pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([0, 0, 1000])]
    if pat.is_fixed_size_binary(kind):
        return [b"a" * kind.byte_width, b"b" * kind.byte_width]
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind):
        return [b"a", b"b"]
    if pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind):
        return ["a", "b"]
    if pat.is_struct(kind):
        fields = [(field.name, samples(field.type)) for field in kind]
        return [{name: some[at] for name, some in fields if some} for at in (0, 1)]
    if pat.is_map(kind):
        return [[pair] for pair in zip(samples(kind.key_type), samples(kind.item_type), strict=False)]
    if pat.is_fixed_size_list(kind):
        return [[value] * kind.list_size for value in samples(kind.value_type)]
    if pat.is_nested(kind) and not pat.is_union(kind):
        return [[value] for value in samples(kind.value_type)]
    return []


def may_be_equal(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of two types can be equal, as Python has them and as keys of a join are compared: numbers of all kinds can, dates and
    timestamps cannot, nor can timestamps with a time zone and without.

    >>> may_be_equal(pa.int8(), pa.float64()), may_be_equal(pa.int64(), pa.string()), may_be_equal(pa.date32(), pa.timestamp("us"))
    (True, False, False)
    """
    mine, theirs = samples(left), samples(right)
    if not mine or not theirs:
        return True
    return any(a == b for a in mine for b in theirs) or (isinstance(mine[0], bytes) and isinstance(theirs[0], bytes))


__all__ = ["may_be_equal", "samples"]
