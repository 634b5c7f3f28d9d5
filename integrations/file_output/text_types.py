"""Which types CSV and JSON lines hold exactly, and in which form: what ``write_csv`` and ``write_json`` take, and how ``read_csv`` and
``read_json`` get it back.

A value goes through text and comes back equal, or its type is refused when the columns are known; a few values of types that are taken have
no text that is read again (a year beyond 9999): they are refused, too. Numbers are the shortest text that is the same number.

================================  =======================  =========================================
type                              in CSV                   in JSON
================================  =======================  =========================================
integers, float32, float64, bool  ``1.5``, ``true``        the same; NaN and infinity are refused
text                              always in quotes         a string
null                              nothing, without quotes  ``null``
date                              ``2024-05-01``           ``"2024-05-01"``
timestamp                         ``2024-05-01 12:00:00``  the same in quotes; with a zone in UTC
time                              ``12:00:00.000001``      refused
duration                          the number of its units  the same
decimal                           ``1.50``, to 38 digits   ``"1.50"``
dictionary of text                its text                 the same
list, struct                      refused                  an array, an object
================================  =======================  =========================================

All others are refused: binary, half floats, maps, views, extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.progress import DataflowError

_PLAIN = (pat.is_null, pat.is_boolean, pat.is_integer, pat.is_float32, pat.is_float64, pat.is_string, pat.is_large_string)
_COMMON = (*_PLAIN, pat.is_date, pat.is_timestamp, pat.is_duration)
_CSV = (*_COMMON, pat.is_time, pat.is_decimal128)
_JSON = (*_COMMON, pat.is_decimal)

_DAY_S = 86_400
_YEARS_S = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999, in seconds since 1970: what texts of dates can say."""
_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NS_LEAST = -9_223_372_036 * 1_000_000_000
"""The earliest timestamp of nanoseconds that Arrow reads; the type begins 0.86 s before."""


def is_in_csv(kind: pa.DataType) -> bool:
    """Whether a field of CSV holds the values of a type."""
    if pat.is_dictionary(kind):  # Arrow's reader makes dictionaries of these
        return bool(kind.index_type == pa.int32() and not kind.ordered and kind.value_type == pa.string())
    return any(is_kind(kind) for is_kind in _CSV)


def json_form(kind: pa.DataType) -> pa.DataType | None:
    """The type in which Arrow reads the values of ``kind`` from JSON; None: JSON does not hold them.

    >>> str(json_form(pa.date32())), json_form(pa.binary())
    ('timestamp[s]', None)
    >>> str(json_form(pa.list_(pa.duration("us"))))
    'list<item: int64>'
    """
    if pat.is_dictionary(kind):
        return kind.value_type if kind.value_type == pa.string() and not kind.ordered else None
    if pat.is_list(kind) or pat.is_large_list(kind):
        inner = json_form(kind.value_type)
        return pa.list_(kind.value_field.with_type(inner)) if inner is not None else None
    if pat.is_struct(kind):
        forms = [json_form(field.type) for field in kind]
        names = {field.name for field in kind}
        if None in forms or not forms or len(names) < kind.num_fields:
            return None
        return pa.struct([field.with_type(form) for field, form in zip(kind, forms, strict=True)])
    if not any(is_kind(kind) for is_kind in _JSON):
        return None
    return pa.timestamp("s") if pat.is_date(kind) else pa.int64() if pat.is_duration(kind) else kind


def json_schema(schema: pa.Schema) -> pa.Schema:
    """The types in which Arrow reads a schema from JSON; what JSON does not hold stays as it is, for Arrow to refuse."""
    return pa.schema([field.with_type(json_form(field.type) or field.type) for field in schema])


def in_utc(kind: pa.DataType) -> pa.DataType:
    """``kind`` with UTC as time zone: in another zone, the text of a moment before 1900 lacks the seconds of its offset.

    >>> str(in_utc(pa.timestamp("us", "Europe/Berlin")))
    'timestamp[us, tz=UTC]'
    """
    if pat.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pat.is_list(kind) or pat.is_large_list(kind):
        inner = kind.value_field.with_type(in_utc(kind.value_type))
        return pa.list_(inner) if pat.is_list(kind) else pa.large_list(inner)
    if pat.is_struct(kind):
        return pa.struct([field.with_type(in_utc(field.type)) for field in kind])
    return kind


