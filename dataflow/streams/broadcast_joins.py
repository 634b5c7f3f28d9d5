"""The join with a small side that every replica has: what it adds to the logical graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind, Partition, PartitionKind
from rayad.dataflow.operators.joins.broadcast import BroadcastJoin, Numbered, Tagged
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams import updates
from rayad.dataflow.streams.keyed_steps import require_no_ttl
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.steps import materialised, through
from rayad.dataflow.streams.stream import Stream
from rayad.progress import DataflowError

if TYPE_CHECKING:
    from rayad.dataflow.streams.keyed_stream import KeyedStream


def broadcast_join(left: KeyedStream, other: KeyedStream, name: str | None, parallelism: int | None) -> Stream:
    """See :meth:`KeyedStream.join`, which has checked both sides."""
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
    numbered = graph.add(
        NodeKind.VERTEX,
        scope,
        name=None,
        base=f"{base}.small-side",
        op=Make(Numbered, other.key).reading(key=other.key),
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


__all__ = ["broadcast_join"]
