"""Rayad: timely dataflow on Ray, fed by Spark.

>>> import rayad as rd
>>> flow = rd.Dataflow("wordcount")
>>> lines = flow.from_items(["to be", "or not to be"])
>>> _ = lines.flat_map(str.split).key_by(lambda w: w).count().collect("counts")
>>> result = flow.run(runtime="local", seed=7)
>>> sorted(record for _, record in result["counts"])
[('be', 2), ('not', 1), ('or', 1), ('to', 2)]
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from rayad import _worker as _worker  # first: it must come before Arrow is loaded
from rayad._exports import on_demand
from rayad.dataflow import hooks
from rayad.dataflow.records import calling, wrong_calls
from rayad.progress import (
    Antichain,
    ConfigError,
    DataflowError,
    InternalError,
    PathSummary,
    ProtocolError,
    RayadError,
    RescaleRefused,
    SnapshotError,
    Timestamp,
)

if TYPE_CHECKING:
    from rayad.dataflow import (
        Aggregator,
        Batch,
        Dataflow,
        EndVertex,
        FailureConfig,
        Feedback,
        KeyedStream,
        Loop,
        Process,
        ProcessContext,
        Quantile,
        Resources,
        RunConfig,
        ScalingConfig,
        Sink,
        SinkWriter,
        SnapshotConfig,
        Source,
        SourceBatch,
        SourcePart,
        Stream,
        Ttl,
        Vertex,
        Window,
        WindowedStream,
        between,
        columns,
        key_group,
        stable_hash,
        to_record_batch,
        to_rows,
        windows,
    )

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "Antichain",
    "Batch",
    "ConfigError",
    "Dataflow",
    "DataflowError",
    "EndVertex",
    "FailureConfig",
    "Feedback",
    "InternalError",
    "KeyedStream",
    "Loop",
    "PathSummary",
    "Process",
    "ProcessContext",
    "ProtocolError",
    "Quantile",
    "RayadError",
    "RescaleRefused",
    "Resources",
    "RunConfig",
    "ScalingConfig",
    "Sink",
    "SinkWriter",
    "SnapshotConfig",
    "SnapshotError",
    "Source",
    "SourceBatch",
    "SourcePart",
    "Stream",
    "Timestamp",
    "Ttl",
    "Vertex",
    "Window",
    "WindowedStream",
    "attach",
    "between",
    "columns",
    "committed_files",
    "graphs",
    "jobs",
    "key_group",
    "list_state",
    "read_committed",
    "read_state",
    "spark_session",
    "stable_hash",
    "stop_spark",
    "to_record_batch",
    "to_rows",
    "windows",
    "write_state",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "rayad.dataflow": (
            "Aggregator",
            "Batch",
            "Dataflow",
            "EndVertex",
            "FailureConfig",
            "Feedback",
            "KeyedStream",
            "Loop",
            "Process",
            "ProcessContext",
            "Quantile",
            "Resources",
            "RunConfig",
            "ScalingConfig",
            "Sink",
            "SinkWriter",
            "SnapshotConfig",
            "Source",
            "SourceBatch",
            "SourcePart",
            "Stream",
            "Ttl",
            "Vertex",
            "Window",
            "WindowedStream",
            "between",
            "columns",
            "key_group",
            "stable_hash",
            "to_record_batch",
            "to_rows",
            "windows",
        ),
    },
    modules=("actors", "autoscale", "graphs", "integrations", "snapshots"),
)


def committed_files(*args: Any, **kwargs: Any) -> Any:
    """The committed files of a Parquet output: see :func:`rayad.integrations.committed_files`."""
    from rayad.integrations import committed_files as look

    return look(*args, **kwargs)


def read_committed(*args: Any, **kwargs: Any) -> Any:
    """A pyarrow data set of the committed files of a Parquet output: see :func:`rayad.integrations.read_committed`."""
    from rayad.integrations import read_committed as read

    return read(*args, **kwargs)


def list_state(*args: Any, **kwargs: Any) -> Any:
    """The vertices of a snapshot and their state: see :func:`rayad.actors.saved_state.reading.list_state`."""
    from rayad.actors.saved_state.reading import list_state as look

    return look(*args, **kwargs)


def read_state(*args: Any, **kwargs: Any) -> Any:
    """The keyed state of a vertex in a snapshot as an Arrow table: see :func:`rayad.actors.saved_state.reading.read_state`."""
    from rayad.actors.saved_state.reading import read_state as read

    return read(*args, **kwargs)


def write_state(*args: Any, **kwargs: Any) -> Any:
    """A savepoint made from tables: see :func:`rayad.actors.saved_state.writing.write_state`."""
    from rayad.actors.saved_state.writing import write_state as write

    return write(*args, **kwargs)


def spark_session(*args: Any, **kwargs: Any) -> Any:
    """A Spark session on this Ray cluster through RayDP: see :func:`rayad.integrations.spark_session`."""
    from rayad.integrations import spark_session as start

    return start(*args, **kwargs)


def attach(name: str, *, address: str | None = None) -> Any:
    """The handle of a job that runs on the Ray cluster: see :func:`rayad.actors.driver.attached_job.attach`."""
    from rayad.actors.driver.attached_job import attach as found

    return found(name, address=address)


def jobs(*, address: str | None = None) -> dict[str, Any]:
    """The jobs on the Ray cluster by name, with their states: see :func:`rayad.actors.driver.attached_job.jobs`."""
    from rayad.actors.driver.attached_job import jobs as found

    return found(address=address)


def stop_spark(*args: Any, **kwargs: Any) -> None:
    """End a session made by :func:`spark_session`."""
    from rayad.integrations import stop_spark as stop

    stop(*args, **kwargs)


LOCAL_OPTIONS = {"check_records", "clock", "store"}
"""Options of the local runtime alone."""


def _submit(flow: Dataflow, run: RunConfig, scaling: ScalingConfig, *, runtime: str, seed: int, **options: Any) -> Any:
    if runtime == "local":
        from rayad.actors.local.local_job import LocalJob
        from rayad.actors.process import unwaited

        unknown = sorted(set(options) - LOCAL_OPTIONS)
        if unknown:
            near = calling.did_you_mean(unknown[0], LOCAL_OPTIONS | signature(flow.submit).parameters.keys())
            raise ConfigError(f"unknown options {unknown} for runtime='local'{near}")
        job = LocalJob(flow, run, scaling, seed=seed, **options)
        unwaited.OF_THIS_PROCESS.watch(job)
        return job
    if runtime == "ray":
        from rayad.actors.driver.submitting import submit_to_ray

        return submit_to_ray(flow, run, scaling, **options)
    raise ConfigError(f"runtime is {runtime!r}: it must be 'ray' or 'local'")


def _run(*args: Any, **options: Any) -> Any:
    from rayad.actors.driver.run_to_end import run_to_end

    return run_to_end(*args, **options)


def _connector(name: str, attribute: str) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        from rayad import integrations

        return wrong_calls.explained(getattr(integrations, attribute), name)(*args, **kwargs)

    return make


def _map_state(*args: Any) -> str | int | None:
    from rayad.actors.saved_state.changing import map_state

    return map_state(*args)


def _from_spark(frame: Any, **options: Any) -> Any:
    from rayad.integrations.spark.streaming import is_stream

    return _connector("from_spark", "SparkStream" if is_stream(frame) else "SparkSource")(frame, **options)


def _open_page(name: str, host: str, port: int) -> str:
    from rayad.actors.driver.page import open_page

    return open_page(name, host, port)


def _arrival_clock() -> Any:
    from rayad.integrations.arrival import utc_now

    return utc_now


hooks.register("submit", _submit)
hooks.register("run", _run)
hooks.register("arrival_clock", _arrival_clock)
hooks.register("open_page", _open_page)
hooks.register("map_state", _map_state)
hooks.register("from_spark", _from_spark)
for _name, _attribute in {
    "map_async": "AsyncCalls",
    "from_arrow": "ArrowSource",
    "from_ray_dataset": "RayDatasetSource",
    "read_text": "TextSource",
    "read_csv": "CsvSource",
    "read_json": "JsonLinesSource",
    "read_csv_lines": "csv_lines",
    "read_json_lines": "json_lines",
    "from_folder": "FolderSource",
    "from_kafka": "KafkaSource",
    "read_parquet": "ParquetSource",
    "read_postgres": "PostgresSource",
    "write_postgres": "PostgresSink",
    "write_kafka": "KafkaSink",
    "write_csv": "CsvSink",
    "write_delta": "DeltaSink",
    "write_iceberg": "IcebergSink",
    "write_json": "JsonSink",
    "write_parquet": "ParquetSink",
    "to_ray_dataset": "RayDatasetSink",
    "to_spark": "SparkSink",
}.items():
    hooks.register(_name, _connector(_name.removesuffix("_lines"), _attribute))
