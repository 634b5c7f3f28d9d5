"""Partitions of Iceberg tables: what a partition spec makes of values, and batches cut by it.

A spec has fields; each is a transform of a column: the value itself, a bucket of its hash, the beginning of it, its year, month, day or
hour. All rows of a file have the same outcome of every field, and the manifest says which. Replicas cut what they write by the outcomes
and put them into the names of staged files (:func:`cut`), from which the commit reads them again (:func:`values_in`).

The outcomes are computed here, column by column: ``pyiceberg`` does so one value after another, or by a package of its own in Rust. For
texts, bytes and decimals its functions are called, once for each value that occurs in a batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.integrations.iceberg.catalog import library
from rayad.integrations.type_systems import stored
from rayad.progress import ConfigError, DataflowError, arguments, show

_CALL = re.compile(r"(bucket|truncate)\(\s*(\d+)\s*,\s*(.+?)\s*\)|(year|month|day|hour)\(\s*(.+?)\s*\)")
_OF_TIME = {"year": "M8[Y]", "month": "M8[M]", "day": "M8[D]", "hour": "M8[h]"}
_NAMES = {"bucket": "bucket", "truncate": "trunc"}
"""What the names of fields end with, as Iceberg's own libraries call them."""


class Field(NamedTuple):
    """A field of a partition spec. column: its name; for a field of a struct, the names that lead to it. transform: as Iceberg writes it,
    such as ``bucket[16]``.

    >>> str(Field(("id",), "bucket[16]")), str(Field(("at",), "day")), str(Field(("place", "town"), "identity"))
    ('bucket(16, id)', 'day(at)', 'place.town')
    """

    column: tuple[str, ...]
    transform: str

    def __str__(self) -> str:
        column = ".".join(self.column)
        kind, size = self.kind, self.size
        if kind == "identity":
            return column
        return f"{kind}({size}, {column})" if size is not None else f"{kind}({column})"

    @property
    def kind(self) -> str:
        """The transform without its parameter."""
        return self.transform.partition("[")[0]

    @property
    def size(self) -> int | None:
        """The number of buckets, or how much of a value is left."""
        return int(self.transform.partition("[")[2].rstrip("]")) if "[" in self.transform else None


def fields_of(partition_by: Any, where: str) -> tuple[Field, ...]:
    """What ``partition_by=`` says. Raises ConfigError for what it cannot say.

    >>> [str(field) for field in fields_of(["town", "bucket(16,id)", "day(at)"], "write_iceberg")]
    ['town', 'bucket(16, id)', 'day(at)']
    """
    given = (partition_by,) if isinstance(partition_by, str) else partition_by
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{where}: partition_by is {show(partition_by, 60)}: give the name of a column, or a list of names")
    fields = []
    for one in given:
        text = arguments.text(one, f"{where}: a name in partition_by", error=ConfigError)
        found = _CALL.fullmatch(text)
        if found is None and text.endswith(")") and "(" in text:
            raise ConfigError(
                f"{where}: partition_by has {text!r}: give a column, 'bucket(16, column)', 'truncate(10, column)', 'year(column)', "
                "'month(column)', 'day(column)' or 'hour(column)'"
            )
        kind, size, sized, of_time, timed = found.groups() if found is not None else ("identity", None, text, None, None)
        if size is not None and int(size) < 1:
            raise ConfigError(f"{where}: partition_by has {text!r}: the number must be at least 1")
        fields.append(Field((timed or sized,), of_time or (f"{kind}[{int(size)}]" if size is not None else kind)))
    columns = [field.column for field in fields]
    if len(set(columns)) < len(columns):
        raise ConfigError(f"{where}: partition_by={list(given)!r} names a column twice")
    return tuple(fields)


def fields_of_spec(table: Any, where: str) -> tuple[Field, ...]:
    """The fields by which a table is partitioned now. Raises ConfigError for a transform that is not known here."""
    fields = []
    for one in table.spec().fields:
        field = Field(_path_to(table.schema().fields, one.source_id) or ("?",), str(one.transform))
        if field.kind not in ("identity", "void", *_NAMES, *_OF_TIME):
            raise ConfigError(
                f"{where}: the table is partitioned by {one.name!r}, which is {one.transform!r} of {'.'.join(field.column)!r}: only "
                "columns, bucket, truncate, year, month, day and hour are written"
            )
        fields.append(field)
    return tuple(fields)


