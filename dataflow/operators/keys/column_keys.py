"""Keys in columns: in types that Arrow's kernels all take, and as integers, equal keys equal numbers, which is what sorting and matching in
numpy work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.batches import one_array
from rayad.dataflow.records.sorting import REACH_MAX, from_least

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def plain(batch: pa.RecordBatch, keys: Sequence[str], columns: Sequence[str] | None = None) -> pa.RecordBatch | None:
    """The batch with ``columns`` (default: all) in types that can be taken from and put together, and with keys that can be grouped and
    compared; None where rows must do it. The values stay as they are.

    Arrow has kernels for some types only. Views become strings or bytes with 64-bit offsets, run-end encoded columns are decoded, and small
    floats and decimals widened. Dictionaries get 32-bit indices, so that those of two batches can be put together, and each value once.

    >>> names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(["a", "b", "a"]))
    >>> plain(pa.record_batch({"name": names}), ["name"]).column("name").indices.to_pylist()
    [0, 1, 0]
    """
    for name in batch.schema.names if columns is None else columns:
        at = batch.schema.get_field_index(name)
        if at < 0:  # two columns of this name
            return None
        before = batch.column(at)
        column = _plain_values(before)
        if name in keys:
            column = None if column is None else _plain_key(column)
        if column is None:
            return None
        if column is not before:
            batch = batch.set_column(at, name, column)
    return batch


def _plain_values(column: pa.Array) -> pa.Array | None:
    """A column that can be taken from and put together; None for nested types that hold what cannot."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain_dictionary(column)
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_run_end_encoded(kind):
        return _plain_values(pc.run_end_decode(column))
    return column if not pa.types.is_nested(kind) or _can_be_taken(kind) else None


def _can_be_taken(kind: pa.DataType) -> bool:
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_run_end_encoded(kind):
        return False
    return not pa.types.is_nested(kind) or all(_can_be_taken(kind.field(i).type) for i in range(kind.num_fields))


def _plain_dictionary(column: pa.DictionaryArray) -> pa.Array | None:
    kind, indices, before = column.type, column.indices, column.dictionary
    values = _plain_values(before)
    values = None if values is None else _plain_key(values)
    if values is None:
        return column.dictionary_decode() if _can_be_taken(kind.value_type) else None
    values = key_normalised(values)
    if pa.types.is_floating(values.type):
        return values.take(indices)  # Arrow cannot put together dictionaries that hold NaN, be it one that no row uses
    if values.null_count or (len(values) and pc.count_distinct(values).as_py() < len(values)):
        encoded = pc.dictionary_encode(values)  # from old to new indices
        indices, values = encoded.indices.take(indices), encoded.dictionary
    if values is before and kind.index_type == pa.int32():
        return column
    return pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), values, ordered=kind.ordered)


def _plain_key(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_dictionary(kind):
        return column if _can_be_key(kind.value_type) and kind.index_type == pa.int32() else None
    return column if _can_be_key(kind) else None


def _can_be_key(kind: pa.DataType) -> bool:
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_null(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_interval(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def key_normalised(column: Any) -> Any:
    """A key column in which equal values have equal bits: -0.0 and 0.0 are one key."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both without loss, so that columns compare keys of these types as Python does; None: there is none.

    >>> common_type(pa.int8(), pa.float32()), common_type(pa.int64(), pa.float64())
    (DataType(double), None)
    """
    left, right = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (left, right))
    if left.equals(right):
        return left
    if _is_text(left) and _is_text(right):
        return pa.large_string()
    if not (_is_number(left) and _is_number(right)):
        return None
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        if pa.types.is_unsigned_integer(left) and pa.types.is_unsigned_integer(right):
            return pa.uint64()
        return None if pa.uint64() in (left, right) else pa.int64()
    exact = all(pa.types.is_floating(kind) or kind.bit_width <= 32 for kind in (left, right))
    return pa.float64() if exact else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def in_common(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Two columns in their :func:`common_type`."""
    kind = common_type(left.type, right.type)
    assert kind is not None
    return left.cast(kind), right.cast(kind)


def equal_keys(left: pa.Array, right: pa.Array) -> Any:
    """Where two columns are equal, null to null, as a numpy mask."""
    left, right = in_common(left, right)
    same = pc.fill_null(pc.equal(left, right), False)
    if left.null_count and right.null_count:
        same = pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    return same.to_numpy(zero_copy_only=False)


def key_numbers(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Numbers:
    """A number for each row, shape (rows,): rows have the same number where all columns are equal (null equals null).

    >>> key_numbers([pa.array(["a", "b", "a", None, None])]).tolist()
    [0, 1, 0, 2, 2]
    >>> key_numbers([pa.array([7, 7, 8]), pa.array(["x", "y", "x"])]).tolist()
    [0, 1, 2]
    """
    if len(columns) == 1 and not columns[0].null_count and pa.types.is_integer(columns[0].type) and columns[0].type != pa.uint64():
        return columns[0].to_numpy().astype(np.int64, copy=False) if isinstance(columns[0], pa.ChunkedArray) else _integers(columns[0])
    out, reach = np.zeros(len(columns[0]) if columns else 0, np.int64), 1
    for column in columns:
        numbers, spread = _from_zero(column)
        if reach * spread > REACH_MAX:
            out, reach = _ranked(out)
        if reach * spread > REACH_MAX:
            numbers, spread = _ranked(numbers)
        out, reach = out * spread + numbers, reach * spread
    return out


def _from_zero(column: pa.Array | pa.ChunkedArray) -> tuple[Numbers, int]:
    """A number for each value of a column, and what all are below: of integers and moments themselves, from the least on."""
    kind = column.type
    is_moment = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    if len(column) and not column.null_count and (is_moment or pa.types.is_integer(kind)):
        whole = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()) if is_moment else column
        values = whole.to_numpy() if isinstance(whole, pa.ChunkedArray) else whole.to_numpy(zero_copy_only=False)
        found = from_least(values)
        if found is not None:
            return found
    numbers = _dense(column)
    return numbers, int(numbers.max(initial=0)) + 1


def _ranked(numbers: Numbers) -> tuple[Numbers, int]:
    """Other numbers, below the number of rows, that are equal where these are."""
    dense = _dense(pa.array(numbers))
    return dense, int(dense.max(initial=0)) + 1


def _integers(column: pa.Array) -> Numbers:
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def _dense(column: pa.Array | pa.ChunkedArray) -> Numbers:
    if isinstance(column, pa.ChunkedArray):
        column = one_array(column.unify_dictionaries())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return _integers(pc.dictionary_encode(key_normalised(column), null_encoding="encode").indices)


def beginnings(numbers: Numbers) -> Numbers:
    """Where a new number begins in sorted ones.

    >>> beginnings(np.array([4, 4, 9])).tolist()
    [0, 2]
    """
    return np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1]))) if len(numbers) else np.zeros(0, np.int64)
