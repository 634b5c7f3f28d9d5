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

import sys as _sys
from inspect import signature as _signature
from typing import TYPE_CHECKING, Any

from rayad import _worker as _worker  # first: it must come before Arrow is loaded
from rayad._exports import on_demand
from rayad.dataflow import hooks as _hooks
from rayad.dataflow.records import calling as _calling
from rayad.dataflow.records import wrong_calls as _wrong_calls
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
    from rayad import actors as actors
    from rayad import autoscale as autoscale
    from rayad import graphs as graphs
    from rayad import incremental as incremental
    from rayad import integrations as integrations
    from rayad import snapshots as snapshots
    from rayad.actors.driver.attached_job import attach, jobs
    from rayad.actors.saved_state.reading import list_state, read_state
    from rayad.actors.saved_state.writing import write_state
    from rayad.actors.warm.session import session
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
        col,
        columns,
        key_group,
        stable_hash,
        to_record_batch,
        to_rows,
        windows,
    )
    from rayad.incremental import Collection, KeyedCollection, fixed_point
    from rayad.integrations import committed_files, read_committed, spark_session, stop_spark

__version__ = "0.2.0"

__all__ = [
    "Aggregator",
    "Antichain",
    "Collection",
    "Batch",
    "ConfigError",
    "Dataflow",
    "DataflowError",
    "EndVertex",
    "FailureConfig",
    "Feedback",
    "InternalError",
    "KeyedCollection",
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
    "col",
    "columns",
    "committed_files",
    "graphs",
    "jobs",
    "fixed_point",
    "key_group",
    "list_state",
    "read_committed",
    "read_state",
    "session",
    "spark_session",
    "stable_hash",
    "stop_spark",
    "to_record_batch",
    "to_rows",
    "windows",
    "write_state",
]


def _no_such_name(name: str) -> AttributeError:
    from rayad._wrong_names import no_such_name

    return no_such_name(name, __all__)


if not TYPE_CHECKING:  # a checker that saw __getattr__ would take any name for one of ours
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
                "col",
                "columns",
                "key_group",
                "stable_hash",
                "to_record_batch",
                "to_rows",
                "windows",
            ),
            "rayad.actors.driver.attached_job": ("attach", "jobs"),
            "rayad.actors.saved_state.reading": ("list_state", "read_state"),
            "rayad.actors.warm.session": ("session",),
            "rayad.actors.saved_state.writing": ("write_state",),
            "rayad.incremental": ("Collection", "KeyedCollection", "fixed_point"),
            "rayad.integrations": ("committed_files", "read_committed", "spark_session", "stop_spark"),
        },
        _no_such_name,
        modules=("actors", "autoscale", "graphs", "incremental", "integrations", "snapshots"),
    )


def _submit(flow: Dataflow, run: RunConfig, scaling: ScalingConfig, *, runtime: str, seed: int, **options: Any) -> Any:
    if runtime == "local":
        from rayad.actors.local.local_job import LocalJob
        from rayad.actors.process import unwaited
        from rayad.dataflow.options import LocalRuntime

        own = LocalRuntime.__annotations__.keys()
        unknown = sorted(set(options) - own)
        if unknown:
            near = _calling.did_you_mean(unknown[0], own | _signature(flow.submit).parameters.keys())
            raise ConfigError(f"unknown options {unknown} for runtime='local'{near}")
        job = LocalJob(flow, run, scaling, seed=seed, **options)
        unwaited.OF_THIS_PROCESS.watch(job)
        return job
    if runtime == "ray":
        from rayad.actors.driver.submitting import submit_to_ray

        return submit_to_ray(flow, run, scaling, **options)
    raise ConfigError(f"runtime is {runtime!r}: it must be 'ray' or 'local'")


def _session_scaling(parallelism: Any) -> Any:
    opened = _sys.modules.get("rayad.actors.warm.session")  # else there is none
    return opened.scaling_of(parallelism) if opened is not None else None


def _as_collection(*args: Any, **options: Any) -> Any:
    from rayad.incremental.inputs.beginning import as_collection

    return as_collection(*args, **options)


