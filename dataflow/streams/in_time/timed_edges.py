"""Edges that event times go over, beside those of the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rayad.dataflow.compiling.state_identity import describe, made_by
from rayad.dataflow.logical_graph import LogicalEdge, NodeKind, Partition, PartitionKind
from rayad.dataflow.operators.time_to_live import ENDED, KeysEnd, KeysEndSendingAtEnd, LastTimes, Ttl
from rayad.dataflow.operators.windows.told_times import EventTime, Side
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.steps import through
from rayad.dataflow.streams.stream import Stream
from rayad.dataflow.vertex import EndVertex
from rayad.progress import DataflowError


def require_event_time(stream: Stream, what: str, instead: str) -> EventTime:
    """Where the event times of a stream are. Raises DataflowError where it has none, and inside a loop, in which event time does not go on;
    ``what`` was asked for there, and ``instead`` says what to write."""
    if stream.event_time is None:
        raise DataflowError(
            f"{what} at {users_line()}: the stream {stream.name!r} has no event time; call assign_timestamps(...) after the last map "
            "before it"
        )
    if stream.scope != 0:
        loop = stream.flow.graph.scopes[stream.scope].name
        raise DataflowError(
            f"{what} at {users_line()}: the stream {stream.name!r} is inside the loop {loop!r}, where event time does not go on; {instead}"
        )
    return stream.event_time


def sides_of(stream: Stream) -> tuple[Side, ...]:
    """The streams whose event times make the watermark."""
    found = stream.event_time
    assert found is not None
    return found.sides_at(stream.node, stream.port)


def placed(stream: Stream, base: str, element: Callable[[ValueSelector], Any]) -> int:
    """A node with the results of ``element``, which is told where event times are."""
    found = stream.event_time
    assert found is not None
    if found.selector is not None:
        return through(stream, base, element(found.selector)).node
    each = [through(Stream(stream.flow, side.node, side.port), base, element(side.selector)) for side in found.sides]
    inputs = [LogicalEdge(one.node, one.port) for one in each]
    return stream.flow.graph.add(NodeKind.UNION, stream.scope, name=None, base=f"{base}.union", inputs=inputs).id


def largest_of(flow: Any, sides: tuple[Side, ...], base: str) -> list[LogicalEdge]:
    """What the batches of each side tell of their event times, for every replica."""
    each = [through(Stream(flow, side.node, side.port), f"{base}.largest-time", side.told()) for side in sides]
    return [LogicalEdge(one.node, 0, Partition(PartitionKind.BROADCAST)) for one in each]


def keys_that_end(sides: Sequence[tuple[Stream, KeySelector]], ttl: Ttl, make: Make, base: str) -> tuple[Make, list[LogicalEdge]]:
    """The factory of a vertex around that of ``make`` whose keys end (``time_to_live``), and the edges that it has besides: the event
    times of the keys of each of these streams, and the largest ones of all."""
    found = [sides_of(stream) for stream, _ in sides]
    edges = [LogicalEdge(placed(stream, f"{base}.last-times", partial(LastTimes, key)), 0, BY_PAIR) for stream, key in sides]
    for each in found:
        edges += largest_of(sides[0][0].flow, each, base)
    delays = tuple(one.rule.told for each in found for one in each)
    kind = KeysEndSendingAtEnd if issubclass(make.cls, EndVertex) else KeysEnd
    around = Make(kind, make, ttl, delays, len(sides))
    around.reads = {"of": made_by(make), "time": describe([one.selector for each in found for one in each])}
    around.labels, around.__name__, around.outputs = make.labels, make.__name__, ENDED + 1
    return around, edges
