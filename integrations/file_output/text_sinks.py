"""CSV and lines of JSON as sinks that are written exactly once: :class:`rayad.integrations.file_output.sink.FileSink` of these formats."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar, Literal

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.file_output.formats import CsvFormat, JsonFormat, check_compression
from rayad.integrations.file_output.sink import FileSink
from rayad.progress import ConfigError, show

DELIMITERS = ",;|\t!#$%&*/<=>?@^_~"


class CsvSink(FileSink):
    """Writes records to CSV files below ``path``, each with a header; ``result`` gives :class:`PublishedFiles`.

    Files are committed as by :class:`ParquetSink`, which also explains ``partition_by_epoch``, ``partition_by``, ``epoch_column``, ``mode``
    and ``schema``. ``delimiter`` separates fields; ``compression`` is ``"gzip"``, ``"bz2"`` or None.

    Text is quoted, and a quote in it is doubled; null is an empty field without quotes. ``rd.read_committed(path)`` and
    ``flow.read_csv(path)`` restore values and types; ``read_csv(schema=, null="")`` does so if the files have been moved. Values that CSV
    cannot hold exactly are refused: :mod:`rayad.integrations.file_output.text_types`. Spark needs ``.option("header",
    True).option("escape", '"')``, and ``.option("multiLine", True)`` if text has line ends; pandas reads an empty text as null unless
    ``keep_default_na=False``.
    """

    where: ClassVar[str] = "write_csv"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        delimiter: str = ",",
        partition_by_epoch: bool = False,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        mode: Literal["error", "append", "overwrite"] = "error",
        schema: pa.Schema | None = None,
        compression: Literal["gzip", "bz2"] | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter not in DELIMITERS:
            raise ConfigError(
                f"write_csv: delimiter={show(delimiter)}: give one character that is in no number and no date: one of {list(DELIMITERS)}"
            )
        super().__init__(
            path,
            CsvFormat(check_compression(compression, self.where), delimiter=delimiter),
            partition_by_epoch=partition_by_epoch,
            partition_by=partition_by,
            epoch_column=epoch_column,
            mode=mode,
            schema=schema,
            filesystem=filesystem,
        )


class JsonSink(FileSink):
    """Writes records to JSON-lines files below ``path``; ``result`` gives :class:`PublishedFiles`.

    Files are committed as by :class:`ParquetSink`, which also explains ``partition_by_epoch``, ``partition_by``, ``epoch_column``, ``mode``
    and ``schema``. ``compression`` is ``"gzip"``, ``"bz2"`` or None.

    Every line has all columns, in order; dates, timestamps and decimals are texts (ISO for the first two), durations are numbers of their
    unit. ``rd.read_committed(path)`` and ``flow.read_json(path)`` restore values and types; ``read_json(schema=)`` does so if the files
    have been moved. Values that JSON cannot hold exactly, such as NaN, are refused: :mod:`rayad.integrations.file_output.text_types`.
    """

    where: ClassVar[str] = "write_json"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        partition_by_epoch: bool = False,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        mode: Literal["error", "append", "overwrite"] = "error",
        schema: pa.Schema | None = None,
        compression: Literal["gzip", "bz2"] | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        super().__init__(
            path,
            JsonFormat(check_compression(compression, self.where)),
            partition_by_epoch=partition_by_epoch,
            partition_by=partition_by,
            epoch_column=epoch_column,
            mode=mode,
            schema=schema,
            filesystem=filesystem,
        )


__all__ = ["CsvSink", "JsonSink"]
