"""Joins of two keyed streams: over all time, in time, as of a time, and with a side that every replica has.

Beside `KeyedStream`, whose methods these are, so that a program without a join loads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from rayad.dataflow.items import LiveInput
from rayad.dataflow.logical_graph import LogicalEdge, NodeKind, Partition, PartitionKind
from rayad.dataflow.operators.joins.asof import AsOfHow, AsOfJoin
from rayad.dataflow.operators.joins.broadcast import BroadcastJoin, Numbered, NumberedToItsEnd, Tagged
from rayad.dataflow.operators.joins.intervals import IntervalJoin
from rayad.dataflow.operators.joins.join import Join
from rayad.dataflow.operators.joins.matching import ALONE, How
from rayad.dataflow.operators.keys.key_first import KeyFirst
from rayad.dataflow.records.event_times import length_from_zero
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams import fitting, schemas, updates
from rayad.dataflow.streams.in_time.records_that_end import join_of_records
from rayad.dataflow.streams.in_time.timed_edges import keys_that_end
from rayad.dataflow.streams.keyed_steps import require_no_ttl, require_records
from rayad.dataflow.streams.keyed_stream import KeyedStream
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.steps import materialised, through
from rayad.dataflow.streams.stream import Stream, own_stream
from rayad.dataflow.streams.windowed_stream import join_in_time
from rayad.dataflow.windows import AsOf, Between, Direction
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.windowed_stream import LateStream


def join(
    left: KeyedStream[Any, Any],
    other: Any,
    within: Between | None,
    how: How,
    broadcast: bool,
    name: str | None,
    parallelism: int | None,
) -> Stream[Any]:
    """See `KeyedStream.join`."""
    broadcast = arguments.flag(broadcast, f"join at {users_line()}: broadcast")
    if within is not None:
        if broadcast:
            raise DataflowError(
                f"join at {users_line()} was given within={show(within, 60)} and broadcast=True: records of an interval join wait by "
                "key, on both sides; leave broadcast out"
            )
        if not isinstance(within, Between):
            raise DataflowError(f"join at {users_line()} was given within={show(within, 60)}: use rd.between(lower, upper)")
        for side in (left, other):
            if isinstance(side, KeyedStream):
                require_no_ttl(side, "join (within)", "records of such a join end when nothing can meet them any more; leave ttl() out")
        return join_in_time(IntervalJoin, left, other, within, how, "interval-join", name, parallelism)
    arguments.choice(how, f"join at {users_line()}: how", *ALONE)
    if how != "inner":
        raise DataflowError(
            f"join at {users_line()}: how is {how!r}: a join over all time is an inner one, since a record that has met none may meet "
            "one later; give within=rd.between(lower, upper), or join in windows: key_by(...).window(...).join(...)"
        )
    if not isinstance(other, KeyedStream):
        raise DataflowError(f"join at {users_line()} was given {show(other)}: both sides must be keyed with key_by")
    own_stream(left.flow, other.stream, "join")
    graph = left.flow.graph
    graph.require_free(name)
    if other.stream.scope != left.stream.scope:
        raise DataflowError(
            f"join at {users_line()}: one side is in {graph.scopes[left.stream.scope].name!r}, the other in "
            f"{graph.scopes[other.stream.scope].name!r}: an edge may not cross scopes; use loop.enter(stream) or loop.leave(stream)"
        )
    for side in (left, other):
        require_records(side, "join")
    fitting.require_meeting((schemas.known(left.stream), left.key), (schemas.known(other.stream), other.key), "join")
    of_records = [side.time_to_live is not None and side.time_to_live.of == "records" for side in (left, other)]
    if left.time_to_live != other.time_to_live and not all(of_records):
        raise DataflowError(
            f"join at {users_line()}: one side has the time-to-live {left.time_to_live}, the other {other.time_to_live}: a key of a "
            "join ends on both sides at once, give both the same; records end each by that of its side, give both one with "
            "of='records'"
        )
    if broadcast:
        return _broadcast(left, other, name, parallelism)
    if all(of_records):
        return join_of_records(left, other, name, parallelism)
    make, base = Make(Join).reading(key=left.key, right_key=other.key), name or "join"
    sides, more = [(left.stream, left.key), (other.stream, other.key)], list[LogicalEdge]()
    if left.time_to_live is not None:
        sides = [(materialised(stream), key) for stream, key in sides]
        make, more = keys_that_end(sides, left.time_to_live, make, base)
    edges = [LogicalEdge(through(stream, f"{base}.prepare", KeyFirst(key)).node, 0, BY_PAIR) for stream, key in sides] + more
    node = graph.add(
        NodeKind.VERTEX, left.stream.scope, name=name, base="join", op=make, inputs=edges, outputs=make.outputs, parallelism=parallelism
    )
    node.options[updates.TAKES] = ("join", False)
    return Stream(left.flow, node.id)


def _broadcast(left: KeyedStream[Any, Any], other: KeyedStream[Any, Any], name: str | None, parallelism: int | None) -> Stream[Any]:
    """The join with a small side that every replica has."""
    graph, scope = left.flow.graph, left.stream.scope
    if scope != 0:
        raise DataflowError(
            f"join at {users_line()} was given broadcast=True inside the loop {graph.scopes[scope].name!r}: records meet the small side "
            "when an epoch is complete, which a loop does not wait for; leave broadcast out"
        )
    for side in (left, other):
        require_no_ttl(side, "join (broadcast)", "every replica has all of the small side, whose keys do not end; leave one of them out")
    base = name or "join"
    tagged = through(left.stream, f"{base}.prepare", Tagged(left.key))
    small = materialised(other.stream)
    goes_on = any(isinstance(node.op, LiveInput) and node.op.reopens for node in graph.before(small.node))
    numbered = graph.add(
        NodeKind.VERTEX,
        scope,
        name=None,
        base=f"{base}.small-side",
        op=Make(Numbered if goes_on else NumberedToItsEnd, other.key).reading(key=other.key),
        inputs=[LogicalEdge(small.node, small.port, Partition(PartitionKind.SINGLE))],
        parallelism=1,
    )
    node = graph.add(
        NodeKind.VERTEX,
        scope,
        name=name,
        base="join",
        op=Make(BroadcastJoin).reading(key=left.key, right_key=other.key),
        inputs=[LogicalEdge(tagged.node, 0, BY_PAIR), LogicalEdge(numbered.id, 0, Partition(PartitionKind.BROADCAST))],
        parallelism=parallelism,
    )
    node.options[updates.TAKES] = ("join", False)
    return Stream(left.flow, node.id)


def join_asof(
    left: KeyedStream[Any, Any],
    other: Any,
    how: AsOfHow,
    direction: Direction,
    tolerance: Any,
    allow_exact_matches: bool,
    name: str | None,
    parallelism: int | None,
) -> LateStream[Any, Any]:
    """See `KeyedStream.join_asof`."""
    for side in (left, other):
        if isinstance(side, KeyedStream):
            require_no_ttl(side, "join_asof", "its tolerance= says how long right records are kept; leave ttl() out")
    arguments.choice(how, f"join_asof at {users_line()}: how", "left", "inner")
    length = length_from_zero(tolerance, f"join_asof at {users_line()}: tolerance")
    arguments.choice(direction, f"join_asof at {users_line()}: direction", *get_args(Direction))
    rule = AsOf(length, arguments.flag(allow_exact_matches, f"join_asof at {users_line()}: allow_exact_matches"), direction)
    return join_in_time(AsOfJoin, left, other, rule, how, "asof-join", name, parallelism)


__all__ = ["join", "join_asof"]
