"""Avro from columns, in a column of bytes: ``stream.format_avro("value", ["id", "total"], registry=..., subject="totals-value")``.

The schema, and with a registry its id, are fixed when the program is written. So a job that resumes writes the same ids, and a registry
that is down later stops nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from rayad.dataflow.operators.projections import OfFields, require_names
from rayad.dataflow.records.batches import require_distinct
from rayad.dataflow.records.exact import Inexact, array_of, cast_exactly
from rayad.integrations.avro.registry import Registry
from rayad.integrations.avro.schemas import library, parsed
from rayad.integrations.avro.types import column_type, schema_of_columns
from rayad.integrations.avro.writers import joined, written
from rayad.progress import DataflowError, arguments, show


class FormatAvroColumn(OfFields):
    """Records as messages: the column becomes one of bytes, or is added behind the others.

    Args:
        name: of the column.
        fields: the columns that are the fields of a record, which stay as they are; None: the column has structs, and a null stays one.
        schema: of Avro; None: made of the types of the columns.
        registry, subject: where the schema is registered; None: messages have no ids.
        register: whether it is registered if it is not there.
        wait_s: how long the registry is asked again while it does not answer.
        known: the columns of the stream; None: they are not known.
    """

    base = "format_avro"

    def __init__(
        self,
        name: Any,
        fields: Any,
        schema: Any,
        registry: Any,
        subject: Any,
        register: Any,
        wait_s: Any,
        known: pa.Schema | None,
    ) -> None:
        super().__init__([])
        self.name = arguments.text(name, "format_avro: column")
        self.fields = _checked_fields(fields)
        if (registry is None) != (subject is None):
            given, missing = ("registry", "subject") if subject is None else ("subject", "registry")
            raise DataflowError(f"format_avro was given {given}= without {missing}=: a schema is registered under a subject of a registry")
        library(self.base)
        if schema is None:
            plain: Any = schema_of_columns(self._columns_of(known), "format_avro", _name_of(subject, self.name))
        else:
            plain = json.loads(schema) if isinstance(schema, str) and schema.lstrip().startswith(("{", "[", '"')) else schema
        self._written = parsed(plain, "format_avro: schema")
        if self._written.kind != "record":
            raise DataflowError(f"format_avro: the schema is {self._written.told()}: it must be a record, with a field for each column")
        self._kind = column_type(self._written, "format_avro: schema")
        self.head = b""
        if registry is not None:
            there = Registry(registry, wait_s, self.base)
            may_register = arguments.flag(register, "format_avro: register")
            number = there.id_of(arguments.text(subject, "format_avro: subject"), json.dumps(plain), register=may_register)
            self.head = b"\0" + number.to_bytes(4, "big")

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_names(self.base, batch.schema.names, [self.name] if self.fields is None else self.fields)
        if self.fields is None:
            structs = batch.column(self.name)
            if not pat.is_struct(structs.type) and not pat.is_null(structs.type):
                raise DataflowError(
                    f"format_avro: column {self.name!r} is {structs.type}: it takes structs; name the columns that are the fields "
                    f"of a record: format_avro({self.name!r}, ['id', 'total'])"
                )
        else:
            structs = batch.select(self.fields).to_struct_array()
        made = self._messages(structs).cast(pa.binary())
        at = batch.schema.get_field_index(self.name)
        return batch.set_column(at, self.name, made) if at >= 0 else batch.append_column(self.name, made)

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            require_names(self.base, list(row), [self.name] if self.fields is None else self.fields)
        values = [row[self.name] if self.fields is None else {name: row[name] for name in self.fields} for row in rows]
        odd = next((value for value in values if value is not None and not isinstance(value, dict)), None)
        if odd is not None:
            raise DataflowError(f"format_avro: field {self.name!r} is {show(odd, 60)}: it takes dicts")
        try:
            structs = array_of(values, self._kind, self.name)
        except Inexact as error:
            raise ValueError(str(error)) from error
        return [{**row, self.name: made} for row, made in zip(rows, self._messages(structs).to_pylist(), strict=True)]

    def _columns_of(self, known: pa.Schema | None) -> pa.Schema:
        """The columns that a record has."""
        if known is None:
            raise DataflowError(
                "format_avro: the types of the columns are not known here: give schema=, a schema of Avro, or make them known, as "
                "by map(f, schema=...)"
            )
        require_names(self.base, known.names, [self.name] if self.fields is None else self.fields)
        if self.fields is not None:
            return pa.schema([known.field(name) for name in self.fields])
        kind = known.field(self.name).type
        if not pat.is_struct(kind):
            raise DataflowError(f"format_avro: column {self.name!r} is {kind}: it takes a column of structs, or the names of columns")
        return pa.schema(list(kind))

    def _messages(self, structs: pa.Array) -> pa.Array:
        """Messages, and nulls where a struct is one."""
        some = structs.drop_null() if structs.null_count else structs
        if pat.is_null(structs.type):
            return pa.nulls(len(structs), pa.large_binary())
        fitted = self._fitted(some)
        if not len(some):
            return pa.nulls(len(structs), pa.large_binary())
        made = written(self._written, fitted, self.name)
        whole = joined(pa.scalar(self.head, pa.large_binary()), made) if self.head else made
        if not structs.null_count:
            return whole
        there = structs.is_valid().to_numpy(zero_copy_only=False)
        return whole.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def _fitted(self, structs: pa.Array) -> pa.Array:
        """With exactly the fields of the schema, in its types. Raises ValueError."""
        names = [field.name for field in structs.type]
        columns, flat = [], structs.flatten()
        for field in self._kind:
            if field.name not in names:
                raise DataflowError(
                    f"format_avro: the schema has the field {field.name!r}, and there is no such column among {show(names, 120)}"
                )
            column = flat[names.index(field.name)]
            try:
                columns.append(cast_exactly(column, field.type, field.name))
            except (Inexact, pa.ArrowException) as error:
                raise ValueError(f"format_avro({self.name!r}): {error}") from error
        more = set(names) - {field.name for field in self._kind}
        if more:
            raise DataflowError(f"format_avro: the schema has no field for {sorted(more)}: add it there, or leave the column out")
        return pa.StructArray.from_arrays(columns, fields=list(self._kind))


def _checked_fields(fields: Any) -> list[str] | None:
    if fields is None:
        return None
    if isinstance(fields, str) or not isinstance(fields, Sequence) or not fields or not all(isinstance(one, str) for one in fields):
        raise DataflowError(f"format_avro was given fields={show(fields, 60)}: it takes a list of names of columns, or None")
    require_distinct(pa.schema([(one, pa.null()) for one in fields]), "format_avro")
    return list(fields)


def _name_of(subject: Any, column: str) -> str:
    """A name for a record: that of the subject, in the characters that Avro has."""
    given = subject if isinstance(subject, str) and subject else column
    plain = "".join(one if one.isascii() and (one.isalnum() or one == "_") else "_" for one in given)
    return plain if not plain[:1].isdigit() else f"_{plain}"


__all__ = ["FormatAvroColumn"]
