"""``Stream.ordered``: what it changes in the logical graph (docs/design/ordering.md).

It walks up through stateless operators and exchanges to the first of the exchanges, puts a numbering vertex of one replica before that,
lets the operators on the way keep the numbers, and puts a vertex of one replica behind them that restores the order. Other consumers of
a stream that carries numbers get the records without them, from a step that the compiler adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayad.dataflow.logical_graph import LogicalEdge, LogicalGraph, Node, NodeKind, Partition, PartitionKind
from rayad.dataflow.operators.order.ordered import NUMBERS, NumberRecords, RestoreOrder, WithNumbers, carries_numbers
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams.steps import materialised
from rayad.dataflow.streams.updates import PASSES
from rayad.progress import DataflowError, arguments

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream

SINGLE = Partition(PartitionKind.SINGLE)
ADVICE = "call ordered() on what comes from rebalance() through map, filter, flat_map, map_batches or inspect alone"


class MakeRestoreOrder:
    """A picklable factory."""

    cls = RestoreOrder

    def __init__(self, memory_bytes: int, directory: str | None) -> None:
        self.args = (memory_bytes, directory)
        self.kwargs: dict[str, Any] = {}

    def __call__(self) -> RestoreOrder:
        return RestoreOrder(*self.args)


def restore_order(stream: Stream, memory_bytes: Any, directory: str | None, name: str | None) -> Stream:
    """See :meth:`Stream.ordered`. A call that is refused changes nothing."""
    from rayad.dataflow.streams.stream import Stream

    memory_bytes = arguments.whole(memory_bytes, "ordered: memory_bytes", least=0)
    if directory is not None:
        directory = arguments.path(directory, "ordered: spill_directory", more=", or None")
    graph = stream.flow.graph
    graph.require_free(name)
    with graph.all_or_nothing():
        start = materialised(stream)
        path = _path(graph, start.node)
    _number(graph, path)
    node = graph.add(
        NodeKind.VERTEX,
        start.scope,
        name=name,
        base="ordered",
        op=MakeRestoreOrder(memory_bytes, directory),
        inputs=[LogicalEdge(start.node, start.port, SINGLE)],
        parallelism=1,
    )
    node.options[NUMBERS] = "restoring"
    node.options[PASSES] = True
    return Stream(stream.flow, node.id, 0, stream.event_time and stream.event_time.moved())


def _path(graph: LogicalGraph, start: int) -> list[Node]:
    """The nodes from the one behind which order is restored up to the first exchange, or to a node that carries numbers already."""
    path: list[Node] = []
    length = 0
    node = graph.nodes[start]
    while node.kind in (NodeKind.STATELESS, NodeKind.EXCHANGE) and not carries_numbers(node):
        path.append(node)
        edge = node.inputs[0]
        if edge.partition.kind is PartitionKind.BROADCAST:
            raise DataflowError(
                f"ordered() at {users_line()}: {node.name!r} ({node.where}) gives every record to every replica, so each comes several "
                f"times; {ADVICE}"
            )
        if edge.partition.kind is PartitionKind.REBALANCE:
            length = len(path)
        node = graph.nodes[edge.source]
    if carries_numbers(node):
        return path
    if not length:
        raise DataflowError(f"ordered() at {users_line()}: {_why_not(graph, node)}; {ADVICE}")
    return path[:length]


def _why_not(graph: LogicalGraph, end: Node) -> str:
    """Why there is no exchange whose order could be restored."""
    what = f"{end.name!r} ({end.where})"
    if end.kind is NodeKind.VERTEX:
        return f"{what} keeps state: what it sends has no place in the order of its input"
    if end.kind is NodeKind.UNION:
        return f"{what} brings several streams together, which have no order among each other"
    if end.kind in (NodeKind.INGRESS, NodeKind.EGRESS, NodeKind.FEEDBACK):
        return f"{what} is the boundary of a loop, and order is restored within one time of one scope"
    return f"nothing behind the source {what} is parallel, so there is no order to restore"


def _number(graph: LogicalGraph, path: list[Node]) -> None:
    """Let the nodes of a path carry numbers, given from before its last one on."""
    if not path:
        return
    first = path[-1]
    edge = first.inputs[0]
    if not carries_numbers(graph.nodes[edge.source]):
        vertex = graph.add(
            NodeKind.VERTEX,
            first.scope,
            name=None,
            base=f"{first.name}.number",
            op=NumberRecords,
            inputs=[LogicalEdge(edge.source, edge.port, SINGLE)],
            parallelism=1,
        )
        vertex.options[NUMBERS] = "numbering"
        vertex.options[PASSES] = True
        first.inputs[0] = LogicalEdge(vertex.id, 0, edge.partition)
    for node in path:
        if node.kind is NodeKind.STATELESS:
            node.op = WithNumbers(node.op)
        node.options[NUMBERS] = "kept"
