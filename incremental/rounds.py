"""Whether changes that come to nothing have to be dropped: before they go round a loop, or where what was never there would count."""

from __future__ import annotations

from collections.abc import Collection

from rayad.dataflow.logical_graph import LogicalGraph, NodeKind
from rayad.dataflow.streams.making import Make
from rayad.incremental.moment_vertex import MomentVertex


def goes_round_as_it_is(graph: LogicalGraph, start: int, variables: Collection[int]) -> bool:
    """Whether what a loop has gone round with may come to node ``start``, which goes round next, past no vertex that adds up a moment.

    An insertion and a removal of one record come to nothing. They take one way, so the first vertex that adds up what comes for a moment
    ends them, and with one on each way round nothing else has to. Where none is on some way they would go round for ever.

    Args:
        graph: which has the loop, not yet closed.
        start: the node whose output goes round.
        variables: the feedbacks of the loop.
    """
    seen, waiting = {start}, [start]
    while waiting:
        node = graph.nodes[waiting.pop()]
        if node.id in variables:
            return True
        if _adds_up(node.op):
            continue
        before = {edge.source for edge in node.inputs} - seen
        seen |= before
        waiting += before
    return False


def inserts_what_was_never_there(graph: LogicalGraph, start: int) -> bool:
    """Whether an insertion may come from node ``start`` of a record that is there neither before an epoch nor when it has ended.

    What adds up an epoch gives none, and no step of a record at a time makes one of others. A join gives a new left record with the right
    one that goes, and takes it back. What leaves a loop has been there in a round. What negates gives an insertion for a removal.
    """
    seen, waiting = {start}, [start]
    while waiting:
        node = graph.nodes[waiting.pop()]
        if _adds_up(node.op) or getattr(node.op, "only_inserts", False):
            continue
        if node.kind not in _AS_IT_COMES or getattr(node.op, "negates", False):
            return True
        before = {edge.source for edge in node.inputs} - seen
        seen |= before
        waiting += before
    return False


_AS_IT_COMES = (NodeKind.STATELESS, NodeKind.UNION, NodeKind.EXCHANGE, NodeKind.PROBE)


def _adds_up(op: object) -> bool:
    return isinstance(op, Make) and issubclass(op.cls, MomentVertex) and op.cls.adds_up


__all__ = ["goes_round_as_it_is", "inserts_what_was_never_there"]
