"""A directory of Parquet files as a sink that is written exactly once: a :class:`rayad.integrations.file_output.sink.FileSink`, and the
log by which Spark reads it as a stream."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar, Literal

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.file_output.committed import PublishedFiles
from rayad.integrations.file_output.formats import ParquetFormat, check_codec
from rayad.integrations.file_output.sink import FileSink
from rayad.integrations.file_output.spark_log import base_uri, encoded
from rayad.integrations.spark.types import for_sparks_files
from rayad.progress import ConfigError, arguments, show


class ParquetSink(FileSink):
    """Writes records to Parquet files below ``path``; ``result`` gives :class:`PublishedFiles`.

    ``partition_by_epoch``: a directory ``epoch=<n>`` for each epoch. ``partition_by``: columns whose values are in the names of
    directories, ``town=Ulm/``, instead of in the files (:mod:`rayad.integrations.file_output.partitions`); ``rd.read_committed`` and
    ``read_parquet`` restore their types, other readers guess them from the text. ``epoch_column``: name of an added column with each row's
    epoch. ``mode``: what to do if the directory is not empty: ``"error"``, ``"append"`` or ``"overwrite"``. ``schema``: columns and types;
    without it a replica's types follow its records (int, then 1.5: double) until it has written a row group or taken a snapshot with them,
    and all replicas must agree. ``row_group_rows`` are collected in memory before they are written. A job that takes snapshots writes at
    least one file for each writer and snapshot with records.

    ``compact``: each commit also merges small files of earlier snapshots within their directories
    (:mod:`rayad.integrations.file_output.compacting`); the job can still resume from any snapshot. Merged files are deleted at once: a
    reader with an older list of files gets ``FileNotFoundError`` and should call ``rd.read_committed`` again.

    ``spark_log``: also write ``_spark_metadata/``, so that ``spark.readStream.schema(..).parquet(path)`` and ``spark.read.parquet(path)``
    see each committed file once, and nothing else; columns are written in types that Spark has. Spark then ignores files that other
    programs put into the directory. Entries of the log hold whole URIs; if the URI does not follow from the file system, give it as text,
    such as ``"abfss://files@account.dfs.core.windows.net/out"``. A directory that has such a log keeps it, even if its next writer does not
    ask for one.
    """

    where: ClassVar[str] = "write_parquet"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        partition_by_epoch: bool = False,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        mode: Literal["error", "append", "overwrite"] = "error",
        schema: pa.Schema | None = None,
        compression: str | None = "zstd",
        row_group_rows: int = 131_072,
        filesystem: fs.FileSystem | None = None,
        spark_log: bool | str = False,
        compact: bool = False,
    ) -> None:
        row_group_rows = arguments.whole(row_group_rows, "write_parquet: row_group_rows", least=1, error=ConfigError)
        check_codec(compression, "write_parquet")
        super().__init__(
            path,
            ParquetFormat(row_group_rows, compression),
            partition_by_epoch=partition_by_epoch,
            partition_by=partition_by,
            epoch_column=epoch_column,
            mode=mode,
            schema=schema,
            filesystem=filesystem,
        )
        if self.partition_by and spark_log is not False:
            raise ConfigError("write_parquet: partition_by and spark_log do not go together: Spark's log has no types for directories")
        self.spark_base = self._uri_for_spark(spark_log)
        self.compact = arguments.flag(compact, "write_parquet: compact", error=ConfigError)
        if compact and spark_log is not False:
            raise ConfigError("write_parquet: compact and spark_log do not go together: a Spark stream would read joined files as new ones")

    def _uri_for_spark(self, spark_log: bool | str) -> str | None:
        """The directory's URI for Spark; None: no log is wanted."""
        if isinstance(spark_log, str) and "://" in spark_log:
            return encoded(spark_log)
        if not isinstance(spark_log, bool):
            raise ConfigError(
                f"write_parquet: spark_log is {show(spark_log)}: it must be True, False, or the URI under which Spark knows the directory, "
                "such as 's3a://bucket/folder'"
            )
        uri = base_uri(self.filesystem, self.path) if spark_log else None
        if spark_log and uri is None:
            raise ConfigError(
                f"write_parquet: spark_log=True, but Spark's URI of {self.path!r} on the {self.filesystem.type_name!r} file system is not "
                "known; give it, as spark_log='s3a://bucket/folder'"
            )
        return uri

    def stored(self, table: pa.Table) -> pa.Table:
        """``table`` in types that Spark has, where it reads the files."""
        return table if self.spark_base is None else for_sparks_files(table, "write_parquet", "leave spark_log out")


__all__ = ["ParquetSink", "PublishedFiles"]
