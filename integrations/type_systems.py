"""Tables in the column types of another system, without losing a value: Spark, Iceberg.

A system has fewer types than Arrow. A :class:`TypeSystem` says which type it has for each of Arrow's that are not nested; what is the same
for all of them is here: nested types, extension types, dictionaries, and casts that are exact or refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from rayad.dataflow.records.exact import Inexact, cast_exactly
from rayad.integrations.blocks import describe
from rayad.progress import DataflowError


class TypeSystem(NamedTuple):
    """name: of the system. short: in "does not fit Spark's int32". plain: its Arrow type for one that is not nested, None if it has none.
    keeps_required: whether items of lists and values of maps that cannot be null stay so."""

    name: str
    short: str
    plain: Callable[[pa.DataType], pa.DataType | None]
    keeps_required: bool = False

    def type_of(self, kind: pa.DataType, column: str, where: str) -> pa.DataType:
        """The Arrow type of the system's type for ``kind``. DataflowError where there is none."""
        known = self.plain(kind)
        if known is not None:
            return known
        if isinstance(kind, pa.BaseExtensionType):  # windows, pairs and records of ours, for instance: structs
            return self.type_of(kind.storage_type, column, where)
        if pat.is_dictionary(kind):
            return self.type_of(kind.value_type, column, where)
        if pat.is_map(kind):
            key = pa.field("key", self._inner(kind.key_type, f"{column}.key", where), nullable=False)
            item = self._inner(kind.item_type, f"{column}.value", where)
            return pa.map_(key, pa.field("value", item, nullable=self._nullable(kind.item_field)))
        if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
            item = self._inner(kind.value_type, f"{column}[]", where)
            return pa.list_(pa.field("element", item, nullable=self._nullable(kind.value_field)))
        if pat.is_struct(kind):
            fields = [kind.field(i) for i in range(kind.num_fields)]
            kinds = [self._inner(field.type, f"{column}.{field.name}", where) for field in fields]
            return pa.struct([pa.field(field.name, kind, nullable=field.nullable) for field, kind in zip(fields, kinds, strict=True)])
        hint = " (times of day: to int64 or string)" if pat.is_time(kind) else ""
        raise DataflowError(f"{where}: column {column!r} is of type {kind}, for which {self.name} has none; cast it first{hint}")

    def _inner(self, kind: pa.DataType, column: str, where: str) -> pa.DataType:
        """Inside of nested types there are no extension types."""
        return self.type_of(kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind, column, where)

    def _nullable(self, field: pa.Field) -> bool:
        return field.nullable or not self.keeps_required

    def columns(self, table: pa.Table, where: str) -> pa.Table:
        """``table`` in the types of the system. DataflowError naming the column where a value does not fit (nanoseconds, say)."""
        names = table.schema.names
        if len(set(names)) != len(names):
            raise DataflowError(f"{where}: column names must differ, got {describe(table.schema)}; rename them")
        columns, fields = [], []
        for field, column in zip(table.schema, table.columns, strict=True):
            kind = self.type_of(field.type, field.name, where)
            try:
                columns.append(_as(column, kind, field.name))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, Inexact) as error:
                raise DataflowError(
                    f"{where}: column {field.name!r} of type {field.type} does not fit {self.short} {kind}: {error}; cast it first"
                ) from error
            fields.append(pa.field(field.name, kind, nullable=field.nullable))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def for_files(self, table: pa.Table, where: str, otherwise: str) -> pa.Table:
        """``table`` in the types of the system's Parquet files: no columns of nothing but nulls. ``otherwise``: how to do without."""
        for field in table.schema:
            if _has_null_type(field.type):
                raise DataflowError(
                    f"{where}: column {field.name!r} is of type {field.type}: nothing but nulls, which has no type in Parquet files; give "
                    f"schema= with a type for it, or {otherwise}"
                )
        fixed = [_has_fixed_lists(field.type) for field in table.schema]
        out = self.columns(table, where)
        columns = [_written_anew(column) if was_fixed else column for column, was_fixed in zip(out.columns, fixed, strict=True)]
        return pa.Table.from_arrays(columns, schema=out.schema)


def _as(column: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.ChunkedArray:
    if column.type == kind and column.type.equals(kind, check_metadata=True):
        return column
    plain = pa.chunked_array([stored(chunk) for chunk in column.chunks]) if has_extension(column.type) and len(column) else column
    plain = plain.cast(plain.type.value_type) if pat.is_dictionary(plain.type) else plain
    same = plain.type == kind and plain.type.equals(kind, check_metadata=True)
    return plain if same else pa.chunked_array([cast_exactly(chunk, kind, name) for chunk in plain.chunks], kind)


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


def _has_fixed_lists(kind: pa.DataType) -> bool:
    return pat.is_fixed_size_list(kind) or any(_has_fixed_lists(kind.field(i).type) for i in range(kind.num_fields))


def _written_anew(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A copy of the values. A null in a column of fixed-size lists has elements, which the Parquet writer of pyarrow 21 refuses; in the
    copy it has none."""
    return column.take(pa.array(range(len(column)), pa.int64())) if len(column) else column


def _has_null_type(kind: pa.DataType) -> bool:
    return pat.is_null(kind) or any(_has_null_type(kind.field(i).type) for i in range(kind.num_fields))


__all__ = ["TypeSystem", "has_extension", "stored"]
