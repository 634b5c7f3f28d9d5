"""What is known of a stream's columns when the program is written: from sources that know theirs, through steps that keep or derive them.

A step derives its schema by running on no rows, and a vertex is asked for what it makes of none: nothing else says what they give, so the
two cannot differ. Functions and vertices of the user's give streams of which nothing is known, and so do operators that handle rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rayad.dataflow.logical_graph import LogicalGraph, Node, NodeKind
from rayad.dataflow.operators.projections import Widen
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.calling import did_you_mean
from rayad.dataflow.records.exact import wider_type
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams.making import Make
from rayad.progress import DataflowError, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream

SCHEMA = "schema"
"""Option of a node: its schema, once somebody has asked."""
_DERIVED = frozenset((NodeKind.STATELESS, NodeKind.UNION, NodeKind.EXCHANGE, NodeKind.INGRESS, NodeKind.EGRESS, NodeKind.VERTEX))


def schema_of(graph: LogicalGraph, start: int, port: int = 0) -> pa.Schema | None:
    """The columns of what node ``start`` gives at an output, with what they tell of rows; None where they are not known. Each node is asked
    once."""
    waiting = [start]
    while waiting:
        node = graph.nodes[waiting[-1]]
        inputs = [graph.nodes[edge.source] for edge in node.inputs] if node.kind in _DERIVED else []
        missing = [before.id for before in inputs if SCHEMA not in before.options]
        if missing and SCHEMA not in node.options:
            waiting.extend(missing)  # a cycle goes through a feedback, which asks nobody
            continue
        if SCHEMA not in node.options:
            before = [_at(graph.nodes[edge.source], edge.port) for edge in node.inputs] if inputs else []
            node.options[SCHEMA] = _of_vertex(node, before) if node.kind is NodeKind.VERTEX else (_derived(node, before),)
        waiting.pop()
    return _at(graph.nodes[start], port)


def known(stream: Stream) -> pa.Schema | None:
    """:func:`schema_of` what gives a stream."""
    return schema_of(stream.flow.graph, stream.node, stream.port)


def _at(node: Node, port: int) -> pa.Schema | None:
    known: Sequence[pa.Schema | None] = node.options[SCHEMA]
    return known[port] if port < len(known) else None


def _of_vertex(node: Node, before: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
    """What an operator of ours says; it is only made where there is something to say."""
    if not isinstance(node.op, Make) or not hasattr(node.op.cls, "schemas_of") or all(schema is None for schema in before):
        return ()
    vertex: KeyedVertex = node.op()
    try:
        return vertex.schemas_of(before)
    except pa.ArrowException:  # as in fitting()
        return ()


def _derived(node: Node, before: Sequence[pa.Schema | None]) -> pa.Schema | None:
    if node.kind is NodeKind.SOURCE:
        schema = getattr(node.op, "schema", None)  # a source of the user's may have something else of that name
        if not isinstance(schema, pa.Schema) or not len(schema) or len(set(schema.names)) < len(schema):
            return None
        return schema.remove_metadata()
    if node.kind is NodeKind.STATELESS and node.op.schema_said is not None:
        return node.op.schema_said
    if not before or before[0] is None or any(other is None or not other.equals(before[0], check_metadata=True) for other in before):
        return None  # streams of unlike columns meet
    return fitting(node.op, before[0]) if node.kind is NodeKind.STATELESS else before[0]


def require_known(graph: LogicalGraph, start: int, port: int, names: Sequence[str], what: str) -> None:
    """Raise DataflowError, with the user's line, where the columns are known and one of ``names`` is none of them."""
    for name in names:
        require_name(schema_of(graph, start, port), name, what)


def require_name(schema: pa.Schema | None, name: str, what: str) -> None:
    """:func:`require_known` of one name."""
    if schema is not None and name not in schema.names:
        raise DataflowError(
            f"{what} at {users_line()}: there is no column {name!r} among {show(schema.names, 120)}{did_you_mean(name, schema.names)}"
        )


def require_fit(graph: LogicalGraph, start: int, port: int, step: Element) -> pa.Schema | None:
    """The columns that ``step`` gives behind node ``start``, if they are known. Raises DataflowError, with the user's line, where it cannot
    take those that are known there."""
    schema = schema_of(graph, start, port)
    return step.schema_said if schema is None else fitting(step, schema)


def fitting(step: Element, schema: pa.Schema) -> pa.Schema | None:
    """What ``step`` says that it gives. Raises DataflowError, with the user's line, where it cannot take columns of ``schema``."""
    try:
        return step.schema_of(schema)
    except DataflowError as error:
        raise DataflowError(f"at {users_line()}: {error}") from error
    except pa.ArrowException:  # a type that Arrow does not handle without rows: nothing is known
        return None


