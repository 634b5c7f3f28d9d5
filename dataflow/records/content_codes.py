"""Rows of columns told apart by what they hold: a form in which equal values have equal bits, and a 64-bit code of each row.

Rows are equal where Python's values are: -0.0 equals 0.0, null equals null, and one NaN another, as ``distinct`` has it. Equal rows have
equal codes. Rows with equal codes are nearly always equal, and :func:`differences` tells: nothing may rest on codes alone. No Python object
is made for a value. Codes stay in one process; keys are routed by ``key_hashing``, which is the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.key_hashing import mix64_array

_NULL = np.uint64(0x510E527FADE682D1)
_SALT = np.uint64(0x9B05688C2B3E6C1F)
_WORD = 8

Codes = npt.NDArray[np.int64]


def contents_of(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The batch with columns in which equal values have equal bits, in types that Arrow takes, compares and puts together; None where a
    column has no such form: nested types, nulls without a type, intervals, extension types.

    >>> contents_of(pa.record_batch({"x": [0.0, -0.0]})).column("x").to_pylist()
    [0.0, 0.0]
    >>> contents_of(pa.record_batch({"x": [[1], [2]]})) is None
    True
    """
    columns = [_contents(column) for column in batch.columns]
    if any(column is None for column in columns):
        return None
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def has_contents(kind: pa.DataType) -> bool:
    """Whether :func:`contents_of` takes columns of this type."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return has_contents(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind):
        return False
    return bool(kind != pa.time64("ns"))  # whose last digits Python does not have: rows refuse them


def _contents(column: pa.Array) -> pa.Array | None:
    if not has_contents(column.type):
        return None
    column = plain_form(column)
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # of -0.0 makes 0.0
        nan = pa.scalar(float("nan"), column.type)
        return pc.if_else(pc.is_nan(column), nan, column) if pc.any(pc.is_nan(column)).as_py() else column
    return column


def plain_form(column: pa.Array) -> pa.Array:
    """A column of a type that :func:`has_contents` in one that Arrow takes, compares and puts together; the values stay as they are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain_form(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain_form(pc.run_end_decode(column))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column


def from_plain_form(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The inverse of :func:`plain_form` of a column of this type. Raises ArrowException where a dictionary's indices are too small."""
    if pa.types.is_dictionary(kind):
        encoded = column.dictionary_encode()
        values = from_plain_form(encoded.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), values, ordered=kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_encode(from_plain_form(column, kind.value_type), run_end_type=kind.run_end_type)
    return column if column.type == kind else column.cast(kind)


def content_codes(contents: pa.RecordBatch) -> Codes:
    """A code for each row of what :func:`contents_of` gave, shape (rows,)."""
    state = np.full(contents.num_rows, _SALT, np.uint64)
    for column in contents.columns:
        codes = _codes(column)
        if column.null_count:
            codes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, codes)
        state = mix64_array(state ^ codes)
    return state.view(np.int64)


def _codes(column: pa.Array) -> npt.NDArray[np.uint64]:
    kind = column.type
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        width = kind.bit_width // 8
        data = np.frombuffer(column.buffers()[1] or b"", np.uint8)[column.offset * width : (column.offset + len(column)) * width]
        starts = np.arange(len(column), dtype=np.int64) * width
        return _of_bytes(data, starts, np.full(len(column), width, np.int64))
    if not pa.types.is_primitive(kind):
        wide = column.cast(pa.large_binary())
        _, offsets, values = wide.buffers()
        bounds = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1] if len(wide) else np.zeros(1, np.int64)
        data = np.frombuffer(values or b"", np.uint8)[bounds[0] : bounds[-1]]
        return _of_bytes(data, bounds[:-1] - bounds[0], np.diff(bounds))
    bits = column.view({1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[kind.bit_width // 8])
    numbers: npt.NDArray[Any] = (bits.fill_null(0) if bits.null_count else bits).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64).view(np.uint64)


def _of_bytes(data: npt.NDArray[np.uint8], starts: Any, lengths: Any) -> npt.NDArray[np.uint64]:
    """Of each stretch of bytes, word by word: as many rounds as the longest has words, each over those that have so many."""
    words = np.ndarray(len(data) + 1, "<u8", np.concatenate([data, np.zeros(_WORD, np.uint8)]), strides=(1,))
    state = mix64_array(lengths)
    rows = np.flatnonzero(lengths > 0)
    at = 0
    while len(rows):
        left = lengths[rows] - at
        word = words[starts[rows] + at]
        short = left < _WORD
        if short.any():
            word = np.where(short, word & _masks()[np.minimum(left, _WORD)], word)
        state[rows] = mix64_array(state[rows] ^ word)
        at += _WORD
        rows = rows[left > _WORD]
    return state


def _masks() -> npt.NDArray[np.uint64]:
    return np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], np.uint64)


def next_codes(codes: Codes) -> Codes:
    """Where rows are looked for whose codes lead to rows that differ from them."""
    return mix64_array(codes.view(np.uint64) ^ _NULL).view(np.int64)


def differences(left: pa.RecordBatch, right: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The rows in which two batches of one schema, which :func:`contents_of` made, differ, ascending.

    >>> differences(pa.record_batch({"x": [1, None, 3]}), pa.record_batch({"x": [1, None, 4]})).tolist()
    [2]
    """
    unlike = np.zeros(left.num_rows, np.bool_)
    for mine, theirs in zip(left.columns, right.columns, strict=True):
        if pa.types.is_floating(mine.type):  # NaN equals NaN
            bits = pa.int32() if pa.types.is_float32(mine.type) else pa.int64()
            mine, theirs = mine.view(bits), theirs.view(bits)
        if not mine.equals(theirs):
            same = pc.fill_null(pc.equal(mine, theirs), pc.and_(mine.is_null(), theirs.is_null()))
            unlike |= ~same.to_numpy(zero_copy_only=False)
    return np.flatnonzero(unlike)
