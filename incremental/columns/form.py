"""Batches of changes in columns.

A change is a row of ``record`` and ``diff`` (its weight, int64); with a key, of ``key``, ``record`` and ``diff``. A record is one column of
any depth: a struct is a dict, or a tuple where its fields are called "0", "1", ... (``records.values``); so rows that such a batch becomes
are the ``(record, weight)`` and ``(key, record, weight)`` of the row form. Leaves are in the form in which equal values have equal bits.
A part of a record of which nothing but nulls is known has Arrow's type null, and takes the type of what comes later (:func:`wider`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.batches import OF_TUPLES, has_tuples, one_batch
from rayad.dataflow.records.content_codes import content_codes, contents_of, differences, has_contents
from rayad.dataflow.records.key_hashing import mix64_array
from rayad.dataflow.records.values import fields_of, is_tuple
from rayad.progress import DataflowError

KEY, RECORD, DIFF = "key", "record", "diff"
_CHANGES, _KEYED_CHANGES = [RECORD, DIFF], [KEY, RECORD, DIFF]


class NotColumns(Exception):
    """Rows must do it; nothing has been changed."""


def changes(record: pa.Array, weights: Any) -> pa.RecordBatch:
    """Records and their weights."""
    return pa.RecordBatch.from_arrays([record, _diff(weights)], names=_CHANGES, metadata=OF_TUPLES)


def keyed_changes(key: pa.Array, record: pa.Array, weights: Any) -> pa.RecordBatch:
    """Keys, records and their weights."""
    return pa.RecordBatch.from_arrays([key, record, _diff(weights)], names=_KEYED_CHANGES, metadata=OF_TUPLES)


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
        parts = [normalised(part) for part in parts_of(column)]
        if not parts or any(part is None for part in parts):
            return None
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names=names, mask=column.is_null() if column.null_count else None)
    if pa.types.is_null(kind) or pa.types.is_integer(kind):
        return column
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


def parts_of(column: pa.StructArray) -> list[pa.Array]:
    """The columns of a struct, null where it is null."""
    return column.flatten() if column.null_count else fields_of(column)


def field_of(record: pa.Array, name: str | int) -> pa.Array:
    """A field of records, or a part of tuples by its number. Raises NotColumns where one has none: rows say which."""
    if isinstance(name, int):
        if not is_tuple(record.type) or record.null_count or record.type.num_fields <= name:
            raise NotColumns
        return record.field(name)
    if not pa.types.is_struct(record.type) or is_tuple(record.type) or record.null_count or record.type.get_field_index(name) < 0:
        raise NotColumns
    return record.field(name)


def leaves(column: pa.Array) -> list[pa.Array]:
    """What a record is told from another by, as flat columns; none for a column of nothing."""
    if pa.types.is_struct(column.type):
        there = [column.is_valid()] if column.null_count else []
        return there + [leaf for part in parts_of(column) for leaf in leaves(part)]
    return [] if pa.types.is_null(column.type) else [column]


def contents(columns: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
    """The leaves of several columns side by side. Which they are depends on what is null: see :func:`unlike` for rows of two batches."""
    return _flat([leaf for column in columns for leaf in leaves(column)], rows)


def _flat(columns: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
    flat = list(columns) or [pa.array(np.zeros(rows, np.int8))]
    return pa.RecordBatch.from_arrays(flat, names=[str(i) for i in range(len(flat))])


def unlike(left: pa.Array, right: pa.Array) -> Any:
    """The positions at which two columns of one type differ, ascending.

    >>> unlike(pa.array([{"a": 1}, None, {"a": None}]), pa.array([{"a": 1}, None, None])).tolist()
    [2]
    """
    pairs = _side_by_side(left, right)
    return differences(*(_flat(some, len(left)) for some in zip(*pairs, strict=True))) if pairs else np.zeros(0, np.int64)


def _side_by_side(left: pa.Array, right: pa.Array) -> list[tuple[pa.Array, pa.Array]]:
    if not pa.types.is_struct(left.type):
        return [] if pa.types.is_null(left.type) else [(left, right)]
    out = [(left.is_valid(), right.is_valid())] if left.null_count or right.null_count else []
    for mine, theirs in zip(parts_of(left), parts_of(right), strict=True):
        out += _side_by_side(mine, theirs)
    return out


def codes_of(column: pa.Array) -> Any:
    """A code of each record, shape (rows,), int64: equal ones have the same, whatever else is in the column."""
    flat: list[pa.Array] = []
    missing: list[Any] = []
    _dissect(column, flat, missing)
    codes = content_codes(_flat(flat, len(column)))
    for number, nulls in missing:
        codes = np.where(nulls, mix64_array(codes.view(np.uint64) ^ np.uint64(number)).view(np.int64), codes)
    return codes


def _dissect(column: pa.Array, flat: list[pa.Array], missing: list[Any]) -> None:
    """Flat columns, and of each struct that is null somewhere how many of them come before it, and where."""
    if not pa.types.is_struct(column.type):
        if not pa.types.is_null(column.type):
            flat.append(column)
        return
    if column.null_count:
        missing.append((len(flat) + 1, column.is_null().to_numpy(zero_copy_only=False)))
    for part in parts_of(column):
        _dissect(part, flat, missing)


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds what both hold, where parts of either are null and nothing else; None: there is none.

    >>> wider(pa.struct({"a": pa.null(), "b": pa.int8()}), pa.struct({"a": pa.string(), "b": pa.int8()}))
    StructType(struct<a: string, b: int8>)
    """
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if not pa.types.is_struct(one) or not pa.types.is_struct(other) or one.num_fields != other.num_fields:
        return None
    fields = []
    for mine, theirs in zip(one, other, strict=True):
        kind = wider(mine.type, theirs.type) if mine.name == theirs.name else None
        if kind is None:
            return None
        fields.append((mine.name, kind))
    return pa.struct(fields)


