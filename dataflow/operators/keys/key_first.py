"""Batches with their key columns in front, and the records and pairs that they stand for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.keys.column_keys import plain
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.stateless import Element, columns_given
from rayad.dataflow.records.batches import ROWS_KEY, keyed_columns, mark_keyed, take_rows, to_rows
from rayad.dataflow.records.moments import keys_in
from rayad.dataflow.records.selectors import KeySelector, require_columns

RECORD_KEY = b"rayad.record"
"""In a schema's metadata: the order of the record's own columns, and how its rows are read."""


_NEVER_NULL = frozenset((str, int, float, bool, bytes))


@dataclass(slots=True)
class KeyFirst(Element):
    """Batches for a join: the key columns first, the record's other columns behind them; rows as ``(key, record)``.

    As in SQL a null key equals nothing, no other null key either: records with one are left out, see :func:`with_key`.
    """

    key: KeySelector

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch) and self.key.columns and len(set(self.key.columns)) == len(self.key.columns):
            require_columns(batch, self.key.columns)
            usable = plain(batch, self.key.columns)
            if usable is not None:
                return key_first(with_key(usable, self.key.columns), self.key.columns)
        rows = to_rows(batch)
        keys = self.key.keys_of(rows)
        return without_null_keys(keys, list(zip(keys, rows, strict=True)))

    def rows_because(self, schema: pa.Schema) -> str | None:
        return None if self.key.columns else "its key is a function"

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)


def with_key(batch: pa.RecordBatch, keys: tuple[str, ...]) -> pa.RecordBatch:
    """The rows whose key has no null."""
    require_columns(batch, keys)
    columns = [batch.column(name) for name in keys]
    if not any(map(_nulls, columns)):
        return batch
    there = np.logical_and.reduce([_is_there(column) for column in columns])
    return batch if there.all() else take_rows(batch, pa.array(np.flatnonzero(there)))


def has_key(batch: pa.RecordBatch, keys: int) -> Any:
    """Of each row whether none of the first ``keys`` columns is null, shape (rows,)."""
    return np.logical_and.reduce([_is_there(batch.column(i)) for i in range(keys)])


def _is_there(column: pa.Array) -> Any:
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()  # for pyarrow 23 an index that leads to a null is valid
    return pc.is_valid(column).to_numpy(zero_copy_only=False)


def _nulls(column: pa.Array) -> bool:
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        return bool(column.values.null_count)
    return bool(column.null_count) or (pa.types.is_dictionary(kind) and bool(column.dictionary.null_count))


def without_null_keys(keys: list[Any], pairs: list[Any]) -> list[Any]:
    """The pairs whose key is not null; of a tuple no part may be, as of several columns.

    >>> without_null_keys([1, None, (1, None)], ["a", "b", "c"])
    ['a']
    """
    kinds = set(map(type, keys))
    if kinds <= _NEVER_NULL:
        return pairs
    return [pair for key, pair in zip(keys, pairs, strict=True) if not is_null(key)]


def is_null(key: Any) -> bool:
    """Whether a key is null, or a part of it: then it equals no other."""
    return key is None or (isinstance(key, tuple) and any(part is None for part in key))


def key_first(batch: pa.RecordBatch, keys: tuple[str, ...], extra: tuple[tuple[str, pa.Array], ...] = ()) -> pa.RecordBatch:
    """The batch with its key columns in front, then ``extra`` columns; its metadata says how to get the record back."""
    require_columns(batch, keys)
    names = batch.schema.names
    order = [*(names.index(name) for name in keys), *(i for i, name in enumerate(names) if name not in keys)]
    mark = (batch.schema.metadata or {}).get(ROWS_KEY)
    back = {"order": [order.index(i) for i in range(len(order))], "mark": mark.decode() if mark else None}
    at = len(keys)
    back |= {"keys": at, "extra": len(extra)}
    columns, labels = [batch.column(i) for i in order], [names[i] for i in order]
    taken = distinct_names(labels, [name for name, _ in extra])[len(labels) :]
    columns[at:at], labels[at:at] = [column for _, column in extra], taken
    out = pa.RecordBatch.from_arrays(columns, names=labels).replace_schema_metadata({RECORD_KEY: json.dumps(back).encode()})
    return mark_keyed(out, at)


def record_of(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The records of a batch with the columns of ``schema``, which :func:`key_first` made."""
    at, mark = _way_back(schema.metadata[RECORD_KEY])
    columns, names = batch.columns, schema.names
    out = pa.RecordBatch.from_arrays([columns[i] for i in at], names=[names[i] for i in at])
    return out.replace_schema_metadata({ROWS_KEY: mark.encode()}) if mark else out


@lru_cache(maxsize=1024)
def _way_back(data: bytes) -> tuple[list[int], str | None]:
    """The positions of the record's columns, and how its rows are read."""
    back = json.loads(data)
    keys, extra = back["keys"], back["extra"]
    return [i if i < keys else i + extra for i in back["order"]], back["mark"]


def keys_of(batch: pa.RecordBatch) -> list[Any]:
    """The key of each row, as a Python object."""
    return keys_in(batch.columns[: keyed_columns(batch.schema) or 0])


def pairs_of(batch: Any) -> list[Any]:
    """What :class:`KeyFirst` gave as ``(key, record)`` pairs."""
    if not isinstance(batch, pa.RecordBatch):
        return to_rows(batch)
    return list(zip(keys_of(batch), to_rows(record_of(batch, batch.schema)), strict=True))
