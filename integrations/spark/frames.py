"""Spark DataFrames as sources and results.

In: Spark computes the DataFrame and keeps each partition as Arrow IPC bytes (RayDP's recoverable conversion); one Ray task for each
partition fetches them from the executor and puts them into the object store as they are. No Python row is made. The driver owns the
blocks, so they outlive ``stop_spark()``; while Spark and the job live, Ray can fetch a block again that was lost with a node. At the job's
end Spark's executors release what they kept for that (:mod:`rayad.integrations.spark.blocks`). RayDP's own wrapper
(``ray.data.from_spark``) is not used because it asks for CPUs that Spark may have taken all of, repartitions as Ray Data sees fit, and
cannot say which partition was lost.

Out: the results' Arrow batches go to the driver's JVM as they are, by the function that Spark has for pandas
(``PythonSQLUtils.toDataFrame``) but without pandas, which would turn nullable integers into floats, maps into lists and lose time zones (as
``Dataset.to_spark`` of Ray Data does). The DataFrame then owns its data and depends on no Ray object. For results that are too big for the
driver there is ``staging_path``: Parquet that Spark reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.config import RunConfig
from rayad.dataflow.sink import SinkWriter
from rayad.integrations.blocks import DEFAULT_BATCH_ROWS, check_batch_rows
from rayad.integrations.file_output.committed import read_manifest
from rayad.integrations.file_output.parquet import ParquetSink
from rayad.integrations.refs import BlockRef, RefSource, Replay, check_replay, number_blocks
from rayad.integrations.spark.blocks import EARLY, SparkBlock, SparkBlocks
from rayad.integrations.spark.jvm import arrow_batches_to_java, java_packages, java_session
from rayad.integrations.spark.session import import_raydp, refuse_ray_client, session_alive
from rayad.integrations.spark.types import for_spark, for_sparks_files
from rayad.integrations.staged import ArrowSink
from rayad.integrations.staged_blocks import StagedBlock
from rayad.progress import ConfigError, DataflowError, say

BATCH_ROWS_TO_SPARK = 10_000
"""Rows of an Arrow batch given to Spark, as in Spark's default for pandas; Spark distributes whole batches over partitions."""


