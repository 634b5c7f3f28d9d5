"""The formats of the files that sinks write: Parquet, CSV, lines of JSON. What differs between them is here and nowhere else.

Everything else of such an output is the same: how files are staged, committed and read (:mod:`rayad.integrations.file_output.writer`,
``sink`` and ``committed``). A format is a value: it goes to the replicas with its sink, and what a reader has to know of it is in the
manifest (:meth:`FileFormat.as_json`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.json as pajson
import pyarrow.parquet as pq
from pyarrow import fs

from rayad.dataflow.records.exact import cast_batch
from rayad.integrations.file_output.text_types import as_json_values, check_columns, check_values, in_utc, is_in_csv, json_form, json_schema
from rayad.progress import ConfigError, DataflowError, show

BLOCK_BYTES = 16 << 20
"""How much of a text file is parsed at once by :func:`FileFormat.dataset`: no record may be longer."""
SUFFIXES = {"gzip": ".gz", "bz2": ".bz2"}
"""Compressions of text files, with the ends of their names by which readers know them; Arrow's datasets know no others."""


class TableWriter(Protocol):
    """What writes one file."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class FileFormat(ABC):
    """How the tables of one output become files, and files a dataset."""

    kind: ClassVar[str]
    chunk_rows: int
    """Records that wait in memory before they are written."""

    @property
    @abstractmethod
    def suffix(self) -> str:
        """The end of the names of files."""

    @abstractmethod
    def writer(self, stream: Any, schema: pa.Schema) -> TableWriter:
        """Begin a file; the stream is the caller's."""

    @abstractmethod
    def count_rows(self, filesystem: fs.FileSystem, path: str) -> int:
        """The records of a file that was there before. Raises ArrowException where it is not of this format."""

    @abstractmethod
    def dataset(
        self, names: Sequence[str], filesystem: fs.FileSystem, schema: pa.Schema | None, partitioning: Any, base: str
    ) -> pads.Dataset:
        """Files as a dataset; ``schema`` is that of the manifest, with the columns of directories."""

    def check_schema(self, schema: pa.Schema, where: str) -> None:
        """Raise DataflowError where a file cannot hold columns of these types."""

    def prepared(self, table: pa.Table, where: str) -> pa.Table:
        """A table as it is written. Raises DataflowError where a file cannot hold its values."""
        return table

    def as_json(self) -> dict[str, Any] | None:
        """What the manifest says of it; None of Parquet, which needs nothing."""
        return None


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """Parquet; ``chunk_rows`` are a row group."""

    kind: ClassVar[str] = "parquet"
    chunk_rows: int = 131_072
    compression: str | None = "zstd"

    @property
    def suffix(self) -> str:
        """.parquet"""
        return ".parquet"

    def writer(self, stream: Any, schema: pa.Schema) -> TableWriter:
        """Rows are cut into groups of ``chunk_rows``."""
        return _RowGroups(pq.ParquetWriter(stream, schema, compression=self.compression), self.chunk_rows)

    def count_rows(self, filesystem: fs.FileSystem, path: str) -> int:
        """By the footer."""
        return int(pq.read_metadata(path, filesystem=filesystem).num_rows)

    def dataset(
        self, names: Sequence[str], filesystem: fs.FileSystem, schema: pa.Schema | None, partitioning: Any, base: str
    ) -> pads.Dataset:
        """The files say their own columns."""
        return pads.dataset(list(names), filesystem=filesystem, format="parquet", partitioning=partitioning, partition_base_dir=base)


