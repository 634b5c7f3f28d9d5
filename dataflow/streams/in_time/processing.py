"""`Stream.with_processing_time`: what it adds to the logical graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind, Partition, PartitionKind
from rayad.dataflow.operators.processing_time import DropAll, EpochClock, StampRecords, TagBatches
from rayad.dataflow.operators.windows.told_times import EventTime, Side
from rayad.dataflow.operators.windows.watermark_rules import WatermarkRule
from rayad.dataflow.records.selectors import ValueSelector, whole_record
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.steps import materialised, through
from rayad.progress import DataflowError, arguments

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream


def processing_time(stream: Stream, column: Any, name: str | None) -> Stream:
    """See :meth:`Stream.with_processing_time`."""
    from rayad.dataflow.streams.stream import Stream

    column = arguments.text(column, "with_processing_time: column")
    flow = stream.flow
    if stream.scope != 0:
        raise DataflowError(
            f"with_processing_time at {users_line()}: the stream {stream.name!r} is inside the loop "
            f"{flow.graph.scopes[stream.scope].name!r}, where an epoch is not complete before the loop is; leave the loop before"
        )
    flow.graph.require_free(name)
    base = name or "with_processing_time"
    start = materialised(stream)
    tagged = through(start, f"{base}.prepare", TagBatches(column))
    nothing = through(start, f"{base}.frontier", DropAll())
    clock = flow.graph.add(
        NodeKind.VERTEX,
        0,
        name=None,
        base=f"{base}.clock",
        op=Make(EpochClock),
        inputs=[LogicalEdge(nothing.node, 0, Partition(PartitionKind.SINGLE))],
        parallelism=1,
    )
    readings = LogicalEdge(clock.id, 0, Partition(PartitionKind.BROADCAST))
    node = flow.graph.add(
        NodeKind.VERTEX, 0, name=name, base=base, op=Make(StampRecords, column), inputs=[LogicalEdge(tagged.node, 0, BY_PAIR), readings]
    )
    side = Side(clock.id, 0, ValueSelector(function=whole_record), WatermarkRule())
    return Stream(flow, node.id, 0, EventTime(ValueSelector(column=column), side.rule, (side,)))


__all__ = ["processing_time"]
