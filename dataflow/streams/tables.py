"""``changes`` and ``latest`` of running totals: what they add to the logical graph."""

from __future__ import annotations

from typing import Any

from rayad.dataflow.logical_graph import LogicalEdge, NodeKind, Partition, PartitionKind
from rayad.dataflow.operators.keys.keyed import PairValue
from rayad.dataflow.operators.time_to_live import ENDED
from rayad.dataflow.operators.totals.tables import TableAtEnd, TableChanges, TableEvery, TellUpdates
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams import updates
from rayad.dataflow.streams.making import BY_PAIR, LABELS_OF, Make
from rayad.dataflow.streams.steps import materialised, through
from rayad.dataflow.streams.stream import Stream
from rayad.progress import DataflowError, arguments


def changes_of(stream: Stream, name: str | None) -> Stream:
    """See :meth:`Stream.changes`."""
    keys_end = updates.require_totals(stream.flow.graph, stream.node, stream.scope, "changes", stream.name, "")
    return _read(stream, "changes", Make(TableChanges, keys_end=keys_end), name, keys_end)


def latest_of(stream: Stream, every: int | None, name: str | None) -> Stream:
    """See :meth:`Stream.latest`."""
    graph = stream.flow.graph
    instead = "; of other records say key_by(...).latest(by), which takes their order"
    keys_end = updates.require_totals(graph, stream.node, stream.scope, "latest", stream.name, instead)
    make = Make(TableAtEnd, keys_end=keys_end)
    if every is not None:
        if stream.scope != 0:
            raise DataflowError(
                f"latest at {users_line()} was given every={every!r} inside the loop {graph.scopes[stream.scope].name!r}: a table belongs "
                "to an epoch, which a loop does not wait for; leave the loop before"
            )
        make = Make(TableEvery, arguments.whole(every, "latest: every", least=1), keys_end=keys_end)
    out = _read(stream, "latest", make, name, keys_end, told=every is not None)
    graph.nodes[out.node].options[LABELS_OF] = stream.node
    return out


def _read(stream: Stream, base: str, make: Make, name: str | None, keys_end: bool, *, told: bool = False) -> Stream:
    """A vertex that reads running totals as a table."""
    graph = stream.flow.graph
    graph.require_free(name)
    of_totals = materialised(stream)
    key, value = KeySelector(function=_key_of_total), ValueSelector(function=_value_of_total)
    ports = [through(of_totals, f"{name or base}.prepare", PairValue(key, value))]
    if keys_end:
        ports.append(Stream(stream.flow, of_totals.node, ENDED))
    inputs = [LogicalEdge(port.node, port.port, BY_PAIR) for port in ports]
    if told:
        each = [through(port, f"{name or base}.updates", TellUpdates()) for port in ports]
        inputs += [LogicalEdge(one.node, one.port, Partition(PartitionKind.BROADCAST)) for one in each]
    op = make.reading(key=key, value=value)
    node = graph.add(NodeKind.VERTEX, stream.scope, name=name, base=base, op=op, inputs=inputs)
    return Stream(stream.flow, node.id)


def _key_of_total(record: Any) -> Any:
    """Of windows, ``(key, window)``."""
    return record[0] if len(record) == 2 else record[:-1]


def _value_of_total(record: Any) -> Any:
    return record[-1]


__all__ = ["changes_of", "latest_of"]
