"""The types of Iceberg, and what its schemas require of columns: values that are not null, and names that readers find them by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from rayad.integrations.type_systems import TypeSystem

_WIDER = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def _plain(kind: pa.DataType) -> pa.DataType | None:
    """Iceberg's type for one that is not nested."""
    if kind in _WIDER:
        return _WIDER[kind]
    if pat.is_boolean(kind) or pat.is_integer(kind) or pat.is_floating(kind) or pat.is_null(kind) or kind == pa.uuid():
        return kind
    if pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind):
        return pa.string()
    if pat.is_fixed_size_binary(kind) and not pat.is_decimal(kind):
        return kind
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind):
        return pa.binary()
    if pat.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if pat.is_date(kind):
        return pa.date32()
    if pat.is_time(kind):
        return pa.time64("us")
    return pa.timestamp("us", "UTC" if kind.tz else None) if pat.is_timestamp(kind) else None


ICEBERG = TypeSystem("Iceberg", "Iceberg's", _plain, keeps_required=True)


def not_mapped(ours: Sequence[Any], theirs: Sequence[Any]) -> str | None:
    """The first column of one mapping of names that another has not."""
    for field in ours:
        name = field.names[0]
        found = next((one for one in theirs if name in one.names and one.field_id == field.field_id), None)
        inside = not_mapped(field.fields, found.fields) if found is not None else None
        if found is None or inside is not None:
            return str(name) if found is None else f"{name}.{inside}"
    return None


def null_where_required(array: pa.Array, field: pa.Field, name: str) -> str | None:
    """The name of a column, or of what is inside of it, that is required and has a null."""
    if not field.nullable and array.null_count:
        return name
    kind = field.type
    if pat.is_struct(kind):
        children = zip(array.flatten(), kind, strict=True)
        valid = array.is_valid()
        found = (
            null_where_required(child.filter(valid), inner, f"{name}.{inner.name}") for child, inner in children if _has_required(inner)
        )
        return next((one for one in found if one is not None), None)
    if (pat.is_list(kind) or pat.is_large_list(kind)) and _has_required(kind.value_field):
        return null_where_required(array.flatten(), kind.value_field, f"{name}.element")
    if pat.is_map(kind) and _has_required(kind.item_field):
        entries = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))).flatten()
        return null_where_required(entries.field(1), kind.item_field, f"{name}.value")
    return None


def _has_required(field: pa.Field) -> bool:
    return not field.nullable or any(_has_required(field.type.field(i)) for i in range(field.type.num_fields))


__all__ = ["ICEBERG", "not_mapped", "null_where_required"]