class SparkSource(RefSource):
    """Reads a Spark DataFrame of the session of ``rayad.spark_session``; each Spark partition is a part.

    Spark runs when the job starts (``list_parts``), once for all runs of this source. ``epoch`` names an integer column with each row's
    epoch: Spark sorts each partition by it (without a shuffle), and partitions are read side by side, lowest epoch first. ``parts``: the
    number of partitions to repartition to. ``replay`` says how a run that resumes after the driver's death gets the rows: ``"recompute"``
    asks Spark again, which must give the same partitions; ``"stage"`` writes them to ``staging_path`` once and reads them there (see
    :mod:`rayad.integrations.refs`). With ``parts=`` or after a shuffle Spark does not guarantee the order of rows: use "stage".
    """

    where = "from_spark"
    unit = "partition"
    hint = EARLY

    def __init__(
        self,
        df: Any,
        *,
        epoch: str | None = None,
        parts: int | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        replay: Replay = "recompute",
        staging_path: str | None = None,
    ) -> None:
        check_batch_rows(batch_rows, self.where)
        folder = check_replay(replay, staging_path, self.where)
        if parts is not None and (isinstance(parts, bool) or not isinstance(parts, int) or parts < 1):
            raise ConfigError(f"from_spark: parts={parts!r}; give the number of partitions to make, 1 or more")
        check_frame(df)
        staged = folder.read() if folder is not None else None
        super().__init__(spark_arrow_schema(df), None, epoch=epoch, batch_rows=batch_rows, keep=df, folder=folder, staged=staged)
        self._count = parts
        self._kept: SparkBlocks | None = None
        self._jobs = 0

    def compute(self) -> Sequence[BlockRef]:
        """Compute the DataFrame in Spark and fetch its partitions into the object store."""
        frame = self._keep
        _check_running(frame)
        if self._count is not None:
            frame = frame.repartition(self._count)
        if self._epoch is not None:
            frame = frame.sortWithinPartitions(self._epoch)
        self._kept = SparkBlocks(frame)
        return number_blocks(fetch_partitions(self._kept, frame.sparkSession))

    def list_parts(self) -> Sequence[BlockRef | StagedBlock]:
        """List the partitions that are not empty, in order; compute, and stage, them first if that was not done."""
        try:
            parts = super().list_parts()
        except BaseException:
            self._release()
            raise
        if self._folder is not None:
            self._release()  # they are read from the folder
        return parts

    def job_started(self, job: Any, config: RunConfig) -> None:
        """Let Spark keep the partitions while a job may fetch them again."""
        self._jobs += 1

    def job_ended(self) -> None:
        """Release the partitions in Spark. Another run of this source reads the blocks that are in Ray's object store."""
        self._jobs -= 1
        if not self._jobs:
            self._release()

    def _release(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.release()

    def __getstate__(self) -> dict[str, Any]:
        """Without the partitions in Spark: the driver releases them."""
        return {**super().__getstate__(), "_kept": None}


def check_frame(df: Any, *, streaming: bool = False) -> None:
    """Raise ConfigError unless ``df`` is a DataFrame, streaming or not as asked for, of a running RayDP session in this process."""
    import_raydp("from_spark")
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        raise ConfigError(
            f"from_spark: got a {type(df).__module__}.{type(df).__name__}; give a pyspark.sql.DataFrame of rayad.spark_session()"
        )
    _check_running(df)
    refuse_ray_client("from_spark")
    if df.isStreaming and not streaming:
        raise ConfigError("SparkSource: this is a streaming DataFrame; use flow.from_spark(df, checkpoint=...), or SparkStream")
    master = df.sparkSession.sparkContext.master
    if not master.startswith("ray://"):
        raise ConfigError(
            f"from_spark: Spark runs on {master!r}, not on Ray; use rayad.spark_session(), or write Parquet and use read_parquet"
        )


def _check_running(df: Any) -> None:
    if not session_alive(df.sparkSession):
        raise ConfigError(f"from_spark: the Spark session of this DataFrame has been stopped. {EARLY}")


def spark_arrow_schema(df: Any) -> pa.Schema:
    """The columns of a DataFrame as Arrow has them. Raises ConfigError where it cannot, or two have one name."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        columns = df.schema.fields
    except PySparkException as error:
        raise ConfigError(f"from_spark: a column is of a type that PySpark does not know: {error}; cast it in Spark") from error
    fields = []
    for field in columns:
        try:
            fields.append(pa.field(field.name, to_arrow_type(field.dataType), nullable=field.nullable))
        except (PySparkException, TypeError) as error:
            raise ConfigError(
                f"from_spark: column {field.name!r} is of type {field.dataType.simpleString()}, which Arrow lacks; cast it"
            ) from error
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise ConfigError(f"from_spark: column names must differ, got {names}; rename them with toDF(...)")
    return pa.schema(fields)


def fetch_partitions(computed: SparkBlocks, spark: Any) -> list[tuple[Any, int]]:
    """Bring the partitions into the object store: for each a reference to an Arrow IPC stream and its rows.

    All are there when this returns. DataflowError where one is lost on its way.
    """
    import ray

    task = ray.remote(num_cpus=0, num_returns=2, max_retries=3)(_fetch_partition)
    asked = [task.remote(block) for block in computed.blocks]
    blocks: list[tuple[Any, int]] = []
    for index, (rows, table) in enumerate(asked):
        try:
            blocks.append((table, ray.get(rows)))  # ends with the task, or with its error when the executor dies
        except ray.exceptions.RayError as error:
            cause = "its executor may have died: see Spark's log, give executors more memory" if session_alive(spark) else EARLY
            raise DataflowError(
                f"from_spark: partition {index} of {len(asked)} was lost on its way to Ray: {type(error).__name__}: {say(error)}; {cause}"
            ) from error
    return blocks


def _fetch_partition(block: SparkBlock) -> tuple[int, pa.Buffer]:
    """Runs in a Ray worker: the Arrow IPC stream that a Spark executor holds, and its rows."""
    stream = block.stream()
    return pa.ipc.open_stream(stream).read_all().num_rows, stream


class SparkSink(ArrowSink):
    """Gives the results as a DataFrame of the session ``spark``.

    ``schema``: Arrow columns and types; without it they follow the records, of which there must be at least one. ``epoch_column``: name of
    an added column with each row's epoch. ``staging_path``: a directory that all nodes see: replicas write Parquet there and Spark reads
    it, so nothing passes through the driver. It must exist as long as the DataFrame is used.
    """

    where = "to_spark"

    def __init__(
        self, spark: Any, *, schema: pa.Schema | None = None, epoch_column: str | None = None, staging_path: str | None = None
    ) -> None:  # fmt: skip
        super().__init__(schema=schema, epoch_column=epoch_column)
        import_raydp(self.where)
        from pyspark.sql import SparkSession

        if not isinstance(spark, SparkSession):
            raise ConfigError(f"to_spark: got a {type(spark).__name__}; give the SparkSession that gets the results")
        self._spark: Any = spark
        self._files: ParquetSink | None = None
        if staging_path is not None:
            self._files = _SparksFiles(staging_path, schema=schema, epoch_column=epoch_column)
        self.commits = self._files is not None
        self._check_alive()

    def __getstate__(self) -> dict[str, Any]:
        """The session stays on the driver."""
        return {**self.__dict__, "_spark": None}

    def _check_alive(self) -> None:
        if not session_alive(self._spark):
            raise ConfigError("to_spark: the Spark session has been stopped; keep it until the job has ended, or use write_parquet")

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        return super().open(replica, parallelism) if self._files is None else self._files.open(replica, parallelism)

    def check(self) -> None:
        """Refuse a staging directory that is not empty."""
        if self._files is not None:
            self._files.check()

    def identity(self) -> str | None:
        """The id in the names of the staged files."""
        return self._files.identity() if self._files is not None else None

    def adopt(self, identity: str) -> None:
        """Continue with the files that another run staged."""
        if self._files is not None:
            self._files.adopt(identity)

    def publish(self, staged: Sequence[Any]) -> Any:
        """Return the staged Arrow streams, or the published files."""
        return super().publish(staged) if self._files is None else self._files.publish(staged)

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        """Commit the files of a snapshot."""
        return super().commit(snapshot, staged) if self._files is None else self._files.commit(snapshot, staged)

    def roll_back(self, last: int, first_new: int) -> None:
        """Remove the files of void snapshots."""
        if self._files is not None:
            self._files.roll_back(last, first_new)

    def abort(self) -> None:
        """Remove staged files."""
        if self._files is not None:
            self._files.abort()

    def result(self, receipt: Any) -> Any:
        """The DataFrame."""
        self._check_alive()
        if self._files is None:
            return to_data_frame(self._spark, self.tables(receipt))
        published = self._files.result(receipt)
        if not published.files:
            return to_data_frame(self._spark, self.tables(()))
        manifest = read_manifest(self._files.filesystem, self._files.path)
        read = self._spark.read
        if manifest is not None and manifest.schema is not None:  # Parquet has no durations: without types they would be numbers
            read = read.schema(_spark_schema(for_spark(manifest.schema.empty_table()).schema))
        return read.parquet(*(f"{published.path}/{name}" for name in published.files))


class _SparksFiles(ParquetSink):
    """Parquet files in types that Spark reads."""

    def stored(self, table: pa.Table) -> pa.Table:
        return for_sparks_files(table)


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def to_data_frame(spark: Any, tables: Sequence[pa.Table]) -> Any:
    """A Spark DataFrame with the rows of ``tables`` (all of one schema), column by column; DataflowError where a type does not survive."""
    from pyspark.sql import DataFrame

    if not tables:
        raise DataflowError("to_spark: there are no records, so the columns are not known; give schema=pyarrow.schema(...)")
    ready = [for_spark(table) for table in tables]
    schema = _spark_schema(ready[0].schema)
    batches = [batch for table in ready for batch in table.to_batches(max_chunksize=BATCH_ROWS_TO_SPARK) if batch.num_rows]
    if not batches:
        return spark.createDataFrame([], schema)
    iterator = arrow_batches_to_java(spark, batches)
    return DataFrame(java_packages(spark).PythonSQLUtils.toDataFrame(iterator, schema.json(), java_session(spark)), spark)


__all__ = [
    "BATCH_ROWS_TO_SPARK",
    "SparkSink",
    "SparkSource",
    "check_frame",
    "fetch_partitions",
    "spark_arrow_schema",
    "to_data_frame",
]
