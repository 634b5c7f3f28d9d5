"""Which Arrow types Spark reads, and how others are brought to one of them without losing a value.

Spark's JVM reads Arrow buffers by position and assumes the layout of its own type: a column of nanoseconds or with 64-bit
offsets would be misread silently. So every column is cast to the exact Arrow type that Spark itself would write, and values that would not
survive are refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from rayad.integrations.type_systems import TypeSystem

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def _plain(kind: pa.DataType) -> pa.DataType | None:
    """Spark's type for one that is not nested."""
    if kind in _WIDER:
        return _WIDER[kind]
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
    return pa.duration("us") if pat.is_duration(kind) else None


SPARK = TypeSystem("Spark 3.5", "Spark's", _plain)


def spark_arrow_type(kind: pa.DataType, column: str, where: str = "to_spark") -> pa.DataType:
    """The Arrow type of Spark's type for ``kind``. DataflowError where there is none.

    >>> spark_arrow_type(pa.uint32(), "x"), spark_arrow_type(pa.timestamp("ns", "Europe/Rome"), "x")
    (DataType(int64), TimestampType(timestamp[us, tz=UTC]))
    """
    return SPARK.type_of(kind, column, where)


def for_spark(table: pa.Table, where: str = "to_spark") -> pa.Table:
    """``table`` in the types that Spark reads. DataflowError naming the column where a value does not fit (nanoseconds, say)."""
    return SPARK.columns(table, where)


def for_sparks_files(table: pa.Table, where: str = "to_spark", otherwise: str = "leave staging_path out") -> pa.Table:
    """``table`` in the types that Spark reads from Parquet files: those of :func:`for_spark`, except for columns of nothing but nulls.

    ``otherwise``: how to do without files for Spark."""
    return SPARK.for_files(table, where, otherwise)


__all__ = ["SPARK", "for_spark", "for_sparks_files", "spark_arrow_type"]
