"""CSV and JSON-lines files as columnar sources. (Lines of text:
:mod:`rayad.integrations.text`; Parquet: :mod:`rayad.integrations.parquet`.)

The columns and types are fixed when the source is made, from the first file or from what is given; a file that differs fails with its
name, what was expected and what it has. A part is a file, which is read as a stream. With ``epoch=`` a part is loaded whole, because it
has to be sorted by epoch; parts are then read side by side, lowest epoch first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
from pyarrow import fs

from rayad.dataflow.records.exact import Inexact, cast_batch
from rayad.dataflow.source import Source, SourcePart
from rayad.integrations.blocks import (
    DEFAULT_BATCH_ROWS,
    Opened,
    StreamPart,
    TablePart,
    check_batch_rows,
    check_epoch_column,
    describe,
    schema_drift,
    share_of,
)
from rayad.integrations.file_output.committed import written_output
from rayad.integrations.file_output.formats import CsvFormat, JsonFormat, exact_csv
from rayad.integrations.file_output.partitions import NamedColumns, named_columns, names_in
from rayad.integrations.file_output.text_types import json_schema
from rayad.integrations.json_text import first_lines, wrong_bytes
from rayad.integrations.paths import Paths, check_arrow, check_schema, files_fingerprint, find_files
from rayad.integrations.text import COMPRESSED
from rayad.progress import ConfigError, DataflowError, arguments, show


class FilePart(NamedTuple):
    """A part: a whole file."""

    path: str
    size_bytes: int


class _StreamedFiles(Source):
    """CSV and JSON sources: a file is a part, read as a stream of batches."""

    where, blocks = "", False

    def __init__(
        self,
        paths: Paths,
        *,
        schema: pa.Schema | None,
        types: Mapping[str, pa.DataType],
        epoch: str | None,
        batch_rows: int,
        block_bytes: int,
        partitioning: str | None,
        filesystem: fs.FileSystem | None,
    ) -> None:
        if partitioning not in ("hive", None):
            raise ConfigError(f"{self.where}: partitioning={show(partitioning)}: give 'hive', or None for the columns of the files alone")
        self._batch_rows = check_batch_rows(batch_rows, self.where)
        self._block_bytes = arguments.whole(block_bytes, f"{self.where}: block_bytes", least=1, most=(1 << 31) - 1, error=ConfigError)
        check_schema(schema, self.where)
        self._filesystem, files = find_files(paths, filesystem, self.where)
        output = written_output(self._filesystem, files[0].path)
        self._written = output[1] if output is not None and output[1].content == self._content() else None
        """The manifest, where the files are what our own sink wrote."""
        self._found = files
        self._files = tuple(FilePart(file.path, file.size_bytes) for file in files if file.size_bytes)
        self._inside, self._named = self._split_columns(schema, types, is_hive=partitioning is not None)
        """The columns that are in the files, and those that the names of directories say."""
        if schema is None:
            schema = pa.schema([*self._inside, *self._named.schema])
        self.schema: pa.Schema = schema
        self._epoch = epoch
        self.one_epoch = epoch is None
        check_epoch_column(schema, epoch, self.where)
        self.interleave = epoch is not None

    def _split_columns(
        self, schema: pa.Schema | None, types: Mapping[str, pa.DataType], *, is_hive: bool
    ) -> tuple[pa.Schema, NamedColumns]:
        paths = [file.path for file in self._found]
        said = names_in(paths, self.where)
        written = None if self._written is None else self._written.schema
        if written is not None:
            inside = [field.name for field in written if field.name not in said]
        elif schema is None or (is_hive and any(name in said for name in schema.names)):
            inside = self._read_first(schema).names  # a column that a directory and the files have is that of the files
        else:
            inside = schema.names
        known = {**_partition_types(written), **types, **({} if schema is None else {field.name: field.type for field in schema})}
        leave = [name for name in said if name in inside or not is_hive or (schema is not None and name not in schema.names)]
        named = named_columns(paths, known, self.where, leave=leave)
        if schema is None:
            schema = self._read_first(None) if written is None else written
            return pa.schema([field for field in schema if field.name in inside]), named
        return pa.schema([field for field in schema if field.name not in named.schema.names]), named

    def _read_first(self, schema: pa.Schema | None) -> pa.Schema:
        if self._files:
            return self._read_schema(self._files[0].path)
        if schema is not None:
            return schema
        raise ConfigError(
            f"{self.where}: all {len(self._found)} files are empty ({self._found[0].path!r} ..), so the columns are not known; give schema="
        )

    def _text_of(self, path: str) -> Any:
        return self._filesystem.open_input_stream(path, compression="detect")

    def _open(self, path: str, text: Any, schema: pa.Schema | None) -> Any:
        """Arrow's reader of an open file."""
        raise NotImplementedError

    def _content(self) -> dict[str, Any]:
        """What the manifest of a sink says that wrote files as they are read here."""
        raise NotImplementedError

    def _form(self) -> pa.Schema:
        """The types in which Arrow reads the columns of the files."""
        return self._inside

    def _read_schema(self, path: str) -> pa.Schema:
        try:
            with self._open(path, self._text_of(path), None) as reader:
                schema: pa.Schema = reader.schema
            _ = schema.names  # decodes them
            return schema
        except UnicodeDecodeError as error:  # of a name of JSON, which Arrow takes as it is
            raise self._not_text(path, error) from error
        except (pa.ArrowException, OSError) as error:
            raise DataflowError(
                f"{self.where}: cannot find out the columns of {path!r}: {error}; check the file, or give schema="
            ) from error

    def _stream(self, part: FilePart) -> Opened:
        expected, named = self._inside, self._named
        path, values = part.path, named.of_file(part.path)
        try:
            text = self._text_of(path)
            reader = self._open(path, text, expected)
        except (pa.ArrowException, OSError) as error:
            raise self._failure(path, error) from error

        form = self._form()

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                drift = schema_drift(repr(path), form, reader.schema)
                if drift is not None:
                    raise drift
                for batch in reader:
                    self._check_text(path, batch)
                    found = batch.select(expected.names) if form is expected else cast_batch(batch, expected)
                    yield named.added(found, values).select(self.schema.names) if values else found
            except Inexact as error:
                raise self._failure(path, error) from error
            except (pa.ArrowException, OSError) as error:
                raise self._failure(path, error) from error

        return Opened(batches(), reader.close, lambda _: share_of(text, 0 if path.endswith(COMPRESSED) else part.size_bytes))

    def _check_text(self, path: str, batch: pa.RecordBatch) -> None:
        """Raise DataflowError where the reader has let text through that is not UTF-8."""

    def _not_text(self, path: str, error: Exception) -> DataflowError:
        with self._filesystem.open_input_stream(path, compression="detect") as stream:
            place = wrong_bytes(stream) or error
        return DataflowError(f"{self.where}: {path!r} is not UTF-8: {place}; write it in UTF-8")

    def _failure(self, path: str, error: Exception) -> DataflowError:
        return DataflowError(
            f"{self.where}: {path!r} does not fit the expected columns {describe(self._inside)}: {error}; "
            "correct the file, or give schema= with wider types"
        )

    def _load(self, part: FilePart) -> pa.Table:
        with closing(self._stream(part)) as opened:
            return pa.Table.from_batches(opened.batches, schema=self.schema)

    def list_parts(self) -> Sequence[FilePart]:
        """The files that are not empty."""
        return self._files

    def part_sizes(self, parts: Sequence[FilePart]) -> Sequence[float]:
        """Bytes of the files, as they are stored."""
        return [float(part.size_bytes) for part in parts]

    def fingerprint(self, parts: Sequence[FilePart]) -> dict[str, Any]:
        """The files, and the settings that determine the order of their rows."""
        return {**files_fingerprint(self._found), "columns": describe(self.schema), "epoch": self._epoch}

    def build_part(self, part: FilePart, resume: int | None) -> SourcePart:
        """Open a file; ``resume`` is the number of its rows already given."""
        where = f"{self.where}: {part.path!r}"
        if self._epoch is None:
            return StreamPart(lambda: self._stream(part), batch_rows=self._batch_rows, resume=resume, where=where)
        return TablePart(lambda: self._load(part), batch_rows=self._batch_rows, epoch=self._epoch, resume=resume, where=where)


