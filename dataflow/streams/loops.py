"""Loop contexts: structured cycles, to any depth.

A stream enters a loop (its timestamps gain a counter, 0), goes round through a feedback (the counter grows by 1) and leaves (the
counter is dropped). Source: Naiad, SOSP 2013, 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind, check_name
from rayad.dataflow.records.calling import checked_function
from rayad.dataflow.records.type_variables import T, U
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.streams.steps import materialised
from rayad.dataflow.streams.stream import Stream, own_stream
from rayad.dataflow.streams.updates import gives_updates, require_records_behind
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.flow import Dataflow


@explains_calls
class Feedback(Stream[T]):
    """The stream that comes round again in a loop. ``connect`` the stream that is fed back, once."""

    def connect(self, stream: Stream) -> None:
        """Close the cycle: records of ``stream`` reappear here with a loop counter higher by one."""
        node = self.flow.graph.nodes[self.node]
        own_stream(self.flow, stream, f"connect of feedback {node.name!r}")
        if node.inputs:
            raise DataflowError(
                f"feedback {node.name!r} ({node.where}) is connected twice, again at {users_line()}: union the streams first"
            )
        if stream.scope != node.scope:
            raise DataflowError(
                f"feedback {node.name!r} ({node.where}) is in {self.flow.graph.scopes[node.scope].name!r}, the stream given at "
                f"{users_line()} is in "
                f"{self.flow.graph.scopes[stream.scope].name!r}: an edge may not cross scopes"
            )
        inside = materialised(stream)
        node.inputs.append(LogicalEdge(inside.node, inside.port))
        require_records_behind(self.flow.graph, node)


@explains_calls
class Loop:
    """A loop context. It needs no ``with``: it is closed when its feedbacks are connected."""

    def __init__(self, flow: Dataflow, name: str | None, parent: int | None) -> None:
        self.flow = flow
        self._name = name if name is None else check_name(name, "the loop name")
        self._parent = parent
        self._scope: int | None = None

    @property
    def scope(self) -> int:
        """The number of the loop's scope. The first ``enter`` decides in which scope the loop lies."""
        if self._scope is None:
            self._scope = self.flow.graph.add_scope(self._parent or 0, self._name).id
        return self._scope

    def enter(self, stream: Stream[U], *, name: str | None = None) -> Stream[U]:
        """Bring a stream into the loop, in round 0."""
        own_stream(self.flow, stream, "enter")
        self.flow.graph.require_free(name)
        if self._scope is None and self._parent is None:
            self._parent = stream.scope
        scope = self.flow.graph.scopes[self.scope]
        if stream.scope != scope.parent:
            raise DataflowError(
                f"enter() at {users_line()}: the stream is in {self.flow.graph.scopes[stream.scope].name!r}, but loop "
                f"{scope.name!r} lies in "
                f"{self.flow.graph.scopes[scope.parent or 0].name!r}; enter the loops in between first"
            )
        inside = materialised(stream)
        edge = LogicalEdge(inside.node, inside.port)
        base = f"{scope.name}.enter"
        node = self.flow.graph.add(NodeKind.INGRESS, scope.parent or 0, name=name, base=base, inputs=[edge], inner=scope.id)
        return Stream(self.flow, node.id, 0, stream.event_time and stream.event_time.moved())

    def feedback(self, max_rounds: int | None = None, *, name: str | None = None) -> Feedback[Any]:
        """Create a stream that is fed back: ``connect`` it to the stream that goes round again.

        With ``max_rounds`` only rounds 0 to max_rounds - 1 exist; records that would begin another round are dropped.
        """
        if max_rounds is not None:
            max_rounds = arguments.whole(max_rounds, "max_rounds", least=1, more=", or None for as long as there is something")
        scope = self.flow.graph.scopes[self.scope]
        node = self.flow.graph.add(NodeKind.FEEDBACK, scope.id, name=name, base=f"{scope.name}.feedback", op=max_rounds)
        return Feedback(self.flow, node.id)

    def leave(self, stream: Stream[U], *, name: str | None = None) -> Stream[U]:
        """Bring a stream out of the loop, without its loop counter."""
        own_stream(self.flow, stream, "leave")
        self.flow.graph.require_free(name)
        scope = self.flow.graph.scopes[self.scope]
        if stream.scope != scope.id:
            raise DataflowError(
                f"leave() at {users_line()}: the stream is in {self.flow.graph.scopes[stream.scope].name!r}, not in loop {scope.name!r}"
            )
        inside = materialised(stream)
        edge = LogicalEdge(inside.node, inside.port)
        node = self.flow.graph.add(NodeKind.EGRESS, scope.id, name=name, base=f"{scope.name}.leave", inputs=[edge])
        return Stream(self.flow, node.id)

    def leave_updates(self, stream: Stream[U], *, of: Stream, name: str | None = None) -> Stream[U]:
        """Bring updates of a table out of the loop, which a vertex sends once for each epoch of the stream ``of``, as running totals
        are.

        See ``Stream.as_records`` for what updates are.
        """
        own_stream(self.flow, of, "leave_updates (of)")
        out = self.leave(stream, name=name)
        gives_updates(self.flow.graph, out.node, of.node)
        return out


def iterate(stream: Stream, body: Any, max_rounds: int | None, name: str | None) -> Stream:
    """See :meth:`Stream.iterate`."""
    checked_function(body, f"iterate at {users_line()}", "inner", rule="it takes a function body(inner) that returns (again, out)")
    with stream.flow.graph.all_or_nothing():
        return _iterate(stream, body, max_rounds, name)


def _iterate(stream: Stream, body: Any, max_rounds: int | None, name: str | None) -> Stream:
    loop = Loop(stream.flow, name, stream.scope)
    entered = loop.enter(stream)
    back = loop.feedback(max_rounds)
    answer = body(entered.union(back))
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(s, Stream) for s in answer):
        raise DataflowError(
            f"the body given to iterate at {users_line()} returned {show(answer)}: it must return two streams (again, out): "
            "what is fed back and what leaves"
        )
    again, out = answer
    for what, value in (("again", again), ("out", out)):
        own_stream(stream.flow, value, f"iterate ({what})")
        if value.scope != loop.scope:
            raise DataflowError(
                f"the body given to iterate at {users_line()} returned {what} in {stream.flow.graph.scopes[value.scope].name!r}: it "
                "must be made from the "
                "stream that the body was given, inside the loop"
            )
    back.connect(again)
    return loop.leave(out)
