"""What a keyed operator asks of its stream, and the vertex behind an exchange by key that it becomes.

These are functions beside the streams, not methods of theirs: what a user can call on a stream is what is meant for users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind
from rayad.dataflow.operators import stateless as el
from rayad.dataflow.operators.aggregates import aggregators as agg
from rayad.dataflow.operators.aggregates.first_last import InOrder
from rayad.dataflow.operators.time_to_live import Ttl
from rayad.dataflow.records.selectors import ValueSelector, whole_record
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams import fitting, schemas, updates
from rayad.dataflow.streams.in_time.timed_edges import keys_that_end
from rayad.dataflow.streams.making import BY_PAIR, Make
from rayad.dataflow.streams.steps import materialised, through
from rayad.dataflow.streams.stream import Stream
from rayad.progress import DataflowError, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.keyed_stream import KeyedStream


def require_no_ttl(keyed: KeyedStream, what: str, why: str) -> None:
    """Raise DataflowError if the stream was given a time-to-live, which ``what`` does not take."""
    if keyed.time_to_live is not None:
        raise DataflowError(f"{what} at {users_line()} is given a stream with a time-to-live ({keyed.time_to_live}): {why}")


def require_records(keyed: KeyedStream, what: str, *, per_time: bool = False) -> None:
    """Raise DataflowError if the stream has updates, which an operator with state must not take for records (``updates``)."""
    updates.require_records(keyed.flow.graph, keyed.stream.node, keyed.stream.scope, what, per_time=per_time)


def value_of(keyed: KeyedStream, value: Any, what: str) -> ValueSelector:
    """The value of its records that a user named. Raises DataflowError where it is a column that is known not to be there."""
    selector = ValueSelector.of(value)
    _require_columns(keyed, selector.columns, what)
    return selector


def require_order(keyed: KeyedStream, by: Any, value: Any, what: str) -> None:
    """Raise DataflowError, with the user's line, where its columns are known and ``by``, which orders its records, is none of them. Where
    ``value`` says what is ordered, ``by`` is a field of that."""
    if isinstance(by, str) and value is None:
        fitting.require_order(schemas.known(keyed.stream), by, f"{what} (by)")
    if isinstance(by, str) and isinstance(value, str):
        fitting.require_field(schemas.known(keyed.stream), value, by, what)


def record_unless(value: Any) -> Any:
    """The value that a user named, else the whole record."""
    return whole_record if value is None else value


def in_order(keyed: KeyedStream, aggregator: agg.Aggregator, value: Any, by: Any, what: str) -> tuple[agg.Aggregator, Any]:
    """An aggregation of ``value`` that has been told what orders the records, if it asks, and the value that it takes then."""
    if not isinstance(aggregator, InOrder):
        if by is None:
            return aggregator, value
        raise DataflowError(
            f"{what} at {users_line()} was given {show(by, 60)} as an order: {aggregator.name} takes none, only first and last do; "
            "leave it out"
        )
    selector = value_of(keyed, record_unless(value), what)
    if by is not None:
        return aggregator.of(value_of(keyed, by, f"{what} (by)"), selector), whole_record
    times = keyed.stream.event_time
    if times is None or times.selector is None:
        why = "has no event time" if times is None else "is a union of streams with their event times in different places"
        raise DataflowError(
            f"{what} at {users_line()} was given no by=, and the stream {keyed.stream.name!r} {why}: records of an epoch have no order "
            "of their own; give by=, a function of the record or a column, or call assign_timestamps(...) after the last map before it"
        )
    return aggregator.of(times.selector, selector), whole_record


def exchange(keyed: KeyedStream, base: str, element: el.Element, make: Make, name: str | None, *, per_time: bool = False) -> Stream:
    """The results of the operator ``make`` behind an exchange by key; ``element`` prepares what is exchanged."""
    graph = keyed.flow.graph
    graph.require_free(name)
    require_records(keyed, base, per_time=per_time)
    make.reading(key=keyed.key, value=getattr(element, "value", None))
    stream, more = keyed.stream, list[LogicalEdge]()
    if keyed.time_to_live is not None and not per_time:
        _require_of_keys(keyed.time_to_live, base)
        stream = materialised(stream)
        make, more = keys_that_end([(stream, keyed.key)], keyed.time_to_live, make, name or base)
    prepared = through(stream, f"{name or base}.prepare", element)
    edge = LogicalEdge(prepared.node, 0, BY_PAIR)
    scope, inputs = keyed.stream.scope, [edge, *more]
    node = graph.add(NodeKind.VERTEX, scope, name=name, base=base, op=make, inputs=inputs, outputs=make.outputs)
    node.options[updates.TAKES] = (base, per_time)
    if more:
        node.options[updates.KEYS_END] = True
    return Stream(keyed.flow, node.id)


def exchange_each_epoch(keyed: KeyedStream, aggregate: str, element: el.Element, make: Make, name: str | None) -> Stream:
    """The results of the operator ``make`` of each epoch alone, behind an exchange by key; ``element`` prepares what is exchanged."""
    return exchange(keyed, f"{aggregate}-per-epoch", element, make, name, per_time=True)


def _require_of_keys(ttl: Ttl, what: str) -> None:
    """Raise DataflowError where the records of an operator are to end that keeps none."""
    if ttl.of == "records":
        raise DataflowError(
            f"{what} at {users_line()} is given a stream with a time-to-live ({ttl}): it keeps what has become of the records of a key, "
            f"which cannot end one by one. ttl({ttl.after!r}) ends keys; window(...), say rd.windows.sliding(...), gives results of the "
            "records of some time; records end in distinct, and in join over all time"
        )


def _require_columns(keyed: KeyedStream, names: Sequence[str], what: str) -> None:
    """Raise DataflowError, with the user's line, where its columns are known and one of ``names`` is none of them."""
    schemas.require_known(keyed.flow.graph, keyed.stream.node, keyed.stream.port, names, what)


__all__ = ["exchange", "exchange_each_epoch", "in_order", "record_unless", "require_no_ttl", "require_order", "require_records", "value_of"]
