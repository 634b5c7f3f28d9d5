"""What operators add to the logical graph behind a stream: a stateless step, the exchange that it asks for, a step that may fail.

These are functions beside the streams, not methods of theirs: what a user can call on a stream is what is meant for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind, PartitionKind
from rayad.dataflow.operators import stateless as el
from rayad.dataflow.operators.bad_records import Tried, check_on_error
from rayad.dataflow.resources import Resources, resources_asked
from rayad.dataflow.streams import schemas

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream


def materialised(stream: Stream) -> Stream:
    """The stream with its exchange, if it has one, made a node."""
    if stream.partition.kind is PartitionKind.FORWARD:
        return stream
    edge = LogicalEdge(stream.node, stream.port, stream.partition)
    base, graph = stream.partition.kind.value, stream.flow.graph
    node = graph.add(NodeKind.EXCHANGE, stream.scope, name=stream.partition.name, base=base, inputs=[edge])
    return _stream(stream, node.id, stream.event_time and stream.event_time.moved())


def through(stream: Stream, base: str, element: el.Element, *, keeps_time: bool = False) -> Stream:
    """The stream behind a step of ours that the user does not name: how an operator prepares what it exchanges."""
    return stateless(stream, base, element, None, keeps_time=keeps_time)


def stateless(
    stream: Stream,
    base: str,
    element: el.Element,
    name: str | None,
    *,
    keeps_time: bool = False,
    asked: Mapping[str, Any] | None = None,
) -> Stream:
    """The stream behind a stateless step, which ``keeps_time`` if records have the event times that they had before."""
    graph = stream.flow.graph
    graph.require_free(name)
    given = schemas.require_fit(graph, stream.node, stream.port, element)
    resources = resources_asked(base, asked or {})
    if resources is not None:
        return _on_its_own(stream, base, element, name, resources, keeps_time=keeps_time)
    times = stream.event_time
    if keeps_time and times is not None and times.together and stream.partition.kind is PartitionKind.FORWARD:
        return _of_each_side(stream, base, element, name)
    start = materialised(stream)
    inputs = [LogicalEdge(start.node, start.port)]
    node = graph.add(NodeKind.STATELESS, stream.scope, name=name, base=base, op=element, inputs=inputs)
    node.options[schemas.SCHEMA] = (given,)
    return _stream(stream, node.id, start.event_time if keeps_time else None)


def of_user(
    stream: Stream,
    element: el.Element,
    name: str | None,
    on_error: Any,
    max_errors: Any,
    after_crashes: Any = None,
    *,
    keeps_time: bool = False,
    asked: Any = None,
) -> Stream:
    """The stream behind a step with a function of the user's."""
    base = element.base
    if check_on_error(base, on_error, max_errors, after_crashes) == "raise":
        return stateless(stream, base, element, name, keeps_time=keeps_time, asked=asked)
    return tried(stream, element, name, max_errors, after_crashes, keeps_time=keeps_time, asked=asked)


def tried(
    stream: Stream,
    element: el.Element,
    name: str | None,
    errors_max: int | None,
    after_crashes: int | None = None,
    *,
    keeps_time: bool = False,
    asked: Any = None,
) -> Stream:
    """The stream behind a step that sets aside the records on which it fails."""
    from rayad.dataflow.streams.skipping import skipping

    with stream.flow.graph.all_or_nothing():
        trying = Tried(element, after_crashes=after_crashes)
        out = stateless(stream, element.base, trying, name, keeps_time=keeps_time, asked=asked)
        return skipping(out, trying, keeps_time, errors_max)


def _of_each_side(stream: Stream, base: str, element: el.Element, name: str | None) -> Stream:
    """A step that keeps event times of a union: applied to each of its streams, which keep their own event times."""
    assert stream.event_time is not None
    graph, scope = stream.flow.graph, stream.scope
    sides = []
    for side in stream.event_time.sides:
        edge = LogicalEdge(side.node, side.port)
        node = graph.add(NodeKind.STATELESS, scope, name=None, base=base, op=element, inputs=[edge])
        sides.append(replace(side, node=node.id, port=0))
    inputs = [LogicalEdge(side.node, side.port) for side in sides]
    together = graph.add(NodeKind.UNION, scope, name=name, base=f"{base}.union", inputs=inputs)
    return _stream(stream, together.id, replace(stream.event_time, sides=tuple(sides)))


def _on_its_own(stream: Stream, base: str, element: el.Element, name: str | None, resources: Resources, *, keeps_time: bool) -> Stream:
    """A stateless operator that asks for resources runs in replicas of its own, and is not fused with the step before it."""
    graph, scope = stream.flow.graph, stream.scope
    before = stream if stream.partition.name is None else materialised(stream)
    edge = LogicalEdge(before.node, before.port, before.partition)
    head = graph.add(NodeKind.EXCHANGE, scope, name=name, base=base, inputs=[edge], resources=resources)
    inside, inputs = f"{head.name}.function", [LogicalEdge(head.id, 0)]
    made = graph.add(NodeKind.STATELESS, scope, name=None, base=inside, op=element, inputs=inputs, called=head.name)
    return _stream(stream, made.id, before.event_time and before.event_time.moved() if keeps_time else None)


def _stream(of: Stream, node: int, event_time: Any) -> Stream:
    """The output of a node in the dataflow of another stream."""
    from rayad.dataflow.streams.stream import Stream

    return Stream(of.flow, node, 0, event_time)


__all__ = ["materialised", "of_user", "stateless", "through", "tried"]
