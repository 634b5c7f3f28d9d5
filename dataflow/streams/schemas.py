"""What is known of a stream's columns when the program is written: from sources that know theirs, through steps that keep or derive them.

A step derives its schema by running on no rows: nothing else says what it gives, so the two cannot differ. Functions of the user's,
vertices and keyed operators give streams of which nothing is known (yet: docs/design/data.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rayad.dataflow.logical_graph import LogicalGraph, Node, NodeKind
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.calling import did_you_mean
from rayad.dataflow.records.users_line import users_line
from rayad.progress import DataflowError, show

SCHEMA = "schema"
"""Option of a node: its schema, once somebody has asked."""
_DERIVED = frozenset((NodeKind.STATELESS, NodeKind.UNION, NodeKind.EXCHANGE, NodeKind.INGRESS, NodeKind.EGRESS))


def schema_of(graph: LogicalGraph, start: int) -> pa.Schema | None:
    """The columns of what node ``start`` gives; None where they are not known. Each node is asked once."""
    waiting = [start]
    while waiting:
        node = graph.nodes[waiting[-1]]
        inputs = [graph.nodes[edge.source] for edge in node.inputs] if node.kind in _DERIVED else []
        missing = [before.id for before in inputs if SCHEMA not in before.options]
        if missing and SCHEMA not in node.options:
            waiting.extend(missing)  # a cycle goes through a feedback, which asks nobody
            continue
        node.options.setdefault(SCHEMA, _derived(node, [before.options[SCHEMA] for before in inputs]))
        waiting.pop()
    found: pa.Schema | None = graph.nodes[start].options[SCHEMA]
    return found


def _derived(node: Node, before: Sequence[pa.Schema | None]) -> pa.Schema | None:
    if node.kind is NodeKind.SOURCE:
        schema = getattr(node.op, "schema", None)  # a source of the user's may have something else of that name
        if not isinstance(schema, pa.Schema) or not len(schema) or len(set(schema.names)) < len(schema):
            return None
        return schema.remove_metadata()
    if not before or before[0] is None or any(other is None or not other.equals(before[0]) for other in before):
        return None  # streams of unlike columns meet
    return node.op.schema_of(before[0]) if node.kind is NodeKind.STATELESS else before[0]


def require_known(graph: LogicalGraph, start: int, names: Sequence[str], what: str) -> None:
    """Raise DataflowError, with the user's line, where the columns are known and one of ``names`` is none of them."""
    schema = schema_of(graph, start)
    missing = next((name for name in names if schema is not None and name not in schema.names), None)
    if schema is not None and missing is not None:
        raise DataflowError(
            f"{what} at {users_line()}: there is no column {missing!r} among {show(schema.names, 120)}{did_you_mean(missing, schema.names)}"
        )


def require_fit(graph: LogicalGraph, start: int, step: Element) -> None:
    """Raise DataflowError, with the user's line, where the columns that node ``start`` gives are known and ``step`` cannot take them."""
    schema = schema_of(graph, start)
    if schema is not None:
        try:
            step.schema_of(schema)
        except DataflowError as error:
            raise DataflowError(f"at {users_line()}: {error}") from error


def rows_begin(graph: LogicalGraph) -> list[str]:
    """Where columns that are known become rows, and why; a line each, in the order of the program."""
    found = []
    for node in graph.nodes:
        known = schema_of(graph, node.inputs[0].source) if node.kind is NodeKind.STATELESS else None
        why = node.op.rows_because(known) if known is not None else None
        if why is not None:
            found.append(f"columns become rows at {node.name!r} ({node.where}): {why}")
    return found


__all__ = ["require_fit", "require_known", "rows_begin", "schema_of"]