def widened(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in a type that :func:`wider` gave."""
    if column.type.equals(kind):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    parts = [widened(part, field.type) for part, field in zip(parts_of(column), kind, strict=True)]
    return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=column.is_null() if column.null_count else None)


def wider_schema(one: pa.Schema, other: pa.Schema) -> pa.Schema | None:
    """See :func:`wider`."""
    if one.names != other.names:
        return None
    kinds = [wider(mine.type, theirs.type) for mine, theirs in zip(one, other, strict=True)]
    return None if None in kinds else pa.schema(list(zip(one.names, kinds, strict=True)), one.metadata)


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in a schema that :func:`wider_schema` gave."""
    if batch.schema.equals(schema):
        return batch
    columns = [widened(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def valid_keys(key: pa.Array) -> Any | None:
    """Which keys are neither null nor tuples with null in them, shape (rows,); None: all.

    >>> valid_keys(pa.array([1, None])).tolist(), valid_keys(pa.array([1]))
    ([True, False], None)
    """
    nulls = [part for part in (key, *(parts_of(key) if is_tuple(key.type) else ())) if part.null_count]
    return np.logical_and.reduce([part.is_valid().to_numpy(zero_copy_only=False) for part in nulls]) if nulls else None


def is_integer_key(kind: pa.DataType) -> bool:
    """Whether keys of this type, without nulls, are equal where their places are: the hash of an integer is a bijection, and so is that of
    a record or a tuple of one."""
    if pa.types.is_struct(kind):
        return kind.num_fields == 1 and is_integer_key(kind.field(0).type)
    return bool(pa.types.is_integer(kind)) and kind != pa.uint64()


def has_nulls(column: pa.Array) -> bool:
    """Whether a column, or a part of it, has nulls."""
    if column.null_count:
        return True
    return pa.types.is_struct(column.type) and any(has_nulls(part) for part in fields_of(column))


def together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one. Raises NotColumns unless there is one schema for all."""
    known = batches[0].schema
    for batch in batches[1:]:
        if not batch.schema.equals(known):
            both = wider_schema(known, batch.schema)
            if both is None:
                raise NotColumns
            known = both
    return in_schema(batches[0], known) if len(batches) == 1 else one_batch(pa.Table.from_batches([in_schema(b, known) for b in batches]))


def together_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Columns one behind the other. Raises NotColumns unless there is one type for all."""
    known = arrays[0].type
    for array in arrays[1:]:
        both = wider(known, array.type)
        if both is None:
            raise NotColumns
        known = both
    return pa.concat_arrays([widened(array, known) for array in arrays])


__all__ = [
    "DIFF", "KEY", "RECORD", "NotColumns", "changes", "codes_of", "contents", "field_of", "has_nulls", "in_schema", "is_changes",
    "is_integer_key", "keyed_changes", "leaves", "normalised", "parts_of", "together", "together_arrays", "unlike", "valid_keys",
    "weights_of", "wider", "wider_schema", "widened",
]  # fmt: skip