def _partition_types(written: pa.Schema | None) -> dict[str, pa.DataType]:
    """Of columns in the names of directories that our own sink wrote; the epoch is in no schema."""
    if written is None:
        return {}
    return {"epoch": pa.int64(), **{field.name: pa.string() if pa.types.is_null(field.type) else field.type for field in written}}


class CsvSource(_StreamedFiles):
    """Reads CSV files with a header line, as RecordBatches.

    Types are inferred from the start of the first file, or given by ``schema`` (all columns) or ``column_types`` (some of them).
    ``delimiter`` separates the fields. Compressed files are recognised by their suffix.

    ``null``: the only text that is null, in every column, unless it is quoted. Without it, columns of text have no null, and others use
    Arrow's list of words (``""``, ``NA``, ``NaN``, ``null`` ..). What ``write_csv`` wrote is read with its own types and ``null=""``.

    Directories such as ``day=3/`` become columns, after those of the files (``partitioning="hive"``; None ignores them). Their types are
    those that ``write_csv(partition_by=)`` recorded, or those of ``schema`` or ``column_types``, or what their text suggests. ``schema``
    also selects which of them are read. A column that is also in the files is read from the files.
    """

    where = "read_csv"

    def __init__(
        self,
        paths: Paths,
        *,
        schema: pa.Schema | None = None,
        column_types: Mapping[str, pa.DataType] | None = None,
        delimiter: str = ",",
        null: str | None = None,
        epoch: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        block_bytes: int = 1 << 20,
        partitioning: str | None = "hive",
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        if null is not None and (not isinstance(null, str) or '"' in null):
            raise ConfigError(f"read_csv: null={show(null)}: give a text without quotes, as '' or 'NULL', or None")
        self._null = null
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise ConfigError(f"read_csv: delimiter={show(delimiter)}; give one character")
        check_arrow(column_types, Mapping, "read_csv: column_types", "a dict from a column's name to a type of pyarrow")
        self._delimiter = delimiter
        self._column_types = dict(column_types or {})
        for column, kind in self._column_types.items():
            arguments.text(column, "read_csv: a name in column_types", error=ConfigError)
            check_arrow(kind, pa.DataType, f"read_csv: column_types[{column!r}]", "a type of pyarrow, as pyarrow.int64()")
        super().__init__(
            paths,
            schema=schema,
            types=self._column_types,
            epoch=epoch,
            batch_rows=batch_rows,
            block_bytes=block_bytes,
            partitioning=partitioning,
            filesystem=filesystem,
        )
        unknown = sorted(set(self._column_types) - set(self.schema.names))
        if unknown:
            raise ConfigError(f"read_csv: column_types names {unknown}, the columns are {self.schema.names}")

    def fingerprint(self, parts: Sequence[FilePart]) -> dict[str, Any]:
        """That of all such sources, and the delimiter."""
        told = {**super().fingerprint(parts), "delimiter": self._delimiter}
        return told if self._null_text() is None else {**told, "null": self._null_text()}

    def _content(self) -> dict[str, Any]:
        """Of the delimiter that is asked for."""
        return CsvFormat(delimiter=self._delimiter).as_json()

    def _null_text(self) -> str | None:
        return "" if self._null is None and self._written is not None else self._null

    def _open(self, path: str, text: Any, schema: pa.Schema | None) -> Any:
        types = self._column_types if schema is None else {field.name: field.type for field in schema}
        null = self._null_text()
        as_arrow_does = pacsv.ConvertOptions(column_types=types, strings_can_be_null=False)
        return pacsv.open_csv(
            text,
            read_options=pacsv.ReadOptions(block_size=self._block_bytes, use_threads=False),
            parse_options=pacsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=as_arrow_does if null is None else exact_csv(types, null),
        )


class JsonLinesSource(_StreamedFiles):
    """Reads files of one JSON object a line, as RecordBatches.

    Columns and types are inferred from the first block of the first file, or given by ``schema``; a missing field is null, an unknown one
    is an error. In ``schema``, dates are ISO texts and durations numbers of their unit; what ``write_json`` wrote is read with its own
    types. Text that is not UTF-8 is an error; so are, without ``schema``, more than 64 levels of nesting. Directories such as ``day=3/``
    become columns, as in :class:`CsvSource`. For lines with varying fields use ``JsonRowsSource``.
    """

    where = "read_json"

    def __init__(
        self,
        paths: Paths,
        *,
        schema: pa.Schema | None = None,
        epoch: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        block_bytes: int = 1 << 20,
        partitioning: str | None = "hive",
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        super().__init__(
            paths,
            schema=schema,
            types={},
            epoch=epoch,
            batch_rows=batch_rows,
            block_bytes=block_bytes,
            partitioning=partitioning,
            filesystem=filesystem,
        )

    def _content(self) -> dict[str, Any]:
        return JsonFormat().as_json()

    def _form(self) -> pa.Schema:
        form = json_schema(self._inside)
        return self._inside if form == self._inside else form

    def _check_text(self, path: str, batch: pa.RecordBatch) -> None:
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise self._not_text(path, error) from error

    def _open(self, path: str, text: Any, schema: pa.Schema | None) -> Any:
        behaviour = "infer" if schema is None else "error"
        block_bytes = self._block_bytes
        if schema is None:
            with text:
                first = first_lines(text, block_bytes, f"{self.where}: {path!r}")
            text, block_bytes = pa.BufferReader(first), len(first) + 1
        schema = None if schema is None else json_schema(schema)
        return pajson.open_json(
            text,
            read_options=pajson.ReadOptions(block_size=block_bytes, use_threads=False),
            parse_options=pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behaviour),
        )


__all__ = ["CsvSource", "FilePart", "JsonLinesSource"]