def alike(streams: Sequence[Stream], *, fill: bool = False) -> list[Stream]:
    """Streams that become one, each behind a step that brings it to the columns of all, where those of all are known and differ: in wider
    types, and with ``fill`` null in columns that it does not have.

    Raises DataflowError, with the user's line, where no type holds the values of all, where names differ without ``fill``, and with it
    where not all columns are known.
    """
    schemas = [schema for schema in map(known, streams) if schema is not None]
    if fill:
        _require_fields(streams)
    if len(schemas) < len(streams):
        return list(streams)
    first = schemas[0]
    if any(schema.metadata != first.metadata for schema in schemas):
        return list(streams)
    if first.metadata:  # in rows these are tuples
        if any(schema.names != first.names for schema in schemas):
            return list(streams)
    elif not fill:
        _require_same_names(streams, schemas)
    names = dict.fromkeys(name for schema in schemas for name in schema.names)
    wide = pa.schema([_widest(name, streams, schemas) for name in names], first.metadata)
    from rayad.dataflow.streams.steps import through

    return [
        one if schema.equals(wide) else through(one, "union.prepare", Widen(wide, fills=fill), keeps_time=True)
        for one, schema in zip(streams, schemas, strict=True)
    ]


def _require_fields(streams: Sequence[Stream]) -> None:
    for one in streams:
        schema = known(one)
        if schema is None or schema.metadata:
            why = "are not known; give schema= to the function before it" if schema is None else "are of tuples; call as_columns() on it"
            raise DataflowError(f"union(allow_missing_columns=True) at {users_line()}: the columns of {one.name!r} {why}")


def _require_same_names(streams: Sequence[Stream], schemas: Sequence[pa.Schema]) -> None:
    for one, schema in zip(streams[1:], schemas[1:], strict=True):
        sides = (streams[0].name, schemas[0].names), (one.name, schema.names)
        alone = [(mine, [name for name in names if name not in others]) for (mine, names), (_, others) in (sides, sides[::-1])]
        told = " and ".join(f"{show(names, 120)} only in {mine!r}" for mine, names in alone if names)
        if told:
            raise DataflowError(
                f"union at {users_line()}: columns have unlike names, {told}: give allow_missing_columns=True for null where a stream has "
                "no such column, or bring them to the same names by select or rename"
            )


def _widest(name: str, streams: Sequence[Stream], schemas: Sequence[pa.Schema]) -> pa.Field:
    having = [(one, schema.field(name)) for one, schema in zip(streams, schemas, strict=True) if name in schema.names]
    before, kind, nullable = having[0][0].name, having[0][1].type, len(having) < len(streams)
    for one, field in having:
        wide = wider_type(kind, field.type)
        if wide is None:
            raise DataflowError(
                f"union at {users_line()}: the column {name!r} is {kind} in {before!r} and {field.type} in {one.name!r}: no type "
                "holds the values of both; cast one of them with with_columns({...: pc.field(...).cast(...)}), or rename it"
            )
        kind, nullable = wide, nullable or field.nullable
    return pa.field(name, kind, nullable)


def not_repeatable(graph: LogicalGraph) -> list[str]:
    """What does not depend on its records alone; a line each."""
    of = {node.id: node.op.not_repeatable for node in graph.nodes if node.kind is NodeKind.STATELESS}
    of |= {node.id: getattr(getattr(node.op, "cls", None), "not_repeatable", "") for node in graph.nodes if node.kind is NodeKind.VERTEX}
    steps = [node for node in graph.nodes if of.get(node.id)]
    return [f"not repeatable: {node.name!r} ({node.where}) gives what depends on {of[node.id]}" for node in steps]


def rows_begin(graph: LogicalGraph) -> list[str]:
    """Where columns that are known become rows, and why, and where ``schema=`` says columns; a line each, in the order of the program."""
    found = []
    for node in graph.nodes:
        schema = schema_of(graph, node.inputs[0].source, node.inputs[0].port) if node.kind is NodeKind.STATELESS else None
        why = node.op.rows_because(schema) if schema is not None else None
        if why is not None:
            found.append(f"columns become rows at {node.name!r} ({node.where}): {why}")
        if node.kind is NodeKind.STATELESS and node.op.schema_said is not None:
            found.append(f"columns leave {node.name!r} ({node.where}): its schema= says which")
    return found


__all__ = ["alike", "known", "not_repeatable", "require_fit", "require_known", "rows_begin", "schema_of"]
