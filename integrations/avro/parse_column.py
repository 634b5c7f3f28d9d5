"""Avro in a column of bytes, as columns of known types: ``stream.parse_avro("value", schema)``.

What is read is fixed when the program is written: the reader's schema. With which schema a message was written is given, or the id in
front of it says, so a batch is read one id after the other. Confluent's format: a byte 0, the id as four bytes, the highest first, the
Avro.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from rayad.dataflow.operators.projections import OfFields, require_names
from rayad.dataflow.records.batches import require_distinct, to_rows
from rayad.dataflow.records.exact import Inexact, cast_batch
from rayad.integrations.avro.cursor import Cursor, Malformed
from rayad.integrations.avro.readers import Reader
from rayad.integrations.avro.registry import Registry, UnknownSchema
from rayad.integrations.avro.resolving import Resolving, Unresolvable, default_of
from rayad.integrations.avro.schemas import parsed
from rayad.integrations.avro.types import column_type, schema_of_columns
from rayad.progress import DataflowError, arguments, show

_HEADER = 5
_BINARY = (pat.is_binary, pat.is_large_binary, pat.is_binary_view, pat.is_null)


class ParseAvroColumn(OfFields):
    """The records in a column in its place, as structs; a null stays one.

    Args:
        name: of the column.
        schema: what is read: a schema of Avro, or one of columns; None: that of ``subject``.
        writer: with which all messages were written; None: with ``schema``, or as their ids say.
        registry: where the schemas of ids are; None: messages have no ids.
        subject, version: of the schema that is read.
        wait_s: how long the registry is asked again while it does not answer.
    """

    base = "parse_avro"

    def __init__(self, name: Any, schema: Any, writer: Any, registry: Any, subject: Any, version: Any, wait_s: Any) -> None:
        super().__init__([])
        self.name = arguments.text(name, "parse_avro: column")
        self._columns = schema if isinstance(schema, pa.Schema) else None
        _require_sense(schema, writer, registry, subject)
        self._registry = Registry(registry, wait_s, self.base) if registry is not None else None
        if subject is not None:
            assert self._registry is not None
            subject = arguments.text(subject, "parse_avro: subject")
            if version != "latest":
                arguments.whole(version, "parse_avro: version, a number or 'latest',", least=1)
            self._read = self._registry.by_subject(subject, version)
        elif self._columns is not None:
            require_distinct(self._columns, "the schema of parse_avro")
            self._columns = self._columns.remove_metadata()
            self._read = parsed(schema_of_columns(self._columns, "parse_avro: schema", widest=True), "parse_avro: schema")
        else:
            self._read = parsed(schema, "parse_avro: schema")
        if self._read.kind != "record":
            raise DataflowError(
                f"parse_avro: the schema is {self._read.told()}: it must be a record, whose fields become those of a struct"
            )
        self._plain = column_type(self._read, "parse_avro: schema")
        self.kind = pa.struct(list(self._columns)) if self._columns is not None else self._plain
        for one in self._read.fields:
            if one.has_default:
                _planned(lambda one=one: default_of(one.type, one.default, f"parse_avro: schema.{one.name}"))
        self._writer = parsed(writer, "parse_avro: writer") if writer is not None else None if registry is not None else self._read
        self._readers: dict[int, Reader] = {}
        if self._writer is not None:
            self._readers[-1] = _planned(lambda: self._resolved(self._writer))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {-1: self._readers[-1]} if -1 in self._readers else {}}

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_names(self.base, batch.schema.names, [self.name])
        at = batch.schema.get_field_index(self.name)
        column = batch.column(at)
        if not any(is_binary(column.type) for is_binary in _BINARY):
            raise DataflowError(f"parse_avro: column {self.name!r} is {column.type}: it takes columns of bytes (binary)")
        return batch.set_column(at, self.name, self._structs(column.cast(pa.large_binary())))

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            require_names(self.base, list(row), [self.name])
        given = [row[self.name] for row in rows]
        odd = next((value for value in given if value is not None and not isinstance(value, bytes)), None)
        if odd is not None:
            raise DataflowError(f"parse_avro: field {self.name!r} is {show(odd, 60)}: it takes bytes")
        structs = self._structs(pa.array(given, pa.large_binary()))
        made = to_rows(pa.RecordBatch.from_arrays([structs], [self.name]))
        return [{**row, **value} for row, value in zip(rows, made, strict=True)]

    def _structs(self, column: pa.Array) -> pa.Array:
        there = column.is_valid().to_numpy(zero_copy_only=False)
        some = column if not column.null_count else column.drop_null()
        if not len(some):
            return pa.nulls(len(column), self.kind)
        made = self._parsed(some)
        if len(some) == len(column):
            return made
        return made.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def _parsed(self, messages: pa.Array) -> pa.Array:
        """The structs of messages, none of them null. Raises ValueError that shows the first that does not fit."""
        if self._registry is None:
            return self._of_id(-1, messages)
        ids = self._ids_of(messages)
        found, which = np.unique(ids, return_inverse=True)
        if len(found) == 1:
            return self._of_id(int(found[0]), messages)
        pieces, taken, count = [], np.zeros(len(messages), np.int64), 0
        for at, number in enumerate(found):
            rows = np.flatnonzero(which == at)
            pieces.append(self._of_id(int(number), messages.take(pa.array(rows))))
            taken[rows] = np.arange(count, count + len(rows))
            count += len(rows)
        return pa.concat_arrays(pieces).take(pa.array(taken))

    def _ids_of(self, messages: pa.Array) -> Any:
        cursor = Cursor(messages)
        try:
            head = cursor.fixed(cursor.all_rows(), _HEADER)
            cursor.refuse(
                cursor.all_rows(),
                head[:, 0] != 0,
                "it does not begin with the byte 0, as Avro with an id of a registry does (Confluent's format)",
            )
        except Malformed as error:
            raise self._misfit(messages, error.row, str(error)) from error
        return np.ascontiguousarray(head[:, 1:]).view(">u4").ravel()

    def _of_id(self, number: int, messages: pa.Array) -> pa.Array:
        """The structs of messages that were written with one schema."""
        try:
            reader = self._reader_of(number)
        except (UnknownSchema, Unresolvable) as error:
            raise self._misfit(messages, 0, str(error)) from error
        cursor = Cursor(messages, 0 if number < 0 else _HEADER)
        try:
            structs = reader.read(cursor, cursor.all_rows())
            cursor.require_end()
        except Malformed as error:
            raise self._misfit(messages, error.row, str(error), number) from error
        return structs if self._columns is None else self._as_columns(messages, structs, self._columns)

    def _as_columns(self, messages: pa.Array, structs: pa.Array, schema: pa.Schema) -> pa.Array:
        try:
            return cast_batch(pa.RecordBatch.from_arrays(structs.flatten(), schema.names), schema).to_struct_array()
        except (Inexact, pa.ArrowException) as error:
            if len(messages) == 1:
                raise self._misfit(messages, 0, str(error)) from error
        half = len(messages) // 2
        parts = [(messages.slice(begin, count), structs.slice(begin, count)) for begin, count in ((0, half), (half, len(messages) - half))]
        return pa.concat_arrays([self._as_columns(*part, schema) for part in parts])

    def _reader_of(self, number: int) -> Reader:
        if number not in self._readers:
            assert self._registry is not None
            try:
                self._readers[number] = self._resolved(self._registry.by_id(number))
            except Unresolvable as error:
                raise Unresolvable(f"the schema of id {number} in {self._registry.address}: {error}") from error
        return self._readers[number]

    def _resolved(self, writer: Any) -> Reader:
        return Resolving(by_names=self._columns is None).reader(writer, self._read, self.name)

    def _misfit(self, messages: pa.Array, at: int, told: str, number: int = -1) -> ValueError:
        of = f" (schema id {number})" if number >= 0 else ""
        return ValueError(f"parse_avro({self.name!r}): {show(messages[at].as_py(), 200)}{of} does not fit: {told}")


def _require_sense(schema: Any, writer: Any, registry: Any, subject: Any) -> None:
    """Raise DataflowError for arguments that do not go together."""
    if schema is None and subject is None:
        raise DataflowError("parse_avro: give schema=, a schema of Avro or a pyarrow.Schema, or subject= and registry=, which have one")
    if schema is not None and subject is not None:
        raise DataflowError("parse_avro was given schema= and subject=: each says what is read; give one of them")
    if subject is not None and registry is None:
        raise DataflowError(f"parse_avro was given subject={show(subject, 60)} without registry=: give the address of the registry")
    if writer is not None and registry is not None:
        raise DataflowError("parse_avro was given writer= and registry=: with a registry the id in front of each message says it; give one")
    if isinstance(schema, pa.Schema):
        if not len(schema):
            raise DataflowError("parse_avro was given a schema without fields: give those that are to be read")
        if writer is None and registry is None:
            raise DataflowError(
                "parse_avro: columns do not say how messages were written: give writer=, a schema of Avro, or registry=, where the ids "
                "in front of messages are"
            )


def _planned(make: Any) -> Any:
    """What ``make`` gives, while the program is written."""
    try:
        return make()
    except Unresolvable as error:
        raise DataflowError(f"parse_avro: {error}") from error


__all__ = ["ParseAvroColumn"]
