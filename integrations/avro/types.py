"""Which column has the values of a type of Avro, and which schema of Avro has the values of columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from rayad.integrations.avro.schemas import AvroType
from rayad.progress import DataflowError

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DIGITS_MAX = 76


def column_type(kind: AvroType, where: str, inside: tuple[AvroType, ...] = ()) -> pa.DataType:
    """The type of the column that has the values of ``kind``; every column may have nulls.

    Raises DataflowError for what cannot be one: a union of several types, a record that contains itself, one without fields.
    """
    some, _ = alternatives(kind, where)
    if some.kind == "record":
        if any(some is one for one in inside):
            raise DataflowError(f"{where}: the record {some.name!r} contains itself, and a column has so many levels as its type says")
        if not some.fields:
            raise DataflowError(f"{where}: the record {some.name!r} has no fields, and a column of structs needs one")
        nested = (*inside, some)
        return pa.struct([pa.field(one.name, column_type(one.type, f"{where}.{one.name}", nested)) for one in some.fields])
    if some.kind == "array":
        return pa.list_(column_type(_item(some, where), f"{where}[]", inside))
    if some.kind == "map":
        return pa.map_(pa.string(), column_type(some.inner[0], f"{where}[]", inside))
    return logical_type(some, where) or _PLAIN.get(some.kind) or pa.binary(some.size)


def _item(kind: AvroType, where: str) -> AvroType:
    item = kind.inner[0]
    if item.kind == "null":
        raise DataflowError(f"{where}: an array of nulls has nothing that a column could have")
    return item


def alternatives(kind: AvroType, where: str) -> tuple[AvroType, bool]:
    """The type of the values that are not null, and whether there may be nulls. Raises DataflowError for a union of several types."""
    if kind.kind != "union":
        return kind, kind.kind == "null"
    some = [one for one in kind.inner if one.kind != "null"]
    if len(some) > 1:
        raise DataflowError(
            f"{where} is {kind.told()}: a column has values of one type; give a schema without this field, or in which it has one of these "
            "types, and values of the others are set aside by on_error='skip'"
        )
    return (some[0], len(kind.inner) > 1) if some else (AvroType("null"), True)


def logical_type(kind: AvroType, where: str) -> pa.DataType | None:
    """The type of the column of a logical type; None: it is no known one."""
    said = kind.logical
    if not said:
        return None
    if said == "date":
        return pa.date32()
    if said == "decimal":
        if not 0 < kind.precision <= _DIGITS_MAX or not 0 <= kind.scale <= kind.precision:
            raise DataflowError(
                f"{where} is decimal({kind.precision}, {kind.scale}): a column of decimals has 1 to {_DIGITS_MAX} digits; read it as bytes"
            )
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else pa.decimal256(kind.precision, kind.scale)
    if said == "time-millis":
        return pa.time32("ms")
    if said == "time-micros":
        return pa.time64("us")
    return pa.timestamp(_UNITS[said.rpartition("-")[2]], None if said.startswith("local-") else "UTC")


def schema_of_columns(schema: pa.Schema, where: str, name: str = "Record", *, widest: bool = False) -> dict[str, Any]:
    """The schema of Avro, as JSON, whose records have the values of these columns. ``widest``: numbers are longs and doubles, as which
    all that are written can be read.

    >>> schema_of_columns(pa.schema([("id", pa.int64()), pa.field("day", pa.date32(), nullable=False)]), "example")["fields"]
    [{'name': 'id', 'type': ['null', 'long'], 'default': None}, {'name': 'day', 'type': {'type': 'int', 'logicalType': 'date'}}]
    """
    made = _record(list(schema), where, name)
    return _widened(made) if widest else made


def _record(fields: list[pa.Field], where: str, name: str) -> dict[str, Any]:
    made = []
    for one in fields:
        kind = _of_column(one.type, f"{where}: {one.name!r}", f"{name}_{one.name.replace('_', '__')}")
        plain = not one.nullable or kind == "null"
        made.append({"name": one.name, "type": kind} if plain else {"name": one.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": name, "fields": made}


def _of_column(kind: pa.DataType, where: str, name: str) -> Any:
    for is_kind, plain in _PLAIN_OF:
        if is_kind(kind):
            return plain
    if pat.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": name, "size": kind.byte_width}
    if pat.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pat.is_time(kind):
        return {"type": "int", "logicalType": "time-millis"} if pat.is_time32(kind) else {"type": "long", "logicalType": "time-micros"}
    if pat.is_timestamp(kind):
        unit = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}[kind.unit]
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-{unit}"}
    if pat.is_decimal(kind):
        if not 0 <= kind.scale <= kind.precision:
            raise DataflowError(f"{where} is {kind}: Avro has decimals with 0 to {kind.precision} digits behind the point: cast it")
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pat.is_dictionary(kind):
        return _of_column(kind.value_type, where, name)
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, where, name)}
    if pat.is_map(kind) and (pat.is_string(kind.key_type) or pat.is_large_string(kind.key_type)):
        return {"type": "map", "values": _nullable(kind.item_field, where, name)}
    if pat.is_struct(kind) and kind.num_fields:
        return _record(list(kind), where, name)
    raise DataflowError(f"{where} is {kind}, which Avro does not have: cast it to a number, to text or to binary")


def _widened(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_widened(one) for one in schema]
    if isinstance(schema, dict):
        plain = "logicalType" in schema
        return {name: one if plain or name in ("name", "default") else _widened(one) for name, one in schema.items()}
    return {"int": "long", "float": "double"}.get(schema, schema) if isinstance(schema, str) else schema


def _nullable(field: pa.Field, where: str, name: str) -> Any:
    kind = _of_column(field.type, where, name)
    return ["null", kind] if field.nullable and kind != "null" else kind


_PLAIN_OF: tuple[tuple[Any, str], ...] = (
    (pat.is_null, "null"),
    (pat.is_boolean, "boolean"),
    (lambda kind: kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    (lambda kind: pat.is_integer(kind) or pat.is_duration(kind), "long"),
    (lambda kind: pat.is_float16(kind) or pat.is_float32(kind), "float"),
    (pat.is_float64, "double"),
    (lambda kind: pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind), "string"),
    (lambda kind: pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind), "bytes"),
)

__all__ = ["alternatives", "column_type", "logical_type", "schema_of_columns"]
