"""Keys of rows as integers: equal keys, equal numbers. What sorting and matching in numpy work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def key_numbers(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Numbers:
    """A number for each row, shape (rows,): rows have the same number where all columns are equal (null equals null).

    >>> key_numbers([pa.array(["a", "b", "a", None, None])]).tolist()
    [0, 1, 0, 2, 2]
    >>> key_numbers([pa.array([7, 7, 8]), pa.array(["x", "y", "x"])]).tolist()
    [0, 1, 2]
    """
    if len(columns) == 1 and not columns[0].null_count and pa.types.is_integer(columns[0].type) and columns[0].type != pa.uint64():
        return columns[0].to_numpy().astype(np.int64, copy=False) if isinstance(columns[0], pa.ChunkedArray) else _integers(columns[0])
    out: Numbers | None = None
    for column in columns:
        numbers = _dense(column)
        if out is None:
            out = numbers
        else:
            spread = int(numbers.max(initial=0)) + 1
            out = _dense(pa.array(out * spread + numbers))  # dense before: the product stays below rows squared
    return np.zeros(0, np.int64) if out is None else out


def _integers(column: pa.Array) -> Numbers:
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def _dense(column: pa.Array | pa.ChunkedArray) -> Numbers:
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks() if pa.types.is_dictionary(column.type) else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 and 0.0 are one key
    return _integers(pc.dictionary_encode(column, null_encoding="encode").indices)


def beginnings(numbers: Numbers) -> Numbers:
    """Where a new number begins in sorted ones.

    >>> beginnings(np.array([4, 4, 9])).tolist()
    [0, 2]
    """
    return np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1]))) if len(numbers) else np.zeros(0, np.int64)
