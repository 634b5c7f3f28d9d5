"""Operators whose records end one by one: `ttl(after, of="records")`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind
from rayad.dataflow.operators.joins.intervals import JoinOfRecordsThatEnd
from rayad.dataflow.operators.time_to_live import Ttl
from rayad.dataflow.operators.values_that_end import DistinctOfRecords, TimedValues
from rayad.dataflow.records.event_times import kind_of_lengths
from rayad.dataflow.records.selectors import ValueSelector
from rayad.dataflow.streams import updates
from rayad.dataflow.streams.in_time.timed_edges import largest_of, placed, sides_of
from rayad.dataflow.streams.keyed_steps import require_records
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.steps import materialised
from rayad.dataflow.streams.stream import Stream
from rayad.dataflow.windows import Between

if TYPE_CHECKING:
    from rayad.dataflow.streams.keyed_stream import KeyedStream


def join_of_records(left: KeyedStream, other: KeyedStream, name: str | None, parallelism: int | None) -> Stream:
    """The join over all time of two streams whose records end, each by the time-to-live of its side: that of the left records is how much
    later a right one may be."""
    from rayad.dataflow.streams.windowed_stream import join_in_time

    assert left.time_to_live is not None
    assert other.time_to_live is not None
    after, of_other = left.time_to_live.after, other.time_to_live.after
    kind_of_lengths([after, of_other])
    joined = join_in_time(JoinOfRecordsThatEnd, left, other, Between(-of_other, after), "inner", "join", name, parallelism)
    return Stream(left.flow, joined.node)


def distinct_of_records(keyed: KeyedStream, value: ValueSelector, ttl: Ttl, name: str | None) -> Stream:
    """``distinct`` of values that are new again when the record that was given has ended. A call that is refused changes nothing."""
    graph = keyed.flow.graph
    graph.require_free(name)
    require_records(keyed, "distinct")
    base, stream = name or "distinct", materialised(keyed.stream)
    sides = sides_of(stream)
    edge = LogicalEdge(placed(stream, f"{base}.prepare", partial(TimedValues, keyed.key, value)), 0, BY_PAIR)
    make = Make(DistinctOfRecords, ttl.after, tuple(side.rule.told for side in sides))
    make.reading(key=keyed.key, value=value, time=[side.selector for side in sides])
    inputs = [edge, *largest_of(keyed.flow, sides, base)]
    node = graph.add(NodeKind.VERTEX, stream.scope, name=name, base="distinct", op=make, inputs=inputs)
    node.options[updates.TAKES] = ("distinct", False)
    return Stream(keyed.flow, node.id)


__all__ = ["distinct_of_records", "join_of_records"]