def _path_to(fields: Sequence[Any], number: int) -> tuple[str, ...] | None:
    """The names that lead to a field of a schema."""
    for field in fields:
        if field.field_id == number:
            return (str(field.name),)
        inside = _path_to(getattr(field.field_type, "fields", ()), number)
        if inside is not None:
            return (str(field.name), *inside)
    return None


def spec_of(fields: Sequence[Field], schema: Any, where: str) -> Any:
    """The partition spec of a new table with this schema."""
    found = library(where)
    parts = [
        found.partitioning.PartitionField(
            source_id=schema.find_field(field.column[0]).field_id,
            field_id=1000 + at,
            transform=found.transforms.parse_transform(field.transform),
            name=field.column[0] if field.kind == "identity" else f"{field.column[0]}_{_NAMES.get(field.kind, field.kind)}",
        )
        for at, field in enumerate(fields)
    ]
    return found.partitioning.PartitionSpec(*parts)


def check_fields(schema: pa.Schema, fields: Sequence[Field], where: str) -> None:
    """Raise DataflowError unless a table with these columns, in the types of Iceberg, can be partitioned so."""
    for field in fields:
        if field.column[0] not in schema.names:
            raise DataflowError(f"{where}: partition_by has {str(field)!r}: there is no column {field.column[0]!r} in {schema.names}")
        kind = schema.field(field.column[0]).type
        for name in field.column[1:]:
            kind = kind.field(name).type
        if not _takes(field.kind, kind):
            raise DataflowError(
                f"{where}: partition_by has {str(field)!r}: {field.column[-1]!r} is {kind}, of which Iceberg has no {field.kind}"
            )
        name = f"{field.column[0]}_{_NAMES.get(field.kind, field.kind)}"
        if field.kind not in ("identity", "void") and name in schema.names:
            raise DataflowError(
                f"{where}: partition_by has {str(field)!r}, which Iceberg calls {name!r}: the records have that column, too"
            )


def _takes(transform: str, kind: pa.DataType) -> bool:
    """Whether Iceberg has this transform of a type."""
    is_moment = pat.is_date(kind) or pat.is_timestamp(kind)
    if pat.is_nested(kind):
        return False
    if transform in ("identity", "void") or pat.is_null(kind):
        return True
    if transform == "hour":
        return bool(pat.is_timestamp(kind))
    if transform in _OF_TIME:
        return bool(is_moment)
    plain = pat.is_integer(kind) or pat.is_string(kind) or pat.is_binary(kind) or pat.is_decimal(kind)
    is_hashed = is_moment or pat.is_time(kind) or pat.is_fixed_size_binary(kind) or kind == pa.uuid()
    return bool(plain or (transform == "bucket" and is_hashed))


# -- what a spec makes of values ---------------------------------------------------------------------------------------------------


def outcomes(column: pa.Array, field: Field, where: str) -> pa.Array:
    """What a field makes of the values of a column, which is in a type of Iceberg without extension types."""
    kind = column.type
    if field.kind == "identity" or pat.is_null(kind):
        return column
    if field.kind == "void":
        return pa.nulls(len(column), kind)
    if field.kind in _OF_TIME:
        return _of_time(column, field.kind)
    size = field.size
    assert size is not None
    if field.kind == "bucket" and not _has_own_bytes(kind):
        return _with_nulls((_hash_of_longs(_integers(column)) & 0x7FFFFFFF).astype(np.int32) % np.int32(size), column)
    if field.kind == "truncate" and pat.is_integer(kind):
        numbers = _integers(column)
        return _with_nulls(numbers - numbers % size, column).cast(kind, safe=False)  # the least numbers wrap, as in Java
    if field.kind == "truncate" and pat.is_string(kind):
        return pc.utf8_slice_codeunits(column, 0, size)
    if field.kind == "truncate" and pat.is_binary(kind):
        return pc.binary_slice(column, 0, size)
    encoded = column.dictionary_encode()
    of = library(where).transforms.parse_transform(field.transform).transform(_kind_of(kind, where))
    made = pa.array([of(value) for value in encoded.dictionary.to_pylist()], pa.int32() if field.kind == "bucket" else kind)
    return made.take(encoded.indices)


def _has_own_bytes(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_binary(kind) or pat.is_fixed_size_binary(kind) or pat.is_decimal(kind))


def _kind_of(kind: pa.DataType, where: str) -> Any:
    types = library(where).types
    if pat.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    return types.StringType() if pat.is_string(kind) else types.BinaryType()  # others are hashed as their bytes