def as_json_values(kind: pa.DataType) -> pa.DataType:
    """The type in which the values of ``kind``, one that JSON holds, are Python values that are written to JSON as they are."""
    if pat.is_dictionary(kind):
        return kind.value_type
    if pat.is_list(kind) or pat.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(as_json_values(kind.value_type)))
    if pat.is_struct(kind):
        return pa.struct([field.with_type(as_json_values(field.type)) for field in kind])
    if pat.is_duration(kind):
        return pa.int64()
    return pa.string() if pat.is_date(kind) or pat.is_timestamp(kind) or pat.is_decimal(kind) else kind


def check_columns(schema: pa.Schema, holds: Callable[[pa.DataType], Any], where: str, text: str) -> None:
    """Raise DataflowError unless ``holds`` is true of every column's type."""
    for field in schema:
        if not holds(field.type):
            raise DataflowError(
                f"{where}: column {field.name!r} is {field.type}, which {text} does not hold exactly: {_instead(field.type)}, or use "
                "write_parquet, which takes it"
            )


def _instead(kind: pa.DataType) -> str:
    if getattr(kind, "extension_name", "").startswith("rayad."):
        return "call as_columns(), which makes ordinary columns of windows, pairs and records"
    if pat.is_decimal(kind):
        return "cast it to a decimal128 or to text"
    if pat.is_float16(kind):
        return "cast it to float32"
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind):
        return "make text of it, as by base64"
    if pat.is_struct(kind):
        return "unnest() it"
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return "explode() it, or make text of it"
    return "cast it to text or to a number"


def check_values(table: pa.Table, where: str, why: str = "no text of it can be read again") -> None:
    """Raise DataflowError where a column of a type that text holds has a value that no text says: a year beyond 9999. ``why`` not."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        for kind, inner in _leaves(column):
            bounds = _bounds(kind)
            if bounds is None or len(inner) == inner.null_count:
                continue
            low, high = bounds
            ends = pc.min_max(_numbers(inner))
            for value in (ends["min"].as_py(), ends["max"].as_py()):
                if not low <= value <= high:
                    raise DataflowError(
                        f"{where}: column {name!r} of type {kind} holds the number {value}, which is no moment of the years 1 to 9999 (or "
                        f"of a day): {why}; filter such records out, or cast the column to int64"
                    )
            day = 1_000 * _DAY_S
            if pat.is_date64(kind) and pc.any(pc.not_equal(pc.multiply(pc.divide(_numbers(inner), day), day), _numbers(inner))).as_py():
                raise DataflowError(f"{where}: column {name!r} of type date64 holds times of day: cast it to timestamp('ms')")


def _bounds(kind: pa.DataType) -> tuple[int, int] | None:
    """The least and the largest number that text can say of a type; None: all."""
    low, high = _YEARS_S
    if pat.is_timestamp(kind):
        unit = _PER_S[kind.unit]
        return (max(low * unit, _NS_LEAST) if kind.unit == "ns" else low * unit), high * unit + unit - 1
    if pat.is_date32(kind):
        return low // _DAY_S, high // _DAY_S
    if pat.is_date64(kind):
        return low * 1_000, high * 1_000
    if pat.is_time(kind):
        return 0, _DAY_S * _PER_S[kind.unit] - 1
    return None


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = pa.int32() if column.type.bit_width == 32 else pa.int64()
    return pa.chunked_array([chunk.view(plain) for chunk in column.chunks], plain)


def _leaves(column: pa.ChunkedArray) -> Iterator[tuple[pa.DataType, pa.ChunkedArray]]:
    kind = column.type
    if pat.is_list(kind) or pat.is_large_list(kind):
        yield from _leaves(pc.list_flatten(column))
    elif pat.is_struct(kind):
        for inner in column.flatten():
            yield from _leaves(inner)
    else:
        yield kind, column


__all__ = ["as_json_values", "check_columns", "check_values", "in_utc", "is_in_csv", "json_form", "json_schema"]
