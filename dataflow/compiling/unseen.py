"""Whether anybody can see what a program computes."""

from __future__ import annotations

from typing import Any

from rayad.dataflow.logical_graph import LogicalGraph, Node, NodeKind
from rayad.dataflow.operators.map_batches import MapBatches, is_built

PROCESSES = "rayad.dataflow.operators.process"
"""The module whose vertex runs a class of the user's: by its name, so that programs without one do not load it."""


def unseen(graph: LogicalGraph) -> list[str]:
    """A program all of whose streams end in nothing, in words. Empty where something is written, probed, or done for its effects."""
    if any(_shows(node) for node in graph.nodes):
        return []
    taken = {edge.source for node in graph.nodes for edge in node.inputs}
    ends = [f"{node.name!r} ({node.where})" for node in graph.nodes if node.id not in taken]
    if not ends:
        return []
    return [
        f"nothing that this dataflow computes can be seen: {', '.join(ends)} {'ends' if len(ends) == 1 else 'end'} without a sink. Add "
        '.collect("name"), which gives result["name"], or another sink, such as .write_parquet(path); where a function is called for its '
        "effects alone, call it with .inspect(function)"
    ]


def _shows(node: Node) -> bool:
    """Sinks and probes; and what is there for its effects: ``inspect``, calls of services, callbacks, and classes of the user's."""
    if node.kind in (NodeKind.SINK, NodeKind.PROBE):
        return True
    op: Any = node.op
    while hasattr(op, "element"):  # of a step that tries another one, or gives its answers a schema
        op = op.element
    if node.kind is NodeKind.VERTEX:
        if not node.outputs:  # what it keeps can be read
            return True
        made = getattr(op, "cls", op)
        module = str(getattr(made, "__module__", ""))
        return module == PROCESSES or not module.startswith("rayad.") or getattr(made, "is_seen", False)
    return getattr(op, "base", "") in ("inspect", "map_async") or (isinstance(op, MapBatches) and is_built(op.function))


__all__ = ["unseen"]
