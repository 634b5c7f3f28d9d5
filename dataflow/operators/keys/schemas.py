"""Batches of one stream whose columns differ in type, brought together where that changes no value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from rayad.dataflow.operators.keys.column_keys import common_type


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema | None:
    """A schema of the same columns whose types hold the values of all; None where rows must do it: other names, or types of another kind.

    Integers become wider integers and floats wider floats; an integer never becomes a float, which would be seen in the results.

    >>> common_schema([pa.schema({"k": pa.int32()}), pa.schema({"k": pa.int64()})]).field("k").type
    DataType(int64)
    >>> common_schema([pa.schema({"k": pa.int32()}), pa.schema({"k": pa.float32()})])
    """
    first = schemas[0]
    if any(schema.names != first.names for schema in schemas):
        return None
    fields = []
    for name, *kinds in zip(first.names, *(schema.types for schema in schemas), strict=True):
        kind = reduce(_wider, kinds)
        if kind is None:
            return None
        fields.append(pa.field(name, kind))
    return pa.schema(fields, first.metadata)


def _wider(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    if left is None or right is None or left.equals(right):
        return left if right is not None else None
    kind = common_type(left, right)
    return kind if pa.types.is_floating(left) == pa.types.is_floating(right) else None


def brought_together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
    """The batches in their :func:`common_schema`; None where there is none."""
    schema = batches[0].schema
    if all(batch.schema.equals(schema) for batch in batches):
        return batches
    common = common_schema([batch.schema for batch in batches])
    return None if common is None else [as_schema(batch, common) for batch in batches]


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with columns of the types of ``schema``, which hold its values."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([c.cast(field.type) for c, field in zip(batch.columns, schema, strict=True)], schema=schema)