class _RowGroups:
    def __init__(self, writer: pq.ParquetWriter, rows: int) -> None:
        self._writer, self._rows = writer, rows

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=self._rows)

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True, slots=True)
class TextFormat(FileFormat):
    """What CSV and JSON lines have in common."""

    compression: str | None = None
    chunk_rows: int = 65_536

    def as_json(self) -> dict[str, Any]:
        """Its kind."""
        return {"kind": self.kind}

    def prepared(self, table: pa.Table, where: str) -> pa.Table:
        """Moments within the years 1 to 9999, in UTC."""
        check_values(table, where)
        return table.cast(pa.schema([field.with_type(in_utc(field.type)) for field in table.schema]))

    @property
    def suffix(self) -> str:
        """.csv, .jsonl.gz and so on."""
        return _ENDS[self.kind] + (SUFFIXES[self.compression] if self.compression is not None else "")

    def packed(self, stream: Any) -> Any:
        """The stream that a writer writes to: the file's own, or one that compresses into it."""
        return stream if self.compression is None else pa.CompressedOutputStream(stream, self.compression)

    def arrow_format(self, schema: pa.Schema) -> pads.FileFormat:
        """How Arrow reads the files."""
        raise NotImplementedError

    def read_schema(self, schema: pa.Schema) -> pa.Schema:
        """The types in which Arrow reads the files; they are then cast to those of ``schema``."""
        return schema

    def count_rows(self, filesystem: fs.FileSystem, path: str) -> int:
        """By reading it."""
        return int(pads.dataset([path], filesystem=filesystem, format=self.kind).count_rows())

    def dataset(
        self, names: Sequence[str], filesystem: fs.FileSystem, schema: pa.Schema | None, partitioning: Any, base: str
    ) -> pads.Dataset:
        """Files in the types of ``schema``: read as they are asked for, or at once where Arrow reads a type of it in another form."""
        if schema is None:  # what another program wrote, and a job has added nothing yet
            return pads.dataset(list(names), filesystem=filesystem, format=self.kind, partitioning=partitioning, partition_base_dir=base)
        of_names = list(partitioning.schema) if isinstance(partitioning, pads.Partitioning) else []
        names_of = {field.name for field in of_names}
        in_files = pa.schema([field for field in schema if field.name not in names_of])
        form, wanted = (pa.schema([*fields, *of_names]) for fields in (self.read_schema(in_files), in_files))
        kind = self.arrow_format(self.read_schema(in_files))
        found = pads.dataset(
            list(names), schema=form, filesystem=filesystem, format=kind, partitioning=partitioning, partition_base_dir=base
        )  # fmt: skip
        if form == wanted:
            return found
        return pads.dataset(pa.Table.from_batches([cast_batch(batch, wanted) for batch in found.to_batches()], wanted))


@dataclass(frozen=True, slots=True)
class CsvFormat(TextFormat):
    """CSV with a header; text is always in quotes, and null is an empty field without them."""

    kind: ClassVar[str] = "csv"
    delimiter: str = ","

    def as_json(self) -> dict[str, Any]:
        """Its kind, and what separates fields."""
        return {"kind": self.kind, "delimiter": self.delimiter}

    def check_schema(self, schema: pa.Schema, where: str) -> None:
        """Columns of one value each."""
        check_columns(schema, is_in_csv, where, "CSV")

    def prepared(self, table: pa.Table, where: str) -> pa.Table:
        """A table of one column has no null: its line would be empty, and readers pass over such lines."""
        if table.num_columns == 1 and table.column(0).null_count:
            raise DataflowError(
                f"{where}: column {table.column_names[0]!r}, the only one of the files, has a null: its line would be empty, and readers "
                "of CSV pass over empty lines; add a column, or fill the null"
            )
        return TextFormat.prepared(self, table, where)

    def writer(self, stream: Any, schema: pa.Schema) -> TableWriter:
        """By Arrow's CSVWriter."""
        packed = self.packed(stream)
        options = pacsv.WriteOptions(delimiter=self.delimiter, quoting_style="needed")
        return _CsvWriter(pacsv.CSVWriter(packed, schema, write_options=options), packed if packed is not stream else None)

    def arrow_format(self, schema: pa.Schema) -> pads.FileFormat:
        """As ``read_csv`` does for what ``write_csv`` wrote."""
        return pads.CsvFileFormat(
            parse_options=pacsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            read_options=pacsv.ReadOptions(block_size=BLOCK_BYTES),
            convert_options=exact_csv(schema),
        )


class _CsvWriter:
    def __init__(self, writer: pacsv.CSVWriter, packed: Any) -> None:
        self._writer, self._packed = writer, packed

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
        if self._packed is not None:
            self._packed.close()


def exact_csv(schema: pa.Schema | dict[str, pa.DataType], null: str = "") -> pacsv.ConvertOptions:
    """How fields become values where ``null`` without quotes is null in each column, and nothing else is."""
    return pacsv.ConvertOptions(column_types=schema, null_values=[null], strings_can_be_null=True, quoted_strings_can_be_null=False)


