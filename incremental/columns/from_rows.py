"""Rows as columns, where there are many and Arrow has their types: what is made of them is the same, in a tenth of the time.

A field becomes a column where all that is in it is of one Python type: int, float, str, bool, a tuple of such (windows are), or a dict of
such; and None.
``1`` and ``1.0`` are one record, so a field that has both stays in rows, as do all other types. Whether it is worth while is for the caller
to say: columns cost as much for one row as for hundreds, and what is kept in columns becomes rows when a few rows come. So it is done of
many records with fields (decision 110).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.values import Row, Window, is_tuple, tuple_array, windows_of
from rayad.incremental.columns.form import changes, keyed_changes

MANY = 1024
"""So many rows at once are worth while."""
_FLAT = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


def column_of(values: Sequence[Any]) -> pa.Array | None:
    """Parts of records as a column; None: rows must do it.

    >>> column_of([(1, {"a": None}), (2, {"a": "x"})]).type
    StructType(struct<0: int64, 1: struct<a: string>>)
    >>> column_of([1, 2.5]), column_of([1, True]), column_of([float("nan")]), column_of([None, (1,)])
    (None, None, None, None)
    """
    kinds: set[type[Any]] = set(map(type, values))
    nothing = type(None) in kinds
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    if Row in kinds:
        kinds = (kinds - {Row}) | {dict}
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    if kind in _FLAT:
        return _flat(values, _FLAT[kind])
    if nothing:
        return None
    if kind is tuple or kind is Window:
        return _tuples(values, tuple_array if kind is tuple else lambda parts: windows_of(*parts))
    return _dicts(values) if kind is dict else None


def _flat(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeError):  # beyond 64 bits; half of a surrogate pair
        return None
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return None  # rows say in which record
    return column if not pa.types.is_floating(kind) else pc.add(column, 0.0)  # -0.0 is 0.0


def _tuples(values: Sequence[Any], made: Callable[[Sequence[pa.Array]], pa.Array]) -> pa.Array | None:
    if len(set(map(len, values))) > 1 or not values[0]:
        return None
    parts = list(map(column_of, zip(*values, strict=True)))
    return None if any(part is None for part in parts) else made(parts)


def _dicts(values: Sequence[Any]) -> pa.Array | None:
    names = list(values[0])
    if not names or set(map(len, values)) != {len(names)} or not all(type(name) is str for name in names):
        return None
    try:
        parts = [column_of([value[name] for value in values]) for name in names]
    except KeyError:
        return None
    if any(part is None for part in parts):
        return None
    made = pa.StructArray.from_arrays(parts, names=names)
    return None if is_tuple(made.type) else made


def _weights(weights: Sequence[Any]) -> Any | None:
    if set(map(type, weights)) != {int}:
        return None
    try:
        return np.array(weights, np.int64)
    except OverflowError:
        return None


def changes_of(records: Sequence[Any], weights: Sequence[int]) -> pa.RecordBatch | None:
    """Records and their weights in columns; None: rows must do it."""
    column, numbers = column_of(records), _weights(weights)
    return None if column is None or numbers is None else changes(column, numbers)


def keyed_changes_of(rows: Sequence[tuple[Any, Any, int]]) -> pa.RecordBatch | None:
    """Keys, records and their weights in columns; None: rows must do it."""
    keys, records, weights = zip(*rows, strict=True)
    numbers = _weights(weights)
    key = None if numbers is None else column_of(keys)
    record = None if key is None else column_of(records)
    return None if record is None else keyed_changes(key, record, numbers)


__all__ = ["MANY", "changes_of", "column_of", "keyed_changes_of"]
