"""The keywords of what reads and writes, for editors and type checkers: what they mean is said by the class that takes them, which each
names. ``tests/integrations/test_options.py`` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs


class FromArrow(TypedDict, total=False):
    """Of :class:`rayad.integrations.ArrowSource`."""

    batch_rows: int
    parts: int | None


class FromPandas(FromArrow, total=False):
    """Of :class:`rayad.integrations.PandasSource`."""


class FromPolars(FromArrow, total=False):
    """Of :class:`rayad.integrations.PolarsSource`."""


class FromSpark(TypedDict, total=False):
    """Of :class:`rayad.integrations.SparkSource`, and of a streaming frame :class:`rayad.integrations.SparkStream`."""

    parts: int | None
    batch_rows: int
    replay: Literal["recompute", "stage"]
    staging_path: str | None
    checkpoint: str
    commit: Literal["snapshot", "stage"]
    max_lag: int
    trigger: Mapping[str, Any] | None
    output_mode: str


class FromRayDataset(TypedDict, total=False):
    """Of :class:`rayad.integrations.RayDatasetSource`."""

    batch_rows: int
    replay: Literal["recompute", "stage"]
    staging_path: str | None


class ReadText(TypedDict, total=False):
    """Of :class:`rayad.integrations.TextSource`."""

    columnar: bool
    encoding: str
    batch_rows: int
    split_bytes: int
    filesystem: fs.FileSystem | None


class ReadCsv(TypedDict, total=False):
    """Of :class:`rayad.integrations.CsvSource`; ``split_bytes`` is for ``on_error="skip"``, which takes none of ``column_types``,
    ``null``, ``epoch``, ``block_bytes`` and ``partitioning``."""

    schema: pa.Schema | None
    column_types: Mapping[str, pa.DataType] | None
    delimiter: str
    null: str | None
    epoch: str | None
    batch_rows: int
    block_bytes: int
    partitioning: str | None
    split_bytes: int
    filesystem: fs.FileSystem | None


class ReadJson(TypedDict, total=False):
    """Of :class:`rayad.integrations.JsonLinesSource`; ``split_bytes`` is for ``on_error="skip"``, which takes none of ``epoch``,
    ``block_bytes`` and ``partitioning``."""

    schema: pa.Schema | None
    epoch: str | None
    batch_rows: int
    block_bytes: int
    partitioning: str | None
    split_bytes: int
    filesystem: fs.FileSystem | None


class ReadParquet(TypedDict, total=False):
    """Of :class:`rayad.integrations.ParquetSource`."""

    columns: Sequence[str] | None
    filter: pc.Expression | None
    epoch: str | None
    batch_rows: int
    partitioning: str | None
    filesystem: fs.FileSystem | None


class ReadPostgres(TypedDict, total=False):
    """Of :class:`rayad.integrations.postgres.PostgresSource`."""

    columns: Sequence[str] | None
    epoch: str | None
    rows_per_part: int
    batch_rows: int


class FromKafka(TypedDict, total=False):
    """Of :class:`rayad.integrations.kafka.KafkaSource`."""

    start: Literal["earliest", "latest"]
    stop: Literal["latest"] | None
    epoch_s: float
    idle_s: float
    ahead_s: float
    parts: int
    batch_rows: int
    discover_s: float
    wait_s: float
    headers: bool
    options: Mapping[str, Any] | None


class WriteParquet(TypedDict, total=False):
    """Of :class:`rayad.integrations.ParquetSink`."""

    partition_by_epoch: bool
    partition_by: str | Sequence[str]
    epoch_column: str | None
    mode: Literal["error", "append", "overwrite"]
    schema: pa.Schema | None
    compression: str | None
    row_group_rows: int
    filesystem: fs.FileSystem | None
    spark_log: bool | str
    compact: bool


class WriteCsv(TypedDict, total=False):
    """Of :class:`rayad.integrations.CsvSink`."""

    delimiter: str
    partition_by_epoch: bool
    partition_by: str | Sequence[str]
    epoch_column: str | None
    mode: Literal["error", "append", "overwrite"]
    schema: pa.Schema | None
    compression: Literal["gzip", "bz2"] | None
    filesystem: fs.FileSystem | None


class WriteJson(TypedDict, total=False):
    """Of :class:`rayad.integrations.JsonSink`."""

    partition_by_epoch: bool
    partition_by: str | Sequence[str]
    epoch_column: str | None
    mode: Literal["error", "append", "overwrite"]
    schema: pa.Schema | None
    compression: Literal["gzip", "bz2"] | None
    filesystem: fs.FileSystem | None


class WriteDelta(TypedDict, total=False):
    """Of :class:`rayad.integrations.DeltaSink`."""

    mode: Literal["error", "append", "overwrite"]
    schema: pa.Schema | None
    partition_by: str | Sequence[str]
    epoch_column: str | None
    compression: str | None
    row_group_rows: int
    storage_options: Mapping[str, str] | None
    filesystem: fs.FileSystem | None


class WriteIceberg(TypedDict, total=False):
    """Of :class:`rayad.integrations.IcebergSink`."""

    catalog: str | Mapping[str, Any]
    mode: Literal["error", "append", "overwrite"]
    schema: pa.Schema | None
    epoch_column: str | None
    location: str | None
    properties: Mapping[str, str] | None
    compression: str | None
    row_group_rows: int
    filesystem: fs.FileSystem | None


class WriteKafka(TypedDict, total=False):
    """Of :class:`rayad.integrations.kafka.KafkaSink`."""

    value: Callable[[Any], Any] | str | None
    key: Callable[[Any], Any] | str | None
    transaction_s: float
    wait_s: float
    on_roll_back: Literal["refuse", "repeat"]
    options: Mapping[str, Any] | None


class WritePostgres(TypedDict, total=False):
    """Of :class:`rayad.integrations.postgres.PostgresSink`; ``schema`` is required."""

    schema: pa.Schema
    snapshot_column: str | None
    wait_s: float


class ToRayDataset(TypedDict, total=False):
    """Of :class:`rayad.integrations.RayDatasetSink`."""

    schema: pa.Schema | None
    epoch_column: str | None


class ToSpark(TypedDict, total=False):
    """Of :class:`rayad.integrations.SparkSink`."""

    schema: pa.Schema | None
    epoch_column: str | None
    staging_path: str | None


__all__ = [
    "FromArrow",
    "FromKafka",
    "FromPandas",
    "FromPolars",
    "FromRayDataset",
    "FromSpark",
    "ReadCsv",
    "ReadJson",
    "ReadParquet",
    "ReadPostgres",
    "ReadText",
    "ToRayDataset",
    "ToSpark",
    "WriteCsv",
    "WriteDelta",
    "WriteIceberg",
    "WriteJson",
    "WriteKafka",
    "WriteParquet",
    "WritePostgres",
]
