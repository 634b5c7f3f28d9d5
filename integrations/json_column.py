"""JSON objects in a column of texts or bytes, as columns of known types: ``stream.parse_json("value", schema)``.

Arrow's reader takes the texts as one, so an object that is not closed could end in the next text, and two in one text make up for it.
That cannot be where each text begins with ``{``, ends with ``}``, and they are apart by a line break, which is not allowed in a string:
then each gives one object at least, and as many objects as texts are one each.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson
import pyarrow.types as pat

from rayad.dataflow.operators.map_batches import as_batch
from rayad.dataflow.operators.projections import OfFields, require_names
from rayad.dataflow.records.batches import require_distinct, to_rows
from rayad.dataflow.records.exact import Inexact, cast_batch
from rayad.integrations.file_output.text_types import json_form, json_schema
from rayad.progress import DataflowError, arguments, show

Unexpected = Literal["ignore", "error"]
"""What is done with fields that a schema does not have."""
_TEXTS = (pat.is_string, pat.is_large_string, pat.is_string_view, pat.is_binary, pat.is_large_binary, pat.is_binary_view)


def one_text(texts: pa.Array) -> pa.Buffer:
    """Texts, none of them null, as one, with line breaks between them."""
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
    return joined[0].as_buffer()


def objects_of(texts: pa.Array, text: pa.Buffer, schema: pa.Schema, unexpected: Unexpected) -> pa.Table:
    """The JSON objects in texts, which are one, too, as a table with the types in which Arrow reads ``schema``, and a row for each object.

    What is no object is kept from Arrow's reader, which ends the process at a lone ``null`` (pyarrow 26). Raises ArrowInvalid or
    ValueError where they do not fit.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    if not pc.all(pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))).as_py():
        raise ValueError("it is not a JSON object")
    has_breaks = pc.any(pc.match_substring(texts, "\n")).as_py()
    return pajson.read_json(
        pa.BufferReader(text),
        read_options=pajson.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pajson.ParseOptions(
            explicit_schema=json_schema(schema), unexpected_field_behavior=unexpected, newlines_in_values=has_breaks
        ),
    )


class ParseJsonColumn(OfFields):
    """The objects in a column in its place, as structs; a null stays one.

    Args:
        name: of the column.
        schema: the fields of the structs.
        unexpected: whether other fields are ignored, or an error.
    """

    base = "parse_json"

    def __init__(self, name: Any, schema: Any, unexpected: Any) -> None:
        super().__init__([])
        self.name = arguments.text(name, "parse_json: column")
        if not isinstance(schema, pa.Schema) or not len(schema):
            raise DataflowError(f"parse_json was given schema={show(schema, 60)}: give a pyarrow.Schema with the fields of the objects")
        require_distinct(schema, "the schema of parse_json")
        odd = next((field for field in schema if json_form(field.type) is None), None)
        if odd is not None:
            raise DataflowError(
                f"parse_json: JSON does not hold values of {odd.type}, the type of the field {odd.name!r}: read it as pa.string() or a "
                "number, and make the other of it behind"
            )
        self.schema = schema.remove_metadata()
        arguments.choice(unexpected, "parse_json: unexpected", *get_args(Unexpected))
        self.unexpected: Unexpected = unexpected

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_names(self.base, batch.schema.names, [self.name])
        at = batch.schema.get_field_index(self.name)
        column = batch.column(at)
        if not any(is_text(column.type) for is_text in _TEXTS) and not pat.is_null(column.type):
            raise DataflowError(f"parse_json: column {self.name!r} is {column.type}: it takes columns of texts or bytes")
        return batch.set_column(at, self.name, self._structs(column))

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            require_names(self.base, list(row), [self.name])
        given = [row[self.name] for row in rows]
        odd = next((value for value in given if value is not None and not isinstance(value, str | bytes)), None)
        if odd is not None:
            raise DataflowError(f"parse_json: field {self.name!r} is {show(odd, 60)}: it takes texts or bytes")
        values = [value.encode() if isinstance(value, str) else value for value in given]
        structs = self._structs(pa.array(values, pa.large_binary()))
        made = to_rows(pa.RecordBatch.from_arrays([structs], [self.name]))
        return [{**row, **value} for row, value in zip(rows, made, strict=True)]

    def _structs(self, column: pa.Array) -> pa.Array:
        kind = pa.struct(list(self.schema))
        if pat.is_string_view(column.type) or pat.is_binary_view(column.type) or pat.is_null(column.type):
            column = column.cast(pa.large_binary())
        there = column.is_valid()
        some = column if not column.null_count else column.drop_null()
        if not len(some):
            return pa.nulls(len(column), kind)
        made = self._parsed(some)
        if len(some) == len(column):
            return made
        return made.take(pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), pa.scalar(None, pa.int64())))

    def _parsed(self, column: pa.Array) -> pa.Array:
        """The structs of values, none of them null. Raises ValueError that shows the first that does not fit."""
        try:
            return self._tried(column)
        except (ValueError, Inexact) as error:  # pa.ArrowInvalid is a ValueError
            if len(column) == 1:
                told = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
                raise ValueError(f"parse_json({self.name!r}): {show(_as_text(column[0].as_py()), 200)} does not fit: {told}") from error
        half = len(column) // 2
        parts = [self._parsed(part) for part in (column.slice(0, half), column.slice(half))]
        return pa.concat_arrays(parts)  # together they were too much: more than 2 GiB

    def _tried(self, column: pa.Array) -> pa.Array:
        texts = column.cast(pa.string())  # which looks for what is not UTF-8
        table = objects_of(texts, one_text(texts), self.schema, self.unexpected).select(self.schema.names)
        if table.num_rows != len(texts):
            raise ValueError(f"{len(texts)} values are {table.num_rows} objects: each has to be one")
        batches = [cast_batch(batch, self.schema) for batch in table.to_batches()]
        return as_batch(pa.Table.from_batches(batches, self.schema)).to_struct_array()


def _as_text(value: str | bytes) -> str | bytes:
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        return value


__all__ = ["ParseJsonColumn", "Unexpected", "objects_of", "one_text"]
