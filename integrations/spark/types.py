"""Which Arrow types Spark reads, and how others are brought to one of them without losing a value.

Spark's JVM reads Arrow buffers by position and assumes the layout of its own type: a column of nanoseconds or with 64-bit
offsets would be misread silently. So every column is cast to the exact Arrow type that Spark itself would write, and values that would not
survive are refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from rayad.dataflow.records.exact import Inexact, cast_exactly
from rayad.integrations.blocks import describe
from rayad.progress import DataflowError


def spark_arrow_type(kind: pa.DataType, column: str, where: str = "to_spark") -> pa.DataType:
    """The Arrow type of Spark's type for ``kind``. DataflowError where there is none.

    >>> spark_arrow_type(pa.uint32(), "x"), spark_arrow_type(pa.timestamp("ns", "Europe/Rome"), "x")
    (DataType(int64), TimestampType(timestamp[us, tz=UTC]))
    """
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
    }
    if kind in wider:
        return wider[kind]
    if pat.is_boolean(kind) or pat.is_signed_integer(kind) or pat.is_floating(kind) or pat.is_null(kind) or pat.is_date32(kind):
        return kind
    if pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind):
        return pa.string()
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind) or pat.is_fixed_size_binary(kind):
        return pa.binary()
    if pat.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if pat.is_date64(kind):
        return pa.date32()
    if pat.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pat.is_duration(kind):
        return pa.duration("us")
    if isinstance(kind, pa.BaseExtensionType):  # windows, pairs and records of ours, for instance: structs
        return spark_arrow_type(kind.storage_type, column, where)
    if pat.is_dictionary(kind):
        return spark_arrow_type(kind.value_type, column, where)
    if pat.is_map(kind):
        key = pa.field("key", spark_arrow_type(kind.key_type, f"{column}.key", where), nullable=False)
        return pa.map_(key, pa.field("value", spark_arrow_type(kind.item_type, f"{column}.value", where)))
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", spark_arrow_type(kind.value_type, f"{column}[]", where)))
    if pat.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        kinds = [spark_arrow_type(field.type, f"{column}.{field.name}", where) for field in fields]
        return pa.struct([pa.field(field.name, kind, nullable=field.nullable) for field, kind in zip(fields, kinds, strict=True)])
    raise DataflowError(
        f"{where}: column {column!r} is of type {kind}, for which Spark 3.5 has none; cast it first (times of day: to int64 or string)"
    )


def has_extension(kind: pa.DataType) -> bool:
    """Whether a type is an extension type, or a struct with one in it."""
    return isinstance(kind, pa.BaseExtensionType) or (pat.is_struct(kind) and any(has_extension(field.type) for field in kind))


def stored(array: pa.Array) -> pa.Array:
    """An array without extension types: with the types in which they are stored."""
    if isinstance(array, pa.ExtensionArray):
        return stored(array.storage)
    if not has_extension(array.type):
        return array
    parts = [stored(array.field(i)) for i in range(array.type.num_fields)]
    return pa.StructArray.from_arrays(parts, names=[field.name for field in array.type], mask=array.is_null())


def for_spark(table: pa.Table, where: str = "to_spark") -> pa.Table:
    """``table`` in the types that Spark reads. DataflowError naming the column where a value does not fit (nanoseconds, say)."""
    names = table.schema.names
    if len(set(names)) != len(names):
        raise DataflowError(f"{where}: column names must differ, got {describe(table.schema)}; rename them")
    columns, fields = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = spark_arrow_type(field.type, field.name, where)
        try:
            plain = pa.chunked_array([stored(chunk) for chunk in column.chunks]) if has_extension(field.type) and len(column) else column
            plain = plain.cast(plain.type.value_type) if pat.is_dictionary(plain.type) else plain
            same = plain.type == kind and plain.type.equals(kind, check_metadata=True)
            columns.append(plain if same else pa.chunked_array([cast_exactly(chunk, kind, field.name) for chunk in plain.chunks], kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, Inexact) as error:
            raise DataflowError(
                f"{where}: column {field.name!r} of type {field.type} does not fit Spark's {kind}: {error}; cast it first"
            ) from error
        fields.append(pa.field(field.name, kind, nullable=field.nullable))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def for_sparks_files(table: pa.Table, where: str = "to_spark", otherwise: str = "leave staging_path out") -> pa.Table:
    """``table`` in the types that Spark reads from Parquet files: those of :func:`for_spark`, except for columns of nothing but nulls.

    ``otherwise``: how to do without files for Spark."""
    for field in table.schema:
        if _has_null_type(field.type):
            raise DataflowError(
                f"{where}: column {field.name!r} is of type {field.type}: nothing but nulls, which has no type in Parquet files; give "
                f"schema= with a type for it, or {otherwise}"
            )
    fixed = [_has_fixed_lists(field.type) for field in table.schema]
    out = for_spark(table, where)
    columns = [_written_anew(column) if was_fixed else column for column, was_fixed in zip(out.columns, fixed, strict=True)]
    return pa.Table.from_arrays(columns, schema=out.schema)


def _has_fixed_lists(kind: pa.DataType) -> bool:
    return pat.is_fixed_size_list(kind) or any(_has_fixed_lists(kind.field(i).type) for i in range(kind.num_fields))


def _written_anew(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A copy of the values. A null in a column of fixed-size lists has elements, which the Parquet writer of pyarrow 21 refuses; in the
    copy it has none."""
    return column.take(pa.array(range(len(column)), pa.int64())) if len(column) else column


def _has_null_type(kind: pa.DataType) -> bool:
    return pat.is_null(kind) or any(_has_null_type(kind.field(i).type) for i in range(kind.num_fields))


__all__ = ["for_spark", "for_sparks_files", "spark_arrow_type"]
