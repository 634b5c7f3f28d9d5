"""The reader of a writer's schema: which fields are read, skipped or given their default, which numbers are promoted.

Source: Apache Avro 1.12, "Schema Resolution". Beyond it: dates, times and moments in another unit are converted, or refused, never taken
for numbers of the reader's unit; a reader's schema that was made of columns has no names, so records are matched whatever they are called,
and a column of texts reads an enum, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from rayad.integrations.avro import readers
from rayad.integrations.avro.cursor import Cursor, Rows
from rayad.integrations.avro.logical import as_logical
from rayad.integrations.avro.schemas import AvroField, AvroType
from rayad.integrations.avro.types import alternatives, column_type, logical_type
from rayad.progress import show

_PROMOTED = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
    "boolean": ("boolean",),
}
_NUMBERS = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()}


class Unresolvable(ValueError):
    """The writer's schema cannot be read as the reader's."""


def _longs(cursor: Cursor, rows: Rows) -> pa.Array:
    return pa.array(cursor.longs(rows))


def _ints(cursor: Cursor, rows: Rows) -> pa.Array:
    return pa.array(cursor.ints(rows).astype(np.int32))


def _floats(cursor: Cursor, rows: Rows) -> pa.Array:
    return pa.array(np.ascontiguousarray(cursor.fixed(rows, 4)).view("<f4").ravel())


def _doubles(cursor: Cursor, rows: Rows) -> pa.Array:
    return pa.array(np.ascontiguousarray(cursor.fixed(rows, 8)).view("<f8").ravel())


def _booleans(cursor: Cursor, rows: Rows) -> pa.Array:
    byte = cursor.fixed(rows, 1)[:, 0]
    cursor.refuse(rows, byte > 1, "a boolean is neither 0 nor 1")
    return pa.array(byte == 1)


def _strings(cursor: Cursor, rows: Rows) -> pa.Array:
    return cursor.strings(rows)


class _Fixed:
    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, cursor: Cursor, rows: Rows) -> pa.Array:
        held = np.ascontiguousarray(cursor.fixed(rows, self._size))
        return pa.Array.from_buffers(pa.binary(self._size), len(rows), [None, pa.py_buffer(held)])


_TAKES = {
    "int": _ints,
    "long": _longs,
    "float": _floats,
    "double": _doubles,
    "boolean": _booleans,
    "bytes": _strings,
    "string": _strings,
}


class Resolving:
    """Makes readers. ``by_names``: whether records, enums and fixed have to have the same name, without its namespace."""

    def __init__(self, *, by_names: bool) -> None:
        self._by_names = by_names

    def reader(self, writer: AvroType, reader: AvroType, where: str) -> readers.Reader:
        """Raises :class:`Unresolvable`."""
        wanted, has_nulls = alternatives(reader, where)
        if writer.kind == "union":
            return self._of_union(writer, reader, where)
        if writer.kind == "null" and has_nulls:
            return readers.Nothing(column_type(wanted, where))
        if writer.kind == wanted.kind and writer.kind in ("record", "enum", "fixed") and not self._same_name(writer, wanted):
            raise Unresolvable(
                f"{where} was written as {writer.told()}, and is read as {wanted.told()}: their names differ, without an alias"
            )
        match writer.kind, wanted.kind:
            case "record", "record":
                return self._of_record(writer, wanted, where)
            case "array", "array":
                item = self.reader(writer.inner[0], wanted.inner[0], f"{where}[]")
                return readers.Items(item, writer.inner[0], column_type(wanted, where))
            case "map", "map":
                return self._of_map(writer, wanted, where)
            case "enum", "enum":
                known = [symbol if symbol in wanted.symbols else wanted.default for symbol in writer.symbols]
                return readers.Enum(writer.symbols, known)
            case "enum", "string" if not self._by_names:
                return readers.Enum(writer.symbols, writer.symbols)
            case "fixed", "fixed" if writer.size == wanted.size:
                return self._of_logical(writer, wanted, readers.Plain(_Fixed(writer.size), pa.binary(writer.size)), where)
            case "fixed", "bytes" if writer.logical == wanted.logical == "decimal":
                return self._of_logical(writer, wanted, readers.Plain(_Fixed(writer.size), pa.binary(writer.size)), where)
        if wanted.kind not in _PROMOTED.get(writer.kind, ()):
            raise Unresolvable(f"{where} was written as {writer.told()}, which is not read as {wanted.told()}")
        kind = _NUMBERS.get(wanted.kind) or (pa.bool_() if wanted.kind == "boolean" else pa.binary())
        plain = readers.Plain(_TAKES[writer.kind], pa.string() if wanted.kind == "string" else kind)
        return self._of_logical(writer, wanted, plain, where)

    def _same_name(self, writer: AvroType, reader: AvroType) -> bool:
        """Or one of the reader's aliases is the writer's name."""
        if not self._by_names:
            return True
        return writer.short_name in (reader.short_name, *(alias.rpartition(".")[2] for alias in reader.aliases))

    def _of_union(self, writer: AvroType, reader: AvroType, where: str) -> readers.Reader:
        """Whether a branch can be read counts where a value of it is there."""
        wanted, has_nulls = alternatives(reader, where)
        kind = column_type(wanted, where)
        branches: list[readers.Reader | None] = []
        for branch in writer.inner:
            if branch.kind == "null":
                branches.append(
                    None if has_nulls else readers.Refused(f"{where} is null, and the schema that is read has none there", kind)
                )
                continue
            try:
                branches.append(self.reader(branch, reader, where))
            except Unresolvable as error:
                branches.append(readers.Refused(str(error), kind))
        if all(isinstance(branch, readers.Refused) for branch in branches):
            raise Unresolvable(f"{where} was written as {writer.told()}, which is not read as {reader.told()}")
        return readers.Union(branches, kind)

    def _of_record(self, writer: AvroType, reader: AvroType, where: str) -> readers.Reader:
        places: dict[str, int] = {}
        names = {one.name for one in writer.fields}
        for at, one in enumerate(reader.fields):
            found = next((name for name in (one.name, *one.aliases) if name in names), None)
            if found is not None:
                places[found] = at
        written: list[tuple[int | None, Any]] = []
        for one in writer.fields:
            place = places.get(one.name)
            how = one.type if place is None else self.reader(one.type, reader.fields[place].type, f"{where}.{reader.fields[place].name}")
            written.append((place, how))
        missing = set(range(len(reader.fields))) - set(places.values())
        defaults: dict[int, readers.Reader] = {place: self._default(reader.fields[place], where) for place in sorted(missing)}
        return readers.Record(written, defaults, column_type(reader, where))

    def _default(self, field: AvroField, where: str) -> readers.Reader:
        where = f"{where}.{field.name}"
        if not field.has_default:
            raise Unresolvable(f"{where} is not in the schema that it was written with, and has no default in the one that is read")
        return readers.Default(default_of(field.type, field.default, where))

    def _of_map(self, writer: AvroType, reader: AvroType, where: str) -> readers.Reader:
        inner = self.reader(writer.inner[0], reader.inner[0], f"{where}[]")
        pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", inner.kind)])
        item = readers.Record([(0, readers.Plain(_strings, pa.string())), (1, inner)], {}, pair)
        return readers.Items(item, readers.entry_of(writer), column_type(reader, where))

    def _of_logical(self, writer: AvroType, reader: AvroType, plain: readers.Reader, where: str) -> readers.Reader:
        """Where only one of the two is logical, it says what the numbers are, or nothing does."""
        wanted = logical_type(reader, where)
        if wanted is None:
            return plain
        written = logical_type(writer, where) or wanted
        same = all(map(pat.is_timestamp, (written, wanted))) or all(map(pat.is_time, (written, wanted)))
        if pat.is_decimal(written) and pat.is_decimal(wanted):
            same = written.scale == wanted.scale and written.precision <= wanted.precision
        if not same and not written.equals(wanted):
            raise Unresolvable(f"{where} was written as {written}, which is not read as {wanted}")
        return readers.Logical(plain, written, wanted)


def default_of(kind: AvroType, value: Any, where: str) -> pa.Array:
    """A column of one value, the default of a field, which schemas have as JSON. Raises :class:`Unresolvable` for one that does not fit."""
    some, has_nulls = alternatives(kind, where)
    wanted = column_type(kind, where)
    try:
        if value is None and has_nulls:
            return pa.nulls(1, wanted)
        return _default_of(some, value, wanted, where)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        raise Unresolvable(f"{where} has the default {show(value, 60)}, which is no {some.told()}") from error


def _default_of(some: AvroType, value: Any, wanted: pa.DataType, where: str) -> pa.Array:
    match some.kind:
        case "record":
            columns = [
                default_of(one.type, value[one.name] if one.name in value else _own_default(one), f"{where}.{one.name}")
                for one in some.fields
            ]
            return pa.StructArray.from_arrays(columns, fields=list(wanted))
        case "array":
            items = [default_of(some.inner[0], one, f"{where}[]") for one in value]
            inner = pa.concat_arrays(items) if items else pa.nulls(0, wanted.value_type)
            return pa.ListArray.from_arrays(pa.array([0, len(inner)], pa.int32()), inner, type=wanted)
        case "map":
            values = [default_of(some.inner[0], one, f"{where}[]") for one in value.values()]
            inner = pa.concat_arrays(values) if values else pa.nulls(0, wanted.item_type)
            return pa.MapArray.from_arrays(pa.array([0, len(inner)], pa.int32()), pa.array(list(value), pa.string()), inner).cast(wanted)
        case "bytes" | "fixed":
            plain = pa.array([value.encode("latin-1")], pa.binary() if some.kind == "bytes" else pa.binary(some.size))
        case "enum" | "string":
            plain = pa.array([value], pa.string())
        case kind:
            plain = pa.array([value], _NUMBERS.get(kind) or pa.bool_())
    return as_logical(plain, wanted) if some.logical else plain


def _own_default(field: AvroField) -> Any:
    if not field.has_default:
        raise KeyError(field.name)
    return field.default


__all__ = ["Resolving", "Unresolvable", "default_of"]
