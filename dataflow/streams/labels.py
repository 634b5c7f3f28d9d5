"""What the results that a stream has are called as columns: by the operator that made them, as far as steps pass them on."""

from __future__ import annotations

from rayad.dataflow.logical_graph import LogicalGraph, Node, NodeKind
from rayad.dataflow.operators.as_columns import Labels
from rayad.dataflow.operators.bad_records import Good, Tried
from rayad.dataflow.operators.projections import Widen
from rayad.dataflow.operators.results import WithoutKey
from rayad.dataflow.operators.windows.best import EachRecord
from rayad.dataflow.streams.making import Make

LABELS_OF = "labels of"
"""Option of a node whose results are called as those of another one, by its number."""
_PASSING = frozenset((NodeKind.UNION, NodeKind.EXCHANGE, NodeKind.INGRESS, NodeKind.EGRESS))


def labels_of(graph: LogicalGraph, start: int) -> Labels:
    """What the results of node ``start`` are called; where several operators made them, and call them differently, as where none did."""
    found, seen, waiting = set[Labels](), {start}, [start]
    while waiting:
        node = graph.nodes[waiting.pop()]
        before = {edge.source for edge in node.inputs}
        if LABELS_OF in node.options:
            before = {node.options[LABELS_OF]}
        elif isinstance(node.op, Make):
            found.add(node.op.labels)
            continue
        elif not _passes(node):
            return Labels()
        seen_before, seen = seen, seen | before
        waiting.extend(before - seen_before)
    return found.pop() if len(found) == 1 else Labels()


def _passes(node: Node) -> bool:
    if node.kind is not NodeKind.STATELESS:
        return node.kind in _PASSING
    step = node.op.element if isinstance(node.op, Tried) else node.op
    return bool(step.passes_on or isinstance(step, (EachRecord, Good, Widen, WithoutKey)))


__all__ = ["LABELS_OF", "labels_of"]
