"""Lines of CSV or JSON into columns of known types, where lines that do not fit are set aside: ``read_csv(..., on_error="skip")``.

A file is cut into lines first (:mod:`rayad.integrations.text`), so one that is broken ends with its line: a value in quotes cannot contain
a line break, which the strict readers allow. A batch of lines is parsed at once. Where that fails its halves are tried, down to the lines
that do not fit. Which lines these are depends on the types, so the types have to be given.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from pyarrow import fs

from rayad.dataflow.operators.map_batches import as_batch
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.exact import Inexact, cast_batch
from rayad.integrations.file_output.partitions import names_in
from rayad.integrations.json_column import objects_of, one_text
from rayad.integrations.paths import Paths, check_schema, find_files
from rayad.integrations.text import DEFAULT_SPLIT_BYTES, READ_BYTES, TextRange, TextSource
from rayad.progress import ConfigError, DataflowError, show


class CsvLines(TextSource):
    """The lines of CSV files behind their header, which has to be the same in all of them."""

    where = "read_csv"

    def __init__(self, paths: Paths, columns: list[str], delimiter: str, **options: Any) -> None:
        super().__init__(paths, columnar=True, **options)
        self._columns, self._delimiter = columns, delimiter

    def list_parts(self) -> list[TextRange]:
        """Ranges of the files. Raises DataflowError where a header is not that of the columns."""
        for path, size, _ in self.files:
            if size:
                self._check_header(path)
        return list(super().list_parts())

    def _check_header(self, path: str) -> None:
        with self.filesystem.open_input_stream(path, compression="detect") as file:
            line = file.read(READ_BYTES).partition(b"\n")[0].removesuffix(b"\r")
        try:
            found = pacsv.read_csv(
                pa.BufferReader(line + b"\n"),
                parse_options=pacsv.ParseOptions(delimiter=self._delimiter),
                read_options=pacsv.ReadOptions(use_threads=False),
            ).column_names
        except pa.ArrowException as error:
            raise DataflowError(f"{self.where}: the header of {path!r}, {show(line, 80)}, cannot be read: {error}") from error
        if found != self._columns:
            raise DataflowError(f"{self.where}: the header of {path!r} is {found}, schema has {self._columns}: they have to be the same")

    def of_column(self, lines: pa.Array, position: int) -> pa.RecordBatch:
        """Without the header, which is the line at byte 0."""
        return super().of_column(lines.slice(1) if position == 0 else lines, position)


@dataclass(slots=True)
class ParseLines(Element):
    """Lines as a table of known columns. It has no side effects, so a batch that fails is tried in halves."""

    schema: pa.Schema
    can_repeat = True

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return self.schema

    def apply(self, batch: Any) -> Any:
        lines = batch.column("text") if isinstance(batch, pa.RecordBatch) else pa.array(batch, pa.string())
        lines = lines.filter(pc.not_equal(pc.utf8_trim_whitespace(lines), ""))
        if not len(lines):
            return self.schema.empty_table()
        table = self.parse(lines, one_text(lines)).select(self.schema.names)
        if table.num_rows != len(lines):
            raise ValueError(f"{len(lines)} lines are {table.num_rows} records: each line has to be one")
        try:
            return as_batch(pa.Table.from_batches([cast_batch(batch, self.schema) for batch in table.to_batches()], self.schema))
        except Inexact as error:  # of the line, and not of the program
            raise ValueError(str(error)) from error

    @abstractmethod
    def parse(self, lines: pa.Array, text: pa.Buffer) -> pa.Table:
        """The lines, which are one text, too, as a table. Raises ArrowInvalid or ValueError where they do not fit."""


@dataclass(slots=True)
class ParseCsv(ParseLines):
    """Lines of CSV."""

    base = "read_csv"

    delimiter: str = ","

    def parse(self, lines: pa.Array, text: pa.Buffer) -> pa.Table:
        """A quote that is not closed within its line is an error."""
        if pc.any(pc.equal(pc.bit_wise_and(pc.count_substring(lines, '"'), 1), 1)).as_py():
            raise ValueError("a quote is not closed within its line")
        return pacsv.read_csv(
            pa.BufferReader(text),
            read_options=pacsv.ReadOptions(column_names=self.schema.names, use_threads=False, block_size=text.size + 1),
            parse_options=pacsv.ParseOptions(delimiter=self.delimiter),
            convert_options=pacsv.ConvertOptions(column_types=self.schema, strings_can_be_null=False),
        )


@dataclass(slots=True)
class ParseJson(ParseLines):
    """Lines with a JSON object each; a field that is missing is null, one that the schema does not have is an error."""

    base = "read_json"

    def parse(self, lines: pa.Array, text: pa.Buffer) -> pa.Table:
        """The lines as a table."""
        return objects_of(lines, text, self.schema, "error")


def csv_lines(
    paths: Paths,
    *,
    schema: pa.Schema | None = None,
    delimiter: str = ",",
    batch_rows: int = 8_192,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    filesystem: fs.FileSystem | None = None,
) -> tuple[TextSource, ParseLines]:
    """What reads the lines of CSV files, and what parses them."""
    known = _known(schema, paths, filesystem, "read_csv")
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise ConfigError(f"read_csv: delimiter={show(delimiter)}; give one character")
    source = CsvLines(paths, known.names, delimiter, batch_rows=batch_rows, split_bytes=split_bytes, filesystem=filesystem)
    return source, ParseCsv(known, delimiter)


def json_lines(
    paths: Paths,
    *,
    schema: pa.Schema | None = None,
    batch_rows: int = 8_192,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    filesystem: fs.FileSystem | None = None,
) -> tuple[TextSource, ParseLines]:
    """What reads the lines of JSON-lines files, and what parses them."""
    known = _known(schema, paths, filesystem, "read_json")
    source = TextSource(paths, columnar=True, batch_rows=batch_rows, split_bytes=split_bytes, filesystem=filesystem)
    return source, ParseJson(known)


def _known(schema: pa.Schema | None, paths: Paths, filesystem: fs.FileSystem | None, where: str) -> pa.Schema:
    if schema is None:
        raise ConfigError(f"{where}(on_error='skip'): which lines are bad depends on the types of the columns; give schema=pa.schema(...)")
    check_schema(schema, where)
    said = names_in([file.path for file in find_files(paths, filesystem, where)[1]], where)
    in_names = [name for name in schema.names if name in said]
    if in_names:
        raise ConfigError(
            f"{where}(on_error='skip'): {in_names} of the schema stand in the names of directories, which lines do not have: leave them "
            "out of schema=, or read without on_error"
        )
    return schema


__all__ = ["CsvLines", "ParseCsv", "ParseJson", "csv_lines", "json_lines"]