def _integers(column: pa.Array) -> Any:
    """Whole numbers, days, or microseconds; 0 in place of null."""
    plain = column.cast(pa.int32()) if pat.is_date(column.type) else column
    return plain.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _with_nulls(numbers: Any, column: pa.Array) -> pa.Array:
    return pa.array(numbers, mask=column.is_null().to_numpy(zero_copy_only=False))


def _of_time(column: pa.Array, unit: str) -> pa.Array:
    """Years, months, days or hours since the beginning of 1970."""
    moments = _integers(column).astype("M8[D]" if pat.is_date(column.type) else "M8[us]")
    return _with_nulls(moments.astype(_OF_TIME[unit]).astype(np.int64).astype(np.int32), column)


def _hash_of_longs(numbers: Any) -> Any:
    """Murmur3 (x86, 32 bits, seed 0) of each number as 8 bytes, least first: what Iceberg hashes numbers and moments by."""
    plain = numbers.astype(np.int64).view(np.uint64)
    out = np.zeros(len(plain), np.uint32)
    for word in ((plain & np.uint64(0xFFFFFFFF)).astype(np.uint32), (plain >> np.uint64(32)).astype(np.uint32)):
        word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        out = _rotated(out ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    out ^= np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        out = (out ^ (out >> np.uint32(shift))) * np.uint32(factor)
    return out


def _rotated(words: Any, bits: int) -> Any:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


# -- records, cut by them ----------------------------------------------------------------------------------------------------------


def cut(records: pa.RecordBatch, sources: pa.Table, fields: Sequence[Field], where: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of each partition, in the order of their first ones, with the name of the partition. ``sources`` has the columns of the
    fields, in the types of Iceberg."""
    codes, texts = codes_of(sources, fields, where)
    _, first = np.unique(codes, return_index=True)
    for at in sorted(first):
        code = codes[at]
        yield texts[code], records if len(first) == 1 else records.filter(pa.array(codes == code))


def codes_of(sources: pa.Table, fields: Sequence[Field], where: str) -> tuple[Any, list[str]]:
    """A number for the partition of each row, and the name of each partition."""
    codes = np.zeros(len(sources), np.int64)
    texts = [""]
    for field in fields:
        encoded = outcomes(_column(sources, field), field, where).dictionary_encode(null_encoding="encode")
        values = [_text(value) for value in encoded.dictionary.to_pylist()]
        pairs = codes * max(len(values), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        found, codes = np.unique(pairs, return_inverse=True)
        texts = [f"{texts[pair // len(values)]}{quote(str(field), safe='')}={values[pair % len(values)]}/" for pair in found]
    return codes, [text.rstrip("/") for text in texts]


def _column(sources: pa.Table, field: Field) -> pa.Array:
    column = sources.column(field.column[0]).combine_chunks()
    plain = stored(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    return plain if len(field.column) == 1 else pc.struct_field(plain, list(field.column[1:]))


def _text(value: Any) -> str:
    """A value in the name of a partition."""
    if isinstance(value, bytes | float):
        value = value.hex()
    elif value is not None and not isinstance(value, bool | int | str):
        value = str(value) if isinstance(value, Decimal) else _since_1970(value)
    return quote(json.dumps(value), safe="")


def _since_1970(value: Any) -> int:
    """Days of a date, microseconds of a moment or of a time of day."""
    return int(_integers(pa.array([value]))[0])


def cut_by(partition: str) -> list[str]:
    """The fields in the name of a partition.

    >>> cut_by("bucket%2816%2C%20id%29=7/town=%22Ulm%22")
    ['bucket(16, id)', 'town']
    """
    return [unquote(part.partition("=")[0]) for part in partition.split("/") if part]


def values_in(partition: str, kinds: Sequence[Any], where: str) -> list[Any]:
    """The values in the name of a partition, which have these types of Iceberg."""
    texts = [unquote(part.partition("=")[2]) for part in partition.split("/") if part]
    return [_value(json.loads(text), kind, where) for text, kind in zip(texts, kinds, strict=True)]


def _value(plain: Any, kind: Any, where: str) -> Any:
    types = library(where).types
    if plain is None:
        return None
    if isinstance(kind, types.DecimalType):
        return Decimal(str(plain)).quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=76))
    if isinstance(kind, types.FloatType | types.DoubleType):
        return float.fromhex(plain) if isinstance(plain, str) else float(plain)
    if isinstance(kind, types.BinaryType | types.FixedType | types.UUIDType):
        return bytes.fromhex(plain)
    return plain


__all__ = ["Field", "check_fields", "codes_of", "cut", "cut_by", "fields_of", "fields_of_spec", "outcomes", "spec_of", "values_in"]
