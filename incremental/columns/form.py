"""Batches of changes in columns.

A change is a row of ``record`` and ``diff`` (its weight, int64); with a key, of ``key``, ``record`` and ``diff``. A record is one column of
any depth: a struct is a dict, or a tuple where its fields are called "0", "1", ... (``records.values``); so rows that such a batch becomes
are the ``(record, weight)`` and ``(key, record, weight)`` of the row form. Leaves are in the form in which equal values have equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.batches import has_tuples, mark_tuples, one_batch
from rayad.dataflow.records.content_codes import contents_of, has_contents
from rayad.dataflow.records.values import fields_of
from rayad.progress import DataflowError

KEY, RECORD, DIFF = "key", "record", "diff"


class NotColumns(Exception):
    """Rows must do it; nothing has been changed."""


def changes(record: pa.Array, weights: Any) -> pa.RecordBatch:
    """Records and their weights."""
    return mark_tuples(pa.RecordBatch.from_arrays([record, _diff(weights)], names=[RECORD, DIFF]))


def keyed_changes(key: pa.Array, record: pa.Array, weights: Any) -> pa.RecordBatch:
    """Keys, records and their weights."""
    return mark_tuples(pa.RecordBatch.from_arrays([key, record, _diff(weights)], names=[KEY, RECORD, DIFF]))


def _diff(weights: Any) -> pa.Array:
    return weights if isinstance(weights, pa.Array) else pa.array(np.asarray(weights, np.int64))


def is_changes(batch: Any) -> bool:
    """Whether a batch is changes in columns."""
    return has_tuples(batch)


def weights_of(batch: pa.RecordBatch) -> Any:
    """Shape (rows,), int64."""
    return batch.column(DIFF).to_numpy()


def normalised(column: pa.Array) -> pa.Array | None:
    """A column as a part of a record; None where its type has no form in which equal values have equal bits. Raises DataflowError for NaN.

    >>> normalised(pa.array([{"a": -0.0}])).to_pylist(), normalised(pa.array([[1]])) is None
    ([{'a': 0.0}], True)
    """
    kind = column.type
    if pa.types.is_struct(kind):
        parts = None if column.null_count or not kind.num_fields else [normalised(part) for part in fields_of(column)]
        if parts is None or any(part is None for part in parts):
            return None
        return pa.StructArray.from_arrays(parts, names=[kind.field(i).name for i in range(kind.num_fields)])
    if not has_contents(kind):
        return None
    contents = contents_of(pa.RecordBatch.from_arrays([column], names=[RECORD]))
    if contents is None:
        return None
    values = contents.column(0)
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        raise DataflowError(
            "a record of a collection has NaN in it: NaN equals nothing, so that its removal would not find it; give null instead"
        )
    return values


def leaves(column: pa.Array) -> list[pa.Array]:
    """What a record is told from another by, as flat columns; none for a column of nothing."""
    if pa.types.is_struct(column.type):
        return [leaf for part in fields_of(column) for leaf in leaves(part)]
    return [] if pa.types.is_null(column.type) else [column]


def contents(columns: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
    """The leaves of several columns side by side."""
    flat = [leaf for column in columns for leaf in leaves(column)]
    if not flat:
        flat = [pa.array(np.zeros(rows, np.int8))]
    return pa.RecordBatch.from_arrays(flat, names=[str(i) for i in range(len(flat))])


def is_integer_key(kind: pa.DataType) -> bool:
    """Whether keys of this type, without nulls, are equal where their places are: the hash of an integer is a bijection."""
    return bool(pa.types.is_integer(kind)) and kind != pa.uint64()


def together(batches: Sequence[pa.RecordBatch], schema: pa.Schema | None) -> pa.RecordBatch:
    """Batches as one. Raises NotColumns unless all have one schema."""
    known = batches[0].schema if schema is None else schema
    if any(not batch.schema.equals(known) for batch in batches):
        raise NotColumns
    return batches[0] if len(batches) == 1 else one_batch(pa.Table.from_batches(batches))


__all__ = [
    "DIFF", "KEY", "RECORD", "NotColumns", "changes", "contents", "is_changes", "is_integer_key", "keyed_changes", "leaves", "normalised",
    "together", "weights_of",
]  # fmt: skip
