"""The keywords of what reads and writes, for editors, type checkers and ``help()``. The class that takes them, which each names, says more
of what they mean; ``tests/integrations/test_options.py`` compares the two.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.fs as fs

C = TypeVar("C", bound=type)


class LocalRuntime(TypedDict, total=False):
    """Of ``runtime="local"`` alone: :meth:`Dataflow.run`."""

    check_records: bool
    clock: Callable[[], float]
    store: Any


class Start(TypedDict, total=False):
    """Of :meth:`Dataflow.submit`, besides the configurations."""

    parallelism: int | Mapping[str, int] | None
    seed: int
    resume: str | int | None
    map_state: Mapping[str, Any] | None
    new: Sequence[str]
    gone: Sequence[str]


class StartLocally(Start, LocalRuntime, total=False):
    """Of :meth:`Dataflow.submit` with ``runtime="local"``."""


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


class FromFolder(TypedDict, total=False):
    """Of :class:`rayad.integrations.folder.FolderSource`, and of the reader of its format."""

    format: Literal["parquet", "csv", "json", "text"] | None
    schema: pa.Schema | None
    epoch: str | None
    until: str | None
    every_s: float
    settle_s: float
    filesystem: fs.FileSystem | None
    batch_rows: int
    block_bytes: int
    column_types: Mapping[str, pa.DataType] | None
    columnar: bool
    columns: Sequence[str] | None
    delimiter: str
    encoding: str
    filter: pc.Expression | None
    partitioning: str | None


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


class WriteDeltaTable(TypedDict, total=False):
    """Of :class:`rayad.integrations.DeltaTable`."""

    partition_by: str | Sequence[str]
    storage_options: Mapping[str, str] | None
    filesystem: fs.FileSystem | None


class WriteIceberg(TypedDict, total=False):
    """Of :class:`rayad.integrations.IcebergSink`."""

    catalog: str | Mapping[str, Any]
    mode: Literal["error", "append", "overwrite"]
    schema: pa.Schema | None
    partition_by: str | Sequence[str]
    epoch_column: str | None
    location: str | None
    properties: Mapping[str, str] | None
    compression: str | None
    row_group_rows: int
    filesystem: fs.FileSystem | None


class WriteIcebergTable(TypedDict, total=False):
    """Of :class:`rayad.integrations.IcebergTable`."""

    catalog: str | Mapping[str, Any]
    partition_by: str | Sequence[str]
    location: str | None
    properties: Mapping[str, str] | None
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


MEANINGS = {
    "batch_rows": "the most records of a batch.",
    "block_bytes": "how many bytes of a file are read at once.",
    "catalog": "a name in the configuration of pyiceberg, or the properties of a catalog.",
    "checkpoint": "of a streaming frame: Spark's checkpoint folder of this query.",
    "column_types": "Arrow types of some columns, by name; the others follow the first file.",
    "columnar": "batches with one column ``text`` in place of strings.",
    "columns": "which columns to read, in this order; None: all.",
    "commit": "of a streaming frame: when Spark may forget a micro-batch, when a snapshot holds it or when it is staged.",
    "compact": "each commit also joins small files of earlier snapshots.",
    "compression": "of the files, by its name; None: none.",
    "delimiter": "the character between two fields.",
    "discover_s": "seconds between two questions for new partitions.",
    "encoding": "of the text, as Python names it.",
    "epoch": "an integer column that says the epoch of each row; None: all is in epoch 0.",
    "epoch_column": "a column of this name with the epoch of each row; None: none.",
    "epoch_s": "the length of an epoch, in seconds.",
    "ahead_s": "how many seconds ahead of the clock a timestamp may be.",
    "every_s": "seconds between two looks for new files.",
    "filesystem": "a ``pyarrow.fs.FileSystem``, where the path does not say it all.",
    "filter": "a pyarrow expression on any columns; row groups that cannot match are not read.",
    "format": "of the files; None: by the suffix of ``pattern``.",
    "headers": "whether to add a column with the headers of each message.",
    "idle_s": "a partition that is silent for so many seconds does not hold up the epochs of others.",
    "key": "a function or column that gives the message's key, which determines its partition; None: messages are spread.",
    "location": "where a new table is; None: as the catalog decides.",
    "max_lag": "of a streaming frame: by how many micro-batches Spark may be ahead of the snapshots.",
    "mode": "what to do where something is already: refuse, append, or overwrite.",
    "null": "the text that is null where it is not in quotes; None: Arrow's list of words, and no null in columns of text.",
    "on_roll_back": "what happens when the job resumes from a snapshot before the last committed one.",
    "options": "settings of librdkafka, such as those of security.",
    "output_mode": "of a streaming query: append, update or complete.",
    "partition_by": "columns whose values are in the names of directories, ``town=Ulm/``, and not in the files.",
    "partition_by_epoch": "a directory ``epoch=<n>`` for each epoch.",
    "partitioning": '"hive": directories such as ``day=3/`` become columns; None: they do not.',
    "parts": "into how many parts the input is divided: the most replicas that can read side by side.",
    "properties": "of a new table.",
    "replay": "where a resumed run gets the rows: computed again, or staged once.",
    "row_group_rows": "how many rows are collected in memory before they are written.",
    "rows_per_part": "about how many rows a part has.",
    "schema": "columns and their Arrow types; None: as found in the data.",
    "settle_s": "a file is read only when it has not changed for so many seconds.",
    "snapshot_column": "a text column with output and snapshot of each row, which lets a job resume from older snapshots.",
    "spark_log": "also write the log by which Spark sees the committed files alone.",
    "split_bytes": "files beyond so many bytes are cut into ranges that are read side by side.",
    "staging_path": "a folder that all nodes see, for what is staged.",
    "start": "where reading begins in partitions that are in no snapshot.",
    "stop": '"latest": reads what is committed when the run begins, and ends; None: reads for ever.',
    "storage_options": "for ``deltalake``, where the URI does not say it all.",
    "transaction_s": "for how many seconds the broker lets a transaction last.",
    "trigger": "of a streaming query, as keywords of PySpark's ``trigger``.",
    "until": "the input ends when there is a file of this name and all others have been read; None: it never does.",
    "value": "a function or column that gives the message: bytes, text or None; None: the record is the message.",
    "wait_s": "for how many seconds the server may be away before the job fails.",
}
"""What each option means, wherever it is taken: ``help()`` of the methods ends with it. The classes say more."""

_KINDS = re.compile(r"Unpack\[opt\.(\w+)\]")


def tells_options(cls: C) -> C:
    """A class whose methods tell the meaning of the options that they take as one of the dicts above."""
    for method in vars(cls).values():
        found = _KINDS.match(str(getattr(method, "__annotations__", {}).get("options", "")))
        if found is not None:
            lines = [f"    {name}: {MEANINGS[name]}" for name in sorted(_keys(globals()[found[1]]))]
            method.__doc__ = "\n".join([inspect.getdoc(method) or "", "", "Options:", *lines])
    return cls


def _keys(kind: Any) -> list[str]:
    return list(kind.__annotations__)


__all__ = [
    "FromArrow",
    "FromFolder",
    "FromKafka",
    "FromPandas",
    "FromPolars",
    "FromRayDataset",
    "FromSpark",
    "LocalRuntime",
    "ReadCsv",
    "ReadJson",
    "ReadParquet",
    "ReadPostgres",
    "ReadText",
    "Start",
    "StartLocally",
    "ToRayDataset",
    "ToSpark",
    "WriteCsv",
    "WriteDelta",
    "WriteDeltaTable",
    "WriteIceberg",
    "WriteIcebergTable",
    "WriteJson",
    "WriteKafka",
    "WriteParquet",
    "WritePostgres",
    "tells_options",
]