@dataclass(frozen=True, slots=True)
class JsonFormat(TextFormat):
    """An object of JSON a line, with all columns; in the encoder of Python, of which floats and long integers come back exact."""

    kind: ClassVar[str] = "json"

    def check_schema(self, schema: pa.Schema, where: str) -> None:
        """Columns, also nested ones, of types that JSON has a text for."""
        check_columns(schema, json_form, where, "JSON")

    def writer(self, stream: Any, schema: pa.Schema) -> TableWriter:
        """A line for each record."""
        packed = self.packed(stream)
        return _JsonWriter(packed, packed if packed is not stream else None, schema)

    def read_schema(self, schema: pa.Schema) -> pa.Schema:
        """Dates are read as timestamps, durations as numbers."""
        return json_schema(schema)

    def arrow_format(self, schema: pa.Schema) -> pads.FileFormat:
        """As ``read_json`` does."""
        return pads.JsonFileFormat(read_options=pajson.ReadOptions(block_size=BLOCK_BYTES))


class _JsonWriter:
    def __init__(self, stream: Any, packed: Any, schema: pa.Schema) -> None:
        self._stream, self._packed = stream, packed
        self._values = pa.schema([field.with_type(as_json_values(field.type)) for field in schema])
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    def write_table(self, table: pa.Table) -> None:
        for batch in table.cast(self._values).to_batches(max_chunksize=8_192):
            rows = batch.to_pylist()
            try:
                lines = "\n".join(map(self._encode, rows))
            except ValueError as error:
                row = next(row for row in rows if not _is_json(self._encode, row))
                raise DataflowError(
                    f"write_json: JSON has no NaN and no infinity, record {show(row)} has one: {error}; make null of it, or use "
                    "write_csv or write_parquet"
                ) from error
            if lines:
                self._stream.write(lines.encode() + b"\n")

    def close(self) -> None:
        if self._packed is not None:
            self._packed.close()


def _is_json(encode: Any, row: Any) -> bool:
    try:
        encode(row)
    except ValueError:
        return False
    return True


_ENDS = {"csv": ".csv", "json": ".jsonl"}


def format_of(told: dict[str, Any] | None) -> FileFormat:
    """The format that :meth:`FileFormat.as_json` told. Raises ValueError for one that this version does not know."""
    if told is None:
        return ParquetFormat()
    if told.get("kind") == "csv":
        return CsvFormat(delimiter=told["delimiter"])
    if told.get("kind") == "json":
        return JsonFormat()
    raise ValueError(f"its files are {told.get('kind')!r}, this version of Rayad knows parquet, csv and json")


def is_data(kind: str, name: str) -> bool:
    """Whether a file's name is that of a file of a format, compressed or not.

    >>> is_data("csv", "a.csv.gz"), is_data("csv", "a.txt"), is_data("parquet", "a.parquet")
    (True, False, True)
    """
    if kind == "parquet":
        return name.endswith(".parquet")
    return any(name.endswith(_ENDS[kind] + packed) for packed in ("", *SUFFIXES.values()))


def check_compression(compression: Any, where: str) -> str | None:
    """One of those of text files. Raises ConfigError for anything else."""
    if compression is None or (isinstance(compression, str) and compression in SUFFIXES):
        return compression
    raise ConfigError(f"{where}: compression is {show(compression)}: it must be {', '.join(map(repr, SUFFIXES))} or None")


def check_codec(compression: Any, where: str) -> None:
    """One of those of Parquet files. Raises ConfigError for anything else."""
    if compression is not None and not (isinstance(compression, str) and _is_codec(compression)):
        raise ConfigError(f"{where}: compression is {show(compression)}: it must be one that Arrow has here, as 'zstd', or None")


def _is_codec(compression: str) -> bool:
    try:
        return compression.lower() == "none" or bool(pa.Codec.is_available(compression.lower()))
    except ValueError:
        return False


__all__ = [
    "CsvFormat",
    "FileFormat",
    "JsonFormat",
    "ParquetFormat",
    "TableWriter",
    "check_codec",
    "check_compression",
    "exact_csv",
    "format_of",
    "is_data",
]
