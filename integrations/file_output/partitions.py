"""Directories that hold values: ``day=2024-05-01/town=Ulm/part-0.parquet``, as Hive, Spark and pyarrow write and read them.

A value is text in a name, so only types of which the text is the value are taken: text, integers, booleans, dates. Null is
``__HIVE_DEFAULT_PARTITION__``. Spark reads an empty text as null, so it is refused, and so is a text that is that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.types as pat

from rayad.progress import ConfigError, DataflowError, arguments, show

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name that stands for null."""


_KINDS = (pat.is_integer, pat.is_boolean, pat.is_date32, pat.is_string, pat.is_large_string, pat.is_null)
"""What a name can say; null is the type of a column in which nothing but null has come yet."""


def check_partition_by(columns: Any, where: str) -> tuple[str, ...]:
    """The names of columns. Raises ConfigError for anything else."""
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, list | tuple) else None
    if names is None:
        raise ConfigError(f"{where}: partition_by is {show(columns, 60)}: give the name of a column, or a list of names")
    for name in names:
        arguments.text(name, f"{where}: a name in partition_by", error=ConfigError)
    if len(set(names)) < len(names):
        raise ConfigError(f"{where}: partition_by={list(names)!r} names a column twice")
    return names


def check_types(schema: pa.Schema, columns: Sequence[str], where: str) -> None:
    """Raise DataflowError unless records of these columns can be partitioned by them, and something is left to be in the files."""
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise DataflowError(f"{where}: partition_by={list(columns)!r}: there is no column {missing[0]!r} in {schema.names}")
    for name in columns:
        kind = schema.field(name).type
        if not any(is_kind(kind) for is_kind in _KINDS):
            raise DataflowError(
                f"{where}: partition_by={list(columns)!r}: {name!r} is {kind}; a directory's name can be text, an integer, a bool or a "
                "date: make another column of it for that"
            )
    if len(columns) == len(schema):
        raise DataflowError(f"{where}: partition_by={list(columns)!r} leaves no column for the files")


def cut(records: pa.RecordBatch, columns: Sequence[str], where: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The directory of each combination of values, and its records; without columns all of them, in none."""
    if columns:
        check_types(records.schema, columns, where)
        yield from split(records, columns, where)
    else:
        yield "", records


def split(batch: pa.RecordBatch, columns: Sequence[str], where: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The directory of each combination of values, and its records, in the order of their first ones."""
    codes = np.zeros(batch.num_rows, np.int64)
    for name in columns:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)  # so that they stay small
    values, first = np.unique(codes, return_index=True)
    for at in np.argsort(first, kind="stable"):
        rows = batch if len(values) == 1 else batch.filter(pa.array(codes == values[at]))
        yield "/".join(_directory(name, rows.column(name)[0].as_py(), where) for name in columns), rows


def _directory(name: str, value: Any, where: str) -> str:
    if value is None:
        text = NULL
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif value in ("", NULL):
        raise DataflowError(
            f"{where}: partition_by: {name!r} is {value!r}, which readers of such directories take for null: give it another value first"
        )
    else:
        text = in_name(str(value))
    return f"{in_name(name)}={text}"


def in_name(text: str) -> str:
    """A text as part of a directory's name. Letters beyond ASCII stay: Spark takes each ``%C3`` for a letter of its own.

    >>> in_name("Köln/Süd 50%")
    'Köln%2FSüd%2050%25'
    """
    return "".join(letter if letter > "\x7f" else quote(letter, safe="") for letter in text)


def typed(schema: pa.Schema | None, names: Sequence[str]) -> pads.Partitioning | str:
    """How the directories in the names of files are read: columns of ``schema`` in its types, others as their text suggests."""
    found = dict.fromkeys(part.partition("=")[0] for name in names for part in name.split("/")[:-1] if "=" in part)
    fields_of = () if schema is None else (f.with_type(pa.string()) if pat.is_null(f.type) else f for f in schema)
    known = {in_name(field.name): field for field in fields_of}
    if not any(name in known for name in found):
        return "hive"
    fields = [known.get(name, pa.field(name, pa.int64())) for name in found]  # another one is the epoch
    return pads.partitioning(pa.schema(fields), flavor="hive")


class NamedColumns(NamedTuple):
    """Columns that are not in files but in the names of the directories above them."""

    schema: pa.Schema
    where: str

    def of_file(self, path: str) -> list[pa.Scalar]:
        """The value of each column for the records of a file, null where no directory says it. Raises DataflowError for a text that is
        none of its type."""
        told = _told(path, self.where)
        values = []
        for field in self.schema:
            text = told.get(field.name)
            try:
                values.append(pa.scalar(None, field.type) if text is None else pa.array([text]).cast(field.type)[0])
            except pa.ArrowException as error:
                raise DataflowError(
                    f"{self.where}: {path!r}: the directory says {field.name}={text!r}, which is no {field.type}: {error}; give another "
                    "type, or partitioning=None to leave such columns out"
                ) from error
        return values

    def added(self, batch: pa.RecordBatch, values: Sequence[pa.Scalar]) -> pa.RecordBatch:
        """A batch of a file with these columns behind its own."""
        columns = [pa.repeat(value, batch.num_rows) for value in values]
        return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema([*batch.schema, *self.schema]))


def names_in(paths: Sequence[str], where: str) -> dict[str, list[str | None]]:
    """The columns that directories above these files say, with all their texts."""
    found: dict[str, list[str | None]] = {}
    for path in paths:
        for name, text in _told(path, where).items():
            found.setdefault(name, []).append(text)
    return found


def named_columns(paths: Sequence[str], known: Mapping[str, pa.DataType], where: str, *, leave: Sequence[str] = ()) -> NamedColumns:
    """Those of these files, in the types that are ``known``, else whole numbers of 32 bits or text, as Arrow takes them; without those to
    ``leave``."""
    found = names_in(paths, where)
    return NamedColumns(
        pa.schema([(name, known.get(name) or _suggested(texts)) for name, texts in found.items() if name not in leave]), where
    )


def _suggested(texts: Sequence[str | None]) -> pa.DataType:
    said = [text for text in texts if text is not None]
    try:
        return pa.array(said, pa.string()).cast(pa.int32()).type if said else pa.string()
    except pa.ArrowException:
        return pa.string()


def _told(path: str, where: str) -> dict[str, str | None]:
    told = {}
    for part in path.split("/")[:-1]:
        name, is_one, text = part.partition("=")
        if is_one and name:
            try:
                told[unquote(name, errors="strict")] = None if text == NULL else unquote(text, errors="strict")
            except UnicodeDecodeError as error:
                raise DataflowError(f"{where}: the name of the directory {part!r} is no text in UTF-8: {error}; rename it") from error
    return told


__all__ = ["NULL", "NamedColumns", "check_partition_by", "check_types", "cut", "named_columns", "names_in", "split", "typed"]
