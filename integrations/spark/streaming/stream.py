"""A streaming DataFrame as a live input: the Spark query runs in the driver's process beside the job, and each ends with the other.

    job starts ──> query starts ──> foreachBatch: BatchFeed.on_batch ──> ... ──> query ends ──> input closes ──> job completes
    job ends (however) ──> query is stopped          query fails ──> job fails with what Spark says

Nothing here waits in a thread of the job's: a query is stopped by the thread that started it, because ``stop()`` waits until foreachBatch
has returned, and that may wait for the job.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa

from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import Job
from rayad.actors.process.threads import OwnedThread
from rayad.dataflow.config import RunConfig
from rayad.dataflow.items import FedInput
from rayad.integrations.file_output.committed import open_directory
from rayad.integrations.refs import first_line
from rayad.integrations.spark.frames import check_frame, spark_arrow_schema
from rayad.integrations.spark.streaming.feed import BatchFeed, Kept
from rayad.integrations.spark.streaming.kept import WHERE, BlocksKept, FolderKept, query_of
from rayad.progress import ConfigError, DataflowError, RayadError, arguments, say, show

_log = logging.getLogger(__name__)
QUERY_ID = "sql.streaming.queryId"
"""Spark 3.5's local property with the id of the query that calls foreachBatch."""
WATCH_EVERY_S = 0.3


def checked_trigger(trigger: Any) -> dict[str, Any]:
    """The keywords for PySpark's ``trigger``. Raises ConfigError for what Spark would refuse when the job runs already.

    >>> checked_trigger(None), checked_trigger({"processingTime": "5 seconds"})
    ({}, {'processingTime': '5 seconds'})
    """
    if trigger is None:
        return {}
    given = dict(trigger) if isinstance(trigger, Mapping) else None
    if given is not None and len(given) == 1:
        (name, value), *_ = given.items()
        if (name in ("availableNow", "once") and value is True) or (name == "processingTime" and _is_interval(value)):
            return given
    raise ConfigError(
        f"from_spark: trigger={show(trigger, 80)}: give one of {{'processingTime': '5 seconds'}}, {{'availableNow': True}} and "
        "{'once': True}; {'continuous': ...} has no micro-batches"
    )


def _is_interval(value: Any) -> bool:
    return (
        isinstance(value, str)
        and re.fullmatch(r"\s*(interval\s+)?\d+(\.\d+)?\s*[a-zA-Z]+(\s+\d+(\.\d+)?\s*[a-zA-Z]+)*\s*", value) is not None
    )


def is_stream(frame: Any) -> bool:
    """Whether a value is a streaming DataFrame."""
    return getattr(frame, "isStreaming", False) is True