def _live_collection(*args: Any) -> Any:
    from rayad.incremental.inputs.beginning import live

    return live(*args)


def _sql(*args: Any) -> Any:
    from rayad.sql.query import sql

    return sql(*args)


def _parse_json(*args: Any) -> Any:
    from rayad.integrations.json_column import ParseJsonColumn

    return ParseJsonColumn(*args)


def _parse_avro(*args: Any) -> Any:
    from rayad.integrations.avro.parse_column import ParseAvroColumn

    return ParseAvroColumn(*args)


def _format_avro(*args: Any) -> Any:
    from rayad.integrations.avro.format_column import FormatAvroColumn

    return FormatAvroColumn(*args)


def _tables_of_query(*args: Any) -> Any:
    from rayad.sql.asking import tables_of_query

    return tables_of_query(*args)


def _keys_of_query(*args: Any) -> Any:
    from rayad.sql.asked_keys import keys_of_query

    return keys_of_query(*args)


def _run_query(*args: Any) -> Any:
    from rayad.sql.asking import run_query

    return run_query(*args)


def _changes_of_batch(*args: Any) -> Any:
    from rayad.incremental.inputs.beginning import changes_of_batch

    return changes_of_batch(*args)


def _graph_of_collection(what: str, *args: Any, **options: Any) -> Any:
    from rayad.incremental import graphs

    return getattr(graphs, what)(*args, **options)


def _run(*args: Any, **options: Any) -> Any:
    from rayad.actors.driver.run_to_end import run_to_end

    return run_to_end(*args, **options)


def _connector(name: str, attribute: str) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        from rayad import integrations

        return _wrong_calls.explained(getattr(integrations, attribute), name)(*args, **kwargs)

    return make


def _map_state(*args: Any) -> str | int | None:
    from rayad.actors.saved_state.changing import map_state

    return map_state(*args)


def _from_spark(frame: Any, **options: Any) -> Any:
    from rayad.integrations.spark.streaming import is_stream

    return _connector("from_spark", "SparkStream" if is_stream(frame) else "SparkSource")(frame, **options)


def _open_page(name: str, host: str, port: int, steps: bool, state: bool) -> str:
    from rayad.actors.driver.page import open_page

    return open_page(name, host, port, steps, state)


def _arrival_clock() -> Any:
    from rayad.integrations.arrival import utc_now

    return utc_now


_hooks.register("submit", _submit)
_hooks.register("run", _run)
_hooks.register("as_collection", _as_collection)
_hooks.register("live_collection", _live_collection)
_hooks.register("sql", _sql)
_hooks.register("parse_json", _parse_json)
_hooks.register("parse_avro", _parse_avro)
_hooks.register("format_avro", _format_avro)
_hooks.register("tables_of_query", _tables_of_query)
_hooks.register("keys_of_query", _keys_of_query)
_hooks.register("run_query", _run_query)
_hooks.register("changes_of_batch", _changes_of_batch)
_hooks.register("graph_of_collection", _graph_of_collection)
_hooks.register("session_scaling", _session_scaling)
_hooks.register("arrival_clock", _arrival_clock)
_hooks.register("open_page", _open_page)
_hooks.register("map_state", _map_state)
_hooks.register("from_spark", _from_spark)
for _name, _attribute in {
    "map_async": "AsyncCalls",
    "from_arrow": "ArrowSource",
    "from_pandas": "PandasSource",
    "from_polars": "PolarsSource",
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
    "write_postgres_table": "PostgresTable",
    "write_kafka_table": "KafkaTable",
    "write_delta_table": "DeltaTable",
    "write_iceberg_table": "IcebergTable",
    "write_csv": "CsvSink",
    "write_delta": "DeltaSink",
    "write_iceberg": "IcebergSink",
    "write_json": "JsonSink",
    "write_parquet": "ParquetSink",
    "to_ray_dataset": "RayDatasetSink",
    "to_spark": "SparkSink",
}.items():
    _hooks.register(_name, _connector(_name.removesuffix("_lines").removesuffix("_table"), _attribute))
