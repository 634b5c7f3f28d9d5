"""What a user writes: dataflows, streams, vertices, loops, windows; and the plan made from them. Pure: no Ray, no sockets, no threads."""

if __name__ != "rayad.dataflow":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.dataflow, but it was imported as {__name__!r}; "
        "install the project (pip install -e .) and import rayad.dataflow"
    )

from typing import TYPE_CHECKING

from rayad._exports import on_demand
from rayad.progress import DataflowError, Timestamp, show

if TYPE_CHECKING:
    from rayad.dataflow import columns, windows
    from rayad.dataflow.config import FailureConfig, RunConfig, ScalingConfig, SnapshotConfig
    from rayad.dataflow.operators.aggregates.aggregators import Aggregator
    from rayad.dataflow.operators.aggregates.sketches import Quantile
    from rayad.dataflow.operators.process import Process, ProcessContext
    from rayad.dataflow.operators.time_to_live import Ttl
    from rayad.dataflow.plan import Plan, PlanEdge, Stage
    from rayad.dataflow.records.batches import Batch, to_record_batch, to_rows
    from rayad.dataflow.records.expressions import col
    from rayad.dataflow.records.key_hashing import key_group, stable_hash
    from rayad.dataflow.resources import Resources
    from rayad.dataflow.sink import Sink, SinkWriter
    from rayad.dataflow.source import Source, SourceBatch, SourcePart
    from rayad.dataflow.streams.flow import Dataflow
    from rayad.dataflow.streams.keyed_stream import KeyedStream
    from rayad.dataflow.streams.loops import Feedback, Loop
    from rayad.dataflow.streams.stream import Stream
    from rayad.dataflow.streams.windowed_stream import WindowedStream
    from rayad.dataflow.vertex import EndVertex, Vertex
    from rayad.dataflow.windows import Window, between

__all__ = [
    "Aggregator",
    "Batch",
    "Dataflow",
    "DataflowError",
    "EndVertex",
    "FailureConfig",
    "Feedback",
    "KeyedStream",
    "Loop",
    "Plan",
    "PlanEdge",
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
    "Stage",
    "Stream",
    "Timestamp",
    "Ttl",
    "Vertex",
    "Window",
    "WindowedStream",
    "between",
    "col",
    "columns",
    "key_group",
    "show",
    "stable_hash",
    "to_record_batch",
    "to_rows",
    "windows",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "rayad.dataflow.config": ("FailureConfig", "RunConfig", "ScalingConfig", "SnapshotConfig"),
        "rayad.dataflow.operators.aggregates.aggregators": ("Aggregator",),
        "rayad.dataflow.operators.aggregates.sketches": ("Quantile",),
        "rayad.dataflow.operators.process": ("Process", "ProcessContext"),
        "rayad.dataflow.operators.time_to_live": ("Ttl",),
        "rayad.dataflow.plan": ("Plan", "PlanEdge", "Stage"),
        "rayad.dataflow.records.batches": ("Batch", "to_record_batch", "to_rows"),
        "rayad.dataflow.records.expressions": ("col",),
        "rayad.dataflow.records.key_hashing": ("key_group", "stable_hash"),
        "rayad.dataflow.resources": ("Resources",),
        "rayad.dataflow.sink": ("Sink", "SinkWriter"),
        "rayad.dataflow.source": ("Source", "SourceBatch", "SourcePart"),
        "rayad.dataflow.streams.flow": ("Dataflow",),
        "rayad.dataflow.streams.keyed_stream": ("KeyedStream",),
        "rayad.dataflow.streams.loops": ("Feedback", "Loop"),
        "rayad.dataflow.streams.stream": ("Stream",),
        "rayad.dataflow.streams.windowed_stream": ("WindowedStream",),
        "rayad.dataflow.vertex": ("EndVertex", "Vertex"),
        "rayad.dataflow.windows": ("Window", "between"),
    },
    modules=("columns", "windows"),
)