class SparkStream(FedInput):
    """Reads a streaming DataFrame of ``rayad.spark_session``, exactly once: each micro-batch is an epoch.

    Args:
        df: the frame, with state (aggregations with a watermark, joins) or without.
        checkpoint: Spark's checkpoint folder of this query. It belongs to the job's snapshots: a job that starts afresh needs a new one, a
            job that resumes needs the one that it had.
        commit: when Spark may forget a micro-batch. ``"snapshot"``: when a complete snapshot of the job holds it; Spark then plans the next
            micro-batch after a snapshot, and nothing is written twice. ``"stage"``: when it is written to ``staging_path``; Spark then runs
            at most ``max_lag`` micro-batches ahead of the snapshots. Either way memory and disk are bounded, however fast Spark is.
        staging_path: for ``"stage"``: a folder for this input alone that all nodes see. Micro-batches that all kept snapshots hold are
            deleted.
        trigger: keywords of PySpark's ``trigger``: ``{"processingTime": "5 seconds"}``, ``{"availableNow": True}``.
        output_mode: of the query: "append", "update" or "complete".

    The job needs ``RunConfig(storage_path=...)`` and runs on Ray only. It completes when the query has ended without an error: with
    ``availableNow``, or when its user stops it. An error of the query fails the job; any end of the job stops the query.
    """

    base = "spark"

    def __init__(
        self,
        df: Any,
        *,
        checkpoint: str,
        commit: Literal["snapshot", "stage"] = "snapshot",
        staging_path: str | None = None,
        max_lag: int = 8,
        trigger: Mapping[str, Any] | None = None,
        output_mode: str = "append",
        epoch: None = None,
    ) -> None:
        if epoch is not None:
            raise ConfigError(f"from_spark: epoch={epoch!r} is for bounded DataFrames; of a streaming one each micro-batch is an epoch")
        if not isinstance(checkpoint, str) or not checkpoint:
            raise ConfigError(f"from_spark: checkpoint={show(checkpoint)}; give Spark's checkpoint folder for this query")
        arguments.choice(commit, "from_spark: commit", "snapshot", "stage", error=ConfigError)
        if (commit == "stage") != (staging_path is not None):
            raise ConfigError(
                f"from_spark: commit={commit!r} and staging_path={staging_path!r}; give commit='stage' with a folder that all nodes see, "
                "or neither"
            )
        self._trigger = checked_trigger(trigger)
        self._output_mode = arguments.choice(output_mode, "from_spark: output_mode", "append", "update", "complete", error=ConfigError)
        if staging_path is not None:
            open_directory(staging_path, None, WHERE)
        check_frame(df, streaming=True)
        self.schema: pa.Schema = spark_arrow_schema(df)
        self.checkpoint = checkpoint
        self._frame = df
        self._staging_path = staging_path
        self._max_lag = arguments.whole(max_lag, "from_spark: max_lag, a number of micro-batches,", least=1, error=ConfigError)
        self._query: QueryBesideJob | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the frame: a replica only opens references."""
        return {"schema": self.schema, "checkpoint": self.checkpoint}

    def open(self, references: list[Any]) -> Any:
        """Return the rows behind references, as Spark computed them."""
        tables = [reference.table() for reference in references]
        return pa.concat_tables(tables).select(self.schema.names) if tables else []

    def check_run(self, config: RunConfig, runtime: str) -> None:
        """Refuse runs without snapshots or Ray, and frames that another job reads."""
        super().check_run(config, runtime)
        if runtime != "ray":
            raise ConfigError("from_spark: a streaming DataFrame needs runtime='ray': a local job moves only while somebody waits for it")
        if not config.keeps_snapshots:
            raise ConfigError(
                "from_spark: a streaming DataFrame needs snapshots, else no micro-batch is ever done: give RunConfig(storage_path=...)"
            )
        if self._query is not None:
            raise ConfigError(f"from_spark: another job reads this stream with the checkpoint {self.checkpoint!r}; one can at a time")

    def job_started(self, job: Job, config: RunConfig) -> None:
        """Start the query as soon as the job runs."""
        kept: Kept = FolderKept(self._staging_path, self.schema, self._max_lag) if self._staging_path is not None else BlocksKept()
        name = next(stage.name for stage in job.plan.stages if stage.op is self)
        self._query = QueryBesideJob(job, name, kept, self)
        self._query.start()

    def job_ended(self) -> None:
        """Request that the query be stopped."""
        query, self._query = self._query, None
        if query is not None:
            query.end()

    def start_query(self, feed: BatchFeed) -> Any:
        """Start the query in Spark and return PySpark's StreamingQuery."""

        def on_batch(frame: Any, number: int) -> None:
            query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            feed.on_batch(query, number, frame)

        writer = self._frame.writeStream.foreachBatch(on_batch).outputMode(self._output_mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        return (writer.trigger(**self._trigger) if self._trigger else writer).start()


class QueryBesideJob:
    """The Spark query of one job, and the thread that starts, watches and stops it."""

    def __init__(self, job: Job, name: str, kept: Kept, stream: SparkStream) -> None:
        self._job = job
        self._name = name
        self._kept = kept
        self._stream = stream
        self._over = threading.Event()
        self._thread = OwnedThread("spark-query", self._run, stop=self._over.set)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def end(self) -> None:
        """The job is over: have the query stopped; returns at once, as Spark may take long for that."""
        self._thread.stop()

    def _run(self) -> None:
        feed: BatchFeed | None = None
        query: Any = None
        live: JobInput | None = None
        try:
            live = self._job.input(self._name)  # once the job runs
            feed = BatchFeed(live, self._kept, self._stream.checkpoint)
            feed.resume(query_of(self._stream.checkpoint))
            query = self._stream.start_query(feed)
            self._watch(query, live)
        except Exception as error:
            is_stopping = live is not None and live.closed  # by job.stop(): a job that resumes gets Spark's current batch again
            if not self._over.is_set() and not is_stopping:
                self._job.fail(self._as_ours(error, feed))
        finally:
            try:
                if query is not None:
                    query.stop()
                self._kept.close()
            except Exception as error:  # Spark has ended, too
                _log.info("the Spark query of input %r could not be stopped: %s", self._name, say(error))

    def _watch(self, query: Any, live: JobInput) -> None:
        """Wait until the query or the job ends; raises the error that ended the query."""
        while not self._over.is_set() and not live.closed:
            if query.awaitTermination(WATCH_EVERY_S):
                live.close()
                return

    def _as_ours(self, error: Exception, feed: BatchFeed | None) -> RayadError:
        if feed is not None and isinstance(feed.error, RayadError):
            return feed.error
        if isinstance(error, RayadError):
            return error
        ours = DataflowError(f"from_spark: the Spark query of input {self._name!r} failed: {type(error).__name__}: {first_line(error)}")
        ours.add_note(str(error))
        return ours


__all__ = ["QueryBesideJob", "SparkStream", "is_stream"]
